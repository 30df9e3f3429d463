//! Many kept-open connections that ask for the same again and again, on one thread of their own.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Readers of a busy topic at a time.
const CONNECTIONS: u32 = 64;

/// An answer's head and body.
pub struct Answer {
    pub head: String,
    pub body: Vec<u8>,
}

/// A request, and how long its answer is each time.
#[derive(Clone)]
pub struct Question {
    address: SocketAddr,
    request: Arc<[u8]>,
    answer: usize,
}

/// The results of a load.
pub struct Figures {
    pub answers: usize,
    pub per_second: f64,
    /// Milliseconds from asking to the answer's last byte.
    pub median: f64,
    pub p99: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures {
            per_second,
            median,
            p99,
            ..
        } = self;
        write!(
            f,
            "{per_second:.0} answers/s, median {median:.2} ms, p99 {p99:.2} ms"
        )
    }
}

/// A load that goes on until it is ended.
pub struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Figures>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (header, value) = line.split_once(": ")?;
            header.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

impl Question {
    /// Asks once, so that all later answers can be told by their length. A date has always the same.
    pub fn ask(address: SocketAddr, target: &str, etag: Option<&str>) -> (Question, Answer) {
        let condition = etag.map(|etag| format!("If-None-Match: {etag}\r\n"));
        let condition = condition.unwrap_or_default();
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{condition}\r\n");
        let answer = fetch(address, request.as_bytes());
        let question = Question {
            address,
            request: request.into_bytes().into(),
            answer: answer.head.len() + answer.body.len(),
        };
        (question, answer)
    }

    /// Starts asking: as fast as answers come, or so many times a second.
    pub fn load(&self, per_second: Option<u32>) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let (question, seen) = (self.clone(), Arc::clone(&is_over));
        let interval = per_second.map(|rate| Duration::from_secs(1) * CONNECTIONS / rate);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(ask_all(question, interval, seen))
        });
        Load { is_over, thread }
    }
}

impl Load {
    pub fn end(self) -> Figures {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the clients")
    }
}

fn fetch(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = std::net::TcpStream::connect(address).expect("a server");
    stream.write_all(request).expect("a request");
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).expect("a header"), 0, "{head}");
    }
    let mut answer = Answer {
        head,
        body: Vec::new(),
    };
    let length = match answer.head.starts_with("HTTP/1.1 304 ") {
        true => None,
        false => answer.header("content-length"),
    };
    answer.body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
    stream.read_exact(&mut answer.body).expect("a body");
    answer
}

async fn ask_all(
    question: Question,
    interval: Option<Duration>,
    is_over: Arc<AtomicBool>,
) -> Figures {
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS {
        let first = begin + interval.unwrap_or_default() * number / CONNECTIONS;
        clients.spawn(ask_on(
            question.clone(),
            interval,
            first,
            Arc::clone(&is_over),
        ));
    }
    let mut times = clients.join_all().await.concat();
    let seconds = begin.elapsed().as_secs_f64();
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    Figures {
        answers: times.len(),
        per_second: times.len() as f64 / seconds,
        median: at(50),
        p99: at(99),
    }
}

/// Makes requests on one connection and returns their durations. One that falls behind its interval catches up.
async fn ask_on(
    question: Question,
    interval: Option<Duration>,
    first: Instant,
    is_over: Arc<AtomicBool>,
) -> Vec<Duration> {
    let mut stream = TcpStream::connect(question.address)
        .await
        .expect("a server");
    stream.set_nodelay(true).expect("a socket");
    let mut answer = vec![0; question.answer];
    let mut times = Vec::new();
    let mut next = first;
    while !is_over.load(Ordering::Relaxed) {
        if let Some(interval) = interval {
            tokio::time::sleep_until(next.into()).await;
            next += interval;
        }
        let asked = Instant::now();
        stream
            .write_all(&question.request)
            .await
            .expect("a request");
        stream.read_exact(&mut answer).await.expect("an answer");
        times.push(asked.elapsed());
        assert!(answer.starts_with(b"HTTP/1.1 "), "answers differ in length");
    }
    times
}
