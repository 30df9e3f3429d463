//! Content of topics, and the retries of hubs that fetch them (R20, R25, R26).

use announce::event::Fact;
use announce::plan::PublishMode;
use resourcesync::payload::Payload;

use crate::world::{
    HUB, NOTHING, OTHER_HUB, Reply, SET_A, World, altered, list, ping_hub, plan, set_hubs, told,
};

const TOPIC: &str = "/a/framework/";

fn pings(world: &mut World) -> usize {
    world.attempts_at(HUB).len()
}

fn is_unfetched(world: &mut World) -> bool {
    told!(world, Fact::Unfetched { .. })
}

#[test]
fn a_topic_serves_the_notification_last_cut_whether_delivered_or_not() {
    let mut world = World::with_two_sets(plan());
    assert!(world.fetch(TOPIC).unwrap().body.is_empty());
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml").wait(10);
    assert_eq!(world.served(TOPIC), ["u /a/changelist.xml"]);
    assert_eq!(
        world.fetch(TOPIC).unwrap().body,
        world.attempts_at(HUB)[0].body
    );
}

#[test]
fn a_pinged_topic_repeats_what_was_announced_within_its_window() {
    let mut world = World::with_two_sets(ping_hub());
    for name in ["/a/changelist.xml", "/a/resourcelist.xml"] {
        world.update(name).wait(5);
        world.fetch(TOPIC);
        world.wait(5);
    }
    let both = ["u /a/changelist.xml", "u /a/resourcelist.xml"];
    assert_eq!(world.served(TOPIC), both);
    world.crash_and_start();
    assert_eq!(world.served(TOPIC), both);
    world.wait(3_600).update("/a/changelist.xml").wait(10);
    assert_eq!(world.served(TOPIC), both[..1]);
}

#[test]
fn a_pinged_topic_holds_no_more_than_a_notification_may() {
    let mut world = World::with_two_sets(altered(ping_hub(), |plan| plan.window.max_entries = 2));
    for name in ["/a/changelist.xml", "/a/resourcelist.xml", SET_A] {
        world.update(name).wait(5);
        world.fetch(TOPIC);
        world.wait(5);
    }
    let want = ["u /a/resourcelist.xml", "u /a/capabilitylist.xml"];
    assert_eq!(world.served(TOPIC), want);
}

#[test]
fn a_pinged_topic_keeps_what_a_ping_was_about_until_it_is_fetched() {
    for is_restarted in [false, true] {
        let mut plan = ping_hub();
        plan.window.max_entries = 1;
        let mut world = World::with_two_sets(plan);
        for name in ["resourcelist", "changelist", "capabilitylist"] {
            world.update(&format!("/a/{name}.xml"));
        }
        world.wait(2);
        for _ in 0..3 {
            let about = world.news_at(HUB);
            assert_eq!(about.len(), 1, "{about:?}");
            // The hub fetches only after it has answered.
            if is_restarted {
                world.crash_and_start();
            }
            world.wait(20);
            assert_eq!(world.served(TOPIC), about);
            world.wait(2);
        }
        assert_eq!(world.news_at(HUB), NOTHING);
    }
}

#[test]
fn a_pinged_topic_keeps_what_nobody_fetches_for_a_minute() {
    let mut world = World::with_two_sets(altered(ping_hub(), |plan| plan.window.max_entries = 1));
    world.update("/a/resourcelist.xml");
    world.update("/a/changelist.xml").wait(100);
    let last = world.news_at(HUB).pop();
    world.update(SET_A).wait(10);
    assert_eq!(world.served(TOPIC), [last.unwrap()]);
    world.wait(10);
    assert_eq!(world.served(TOPIC), ["u /a/capabilitylist.xml"]);
}

#[test]
fn the_next_ping_waits_for_two_seconds_and_the_fetch() {
    let mut world = World::with_two_sets(ping_hub());
    world.update("/a/changelist.xml").wait(2);
    assert_eq!(pings(&mut world), 1);
    world.fetch(TOPIC);
    world.update("/a/changelist.xml").wait(1);
    assert_eq!(pings(&mut world), 0);
    world.wait(1);
    assert_eq!(pings(&mut world), 1);

    // This one is not fetched for a while.
    world.update("/a/resourcelist.xml").wait(30);
    assert_eq!(pings(&mut world), 0);
    world.fetch(TOPIC);
    world.wait(0);
    assert_eq!(pings(&mut world), 1);
    assert!(!is_unfetched(&mut world));
}

#[test]
fn the_next_ping_waits_for_a_fetch_no_longer_than_a_minute() {
    let mut world = World::with_two_sets(ping_hub());
    world.update("/a/changelist.xml").wait(2);
    world.update("/a/changelist.xml").wait(59);
    assert_eq!(pings(&mut world), 1);
    assert!(!is_unfetched(&mut world));
    world.wait(1);
    assert_eq!(pings(&mut world), 1);
    assert!(is_unfetched(&mut world));
    world.crash_and_start().wait(1_061);
    assert!(!is_unfetched(&mut world), "it is reported once");
}

#[test]
fn a_topic_fetched_before_the_ping_is_answered_counts_as_fetched() {
    let mut world = World::with_two_sets(ping_hub());
    world.script(HUB, Reply::Slow(1));
    for _ in 0..3 {
        world.update("/a/changelist.xml").wait(2);
        world.fetch(TOPIC);
        world.wait(10);
        assert_eq!(pings(&mut world), 1);
    }
    world.wait(1_000);
    assert!(!is_unfetched(&mut world));
}

#[test]
fn a_fetch_of_the_last_ping_is_not_missed_while_the_next_one_is_in_flight() {
    let mut world = World::with_two_sets(ping_hub());
    world.update("/a/changelist.xml").wait(3);
    world.fetch(TOPIC);
    world.wait(54);
    // The next ping is on its way when the first one's minute is over.
    world.script(HUB, Reply::Slow(10));
    world.update("/a/changelist.xml").wait(10);
    world.fetch(TOPIC);
    world.wait(100);
    assert!(!is_unfetched(&mut world));
}

#[test]
fn a_topic_with_both_kinds_of_hub_serves_what_the_pinged_one_is_due() {
    let mut plan = plan();
    set_hubs(
        &mut plan,
        &[(HUB, PublishMode::Ping), (OTHER_HUB, PublishMode::Content)],
    );
    let mut world = World::with_two_sets(plan);
    world.update("/a/changelist.xml").wait(5);
    world.update("/a/resourcelist.xml").wait(5);
    // The first ping was not fetched yet, the other hub has both.
    assert_eq!(world.news_at(OTHER_HUB).len(), 2);
    assert_eq!(pings(&mut world), 1);
    let served = world.served(TOPIC);
    assert!(served.contains(&"u /a/changelist.xml".to_owned()));
    world.wait(5);
    let want = ["u /a/changelist.xml", "u /a/resourcelist.xml"];
    assert_eq!(world.served(TOPIC), want);
}

#[test]
fn a_pinged_topic_holds_all_that_a_dead_hub_is_due_however_long() {
    let mut world = World::with_two_sets(ping_hub()).with_down(HUB);
    world.update("/a/changelist.xml").wait(10_000);
    world.write_list("/a/new.xml", "changelist");
    world.script(HUB, Reply::Accept).wait(10_000);
    world.fetch(TOPIC);
    world.wait(100);
    let news = world.news();
    assert_eq!(news, ["u /a/changelist.xml", "c changelist /a/new.xml"]);
}

#[test]
fn a_pinged_topic_waits_for_no_hub() {
    let mut world = World::with_two_sets(ping_hub()).with_down(HUB);
    world.update("/a/changelist.xml").wait(100);
    let first = ["u /a/changelist.xml"];
    assert_eq!(world.served(TOPIC), first);
    let until = |world: &mut World| {
        Payload::parse(&world.fetch(TOPIC).unwrap().body)
            .unwrap()
            .until
    };
    let before = until(&mut world);
    world.wait(1_000);
    assert_eq!(until(&mut world), before, "nothing is new");
    world.update("/a/resourcelist.xml").wait(5);
    let both = [first[0], "u /a/resourcelist.xml"];
    assert_eq!(world.served(TOPIC), both);
    assert!(until(&mut world) > before);
    let before = until(&mut world);
    world.crash_and_start().wait(100);
    assert_eq!(until(&mut world), before, "nor after a restart");
    assert_eq!(world.served(TOPIC), both);

    // What is in flight was cut before, and is sent as it was; then the rest is.
    world.script(HUB, Reply::Accept).wait(1_000);
    world.fetch(TOPIC);
    world.expect(100, both);
    assert_eq!(world.served(TOPIC), both);
}

#[test]
fn what_is_on_its_way_is_served_first_and_then_what_is_due() {
    let mut world = World::with_two_sets(altered(ping_hub(), |plan| plan.window.max_entries = 2));
    for name in [SET_A, "/a/changelist.xml"] {
        world.update(name).wait(10);
        world.fetch(TOPIC);
        world.script(HUB, Reply::Status(503));
    }
    world.update("/a/resourcelist.xml").wait(10);
    let mut served = vec!["u /a/changelist.xml", "u /a/resourcelist.xml"];
    assert_eq!(world.served(TOPIC), served);
    // Newer than what flies of it.
    world.update("/a/changelist.xml").wait(10);
    served.reverse();
    assert_eq!(world.served(TOPIC), served);
}

#[test]
fn no_more_is_kept_of_what_was_announced_than_a_topic_can_repeat() {
    let mut world = World::with_two_sets(altered(ping_hub(), |plan| plan.window.max_entries = 3));
    for number in 0..10 {
        let name = format!("/a/c{number}.xml");
        world.write(&name, list("changelist").of("/a"));
        world.update("/a/changelist.xml").wait(100);
    }
    assert_eq!(world.most_said(), 3);
    assert_eq!(world.served("/a/framework/").len(), 3);
}

#[test]
fn an_unfetched_topic_is_reported_once_and_so_is_the_next_fetch() {
    let mut world = World::with_two_sets(ping_hub());
    let told = |world: &mut World| -> Vec<&str> {
        let told = world.facts().into_iter().filter_map(|fact| match fact {
            Fact::Unfetched { .. } => Some("silent"),
            Fact::Fetched {
                was_reported: true, ..
            } => Some("fetched"),
            _ => None,
        });
        told.collect()
    };
    let confirmed = |world: &World| world.account(TOPIC, HUB).unwrap().fetch_confirmed;
    for round in 0..2 {
        world.update("/a/changelist.xml").wait(10);
        assert_eq!(confirmed(&world), None, "it may still come");
        world.wait(100);
        assert_eq!(told(&mut world), ["silent"], "{round}");
        for _ in 0..3 {
            world.crash_and_start();
            world.update("/a/changelist.xml").wait(200);
            assert_eq!(confirmed(&world), Some(false));
        }
        assert_eq!(told(&mut world), NOTHING, "once, and not for each ping");
        world.crash_and_start();
        world.fetch(TOPIC);
        world.fetch(TOPIC);
        assert_eq!(told(&mut world), ["fetched"]);
        assert_eq!(confirmed(&world), Some(true));
    }
}
