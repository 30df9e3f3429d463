//! Requests to many topics: all of them, a few at a time, with a timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rsnotify::resourcesync::uri::Topic;
use rsnotify::websub::inspect;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::soon;

/// How many requests there are, and were at most at the same time.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

/// A server whose answers take until `go`, and who counts who waits.
async fn slow_server(crowd: Arc<Crowd>, go: Arc<tokio::sync::Semaphore>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (crowd, go) = (Arc::clone(&crowd), Arc::clone(&go));
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                while let Ok(1..) = stream.read(&mut head).await {
                    let now = crowd.now.fetch_add(1, Ordering::SeqCst) + 1;
                    crowd.most.fetch_max(now, Ordering::SeqCst);
                    crowd.all.fetch_add(1, Ordering::SeqCst);
                    go.acquire().await.unwrap().forget();
                    crowd.now.fetch_sub(1, Ordering::SeqCst);
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
async fn a_thousand_topics_are_asked_sixteen_at_a_time() {
    let crowd = Arc::new(Crowd::default());
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let url = slow_server(Arc::clone(&crowd), Arc::clone(&go)).await;
    let patience = Duration::from_secs(600);
    let asking = tokio::spawn(inspect::topics(topics(&url, 1_000), patience));
    let served = soon(async {
        while crowd.now.load(Ordering::SeqCst) < 16 {
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
    assert_eq!(crowd.most.load(Ordering::SeqCst), 16);
    assert_eq!(crowd.all.load(Ordering::SeqCst), 2_000);
}

#[tokio::test]
async fn topics_whose_turn_does_not_come_in_time_are_left_out() {
    let crowd = Arc::new(Crowd::default());
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let url = slow_server(Arc::clone(&crowd), go).await;
    let served = soon(inspect::topics(topics(&url, 1_000), Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(served, vec![None; 1_000]);
    assert_eq!(crowd.all.load(Ordering::SeqCst), 0);
}
