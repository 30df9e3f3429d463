//! Which encoding a file is in (XML 1.0 appendix F).

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use quick_xml::encoding::{DetectedEncoding, detect_encoding};

use crate::resourcesync::markup;

/// What the first bytes of a file say about the others.
#[derive(Debug)]
pub(crate) struct Detected {
    pub(crate) encoding: &'static Encoding,
    /// How many bytes the byte order mark takes.
    pub(crate) mark: usize,
    /// The name of the declared encoding, if it is unknown; `encoding` then reads as far as ASCII goes.
    pub(crate) unknown: Option<String>,
}

/// Decides by a byte order mark, the width of `<?`, the declaration, in this order.
pub(crate) fn detect(head: &[u8]) -> Detected {
    match detect_encoding(head) {
        Some(DetectedEncoding::AsciiCompatible) => declared(head),
        Some(detected) => Detected {
            encoding: detected.encoding(),
            mark: detected.bom_len(),
            unknown: None,
        },
        None => utf8(),
    }
}

/// What the declaration at the start of a file in some superset of ASCII says.
fn declared(head: &[u8]) -> Detected {
    let end = head.windows(2).position(|pair| pair == b"?>");
    let declaration = &head[..end.map_or(0, |end| end + 2)];
    let declaration = declaration.strip_prefix(b"<?xml");
    let Some(declared) = declaration.and_then(|declaration| declaration.strip_suffix(b"?>")) else {
        return utf8();
    };
    // What is wrong with it is found when it is read as text.
    let Ok(Some(encoding)) = markup::declaration(declared) else {
        return utf8();
    };
    let label = &declared[encoding];
    match Encoding::for_label_no_replacement(label) {
        // What declares UTF-16 and is readable without is UTF-8: a string that was written to a file.
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
