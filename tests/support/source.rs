//! A Source with its hub, as `listen` finds them: serves documents, verifies subscriptions, and delivers on request.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use url::form_urlencoded;
use websub::hub::delivery::signature;
use websub::secret::Secret;

use super::DEADLINE;
use super::http;

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

/// What is served at a path.
#[derive(Debug, Clone)]
struct Published {
    status: &'static str,
    is_topic: bool,
    /// Header lines besides.
    header: &'static str,
    body: Vec<u8>,
}

/// A Source and its hub on loopback. The hub is at `/hub`; every other path is a document that was published.
pub struct FakeSource {
    pub address: SocketAddr,
    documents: Arc<Mutex<BTreeMap<String, Published>>>,
    attitude: Arc<Mutex<Attitude>>,
    requests: Receiver<Request>,
    is_stopped: Arc<AtomicBool>,
}

impl FakeSource {
    pub fn start() -> FakeSource {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let documents: Arc<Mutex<BTreeMap<String, Published>>> = Arc::default();
        let attitude = Arc::new(Mutex::new(Attitude::Verify));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (sender, requests) = channel();
        let shared = (
            Arc::clone(&documents),
            Arc::clone(&attitude),
            Arc::clone(&is_stopped),
        );
        std::thread::spawn(move || {
            let (documents, attitude, is_stopped) = shared;
            for stream in listener.incoming() {
                if is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (documents, attitude) = (Arc::clone(&documents), Arc::clone(&attitude));
                let sender = sender.clone();
                std::thread::spawn(move || {
                    serve(stream.unwrap(), address, &documents, &attitude, &sender)
                });
            }
        });
        FakeSource {
            address,
            documents,
            attitude,
            requests,
            is_stopped,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Serves a document. `SOURCE` in it stands for the URL of the Source.
    pub fn publish(&self, path: &str, content: &str) {
        let content = content.replace("SOURCE", &self.url(""));
        self.answer(path, "200 OK", "", content.into_bytes());
    }

    /// Serves a topic, with the links to itself and the hub.
    pub fn publish_topic(&self, path: &str, content: &str) {
        let published = Published {
            status: "200 OK",
            is_topic: true,
            header: "",
            body: content.replace("SOURCE", &self.url("")).into_bytes(),
        };
        self.insert(path, published);
    }

    /// Serves a document that is compressed on the way.
    pub fn publish_compressed(&self, path: &str, content: &str) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(content.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        self.answer(path, "200 OK", "Content-Encoding: gzip\r\n", packed);
    }

    /// Answers requests for a document so that they are repeated later.
    pub fn postpone(&self, path: &str) {
        let status = "503 Service Unavailable";
        self.answer(path, status, "Retry-After: 20\r\n", Vec::new());
    }

    /// Answers 404 at a path for a while.
    pub fn remove(&self, path: &str) {
        self.answer(path, "404 Not Found", "Retry-After: 20\r\n", Vec::new());
    }

    fn answer(&self, path: &str, status: &'static str, header: &'static str, body: Vec<u8>) {
        let published = Published {
            status,
            is_topic: false,
            header,
            body,
        };
        self.insert(path, published);
    }

    fn insert(&self, path: &str, published: Published) {
        let mut documents = self.documents.lock().unwrap();
        documents.insert(path.to_owned(), published);
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

impl Drop for FakeSource {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    mut stream: TcpStream,
    address: SocketAddr,
    documents: &Mutex<BTreeMap<String, Published>>,
    attitude: &Mutex<Attitude>,
    requests: &Sender<Request>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let Some(request) = http::Request::read(&mut reader) else {
        return;
    };
    let (method, path, body) = (request.method, request.target, request.body);
    let respond = |mut stream: &TcpStream, status: &str, header: &str, body: &[u8]| {
        let length = body.len();
        let body = if method == "HEAD" { b"" } else { body };
        let response = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{header}\r\n"
        );
        let response = [response.as_bytes(), body].concat();
        // Fails if the client was killed.
        let _ = stream.write_all(&response);
    };
    if method == "POST" {
        let form: BTreeMap<String, String> = form_urlencoded::parse(&body).into_owned().collect();
        let value = |name: &str| form.get(name).cloned().unwrap_or_default();
        let request = Request {
            mode: value("hub.mode"),
            topic: value("hub.topic"),
            callback: value("hub.callback"),
            secret: value("hub.secret"),
            lease: value("hub.lease_seconds"),
        };
        let attitude = *attitude.lock().unwrap();
        match attitude {
            Attitude::Refuse(status) => respond(&stream, &format!("{status} No"), "", b"not now"),
            Attitude::Busy => respond(&stream, "503 No", "Retry-After: 3600\r\n", b"not now"),
            Attitude::Verify | Attitude::Deny => respond(&stream, "202 Accepted", "", b""),
        }
        let _ = stream.flush();
        match attitude {
            Attitude::Verify => assert_eq!(request.verification(), Some(200), "{request:?}"),
            Attitude::Deny => assert_eq!(request.deny(), Some(200)),
            Attitude::Refuse(_) | Attitude::Busy => {}
        }
        let _ = requests.send(request);
        return;
    }
    let found = documents.lock().unwrap().get(&path).cloned();
    match found {
        Some(found) => {
            let links = format!(
                "Link: <http://{address}{path}>; rel=\"self\", <http://{address}/hub>; rel=\"hub\"\r\n"
            );
            let links = if found.is_topic { links.as_str() } else { "" };
            let header = format!("Content-Type: application/xml\r\n{}{links}", found.header);
            respond(&stream, found.status, &header, &found.body);
        }
        None => respond(&stream, "404 Not Found", "", b"nothing\n"),
    }
}

/// Sends a request, and returns the status of the answer, if there is one.
fn exchange(url: &str, method: &str, query: &str, header: &str, body: &str) -> Option<u16> {
    let url = url::Url::parse(url).unwrap();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = format!(
        "{method} {}{query} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}Content-Length: {}\r\n\r\n{body}",
        url.path(),
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}
