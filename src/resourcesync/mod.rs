//! The words and documents of the ResourceSync Framework (core 1.1, Archives 0.9.1): pure, and free of
//! everything that is ours.

mod canonical;
pub mod capability;
pub mod document;
pub mod fingerprint;
mod namespaces;
mod outline;
pub mod parse;
pub mod payload;
mod reading;
mod receive;
mod tag;
pub mod uri;
mod window;
