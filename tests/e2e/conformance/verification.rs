//! Verification of intent: WebSub 5.2 and 5.3.

use rstest::rstest;

use crate::conformance::callback::{Callback, Request, Say, say, willing};
use crate::conformance::source::Source;
use crate::support::daemon::assert_starts_with;

#[test]
fn w5_3_a_verification_is_a_get_that_names_all_it_asks_for() {
    let (mut source, callback) = Source::start_with_callback();
    let asked = source.subscribe(&callback, "/c", &[("hub.lease_seconds", "3600")]);
    assert_eq!(asked.parameter("hub.mode").as_deref(), Some("subscribe"));
    assert_eq!(asked.parameter("hub.topic"), Some(source.topic()));
    assert_eq!(
        asked.parameter("hub.lease_seconds").as_deref(),
        Some("3600")
    );
    assert!(asked.challenge().len() >= 32, "{}", asked.challenge());
    assert_eq!(asked.body, b"");
}

#[test]
fn w5_1_1_the_query_of_a_callback_stays_as_it_is_and_ours_comes_after_it() {
    let (mut source, callback) = Source::start_with_callback();
    let target = "/c?a=%20b+c&hub.mode=mine&hub.challenge=old&&x";
    let asked = source.subscribe(&callback, target, &[]);
    let appended = asked
        .target
        .strip_prefix(target)
        .expect("the callback's own query");
    assert!(appended.starts_with("&hub.mode=subscribe&"), "{appended}");
    source.change();
    assert_eq!(callback.next("POST").target, target);
}

#[test]
fn w8_each_question_has_a_challenge_of_its_own() {
    let (mut source, callback) = Source::start_with_callback();
    let first = source.subscribe(&callback, "/c", &[]).challenge();
    let second = source.subscribe(&callback, "/c", &[]).challenge();
    assert_ne!(first, second);
}

fn moved(to: &str) -> Say {
    Say {
        headers: format!("Location: {to}\r\n"),
        ..say("302 Found", "")
    }
}

fn with_a_newline(request: &Request) -> Say {
    say("200 OK", &format!("{}\n", request.challenge()))
}

fn within_a_page(request: &Request) -> Say {
    say("200 OK", &format!("<p>{}</p>", request.challenge()))
}

fn as_an_error(request: &Request) -> Say {
    say("500 Internal Server Error", &request.challenge())
}

fn without_a_word(_: &Request) -> Say {
    say("200 OK", "")
}

fn elsewhere(request: &Request) -> Say {
    match request.target.starts_with("/moved") {
        true => say("200 OK", &request.challenge()),
        false => moved(&request.target.replacen("/c", "/moved", 1)),
    }
}

fn as_not_found(request: &Request) -> Say {
    say("404 Not Found", &request.challenge())
}

/// Unwilling in one of the ways of section 5.3.1.
type Unwilling = fn(&Request) -> Say;

#[rstest]
#[case(with_a_newline)]
#[case(within_a_page)]
#[case(as_an_error)]
#[case(as_not_found)]
#[case(without_a_word)]
#[case(elsewhere)]
fn w5_3_1_whatever_is_not_a_2xx_with_the_challenge_subscribes_to_nothing(
    #[case] unwilling: Unwilling,
) {
    let mut source = Source::start();
    let callback = Callback::that(move |request| match request.method.as_str() {
        "GET" => unwilling(request),
        _ => say("204 No Content", ""),
    });
    let willing = Callback::start();
    source.assert_accepted("subscribe", &callback.url("/c"), &[]);
    callback.next("GET");
    // Asked later and confirmed: what was asked before has been judged by then.
    source.subscribe(&willing, "/w", &[]);
    source.change();
    willing.next("POST");
    let heard = callback.heard();
    assert!(
        heard.iter().all(|request| request.method == "GET"),
        "{heard:?}"
    );
    assert!(
        !heard
            .iter()
            .any(|request| request.target.starts_with("/moved")),
        "{heard:?}"
    );
}

#[rstest]
#[case("201 Created")]
#[case("202 Accepted")]
#[case("299 Fine")]
fn w5_3_1_any_2xx_with_the_challenge_confirms(#[case] status: &'static str) {
    let mut source = Source::start();
    let callback = Callback::that(move |request| match request.method.as_str() {
        "GET" => say(status, &request.challenge()),
        _ => willing(request),
    });
    source.subscribe(&callback, "/c", &[]);
    source.change();
    callback.next("POST");
}

#[test]
fn w5_1_a_renewal_that_is_not_confirmed_leaves_the_subscription_as_it_was() {
    let (mut source, callback) = Source::start_with_callback();
    source.subscribe(&callback, "/c", &[("hub.secret", "first")]);
    callback.behave(|_| say("404 Not Found", ""));
    let more = [("hub.secret", "second")];
    source.assert_accepted("subscribe", &callback.url("/c"), &more);
    callback.next("GET");
    callback.behave(willing);
    source.change();
    let delivered = callback.next("POST");
    assert_eq!(
        delivered.headers["x-hub-signature"],
        crate::conformance::delivery::signature("first", &delivered.body)
    );
}

#[test]
fn w5_1_a_renewal_that_is_confirmed_replaces_what_was_and_makes_no_second_subscription() {
    let (mut source, callback) = Source::start_with_callback();
    source.subscribe(&callback, "/c", &[("hub.secret", "first")]);
    source.subscribe(&callback, "/c", &[]);
    source.await_secret(None);
    source.change();
    assert!(
        !callback
            .next("POST")
            .headers
            .contains_key("x-hub-signature")
    );
    source.change();
    callback.next("POST");
    assert_eq!(callback.heard().len(), 0);
}

#[test]
fn w5_3_a_forged_unsubscription_changes_nothing() {
    let (mut source, callback) = Source::start_with_callback();
    source.subscribe(&callback, "/c", &[]);
    callback.behave(|request| match request.parameter("hub.mode") {
        Some(_) => say("404 Not Found", ""),
        None => say("204 No Content", ""),
    });
    source.assert_accepted("unsubscribe", &callback.url("/c"), &[]);
    let asked = callback.next("GET");
    assert_eq!(asked.parameter("hub.mode").as_deref(), Some("unsubscribe"));
    source.change();
    callback.next("POST");
}

#[test]
fn w5_2_a_removed_subscriber_is_notified() {
    let (mut source, callback) = Source::start_with_callback();
    source.subscribe(&callback, "/c?k=v", &[]);
    source.retire_topic();
    let told = callback.next("GET");
    assert_starts_with(&told.target, "/c?k=v&hub.mode=denied&");
    assert_eq!(told.parameter("hub.topic"), Some(source.topic()));
    assert_eq!(
        told.parameter("hub.reason").as_deref(),
        Some("the topic has ended")
    );
    source.await_subscriptions(0);
}

#[test]
fn f4_4_a_confirmed_unsubscription_ends_the_deliveries() {
    let mut source = Source::start();
    let (leaving, staying) = (Callback::start(), Callback::start());
    source.subscribe(&leaving, "/c", &[]);
    source.subscribe(&staying, "/c", &[]);
    source.assert_accepted("unsubscribe", &leaving.url("/c"), &[]);
    leaving.next("GET");
    source.await_subscriptions(1);
    source.change();
    staying.next("POST");
    assert_eq!(leaving.heard().len(), 0);
}
