//! Content change messages, as the consumers of repositories' message brokers read them: an Atom feed with the concurrent
//! changes of one object, and an entry for each of its items that changed.
//!
//! ```
//! use resourcesync::feed::ContentChangeMessage;
//! use resourcesync::payload::ChangeKind;
//!
//! let body = br#"<feed xmlns="http://www.w3.org/2005/Atom">
//!   <id>urn:uuid:11111111-2222-8333-8444-555555555555</id>
//!   <updated>2026-11-22T09:00:00Z</updated>
//!   <link rel="via" href="https://example.org/reports/"/>
//!   <entry>
//!     <link rel="via" href="https://example.org/reports/1.pdf"/>
//!     <content src="https://example.org/reports/1.pdf" type="application/pdf"/>
//!     <category scheme="changes:ITEM:CHANGE:TYPE" term="ADD"/>
//!   </entry>
//! </feed>"#;
//! let feed = ContentChangeMessage::parse(body)?;
//! assert_eq!(feed.object, "https://example.org/reports/");
//! assert_eq!(feed.items[0].change, Some(ChangeKind::Created));
//! # Ok::<(), resourcesync::feed::read::FeedError>(())
//! ```

use crate::datetime::Datetime;
use crate::payload::ChangeKind;
use serde::Serialize;

pub mod read;
mod write;

/// Namespace of Atom (RFC 4287 section 1.2).
pub const ATOM: &str = "http://www.w3.org/2005/Atom";
/// Media type of Atom (RFC 4287 section 7).
pub const ATOM_TYPE: &str = "application/atom+xml";
/// Namespace of the schemes that begin with `changes:`.
pub const CHANGES: &str = "http://www.acuityunlimited.net/fedora/messaging#";
/// Scheme of the version of the server that sent a message.
pub const SERVER_SCHEME: &str = "info:fedora/fedora-system:def/view#version";
/// Scheme of the format of a message.
pub const FORMAT_SCHEME: &str = "http://www.fedora.info/definitions/1/0/types/formatURI";
/// Format of the messages that are written here.
pub const FORMAT: &str =
    "http://www.acuityunlimited.net/fedora/messaging#content-change-message-0.1";
/// Scheme of the types of an object.
pub const TYPE_SCHEME: &str = "changes:OBJECT:TYPE";
/// Scheme of the state of an item before the change.
pub const BEFORE_SCHEME: &str = "changes:CONTENT:ITEM:STATEBEFORE";
/// Scheme of the state of an item after the change.
pub const AFTER_SCHEME: &str = "changes:CONTENT:ITEM:STATEAFTER";
/// Scheme of the kind of the change.
pub const CHANGE_SCHEME: &str = "changes:ITEM:CHANGE:TYPE";
/// State of an item that is in use.
pub const ACTIVE: &str = "ACTIVE";

/// The concurrent changes of one object: an Atom feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContentChangeMessage {
    /// `urn:uuid:` and the message's id.
    pub id: String,
    /// Name and version of the server that sent the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// URI of the message's format.
    #[serde(rename = "formatUri", skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The user that made the changes, or the server's name where no user is known. Empty if a message has none.
    pub author: String,
    /// Description in words.
    pub title: String,
    /// Time of the changes, of the last of them if they have several.
    #[serde(serialize_with = "as_text")]
    pub updated: Datetime,
    /// Identifier of the object: the link with relation `via`.
    #[serde(rename = "objectUri")]
    pub object: String,
    /// Identifier of the object that it is part of: the link with relation `related`.
    #[serde(rename = "parentUri", skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Types of the object.
    #[serde(rename = "objectTypes")]
    pub types: Vec<String>,
    /// Changes in the order in which they happened.
    pub items: Vec<ItemChange>,
    /// Number of entries that were left out when the message was read: they name no item, or an unknown change.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: usize,
}

/// The change of one item of an object: an Atom entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemChange {
    /// Empty if a message has none.
    pub id: String,
    /// The user that made the change, or what [`ContentChangeMessage::author`] has.
    pub author: String,
    /// Description in words.
    pub title: String,
    /// Time of the change.
    #[serde(serialize_with = "as_text")]
    pub updated: Datetime,
    /// Identifier of the item: the link with relation `via`.
    #[serde(rename = "itemUri")]
    pub item: String,
    /// Location of the new content; `None` for a deletion, and for a change of state alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentLocation>,
    /// Description in words, required by Atom.
    pub summary: String,
    /// State of the item before the change, such as [`ACTIVE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_before: Option<String>,
    /// State of the item after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_after: Option<String>,
    /// `None` for a change of state alone.
    #[serde(serialize_with = "as_term", skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeKind>,
}

/// Location of the content of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentLocation {
    /// The URI to get it from.
    pub src: String,
    /// Media type, where it is known.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

/// Returns the term of the category of a change.
pub fn change_term(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Created => "ADD",
        ChangeKind::Deleted => "DELETE",
        ChangeKind::Updated => "UPDATE",
    }
}

fn as_term<S: serde::Serializer>(
    change: &Option<ChangeKind>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    change.map(change_term).serialize(serializer)
}

fn as_text<S: serde::Serializer>(datetime: &Datetime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(datetime)
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}
