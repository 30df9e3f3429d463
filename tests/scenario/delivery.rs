//! The changes due to each hub are a difference, not a queue (R22, R23).

use announce::event::Fact;

use crate::world::{
    HUB, NOTHING, OTHER_HUB, Reply, SET_A, World, all_deletions, list, plan, two_hubs,
};

#[test]
fn a_hub_that_was_dead_gets_its_notification_again_byte_for_byte_and_then_one_difference() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/changelist.xml").wait(10);
    for _ in 0..50 {
        world.update("/a/resourcelist.xml");
        world.update("/a/changelist.xml").wait(1_000);
    }
    let attempts = world.attempts_at(HUB);
    assert!(attempts.len() > 40);
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.body == attempts[0].body)
    );
    world.script(HUB, Reply::Accept).wait(1_000);
    let heard = world.heard_by(HUB);
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[0].changes(), ["u /a/changelist.xml"]);
    let want = ["u /a/changelist.xml", "u /a/resourcelist.xml"];
    assert_eq!(heard[1].changes(), want);
}

#[test]
fn of_two_hubs_the_one_does_not_notice_that_the_other_is_dead() {
    let mut world = World::with_two_sets(two_hubs()).with_down(OTHER_HUB);
    for _ in 0..3 {
        world.update("/a/changelist.xml");
        world.expect(10, ["u /a/changelist.xml"]);
    }
    world.write_list("/a/new.xml", "changelist").wait(100);
    world.delete("/a/new.xml").wait(1_000).news();
    world.script(OTHER_HUB, Reply::Accept).wait(2_000);
    let heard = world.heard_by(OTHER_HUB);
    let changes: Vec<Vec<String>> = heard.iter().map(|heard| heard.changes()).collect();
    let update = ["u /a/changelist.xml"];
    assert_eq!(changes, [update, update]);
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn hubs_that_are_due_the_same_get_the_same() {
    let mut world = World::with_two_sets(two_hubs());
    world.update("/a/changelist.xml").wait(10);
    let (one, other) = (world.heard_by(HUB), world.heard_by(OTHER_HUB));
    assert_eq!(one[0].body, other[0].body);
    assert_eq!(one[0].seq, other[0].seq);
}

#[test]
fn a_hub_that_hangs_has_one_notification_in_flight() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Hang);
    for _ in 0..5 {
        world.update("/a/changelist.xml").wait(100);
    }
    assert_eq!(world.attempts_at(HUB).len(), 1);
}

#[test]
fn a_change_undone_while_its_notification_flew_is_announced_again() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(20));
    world.update("/a/changelist.xml").wait(5);
    world.write_list("/a/changelist.xml", "changelist");
    world.wait(100);
    let update = "u /a/changelist.xml";
    assert_eq!(world.news(), [update, update]);
}

#[test]
fn a_hub_that_finds_it_too_large_gets_half_of_it() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::AtMost(3));
    for number in 0..10 {
        let name = format!("/a/c{number}.xml");
        world.write(&name, list("changelist").of("/a"));
    }
    world.wait(100);
    let mut news = world.news();
    assert_eq!(news.len(), 10);
    news.sort();
    news.dedup();
    assert_eq!(news.len(), 10);
    let facts = world.facts();
    for at in [5, 2] {
        let is_halved = |fact: &Fact| matches!(fact, Fact::Halved { limit, .. } if *limit == at);
        assert!(facts.iter().any(is_halved), "{at}");
    }
}

#[test]
fn a_single_change_that_is_too_large_needs_an_operator() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::AtMost(0));
    world.update("/a/changelist.xml").wait(10);
    assert!(matches!(
        world.facts()[..],
        [
            Fact::Cut { .. },
            Fact::Refused {
                needs_operator: true,
                ..
            }
        ]
    ));
    world.script(HUB, Reply::Accept);
    world.expect(1_000, ["u /a/changelist.xml"]);
}

#[test]
fn a_denial_is_not_an_acceptance() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Deny);
    world.update("/a/changelist.xml").wait(10);
    world.script(HUB, Reply::Accept).expect_nothing(800);
    world.expect(200, ["u /a/changelist.xml"]);
}

#[test]
fn a_clock_that_was_set_back_delays_no_hub() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/changelist.xml").wait(10);
    world.crash();
    world.set_wall("2020-01-01T00:00:00Z".parse().unwrap());
    world.script(HUB, Reply::Accept);
    world.start().expect(3_600, ["u /a/changelist.xml"]);
    world.update("/a/resourcelist.xml").wait(10);
    let heard = world.heard_by(HUB);
    assert_eq!(heard[0].changes(), ["u /a/resourcelist.xml"]);
}

#[test]
fn a_document_that_ended_and_began_is_too_large_without_haste() {
    let mut world = World::with_two_sets(all_deletions());
    world.script(HUB, Reply::AtMost(1));
    world.write_list("/a/changelist.xml", "resourcedump");
    world.wait(400);
    assert_eq!(world.attempts_at(HUB).len(), 2, "two changes, halved once");
    assert!(matches!(
        world.facts().last(),
        Some(Fact::Refused {
            needs_operator: true,
            ..
        })
    ));
    world.script(HUB, Reply::Accept);
    let want = ["d /a/changelist.xml", "c resourcedump /a/changelist.xml"];
    world.expect(1_000, want);
}

#[test]
fn a_clock_that_steps_back_while_it_runs_delays_no_notification() {
    let mut world = World::with_two_sets(plan());
    world.update("/b/changelist.xml").wait(10).news();
    world.script(HUB, Reply::Status(503));
    world.update("/b/changelist.xml").wait(10);
    world.write_list("/a/new.xml", "changelist");
    world.delete(SET_A);
    world.update("/a/resourcelist.xml");
    world.script(HUB, Reply::Accept);
    world.set_wall("2020-01-01T00:00:00Z".parse().unwrap());
    world.see("/b/resourcelist.xml");
    let updated = ["u /a/resourcelist.xml", "u /b/changelist.xml"];
    let want = [&["c changelist /a/new.xml"], &updated[..]].concat();
    world.expect_sorted(HUB, 70, want);
    world.expect(300, ["d /a/capabilitylist.xml"]);
}
