//! Crashes lose no change and announce nothing false.

use crate::world::{HUB, Reply, SET_A, SET_B, World, list, plan};

const UPDATED: [&str; 1] = ["u /a/changelist.xml"];

/// R22: the hub took both changes, and its refusal to hear of them again is no proof that it did not.
#[test]
fn changes_that_a_hub_may_have_taken_before_it_refused_them_are_announced_again() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(5));
    let before = list("changelist").of("/a");
    world.write("/a/changelist.xml", before.clone().version(7));
    world.update("/a/resourcelist.xml").wait(3);
    assert_eq!(world.news().len(), 2);
    world.crash().script(HUB, Reply::AtMost(1));
    world.write("/a/changelist.xml", before).start();
    world.expect_sorted(HUB, 10, [UPDATED[0], "u /a/resourcelist.xml"]);
    world.crash_and_start().expect_nothing(10);
}

#[test]
fn a_crash_before_an_acceptance_is_saved_repeats_it() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Slow(5));
    world.update("/a/changelist.xml").wait(3);
    world.freeze();
    world.wait(10).crash().update("/a/resourcelist.xml");
    let repeated = [UPDATED[0], UPDATED[0], "u /a/resourcelist.xml"];
    world.start().expect(20, repeated);
    world.crash_and_start().expect_nothing(10);
}

#[test]
fn what_changed_while_it_was_down_is_announced() {
    let mut world = World::with_two_sets(plan());
    world.crash().update("/a/changelist.xml");
    world.write_list("/a/new.xml", "changelist");
    world.update("/.well-known/resourcesync");
    world.delete(SET_B).wait(10_000);
    world.start().wait(1_000);
    let news = world.news_by_topic();
    let described = "u description /.well-known/resourcesync";
    let of_a = [described, UPDATED[0], "c changelist /a/new.xml"];
    assert_eq!(news["/a/framework/"], of_a);
    let of_b = [described, "d /b/capabilitylist.xml"];
    assert_eq!(news["/b/framework/"], of_b);
}

#[test]
fn topics_are_served_before_any_tree_is_looked_at() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10).crash();
    world.launch();
    assert_eq!(world.served("/a/framework/"), UPDATED);
}

#[test]
fn a_structural_document_that_cannot_be_read_after_a_restart_stands() {
    let mut world = World::with_two_sets(plan());
    world.crash().break_off(SET_A).update("/a/changelist.xml");
    world.start().expect(1_000, UPDATED);
    world.write_capability_list("/a", &["resourcelist", "changelist"]);
    world.expect_nothing(1_000);
}
