//! Subscription requests and their answers: WebSub 5.1, Framework Notification 4.2 and 4.4.

use rstest::rstest;

use crate::conformance::callback::{Callback, say};
use crate::conformance::source::{Source, form};
use crate::support::daemon::assert_contains;

#[test]
fn w5_1_2_a_request_is_answered_with_202_whatever_verification_will_say() {
    let source = Source::start();
    let nobody = "http://127.0.0.1:9/nobody";
    source.assert_accepted("subscribe", nobody, &[]);
    let unwilling = Callback::that(|_| say("404 Not Found", ""));
    let answer = source.ask("subscribe", &unwilling.url("/"), &[]);
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    unwilling.next("GET");
}

#[rstest]
#[case("hub.mode")]
#[case("hub.topic")]
#[case("hub.callback")]
fn w5_1_a_request_without_a_required_parameter_is_refused(#[case] missing: &str) {
    let source = Source::start();
    let topic = source.topic();
    let all = [
        ("hub.mode", "subscribe"),
        ("hub.topic", topic.as_str()),
        ("hub.callback", "http://127.0.0.1:9/c"),
    ];
    let rest: Vec<_> = all
        .into_iter()
        .filter(|(name, _)| *name != missing)
        .collect();
    let answer = source.post(&form(&rest));
    answer.assert_refused(400);
    assert_contains(&answer.body, missing);
}

#[rstest]
#[case("hub.mode", "sub", 400)]
#[case("hub.topic", "http://elsewhere.example/topic", 404)]
#[case("hub.callback", "ftp://127.0.0.1/c", 400)]
#[case("hub.callback", "/c", 400)]
#[case("hub.callback", "http://user:word@127.0.0.1:8000/c", 400)]
#[case("hub.lease_seconds", "soon", 400)]
#[case("hub.lease_seconds", "-300", 400)]
fn w5_1_2_an_error_is_answered_with_4xx_and_a_plain_text_reason(
    #[case] name: &str,
    #[case] value: &str,
    #[case] status: u16,
) {
    let source = Source::start();
    let topic = source.topic();
    let mut all = vec![
        ("hub.mode", "subscribe"),
        ("hub.topic", topic.as_str()),
        ("hub.callback", "http://127.0.0.1:8000/c"),
    ];
    all.retain(|(field, _)| *field != name);
    all.push((name, value));
    source.post(&form(&all)).assert_refused(status);
}

#[test]
fn w5_1_2_a_publication_by_a_stranger_is_refused_with_the_reason() {
    let source = Source::start();
    let topic = source.topic();
    let publication = form(&[("hub.mode", "publish"), ("hub.topic", topic.as_str())]);
    let status = source.status_of_a_stranger();
    source.post(&publication).assert_refused(status);
}

#[test]
fn w5_1_a_request_is_a_form_and_nothing_else() {
    let source = Source::start();
    source
        .request("POST", "application/json", "{}")
        .assert_refused(415);
    let answer = source.request("GET", "text/plain", "");
    answer.assert_refused(405);
    assert_contains(&answer.head, "allow: post");
    let huge = format!("hub.mode=subscribe&x={}", "x".repeat(64 << 10));
    source.post(&huge).assert_refused(413);
}

#[test]
fn w5_1_a_form_may_name_its_encoding_and_hold_what_we_do_not_know() {
    let (source, callback) = Source::start_with_callback();
    let (topic, url) = (source.topic(), callback.url("/c"));
    let body = form(&[
        ("hub.verify", "async"),
        ("hub.verify_token", "t"),
        ("hub.mode", "subscribe"),
        ("hub.topic", &topic),
        ("hub.callback", &url),
        ("foreign", "é&"),
    ]);
    let content_type = "application/x-www-form-urlencoded; charset=UTF-8";
    assert_eq!(source.request("POST", content_type, &body).status, 202);
    assert_eq!(
        callback.next("GET").parameter("hub.mode").as_deref(),
        Some("subscribe")
    );
}

#[test]
fn w5_1_a_secret_has_less_than_200_bytes() {
    let source = Source::start();
    let url = "http://127.0.0.1:8000/c";
    let (longest, too_long) = ("s".repeat(199), "s".repeat(200));
    source
        .ask("subscribe", url, &[("hub.secret", &too_long)])
        .assert_refused(400);
    source.assert_accepted("subscribe", url, &[("hub.secret", &longest)]);
}

#[test]
fn w5_1_1_a_topic_is_compared_after_decoding() {
    let (source, callback) = Source::start_with_callback();
    let spelt_otherwise = source.topic().replace("topics/main", "%74opics/m%61in");
    let url = callback.url("/c");
    let answer = source.post(&form(&[
        ("hub.mode", "subscribe"),
        ("hub.topic", &spelt_otherwise),
        ("hub.callback", &url),
    ]));
    assert_eq!(answer.status, 202);
    // 5.3: as it was given in the request.
    let asked = callback.next("GET");
    assert_eq!(asked.parameter("hub.topic"), Some(spelt_otherwise));
}

#[test]
fn w5_1_an_unsubscription_may_carry_a_lease_that_counts_for_nothing() {
    let (mut source, callback) = Source::start_with_callback();
    source.subscribe(&callback, "/c", &[]);
    let more = [("hub.lease_seconds", "whenever")];
    source.assert_accepted("unsubscribe", &callback.url("/c"), &more);
    assert_eq!(
        callback.next("GET").parameter("hub.mode").as_deref(),
        Some("unsubscribe")
    );
    source.await_subscriptions(0);
}

#[test]
fn f4_2_the_topic_names_the_hub_at_which_it_is_subscribed_to() {
    let source = Source::start();
    let (head, _) = source.fetch_topic();
    let links = format!(
        "Link: <{}>; rel=\"self\", <{}>; rel=\"hub\", <https://source.example/a/capabilitylist.xml>; rel=\"resourcesync\"",
        source.topic(),
        source.hub()
    );
    assert!(
        head.to_lowercase().contains(&links.to_lowercase()),
        "{head}"
    );
}
