//! A peer that answers exactly as a test wants, and records its requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use resourcesync::uri::{Hub, Topic, Uri};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use websub::http::server::{Listener, ServerLimits};
use websub::hub::http::EmbeddedHub;
use websub::hub::request::http::serve_public;
use websub::hub::{Relay, RelayHeaders, RelayId};
use websub::publisher::HubRequest;
use websub::topics::TopicPage;
use websub::topics::http::Topics;

/// The deadline for events that must happen.
pub const DEADLINE: Duration = Duration::from_secs(10);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("it happens before the deadline")
}

/// One request, as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// The request line and the header, without the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Vec<&str> {
        let prefix = format!("{name}: ");
        self.head
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect()
    }

    /// A parameter of the request target's query, decoded.
    pub fn parameter(&self, wanted: &str) -> Option<String> {
        let target = self.line().split(' ').nth(1)?;
        let (_, query) = target.split_once('?')?;
        parameter(query.as_bytes(), wanted)
    }
}

/// A parameter of a form, decoded.
pub fn parameter(form: &[u8], wanted: &str) -> Option<String> {
    url::form_urlencoded::parse(form)
        .find(|(name, _)| name == wanted)
        .map(|(_, value)| value.into_owned())
}

/// The answer of a peer to a request.
#[derive(Clone)]
pub enum Say {
    /// Sends this and keeps the connection open.
    Raw(String),
    /// Sends this and closes it.
    Last(String),
    /// Sends this, and nothing more while it lives.
    Hang(String),
    /// Sends this and resets the connection.
    Reset(String),
    /// Sends the first, then the second a byte at a time, each after so long.
    Drip(String, String, Duration),
    /// Sends the first, then the second over and over.
    Endless(String, String),
}

/// A complete answer.
pub fn say(status: &str, header: &str, body: &str) -> Say {
    let length = body.len();
    Say::Raw(format!(
        "HTTP/1.1 {status}\r\n{header}Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// A peer on a free port.
pub struct Peer {
    pub address: SocketAddr,
    pub seen: mpsc::UnboundedReceiver<Seen>,
}

impl Peer {
    pub async fn start(answer: impl Fn(&Seen) -> Say + Send + Sync + 'static) -> Peer {
        Peer::start_at("127.0.0.1:0", answer).await
    }

    pub async fn start_at(
        address: &str,
        answer: impl Fn(&Seen) -> Say + Send + Sync + 'static,
    ) -> Peer {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            for connection in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (answer, sender) = (Arc::clone(&answer), sender.clone());
                tokio::spawn(async move {
                    if talk(&mut stream, connection, &*answer, &sender).await {
                        stream.set_zero_linger().unwrap();
                    }
                });
            }
        });
        Peer { address, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the next request that no test has seen.
    pub fn unseen(&mut self) -> Option<Seen> {
        self.seen.try_recv().ok()
    }

    pub async fn next(&mut self) -> Seen {
        soon(self.seen.recv()).await.expect("the peer lives")
    }
}

/// Answers the requests on one connection; true if it is to be reset.
pub async fn talk(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    connection: usize,
    answer: &(impl Fn(&Seen) -> Say + Send + Sync),
    sender: &mpsc::UnboundedSender<Seen>,
) -> bool {
    let mut bytes = Vec::new();
    loop {
        let Some(seen) = read(stream, &mut bytes, connection).await else {
            return false;
        };
        let said = answer(&seen);
        let _ = sender.send(seen);
        let (Say::Raw(text)
        | Say::Last(text)
        | Say::Hang(text)
        | Say::Reset(text)
        | Say::Drip(text, ..)
        | Say::Endless(text, _)) = &said;
        let mut written = stream.write_all(text.as_bytes()).await;
        written = written.and(stream.flush().await);
        match said {
            Say::Raw(_) => {}
            Say::Last(_) => return false,
            Say::Hang(_) => std::future::pending().await,
            Say::Reset(_) => return true,
            Say::Drip(_, text, pause) => {
                for byte in text.bytes() {
                    tokio::time::sleep(pause).await; // stall: a slow hub is what is tried
                    written = written.and(stream.write_all(&[byte]).await);
                }
            }
            Say::Endless(_, text) => {
                while written.is_ok() {
                    written = stream.write_all(text.as_bytes()).await;
                }
            }
        }
        if written.is_err() {
            return false;
        }
    }
}

async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    connection: usize,
) -> Option<Seen> {
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut seen = Seen {
                connection,
                head,
                body: Vec::new(),
            };
            let length = seen
                .header("Content-Length")
                .first()
                .map_or(0, |n| n.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                seen.body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                return Some(seen);
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Returns an address where nobody listens: a port that was free a moment ago.
pub async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Sends bytes as they are, and reads until the other side closes or has answered `answers` times with
/// `Content-Length`.
pub async fn exchange(address: SocketAddr, request: &str) -> (String, Vec<u8>) {
    exchange_on(TcpStream::connect(address).await.unwrap(), request).await
}

/// Like [`exchange`], on an open connection.
pub async fn exchange_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> (String, Vec<u8>) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    soon(stream.read_to_end(&mut bytes)).await.unwrap();
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a header");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (head, bytes[end + 4..].to_vec())
}

/// One request on a connection of its own.
pub async fn ask(address: SocketAddr, verb: &str, target: &str, header: &str) -> (String, Vec<u8>) {
    let request =
        format!("{verb} {target} HTTP/1.1\r\nHost: e.org\r\nConnection: close\r\n{header}\r\n");
    exchange(address, &request).await
}

/// Posts a form and gives the status and the body.
pub async fn post_form(address: SocketAddr, target: &str, form: &str) -> (u16, String) {
    let (head, body) = exchange(address, &form_request(target, form, "")).await;
    (status(&head), String::from_utf8(body).unwrap())
}

/// A request that posts a form, with more header lines.
pub fn form_request(target: &str, form: &str, header: &str) -> String {
    let length = form.len();
    format!(
        "POST {target} HTTP/1.1\r\nHost: e.org\r\nConnection: close\r\n{header}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    )
}

pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The public listener on a free port, until the test ends.
pub async fn public(topics: &Arc<Topics>, hub: Option<Arc<EmbeddedHub>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    serve_at(Listener::Tcp(listener), topics, hub);
    address
}

pub fn serve_at(listener: Listener, topics: &Arc<Topics>, hub: Option<Arc<EmbeddedHub>>) {
    let (topics, hub) = (topics.clone(), watch::channel(hub).1);
    let limits = ServerLimits::default();
    tokio::spawn(serve_public(
        listener,
        topics,
        hub,
        limits,
        std::future::pending(),
    ));
}

pub const BODY: &[u8] = "<urlset>\n  \u{e9}\r\n</urlset>\n".as_bytes();

pub fn notification(hub: &str) -> HubRequest {
    let list = Uri::parse("https://e.org/set1/cl.xml").unwrap();
    HubRequest::content(Hub::new(hub), &topic(), &list, &BODY.into())
}

pub fn ping(hub: &str) -> HubRequest {
    HubRequest::ping(Hub::new(hub), &topic())
}

pub fn topic() -> Topic {
    Topic::new("https://e.org/set1/framework/")
}

/// A notification for an embedded hub.
pub fn to_relay(seq: u64) -> Relay {
    Relay {
        id: RelayId::default(),
        topic: topic(),
        seq,
        body: BODY.into(),
        headers: RelayHeaders {
            capability_list: Some(Uri::parse("https://e.org/set1/cl.xml").unwrap()),
            ..RelayHeaders::default()
        },
    }
}

pub fn page(topic: &str, body: &[u8]) -> TopicPage {
    TopicPage {
        topic: Topic::new(topic),
        capability_list: Uri::parse("https://e.org/set1/cl.xml").unwrap(),
        hubs: vec![
            Hub::new("https://hub1.org/"),
            Hub::new("https://hub2.org/?k=1"),
        ],
        body: body.into(),
        report_fetches: false,
    }
}
