//! Operator commands for a hub that does not accept: inspect, retry, drop (R23).

use announce::event::{DropCause, Fact};
use announce::plan::Plan;
use announce::state::ChannelId;
use resourcesync::uri::Hub;
use rsnotify::report;
use rsnotify::report::outbox::AccountView;
use rsnotify::report::status::AccountCondition;
use websub::publisher::reason::RefusalKind;

use crate::moves::moved;
use crate::world::{
    HUB, NOTHING, OTHER_HUB, Reply, SET_A, World, absolute, list, names, plan, two_hubs,
};

fn next(account: &AccountView) -> Vec<String> {
    let paths = account.changes.iter().map(|entry| {
        let path = entry.uri.as_str().replace("https://example.org", "");
        format!("{} {path}", entry.change)
    });
    paths.collect()
}

#[test]
fn changes_whose_window_is_open_are_dropped_too() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(1);
    let waits = world.outbox("/a", HUB).waits.unwrap();
    assert!(waits.contains("further changes"));
    world.drop_due("/a", HUB).expect_nothing(100);
    let dropped = [format!("{HUB} /a/framework/ 1")];
    assert_eq!(world.dropped(DropCause::Operator), dropped);
    world.drop_due("/a", HUB);
    let dropped = world.dropped(DropCause::Operator);
    assert_eq!(dropped, NOTHING, "nothing is due");
}

#[test]
fn what_is_held_or_missing_is_not_due_and_is_not_dropped() {
    let mut world = World::with_two_sets(plan());
    world.write_list("/a/new.xml", "changelist");
    world.write_list("/a/lost.xml", "changelist");
    world.delete("/a/lost.xml");
    world.update("/a/changelist.xml").wait(1);
    let account = world.outbox("/a", HUB);
    assert_eq!(next(&account), ["updated /a/changelist.xml"]);
    let held: Vec<&str> = account.held.iter().map(|held| held.uri.as_str()).collect();
    assert_eq!(
        held,
        ["lost", "new"].map(|name| absolute(&format!("/a/{name}.xml")))
    );
    assert!(account.held[0].reason.contains("missing"), "{account:?}");
    assert!(account.held[1].reason.contains("lists it"), "{account:?}");
    world.drop_due("/a", HUB);
    let dropped = [format!("{HUB} /a/framework/ 1")];
    assert_eq!(world.dropped(DropCause::Operator), dropped);
    world.write_list("/a/lost.xml", "changelist");
    world.write_capability_list("/a", &["resourcelist", "changelist", "new", "lost"]);
    let created = ["c changelist /a/lost.xml", "c changelist /a/new.xml"];
    let want = [&created[..], &["u /a/capabilitylist.xml"]].concat();
    world.expect_sorted(HUB, 100, want);
}

#[test]
fn the_outbox_shows_what_comes_next_once_what_is_in_flight_is_accepted() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(401));
    let dump = || list("changedump").of("/a");
    world.write("/a/changelist.xml", dump()).wait(10);
    let account = world.outbox("/a", HUB);
    assert_eq!(next(&account), NOTHING, "all of it is in flight");
    let flight = account.notification.unwrap();
    assert_eq!((flight.seq, flight.changes.len()), (1, 1));
    assert!(flight.payload.unwrap().contains("/a/changelist.xml"));
    world.write("/a/changelist.xml", dump().version(1));
    world.update("/a/resourcelist.xml").wait(10);
    let account = world.outbox("/a", HUB);
    assert_eq!(account.hub.due, 2);
    let wanted = ["updated /a/changelist.xml", "updated /a/resourcelist.xml"];
    assert_eq!(next(&account), wanted);
    world.script(HUB, Reply::Accept).retry(None);
    assert_eq!(
        world.news(),
        [
            "c changedump /a/changelist.xml",
            "u changedump /a/changelist.xml",
            "u /a/resourcelist.xml",
        ]
    );
    assert_eq!(next(&world.outbox("/a", HUB)), NOTHING);
}

#[test]
fn the_last_answer_is_known_whatever_it_was_and_after_a_restart() {
    let mut world = refused(plan(), 403);
    world.crash_and_start();
    let account = world.outbox("/a", HUB);
    assert_eq!(account.hub.state, AccountCondition::NeedsOperator);
    let last = account.hub.last.unwrap();
    let want = (Some(403), "words", 1);
    assert_eq!((last.status, &*last.excerpt, last.seq), want);
    assert_eq!(last.refusal.unwrap().kind, RefusalKind::NotAllowed);
    world.script(HUB, Reply::Accept).retry(None);
    let account = world.outbox("/a", HUB);
    assert_eq!(account.hub.state, AccountCondition::Fine);
    let last = account.hub.last.unwrap();
    assert_eq!((last.status, last.refusal), (Some(202), None));
    assert_eq!(account.hub.last_failure, None);
}

#[test]
fn a_hub_without_subscribers_is_no_trouble() {
    for (status, state) in [
        (400, AccountCondition::NeedsOperator),
        (503, AccountCondition::Failing),
        (500, AccountCondition::NoSubscribers),
    ] {
        let mut world = World::with_two_sets(plan());
        world.script(HUB, Reply::Say(status, ""));
        world.update("/a/changelist.xml").wait(10);
        assert_eq!(world.outbox("/a", HUB).hub.state, state, "{status}");
    }
}

/// Returns the account that an operator means.
fn account(world: &World, channel: &str, hub: &str) -> Result<(ChannelId, Hub), String> {
    let reader = world.engine().reader(world.now);
    report::outbox::find_account(&reader, &names(channel, hub)).map_err(|error| error.to_string())
}

#[test]
fn an_account_is_named_by_its_topic_or_its_capability_list() {
    let mut world = World::with_two_sets(two_hubs());
    let list = "https://example.org/a/capabilitylist.xml";
    let topic = "https://example.org/a/framework/";
    let named = account(&world, list, HUB).unwrap();
    assert_eq!(account(&world, topic, HUB), Ok(named.clone()));
    for (channel, hub, says) in [
        (
            "https://example.org/a/framework",
            HUB,
            "there is https://example.org/a/framework/, https:",
        ),
        (
            topic,
            "https://hub.example.net",
            "there is https://hub.example.net/, https://other",
        ),
        (topic, "embedded", "is not told to \"embedded\""),
        ("", "", "no channel"),
    ] {
        let error = account(&world, channel, hub).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    // Its topic moves: the list names the channel that lives, the old topic the one that retired.
    world.write(SET_A, moved("/a", "/a/moved/")).wait(100);
    assert_ne!(account(&world, list, HUB).unwrap().0, named.0);
    assert_eq!(account(&world, topic, HUB), Ok(named));
}

const UPDATE: &str = "u /a/changelist.xml";
const TOPIC: &str = "/a/framework/";

/// Two sets, and one hub that refuses a change of the first one's.
pub fn refused(plan: Plan, status: u16) -> World {
    let mut world = World::with_two_sets(plan);
    world.script(HUB, Reply::Status(status));
    world.update("/a/changelist.xml").wait(10);
    world
}

#[test]
fn a_retry_asks_at_once_and_keeps_the_next_try_if_that_fails() {
    let mut world = refused(two_hubs(), 403);
    world.attempts_at(HUB);
    world.retry(Some(("/a", HUB)));
    assert_eq!(world.attempts_at(HUB).len(), 1);
    // The old next try, 14:50 from here, is none any more.
    world.wait(895);
    assert_eq!(world.attempts_at(HUB).len(), 0);
    world.wait(5);
    assert_eq!(world.attempts_at(HUB).len(), 1);
    world.script(HUB, Reply::Accept).retry(None);
    assert_eq!(world.news(), [UPDATE]);
    assert!(world.facts().contains(&Fact::Retried { notifications: 1 }));
    world.retry(None);
    assert_eq!(world.attempts_at(HUB).len(), 1, "it was accepted");
}

#[test]
fn a_retry_is_about_one_account_if_it_says_so() {
    let mut world = refused(two_hubs(), 403);
    world.script(OTHER_HUB, Reply::Status(403));
    world.update("/b/changelist.xml").wait(10);
    world.attempts_at(HUB);
    world.attempts_at(OTHER_HUB);
    world.retry(Some(("/b", OTHER_HUB)));
    assert_eq!(world.attempts_at(HUB).len(), 0);
    assert_eq!(world.attempts_at(OTHER_HUB).len(), 1);
    world.facts();
    world.retry(None);
    assert!(world.facts().contains(&Fact::Retried { notifications: 3 }));
    assert_eq!(world.attempts_at(HUB).len(), 2);
}

#[test]
fn what_is_under_way_is_not_tried_twice() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(30));
    world.update("/a/changelist.xml").wait(10).facts();
    world.retry(None);
    assert_eq!(world.attempts_at(HUB).len(), 1);
    assert_eq!(world.facts(), []);
    assert!(world.account(TOPIC, HUB).unwrap().sending);
}

#[test]
fn a_retry_that_a_crash_interrupts_is_made_at_the_next_start() {
    let mut world = refused(plan(), 403);
    world.script(HUB, Reply::Hang).retry(None);
    world.attempts_at(HUB);
    world.script(HUB, Reply::Accept);
    world.crash_and_start().expect(1, [UPDATE]);
}

#[test]
fn what_was_dropped_is_never_told_and_what_changes_later_is() {
    let mut world = refused(two_hubs(), 403);
    world.update("/a/resourcelist.xml").wait(10);
    world.news_at(OTHER_HUB);
    world.drop_due("/a", HUB);
    let dropped = [format!("{HUB} /a/framework/ 2")];
    assert_eq!(world.dropped(DropCause::Operator), dropped);
    world.script(HUB, Reply::Accept);
    for _ in 0..2 {
        world.expect_nothing(5_000).crash_and_start();
    }
    world.update("/a/changelist.xml").expect(10, [UPDATE]);
    assert_eq!(world.news_at(OTHER_HUB), [UPDATE]);
}

#[test]
fn a_drop_is_about_one_hub_on_one_channel_and_leaves_the_topic_as_it_is() {
    let mut world = refused(two_hubs(), 403);
    world.script(OTHER_HUB, Reply::Status(403));
    world.update("/b/changelist.xml");
    world.update("/a/changelist.xml").wait(10);
    let served = world.served(TOPIC);
    world.drop_due("/a", HUB);
    assert_eq!(world.served(TOPIC), served);
    world.script(HUB, Reply::Accept);
    world.script(OTHER_HUB, Reply::Accept).wait(2_000);
    let other = "u /b/changelist.xml";
    assert_eq!(world.news(), [other]);
    let mut news = world.news_at(OTHER_HUB);
    news.sort();
    assert_eq!(news, [UPDATE, UPDATE, other]);
}

#[test]
fn what_is_being_submitted_when_it_is_dropped_is_forgotten_and_nothing_overtakes_it() {
    for (after, reply) in [(20, Reply::Slow(20)), (20, Reply::Status(503))] {
        let mut world = World::with_two_sets(plan());
        world.script(HUB, reply).update("/a/changelist.xml").wait(5);
        world.drop_due("/a", HUB);
        world.script(HUB, Reply::Accept).news();
        world.update("/a/resourcelist.xml").wait(10);
        if reply == Reply::Slow(20) {
            assert_eq!(world.news(), NOTHING, "one submission at a time");
        }
        world.expect(after, ["u /a/resourcelist.xml"]);
    }
}

#[test]
fn a_change_undone_while_it_flew_is_done_with_when_that_is_dropped() {
    let mut world = refused(plan(), 403);
    world.write_list("/a/changelist.xml", "changelist").wait(10);
    world.drop_due("/a", HUB);
    world.script(HUB, Reply::Accept).expect_nothing(2_000);
    world.update("/a/changelist.xml").expect(10, [UPDATE]);
}

#[test]
fn the_last_changes_of_a_retired_channel_end_when_they_are_dropped() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(HUB, Reply::Status(403));
    world.update("/a/changelist.xml").wait(10);
    world.delete(SET_A).wait(1_000);
    let heard = world.news_at(OTHER_HUB);
    assert_eq!(heard, [UPDATE, "d /a/capabilitylist.xml"]);
    assert!(world.remembers(SET_A));
    world.drop_due("/a", HUB);
    assert_eq!(world.due("/a", HUB), 0);
    assert!(!world.remembers(SET_A));
    assert_eq!(world.still_due(), 0);
    world.script(HUB, Reply::Accept);
    world.crash_and_start().expect_nothing(5_000);
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
}
