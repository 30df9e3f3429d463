//! Documents, notifications and terms of the ResourceSync Framework (core 1.1, Archives 0.9.1). Pure: what is read is
//! handed in.

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
mod scan;
mod stop;
mod tag;
pub mod uri;
mod window;
