//! The words and documents of the ResourceSync Framework (core 1.1, Archives 0.9.1): pure, and free of
//! everything that is ours.

pub mod advertise;
mod canonical;
pub mod capability;
mod characters;
pub mod document;
mod encoding;
pub mod escape;
pub mod fingerprint;
pub mod gzip;
mod markup;
mod namespaces;
mod outline;
pub mod parse;
mod pause;
pub mod payload;
mod reader;
pub mod receive;
mod reference;
mod scan;
mod tag;
pub mod uri;
mod window;
