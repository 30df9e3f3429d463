//! A fixed address with an exchangeable server behind it, like a web server in front of a service.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes connections on to the server behind it, and closes them while there is none.
pub struct Front {
    pub address: SocketAddr,
    behind: Arc<Mutex<Option<SocketAddr>>>,
}

impl Front {
    pub fn start() -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let behind = Arc::new(Mutex::new(None::<SocketAddr>));
        let shared = Arc::clone(&behind);
        thread::spawn(move || {
            for client in listener.incoming() {
                let server = shared.lock().unwrap().map(TcpStream::connect);
                if let (Ok(client), Some(Ok(server))) = (client, server) {
                    pass_on(&client, &server);
                    pass_on(&server, &client);
                }
            }
        });
        Front { address, behind }
    }

    pub fn leads_to(&self, server: Option<SocketAddr>) {
        *self.behind.lock().unwrap() = server;
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Copies until one side ends, and tells the other.
fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        // A side that is killed ends in the middle.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
