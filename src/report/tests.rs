//! Views for the tests of those that print them.

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::publisher::reason::{Refusal, RefusalKind};

use crate::announce::delivery::attempt::Attempt;
use crate::announce::plan::Mode;
use crate::report::status::{BacklogView, ChannelView, Condition, HubView, WaitingView};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Returns a hub that refuses a notification for this reason. Every text is `words`.
pub fn hub_view(kind: RefusalKind, words: &str) -> HubView {
    HubView {
        id: Default::default(),
        waits: None,
        has_left: false,
        hub: Hub::new(format!("https://h.example/{words}")),
        mode: Mode::Content,
        state: Condition::NeedsOperator,
        due: 1,
        backlog: Some(BacklogView {
            notifications: 2,
            changes: 1_204,
            from: Some(NOW),
            until: Some(NOW),
            since: Some(NOW),
            waits: Some(words.to_owned()),
        }),
        in_flight: Some(1),
        since: Some(NOW),
        attempts: 3,
        sending: false,
        next_try: Some(NOW),
        last_failure: Some(words.to_owned()),
        hub_failure: None,
        last: Some(Attempt {
            at: NOW,
            seq: 1,
            status: Some(401),
            excerpt: words.to_owned(),
            refusal: Some(Refusal::new(kind, words, true)),
        }),
        accepted: Some(NOW),
        fetch_confirmed: None,
    }
}

/// Returns a channel with two such hubs, on which changes wait. Every text is `words`.
pub fn channel_view(number: usize, words: &str) -> ChannelView {
    let uri = |path: &str| Uri::parse(&format!("https://e.org/{path}/{words}")).unwrap();
    let waiting = WaitingView {
        uri: uri("waiting"),
        capability: Capability::ResourceList,
        since: NOW,
        reason: words.to_owned(),
    };
    ChannelView {
        id: Default::default(),
        source: words.to_owned(),
        kind: ChannelKind::Framework,
        set: uri("set"),
        topic: Topic::new(format!("javascript:{number}//{words}")),
        retired: None,
        seq: 1,
        hubs: vec![hub_view(RefusalKind::NotAllowed, words); 2],
        pending: vec![waiting.clone(); 10],
        more_pending: 5,
        held: vec![waiting; 10],
        more_held: 5,
    }
}
