//! A subscriber's callback that records every request and answers as configured.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::DEADLINE;
pub use crate::support::http::Request;

/// A status line without its version, further header lines, and a body.
#[derive(Debug, Clone)]
pub struct Say {
    pub status: String,
    pub headers: String,
    pub body: String,
}

pub fn say(status: &str, body: &str) -> Say {
    Say {
        status: status.to_owned(),
        headers: String::new(),
        body: body.to_owned(),
    }
}

/// Closes the connection without an answer, as a process does that is killed.
pub fn cut_off() -> Say {
    say("", "")
}

/// Confirms what it is asked, and takes what is delivered.
pub fn willing(request: &Request) -> Say {
    match request.parameter("hub.challenge") {
        Some(challenge) => say("200 OK", &challenge),
        None => say("204 No Content", ""),
    }
}

type Manner = Box<dyn FnMut(&Request) -> Say + Send>;

/// A callback on loopback.
pub struct Callback {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    requests: Receiver<Request>,
}

impl Callback {
    pub fn start() -> Callback {
        Callback::that(willing)
    }

    pub fn that(answers: impl FnMut(&Request) -> Say + Send + 'static) -> Callback {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let manner: Arc<Mutex<Manner>> = Arc::new(Mutex::new(Box::new(answers)));
        let (sender, requests) = channel();
        let shared = Arc::clone(&manner);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (manner, sender) = (Arc::clone(&shared), sender.clone());
                std::thread::spawn(move || serve(&stream, &manner, &sender));
            }
        });
        Callback {
            address,
            manner,
            requests,
        }
    }

    /// Answers so from now on.
    pub fn behave(&self, answers: impl FnMut(&Request) -> Say + Send + 'static) {
        *self.manner.lock().unwrap() = Box::new(answers);
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address)
    }

    /// The next request of that method.
    pub fn next(&self, method: &str) -> Request {
        loop {
            let request = self.requests.recv_timeout(DEADLINE);
            let request = request.unwrap_or_else(|_| panic!("no {method} in time"));
            if request.method == method {
                return request;
            }
        }
    }

    /// Returns the requests received so far, without waiting.
    pub fn heard(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

fn serve(stream: &TcpStream, manner: &Mutex<Manner>, sender: &Sender<Request>) {
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader) {
        let Say {
            status,
            headers,
            body,
        } = (manner.lock().unwrap())(&request);
        if sender.send(request).is_err() || status.is_empty() {
            return;
        }
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n");
        let mut writer = stream;
        if writer.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}
