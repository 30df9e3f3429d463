//! Many subscribers' callbacks behind one address: as little work as possible beside what is measured.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Callbacks {
    pub address: SocketAddr,
    arrivals: Receiver<Instant>,
}

impl Callbacks {
    pub fn start() -> Callbacks {
        Callbacks::at("127.0.0.1", true)
    }

    /// They take what they are sent, and never say so.
    pub fn hanging() -> Callbacks {
        Callbacks::at("127.0.0.1", false)
    }

    /// Callbacks at an address of the loopback network.
    pub fn at(host: &'static str, answers: bool) -> Callbacks {
        let (sender, arrivals) = channel();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind((host, 0)).await.expect("a free port");
                tell.send(listener.local_addr().expect("an address"))
                    .expect("somebody waits");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, sender.clone(), answers));
                }
            });
        });
        Callbacks {
            address: told.recv().expect("an address"),
            arrivals,
        }
    }

    /// Returns when the next delivery arrived.
    pub fn next(&self, patience: Duration) -> Option<Instant> {
        self.arrivals.recv_timeout(patience).ok()
    }
}

async fn serve(mut stream: TcpStream, arrivals: Sender<Instant>, answers: bool) {
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let request = loop {
            if let Some(length) = whole(&buffer) {
                break length;
            }
            match stream.read_buf(&mut buffer).await {
                Ok(read) if read > 0 => {}
                _ => return,
            }
        };
        buffer.drain(..request);
        if arrivals.send(Instant::now()).is_err() {
            return;
        }
        let answer: &[u8] = match answers {
            true => b"HTTP/1.1 204 No Content\r\n\r\n",
            false => b"",
        };
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// The length of the first request, once it has come to its end.
fn whole(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let (_, length) = text.split_once("content-length: ")?;
    let length: usize = length.split_once('\r')?.0.parse().ok()?;
    (bytes.len() >= head + length).then_some(head + length)
}
