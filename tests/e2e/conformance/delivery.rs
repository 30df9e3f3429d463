//! Deliveries: WebSub 7, Framework Notification 4.3.

use resourcesync::payload::Payload;
use rstest::rstest;
use websub::hub::delivery;
use websub::secret::Secret;

use crate::conformance::callback::{Callback, Say, say, willing};
use crate::conformance::source::Source;

pub fn signature(secret: &str, body: &[u8]) -> String {
    delivery::signature(&Secret::new(secret), body)
}

#[test]
fn f4_3_a_delivery_is_the_notification_with_its_links() {
    let (mut source, callback) = Source::start_with_callback();
    source.subscribe(&callback, "/c?k=v", &[]);
    source.change();
    let delivered = callback.next("POST");
    assert_eq!(delivered.target, "/c?k=v");
    assert_eq!(delivered.headers["content-type"], "application/xml");
    assert_eq!(
        delivered.headers["content-length"],
        delivered.body.len().to_string()
    );
    let links = format!(
        "<{}>; rel=\"self\", <{}>; rel=\"hub\", <https://source.example/a/capabilitylist.xml>; rel=\"resourcesync\"",
        source.topic(),
        source.hub()
    );
    assert_eq!(delivered.headers["link"], links);
    assert_eq!(Payload::parse(&delivered.body).unwrap().entries.len(), 1);
    // W7: the full contents of the topic.
    let (_, topic) = source.fetch_topic();
    assert_eq!(topic.as_bytes(), delivered.body);
    assert!(!delivered.headers.contains_key("x-hub-signature"));
}

#[test]
fn w7_1_a_delivery_to_a_subscriber_with_a_secret_is_signed() {
    let (mut source, callback) = Source::start_with_callback();
    let secret = "s".repeat(199);
    source.subscribe(&callback, "/c", &[("hub.secret", &secret)]);
    source.change();
    let delivered = callback.next("POST");
    assert_eq!(
        delivered.headers["x-hub-signature"],
        signature(&secret, &delivered.body)
    );
}

/// Refuses what is delivered once, and takes it then.
fn refusing_once(answer: Say) -> Callback {
    let mut refusals = vec![answer];
    Callback::that(move |request| match request.method.as_str() {
        "POST" => refusals.pop().unwrap_or_else(|| willing(request)),
        _ => willing(request),
    })
}

#[rstest]
#[case("500 Internal Server Error")]
#[case("404 Not Found")]
#[case("403 Forbidden")]
fn w7_a_delivery_that_is_refused_is_made_again_and_the_subscription_stays(#[case] status: &str) {
    let mut source = Source::start();
    let callback = refusing_once(say(status, ""));
    source.subscribe(&callback, "/c", &[]);
    source.change();
    let refused = callback.next("POST");
    let taken = callback.next("POST");
    assert_eq!(refused.body, taken.body);
    source.change();
    assert_ne!(callback.next("POST").body, taken.body);
}

#[test]
fn w7_a_redirection_moves_no_subscription() {
    let mut source = Source::start();
    let callback = refusing_once(Say {
        headers: "Location: /moved\r\n".to_owned(),
        ..say("307 Temporary Redirect", "")
    });
    source.subscribe(&callback, "/c", &[]);
    source.change();
    assert_eq!(callback.next("POST").target, "/c");
    assert_eq!(callback.next("POST").target, "/c");
}

#[test]
fn w7_the_body_of_an_acknowledgement_is_ignored() {
    let mut source = Source::start();
    let callback = Callback::that(|request| match request.method.as_str() {
        "POST" => say("200 OK", "hub.mode=denied"),
        _ => willing(request),
    });
    source.subscribe(&callback, "/c", &[]);
    for _ in 0..2 {
        source.change();
        callback.next("POST");
    }
    assert_eq!(callback.heard().len(), 0);
}

#[test]
fn w7_410_ends_a_subscription() {
    let mut source = Source::start();
    let callback = refusing_once(say("410 Gone", ""));
    let staying = Callback::start();
    source.subscribe(&callback, "/c", &[]);
    source.subscribe(&staying, "/c", &[]);
    source.change();
    callback.next("POST");
    source.await_subscriptions(1);
    staying.next("POST");
    source.change();
    staying.next("POST");
    assert_eq!(callback.heard().len(), 0);
}

#[test]
fn f4_3_a_subscriber_receives_everything_in_order_across_a_kill() {
    let mut source = Source::start();
    let callback = Callback::that(|request| match request.method.as_str() {
        "POST" => say("503 Service Unavailable", ""),
        _ => willing(request),
    });
    source.subscribe(&callback, "/c", &[]);
    source.change();
    let first = callback.next("POST").body;
    source.kill();
    source.change();
    callback.behave(willing);
    source.resume();
    let mut heard = vec![callback.next("POST").body, callback.next("POST").body];
    // Whatever was sent again before the kill.
    heard.dedup();
    if heard.len() == 1 {
        heard.push(callback.next("POST").body);
    }
    assert_eq!(heard[0], first);
    assert_ne!(heard[1], first);
}
