//! The fingerprint that tells versions of a document apart (R4), and the canonical form of its content, which is hashed.
//!
//! That is a stream of tokens: a start with its resolved name, attributes in order of their names, a text without the
//! white space around it, an end. Every variable part is preceded by its length, so that two contents never yield the
//! same bytes.

use std::fmt;

use crate::tag::{Namespace, Namespaces, StartTag};

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

/// Bytes hashed at once: blake3 is several times faster with many of its chunks of 1 KiB.
const BATCH: usize = 64 << 10;

const START: u8 = 1;
const ATTRIBUTE: u8 = 2;
const TEXT: u8 = 3;
const END: u8 = 4;

#[derive(Debug)]
pub(crate) struct CanonicalHasher {
    hasher: blake3::Hasher,
    batch: Vec<u8>,
}

impl Default for CanonicalHasher {
    fn default() -> CanonicalHasher {
        CanonicalHasher {
            hasher: blake3::Hasher::new(),
            batch: Vec::with_capacity(BATCH + BATCH / 4),
        }
    }
}

impl CanonicalHasher {
    pub(crate) fn start(&mut self, start: &StartTag<'_>) {
        if self.batch.len() >= BATCH {
            self.hasher.update(&self.batch);
            self.batch.clear();
        }
        self.push_name(START, start.namespaces, start.namespace, start.local);
        for attribute in start.attributes {
            let local = start.local_name(attribute);
            self.push_name(ATTRIBUTE, start.namespaces, attribute.namespace, local);
            // The reader has checked that it is well-formed.
            let value = start.value_of(attribute).unwrap_or_default();
            push_string(&mut self.batch, &value);
        }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.batch.push(TEXT);
        push_string(&mut self.batch, text);
    }

    pub(crate) fn end(&mut self) {
        self.batch.push(END);
    }

    pub(crate) fn fingerprint(mut self) -> Fingerprint {
        self.hasher.update(&self.batch);
        Fingerprint(*self.hasher.finalize().as_bytes())
    }

    fn push_name(&mut self, token: u8, namespaces: &Namespaces, namespace: Namespace, local: &str) {
        let tag = match namespace {
            Namespace::None => 0,
            Namespace::Sitemap => 1,
            Namespace::Rs => 2,
            Namespace::Other(_) => 3,
        };
        self.batch.extend_from_slice(&[token, tag]);
        if let Namespace::Other(_) = namespace {
            push_string(&mut self.batch, namespaces.uri(namespace));
        }
        push_string(&mut self.batch, local);
    }
}

/// Appends a length, in one byte below 255 and else in nine, and the string.
#[inline]
pub(crate) fn push_string(room: &mut Vec<u8>, string: &str) {
    match u8::try_from(string.len()) {
        Ok(length) if length < u8::MAX => room.push(length),
        _ => {
            room.push(u8::MAX);
            room.extend_from_slice(&(string.len() as u64).to_le_bytes());
        }
    }
    room.extend_from_slice(string.as_bytes());
}

/// Writes the beginning of a hash in hexadecimal digits.
pub(crate) fn write_beginning(f: &mut fmt::Formatter<'_>, hash: &[u8]) -> fmt::Result {
    hash[..6]
        .iter()
        .try_for_each(|byte| write!(f, "{byte:02x}"))
}
