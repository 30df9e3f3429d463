//! Answers of hubs: their content reaches the verdict, however it is sent; redirections are followed to hubs only, each with its own
//! credentials; hubs may disconnect, be slow, never end an answer, or be down (R23).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use websub::answer::Answer;
use websub::publisher::HubRequest;
use websub::publisher::http::Submitter;
use websub::publisher::settings::PublishSettings;

use crate::publish::{judged, settings, with_token};
use crate::support::{BODY, Peer, Say, Seen, free_address, notification, say, soon};

const TIMEOUT: Duration = Duration::from_millis(800);

async fn submit(settings: PublishSettings, notification: &HubRequest) -> Answer {
    let publisher = Submitter::new(vec![settings]).unwrap();
    soon(publisher.submit(notification)).await
}

/// Submits once to the server at `url`.
async fn submit_at(url: &str) -> Answer {
    let mut settings = settings(url);
    settings.timeout = TIMEOUT;
    submit(settings, &notification(url)).await
}

/// Submits once to a peer that answers so.
async fn submit_to(answer: Say) -> Answer {
    let peer = Peer::start(move |_| answer.clone()).await;
    submit_at(&peer.url("/")).await
}

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

#[tokio::test]
async fn status_header_and_body_are_judged() {
    let denied = "in 900 s, by an operator: it denies the publication: no reason given";
    let nobody = "in 8 s: probably nobody has subscribed (500)";
    let busy = |wait: u64, status: u16| format!("in {wait} s: it cannot take it now ({status})");
    for (status, header, body, want) in [
        ("204 No Content", "", "", "accepted"),
        ("413 Content Too Large", "", "", "too large"),
        ("200 OK", FORM, "hub.mode=denied", denied),
        ("500 Error", "", "", nobody),
        ("500 Error", "", "disk full", &busy(8, 500)),
        ("503 Busy", "Retry-After: 7\r\n", "", &busy(7, 503)),
        ("429 Too Many", "Retry-After: 7\r\n", "", &busy(7, 429)),
        ("503 Busy", "Retry-After: é\r\n", "", &busy(8, 503)),
    ] {
        let answer = submit_to(say(status, header, body)).await;
        assert_eq!(judged(&answer), want, "{status} {header}");
    }
}

/// Returns the end of a header, and a body as two chunks.
fn chunks(body: &str) -> String {
    let (first, second) = body.split_at(7);
    let (one, two) = (first.len(), second.len());
    format!(
        "Transfer-Encoding: chunked\r\n\r\n{one:x}\r\n{first}\r\n{two:x}\r\n{second}\r\n0\r\n\r\n"
    )
}

#[tokio::test]
async fn a_form_denies_however_it_is_sent() {
    let denial = "hub.mode=denied&hub.reason=not+registered";
    let after_much_else = format!("hub.topic={}&{denial}", "x".repeat(3_000));
    let denied = "in 900 s, by an operator: it denies the publication: not registered";
    let coded = format!("Content-Encoding: gzip\r\n{}", chunks("\u{1f}\u{8b}...."));
    for (rest, want) in [
        (chunks(denial), denied),
        (chunks(&after_much_else), denied),
        (format!("Connection: close\r\n\r\n{denial}\r\n"), denied),
        // Nobody asked for another coding, and what is in it cannot be known.
        (coded, "accepted"),
    ] {
        let answer = submit_to(Say::Last(format!("HTTP/1.1 200 OK\r\n{FORM}{rest}"))).await;
        assert_eq!(judged(&answer), want, "{rest}");
    }
}

#[tokio::test]
async fn what_comes_before_an_answer_is_not_the_answer() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
                 HTTP/1.1 204 No Content\r\n\r\n";
    let upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: ws\r\n\r\n";
    let refused = "in 900 s, by an operator: it refuses (101)";
    let forever = Say::Endless(String::new(), "HTTP/1.1 100 Continue\r\n\r\n".into());
    for (said, want) in [
        (Say::Last(early.to_owned()), "accepted"),
        (Say::Last(upgrade.to_owned()), refused),
        (forever, "in 8 s: no answer: timed out"),
    ] {
        let judged = judged(&submit_to(said).await);
        assert!(judged.starts_with(want), "{judged}");
    }
}

#[tokio::test]
async fn the_excerpt_is_short_and_printable() {
    let body = "a\r\n\u{1b}[31m".to_owned() + &"x".repeat(20_000);
    let answer = submit_to(say("400 Bad Request", "", &body)).await;
    let Answer::Status { excerpt, .. } = answer else {
        panic!("{answer:?}")
    };
    assert!(excerpt.starts_with("a   [31mxxx"), "{excerpt}");
    assert_eq!(excerpt.chars().count(), 500);
}

/// The redirecting hub is at `HUB`, a configured one, with a token of its own, at `OTHER/publish`, and an unknown server at
/// `OTHER`. Which targets are followed is tried in full beside `next_hop`.
#[tokio::test]
async fn every_redirection_leads_to_a_hub_or_nowhere() {
    const TEMPORARY: &str = "307 Temporary Redirect";
    const PERMANENT: &str = "308 Permanent Redirect";
    let unreadable = "redirects (307) to http://[, where";
    let elsewhere = "redirects (308) to OTHER/elsewhere, where nothing is sent";
    for (status, location, requests, want) in [
        (TEMPORARY, "HUB/b", 2, "accepted"),
        (PERMANENT, "/b?x=1#part", 2, "accepted"),
        (PERMANENT, "OTHER/publish?topic=1", 1, "accepted"),
        // By way of the first hub.
        (TEMPORARY, "/c", 2, "accepted"),
        (PERMANENT, "OTHER/elsewhere", 1, elsewhere),
        (TEMPORARY, "http://[", 1, unreadable),
        (TEMPORARY, "", 4, "redirects (307) to nowhere"),
        ("302 Found", "/b", 1, "redirects (302) to /b, where"),
        (TEMPORARY, "NONE", 1, "redirects (307) to nowhere"),
    ] {
        let mut other = Peer::start(|_| say("200 OK", "", "")).await;
        let other_at = other.url("");
        let to_other = format!("Location: {other_at}/publish\r\n");
        let place = Arc::new(OnceLock::new());
        let told = Arc::clone(&place);
        let mut hub = Peer::start(move |seen| match (seen.line(), told.get()) {
            ("POST /b HTTP/1.1" | "POST /b?x=1 HTTP/1.1", _) => say("200 OK", "", ""),
            ("POST /c HTTP/1.1", _) => say("308 Permanent Redirect", &to_other, ""),
            (_, Some(location)) => say(status, &format!("Location: {location}\r\n"), ""),
            (_, None) => say(status, "", ""),
        })
        .await;
        let hub_at = hub.url("");
        let filled = |text: &str| text.replace("HUB", &hub_at).replace("OTHER", &other_at);
        if location != "NONE" {
            place.set(filled(location)).unwrap();
        }
        let url = hub.url("/a");
        let hubs = vec![
            with_token(&url, "own"),
            with_token(&format!("{other_at}/publish"), "other's"),
        ];
        let publisher = Submitter::new(hubs).unwrap();

        let answer = publisher.submit(&notification(&url)).await;
        let judged = judged(&answer);
        assert!(judged.contains(&filled(want)), "{judged}");
        let is_last = judged.starts_with("in 900 s, by an operator: it redirects");
        assert_eq!(is_last, want != "accepted", "{judged}");
        for _ in 0..requests {
            let seen = hub.next().await;
            assert_eq!(seen.header("Authorization"), ["Bearer own"]);
            assert_eq!(seen.body, BODY);
            assert!(seen.line().starts_with("POST "), "{}", seen.line());
        }
        if location == "/c" || location.starts_with("OTHER/publish") {
            let seen = other.next().await;
            assert_eq!(seen.header("Authorization"), ["Bearer other's"]);
            assert_eq!(seen.header("Content-Type"), ["application/xml"]);
            assert_eq!(seen.body, BODY);
        }
        assert!(hub.seen.try_recv().is_err() && other.seen.try_recv().is_err());
    }
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let url = format!("http://{}/?token=hidden", free_address().await);
    let judged = judged(&submit_at(&url).await);
    let want = "in 8 s: no answer: cannot connect: tcp connect error: Connection refused";
    assert!(judged.starts_with(want), "{judged}");
    assert!(!judged.contains("hidden"), "{judged}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_no_answer_and_delays_no_other_hub() {
    let quick = Peer::start(|_| say("200 OK", "", "")).await;
    let nowhere = "http://hub.invalid/publish?token=hidden";
    let mut lost = settings(nowhere);
    lost.timeout = Duration::from_secs(2);
    let publisher = Submitter::new(vec![lost, settings(&quick.url("/"))]).unwrap();
    let publisher = std::sync::Arc::new(publisher);
    let lost = [(); 10].map(|()| {
        let publisher = publisher.clone();
        tokio::spawn(async move { publisher.submit(&notification(nowhere)).await })
    });
    for _ in 0..20 {
        let answer = soon(publisher.submit(&notification(&quick.url("/")))).await;
        assert_eq!(judged(&answer), "accepted");
    }
    for lost in lost {
        let answer = lost.await.unwrap();
        let judged = judged(&answer);
        // Without any name server the system waits for one.
        let is_lost = judged.starts_with("in 8 s: no answer: its host name cannot be resolved: ")
            || judged == "in 8 s: no answer: timed out";
        assert!(is_lost && !judged.contains("hidden"), "{judged}");
    }
}

/// A listener that treats the first connection so.
pub async fn listen<F>(treat: impl FnOnce(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        treat(stream).await;
    });
    url
}

fn large(url: &str) -> HubRequest {
    let mut large = notification(url);
    large.body = vec![b'x'; 1 << 20].into();
    large
}

#[tokio::test]
async fn a_reset_in_the_middle_of_the_request_is_no_answer() {
    let url = listen(|mut stream| async move {
        stream.read_exact(&mut [0; 1000]).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let judged = judged(&submit(settings(&url), &large(&url)).await);
    assert!(judged.starts_with("in 8 s: no answer: "), "{judged}");
}

#[tokio::test]
async fn an_answer_that_comes_before_the_request_was_read_counts() {
    let url = listen(|mut stream| async move {
        stream.read_exact(&mut [0; 1000]).await.unwrap();
        let answer =
            "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        // As servers should close: not before the other side has.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    })
    .await;
    let answer = submit(settings(&url), &large(&url)).await;
    assert_eq!(judged(&answer), "too large");
}

#[tokio::test]
async fn an_answer_that_breaks_off_or_never_ends_counts_if_its_status_came_and_no_body_may_deny_it()
{
    const NO_ANSWER: &str = "in 8 s: no answer: ";
    const LOST: &str = "in 8 s: no answer: connection ";
    const TIMED_OUT: &str = "in 8 s: no answer: timed out";
    const NO_HTTP: &str = "in 8 s: no answer: it does not answer in HTTP";
    let head = "HTTP/1.1 200 OK\r\n";
    let drops = |head: &str, rest: &str| {
        Say::Drip(head.to_owned(), rest.to_owned(), Duration::from_secs(1))
    };
    let long_body = format!("{head}Content-Length: 100000\r\n\r\nabc");
    let form = format!(
        "{head}Content-Length: 15\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
    );
    let chunked = format!("{head}Transfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n");
    let endless = |head: &str, rest: &str| Say::Endless(head.to_owned(), rest.to_owned());
    let [empty, hundred] = [0, 100].map(|n| format!("{head}Content-Length: {n}\r\n\r\n"));
    let xs = "x".repeat(100);
    let begun_form = format!("{form}hub.mo");
    let refusal = begun_form.replace("200 OK", "503 No");
    for (case, said, want) in [
        ("silence", Say::Hang(String::new()), TIMED_OUT),
        ("half a line", Say::Hang("HTTP/1.1 200 O".into()), TIMED_OUT),
        ("nothing", Say::Last(String::new()), NO_ANSWER),
        ("no HTTP", Say::Last("SSH-2.0\r\n\r\n".into()), NO_HTTP),
        ("a reset", Say::Reset(String::new()), LOST),
        ("a reset header", Say::Reset(head.into()), LOST),
        ("a cut body", Say::Last(long_body.clone()), "accepted"),
        ("a hanging body", Say::Hang(long_body), "accepted"),
        ("a cut form", Say::Last(begun_form.clone()), NO_ANSWER),
        ("a hanging form", Say::Hang(begun_form), TIMED_OUT),
        (
            "a cut form of a refusal",
            Say::Last(refusal),
            "in 8 s: it cannot take it now (503)",
        ),
        (
            "a header without end",
            endless(head, "X-A: aaaaaaaaaa\r\n"),
            NO_HTTP,
        ),
        (
            "a body without end",
            endless(&chunked, "4\r\nabcd\r\n"),
            "accepted",
        ),
        ("a header in drops", drops("", &empty), TIMED_OUT),
        ("a body in drops", drops(&hundred, &xs), "accepted"),
        (
            "a form in drops",
            drops(&form, "hub.mode=denied"),
            TIMED_OUT,
        ),
    ] {
        let begun = Instant::now();
        let judged = judged(&submit_to(said).await);
        assert!(judged.starts_with(want), "{case}: {judged}");
        // Far below what the drops would take, far above the timeout: the machine may be busy.
        let taken = begun.elapsed();
        assert!(taken < Duration::from_secs(8), "{case}: {taken:?}");
    }
}

#[tokio::test]
async fn a_kept_connection_that_closes_as_it_is_written_to_is_replaced_at_once() {
    // It answers the first request, and breaks off when the second comes by the same connection.
    let requests = AtomicUsize::new(0);
    let mut peer = Peer::start(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        1 | 4 => Say::Last(String::new()),
        3 => Say::Reset(String::new()),
        _ => say("200 OK", "", ""),
    })
    .await;
    let url = peer.url("/");
    let publisher = Submitter::new(vec![settings(&url)]).unwrap();
    let submit = async || judged(&soon(publisher.submit(&notification(&url))).await);
    for _ in 0..2 {
        assert_eq!(submit().await, "accepted");
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(peer.next().await);
    }
    let connections: Vec<_> = seen.iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    let is_same = |one: &Seen| (&one.head, &one.body) == (&seen[0].head, &seen[0].body);
    assert!(seen.iter().all(is_same));

    // One that breaks off on a fresh connection too is left alone until the next attempt.
    assert!(submit().await.starts_with("in 8 s: no answer: "));
    let connections = [peer.next().await.connection, peer.next().await.connection];
    assert_eq!(connections, [1, 2]);
    assert!(peer.seen.try_recv().is_err());
}
