//! The protocol, line by line.

use jiff::Timestamp;
use serde_json::json;
use websub::publisher::reason::RefusalKind;

use super::*;
use crate::report::tests::{channel_view, hub_view};

#[test]
fn every_reply_is_read_as_it_is_written() {
    let accepted = ControlReply::Accepted {
        source: "main".to_owned(),
        documents: 24,
        resources: 0,
    };
    let error = ControlReply::Error("no".to_owned());
    for (reply, text) in [
        (accepted, r#""accepted":{"source":"main","documents":24}"#),
        (error, r#""error":"no""#),
    ] {
        let line = to_line(&reply).unwrap();
        let want = format!("{{\"version\":1,{text}}}\n");
        assert_eq!(String::from_utf8_lossy(&line), want);
        assert_eq!(from_line::<ControlReply>(&line).unwrap(), reply);
    }
}

#[test]
fn every_request_is_read_as_it_is_written() {
    const NAME: &str = r#"{"channel":"https://e.org/t","hub":"https://h.example/"}"#;
    const ACCOUNT: &str =
        r#"AccountName { channel: "https://e.org/t", kind: None, hub: "https://h.example/" }"#;
    for (text, want) in [
        (r#""status""#, "Status"),
        (
            r#""accept","source":"main""#,
            r#"Accept { source: "main" }"#,
        ),
        (
            r#""missing","source":"main""#,
            r#"Missing { source: "main" }"#,
        ),
        (r#""outbox""#, "Outbox"),
        (
            r#""show","account":NAME,"payload":true"#,
            "Show { account: ACCOUNT, payload: true }",
        ),
        (r#""retry","only":null"#, "Retry { only: None }"),
        (r#""retry","only":NAME"#, "Retry { only: Some(ACCOUNT) }"),
        (r#""drop","account":NAME"#, "Drop { account: ACCOUNT }"),
        (r#""subscriptions","action":"list""#, "Subscriptions(List)"),
        (
            r#""subscriptions","action":"remove","callback":"5b9efc35","topic":null"#,
            r#"Subscriptions(Remove(SubscriptionName { callback: "5b9efc35", topic: None }))"#,
        ),
    ] {
        let text = text.replace("NAME", NAME);
        let line = format!("{{\"version\":1,\"command\":{text}}}\n");
        let request: ControlRequest = from_line(line.as_bytes()).unwrap();
        let want = want.replace("ACCOUNT", ACCOUNT);
        assert_eq!(format!("{request:?}"), want);
        assert_eq!(to_line(&request).unwrap(), line.as_bytes());
    }
}

#[test]
fn a_thousand_channels_with_two_loud_hubs_fit_into_an_answer() {
    let words = "ü".repeat(500);
    let names = "n".repeat(200);
    let mut channel = channel_view(usize::MAX, &names);
    for hub in &mut channel.hubs {
        let loud = hub_view(RefusalKind::Denied, &words);
        (hub.backlog, hub.last_failure, hub.last) = (loud.backlog, loud.last_failure, loud.last);
    }
    let answer = ControlReply::Outbox(vec![channel; 1_000]);
    let line = to_line(&answer).unwrap();
    let length = line.len() as u64;
    assert!(length * 4 < MAX_REPLY_BYTES, "{length}");
    assert_eq!(from_line::<ControlReply>(&line).unwrap(), answer);
}

#[test]
fn what_is_not_understood_is_refused() {
    for line in [
        "",
        "accept main",
        "[]",
        "\u{0}",
        "{}",
        "{\"command\":\"accept\",\"source\":\"main\"}",
        "{\"version\":2,\"command\":\"accept\",\"source\":\"main\"}",
        "{\"version\":\"1\",\"command\":\"accept\",\"source\":\"main\"}",
        "{\"version\":1,\"command\":\"forget\",\"source\":\"main\"}",
        "{\"version\":1,\"command\":\"accept\"}",
        "{\"version\":1,\"command\":\"accept\",\"source\":1}",
        "{\"version\":1,\"command\":\"accept\",\"source\":\"main\",\"force\":true}",
        "{\"version\":1,\"command\":\"accept\",\"source\":\"main\"} {}",
        "{\"version\":1,\"command\":\"drop\",\"account\":{\"channel\":\"c\"}}",
        "{\"version\":1,\"command\":\"retry\",\"only\":\"c\"}",
        "{\"version\":1,\"command\":\"subscriptions\"}",
        "{\"version\":1,\"command\":\"subscriptions\",\"action\":\"forget\"}",
        "{\"version\":1,\"command\":\"subscriptions\",\"action\":\"remove\"}",
        "{\"version\":1,\"command\":\"subscriptions\",\"action\":\"remove\",\"callback\":\"c\",\"all\":true}",
    ] {
        let read: Result<ControlRequest, String> = from_line(line.as_bytes());
        assert!(read.is_err(), "{line}");
    }
}

/// A change is reported only once it is saved.
#[test]
fn replies_to_changes_are_known() {
    let subscription = json!({
        "topic": "https://e.org/t", "callback": "https://e.org/…(c)", "digest": "c", "expires": Timestamp::UNIX_EPOCH,
        "signed": false, "owed": 0, "next": null, "attempts": 0, "next_try": null, "last": null,
    });
    for (reply, is_change) in [
        (
            json!({"accepted": {"source": "main", "documents": 1}}),
            true,
        ),
        (json!({"retried": {"notifications": 1}}), true),
        (json!({"dropped": {"changes": 1}}), true),
        (json!({"removed": subscription}), true),
        (json!({"subscription": subscription}), false),
        (json!({"outbox": []}), false),
        (json!({"reloaded": {"changes": "window changed"}}), false),
        (json!({"error": "no"}), false),
    ] {
        let read: ControlReply = serde_json::from_value(reply.clone()).unwrap();
        assert_eq!(read.is_change(), is_change, "{reply}");
    }
}
