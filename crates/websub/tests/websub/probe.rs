//! Probes of many topics: all of them, a few at a time, within a time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resourcesync::uri::Topic;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use websub::probe::http as probe;

use crate::support::soon;

/// Numbers of requests: under way now, their maximum, and the total.
#[derive(Default)]
struct Load {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

/// Starts a server whose answers wait for `go`, and which counts its requests.
async fn slow_server(load: Arc<Load>, go: Arc<tokio::sync::Semaphore>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (load, go) = (Arc::clone(&load), Arc::clone(&go));
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                while let Ok(1..) = stream.read(&mut head).await {
                    let now = load.now.fetch_add(1, Ordering::SeqCst) + 1;
                    load.most.fetch_max(now, Ordering::SeqCst);
                    load.all.fetch_add(1, Ordering::SeqCst);
                    go.acquire().await.unwrap().forget();
                    load.now.fetch_sub(1, Ordering::SeqCst);
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}/")
}

fn topics(url: &str, count: usize) -> Vec<Topic> {
    let numbers = 0..count;
    numbers.map(|n| Topic::new(format!("{url}{n}"))).collect()
}

#[tokio::test]
async fn a_thousand_topics_are_asked_sixteen_at_a_time_and_none_after_the_time_limit() {
    let load = Arc::new(Load::default());
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let url = slow_server(Arc::clone(&load), Arc::clone(&go)).await;
    let none = soon(probe::topics(topics(&url, 1_000), Duration::ZERO)).await;
    assert_eq!(none.unwrap(), vec![None; 1_000]);
    assert_eq!(load.all.load(Ordering::SeqCst), 0);
    let patience = Duration::from_secs(600);
    let asking = tokio::spawn(probe::topics(topics(&url, 1_000), patience));
    let served = soon(async {
        while load.now.load(Ordering::SeqCst) < 16 {
            tokio::task::yield_now().await;
        }
        go.add_permits(2_000);
        asking.await.unwrap().unwrap()
    })
    .await;
    let answered = served.iter().flatten();
    let answered =
        answered.filter(|served| served.head.is_ok() && matches!(served.get, Some(Ok(_))));
    assert_eq!(answered.count(), 1_000);
    assert_eq!(load.most.load(Ordering::SeqCst), 16);
    assert_eq!(load.all.load(Ordering::SeqCst), 2_000);
}
