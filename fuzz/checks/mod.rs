//! What must hold of any input: tried on arbitrary ones by the fuzz targets, and on those in `corpus/` by
//! `tests/corpus`. A check panics where it does not hold.

use std::io::Read;

use jiff::{SignedDuration, Timestamp};
use rsnotify::broker::frame::{Decoder, Frame, FrameError};
use rsnotify::config::Config;
use rsnotify::config::error::{ConfigError, Location};
use rsnotify::config::overrides::Overrides;
use rsnotify::contentchange::feed::Feed;
use rsnotify::contentchange::message::{BrokerNotification, HashedPayload};
use rsnotify::contentchange::objects::{AtomForm, atom_messages};
use rsnotify::hub::callback::CallbackPolicy;
use rsnotify::hub::request::{self, Action, SubscriptionRequest};
use rsnotify::resourcesync::change_list::{
    ChangeListError, ListedChanges, read_changes, read_keys,
};
use rsnotify::resourcesync::change_payload::{ChangePayload, entry_len, merge, part};
use rsnotify::resourcesync::channel_kind::ChannelKind;
use rsnotify::resourcesync::document::{Content, Malformed};
use rsnotify::resourcesync::parse::{self, ReadError};
use rsnotify::resourcesync::payload::Payload;
use rsnotify::resourcesync::receive::{Notification, time_span};
use rsnotify::resourcesync::uri::Uri;
use url::form_urlencoded;

/// R2, R3: how bytes arrive does not matter, what follows the root's end in comments and white space does
/// not either, and a document that lacks its last byte is none. The first byte says how they arrive.
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
    // Where one byte is one character, or a part of one.
    let is_plain = std::str::from_utf8(bytes).is_ok() && !bytes.contains(&0);
    let is_declared = bytes.windows(8).any(|part| part == b"encoding");
    if !matches!(whole, Ok(Content::Document(_))) || !is_plain || is_declared {
        return;
    }
    let with_comment = [bytes, b"\n<!-- \xc3\xa9 --> <?end?>\n"].concat();
    assert_eq!(whole, content(&with_comment[..]), "a comment says nothing");
    let trimmed = bytes.trim_ascii_end();
    let cut = content(&trimmed[..trimmed.len() - 1]);
    assert!(cut.is_err(), "a document without its end: {cut:?}");
}

/// F7: how bytes arrive does not matter, nothing is read beyond its bounds, and a frame that was read is read the same
/// again from what it is written as. The first byte says how the bytes arrive.
pub fn stomp(input: &[u8]) {
    let Some((&chunk, bytes)) = input.split_first() else {
        return;
    };
    let read = |chunk: usize| -> (Vec<Frame>, Option<FrameError>) {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for piece in bytes.chunks(chunk.max(1)) {
            decoder.push(piece);
            loop {
                match decoder.frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    };
    let whole = read(bytes.len());
    assert_eq!(
        whole,
        read(usize::from(chunk)),
        "the same in pieces of {chunk}"
    );
    for mut frame in whole.0 {
        frame.headers.retain(|(name, _)| name != "content-length");
        let mut decoder = Decoder::default();
        decoder.push(&frame.encode());
        let again = decoder.frame().map(|again| {
            again.map(|mut again| {
                again.headers.retain(|(name, _)| name != "content-length");
                again
            })
        });
        // A NUL is no part of a header that can be written, and CONNECTED has no escapes for the rest.
        let is_plain = |text: &str| !text.contains(['\0', '\r', '\n']);
        let is_written = frame
            .headers
            .iter()
            .all(|(name, value)| is_plain(name) && is_plain(value) && !name.is_empty());
        if is_written && frame.command != "CONNECTED" && frame.command != "CONNECT" {
            assert_eq!(again, Ok(Some(frame)));
        }
    }
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
    assert!(listed.entries.iter().map(|entry| entry.key).eq(entry_keys));
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
        assert!(one.datetime.is_none() || one.key == other.key);
    }
    let count = payload.entries.len();
    let half = count.div_ceil(2);
    let parts = [0..half, half..count].map(|range| part(&body, range));
    let merged = merge(parts.iter().flatten().map(Vec::as_slice), count, usize::MAX);
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

fn content(reader: impl Read) -> Result<Content, Malformed> {
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

/// A content change message that can be read can be written, and is read the same again; and those of any notification
/// are read.
pub fn message(bytes: &[u8]) {
    if let Ok(feed) = Feed::parse(bytes) {
        // Entries that were left out are not written.
        let once = Feed { skipped: 0, ..feed };
        let again = Feed::parse(&once.render()).expect("what was written is read");
        assert_eq!(once, again);
    }
    let notification = BrokerNotification {
        source: "main",
        topic: "https://example.org/changes",
        kind: ChannelKind::Change,
        seq: 1,
        body: HashedPayload::new(bytes),
    };
    let messages = atom_messages(&notification, &AtomForm::default());
    for message in messages.into_iter().flatten() {
        let feed = Feed::parse(&message.body).expect("what was written is read");
        assert_eq!(feed.skipped, 0);
        assert!(!feed.items.is_empty());
    }
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

/// Any text is a configuration, or it says of each mistake where it is.
pub fn config(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.toml");
    std::fs::write(&path, bytes).expect("a file");
    let overrides = Overrides {
        state_dir: Some(directory.path().to_owned()),
        ..Overrides::default()
    };
    match Config::load(Some(&path), &overrides) {
        Ok(config) => assert!(!config.sources.is_empty()),
        Err(ConfigError::Invalid { problems }) => {
            assert!(!problems.is_empty());
            // A last line that is empty has a number too.
            let lines = bytes.split(|&byte| byte == b'\n').count();
            for problem in problems {
                assert!(!problem.message.is_empty());
                match problem.location {
                    Location::File { line, column, .. } => {
                        assert!((1..=lines).contains(&line) && column >= 1, "{problem}");
                    }
                    Location::Flag(_) => {}
                    Location::Nowhere => assert!(!problem.key.is_empty(), "{problem}"),
                }
            }
        }
        Err(ConfigError::Read { .. }) => assert!(std::str::from_utf8(bytes).is_err()),
        // It is one of `rsnotify hub`.
        Err(ConfigError::OfHub { .. } | ConfigError::OfBoth { .. }) => {}
        Err(error @ (ConfigError::Nothing { .. } | ConfigError::OfRun { .. })) => {
            panic!("there is a file, and it is of run: {error}")
        }
    }
}

/// A subscription that is accepted says the same when it is written anew.
pub fn subscription(form: &[u8]) {
    let policy = CallbackPolicy::on_this_machine();
    match request::parse(form, &policy) {
        Ok(request) => {
            let again = request::parse(written(&request).as_bytes(), &policy);
            assert_eq!(again, Ok(request));
        }
        Err(refusal) => assert!((400..500).contains(&refusal.status())),
    }
}

fn written(request: &SubscriptionRequest) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("hub.mode", request.action.mode());
    form.append_pair("hub.topic", &request.topic);
    form.append_pair("hub.callback", request.callback.as_str());
    if let Action::Subscribe { lease, secret } = &request.action {
        form.append_pair("hub.lease_seconds", &lease.as_secs().to_string());
        if let Some(secret) = secret {
            form.append_pair("hub.secret", secret.reveal());
        }
    }
    form.finish()
}
