//! Views of a few subscriptions, and of very many.

use super::*;
use crate::hub::delivery::DeliveryOutcome;
use crate::hub::published_topics::BodyDigest;
use crate::hub::{DeliveryProgress, RelaySize, SavedHub, SavedTopicRelays, Subscription};
use crate::secret::Secret;

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + seconds, 0).unwrap()
}

fn topic(name: &str) -> Topic {
    Topic::new(format!("https://e.org/{name}"))
}

fn subscription(on: &str, callback: &str, lease: i64) -> Subscription {
    Subscription {
        topic: topic(on),
        callback: Callback::new(callback),
        secret: (on == "b").then(|| Secret::new("s")),
        expires: at(lease),
        requester: None,
    }
}

fn progress(heard: u64, attempts: u32) -> DeliveryProgress {
    DeliveryProgress {
        heard: RelayId(heard),
        attempts,
        next_try: (attempts > 0).then(|| at(9)),
    }
}

fn pending(on: &str, ids: &[u64]) -> SavedTopicRelays {
    let relays = ids.iter().map(|id| RelaySize {
        id: RelayId(*id),
        size: 8,
    });
    SavedTopicRelays {
        topic: topic(on),
        relays: relays.collect(),
        last: BodyDigest([0; 32]),
    }
}

/// Each notification has the number of its row and 40.
fn seq_after(topic: &Topic, heard: RelayId) -> Option<u64> {
    let mut ids = if topic.as_str().ends_with('a') {
        1..4
    } else {
        4..5
    };
    ids.find(|id| *id > heard.0).map(|id| id + 40)
}

const ONE: &str = "http://one.example/secret";
const TWO: &str = "http://two.example:8080/secret";

/// Returns subscriptions of which one fails, one has notifications pending on two topics, and one has expired.
fn subscriptions() -> Subscriptions {
    let subscriptions = vec![
        (subscription("a", TWO, 100), progress(2, 0)),
        (subscription("a", ONE, 100), progress(1, 3)),
        (subscription("b", TWO, 100), progress(0, 0)),
        (
            subscription("a", "http://three.example/", 0),
            progress(0, 7),
        ),
    ];
    let saved = SavedHub {
        subscriptions,
        topics: vec![pending("a", &[1, 2, 3]), pending("b", &[4])],
    };
    Subscriptions::restore(saved).0
}

fn digest(callback: &str) -> String {
    Callback::new(callback).digest()
}

#[test]
fn failing_subscriptions_come_first_and_no_callback_is_shown() {
    let list = subscriptions().list(at(0), &seq_after);
    let shown = |view: &SubscriptionView| {
        let (digest, next) = (&view.digest, view.next.unwrap());
        let counts = format!("owed {}, next {next}, failed {}", view.owed, view.attempts);
        format!("{} {digest}: {counts}, signed {}", view.topic, view.signed)
    };
    let rows: Vec<String> = list.subscriptions.iter().map(shown).collect();
    let (one, two) = (digest(ONE), digest(TWO));
    let want = [
        format!("https://e.org/a {one}: owed 2, next 42, failed 3, signed false"),
        format!("https://e.org/a {two}: owed 1, next 43, failed 0, signed false"),
        format!("https://e.org/b {two}: owed 1, next 44, failed 0, signed true"),
    ];
    assert_eq!(rows, want);
    assert_eq!(list.subscriptions[0].next_try, Some(at(9)));
    assert_eq!(list.more, 0);
    let text = serde_json::to_string(&list).unwrap();
    assert!(!text.contains("secret"), "{text}");
    assert!(text.contains("\"http://two.example:8080/…("), "{text}");
}

#[test]
fn the_status_counts_what_is_live() {
    let status = subscriptions().status(at(0));
    let counts = (status.subscriptions, status.owed, status.failing);
    assert_eq!(counts, (3, 4, 1));
    assert_eq!(status.topics, [(topic("a"), 2), (topic("b"), 1)]);
    assert_eq!(subscriptions().status(at(100)).subscriptions, 0);
}

#[test]
fn a_callback_is_named_by_its_digest_and_an_unclear_name_is_answered_with_suggestions() {
    let subscriptions = subscriptions();
    let named = |name: &str, on| match subscriptions.find(name, on, at(0), &seq_after) {
        Ok((key, view)) => {
            assert_eq!(key.topic, view.topic);
            assert_eq!(key.callback.to_string(), view.callback);
            format!("{} {}", key.topic, key.callback.as_str())
        }
        Err(error) => error.to_string(),
    };
    let [one, two] = [ONE, TWO].map(|callback| Callback::new(callback).to_string());
    let [of_one, of_two] = [ONE, TWO].map(digest);
    let other = Some("https://e.org/b");
    let twice = format!("{two} on https://e.org/a, {two} on https://e.org/b");
    for (name, on, want) in [
        (&of_one, None, format!("https://e.org/a {ONE}")),
        (&one, None, format!("https://e.org/a {ONE}")),
        (&of_two, other, format!("https://e.org/b {TWO}")),
        (
            &of_two,
            None,
            format!(
                "\"{of_two}\" may be one of several; name the callback as shown here, then the topic: there is {twice}"
            ),
        ),
        (
            &of_one,
            other,
            format!(
                "the callback \"{of_one}\" does not subscribe to \"https://e.org/b\"; there is {one} on https://e.org/a"
            ),
        ),
    ] {
        assert_eq!(named(name, on), want);
    }
    // The whole callback is a secret and not accepted as a name, nor is a guess.
    let guess = format!("http://evil.example/…({of_one})");
    for name in [ONE, "", "00000000", &guess] {
        let want = format!(
            "no subscription has the callback \"{name}\"; there is {one} on https://e.org/a, {twice}"
        );
        assert_eq!(named(name, None), want);
    }
    let none = Subscriptions::default().find("00000000", None, at(0), &seq_after);
    let none = none.unwrap_err().to_string();
    assert!(none.ends_with("; nobody has subscribed"), "{none}");
}

#[test]
fn the_last_attempt_is_known_until_the_next() {
    let mut subscriptions = subscriptions();
    let mut assigned = subscriptions.assign_tasks(&topic("a")).into_iter();
    let assignment = assigned.find(|assignment| assignment.key.callback.as_str() == ONE);
    let assignment = assignment.unwrap();
    let last = |subscriptions: &Subscriptions| {
        let found = subscriptions.find(&digest(ONE), None, at(0), &seq_after);
        found.unwrap().1.last
    };
    assert_eq!(last(&subscriptions), None);
    for answer in [
        Answer::Failed("cannot connect\u{7}".to_owned()),
        Answer::Status {
            status: 503,
            content_type: None,
            retry_after: None,
            excerpt: "never shown".to_owned(),
            credentials: None,
        },
    ] {
        subscriptions.apply_outcome(
            &assignment,
            RelaySize::default(),
            LastAttempt::new(&answer, at(5)),
            DeliveryOutcome::Retry(at(6)),
        );
        let known = last(&subscriptions).unwrap();
        let failure = matches!(answer, Answer::Failed(_)).then(|| "cannot connect ".into());
        assert_eq!((known.at, known.failure), (at(5), failure));
    }
    assert_eq!(last(&subscriptions).unwrap().status, Some(503));
    let failure = subscriptions.status(at(0)).failure;
    assert_eq!(failure.as_deref(), Some("answered 503"));
}

#[test]
fn of_very_many_the_worst_are_listed_and_the_others_counted() {
    let many = (0..5_000_u64).map(|number| {
        let callback = format!("http://s.example/{number}");
        let attempts = u32::from(number % 5 == 0);
        (subscription("a", &callback, 100), progress(0, attempts))
    });
    let (subscriptions, _) = Subscriptions::restore(SavedHub {
        subscriptions: many.collect(),
        topics: vec![pending("a", &[1])],
    });
    let list = subscriptions.list(at(0), &seq_after);
    assert_eq!((list.subscriptions.len(), list.more), (MAX_LISTED, 4_000));
    assert!(list.subscriptions.iter().all(|view| view.attempts == 1));
    let error = subscriptions
        .find("x", None, at(0), &seq_after)
        .unwrap_err();
    let error = error.to_string();
    assert!(error.ends_with(", and 4990 more"), "{error}");
}
