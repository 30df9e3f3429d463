//! A notification is one transaction that all receipts confirm; anything else is repeated with the same ids (F2, F3,
//! F4, F7).

use resourcesync::payload::Payload;
use rstest::rstest;
use serde_json::Value;

use crate::brokers::{Story, broker, distinct, view};
use crate::support::daemon::{assert_contains, succeed};
use crate::support::stomp::{FakeBroker, Manner, Place};

#[test]
fn a_notification_is_a_message_with_properties_to_select_by() {
    let fake = FakeBroker::start();
    let more =
        "channels = [\"change\", \"framework\"]\nheaders = { priority = \"7\" }\nvhost = \"site\"";
    let mut story = Story::new(&broker(fake.address, more));
    let daemon = story.start();
    story.change();
    // The rewritten Change List is a changed document too.
    let messages = fake.messages(2);
    let of_kind = |kind: &str| {
        let mut messages = messages.iter();
        let found = messages.find(|message| message.header("kind") == Some(kind));
        found.unwrap().clone()
    };
    let message = of_kind("change");
    assert_eq!(
        distinct(std::slice::from_ref(&message)),
        (story.changes(), 0)
    );
    let destination = ("destination", "/topic/main.changes");
    for (name, value) in [destination, ("source", "main"), ("priority", "7")] {
        assert_eq!(message.header(name), Some(value), "{name}");
    }
    let connect = &fake.connects(1)[0];
    for (name, value) in [
        ("host", "site"),
        ("accept-version", "1.2"),
        ("heart-beat", "10000,10000"),
    ] {
        assert_eq!(connect.header(name), Some(value), "{name}");
    }
    assert!(Payload::parse(&of_kind("framework").body).is_ok());
    // All over one connection, which is open still.
    assert_eq!(fake.connects(1).len(), 1);
    let status = daemon.status();
    assert_eq!(view(&status, "repository").unwrap()["mode"], "broker");
    let (_, metrics) = daemon.get_admin("/metrics");
    assert_contains(&metrics, "hub=\"repository\"");
    let (_, page) = daemon.get_admin("/");
    assert_contains(&page, "repository");
    assert!(daemon.stop().success());
}

#[rstest]
#[case(Place::Begun, 0)]
#[case(Place::Sent, 0)]
#[case(Place::Commit, 0)]
#[case(Place::Committed, 1)]
#[case(Place::Confirmed, 1)]
fn a_broker_that_dies_in_a_transaction_gets_it_again_with_the_same_id(
    #[case] place: Place,
    #[case] repeats: usize,
) {
    let (fake, mut story) = Story::with_broker("");
    let daemon = story.start();
    fake.behave(Manner::DieAt(place));
    story.change();
    daemon.await_log("did not accept");
    story.change();
    let messages = fake.messages(2 + repeats);
    assert_eq!(distinct(&messages), (story.changes(), repeats));
    if repeats > 0 {
        assert_eq!(messages[0].body, messages[1].body);
        let without = |name: &str| !["receipt", "transaction"].contains(&name);
        let headers = |at: usize| {
            let headers = messages[at].headers.iter();
            headers
                .filter(|(name, _)| without(name))
                .collect::<Vec<_>>()
        };
        assert_eq!(headers(0), headers(1));
    }
    assert!(daemon.stop().success());
}

/// Artemis refuses what it knows by `_AMQ_DUPL_ID`, and nothing else of the transaction was missing.
#[rstest]
#[case("")]
#[case("payload = \"atom\"")]
fn a_repeat_that_the_broker_refuses_as_a_duplicate_counts_as_taken(#[case] more: &str) {
    let (fake, mut story) = Story::with_broker(more);
    let daemon = story.start();
    fake.refuse_repeats();
    fake.behave(Manner::DieAt(Place::Committed));
    story.change();
    daemon.await_log("did not accept");
    daemon.await_log("delivered");
    assert_eq!(fake.refused_repeats(), 1);
    story.change();
    let messages = fake.messages(2);
    assert_eq!(messages.len(), 2);
    let seqs = messages.iter().map(|message| message.header("seq"));
    assert_eq!(seqs.collect::<Vec<_>>(), [Some("1"), Some("2")]);
    assert!(daemon.stop().success());
}

#[test]
fn a_broker_that_sends_no_receipt_in_time_is_asked_again() {
    let (fake, mut story) = Story::with_broker("timeout = \"500ms\"");
    let daemon = story.start();
    fake.behave(Manner::SendNoReceipts);
    story.change();
    let entry = daemon.await_log("did not accept");
    assert_eq!(entry["kind"], "no_answer");
    assert_contains(entry["reason"].as_str().unwrap(), "no receipt in time");
    fake.behave(Manner::Take);
    daemon.await_log("delivered");
    let (changes, repeats) = distinct(&fake.messages(2));
    assert_eq!(changes, story.changes());
    assert!(repeats > 0);
}

#[rstest]
#[case(
    Manner::RefuseLogin("User name [a] or password is invalid."),
    "not_allowed"
)]
#[case(
    Manner::RefuseMessage("User a is not authorized to write to: topic://x"),
    "destination_refused"
)]
fn a_failure_that_needs_an_operator_is_reported_and_continues_by_a_retry(
    #[case] manner: Manner,
    #[case] kind: &str,
) {
    let fake = FakeBroker::start();
    fake.behave(manner);
    let mut story = Story::new(&broker(fake.address, ""));
    let daemon = story.start();
    story.change();
    let entry = daemon.await_log("did not accept");
    assert_eq!(entry["kind"], kind);
    let is_reported = |status: &Value| {
        view(status, "repository").is_some_and(|view| view["state"] == "needs_person")
    };
    let status = daemon.await_status(is_reported);
    let last = &view(&status, "repository").unwrap()["last"];
    assert_eq!(last["refusal"]["kind"], kind);
    fake.behave(Manner::Take);
    let mut retry = story.setup.command("outbox");
    succeed(retry.args(["retry"]));
    assert_eq!(distinct(&fake.messages(1)), (story.changes(), 0));
}

#[test]
fn a_broker_whose_password_is_corrected_is_told_at_once_after_a_reload() {
    let fake = FakeBroker::start();
    let other = FakeBroker::start();
    fake.behave(Manner::RefuseLogin("User name [a] or password is invalid."));
    let mut story = Story::new(&broker(fake.address, ""));
    let daemon = story.start();
    story.change();
    daemon.await_log("did not accept");
    let [before, after] = [&fake, &other].map(|broker| broker.address.to_string());
    story.setup.replace(&before, &after);
    story.setup.file();
    daemon.signal(rustix::process::Signal::HUP);
    let reloaded = daemon.await_log("reloaded the configuration");
    let message = reloaded["message"].as_str().unwrap();
    assert_contains(message, "broker repository changed");
    assert_eq!(distinct(&other.messages(1)), (story.changes(), 0));
}
