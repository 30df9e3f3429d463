//! Leases: WebSub 5.1, 5.3.1 and 8.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use crate::conformance::callback::Callback;
use crate::conformance::source::Source;

#[rstest]
#[case(None, "864000")]
#[case(Some("1"), "300")]
#[case(Some("86400"), "86400")]
#[case(Some("99999999999999999999"), "2678400")]
fn w5_3_the_lease_that_is_granted_is_the_lease_that_is_told(
    #[case] wanted: Option<&str>,
    #[case] told: &str,
) {
    let (mut source, callback) = Source::start_with_callback();
    let more: Vec<_> = wanted
        .map(|lease| ("hub.lease_seconds", lease))
        .into_iter()
        .collect();
    let before = Timestamp::now();
    let asked = source.subscribe(&callback, "/c", &more);
    assert_eq!(asked.parameter("hub.lease_seconds").as_deref(), Some(told));
    let lease = SignedDuration::from_secs(told.parse().unwrap());
    let expires = source.expiry();
    assert!(
        before + lease <= expires && expires <= Timestamp::now() + lease,
        "{expires}"
    );
}

#[test]
fn w5_3_1_a_lease_that_ended_while_the_hub_did_not_run_is_kept_at_first() {
    let mut source = Source::start();
    let (ending, staying) = (Callback::start(), Callback::start());
    source.subscribe(&ending, "/ending", &[]);
    source.subscribe(&staying, "/staying", &[]);
    source.kill();
    source.expire("/ending", Timestamp::now());
    source.resume();
    source.change();
    staying.next("POST");
    ending.next("POST");
}
