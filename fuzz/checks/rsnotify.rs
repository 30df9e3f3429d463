//! What must hold of any input: tried on arbitrary ones by the fuzz targets, and on those in `corpus/` by
//! `tests/corpus`. A check panics where it does not hold.

use messaging::frame::{Decoder, Frame, FrameError};
use messaging::message::{BrokerNotification, HashedPayload};
use messaging::objects::{AtomRules, atom_messages};
use resourcesync::capability::ChannelKind;
use resourcesync::feed::ObjectFeed;
use rsnotify::config::Config;
use rsnotify::config::environment::Overrides;
use rsnotify::config::file::ConfigError;
use url::form_urlencoded;
use websub::hub::request::{self, CallbackPolicy, RequestedAction, SubscriptionRequest};

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
        if frame.damage.is_some() {
            continue;
        }
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

/// A content change message that can be read can be written, and is read the same again; and those of any notification
/// are read.
pub fn message(bytes: &[u8]) {
    if let Ok(feed) = ObjectFeed::parse(bytes) {
        // Entries that were left out are not written.
        let once = ObjectFeed { skipped: 0, ..feed };
        let again = ObjectFeed::parse(&once.render()).expect("what was written is read");
        assert_eq!(once, again);
    }
    let notification = BrokerNotification {
        source: "main",
        topic: "https://example.org/changes",
        kind: ChannelKind::Change,
        seq: 1,
        body: HashedPayload::new(bytes, &[]),
    };
    let messages = atom_messages(&notification, &AtomRules::default());
    for message in messages.into_iter().flatten() {
        let feed = ObjectFeed::parse(&message.body).expect("what was written is read");
        assert_eq!(feed.skipped, 0);
        assert!(!feed.items.is_empty());
    }
}

/// Any text is a configuration, or it says of each mistake where it is.
pub fn config(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.toml");
    std::fs::write(&path, bytes).expect("a file");
    let mut overrides = Overrides::default();
    overrides.source.tree.state.state_dir = Some(directory.path().to_owned());
    match Config::load(Some(&path), &overrides) {
        Ok(config) => assert!(!config.sources.is_empty()),
        Err(ConfigError::Invalid(message)) => {
            // A last line that is empty has a number too.
            let lines = bytes.split(|&byte| byte == b'\n').count();
            if let Some(place) = message.strip_prefix(&format!("{}:", path.display())) {
                let mut numbers = place
                    .split(':')
                    .map(|number| number.parse::<usize>().unwrap_or(0));
                let (line, column) = (numbers.next(), numbers.next());
                assert!(
                    line.is_some_and(|line| (1..=lines).contains(&line)),
                    "{message}"
                );
                assert!(column.is_some_and(|column| column >= 1), "{message}");
            }
            assert!(!message.is_empty());
        }
        Err(ConfigError::Read { .. }) => assert!(std::str::from_utf8(bytes).is_err()),
        Err(error @ ConfigError::Nothing { .. }) => panic!("there is a file: {error}"),
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
    let RequestedAction::Subscribe { lease, secret } = &request.action else {
        return form.finish();
    };
    form.append_pair("hub.lease_seconds", &lease.as_secs().to_string());
    let secret = secret.iter().flat_map(|secret| secret.bytes());
    let secret: String = secret.map(|byte| format!("%{byte:02x}")).collect();
    form.finish() + "&hub.secret=" + &secret
}
