//! Channels of changes: advertised, configured or by default, beside those of documents (C1, C9, C10, C12).

use crate::changes::story::Story;
use crate::support::changes::{Destination, topic};
use crate::support::daemon::{Daemon, TOPICS, assert_contains};
use crate::support::documents::{URL, capability_list};
use crate::support::hub::{FakeHub, Request};
use crate::support::until;

const ADVERTISED: &str = "https://topics.example/poems/changes/";
const MOVED: &str = "https://topics.example/poems/changes-2/";

/// A Capability List of the set `a` that advertises a channel of changes.
fn advertising(topic: &str, hub: &str) -> String {
    let entry = format!(
        "<url><loc>{topic}</loc><rs:md capability=\"change-notification\"/>\
         <rs:ln rel=\"hub\" href=\"{hub}\"/></url>\n</urlset>"
    );
    capability_list("a", &["resourcelist", "changelist"]).replace("</urlset>", &entry)
}

fn links(topic: &str, hub: &str) -> String {
    format!(
        "<{topic}>; rel=\"self\", <{hub}>; rel=\"hub\", <{URL}a/capabilitylist.xml>; rel=\"resourcesync\""
    )
}

#[test]
fn a_set_has_a_channel_of_its_documents_and_one_of_its_resources() {
    let mut story = Story::start();
    let (head, body) = story.daemon().get("/changes/main/a/capabilitylist/");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_contains(&head, "content-length: 0");
    assert!(body.is_empty(), "{body}");
    story.add(&["updated 1.txt 10:05:00", "deleted 2.txt 10:05:31"]);
    let mut requests = [story.hub.notification(), story.hub.notification()];
    requests.sort_by_key(Request::topic);
    let [of_resources, of_documents] = requests;
    assert_eq!(
        of_documents.topic(),
        format!("{TOPICS}topics/main/a/capabilitylist/")
    );
    assert_eq!(
        of_documents.changes(),
        ["updated changelist a/changelist.xml"]
    );
    let wanted = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n  \
        <rs:ln rel=\"up\" href=\"https://source.example/a/capabilitylist.xml\"/>\n  \
        <rs:md capability=\"change-notification\" from=\"2024-11-20T09:00:00Z\" until=\"2024-11-20T10:05:31Z\"/>\n  \
        <url>\n    <loc>https://source.example/a/1.txt</loc>\n    \
        <rs:md change=\"updated\" datetime=\"2024-11-20T10:05:00Z\"/>\n  </url>\n  \
        <url>\n    <loc>https://source.example/a/2.txt</loc>\n    \
        <rs:md change=\"deleted\" datetime=\"2024-11-20T10:05:31Z\"/>\n  </url>\n</urlset>\n";
    assert_eq!(String::from_utf8_lossy(&of_resources.body), wanted);
    assert_eq!(of_resources.headers["content-type"], "application/xml");
    let links = links(&topic("a"), &story.hub.url());
    assert_eq!(of_resources.headers["link"], links);
    let (head, body) = story.daemon().get("/changes/main/a/capabilitylist/");
    assert_contains(&head, "content-type: application/xml\r\n");
    assert_contains(&head, &format!("link: {links}"));
    assert_eq!(body, wanted);
}

#[test]
fn a_channel_of_changes_has_the_topic_that_is_configured_else_that_which_is_advertised() {
    let configured = format!(
        "[[channel]]\ncapability_list = \"{URL}a/capabilitylist.xml\"\nkind = \"change\"\n\
         topic = \"{MOVED}\"\n"
    );
    for (tables, topic) in [("", ADVERTISED), (&configured, MOVED)] {
        let mut story = Story::new(tables);
        story.setup.replace("change_notifications = true\n", "");
        let list = advertising(ADVERTISED, &story.hub.url());
        story.site.write("a/capabilitylist.xml", &list);
        story.resume();
        story.await_learned(1);
        story.add(&["created 1.txt 10:00:00"]);
        let mut heard = Destination::default();
        heard.listen(&story.hub, topic, 1);
        assert_eq!(heard.told, ["created a/1.txt"], "{topic}");
    }
}

#[test]
fn the_embedded_hub_passes_changes_on_to_its_subscribers() {
    let subscriber = FakeHub::start();
    let mut story = Story::with_embedded_hub();
    story.resume();
    story.await_learned(1);
    subscribe(story.daemon(), &topic("a"), &subscriber);
    until(|| story.has_subscriber());
    story.add(&["created 1.txt 10:00:00"]);
    story.add(&["created 1.txt 10:00:00", "deleted 1.txt 10:00:01"]);
    let mut relayed = Destination::default();
    relayed.listen(&subscriber, &topic("a"), 3);
    story.heard.listen(&story.hub, &topic("a"), 3);
    assert_eq!(relayed.told, story.heard.told);
    assert_eq!(relayed.until(), story.heard.until());
}

/// Subscribes to a topic of the embedded hub.
pub fn subscribe(daemon: &Daemon, topic: &str, subscriber: &FakeHub) {
    let callback = format!("http://{}/callback", subscriber.address);
    crate::embedded::subscribe(daemon.public, topic, &callback);
}
