//! The fingerprint that tells versions of a document apart (R4).

use std::fmt;

use crate::canonical::write_beginning;

/// blake3 over a document's parsed content, so that a touch, a re-indentation or another prefix is no
/// change, and a new `at`, `from`, `until` or `completed` is one. Fingerprints are stored: when they are computed
/// otherwise, every document that is read again has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_beginning(f, &self.0)
    }
}
