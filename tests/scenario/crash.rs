//! Crashes lose no change and announce nothing false.

use crate::world::{HUB, Reply, World, list, plan};

const NOTHING: [&str; 0] = [];
const UPDATED: [&str; 1] = ["updated changelist /a/changelist.xml"];

#[test]
fn a_crash_inside_the_window_loses_nothing() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml");
    world.wait(1);
    world.crash_and_start();
    world.wait(10);
    assert_eq!(world.news(), UPDATED);
}

#[test]
fn a_crash_before_anything_is_saved_loses_nothing() {
    let mut world = World::with_two_sets(plan());
    world.freeze();
    world.update("/a/changelist.xml");
    world.wait(10);
    assert_eq!(world.news(), NOTHING);
    world.crash_and_start();
    world.wait(10);
    assert_eq!(world.news(), UPDATED);
}

#[test]
fn a_crash_before_the_answer_repeats_the_same_bytes() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Hang);
    world.update("/a/changelist.xml");
    world.wait(10);
    world.crash();
    world.update("/a/resourcelist.xml");
    world.script(HUB, Reply::Accept);
    world.start();
    world.wait(10);
    let attempts = world.attempts_at(HUB);
    assert_eq!(attempts[0].body, attempts[1].body);
    assert_eq!(
        world.news(),
        [UPDATED[0], "updated resourcelist /a/resourcelist.xml"]
    );
}

/// R22: the hub took both changes, and its refusal to hear of them again is no proof that it did not.
#[test]
fn changes_that_a_hub_may_have_taken_before_it_refused_them_are_announced_again() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(5));
    let before = list("changelist").up("/a/capabilitylist.xml");
    world.write("/a/changelist.xml", before.clone().version(7));
    world.update("/a/resourcelist.xml");
    world.wait(3);
    assert_eq!(world.news().len(), 2);
    world.crash();
    world.script(HUB, Reply::AtMost(1));
    world.write("/a/changelist.xml", before);
    world.start();
    world.wait(10);
    let mut news = world.news();
    news.sort();
    assert_eq!(
        news,
        [UPDATED[0], "updated resourcelist /a/resourcelist.xml"]
    );
    world.crash_and_start();
    world.wait(10);
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn a_crash_before_an_acceptance_is_saved_repeats_it() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(5));
    world.update("/a/changelist.xml");
    world.wait(3);
    world.freeze();
    world.wait(10);
    world.crash_and_start();
    world.wait(10);
    assert_eq!(world.news(), [UPDATED[0], UPDATED[0]]);
    world.crash_and_start();
    world.wait(10);
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn what_changed_while_it_was_down_is_announced() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.update("/a/changelist.xml");
    world.write("/a/new.xml", list("changelist").up("/a/capabilitylist.xml"));
    world.update("/.well-known/resourcesync");
    world.delete("/b/capabilitylist.xml");
    world.wait(10_000);
    world.start();
    world.wait(1_000);
    let news = world.news_by_topic();
    assert_eq!(
        news["/a/framework/"],
        [
            "updated description /.well-known/resourcesync",
            "updated changelist /a/changelist.xml",
            "created changelist /a/new.xml",
        ]
    );
    assert_eq!(
        news["/b/framework/"],
        [
            "updated description /.well-known/resourcesync",
            "deleted capabilitylist /b/capabilitylist.xml"
        ]
    );
}

#[test]
fn topics_are_served_before_any_tree_is_looked_at() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml");
    world.wait(10);
    world.crash();
    world.launch();
    assert_eq!(world.served("/a/framework/"), UPDATED);
}

#[test]
fn a_structural_document_that_cannot_be_read_after_a_restart_stands() {
    let mut world = World::with_two_sets(plan());
    world.crash();
    world.break_off("/a/capabilitylist.xml");
    world.update("/a/changelist.xml");
    world.start();
    world.wait(1_000);
    assert_eq!(world.news(), UPDATED);
    world.write(
        "/a/capabilitylist.xml",
        crate::world::capability_list("/a", &["resourcelist", "changelist"]),
    );
    world.wait(1_000);
    assert_eq!(world.news(), NOTHING);
}
