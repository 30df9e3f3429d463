//! A mirror, as the example has it, of what the least hub delivers.

use std::sync::Mutex;

use resourcesync::uri::Uri;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use websub::hub::request::CallbackPolicy;
use websub::subscriber::HttpSubscriber;

use crate::support::{Peer, say, soon};

#[path = "../../examples/hub.rs"]
#[expect(dead_code, reason = "its main function")]
mod hub;
#[path = "../../examples/mirror.rs"]
#[expect(dead_code, reason = "its main function")]
mod mirror;

fn document(form: &str, capability: &str, entries: &str) -> String {
    format!(
        "<{form} xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
         xmlns:rs='http://www.openarchives.org/rs/terms/'>\
         <rs:md capability='{capability}' from='2026-11-20T09:00:00Z'/>{entries}</{form}>"
    )
}

#[tokio::test]
async fn a_mirror_follows_what_the_hub_delivers() {
    let content = std::sync::Arc::new(Mutex::new("first"));
    let served = std::sync::Arc::clone(&content);
    let source = Peer::start(move |seen| {
        let host = format!("http://{}", seen.header("Host")[0]);
        let loc = |path: &str| format!("<loc>{host}{path}</loc>");
        let body = match seen.line().split(' ').nth(1).unwrap() {
            "/cl.xml" => {
                let list = format!("<url>{}<rs:md capability='resourcelist'/></url>", loc("/i"));
                let other = format!("<url>{}<rs:md capability='changelist'/></url>", loc("/c"));
                document("urlset", "capabilitylist", &(other + &list))
            }
            "/i" => document(
                "sitemapindex",
                "resourcelist",
                &format!("<sitemap>{}</sitemap>", loc("/rl")),
            ),
            "/rl" => {
                let entries =
                    ["/d/a.txt", "/b.txt"].map(|path| format!("<url>{}</url>", loc(path)));
                document("urlset", "resourcelist", &entries.concat())
            }
            _ => served.lock().unwrap().to_string(),
        };
        say("200 OK", "", &body)
    })
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let list = Uri::parse(&source.url("/cl.xml")).unwrap();
    let (subscribed, mut subscriptions) = mpsc::unbounded_channel();
    let subscribed = move |callback| subscribed.send(callback).unwrap();
    let policy = CallbackPolicy::on_this_machine();
    let mut hub = hub::TopicHub::start(listener, list, policy, subscribed).unwrap();
    let topic = hub.topic().clone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let (sender, mut reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let destination = HttpSubscriber::bind("127.0.0.1:0".parse().unwrap(), None)
            .await
            .unwrap();
        let report = |done| sender.send(done).unwrap();
        mirror::mirror(&destination, &topic, &path, report)
            .await
            .unwrap();
    });
    let (a, b) = (source.url("/d/a.txt"), source.url("/b.txt"));
    for want in [format!("copied {a}"), format!("copied {b}")] {
        assert_eq!(soon(reports.recv()).await, Some(want));
    }
    soon(subscriptions.recv()).await.unwrap();
    let file = |name| std::fs::read_to_string(directory.path().join(name)).ok();
    assert_eq!(file("d/a.txt").as_deref(), Some("first"));

    *content.lock().unwrap() = "second";
    let change = |loc, change| format!("<url><loc>{loc}</loc><rs:md change='{change}'/></url>");
    for entries in [change(&a, "updated"), change(&b, "deleted")] {
        let body = document("urlset", "change-notification", &entries);
        hub.publish(body.into_bytes());
    }
    for want in [format!("updated {a}"), format!("deleted {b}")] {
        assert_eq!(soon(reports.recv()).await, Some(want));
    }
    assert_eq!(file("d/a.txt").as_deref(), Some("second"));
    assert_eq!(file("b.txt"), None);
}
