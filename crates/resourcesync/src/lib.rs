//! Documents, notifications and terms of the ResourceSync Framework (core 1.1, Archives 0.9.1, Framework Notification 1.0.1,
//! Change Notification 1.0.1). Pure: what is read is handed in.
//!
//! [`listing`] reads documents of every kind with all they have, and [`writer`] writes them, both entry by entry where a list
//! is long. Notifications are read by [`receive`], as a Destination gets them; [`payload`] and [`change_payload`] make them.
//! [`feed`] reads and writes content change messages in Atom.
//!
//! ```
//! use resourcesync::capability::Capability;
//! use resourcesync::document::Form;
//! use resourcesync::listing::{ListedEntry, Listing};
//! use resourcesync::payload::ChangeKind;
//! use resourcesync::receive::{Notification, ReceivedChange};
//!
//! // A Change List, as a Source writes it.
//! let mut list = Listing::new(Form::List);
//! list.capability = Some(Capability::ChangeList.to_string());
//! list.from = Some("2026-11-20T00:00:00Z".to_owned());
//! list.entries.push(ListedEntry {
//!     loc: Some("https://example.org/1.pdf".to_owned()),
//!     change: Some(ChangeKind::Updated.to_string()),
//!     datetime: Some("2026-11-20T09:00:00Z".to_owned()),
//!     ..ListedEntry::default()
//! });
//! let bytes = list.render();
//!
//! // The same, as a Destination reads it: entry by entry, so that its length does not matter.
//! let mut changes = Vec::new();
//! Listing::each_entry(&bytes[..], |_, entry| changes.extend(ReceivedChange::of(entry)))?;
//! assert_eq!(changes[0].change, ChangeKind::Updated);
//!
//! // The notification about it.
//! list.capability = Some("change-notification".to_owned());
//! list.until = Some("2026-11-20T09:00:01Z".to_owned());
//! let Notification::Change(notification) = Notification::parse(&list.render())? else {
//!     panic!("a framework notification is about documents");
//! };
//! assert_eq!(notification.changes, changes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A daemon that announces changes needs other views of the same documents: [`parse`] returns what relations and
//! notifications depend on with a fingerprint of the content, [`change_list`] the keys of the entries of a list, and
//! [`resource_list`] the states of its resources.
//! R1 to R26 and C1 to C29 are rules of rsnotify about what counts as a change.

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod advertise;
pub mod capability;
pub mod change;
pub mod change_list;
pub mod change_payload;
pub mod datetime;
pub mod document;
pub mod escape;
pub mod feed;
pub mod fingerprint;
pub mod gzip;
pub mod listing;
mod markup;
pub mod parse;
pub mod payload;
mod reader;
pub mod receive;
pub mod resource_list;
mod tag;
pub mod uri;
mod window;
pub mod writer;
