//! Operator commands for a hub that does not accept: retry, drop (R23).

use announce::event::{DropCause, Fact};
use announce::plan::Plan;

use crate::world::{HUB, NOTHING, OTHER_HUB, Reply, SET_A, World, plan, two_hubs};

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
    world.script(HUB, Reply::Accept);
    world.retry(None);
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
    world.script(HUB, Reply::Hang);
    world.retry(None);
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
        world.expect_nothing(5_000);
        world.crash_and_start();
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
        world.script(HUB, reply);
        world.update("/a/changelist.xml").wait(5);
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
