//! What must hold of documents, notifications and URIs: tried on arbitrary ones by the fuzz targets, and on those in
//! `corpus/` by `crates/resourcesync/tests/corpus`. A check panics where it does not hold.

use std::io::Read;

use jiff::{SignedDuration, Timestamp};
use resourcesync::change_list::{ChangeListError, ListedChanges, read_changes, read_keys};
use resourcesync::change_payload::{ChangePayload, entry_len, merge_latest, part};
use resourcesync::document::{Document, Malformed, NotADocument};
use resourcesync::listing::Listing;
use resourcesync::parse::{self, ReadError};
use resourcesync::payload::Payload;
use resourcesync::receive::{Notification, time_span};
use resourcesync::uri::Uri;

/// R2, R3: how bytes arrive does not matter, what follows the root's end in comments and white space does
/// not either, a document that lacks its last byte is none, and one that is written is read the same. The first byte says
/// how they arrive.
pub fn parse(input: &[u8]) {
    let Some((&chunk, bytes)) = input.split_first() else {
        return;
    };
    let whole = content(bytes);
    let pieces = Pieces {
        rest: bytes,
        chunk: usize::from(chunk).max(1),
    };
    assert_eq!(whole, content(pieces), "the same in pieces of {chunk}");
    if let Ok(Some(listing)) = Listing::parse(bytes) {
        let written = Listing::parse(&listing.render()).expect("what was written is read");
        assert_eq!(written, Some(listing));
    }
    // Where one byte is one character, or a part of one.
    let is_plain = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
    let is_declared = bytes.windows(8).any(|part| part == b"encoding");
    if !matches!(whole, Ok(Ok(_))) || !is_plain || is_declared {
        return;
    }
    let with_comment = [bytes, b"\n<!-- \xc3\xa9 --> <?end?>\n"].concat();
    assert_eq!(whole, content(&with_comment[..]), "a comment says nothing");
    let trimmed = bytes.trim_ascii_end();
    let cut = content(&trimmed[..trimmed.len() - 1]);
    assert!(cut.is_err(), "a document without its end: {cut:?}");
}

/// C2, C3, C16, C23: how bytes arrive does not matter, both passes read the same entries, and what is passed on is read
/// the same again, whole and in parts. The first byte says how the bytes arrive.
pub fn changes(input: &[u8]) {
    let Some((&chunk, bytes)) = input.split_first() else {
        return;
    };
    let listed = keys(bytes);
    let pieces = Pieces {
        rest: bytes,
        chunk: usize::from(chunk).max(1),
    };
    assert_eq!(listed, keys(pieces), "the same in pieces of {chunk}");
    let Some(listed) = listed else {
        return;
    };
    let counted = u32::try_from(listed.entries.len() + listed.skipped).expect("few entries");
    let positions: Vec<u32> = (0..counted).collect();
    let entries = read_changes(bytes, &positions).expect("a list that was read is read");
    let (entry_keys, entries): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
    assert!(
        listed
            .entries
            .iter()
            .map(|entry| entry.place.key)
            .eq(entry_keys)
    );
    let lines = 1 + bytes.iter().filter(|byte| b"\r\n".contains(byte)).count() as u64;
    assert_eq!(listed.skipped > 0, listed.first_skipped.is_some());
    if let Some(skipped) = &listed.first_skipped {
        assert!((1..=lines).contains(&skipped.line), "{skipped:?}");
    }
    assert!(entries.iter().all(|change| entry_len(change) <= 64 << 10));
    if entries.is_empty() {
        return;
    }
    let payload = ChangePayload {
        up: None,
        from: Timestamp::UNIX_EPOCH,
        until: Timestamp::UNIX_EPOCH + SignedDuration::from_micros(counted.into()),
        entries,
    };
    let body = payload.render();
    assert_eq!(ChangePayload::parse(&body).as_ref(), Some(&payload));
    let text = String::from_utf8(body.clone()).expect("UTF-8");
    let as_list = text.replacen("change-notification", "changelist", 1);
    let again = keys(as_list.as_bytes()).expect("a Change List");
    for (one, other) in listed.entries.iter().zip(&again.entries) {
        assert_eq!(one.datetime, other.datetime);
        assert!(one.datetime.is_none() || one.place.key == other.place.key);
    }
    let count = payload.entries.len();
    let half = count.div_ceil(2);
    let parts = [0..half, half..count].map(|range| part(&body, range));
    let merged = merge_latest(parts.iter().flatten().map(Vec::as_slice), count, usize::MAX);
    let merged = ChangePayload::parse(&merged.expect("parts")).expect("a notification");
    assert_eq!((merged.from, merged.until), (payload.from, payload.until));
    assert_eq!(merged.entries.len(), count);
}

fn keys(reader: impl Read) -> Option<ListedChanges> {
    match read_keys(reader) {
        Ok(listed) => Some(listed),
        Err(ChangeListError::NotAChangeList | ChangeListError::Read(ReadError::Malformed(_))) => {
            None
        }
        Err(ChangeListError::Read(ReadError::Io(error))) => {
            panic!("memory is always readable: {error}")
        }
    }
}

/// Bytes as a slow file system hands them out.
struct Pieces<'a> {
    rest: &'a [u8],
    chunk: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(self.chunk);
        self.rest.read(&mut buffer[..most])
    }
}

fn content(reader: impl Read) -> Result<Result<Document, NotADocument>, Malformed> {
    match parse::parse(reader) {
        Ok(content) => Ok(content),
        Err(ReadError::Malformed(malformed)) => Err(malformed),
        Err(ReadError::Io(error)) => panic!("memory is always readable: {error}"),
    }
}

/// Checks that a notification that can be read can be rendered, and is read the same again.
pub fn payload(bytes: &[u8]) {
    if let Ok(Notification::Change(read)) = Notification::parse(bytes) {
        for change in &read.changes {
            let _ = change.datetime.as_deref().and_then(time_span);
        }
    }
    let Ok(read) = Payload::parse(bytes) else {
        return;
    };
    // Times are written with milliseconds, whatever they were read as.
    let once = Payload::parse(&read.render()).expect("what was rendered is read");
    assert_eq!(read.entries.len(), once.entries.len());
    let again = Payload::parse(&once.render()).expect("what was rendered is read");
    assert_eq!(once, again);
}

/// A normalised URI is normal.
pub fn uri(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(uri) = Uri::parse(text) {
        let again = Uri::parse(uri.as_str());
        assert_eq!(again.ok().as_ref(), Some(&uri), "{uri}");
        assert!(uri.is_below(&uri));
    }
    let root = Uri::parse("https://example.org/").expect("a prefix");
    let below = Uri::below(&root, bytes);
    // No file has such a path.
    let is_path = bytes
        .split(|&byte| byte == b'/')
        .all(|name| !matches!(name, b"." | b".."));
    if is_path {
        assert_eq!(Uri::parse(below.as_str()).ok().as_ref(), Some(&below));
    }
}
