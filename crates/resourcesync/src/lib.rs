//! Documents, notifications and terms of the ResourceSync Framework (core 1.1, Archives 0.9.1, Framework Notification 1.0.1,
//! Change Notification 1.0.1). Pure: what is read is handed in.
//!
//! [`listing`] reads documents of every kind with all they have, and [`writer`] writes them, both entry by entry where a list
//! is long. Notifications are read by [`receive`], as a Destination gets them; [`payload`] and [`change_payload`] make them.
//! [`feed`] reads and writes content change messages in Atom.
//!
//! A daemon that announces changes needs other views of the same documents: [`parse`] returns what relations and
//! notifications depend on with a fingerprint of the content, [`change_list`] the keys of the entries of a list, and
//! [`resource_list`] the states of its resources. R1 to R26 and C1 to C29 are rules of rsnotify about what counts as a change.

#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod advertise;
mod canonical;
pub mod capability;
pub mod change;
pub mod change_list;
pub mod change_payload;
pub mod channel_kind;
mod characters;
pub mod datetime;
pub mod document;
mod encoding;
pub mod escape;
pub mod feed;
mod file_spans;
pub mod fingerprint;
pub mod gzip;
pub mod listing;
mod markup;
mod namespaces;
mod outline;
pub mod parse;
pub mod parse_with_keys;
pub mod payload;
mod reader;
pub mod receive;
mod reference;
pub mod resource_list;
mod scan;
mod stop;
mod tag;
pub mod uri;
mod window;
pub mod writer;
