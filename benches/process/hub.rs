//! A hub that counts: as little work as possible beside what is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

pub struct Hub {
    pub address: SocketAddr,
    arrivals: Receiver<(Instant, usize)>,
}

impl Hub {
    /// A hub that takes `delay` to answer.
    pub fn start(delay: Duration) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (sender, arrivals) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || serve(stream, delay, &sender));
            }
        });
        Hub { address, arrivals }
    }

    /// When the next notification arrived.
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

fn serve(stream: TcpStream, delay: Duration, arrivals: &Sender<(Instant, usize)>) {
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
        if arrivals.send((at, changes)).is_err() {
            return;
        }
        std::thread::sleep(delay); // what a slow hub is
        if writer
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}
