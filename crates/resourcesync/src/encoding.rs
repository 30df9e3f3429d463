//! The encoding of a file (XML 1.0 appendix F).

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use crate::markup;

/// The encoding that the first bytes of a file name.
#[derive(Debug)]
pub(crate) struct Detected {
    pub(crate) encoding: &'static Encoding,
    /// Length of the byte order mark.
    pub(crate) mark: usize,
    /// Name of the declared encoding, if it is unknown; `encoding` then decodes at least ASCII.
    pub(crate) unknown: Option<String>,
}

/// Detects the encoding by a byte order mark, the width of `<?`, the declaration, in this order.
pub(crate) fn detect(head: &[u8]) -> Detected {
    let (encoding, mark) = match head {
        [0xef, 0xbb, 0xbf, ..] => (UTF_8, 3),
        [0xfe, 0xff, ..] => (UTF_16BE, 2),
        [0xff, 0xfe, ..] => (UTF_16LE, 2),
        [0, b'<', 0, b'?', ..] => (UTF_16BE, 0),
        [b'<', 0, b'?', 0, ..] => (UTF_16LE, 0),
        _ => return declared(head),
    };
    Detected {
        encoding,
        mark,
        unknown: None,
    }
}

/// Returns the encoding that a declaration at the start of a file names, or UTF-8.
fn declared(head: &[u8]) -> Detected {
    let Some(rest) = head.strip_prefix(b"<?xml") else {
        return utf8();
    };
    let Some(end) = rest.windows(2).position(|pair| pair == b"?>") else {
        return utf8();
    };
    let declared = &rest[..end];
    // Errors in it are found when it is read as text.
    let Ok(Some(encoding)) = markup::declaration(declared) else {
        return utf8();
    };
    let label = &declared[encoding];
    match Encoding::for_label_no_replacement(label) {
        // A document that declares UTF-16 and is readable without is UTF-8: a string that was written to a file.
        Some(encoding) if encoding.output_encoding() != encoding => utf8(),
        Some(encoding) => Detected { encoding, ..utf8() },
        None => Detected {
            encoding: WINDOWS_1252,
            unknown: Some(String::from_utf8_lossy(label).into_owned()),
            ..utf8()
        },
    }
}

fn utf8() -> Detected {
    Detected {
        encoding: UTF_8,
        mark: 0,
        unknown: None,
    }
}
