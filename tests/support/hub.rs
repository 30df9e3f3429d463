//! A hub for tests, which accepts notifications or misbehaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resourcesync::change_payload::ChangePayload;
use resourcesync::payload::Payload;

use super::DEADLINE;
use super::changes;
use super::documents::URL;
use super::http::{self, Say, Server, say};

/// The hub's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Accept,
    AcceptAfter(Duration),
    /// Answers with this status.
    Refuse(u16),
    /// Takes the request and never answers it.
    Hang,
    /// Takes the request, and accepts it once it is told to behave otherwise.
    Wait,
    /// Answers with an acceptance that is none, and repeats the request's headers in it.
    DenyAndRepeat,
}

/// One request, whatever became of it.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub accepted: bool,
    pub at: Instant,
}

impl Request {
    /// The notification's changes, such as `updated changelist a/changelist.xml` of a document, or `updated a/1.txt` of a
    /// resource, in order.
    pub fn changes(&self) -> Vec<String> {
        if let Some(notification) = ChangePayload::parse(&self.body) {
            return changes::told(&notification);
        }
        let payload = Payload::parse(&self.body).unwrap();
        payload
            .entries
            .iter()
            .map(|entry| {
                let path = entry
                    .uri
                    .as_str()
                    .strip_prefix(URL)
                    .unwrap_or(entry.uri.as_str());
                format!("{} {} {path}", entry.change, entry.capability)
            })
            .collect()
    }

    /// Returns the challenge of a verification request.
    pub fn challenge(&self) -> Option<&str> {
        let (_, rest) = self.target.split_once("hub.challenge=")?;
        rest.split('&').next()
    }

    pub fn topic(&self) -> String {
        let link = &self.headers["link"];
        link[1..link.find('>').unwrap()].to_owned()
    }
}

/// A hub on loopback.
pub struct FakeHub {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    requests: Receiver<Request>,
    _server: Server,
}

impl FakeHub {
    pub fn start() -> FakeHub {
        FakeHub::start_at("127.0.0.1:0".parse().unwrap())
    }

    /// A hub that comes back where it was.
    pub fn start_at(address: SocketAddr) -> FakeHub {
        let manner = Arc::new(Mutex::new(Manner::Accept));
        let (sender, requests) = channel();
        let shared = Arc::clone(&manner);
        let server = Server::start_at(address, move |request| answer(request, &shared, &sender));
        FakeHub {
            address: server.address,
            manner,
            requests,
            _server: server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/publish", self.address)
    }

    /// Its table in a configuration, with these keys.
    pub fn table(&self, keys: &str) -> String {
        format!("[[hub]]\nurl = \"{}\"\n{keys}\n", self.url())
    }

    pub fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// The next request, accepted or not.
    pub fn request(&self) -> Request {
        self.requests
            .recv_timeout(DEADLINE)
            .expect("a request to the hub in time")
    }

    /// The next notification that was accepted.
    pub fn notification(&self) -> Request {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.requests.recv_timeout(left) {
                Ok(request) if request.accepted => return request,
                Ok(_) => {}
                Err(error) => panic!("no notification in time: {error}"),
            }
        }
    }

    /// Asserts that the next accepted notification has these changes.
    #[track_caller]
    pub fn assert_told<C: std::fmt::Debug>(&self, changes: C)
    where
        Vec<String>: PartialEq<C>,
    {
        assert_eq!(self.notification().changes(), changes);
    }

    /// All changes accepted, from all topics, until each of `wanted` was among them.
    pub fn changes_until(&self, wanted: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        let mut left: Vec<&str> = wanted.to_vec();
        let deadline = Instant::now() + DEADLINE;
        while !left.is_empty() {
            let patience = deadline.saturating_duration_since(Instant::now());
            match self.requests.recv_timeout(patience) {
                Ok(request) if request.accepted => {
                    for change in request.changes() {
                        if let Some(place) = left.iter().position(|wanted| *wanted == change) {
                            left.remove(place);
                        }
                        all.push(change);
                    }
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("still waiting for {left:?}; heard {all:?}")
                }
            }
        }
        all
    }

    /// Returns everything received so far, without waiting.
    pub fn heard(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        // Whoever waits goes on.
        self.behave(Manner::Accept);
    }
}

fn answer(http: &http::Request, shared: &Mutex<Manner>, requests: &Sender<Request>) -> Option<Say> {
    let manner = *shared.lock().unwrap();
    let request = Request {
        method: http.method.clone(),
        target: http.target.clone(),
        headers: http.headers.clone(),
        body: http.body.clone(),
        accepted: matches!(
            manner,
            Manner::Accept | Manner::Wait | Manner::AcceptAfter(_)
        ),
        at: Instant::now(),
    };
    if let Manner::AcceptAfter(delay) = manner {
        std::thread::sleep(delay); // what a slow hub is: not a wait for luck, nor for a deadline
    }
    let said = match manner {
        Manner::Refuse(status) => say(&format!("{status} No"), "not now\n"),
        Manner::DenyAndRepeat => denial(&request),
        _ => say("200 OK", request.challenge().unwrap_or_default()),
    };
    // Who only looks tells nothing.
    if http.method != "HEAD" {
        requests.send(request).ok()?;
    }
    let waits = [Manner::Wait, Manner::Hang].contains(&manner);
    while waits && *shared.lock().unwrap() == manner {
        std::thread::sleep(Duration::from_millis(5)); // poll: somebody tells it
    }
    (manner != Manner::Hang).then_some(said)
}

fn denial(request: &Request) -> Say {
    let reason = format!("you said {:?}", request.headers);
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("hub.mode", "denied")
        .append_pair("hub.reason", &reason)
        .finish();
    Say {
        headers: "Content-Type: application/x-www-form-urlencoded\r\n".to_owned(),
        ..say("200 OK", form)
    }
}
