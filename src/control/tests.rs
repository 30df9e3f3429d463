//! The protocol, line by line.

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::publisher::reason::{Refusal, RefusalKind};

use super::*;
use crate::announce::delivery::attempt::Attempt;
use crate::announce::plan::Mode;
use crate::report::status::{BacklogView, Condition, HubView, WaitingView};

fn accept() -> ControlRequest {
    ControlRequest::Accept {
        source: "main".to_owned(),
    }
}

#[test]
fn the_protocol_reads_as_it_is_documented() {
    let accepted = ControlReply::Accepted {
        resources: 0,
        source: "main".to_owned(),
        documents: 24,
    };
    let error = ControlReply::Error("no".to_owned());
    let line = |line: io::Result<Vec<u8>>| String::from_utf8(line.unwrap()).unwrap();
    assert_eq!(
        line(to_line(&accept())),
        "{\"version\":1,\"command\":\"accept\",\"source\":\"main\"}\n"
    );
    assert_eq!(
        line(to_line(&accepted)),
        "{\"version\":1,\"accepted\":{\"source\":\"main\",\"documents\":24}}\n"
    );
    assert_eq!(line(to_line(&error)), "{\"version\":1,\"error\":\"no\"}\n");
    for answer in [accepted, error] {
        let read: ControlReply = from_line(&to_line(&answer).unwrap()).unwrap();
        assert_eq!(read, answer);
    }
    let read: ControlRequest = from_line(&to_line(&accept()).unwrap()).unwrap();
    assert_eq!(read, accept());
}

#[test]
fn every_request_is_read_as_it_is_written() {
    let account = AccountName {
        channel: "https://e.org/t".to_owned(),
        kind: None,
        hub: "https://h.example/".to_owned(),
    };
    let name = "{\"channel\":\"https://e.org/t\",\"hub\":\"https://h.example/\"}";
    for (request, text) in [
        (ControlRequest::Status, "\"status\"".to_owned()),
        (
            ControlRequest::Missing {
                source: "main".to_owned(),
            },
            "\"missing\",\"source\":\"main\"".to_owned(),
        ),
        (ControlRequest::Outbox, "\"outbox\"".to_owned()),
        (
            ControlRequest::Show {
                account: account.clone(),
                payload: true,
            },
            format!("\"show\",\"account\":{name},\"payload\":true"),
        ),
        (
            ControlRequest::Retry { only: None },
            "\"retry\",\"only\":null".to_owned(),
        ),
        (
            ControlRequest::Retry {
                only: Some(account.clone()),
            },
            format!("\"retry\",\"only\":{name}"),
        ),
        (
            ControlRequest::Drop { account },
            format!("\"drop\",\"account\":{name}"),
        ),
        (
            ControlRequest::Subscriptions(SubscriptionsAction::List),
            "\"subscriptions\",\"action\":\"list\"".to_owned(),
        ),
        (
            ControlRequest::Subscriptions(SubscriptionsAction::Remove(SubscriptionName {
                callback: "5b9efc35".to_owned(),
                topic: None,
            })),
            "\"subscriptions\",\"action\":\"remove\",\"callback\":\"5b9efc35\",\"topic\":null"
                .to_owned(),
        ),
    ] {
        let line = to_line(&request).unwrap();
        let want = format!("{{\"version\":1,\"command\":{text}}}\n");
        assert_eq!(String::from_utf8_lossy(&line), want);
        assert_eq!(from_line::<ControlRequest>(&line).unwrap(), request);
    }
}

#[test]
fn a_thousand_channels_with_two_loud_hubs_fit_into_an_answer() {
    let words = "ü".repeat(500);
    let hub = |number: usize| HubView {
        id: Default::default(),
        waits: None,
        has_left: false,
        hub: Hub::new(format!("https://hub.example/{number}/{}", "h".repeat(200))),
        mode: Mode::ContentQuery,
        state: Condition::NeedsOperator,
        due: usize::MAX,
        backlog: Some(BacklogView {
            notifications: usize::MAX,
            changes: usize::MAX,
            from: Some(Timestamp::MAX),
            until: Some(Timestamp::MAX),
            since: Some(Timestamp::MAX),
            waits: Some(words.clone()),
        }),
        in_flight: Some(u64::MAX),
        since: Some(Timestamp::MAX),
        attempts: u32::MAX,
        sending: true,
        next_try: Some(Timestamp::MAX),
        last_failure: Some(words.clone()),
        hub_failure: None,
        last: Some(Attempt {
            at: Timestamp::MAX,
            seq: u64::MAX,
            status: Some(u16::MAX),
            excerpt: words.clone(),
            refusal: Some(Refusal::new(RefusalKind::Denied, &words, true)),
        }),
        accepted: Some(Timestamp::MAX),
        fetch_confirmed: Some(false),
    };
    let waiting: Vec<WaitingView> = (0..10)
        .map(|number| WaitingView {
            uri: Uri::parse(&format!("https://e.org/{}/{number}", "d".repeat(200))).unwrap(),
            capability: Capability::ResourceList,
            since: Timestamp::MAX,
            reason: "r".repeat(200),
        })
        .collect();
    let channels = (0..1_000).map(|number| ChannelView {
        id: Default::default(),
        source: "main".to_owned(),
        kind: ChannelKind::Change,
        set: Uri::parse(&format!("https://e.org/{}/{number}", "s".repeat(200))).unwrap(),
        topic: Topic::new(format!("https://e.org/{}/{number}", "t".repeat(200))),
        retired: Some(Timestamp::MAX),
        seq: u64::MAX,
        hubs: vec![hub(1), hub(2)],
        pending: waiting.clone(),
        more_pending: usize::MAX,
        held: waiting.clone(),
        more_held: usize::MAX,
    });
    let answer = ControlReply::Outbox(channels.collect());
    let line = to_line(&answer).unwrap();
    assert!(
        line.len() as u64 * 4 < client::MAX_REPLY_BYTES,
        "{}",
        line.len()
    );
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
