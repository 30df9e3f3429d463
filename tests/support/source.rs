//! A Source with its hub, as `listen` finds them: serves documents, verifies subscriptions, and delivers on request.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use url::form_urlencoded;
use websub::hub::delivery::signature;
use websub::secret::Secret;

use super::DEADLINE;
use super::daemon;
use super::http::{Say, Server, say};

/// The lease that the hub grants, in seconds.
pub const LEASE: u64 = 1234;

/// The hub's answer to a subscription request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attitude {
    /// Accepts it and verifies it.
    Verify,
    /// Answers with this status.
    Refuse(u16),
    /// Answers that requests are answered again in an hour.
    Busy,
    /// Accepts it and denies it afterwards.
    Deny,
}

/// A subscription request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub mode: String,
    pub topic: String,
    pub callback: String,
    pub secret: String,
    pub lease: String,
}

impl Request {
    /// Delivers a notification. Returns the status of the answer; `None` if the connection was closed without one.
    pub fn deliver(&self, body: &str) -> Option<u16> {
        let signature = signature(&Secret::new(self.secret.as_str()), body.as_bytes());
        self.deliver_signed(body, &signature)
    }

    pub fn deliver_signed(&self, body: &str, signature: &str) -> Option<u16> {
        let header = format!(
            "X-Hub-Signature: {signature}\r\nContent-Type: application/xml\r\nLink: <{}>; rel=\"self\"\r\n",
            self.topic
        );
        exchange(&self.callback, "POST", "", &header, body)
    }

    /// Delivers a notification in the background.
    pub fn deliver_aside(&self, body: &str) -> std::thread::JoinHandle<Option<u16>> {
        let (request, body) = (self.clone(), body.to_owned());
        std::thread::spawn(move || request.deliver(&body))
    }

    /// Delivers a notification until it is acknowledged. Returns the answers before that.
    pub fn deliver_until_acknowledged(&self, body: &str) -> Vec<Option<u16>> {
        let deadline = std::time::Instant::now() + DEADLINE;
        let mut answers = Vec::new();
        loop {
            match self.deliver(body) {
                Some(200) => return answers,
                other => answers.push(other),
            }
            assert!(std::time::Instant::now() < deadline, "{answers:?}");
            std::thread::sleep(Duration::from_millis(20)); // a hub's wait between tries
        }
    }

    /// Denies the subscription.
    pub fn deny(&self) -> Option<u16> {
        let query = self.query("denied", &[("hub.reason", "not any more")]);
        exchange(&self.callback, "GET", &query, "", "")
    }

    /// Sends a verification request. Returns the status of the answer.
    pub fn verification(&self) -> Option<u16> {
        let lease = LEASE.to_string();
        let more = [
            ("hub.challenge", "a challenge"),
            ("hub.lease_seconds", lease.as_str()),
        ];
        let query = self.query(&self.mode, &more);
        exchange(&self.callback, "GET", &query, "", "")
    }

    fn query(&self, mode: &str, more: &[(&str, &str)]) -> String {
        let mut query = form_urlencoded::Serializer::new("?".to_owned());
        query
            .append_pair("hub.mode", mode)
            .append_pair("hub.topic", &self.topic);
        query.extend_pairs(more).finish().replace("?&", "?")
    }
}

/// A Source and its hub on loopback. The hub is at `/hub`; every other path is a document that was published.
pub struct FakeSource {
    pub address: SocketAddr,
    documents: Documents,
    attitude: Arc<Mutex<Attitude>>,
    requests: Receiver<Request>,
    _server: Server,
}

/// The answers at each path.
type Documents = Arc<Mutex<BTreeMap<String, Say>>>;

impl FakeSource {
    pub fn start() -> FakeSource {
        let documents = Documents::default();
        let attitude = Arc::new(Mutex::new(Attitude::Verify));
        let (sender, requests) = channel();
        let shared = (Arc::clone(&documents), Arc::clone(&attitude));
        let server = Server::start(move |request| {
            let (documents, attitude) = &shared;
            if request.method == "POST" {
                let attitude = *attitude.lock().unwrap();
                return Some(answer_as_hub(&request.body, attitude, sender.clone()));
            }
            let found = documents.lock().unwrap().get(&request.target).cloned();
            Some(found.unwrap_or_else(|| say("404 Not Found", "nothing\n")))
        });
        FakeSource {
            address: server.address,
            documents,
            attitude,
            requests,
            _server: server,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Serves a document. `SOURCE` in it stands for the URL of the Source.
    pub fn publish(&self, path: &str, content: &str) {
        self.answer(path, "", say("200 OK", self.filled(content)));
    }

    /// Serves a topic, with the links to itself and the hub.
    pub fn publish_topic(&self, path: &str, content: &str) {
        let [topic, hub] = [path, "/hub"].map(|path| self.url(path));
        let links = format!("Link: <{topic}>; rel=\"self\", <{hub}>; rel=\"hub\"\r\n");
        self.answer(path, &links, say("200 OK", self.filled(content)));
    }

    /// Serves a document that is compressed on the way.
    pub fn publish_compressed(&self, path: &str, content: &str) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(content.as_bytes()).unwrap();
        let said = say("200 OK", packed.finish().unwrap());
        self.answer(path, "Content-Encoding: gzip\r\n", said);
    }

    /// Answers requests for a document so that they are repeated later.
    pub fn postpone(&self, path: &str) {
        let said = say("503 Service Unavailable", "");
        self.answer(path, "Retry-After: 20\r\n", said);
    }

    /// Answers 404 at a path for a while.
    pub fn remove(&self, path: &str) {
        self.answer(path, "Retry-After: 20\r\n", say("404 Not Found", ""));
    }

    fn filled(&self, content: &str) -> String {
        content.replace("SOURCE", &self.url(""))
    }

    fn answer(&self, path: &str, headers: &str, said: Say) {
        let headers = format!("Content-Type: application/xml\r\n{headers}");
        let said = Say { headers, ..said };
        self.documents.lock().unwrap().insert(path.to_owned(), said);
    }

    /// Answers 404 at a path from now on.
    pub fn withdraw(&self, path: &str) {
        self.documents.lock().unwrap().remove(path);
    }

    pub fn behave(&self, attitude: Attitude) {
        *self.attitude.lock().unwrap() = attitude;
    }

    /// Returns the next request to the hub.
    pub fn request(&self) -> Request {
        self.requests
            .recv_timeout(DEADLINE)
            .expect("a request to the hub in time")
    }

    /// Returns the requests that came so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

/// The hub's answer to a form. What it does then comes afterwards.
fn answer_as_hub(form: &[u8], attitude: Attitude, requests: Sender<Request>) -> Say {
    let form: BTreeMap<String, String> = form_urlencoded::parse(form).into_owned().collect();
    let value = |name: &str| form.get(name).cloned().unwrap_or_default();
    let request = Request {
        mode: value("hub.mode"),
        topic: value("hub.topic"),
        callback: value("hub.callback"),
        secret: value("hub.secret"),
        lease: value("hub.lease_seconds"),
    };
    std::thread::spawn(move || {
        match attitude {
            Attitude::Verify => assert_eq!(request.verification(), Some(200), "{request:?}"),
            Attitude::Deny => assert_eq!(request.deny(), Some(200)),
            Attitude::Refuse(_) | Attitude::Busy => {}
        }
        let _ = requests.send(request);
    });
    match attitude {
        Attitude::Refuse(status) => say(&format!("{status} No"), "not now"),
        Attitude::Busy => Say {
            headers: "Retry-After: 3600\r\n".to_owned(),
            ..say("503 No", "not now")
        },
        Attitude::Verify | Attitude::Deny => say("202 Accepted", ""),
    }
}

/// Sends a request, and returns the status of the answer, if there is one.
fn exchange(url: &str, method: &str, query: &str, header: &str, body: &str) -> Option<u16> {
    let url = url::Url::parse(url).unwrap();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let (path, length) = (url.path(), body.len());
    let request = format!(
        "{method} {path}{query} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let answer = daemon::exchange(address, request).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}
