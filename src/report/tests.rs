//! Views for the tests of those that print them.

use jiff::Timestamp;
use serde_json::json;
use websub::publisher::reason::{Refusal, RefusalKind};

use crate::report::status::{ChannelView, HubView};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Returns a hub that refuses a notification for this reason. Every text is `words`.
pub fn hub_view(kind: RefusalKind, words: &str) -> HubView {
    let hub = json!({
        "hub": format!("https://h.example/{words}"), "mode": "content", "state": "needs_person", "due": 1,
        "backlog": {"notifications": 2, "changes": 1_204, "from": NOW, "until": NOW, "since": NOW, "waits": words},
        "in_flight": 1, "since": NOW, "attempts": 3, "sending": false, "next_try": NOW, "last_failure": words,
        "last": {"at": NOW, "seq": 1, "status": 401, "excerpt": words, "refusal": Refusal::new(kind, words, true)},
        "accepted": NOW,
    });
    serde_json::from_value(hub).unwrap()
}

/// Returns a channel with two such hubs, on which changes wait. Every text is `words`.
pub fn channel_view(number: usize, words: &str) -> ChannelView {
    let uri = |path: &str| format!("https://e.org/{path}/{words}");
    let waiting =
        json!({"uri": uri("waiting"), "capability": "resourcelist", "since": NOW, "reason": words});
    let channel = json!({
        "source": words, "set": uri("set"), "topic": format!("javascript:{number}//{words}"), "seq": 1,
        "hubs": vec![hub_view(RefusalKind::NotAllowed, words); 2],
        "pending": vec![&waiting; 10], "more_pending": 5, "held": vec![&waiting; 10], "more_held": 5,
    });
    serde_json::from_value(channel).unwrap()
}
