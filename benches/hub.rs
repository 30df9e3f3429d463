//! `rsnotify hub` under load: publications accepted each second, deliveries, memory. Figures; nothing is asserted.
//!
//! `cargo bench --bench hub` runs all; `-- NAME` only those whose name contains it. Publishers and subscribers share the
//! processors with the hub.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;

const ROUND: Duration = Duration::from_secs(3);
const TOPIC: &str = "https://library.example/t";
/// Longest wait for the deliveries of one notification.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let benches: [(&str, fn()); 3] = [
        ("accepted", accepted),
        ("thousand", || subscribers(1_000)),
        ("hundred_thousand", || subscribers(100_000)),
    ];
    for (name, bench) in benches {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            bench();
        }
    }
}

/// A hub and its state directory; killed when dropped.
struct Hub {
    directory: TempDir,
    address: SocketAddr,
    child: Option<Child>,
}

impl Hub {
    fn new() -> Hub {
        let directory = TempDir::new().expect("a directory");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("its address");
        let config = format!(
            "state_dir = \"state\"\n[server]\nlisten = \"{address}\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [hub]\nurl = \"http://{address}/hub\"\ncallback_ports = [\"1-65535\"]\n\
             allow_callback_networks = [\"127.0.0.0/8\"]\nmax_publications_per_minute = 100000000\n\
             [[publisher]]\nname = \"library\"\ntopics = [\"https://library.example/\"]\nbearer_token_file = \"token\"\n"
        );
        std::fs::write(directory.path().join("hub.toml"), config).expect("a file");
        std::fs::write(directory.path().join("token"), "books").expect("a file");
        Hub {
            directory,
            address,
            child: None,
        }
    }

    /// Starts the hub, and returns how long that took.
    fn start(&mut self) -> Duration {
        self.stop();
        let began = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_rsnotify"))
            .args(["hub", "--config"])
            .arg(self.directory.path().join("hub.toml"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let log = BufReader::new(child.stderr.take().expect("its log"));
        let mut lines = log.lines().map_while(Result::ok);
        lines
            .find(|line| line.contains("ready"))
            .expect("the hub is ready");
        let took = began.elapsed();
        std::thread::spawn(move || lines.for_each(drop));
        self.child = Some(child);
        took
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns a line of the process's status, in MiB.
    fn memory(&self, name: &str) -> usize {
        let child = self.child.as_ref().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kilobytes.map_or(0, |digits| digits.parse::<usize>().unwrap_or(0) >> 10)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Publishes on a connection that stays open.
fn publish(stream: &mut BufReader<TcpStream>, topic: &str, body: &str) -> bool {
    let length = body.len();
    let request = format!(
        "POST /hub HTTP/1.1\r\nHost: hub\r\nContent-Type: application/xml\r\nAuthorization: Bearer books\r\n\
         Link: <{topic}>; rel=\"self\"\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    if stream.get_mut().write_all(request.as_bytes()).is_err() {
        return false;
    }
    answered(stream).is_some_and(|status| status == 200)
}

/// Reads an answer whole, and returns its status.
fn answered(stream: &mut BufReader<TcpStream>) -> Option<u16> {
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest.get(..3).and_then(|status| status.parse().ok());
        }
        if let Some(digits) = line.strip_prefix("content-length: ") {
            length = digits.parse().ok()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    status
}

/// Publications accepted each second, each saved before it is answered, by publishers that wait for each answer.
fn accepted() {
    let mut hub = Hub::new();
    hub.start();
    for publishers in [1, 8, 64] {
        let accepted = AtomicUsize::new(0);
        let until = Instant::now() + ROUND;
        std::thread::scope(|scope| {
            for publisher in 0..publishers {
                let (accepted, address) = (&accepted, hub.address);
                scope.spawn(move || {
                    let stream = TcpStream::connect(address).expect("a connection");
                    let mut stream = BufReader::new(stream);
                    let topic = format!("{TOPIC}{publisher}");
                    let filling = "x".repeat(2_000);
                    for number in 0.. {
                        let body = format!("<a>{publisher} {number} {filling}</a>");
                        if Instant::now() >= until || !publish(&mut stream, &topic, &body) {
                            return;
                        }
                        accepted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let each_second = accepted.into_inner() as f64 / ROUND.as_secs_f64();
        println!("accepted: {publishers} publishers, {each_second:.0} publications/s of 2 kB");
    }
    println!("accepted: {} MiB at most", hub.memory("VmHWM:"));
}

/// A subscriber that takes everything. Returns where, and the number of deliveries so far.
fn sink() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while take(&mut stream).is_some() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (address, count)
}

fn take(stream: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(digits) = line.strip_prefix("content-length: ") {
            length = digits.parse().ok()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    stream
        .get_mut()
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .ok()
}

/// One notification for so many subscribers on one host.
fn subscribers(count: usize) {
    let mut hub = Hub::new();
    hub.start();
    hub.stop();
    let (address, delivered) = sink();
    let state = hub.directory.path().join("state/state.sqlite");
    let mut state = Connection::open(state).expect("the state");
    let transaction = state.transaction().expect("a transaction");
    for number in 0..count {
        transaction
            .execute(
                "INSERT INTO subscription (topic, callback, expires, heard) VALUES (?1, ?2, 4102444800000000000, 0)",
                [TOPIC.to_owned(), format!("http://{address}/{number}")],
            )
            .expect("a subscription");
    }
    transaction.commit().expect("saved subscriptions");
    drop(state);
    let took = hub.start();
    println!(
        "{count} subscribers: start in {:.0} ms, {} MiB",
        took.as_secs_f64() * 1e3,
        hub.memory("VmRSS:")
    );
    let stream = TcpStream::connect(hub.address).expect("a connection");
    let mut stream = BufReader::new(stream);
    let began = Instant::now();
    let is_accepted = publish(&mut stream, TOPIC, &format!("<a>{}</a>", "x".repeat(2_000)));
    let answered = began.elapsed();
    while delivered.load(Ordering::Relaxed) < count && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1)); // poll: the sink only counts
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{count} subscribers: accepted {is_accepted} in {:.1} ms, {} delivered in {took:.2} s ({:.0}/s), {} MiB at most",
        answered.as_secs_f64() * 1e3,
        delivered.load(Ordering::Relaxed),
        delivered.load(Ordering::Relaxed) as f64 / took,
        hub.memory("VmHWM:")
    );
}
