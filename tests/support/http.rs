//! A server over HTTP for tests: it answers each request as it is told.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use url::form_urlencoded;

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    /// By names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// Reads the next request of a connection. Returns nothing once that is closed.
    pub fn read(reader: &mut impl BufRead) -> Option<Request> {
        let mut line = || {
            let mut line = String::new();
            let read = reader.read_line(&mut line).ok()?;
            (read > 0).then(|| line.trim_end().to_owned())
        };
        let first = line()?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, target) = (words.next()?, words.next()?);
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map(|length| length.parse());
        let mut body = vec![0; length.and_then(Result::ok).unwrap_or_default()];
        reader.read_exact(&mut body).ok()?;
        Some(Request {
            method,
            target,
            headers,
            body,
        })
    }

    /// The last parameter of the query with that name: a hub's come after a callback's own.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let named = form_urlencoded::parse(query.as_bytes()).filter(|(field, _)| field == name);
        named.last().map(|(_, value)| value.into_owned())
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Say {
    /// The status line without its version.
    pub status: String,
    /// Further header lines.
    pub headers: String,
    pub body: Vec<u8>,
}

pub fn say(status: &str, body: impl Into<Vec<u8>>) -> Say {
    Say {
        status: status.to_owned(),
        headers: String::new(),
        body: body.into(),
    }
}

/// A server, until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Option<Say> + Send + Sync + 'static) -> Server {
        Server::start_at("127.0.0.1:0".parse().unwrap(), answer)
    }

    /// Where there is no answer, the connection is closed, as by a process that is killed. A HEAD is answered as a GET.
    pub fn start_at(
        address: SocketAddr,
        answer: impl Fn(&Request) -> Option<Say> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (stopped, answer) = (Arc::clone(&is_stopped), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, answer) = (stream.unwrap(), Arc::clone(&answer));
                std::thread::spawn(move || serve(&stream, &*answer));
            }
        });
        Server {
            address,
            is_stopped,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: &TcpStream, answer: &impl Fn(&Request) -> Option<Say>) {
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(request) = Request::read(&mut reader) {
        let Some(said) = answer(&request) else { return };
        let (status, headers, length) = (said.status, said.headers, said.body.len());
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n");
        let is_head = request.method == "HEAD";
        let body = if is_head { Vec::new() } else { said.body };
        // The client may have disconnected.
        if writer
            .write_all(&[head.into_bytes(), body].concat())
            .is_err()
        {
            return;
        }
    }
}
