//! A subscriber's callback that records every request and answers as configured.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use crate::support::DEADLINE;
use crate::support::http::Server;
pub use crate::support::http::{Request, Say, say};

/// Confirms what it is asked, and takes what is delivered.
pub fn willing(request: &Request) -> Say {
    match request.parameter("hub.challenge") {
        Some(challenge) => say("200 OK", challenge),
        None => say("204 No Content", ""),
    }
}

type Manner = Arc<dyn Fn(&Request) -> Option<Say> + Send + Sync>;

/// A callback on loopback.
pub struct Callback {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    requests: Receiver<Request>,
    _server: Server,
}

impl Callback {
    pub fn start() -> Callback {
        Callback::that(willing)
    }

    pub fn that(answers: impl Fn(&Request) -> Say + Send + Sync + 'static) -> Callback {
        Callback::that_may(move |request| Some(answers(request)))
    }

    /// As `that`, where some requests are not answered.
    pub fn that_may(answers: impl Fn(&Request) -> Option<Say> + Send + Sync + 'static) -> Callback {
        let manner: Arc<Mutex<Manner>> = Arc::new(Mutex::new(Arc::new(answers)));
        let (sender, requests) = channel();
        let shared = Arc::clone(&manner);
        let server = Server::start(move |request| {
            let manner = Arc::clone(&shared.lock().unwrap());
            let said = manner(request);
            sender.send(request.clone()).ok()?;
            said
        });
        Callback {
            address: server.address,
            manner,
            requests,
            _server: server,
        }
    }

    /// Answers so from now on.
    pub fn behave(&self, answers: impl Fn(&Request) -> Say + Send + Sync + 'static) {
        *self.manner.lock().unwrap() = Arc::new(move |request| Some(answers(request)));
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
