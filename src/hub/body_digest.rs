//! The digest of a notification's body, by which both hubs recognise a repeat: `until` differs in each notification, so a
//! topic's last body is never its next one.

use sha2::{Digest, Sha256};

/// The digest of a notification's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyDigest(pub [u8; 32]);

impl BodyDigest {
    pub fn of(body: &[u8]) -> BodyDigest {
        BodyDigest(Sha256::digest(body).into())
    }
}
