//! A hub for tests, which accepts notifications or misbehaves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use resourcesync::change_payload::ChangePayload;
use resourcesync::payload::Payload;

use super::DEADLINE;
use super::changes;
use super::documents::URL;
use super::http;

/// The hub's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Accept,
    /// Answers with this status.
    Refuse(u16),
    /// Takes the request and never answers.
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
    delay: Arc<Mutex<Duration>>,
    requests: Receiver<Request>,
    stopped: Arc<AtomicBool>,
}

impl FakeHub {
    pub fn start() -> FakeHub {
        FakeHub::start_at("127.0.0.1:0".parse().unwrap())
    }

    /// A hub that comes back where it was.
    pub fn start_at(address: SocketAddr) -> FakeHub {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let manner = Arc::new(Mutex::new(Manner::Accept));
        let delay = Arc::new(Mutex::new(Duration::ZERO));
        let stopped = Arc::new(AtomicBool::new(false));
        let (sender, requests) = channel();
        let (shared_manner, shared_delay) = (Arc::clone(&manner), Arc::clone(&delay));
        let is_stopped = Arc::clone(&stopped);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (manner, delay, sender) = (
                    Arc::clone(&shared_manner),
                    Arc::clone(&shared_delay),
                    sender.clone(),
                );
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(stream, &manner, &delay, &sender));
            }
        });
        FakeHub {
            address,
            manner,
            delay,
            requests,
            stopped,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/publish", self.address)
    }

    pub fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn answer_after(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
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
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    stream: TcpStream,
    shared: &Mutex<Manner>,
    delay: &Mutex<Duration>,
    requests: &Sender<Request>,
) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(http) = http::Request::read(&mut reader) {
        let mut request = Request {
            method: http.method,
            target: http.target,
            headers: http.headers,
            body: http.body,
            accepted: false,
            at: Instant::now(),
        };
        let manner = *shared.lock().unwrap();
        let delay = *delay.lock().unwrap();
        if !delay.is_zero() {
            std::thread::sleep(delay); // what a slow hub is: not a wait for luck, nor for a deadline
        }
        request.accepted = matches!(manner, Manner::Accept | Manner::Wait);
        let mut answer = match manner {
            Manner::Accept | Manner::Wait => {
                let words = request.challenge().unwrap_or_default();
                let length = words.len();
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{words}")
            }
            Manner::Refuse(status) => refusal(status),
            Manner::Hang => String::new(),
            Manner::DenyAndRepeat => denial(&request),
        };
        // Who only looks tells nothing, and is sent no body.
        if request.method == "HEAD" {
            answer = answer.replace("\r\n\r\nnot now\n", "\r\n\r\n");
        } else if requests.send(request).is_err() {
            return;
        }
        while manner == Manner::Wait && *shared.lock().unwrap() == Manner::Wait {
            std::thread::sleep(Duration::from_millis(5)); // poll: somebody tells it
        }
        if manner == Manner::Hang {
            let _ = reader.fill_buf();
            return;
        }
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn refusal(status: u16) -> String {
    format!("HTTP/1.1 {status} No\r\nContent-Length: 8\r\n\r\nnot now\n")
}

fn denial(request: &Request) -> String {
    let reason = format!("you said {:?}", request.headers);
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("hub.mode", "denied")
        .append_pair("hub.reason", &reason)
        .finish();
    let length = form.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    )
}
