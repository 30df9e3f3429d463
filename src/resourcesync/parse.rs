//! Bytes become a document and its fingerprint in one pass, with bounded memory.

use std::io::Read;

use crate::resourcesync::document::{Content, Malformed, Other};
use crate::resourcesync::pause::Pause;
use crate::resourcesync::reading::Reading;
use crate::resourcesync::window::Window;

/// The first byte of gzip's magic number, and of no text.
const GZIP: u8 = 0x1f;

/// Why a candidate file yields no content.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read on")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Reads a file that may be a capability document (core 1.1 section 6; R2, R3, R4).
///
/// A document is read to its end, since only a complete one counts. What has another root is given up at
/// once, after at most 64 KiB.
pub fn parse(reader: impl Read) -> Result<Content, ReadError> {
    let mut window = Window::new(reader);
    let mut reading = Reading::new();
    window.grow()?;
    if window.is_blank() {
        let line = window.line(usize::MAX);
        let is_empty = window.is_empty();
        return Err(if is_empty {
            Malformed::Empty
        } else {
            Malformed::Truncated { line }
        }
        .into());
    }
    // What begins with anything else than a tag is other text. NULs are what a crash leaves.
    match window.first_byte() {
        Some(b'<' | 0) | None => {}
        Some(GZIP) => return Ok(Content::Other(Other::Gzip)),
        Some(_) => return Ok(Content::Other(Other::ForeignRoot)),
    }
    // What is refused in a document of ours, and does not matter in another one.
    let mut refused = None;
    loop {
        let (taken, pause) = reading.take(window.text());
        window.take(taken);
        match pause {
            Pause::Doctype { length } => {
                let line = window.line(0);
                refused.get_or_insert(Malformed::Doctype { line });
                window.take(length);
            }
            Pause::Refused {
                length,
                at,
                message,
            } => {
                refused.get_or_insert(window.flaw(at, message));
                window.take(length);
            }
            Pause::Other(other) => return Ok(Content::Other(other)),
            Pause::Root => {
                if let Some(refused) = refused.or_else(|| unknown_encoding(&window)) {
                    return Err(refused.into());
                }
                refused = None;
                window.lift_limit();
            }
            Pause::Flaw { at, message } => {
                return Err(window.flaw(at, message).into());
            }
            Pause::End | Pause::Cut if window.grow()? => {}
            Pause::End | Pause::Cut if reading.is_before_root() && window.is_exhausted() => {
                return Ok(Content::Other(Other::ForeignRoot));
            }
            Pause::End if reading.is_after_root() && window.fault().is_none() => {
                return Ok(reading.conclude(window.size()));
            }
            Pause::End | Pause::Cut => {
                let line = window.line(usize::MAX);
                let fault = window.fault();
                return Err(fault.unwrap_or(Malformed::Truncated { line }).into());
            }
        }
    }
}

fn unknown_encoding<R: Read>(window: &Window<R>) -> Option<Malformed> {
    let message = format!("the encoding {} is unknown", window.unknown_encoding()?);
    Some(Malformed::Syntax {
        line: 1,
        column: 1,
        message,
    })
}

#[cfg(test)]
mod tests;
