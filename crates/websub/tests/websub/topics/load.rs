//! Slow, idle and many clients do not delay others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use websub::http::server::{Listener, ServerLimits};
use websub::hub::request::http::serve_public;
use websub::topics::http::Topics;

use crate::support::{BODY, ask, page, soon, status};
use crate::topics::{one_topic, unreported};

const REQUEST: &str = "GET /t HTTP/1.1\r\nHost: e.org\r\n\r\n";
/// A size that exceeds the buffers of a connection.
const LARGE: usize = 128 << 20;

/// Serves until `shutdown`; the task ends when every connection has.
async fn serve(
    topics: Arc<Topics>,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = serve_public(
        Listener::Tcp(listener),
        topics,
        watch::channel(None).1,
        limits,
        shutdown,
    );
    (address, tokio::spawn(server))
}

/// Serves as long as the test lasts, with so few connection slots that nobody loses for being slow.
async fn places(connections: usize, topics: Arc<Topics>) -> SocketAddr {
    let hour = Duration::from_secs(3_600);
    let limits = ServerLimits {
        connections,
        header_timeout: hour,
        answer_timeout: hour,
    };
    serve(topics, limits, std::future::pending()).await.0
}

async fn connect(address: SocketAddr, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Waits for one answer to [`REQUEST`], of which `sent` is what is still to be sent.
async fn is_answered(stream: &mut TcpStream, sent: &str) {
    stream.write_all(sent.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(BODY) {
        let read = soon(stream.read_buf(&mut answer)).await.unwrap();
        assert_ne!(read, 0, "closed after {}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

/// Waits until the server ends the connection, unasked; how many bytes came until then.
async fn is_closed(stream: &mut TcpStream) -> usize {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = soon(stream.read_to_end(&mut rest)).await;
    rest.len()
}

#[tokio::test]
async fn slow_and_huge_headers_are_cut_off() {
    let limits = ServerLimits {
        header_timeout: Duration::from_millis(200),
        ..ServerLimits::default()
    };
    let (address, _) = serve(one_topic(), limits, std::future::pending()).await;
    for begun in ["", "GET /t HT", REQUEST] {
        let mut stream = connect(address, begun).await;
        let mut answer = Vec::new();
        // It ends although we never close.
        soon(stream.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(answer.starts_with(b"HTTP/1.1 200"), begun == REQUEST);
    }
    for huge in [
        format!("X-Huge: {}\r\n", "x".repeat(20_000)),
        "X: x\r\n".repeat(200),
    ] {
        assert_eq!(status(&ask(address, "GET", "/t", &huge).await.0), 431);
    }
    let long = format!("/{}", "x".repeat(20_000));
    assert_eq!(status(&ask(address, "GET", &long, "").await.0), 431);
    assert_eq!(status(&ask(address, "GET", "/t", "").await.0), 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_disconnected() {
    let topics = unreported();
    topics.serve_page(page("https://e.org/large", &vec![b'x'; 64 << 20]));
    topics.serve_page(page("https://e.org/small", &vec![b'x'; 256 << 10]));
    let limits = ServerLimits {
        answer_timeout: Duration::from_millis(200),
        ..ServerLimits::default()
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, server) = serve(topics, limits, async { stopped.await.unwrap() }).await;
    let mut unread = Vec::new();
    for (target, requests) in [("/large", 1), ("/small", 200)] {
        let asked = format!("GET {target} HTTP/1.1\r\nHost: e.org\r\n\r\n").repeat(requests);
        let mut stream = connect(address, &asked).await;
        soon(stream.read_u8()).await.unwrap();
        unread.push(stream);
    }
    stop.send(()).unwrap();
    // Requests that have begun are waited for; these are neither read nor closed by us.
    soon(server).await.unwrap();
}

#[tokio::test]
async fn a_client_accepted_before_the_stop_is_answered() {
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, server) = serve(one_topic(), ServerLimits::default(), async {
        stopped.await.unwrap();
    })
    .await;
    let mut idle = connect(address, "").await;
    is_answered(&mut idle, REQUEST).await;
    let mut silent = connect(address, "").await;
    let mut newcomer = connect(address, "").await;
    // Clients are accepted in order.
    is_answered(&mut connect(address, "").await, REQUEST).await;
    stop.send(()).unwrap();
    // The one that had its answer is closed at once, so the server is stopping.
    is_closed(&mut idle).await;
    is_answered(&mut newcomer, REQUEST).await;
    is_closed(&mut newcomer).await;
    // Nobody is waited for longer than a second.
    is_closed(&mut silent).await;
    soon(server).await.unwrap();
}

#[tokio::test]
async fn a_header_without_end_is_cut_off() {
    let address = places(10, one_topic()).await;
    for (begun, line) in [
        ("GET /", "x".repeat(1_000)),
        (REQUEST.trim_end(), "\r\nX: x".repeat(200)),
    ] {
        let mut stream = connect(address, begun).await;
        let mut sent = 0;
        while soon(stream.write_all(line.as_bytes())).await.is_ok() {
            sent += line.len();
            // What the kernel buffers is far less.
            assert!(sent < 256 << 20, "still taken after {sent} bytes");
        }
    }
    assert_eq!(status(&ask(address, "GET", "/t", "").await.0), 200);
}

#[tokio::test]
async fn sending_a_little_now_and_then_keeps_no_place_and_an_answer_does() {
    let address = places(2, one_topic()).await;
    let mut kept = connect(address, "").await;
    let mut dripping = connect(address, "GET /t HTTP/1.1\r\n").await;
    is_answered(&mut kept, REQUEST).await;
    dripping.write_all(b"X-Drip: 1\r\n").await.unwrap();
    let mut newcomer = connect(address, "").await;
    is_answered(&mut newcomer, REQUEST).await;
    is_closed(&mut dripping).await;
    is_answered(&mut kept, REQUEST).await;
}

#[tokio::test]
async fn leaving_answers_unread_keeps_no_place() {
    let topics = one_topic();
    topics.serve_page(page("https://e.org/large", &vec![b'x'; LARGE]));
    let address = places(4, topics).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(address, "GET /large HTTP/1.1\r\nHost: e.org\r\n\r\n").await;
        soon(stream.read_u8()).await.unwrap();
        unread.push(stream);
    }
    let mut newcomers = Vec::new();
    for _ in 0..4 {
        let mut newcomer = connect(address, "").await;
        is_answered(&mut newcomer, REQUEST).await;
        newcomers.push(newcomer);
    }
    for stream in &mut unread {
        assert!(is_closed(stream).await < LARGE);
    }
}

#[tokio::test]
async fn a_client_that_reads_its_answer_is_left_alone_however_many_come() {
    let topics = one_topic();
    topics.serve_page(page("https://e.org/large", &vec![b'x'; LARGE]));
    let address = places(2, topics).await;
    let mut taking = connect(address, "GET /large HTTP/1.1\r\nHost: e.org\r\n\r\n").await;
    let mut newcomers = Vec::new();
    let mut taken = 0;
    let mut part = vec![0; 1 << 20];
    while taken < LARGE {
        let mut newcomer = connect(address, "").await;
        is_answered(&mut newcomer, REQUEST).await;
        newcomers.push(newcomer);
        // More than all buffers hold: some of it was written after the other was served.
        let enough = (taken + (32 << 20)).min(LARGE);
        while taken < enough {
            let read = soon(taking.read(&mut part)).await.unwrap();
            assert_ne!(read, 0, "closed after {taken} bytes");
            taken += read;
        }
    }
}
