//! Channels of changes: advertised, configured or by default, beside those of documents (C1, C9, C10, C12).

use resourcesync::change_payload::ChangePayload;
use resourcesync::channel_kind::ChannelKind;
use rstest::rstest;

use crate::changes::story::{LIST, Story, until};
use crate::support::changes::{Destination, change_list, topic};
use crate::support::daemon::{TOPICS, assert_contains};
use crate::support::documents::{URL, capability_list, description};
use crate::support::hub::Request;

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

/// The way in which a set comes to its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Advertisement,
    Configuration,
    Both,
}

#[rstest]
fn a_channel_of_changes_has_the_topic_that_is_advertised_or_configured(
    #[values(By::Advertisement, By::Configuration, By::Both)] by: By,
) {
    let configured = format!(
        "[[channel]]\ncapability_list = \"{URL}a/capabilitylist.xml\"\nkind = \"change\"\n\
         topic = \"{MOVED}\"\n"
    );
    let mut story = Story::new(match by {
        By::Advertisement => "",
        By::Configuration | By::Both => &configured,
    });
    let wanted = match by {
        By::Advertisement => ADVERTISED,
        By::Configuration | By::Both => MOVED,
    };
    let config = &mut story.setup.config;
    *config = config.replace("change_notifications = true\n", "");
    if by != By::Configuration {
        let list = advertising(ADVERTISED, &story.hub.url());
        story.site.write("a/capabilitylist.xml", &list);
    }
    story.resume();
    story.await_learned(1);
    story.add(&["created 1.txt 10:00:00"]);
    let mut heard = Destination::default();
    heard.listen(&story.hub, wanted, 1);
    assert_eq!(heard.told, ["created a/1.txt"]);
}

#[rstest]
fn without_a_reason_there_is_no_channel_of_changes(
    #[values(
        ("change_notifications = true\n", ""),
        ("change_notifications = true\n", "change_notifications = true\nunadvertised_channels = false\n")
    )]
    edit: (&str, &str),
) {
    let mut story = Story::new("");
    let list = capability_list("a", &["resourcelist", "changelist"]);
    let (_, documents) = (edit.0, format!("{TOPICS}poems/documents/"));
    let advertised = format!(
        "<url><loc>{documents}</loc><rs:md capability=\"framework-notification\"/>\
         <rs:ln rel=\"hub\" href=\"{}\"/></url>\n</urlset>",
        story.hub.url()
    );
    let list = list.replace("</urlset>", &advertised);
    story.site.write("a/capabilitylist.xml", &list);
    let config = &mut story.setup.config;
    assert!(config.contains(edit.0));
    *config = config.replace(edit.0, edit.1);
    story.resume();
    story.add(&["created 1.txt 10:00:00"]);
    assert_eq!(story.hub.notification().topic(), documents);
    let saved = story.saved();
    assert_eq!(saved.count("SELECT count(*) FROM change_set"), 0);
    let kinds = "SELECT group_concat(kind) FROM channel";
    let documents = (ChannelKind::Framework as i64).to_string();
    assert_eq!(saved.value::<String>(kinds, []), documents);
}

#[test]
fn a_moved_topic_begins_where_the_old_one_ended() {
    let mut story = Story::new("");
    let moved_to = |story: &Story, topic: &str| {
        let list = advertising(topic, &story.hub.url());
        story.site.write("a/capabilitylist.xml", &list);
    };
    moved_to(&story, ADVERTISED);
    story.resume();
    story.await_learned(1);
    story.add(&["created 1.txt 10:00:00"]);
    // One Destination, which follows the topic.
    let mut heard = Destination::default();
    heard.listen(&story.hub, ADVERTISED, 1);
    moved_to(&story, MOVED);
    let moved = format!("SELECT count(*) FROM channel WHERE topic = '{MOVED}'");
    story.await_count(&moved, 1);
    story.add(&["updated 1.txt 10:05:00"]);
    heard.listen(&story.hub, MOVED, 2);
    assert_eq!(heard.told, ["created a/1.txt", "updated a/1.txt"]);
    assert_eq!(heard.gaps, 0);
}

#[test]
fn a_set_that_appears_is_learned_and_its_next_change_is_told() {
    let story = Story::start();
    let mut entries: Vec<String> = (0..50)
        .map(|minute| format!("created {minute}.txt 10:{minute:02}:00"))
        .collect();
    // The Capability List last: what lists gain once the set is there is told.
    story
        .site
        .write("b/changelist.xml", &change_list("b", &entries));
    story.site.write_capability_list("b", &["changelist"]);
    story
        .site
        .write(".well-known/resourcesync", &description(&["a", "b"]));
    story.await_learned(2);
    entries.push("deleted 0.txt 11:00:00".to_owned());
    story
        .site
        .write("b/changelist.xml", &change_list("b", &entries));
    let mut heard = Destination::default();
    heard.listen(&story.hub, &topic("b"), 1);
    assert_eq!(heard.told, ["deleted b/0.txt"]);
}

#[test]
fn changes_of_a_list_of_two_sets_are_told_on_both_channels() {
    let story = Story::start();
    // The set `b` has the Change List of `a`, and none of its own.
    let shared =
        capability_list("a", &["changelist"]).replace("a/capabilitylist", "b/capabilitylist");
    story.site.write("b/capabilitylist.xml", &shared);
    story
        .site
        .write(".well-known/resourcesync", &description(&["a", "b"]));
    story.await_learned(2);
    let entries = ["updated before.txt 09:00:00", "created 1.txt 10:00:00"];
    story.site.write(LIST, &change_list("a", &entries));
    let mut left = vec![topic("a"), topic("b")];
    until(|| {
        for request in story.hub.heard() {
            if ChangePayload::parse(&request.body).is_some() {
                assert_eq!(request.changes(), ["created a/1.txt"]);
                let at = left.iter().position(|topic| *topic == request.topic());
                left.remove(at.unwrap());
            }
        }
        left.is_empty()
    });
}
