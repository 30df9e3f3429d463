//! The words and documents of the ResourceSync Framework (core 1.1, Archives 0.9.1): pure, and free of
//! everything that is ours.

pub mod capability;
pub mod document;
pub mod fingerprint;
pub mod parse;
pub mod payload;
pub mod uri;
