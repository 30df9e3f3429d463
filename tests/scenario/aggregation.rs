//! Content of one notification, and the time when it is cut (R16, R18, R19, R21).

use std::time::Duration;

use announce::plan::Plan;

use crate::world::{HUB, NOTHING, Reply, SET_A, World, all_deletions, altered, index, list, plan};

#[test]
fn a_channel_is_announced_after_a_quiet_time() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(1);
    world.update("/a/resourcelist.xml").expect_nothing(1);
    world.wait(1);
    let heard = world.heard_by(HUB);
    assert_eq!(heard.len(), 1);
    let both = ["u /a/changelist.xml", "u /a/resourcelist.xml"];
    assert_eq!(heard[0].changes(), both);
}

#[test]
fn a_channel_that_is_never_quiet_is_announced_after_the_maximum_wait() {
    let mut world = World::with_two_sets(plan());
    for _ in 0..30 {
        assert_eq!(world.news(), NOTHING);
        world.update("/a/changelist.xml").wait(1);
    }
    assert_eq!(world.news(), ["u /a/changelist.xml"]);
    // Nor does a change in the very step in which its time has come put it off.
    for _ in 0..=30 {
        assert_eq!(world.news(), NOTHING);
        world.update("/a/changelist.xml").now += Duration::from_secs(1);
    }
    assert_eq!(world.news(), ["u /a/changelist.xml"]);
}

#[test]
fn without_a_window_it_announces_at_once() {
    let mut plan = plan();
    plan.window.quiet = Duration::ZERO;
    let mut world = World::with_two_sets(plan);
    world.update("/a/changelist.xml");
    assert_eq!(world.news(), ["u /a/changelist.xml"]);
    world.update("/a/changelist.xml");
    assert_eq!(world.news(), ["u /a/changelist.xml"]);
}

/// A set whose Change List Index names 20 components.
fn with_index(plan: Plan) -> World {
    let mut world = World::with_two_sets(plan);
    let names: Vec<String> = (0..20)
        .map(|number| format!("/a/c{number:02}.xml"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        world.pass(Duration::from_millis(10));
        world.write(name, list("changelist").index("/a/i.xml"));
    }
    world.write("/a/i.xml", index("changelist").of("/a").lists(&names));
    world.wait(10);
    world
}

#[test]
fn of_a_batch_under_one_index_the_newest_component_is_announced() {
    let mut world = with_index(plan());
    assert_eq!(world.news(), ["c changelist /a/c19.xml"]);
    // The others count as told.
    world.crash_and_start().expect_nothing(100);
    world.update("/a/c03.xml");
    world.expect(10, ["u changelist /a/c03.xml"]);
}

#[test]
fn every_component_is_announced_if_asked_for() {
    let mut plan = plan();
    plan.sources[0].announce_all_components = true;
    let mut world = with_index(plan);
    assert_eq!(world.news().len(), 20);
}

#[test]
fn components_that_differ_in_kind_are_announced_each() {
    let mut world = with_index(plan());
    world.news();
    world.update("/a/c03.xml").update("/a/c04.xml");
    world.write("/a/c20.xml", list("changelist").index("/a/i.xml"));
    let parts = index("changelist").lists(&["/a/c20.xml"]);
    world.write("/a/i.xml", parts.of("/a"));
    world.update("/a/changelist.xml");
    let parts = ["u changelist /a/c04.xml", "c changelist /a/c20.xml"];
    world.expect(10, [&parts[..], &["u /a/changelist.xml"]].concat());
}

#[test]
fn deleted_components_are_announced_each() {
    let mut world = with_index(all_deletions());
    world.delete("/a/c03.xml").delete("/a/c04.xml").news();
    world.expect(400, ["d changelist /a/c03.xml", "d changelist /a/c04.xml"]);
}

#[test]
fn a_file_s_own_time_counts_since_the_last_look_only() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    let downtime = world.now;
    world.wait(5).update("/a/changelist.xml").wait(1_000);
    world.start().wait(10);
    let heard = world.heard_by(HUB);
    let written = downtime + Duration::from_secs(5);
    assert_eq!(heard[0].payload.entries[0].datetime, Some(written));

    // Moved in with an old mtime: it changed when it was found.
    let found = world.now;
    world
        .unseen()
        .write_at("/a/changelist.xml", "2020-01-01T00:00:00Z");
    world.see("/a/changelist.xml").wait(10);
    let heard = world.heard_by(HUB);
    assert_eq!(heard[0].payload.entries[0].datetime, Some(found));
}

#[test]
fn a_deletion_is_dated_by_the_look_that_found_the_file_gone() {
    let mut world = World::with_two_sets(plan());
    let gone = world.now;
    world.delete(SET_A).wait(1_000);
    let heard = world.heard_by(HUB);
    assert_eq!(heard[0].payload.entries[0].datetime, Some(gone));
}

#[test]
fn what_does_not_fit_is_in_the_next_notification() {
    let mut world = World::with_two_sets(altered(plan(), |plan| plan.window.max_entries = 3));
    for number in 0..7 {
        let name = format!("/a/c{number}.xml");
        world.write(&name, list("changelist").of("/a"));
    }
    world.wait(100);
    let sizes: Vec<usize> = world
        .heard_by(HUB)
        .iter()
        .map(|heard| heard.changes().len())
        .collect();
    assert_eq!(sizes, [3, 3, 1]);
}

#[test]
fn a_notification_is_no_larger_than_it_may_be() {
    let mut world = World::with_two_sets(altered(plan(), |plan| plan.window.max_bytes = 1_500));
    for number in 0..20 {
        let name = format!("/a/c{number}.xml");
        world.write(&name, list("changelist").of("/a"));
    }
    world.wait(100);
    let heard = world.heard_by(HUB);
    assert!(heard.iter().all(|heard| heard.body.len() <= 1_500));
    assert!(heard.len() > 2);
    let changes: usize = heard.iter().map(|heard| heard.changes().len()).sum();
    assert_eq!(changes, 20);
}

#[test]
fn what_changes_again_while_much_is_told_is_told_once_and_as_it_is() {
    let mut plan = plan();
    plan.window.quiet = Duration::ZERO;
    plan.window.max_entries = 1;
    let mut world = World::new(plan);
    let names: Vec<String> = (10..50).map(|n| format!("/a/list{n}.xml")).collect();
    let listed: Vec<&str> = names.iter().map(String::as_str).collect();
    world.write(SET_A, list("capabilitylist").lists(&listed));
    for name in &names {
        world.write(name, list("changelist").of("/a"));
    }
    world.wait(10).start().script(HUB, Reply::Slow(3));
    for name in &names {
        world.update(name);
    }
    world.wait(30);
    let first = world.news();
    assert!(first.len() < 12, "{first:?}");
    world.update("/a/list22.xml");
    world.unseen().delete("/a/list23.xml");
    world.see("/a/list23.xml").wait(1_000);
    let mut all = first;
    all.extend(world.news());
    all.sort();
    let wanted = names.iter().filter(|name| !name.ends_with("23.xml"));
    let wanted: Vec<String> = wanted.map(|name| format!("u changelist {name}")).collect();
    assert_eq!(all, wanted);
}
