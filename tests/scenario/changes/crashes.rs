//! Crashes, reloads and clocks: nothing is lost, and nothing is told twice but what a hub may not have heard (C8, C12,
//! C21).

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::changes::{LIST, SECOND, TOPIC, set_a, time, world_of};
use crate::world::{HUB, NOTHING, Reply, SET_A, World, capability_list, plan};

#[test]
fn a_crash_between_any_two_effects_loses_and_changes_nothing() {
    let mut bodies = BTreeSet::new();
    for effects in 0..40 {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(plan()).kept_in(directory.path());
        crate::changes::watch(&mut world, &["u z 00:00"]);
        world.freeze_after(effects);
        world.write_changes(LIST, &["u z 00:00", "u a 05:00", "d b 05:31"]);
        world.wait(10);
        let was_frozen = world.is_frozen();
        world.crash_and_start().wait(100);
        let heard = world.changes_heard_by(HUB);
        assert!(matches!(heard.len(), 1 | 2), "after {effects}: {heard:?}");
        bodies.extend(heard.into_iter().map(|heard| heard.body));
        world.write_changes(LIST, &["u z 00:00", "u a 05:00", "d b 05:31", "u c 06:00"]);
        world.expect_changes(100, ["[05:31, 06:00] u c 06:00"]);
        if !was_frozen {
            assert!(effects > 5);
            assert_eq!(bodies.len(), 1, "the same bytes");
            return;
        }
    }
    panic!("it never came to an end");
}

#[test]
fn a_crash_between_any_two_effects_of_a_start_announces_nothing() {
    for effects in 0..60 {
        let mut world = World::new(plan());
        world.now = time("2026-11-20T10:06:00Z");
        world.write_changes(LIST, &["u z 00:00"]);
        world.write(SET_A, set_a(TOPIC, &[])).wait(10);
        world.start_frozen_after(effects);
        world.wait(10);
        let was_frozen = world.is_frozen();
        world.crash_and_start().wait(100);
        assert_eq!(world.changes(), NOTHING, "after {effects}");
        world.write_changes(LIST, &["u z 00:00", "u a 05:00"]);
        world.expect_changes(10, ["[00:00, 05:00] u a 05:00"]);
        if !was_frozen {
            assert!(effects > 5);
            return;
        }
    }
    panic!("it never came to an end");
}

#[test]
fn a_crash_before_the_answer_repeats_the_same_bytes() {
    let mut world = world_of(plan());
    world.script(HUB, Reply::Hang);
    world.append(LIST, &["u a 05:00"]).wait(10);
    world.crash();
    world.append(LIST, &["u b 05:01"]);
    world.script(HUB, Reply::Accept);
    world.start().wait(10);
    let attempts = world.change_attempts_at(HUB);
    assert_eq!(attempts[0].body, attempts[1].body);
    let want = ["[00:00, 05:00] u a 05:00", "[05:00, 05:01] u b 05:01"];
    assert_eq!(world.changes(), want);
}

#[test]
fn the_last_changes_of_a_removed_advertisement_survive_a_crash_and_a_reload() {
    let restarts: [fn(&mut World) -> &mut World; 2] = [World::crash_and_start, World::reload];
    for restart in restarts {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(plan()).kept_in(directory.path());
        crate::changes::watch(&mut world, &["u z 00:00"]);
        world.reading = std::time::Duration::from_secs(5);
        world.write_changes(LIST, &["u z 00:00", "u a 05:00"]);
        world.wait(2);
        world.write(SET_A, capability_list("/a", &["changelist"]));
        world.wait(1);
        restart(&mut world);
        world.expect_changes(30, ["[00:00, 05:00] u a 05:00"]);
        world.write_changes(LIST, &["u z 00:00", "u a 05:00", "u b 05:01"]);
        world.wait(30);
        restart(&mut world);
        world.expect_no_changes(30); // these were the last changes
    }
}

#[test]
fn a_version_that_is_gone_before_it_is_read_is_waited_for() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00"]);
    world
        .unseen()
        .write_changes(LIST, &["u z 00:00", "u a 05:00", "u b 05:01"]);
    world.expect_no_changes(20);
    // It was asked for in vain several times, which delays a version that is seen now no more.
    world.see(LIST);
    world.expect_changes(1, ["[00:00, 05:01] u a 05:00; u b 05:01"]);
}

#[test]
fn a_version_that_is_seen_while_an_older_one_is_asked_for_is_told_at_once() {
    let mut world = world_of(plan());
    world.reading = std::time::Duration::from_secs(5);
    world.append(LIST, &["u a 05:00"]);
    world
        .unseen()
        .write_changes(LIST, &["u z 00:00", "u a 05:00", "u b 05:01"]);
    world.wait(2);
    world.see(LIST);
    world.expect_changes(9, ["[00:00, 05:01] u a 05:00; u b 05:01"]);
}

#[test]
fn a_clock_that_is_set_back_delays_nothing_and_repeats_nothing() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00"]);
    world.set_clock(SignedDuration::from_hours(-3)).wait(1);
    // By that clock all datetimes are ahead.
    assert_eq!(world.changes().len(), 1);
    world.append(LIST, &["u b"]).wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!(heard[0].entries(), ["u b"]);
    assert!(heard[0].payload.from < heard[0].payload.until);
    world.set_clock(SignedDuration::from_hours(3));
    world.write_changes(SECOND, &["u c 06:00"]).wait(1);
    assert_eq!(world.changes_heard_by(HUB)[0].entries(), ["u c 06:00"]);
}
