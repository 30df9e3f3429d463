//! A hub that counts: as little work as possible beside what is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

pub struct Hub {
    address: SocketAddr,
    arrivals: Receiver<(Instant, usize)>,
    connections: Arc<AtomicUsize>,
    gate: Arc<RwLock<()>>,
}

/// Time that a hub takes to answer; nothing for one that never does.
type Delay = Option<Duration>;

impl Hub {
    /// A hub that takes `delay` to answer.
    pub fn start(delay: Duration) -> Hub {
        Hub::serving(Some(delay))
    }

    /// A hub that takes requests and never answers.
    pub fn dead() -> Hub {
        Hub::serving(None)
    }

    fn serving(delay: Delay) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (sender, arrivals) = channel();
        let (connections, gate) = (Arc::default(), Arc::default());
        let hub = Hub {
            address,
            arrivals,
            connections: Arc::clone(&connections),
            gate: Arc::clone(&gate),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::Relaxed);
                let (sender, gate) = (sender.clone(), Arc::clone(&gate));
                std::thread::spawn(move || serve(stream, delay, &gate, &sender));
            }
        });
        hub
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its table in the configuration, with these keys besides.
    pub fn table(&self, keys: &str) -> String {
        let address = self.address;
        format!("[[hub]]\nurl = \"http://{address}/\"\nmode = \"content\"\n{keys}\n")
    }

    /// Keeps its answers back until this is dropped.
    pub fn hold(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of connections that were opened to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns when the next notification arrived.
    pub fn next(&self) -> Instant {
        self.arrivals
            .recv_timeout(Duration::from_secs(60))
            .expect("a notification")
            .0
    }

    /// Waits for so many changes, and tells how many came.
    pub fn await_changes(&self, wanted: usize) -> usize {
        let mut heard = 0;
        while heard < wanted {
            match self.arrivals.recv_timeout(Duration::from_secs(30)) {
                Ok((_, changes)) => heard += changes,
                Err(_) => break,
            }
        }
        heard
    }
}

fn serve(stream: TcpStream, delay: Delay, gate: &RwLock<()>, arrivals: &Sender<(Instant, usize)>) {
    let _ = stream.set_nodelay(true);
    let Ok(mut writer) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let header = line.trim_end().to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().unwrap_or(0);
            }
            if header.is_empty() {
                break;
            }
        }
        body.resize(length, 0);
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let at = Instant::now();
        let changes = body.windows(5).filter(|window| window == b"<loc>").count();
        // A daemon that starts tries whether it reaches its hub.
        if changes > 0 && arrivals.send((at, changes)).is_err() {
            return;
        }
        let Some(delay) = delay else {
            let _ = reader.fill_buf();
            return;
        };
        std::thread::sleep(delay); // what a slow hub is
        drop(gate.read());
        if writer
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}
