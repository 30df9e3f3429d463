//! The content change messages of a change notification: one feed per object, with its changes in order (F4, F5); and
//! identifiers of objects and items, and the locations of their content, as a broker's consumers expect them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use globset::{Glob, GlobBuilder};
use resourcesync::change::{Change, RelatedLink};
use resourcesync::datetime::Datetime;
use resourcesync::feed::{
    ACTIVE, ATOM_TYPE, ContentLocation, FORMAT, FeedEntry, ObjectFeed, change_term,
};
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{compared, rest_below};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::frame::Frame;
use crate::message::{
    BrokerNotification, IdPosition, LONGEST_PROPERTY, message_frame, message_id, urn,
};

/// Name of the server, and of the author where no user is known.
const SERVER: &str = "rsnotify";
/// Name and version of the server.
const SERVER_VERSION: &str = concat!("rsnotify/", env!("CARGO_PKG_VERSION"));

/// Longest feed of several changes, in bytes. A longer one becomes several: consumers and brokers have limits on messages.
const LONGEST_FEED: usize = 900 << 10;

/// The form of a broker's content change messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtomRules {
    /// Kind of thing that is one object.
    pub object: ObjectGranularity,
    /// Identifiers of objects and items.
    pub identifiers: IdentifierForm,
    /// Another location of the content than the resource's URI.
    pub location: Option<LocationRewrite>,
    /// Types of objects.
    pub types: Vec<TypeRule>,
}

/// Returns a glob of the URIs of objects, in which `*` does not match `/`.
///
/// # Errors
///
/// If the text is no glob.
pub fn object_glob(text: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text).literal_separator(true).build()
}

/// Returns the content change messages of a notification, in order of the first change of each object (F2 to F5).
/// `None` if it is no change notification that was rendered here.
pub fn atom_messages(
    notification: &BrokerNotification<'_>,
    form: &AtomRules,
) -> Option<Vec<Frame>> {
    let payload = notification.body.change_payload()?;
    let until = Datetime::parse(&payload.until.to_string())?;
    let mut messages = Vec::new();
    let mut objects = changed_objects(&payload.entries, form);
    // The next one is the last of them.
    objects.reverse();
    while let Some(mut object) = objects.pop() {
        let feed = feed(&object, until, notification, form);
        let message = feed_message(&object, &feed, notification);
        let count = object.changes.len();
        if message.body.len() > LONGEST_FEED && count > 1 {
            let changes = object.changes.split_off(count / 2);
            objects.push(ChangesOfObject {
                changes,
                ..object.clone()
            });
            objects.push(object);
        } else {
            messages.push(message);
        }
    }
    Some(messages)
}

/// The changes of one object by one author in one notification.
#[derive(Debug, Clone)]
struct ChangesOfObject<'a> {
    /// URI of the object.
    uri: &'a str,
    author: Option<&'a str>,
    types: Vec<String>,
    /// The changes with their numbers in the notification, in order.
    changes: Vec<(u64, &'a Change)>,
}

impl ChangesOfObject<'_> {
    /// Returns its position among the ids of the notification.
    fn id_position(&self) -> IdPosition {
        IdPosition::Feed {
            first: self.changes.first().map_or(0, |(number, _)| *number),
            count: self.changes.len() as u64,
        }
    }

    /// Returns the URI of the object that it is part of: its collection, or else the directory.
    fn parent(&self) -> Option<&str> {
        let is_other = |uri: &&str| compared(uri) != compared(self.uri);
        let mut changes = self.changes.iter();
        let collection = changes.find_map(|(_, change)| link_target(change, "collection"));
        collection
            .filter(is_other)
            .or_else(|| parent_directory(self.uri))
    }
}

/// Returns the objects that changed, in order of their first changes, each once for each author. If another one changed an
/// item meanwhile, it comes once more, so that the changes of an item keep their order.
fn changed_objects<'a>(changes: &'a [Change], form: &AtomRules) -> Vec<ChangesOfObject<'a>> {
    let types = form.types.iter().filter_map(|one| {
        let glob = object_glob(&one.objects).ok()?;
        Some((glob.compile_matcher(), &one.name))
    });
    let types: Vec<_> = types.collect();
    let mut objects: Vec<ChangesOfObject<'_>> = Vec::new();
    // The last ones of objects and authors, and those with the last changes of items.
    let (mut known, mut changed) = (HashMap::new(), HashMap::new());
    for (number, change) in (0..).zip(changes) {
        let uri = match form.object {
            ObjectGranularity::Resource => &change.loc,
            ObjectGranularity::Directory => directory_of(&change.loc),
        };
        // URIs that have the same identifier are one object, named as its first change names it.
        let identifier = |uri: &str| form.identifiers.identifier(&compared(uri));
        let author = link_target(change, "author");
        let key = (identifier(uri), author);
        let item = identifier(&change.loc);
        let index = match (known.get(&key), changed.get(&item)) {
            (Some(index), last) if last.is_none_or(|last| last <= index) => *index,
            _ => {
                let its = types
                    .iter()
                    .filter(|(glob, _)| glob.is_match(&*compared(uri)));
                let its: BTreeSet<&String> = its.map(|(_, name)| *name).collect();
                objects.push(ChangesOfObject {
                    uri,
                    author,
                    types: its.into_iter().cloned().collect(),
                    changes: Vec::new(),
                });
                objects.len() - 1
            }
        };
        known.insert(key, index);
        changed.insert(item, index);
        objects[index].changes.push((number, change));
    }
    objects
}

/// Returns the object of a resource with `object = "directory"`. A URI whose path ends in a slash is its own.
fn directory_of(uri: &str) -> &str {
    if uri.ends_with('/') && !uri.contains(['?', '#']) {
        return uri;
    }
    parent_directory(uri).unwrap_or(uri)
}

fn link_target<'a>(change: &'a Change, relation: &str) -> Option<&'a str> {
    let has_relation = |link: &&RelatedLink| {
        let mut relations = link.rel.split_ascii_whitespace();
        relations.any(|one| one.eq_ignore_ascii_case(relation))
    };
    Some(&change.links.iter().find(has_relation)?.href)
}

fn feed(
    object: &ChangesOfObject<'_>,
    until: Datetime,
    notification: &BrokerNotification<'_>,
    form: &AtomRules,
) -> ObjectFeed {
    let mut feed = ObjectFeed {
        id: urn(&message_id(notification, object.id_position())),
        server: Some(SERVER_VERSION.to_owned()),
        format: Some(FORMAT.to_owned()),
        author: object.author.unwrap_or(SERVER).to_owned(),
        title: change_summary(object),
        updated: until,
        object: form.identifiers.identifier(object.uri),
        parent: object
            .parent()
            .map(|parent| form.identifiers.identifier(parent)),
        types: object.types.clone(),
        items: Vec::new(),
        skipped: 0,
    };
    let items = object.changes.iter().map(|(number, change)| {
        let id = message_id(notification, IdPosition::Entry(*number));
        item(urn(&id), change, &feed, form)
    });
    feed.items = items.collect();
    let updated = feed.items.iter().map(|item| item.updated);
    feed.updated = updated.max().unwrap_or(until);
    feed
}

/// Returns the entry of a change, whose feed has the time of changes without one.
fn item(id: String, change: &Change, feed: &ObjectFeed, form: &AtomRules) -> FeedEntry {
    // The version that the change made, where the list names it.
    let version = link_target(change, "memento").unwrap_or(&change.loc);
    let content = || ContentLocation {
        src: (form.location.as_ref()).map_or_else(|| version.to_owned(), |to| to.rewrite(version)),
        media_type: change.mime_type.as_deref().map(str::to_owned),
    };
    FeedEntry {
        id,
        author: feed.author.clone(),
        title: feed.title.clone(),
        updated: change.datetime.unwrap_or(feed.updated),
        item: form.identifiers.identifier(&change.loc),
        content: (change.kind != ChangeKind::Deleted).then(content),
        summary: format!("The item was {}.", change_in_words(change.kind)),
        state_before: None,
        state_after: (change.kind == ChangeKind::Created).then(|| ACTIVE.to_owned()),
        change: Some(change.kind),
    }
}

/// Returns the description of an object's changes: `2 added, 1 deleted`.
fn change_summary(object: &ChangesOfObject<'_>) -> String {
    // In the order of the words.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, change) in &object.changes {
        *counts.entry(change_in_words(change.kind)).or_default() += 1;
    }
    let parts = counts.iter().map(|(past, count)| format!("{count} {past}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns a change as a word of a description.
fn change_in_words(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Created => "added",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Updated => "updated",
    }
}

fn feed_message(
    object: &ChangesOfObject<'_>,
    feed: &ObjectFeed,
    notification: &BrokerNotification<'_>,
) -> Frame {
    let id = message_id(notification, object.id_position());
    let items = feed.items.iter();
    let types: BTreeSet<&str> = items
        .filter_map(|item| item.change.map(change_term))
        .collect();
    let types: Vec<&str> = types.into_iter().collect();
    let mut message = message_frame(&id, &feed.object, ATOM_TYPE, notification);
    for (name, value) in [
        ("changeTypes", types.join(",")),
        ("objectUri", feed.object.clone()),
        ("parentUri", feed.parent.clone().unwrap_or_default()),
        ("objectTypes", feed.types.join(",")),
        ("itemCount", feed.items.len().to_string()),
        ("user", object.author.unwrap_or_default().to_owned()),
    ] {
        // An absent property selects like a null, which an empty one does not. The feed has those that are too long.
        if !value.is_empty() && value.len() <= LONGEST_PROPERTY {
            message.headers.push((name.to_owned(), value));
        }
    }
    message.body = feed.render();
    message
}

/// Scheme and authority of repository identifiers.
const INFO_FEDORA: &str = "info:fedora/";

/// The resources that are one object (F5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectGranularity {
    /// Each resource is an object, and its own only item.
    #[default]
    Resource,
    /// A directory is an object: the URI up to its last slash. Resources in it are the items.
    Directory,
}

/// Form of identifiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentifierForm {
    /// The URI as the Change List has it.
    #[default]
    #[serde(rename = "uri")]
    Uri,
    /// `info:fedora/` and the path of the repository; a URI without an authority as the Change List has it.
    #[serde(rename = "info:fedora")]
    InfoFedora,
}

impl IdentifierForm {
    /// Returns the identifier of a resource, object or parent with a URI.
    pub fn identifier(self, uri: &str) -> String {
        match self {
            IdentifierForm::Uri => uri.to_owned(),
            IdentifierForm::InfoFedora => info_fedora(uri),
        }
    }
}

/// Another location of the content, for consumers that cannot use the published one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocationRewrite {
    /// Beginning of URIs that is replaced, by whole segments: `/rest` does not match `/restricted`.
    #[schemars(extend("x-form" = "location"))]
    pub from: String,
    /// Text that replaces it.
    #[schemars(extend("x-form" = "location"))]
    pub to: String,
}

/// A rule that gives objects a type, by their URIs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TypeRule {
    /// Glob of the URIs of objects, in which `*` stops at `/` and `**` does not.
    #[schemars(extend("x-form" = "glob of uris"))]
    pub objects: String,
    /// The type that they have: a URI or a word.
    #[serde(rename = "type")]
    #[schemars(extend("x-form" = "object type"))]
    pub name: String,
}

impl LocationRewrite {
    /// Returns the location of a resource's content. A URI that does not lie below the replaced ones stays unchanged.
    pub fn rewrite(&self, uri: &str) -> String {
        // What follows is as it is written, where the beginning is: some servers take escapes for other characters.
        let written = uri.strip_prefix(&self.from).filter(|rest| !rest.is_empty());
        match rest_below(uri, &self.from) {
            Some(rest) => format!("{}{}", self.to, written.unwrap_or(&rest)),
            None => uri.to_owned(),
        }
    }
}

/// Returns the directory of a resource, or the one above a directory: the URI up to its last slash. `None` without one
/// below the authority.
pub(crate) fn parent_directory(uri: &str) -> Option<&str> {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let path = uri[..end].strip_suffix('/').unwrap_or(&uri[..end]);
    let start = path_start(path)?;
    let slash = path[start..].rfind('/')?;
    Some(&uri[..=start + slash])
}

/// Returns the offset of the slash that the path begins with.
fn path_start(uri: &str) -> Option<usize> {
    let authority = authority_start(uri)?;
    let path = authority + uri[authority..].find(['/', '?', '#'])?;
    uri[path..].starts_with('/').then_some(path)
}

/// Returns the offset of the authority, after the scheme. A URI such as `urn:` has none, but may contain another URI.
fn authority_start(uri: &str) -> Option<usize> {
    let scheme = uri.find(':')?;
    let is_authority = uri[scheme..].starts_with("://");
    is_authority.then_some(scheme + "://".len())
}

/// Beginning of the path of an object in the interface of Fedora 3.
const OBJECTS: &str = "/objects/";
/// Beginning of the path of a resource in the interface of Fedora 4 and later.
const REST: &str = "/rest/";

/// Returns the repository's identifier for a URI of its HTTP interface: what follows `/objects/` or `/rest/`, and the
/// whole path of others. A datastream is named after its object. A URI without an authority, such as `info:` or `urn:`, is
/// an identifier already.
fn info_fedora(uri: &str) -> String {
    if authority_start(uri).is_none() {
        return uri.to_owned();
    }
    let Some(start) = path_start(uri) else {
        return INFO_FEDORA.to_owned();
    };
    let end = uri[start..].find(['?', '#']);
    let path = &uri[start..end.map_or(uri.len(), |end| start + end)];
    // The marker that comes first is the interface's; the other is a part of a name.
    let name = match (path.find(OBJECTS), path.find(REST)) {
        (Some(at), rest) if rest.is_none_or(|rest| at < rest) => {
            &fedora_object_id(&path[at + OBJECTS.len()..])
        }
        (_, Some(at)) => &uri[start + at + REST.len()..],
        _ => &uri[start..],
    };
    format!("{INFO_FEDORA}{}", name.trim_matches('/'))
}

/// Returns an object or datastream below `/objects/` as an identifier has it. The content of a datastream is named as the
/// datastream.
fn fedora_object_id(path: &str) -> String {
    match path.split_once("/datastreams/") {
        Some((object, datastream)) => {
            let datastream = datastream.strip_suffix("/content").unwrap_or(datastream);
            format!("{object}/{datastream}")
        }
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use insta::assert_snapshot;
    use jiff::Timestamp;
    use proptest::prelude::*;
    use resourcesync::capability::ChannelKind;
    use resourcesync::change_payload::ChangePayload;

    use super::*;
    use crate::message::HashedPayload;

    fn change(loc: &str, kind: ChangeKind, datetime: Option<&str>) -> Change {
        Change {
            datetime: datetime.map(|datetime| Datetime::parse(datetime).unwrap()),
            ..Change::new(loc.into(), kind)
        }
    }

    fn link(rel: &str, href: &str) -> RelatedLink {
        RelatedLink {
            rel: rel.into(),
            href: href.into(),
            attributes: Vec::new(),
        }
    }

    fn body(entries: Vec<Change>) -> Vec<u8> {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let payload = ChangePayload {
            up: None,
            from: time("2026-11-22T09:00:00Z"),
            until: time("2026-11-22T09:30:00Z"),
            entries,
        };
        payload.render()
    }

    fn messages(body: &[u8], seq: u64, form: &AtomRules) -> Vec<Frame> {
        let notification = BrokerNotification {
            source: "main",
            topic: "https://e.org/changes",
            kind: ChannelKind::Change,
            seq,
            body: HashedPayload::new(body, &[]),
        };
        atom_messages(&notification, form).unwrap()
    }

    fn directories() -> AtomRules {
        AtomRules {
            object: ObjectGranularity::Directory,
            ..AtomRules::default()
        }
    }

    #[test]
    fn a_feed_has_the_changes_of_a_directory() {
        let ada = || link("author", "mailto:ada@e.org");
        let added = Change {
            mime_type: Some("application/pdf".into()),
            links: vec![ada()],
            ..change(
                "https://e.org/reports/1.pdf",
                ChangeKind::Created,
                Some("2026-11-22T09:10:00.25Z"),
            )
        };
        let updated = Change {
            mime_type: Some("text/plain; charset=utf-8".into()),
            links: vec![link("collection", "https://e.org/series/7"), ada()],
            ..change("https://e.org/reports/2.txt", ChangeKind::Updated, None)
        };
        let deleted = Change {
            links: vec![ada()],
            ..change(
                "https://e.org/reports/3.txt",
                ChangeKind::Deleted,
                Some("2026-11-22T09:20:00Z"),
            )
        };
        let form = AtomRules {
            types: vec![TypeRule {
                objects: "https://e.org/*/".to_owned(),
                name: "info:e/Collection".to_owned(),
            }],
            ..directories()
        };
        let body = body(vec![added, updated, deleted]);
        let messages = messages(&body, 3, &form);
        assert_eq!(messages.len(), 1);
        let message = &messages[0];
        for (name, want) in [
            ("format", "atom"),
            ("kind", "change"),
            ("seq", "3"),
            ("changeTypes", "ADD,DELETE,UPDATE"),
            ("objectUri", "https://e.org/reports/"),
            ("parentUri", "https://e.org/series/7"),
            ("objectTypes", "info:e/Collection"),
            ("itemCount", "3"),
            ("user", "mailto:ada@e.org"),
        ] {
            assert_eq!(message.header(name), Some(want), "{name}");
        }
        let group = message.header("JMSXGroupID");
        assert_eq!(group, Some("https://e.org/reports/"));
        let text = String::from_utf8(message.body.clone())
            .unwrap()
            .replace(env!("CARGO_PKG_VERSION"), "VERSION");
        assert_snapshot!(text, @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <feed xmlns="http://www.w3.org/2005/Atom" xmlns:changes="http://www.acuityunlimited.net/fedora/messaging#">
          <category term="rsnotify/VERSION" scheme="info:fedora/fedora-system:def/view#version"/>
          <category term="http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1" scheme="http://www.fedora.info/definitions/1/0/types/formatURI"/>
          <author><name>mailto:ada@e.org</name></author>
          <title type="text">1 added, 1 deleted, 1 updated</title>
          <updated>2026-11-22T09:30:00Z</updated>
          <link rel="via" href="https://e.org/reports/"/>
          <link rel="related" href="https://e.org/series/7"/>
          <category term="info:e/Collection" scheme="changes:OBJECT:TYPE"/>
          <id>urn:uuid:791edc1b-c72f-81b2-a1ca-4fb9feb1e95f</id>
          <entry>
            <author><name>mailto:ada@e.org</name></author>
            <id>urn:uuid:f1079d37-933f-8fcb-b625-0cdd17c3bfef</id>
            <title type="text">1 added, 1 deleted, 1 updated</title>
            <updated>2026-11-22T09:10:00.25Z</updated>
            <content type="application/pdf" src="https://e.org/reports/1.pdf"/>
            <link rel="via" href="https://e.org/reports/1.pdf"/>
            <summary type="text">The item was added.</summary>
            <category scheme="changes:CONTENT:ITEM:STATEAFTER" term="ACTIVE"/>
            <category scheme="changes:ITEM:CHANGE:TYPE" term="ADD"/>
          </entry>
          <entry>
            <author><name>mailto:ada@e.org</name></author>
            <id>urn:uuid:a0ad79e3-eaf0-8aa6-94f1-f55c84f02b24</id>
            <title type="text">1 added, 1 deleted, 1 updated</title>
            <updated>2026-11-22T09:30:00Z</updated>
            <content type="text/plain; charset=utf-8" src="https://e.org/reports/2.txt"/>
            <link rel="via" href="https://e.org/reports/2.txt"/>
            <summary type="text">The item was updated.</summary>
            <category scheme="changes:ITEM:CHANGE:TYPE" term="UPDATE"/>
          </entry>
          <entry>
            <author><name>mailto:ada@e.org</name></author>
            <id>urn:uuid:f4e5862d-0087-8b39-9d8b-73700ab8e931</id>
            <title type="text">1 added, 1 deleted, 1 updated</title>
            <updated>2026-11-22T09:20:00Z</updated>
            <link rel="alternate" href="https://e.org/reports/3.txt"/>
            <link rel="via" href="https://e.org/reports/3.txt"/>
            <summary type="text">The item was deleted.</summary>
            <category scheme="changes:ITEM:CHANGE:TYPE" term="DELETE"/>
          </entry>
        </feed>
        "#);
    }

    /// A property of the messages of some changes.
    fn properties(messages: &[Frame], name: &str) -> Vec<String> {
        let values = messages.iter().map(|message| message.header(name));
        values
            .map(|value| value.unwrap_or("-").to_owned())
            .collect()
    }

    /// The only feed of the messages of one change.
    fn feed(change: Change, form: &AtomRules) -> ObjectFeed {
        let [message] = &messages(&body(vec![change]), 1, form)[..] else {
            panic!("one message");
        };
        ObjectFeed::parse(&message.body).unwrap()
    }

    fn info_fedora() -> AtomRules {
        AtomRules {
            identifiers: IdentifierForm::InfoFedora,
            ..AtomRules::default()
        }
    }

    fn relocated() -> Option<LocationRewrite> {
        Some(LocationRewrite {
            from: "http://fedora:8080/".to_owned(),
            to: "https://repo.example.org/".to_owned(),
        })
    }

    #[test]
    fn a_resource_is_its_own_object_unless_told_otherwise() {
        let body = body(vec![
            change("https://e.org/a/1", ChangeKind::Created, None),
            change("https://e.org/a/2", ChangeKind::Created, None),
            change("https://E.org/a/1", ChangeKind::Updated, None),
        ]);
        let own = messages(&body, 1, &AtomRules::default());
        let shared = messages(&body, 1, &directories());
        assert_eq!(properties(&own, "itemCount"), ["2", "1"]);
        assert_eq!(properties(&shared, "itemCount"), ["3"]);
        assert_eq!(properties(&own, "parentUri"), ["https://e.org/a/"; 2]);
        assert_eq!(properties(&shared, "parentUri"), ["https://e.org/"]);
    }

    #[test]
    fn identifiers_and_locations_are_as_configured_and_content_is_the_version_that_the_list_names()
    {
        let form = AtomRules {
            location: relocated(),
            ..info_fedora()
        };
        let mut updated = change("http://fedora:8080/rest/books/1", ChangeKind::Updated, None);
        for (links, src) in [
            (vec![], "https://repo.example.org/rest/books/1"),
            (
                vec![
                    link(
                        "memento timegate",
                        "http://fedora:8080/rest/books/1?version=7",
                    ),
                    link("memento", "http://fedora:8080/rest/books/1?version=6"),
                ],
                "https://repo.example.org/rest/books/1?version=7",
            ),
        ] {
            updated.links = links;
            let feed = feed(updated.clone(), &form);
            assert_eq!(feed.object, "info:fedora/books/1");
            assert_eq!(feed.parent.as_deref(), Some("info:fedora/books"));
            assert_eq!(feed.items[0].item, "info:fedora/books/1");
            assert_eq!(feed.items[0].content.as_ref().unwrap().src, src);
        }
        // Identifiers that are URIs stay as they are published.
        let form = AtomRules {
            location: relocated(),
            ..AtomRules::default()
        };
        let feed = feed(updated, &form);
        let published = "http://fedora:8080/rest/books/1";
        assert_eq!(
            (&*feed.object, &*feed.items[0].item),
            (published, published)
        );
    }

    #[test]
    fn each_author_of_an_object_has_a_feed_and_changes_of_an_item_keep_their_order() {
        let by = |author: &str, loc: &str, kind| {
            let mut change = change(&format!("https://e.org/a/{loc}"), kind, None);
            change
                .links
                .extend((author != "-").then(|| link("author", author)));
            change
        };
        let (ada, bob) = ("mailto:ada@e.org", "mailto:bob@e.org");
        let body = body(vec![
            by(ada, "1", ChangeKind::Created),
            by(bob, "2", ChangeKind::Created),
            by(ada, "3", ChangeKind::Created),
            by("-", "4", ChangeKind::Created),
            by(ada, "2", ChangeKind::Deleted),
            by(ada, "1", ChangeKind::Updated),
            by(bob, "2", ChangeKind::Created),
        ]);
        let messages = messages(&body, 1, &directories());
        let items = messages.iter().map(|message| {
            let feed = ObjectFeed::parse(&message.body).unwrap();
            assert_eq!(feed.object, "https://e.org/a/");
            assert!(feed.items.iter().all(|item| item.author == feed.author));
            let items = feed.items.iter();
            let items = items.map(|item| item.item.rsplit('/').next().unwrap());
            items.collect::<String>()
        });
        assert_eq!(items.collect::<Vec<_>>(), ["13", "2", "4", "21", "2"]);
        assert_eq!(properties(&messages, "user"), [ada, bob, "-", ada, bob]);
    }

    #[test]
    fn types_of_an_object_are_those_that_are_configured_for_its_uri() {
        let types = [
            ("https://e.org/theses/**", "Thesis"),
            ("https://e.org/*/", "Collection"),
            ("https://e.org/theses/*/", "info:e/Volume"),
        ];
        let types = types.map(|(objects, name)| TypeRule {
            objects: objects.to_owned(),
            name: name.to_owned(),
        });
        let form = AtomRules {
            types: types.to_vec(),
            ..directories()
        };
        let picture = Change {
            mime_type: Some("image/png".into()),
            ..change("HTTPS://e.org/pictures/1", ChangeKind::Created, None)
        };
        let body = body(vec![
            picture,
            change("https://e.org/theses/7/1", ChangeKind::Created, None),
            change("https://e.org/1", ChangeKind::Created, None),
        ]);
        let types = properties(&messages(&body, 1, &form), "objectTypes");
        assert_eq!(types, ["Collection", "Thesis,info:e/Volume", "-"]);
    }

    #[test]
    fn resources_without_an_authority_are_objects_of_their_own() {
        let mut page = change("urn:x:page", ChangeKind::Updated, None);
        page.links.push(link("collection", "urn:x:books"));
        let part = change("urn:x:1", ChangeKind::Deleted, None);
        for (change, object, parent) in [
            (part, "urn:x:1", None),
            (page, "urn:x:page", Some("urn:x:books")),
        ] {
            let feed = feed(change, &info_fedora());
            assert_eq!((&*feed.object, feed.parent.as_deref()), (object, parent));
        }
    }

    #[test]
    fn changes_of_one_identifier_are_one_feed_in_order() {
        let datastream = "http://e.org/objects/demo:1/datastreams/DC";
        let first = format!("{datastream}/content?asOfDateTime=1");
        let last = format!("{datastream}/content?asOfDateTime=2");
        let body = body(vec![
            change(&first, ChangeKind::Created, None),
            change(datastream, ChangeKind::Deleted, None),
            change(&last, ChangeKind::Created, None),
        ]);
        let messages = messages(&body, 1, &info_fedora());
        assert_eq!(properties(&messages, "itemCount"), ["3"]);
        let objects = properties(&messages, "objectUri");
        assert_eq!(objects, ["info:fedora/demo:1/DC"]);
    }

    #[test]
    fn an_object_is_not_its_own_parent_and_a_query_has_no_directories() {
        let in_collection = Change {
            links: vec![link("collection", "https://e.org/reports/")],
            ..change("https://e.org/reports/1", ChangeKind::Updated, None)
        };
        let in_query = change("https://e.org/list?path=/a/", ChangeKind::Updated, None);
        let messages = messages(&body(vec![in_collection, in_query]), 1, &directories());
        let objects = properties(&messages, "objectUri");
        assert_eq!(objects, ["https://e.org/reports/", "https://e.org/"]);
        assert_eq!(properties(&messages, "parentUri")[0], "https://e.org/");
    }

    #[test]
    fn properties_that_brokers_would_refuse_are_left_to_the_feed() {
        let long = format!("https://e.org/{}", "a".repeat(11_000));
        let body = body(vec![change(&long, ChangeKind::Updated, None)]);
        let messages = messages(&body, 1, &AtomRules::default());
        assert_eq!(messages[0].header("objectUri"), None);
        assert_eq!(messages[0].header("JMSXGroupID").unwrap().len(), 64);
        assert_eq!(ObjectFeed::parse(&messages[0].body).unwrap().object, long);
    }

    #[test]
    fn feeds_of_the_same_notification_by_other_settings_are_no_repeats() {
        let body = body(vec![
            change("https://e.org/a/1", ChangeKind::Updated, None),
            change("https://e.org/a/2", ChangeKind::Updated, None),
        ]);
        let ids = |form: &AtomRules| -> HashSet<String> {
            let messages = messages(&body, 1, form);
            let ids = messages.iter().map(|message| message.header("messageId"));
            ids.map(|id| id.unwrap().to_owned()).collect()
        };
        assert!(ids(&AtomRules::default()).is_disjoint(&ids(&directories())));
    }

    #[test]
    fn a_feed_that_would_be_too_long_is_several_in_order() {
        let path = "x".repeat(400);
        let entries = (0..1_000).map(|number| {
            let loc = format!("https://e.org/a/{path}/{number}");
            change(&loc, ChangeKind::Created, None)
        });
        let body = body(entries.collect());
        let messages = messages(&body, 1, &directories());
        assert_eq!(messages.len(), 2);
        let mut items = Vec::new();
        let mut ids = HashSet::new();
        for message in &messages {
            assert!(message.body.len() <= super::LONGEST_FEED);
            assert!(ids.insert(message.header("messageId").unwrap()));
            items.extend(ObjectFeed::parse(&message.body).unwrap().items);
        }
        let numbers = items
            .iter()
            .map(|item| item.item.rsplit('/').next().unwrap());
        assert!(numbers.eq((0..1_000).map(|number| number.to_string())));
    }

    #[test]
    fn another_body_has_no_messages() {
        let notification = BrokerNotification {
            source: "main",
            topic: "https://e.org/changes",
            kind: ChannelKind::Framework,
            seq: 1,
            body: HashedPayload::new(b"<urlset/>", &[]),
        };
        assert_eq!(atom_messages(&notification, &AtomRules::default()), None);
    }

    fn any_change() -> impl Strategy<Value = Change> {
        (
            "https://[ef]\\.org/([ab]/){0,2}[123]?",
            prop::sample::select(ChangeKind::ALL.to_vec()),
            prop::option::of(0..1_000_u32),
            prop::option::of(prop::sample::select(vec!["text/plain", "image/png"])),
        )
            .prop_map(|(loc, kind, second, mime_type)| Change {
                datetime: second.map(|second| {
                    let time = Timestamp::from_second(1_763_800_000 + i64::from(second));
                    Datetime::parse(&time.unwrap().to_string()).unwrap()
                }),
                mime_type: mime_type.map(Into::into),
                ..change(&loc, kind, None)
            })
    }

    /// Returns the object of a URI, computed in another way than the code does.
    fn object_of(loc: &str, kind: ObjectGranularity) -> String {
        match kind {
            ObjectGranularity::Resource => loc.to_owned(),
            ObjectGranularity::Directory => {
                let parts: Vec<&str> = loc.split('/').collect();
                format!("{}/", parts[..parts.len() - 1].join("/"))
            }
        }
    }

    proptest! {
        #[test]
        fn no_change_is_lost_and_each_object_keeps_its_order(
            entries in prop::collection::vec(any_change(), 1..40),
            is_directory: bool,
            seq in 1..1_000_u64,
        ) {
            let form = if is_directory { directories() } else { AtomRules::default() };
            let object = form.object;
            let body = body(entries.clone());
            let made = messages(&body, seq, &form);
            // The model: per object, its changes in order.
            let mut model: BTreeMap<String, Vec<(String, &str)>> = BTreeMap::new();
            let mut order = Vec::new();
            for entry in &entries {
                let object = object_of(&entry.loc, object);
                if !model.contains_key(&object) {
                    order.push(object.clone());
                }
                let term = match entry.kind {
                    ChangeKind::Created => "ADD",
                    ChangeKind::Updated => "UPDATE",
                    ChangeKind::Deleted => "DELETE",
                };
                model.entry(object).or_default().push((entry.loc.to_string(), term));
            }
            let feeds: Vec<ObjectFeed> = made.iter().map(|m| ObjectFeed::parse(&m.body).unwrap()).collect();
            prop_assert_eq!(feeds.iter().map(|feed| feed.object.clone()).collect::<Vec<_>>(), order);
            let mut ids = HashSet::new();
            for (feed, message) in feeds.iter().zip(&made) {
                let items: Vec<_> = feed
                    .items
                    .iter()
                    .map(|item| (item.item.clone(), change_term(item.change.unwrap())))
                    .collect();
                prop_assert_eq!(&items, &model[&feed.object]);
                let count = items.len().to_string();
                prop_assert_eq!(message.header("itemCount"), Some(count.as_str()));
                prop_assert_eq!(&feed.id, message.header("correlation-id").unwrap());
                let id = format!("urn:uuid:{}", message.header("messageId").unwrap());
                prop_assert_eq!(&feed.id, &id);
                prop_assert!(ids.insert(id));
                for item in &feed.items {
                    prop_assert!(ids.insert(item.id.clone()));
                    let is_deletion = item.change == Some(ChangeKind::Deleted);
                    prop_assert_eq!(item.content.is_none(), is_deletion);
                }
            }
            prop_assert_eq!(&messages(&body, seq, &form), &made);
            for message in messages(&body, seq + 1, &form) {
                prop_assert!(ids.insert(message.header("correlation-id").unwrap().to_owned()));
            }
        }
    }

    #[test]
    fn a_directory_ends_at_the_last_slash() {
        for (uri, want) in [
            ("https://e.org/a/b.txt", Some("https://e.org/a/")),
            ("https://e.org/a/b/", Some("https://e.org/a/")),
            ("https://e.org/a/b?c/d", Some("https://e.org/a/")),
            ("https://e.org/b.txt", Some("https://e.org/")),
            ("https://e.org/", None),
            ("https://e.org", None),
            ("https://e.org?a/b", None),
            ("urn:a/b", None),
            ("urn:a/http://e.org/b/c", None),
            ("", None),
        ] {
            assert_eq!(parent_directory(uri), want, "{uri}");
        }
    }

    /// Returns the rows of a table, whose cells are separated by spaces.
    fn rows<const N: usize>(table: &str) -> impl Iterator<Item = [&str; N]> {
        let rows = table.trim().lines().map(str::split_whitespace);
        rows.map(|row| Vec::from_iter(row).try_into().unwrap())
    }

    #[test]
    fn repository_identifiers_have_the_path_of_the_repository() {
        for [uri, want] in rows(
            "
            http://e.org:8080/fedora/objects/demo:1 info:fedora/demo:1
            http://e.org:8080/fedora/objects/demo:1/datastreams/DC/content?asOfDateTime=2026 info:fedora/demo:1/DC
            http://e.org/fcrepo/rest/books/1/page info:fedora/books/1/page
            https://e.org/books/1/ info:fedora/books/1
            http://e.org/rest/museum/objects/7 info:fedora/museum/objects/7
            http://e.org/fedora/objects/a/content info:fedora/a/content
            https://e.org/view?id=1 info:fedora/view?id=1
            https://e.org/ info:fedora/
            https://e.org info:fedora/
            info:fedora/demo:1 info:fedora/demo:1
            urn:uuid:1 urn:uuid:1
            hdl:1/a hdl:1/a
            urn:x?u=http://e.org/objects/a:1 urn:x?u=http://e.org/objects/a:1
            urn:a:http://h urn:a:http://h
            ",
        ) {
            assert_eq!(IdentifierForm::InfoFedora.identifier(uri), want);
            assert_eq!(IdentifierForm::Uri.identifier(uri), uri);
        }
    }

    fn location(from: &str, uri: &str) -> String {
        let end = if from.ends_with('/') { "/" } else { "" };
        let (from, to) = (from.to_owned(), format!("https://repo.example.org{end}"));
        LocationRewrite { from, to }.rewrite(uri)
    }

    #[test]
    fn content_is_relocated_by_whole_segments_of_equal_uris() {
        for [from, uri, want] in rows(
            "
            http://fedora:8080/ http://fedora:8080/a?b /a?b
            http://fedora/rest/ http://fedora/rest/a%3Bb%2B#c /a%3Bb%2B#c
            http://fedora:8080/ HTTP://Fedora:8080/%7ea /~a
            HTTP://Fedora:80 http://fedora/a /a
            http://fedora http://fedora /
            http://fedora/r%65st http://fedora/rest/1 /1
            http://fedora/rest http://fedora/rest?v=1 ?v=1
            http://fedora/get?id= http://fedora/get?id=7 7
            http://fedora/get?id=7 http://fedora/get?id=7&v=1 &v=1
            urn:uuid: URN:uuid:1 1
            ",
        ) {
            let want = format!("https://repo.example.org{want}");
            assert_eq!(location(from, uri), want, "{uri}");
        }
        for [from, uri] in rows(
            "
            http://fedora:8080/ http://fedora/a
            http://fedora http://fedora:8080/a
            http://fedora http://fedora.org/a
            http://fedora/rest http://fedora/restricted/1
            http://fedora/rest http://fedora/rest/../private/1
            http://fedora/rest/ http://fedora/rest
            http://fedora/a http://fedora/a&b
            http://fedora/get?id=7 http://fedora/get?id=77
            urn:a urn:ab
            ",
        ) {
            assert_eq!(location(from, uri), uri);
        }
    }
}
