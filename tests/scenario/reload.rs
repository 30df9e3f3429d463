//! A new plan takes over during submissions: each change is announced once.

use announce::candidates::CandidateGlobs;
use announce::plan::PublishMode;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::world::{
    Doc, HUB, OTHER_HUB, Reply, SET_A, SET_B, World, list, mount, other_source, plan, set_hubs,
    two_hubs,
};

const UPDATED: [&str; 1] = ["u /a/changelist.xml"];

#[test]
fn what_is_under_way_is_not_submitted_again() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(20));
    world.update("/a/changelist.xml").wait(10);
    world.reload();
    world.update("/a/changelist.xml").wait(10);
    assert_eq!(world.attempts_at(HUB).len(), 1);
    world.wait(30);
    assert_eq!(world.attempts_at(HUB).len(), 1);
    assert_eq!(world.news(), [UPDATED[0], UPDATED[0]]);
}

#[test]
fn a_hub_that_returns_before_the_plan_without_it_has_settled_is_told() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(two_hubs());
        world.plan = plan();
        world.launch();
        if is_restarted {
            world.crash();
        }
        world.plan = two_hubs();
        world.start().wait(10);
        world.update("/a/changelist.xml").wait(10);
        assert_eq!(world.attempts_at(OTHER_HUB).len(), 1, "{is_restarted}");
    }
}

#[test]
fn what_a_plan_that_never_settled_made_known_is_forgotten() {
    let mut world = World::with_two_sets(two_hubs());
    world.write_set("/c", &["changelist"]).wait(100);
    let list = "/c/capabilitylist.xml";
    let wide = world.plan.clone();
    let globs = (vec!["**/*.xml".to_owned()], vec!["c/**".to_owned()]);
    world.plan.sources[0].candidates = CandidateGlobs::new(globs.0, globs.1).unwrap();
    let narrow = world.plan.clone();
    world.reload().wait(100);
    assert!(!world.remembers(list));
    // The wide plan sees it before its sweep has ended, and no more.
    world.plan = wide;
    world.launch().find_mount(0).update(list);
    assert!(world.remembers(list));
    world.plan = narrow;
    world.start().wait(100);
    assert!(!world.remembers(list));
}

#[test]
fn what_is_under_way_to_a_hub_that_is_removed_and_added_again_means_nothing() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(OTHER_HUB, Reply::Slow(60));
    world.update("/a/changelist.xml").wait(10);
    for plan in [plan(), two_hubs()] {
        world.plan = plan;
        world.reload().wait(5);
    }
    world.update("/a/changelist.xml").wait(200);
    let seqs: Vec<u64> = world
        .attempts_at(OTHER_HUB)
        .iter()
        .map(|heard| heard.seq)
        .collect();
    // The second goes to the other hub alone, because it has a `from` there.
    assert_eq!(seqs, [1, 3]);
}

/// A world in which the topic of `/a` retires, and a hub leaves that of `/b`, both with a change that is due.
fn world_with_due_changes(kept: Duration) -> World {
    let mut plan = two_hubs();
    plan.retired_topic = kept;
    let mut world = World::with_two_sets(plan).with_down(HUB);
    let list_of = |set: &str, topic: &str, hubs: &[&str]| {
        list("capabilitylist")
            .lists(&[&format!("{set}/changelist.xml")])
            .channel(topic, hubs)
    };
    world.update("/a/changelist.xml");
    world.update("/b/changelist.xml").wait(100);
    let list_of_a = list_of("/a", "/new/", &[]);
    world.write(SET_A, list_of_a);
    let list_of_b = list_of("/b", "/b/framework/", &[OTHER_HUB]);
    world.write(SET_B, list_of_b).wait(100);
    world
}

/// Returns whether the retired topic is served, and whether the hub that left has an account.
fn are_kept(world: &World) -> [bool; 2] {
    let is_served = world
        .topics()
        .iter()
        .any(|it| it.ends_with("/a/framework/"));
    [is_served, world.accounts_that_left() > 0]
}

#[test]
fn what_retired_ends_in_time_however_often_the_plan_changes() {
    let mut world = world_with_due_changes(Duration::from_secs(2 * 3_600));
    for _ in 0..3 {
        assert_eq!(are_kept(&world), [true; 2]);
        world.reload().wait(1_800);
    }
    for _ in 0..2 {
        world.reload().wait(1_800);
    }
    assert_eq!(are_kept(&world), [false; 2]);
}

/// A world of two sources, of which the first has another mount with a set whose channel retired.
fn world_with_a_retired_set() -> World {
    let mut plan = plan();
    plan.sources[0].mounts.push(mount("/srv/moving", MOVING));
    let other = other_source(&plan, "https://other.example.org/");
    plan.sources.push(other);
    let mut world = World::new(plan);
    world.write_set("/a", &["changelist"]);
    world.write(&format!("{MOVING}cl.xml"), list_of_moving());
    world.write(&format!("{MOVING}changes.xml"), changes_of_moving());
    world.write("https://other.example.org/cl.xml", list("capabilitylist"));
    world.wait(10).start().expect_nothing(100);
    world.delete(&format!("{MOVING}cl.xml")).wait(1_000).news();
    world
}

const MOVING: &str = "https://moving.example.org/";

fn list_of_moving() -> Doc {
    let list = list("capabilitylist").lists(&[&format!("{MOVING}changes.xml")]);
    list.channel(&format!("{MOVING}framework/"), &[])
}

fn changes_of_moving() -> Doc {
    list("changelist").up(&format!("{MOVING}cl.xml"))
}

#[test]
fn a_retired_channel_returns_in_the_source_that_has_its_set_now() {
    for is_restarted in [false, true] {
        let mut world = world_with_a_retired_set();
        let mount = world.plan.sources[0].mounts.pop().unwrap();
        world.plan.sources[1].mounts.push(mount);
        world.reload().wait(100);
        world.write(&format!("{MOVING}cl.xml"), list_of_moving().version(1));
        world.wait(100).news();
        let update = format!("u changelist {MOVING}changes.xml");
        world.script(HUB, Reply::Status(503));
        world.update(&format!("{MOVING}changes.xml")).wait(100);
        if is_restarted {
            world.crash_and_start().wait(100);
        }
        world.script(HUB, Reply::Accept).wait(10_000);
        assert_eq!(world.news(), [update.as_str()], "{is_restarted}");
    }
}

#[test]
fn the_last_notifications_are_remembered_with_what_became_of_them() {
    let mut world = World::with_two_sets(two_hubs());
    for _ in 0..3 {
        world.update("/a/changelist.xml").wait(10);
    }
    let before = world.remembered();
    assert_eq!(before.len(), 3);
    world.plan.window.quiet = Duration::from_secs(1);
    world.reload();
    assert_eq!(world.remembered(), before);
}

#[test]
fn what_is_in_flight_to_a_hub_that_is_pinged_from_now_on_is_on_the_topic_it_fetches() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(two_hubs());
        world.script(HUB, Reply::Status(405));
        for name in ["changelist", "resourcelist"] {
            world.update(&format!("/a/{name}.xml")).wait(10);
        }
        let hubs = [(HUB, PublishMode::Ping), (OTHER_HUB, PublishMode::Content)];
        set_hubs(&mut world.plan, &hubs);
        world.script(HUB, Reply::Accept);
        world.attempts_at(HUB);
        world.apply_plan(!is_restarted);
        let mut fetched = BTreeSet::new();
        for _ in 0..2_000 {
            if !world.attempts_at(HUB).is_empty() {
                fetched.extend(world.served("/a/framework/"));
            }
            world.wait(1);
        }
        let due = [UPDATED[0], "u /a/resourcelist.xml"];
        assert!(fetched.iter().eq(&due), "{fetched:?}");
    }
}
