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
    let mut unknown = None;
    let (encoding, mark) = match head {
        [0xef, 0xbb, 0xbf, ..] => (UTF_8, 3),
        [0xfe, 0xff, ..] => (UTF_16BE, 2),
        [0xff, 0xfe, ..] => (UTF_16LE, 2),
        [0, b'<', 0, b'?', ..] => (UTF_16BE, 0),
        [b'<', 0, b'?', 0, ..] => (UTF_16LE, 0),
        _ => {
            let label = declared(head).unwrap_or(b"utf-8");
            let encoding = Encoding::for_label_no_replacement(label).unwrap_or_else(|| {
                unknown = Some(String::from_utf8_lossy(label).into_owned());
                WINDOWS_1252
            });
            // A document that declares UTF-16 and is readable without is UTF-8: a string that was written to a file.
            (encoding.output_encoding(), 0)
        }
    };
    Detected {
        encoding,
        mark,
        unknown,
    }
}

/// Returns the name of an encoding in a declaration at the start of a file. Errors in that are found when it is read as
/// text.
fn declared(head: &[u8]) -> Option<&[u8]> {
    let rest = head.strip_prefix(b"<?xml")?;
    let end = rest.windows(2).position(|pair| pair == b"?>")?;
    let encoding = markup::declaration(&rest[..end]).ok()??;
    Some(&rest[encoding])
}
