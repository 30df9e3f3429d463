//! The operator confirms the deletions of a source: of the documents missing then, and of no others (R15).

use announce::event::Fact;
use rsnotify::report::documents::DocumentState;

use crate::world::{SET_A, SET_B, World, capability_list, list, plan, two_sources};

const DELETED: &str = "d /a/capabilitylist.xml";

/// One set with 42 documents.
pub fn large() -> World {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist"]);
    write_again(&mut world, 0..40);
    world.wait(10).start().wait(100).facts();
    world
}

pub fn write_again(world: &mut World, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let name = format!("/a/{number:02}.xml");
        world.write(&name, list("changelist").of("/a"));
    }
}

fn delete(world: &mut World, numbers: std::ops::Range<u32>) {
    for number in numbers {
        world.delete(&format!("/a/{number:02}.xml"));
    }
}

/// The Capability List and 22 others are missing: the source is suspended.
pub fn delete_most(world: &mut World) {
    world.delete(SET_A);
    delete(world, 0..22);
}

fn accepted(world: &mut World) -> Vec<usize> {
    let accepted = world.facts().into_iter().filter_map(|fact| match fact {
        Fact::Accepted { documents, .. } => Some(documents),
        _ => None,
    });
    accepted.collect()
}

#[test]
fn what_goes_missing_after_an_acceptance_is_not_accepted() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10);
    world.accept_deletions();
    assert_eq!(accepted(&mut world), [23]);
    delete(&mut world, 22..35);
    world.expect(10_000, [DELETED]);
    assert!(!world.remembers("/a/00.xml"));
    let suspension = world.suspension(0).unwrap();
    assert_eq!((suspension.missing, suspension.of), (13, 19));
    let state = world.state_of("/a/22.xml");
    assert_eq!(state, Some(DocumentState::Missing));
}

#[test]
fn a_deletion_is_accepted_before_its_grace_ends_and_counts_after() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10);
    world.accept_deletions();
    assert_eq!(world.suspension(0), None);
    world.expect_nothing(289);
    world.crash_and_start().expect_nothing(299); // the grace begins anew in each run
    world.expect(10, [DELETED]);
}

#[test]
fn an_accepted_document_that_returns_was_never_away() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10);
    world.accept_deletions();
    world.write_capability_list("/a", &["resourcelist"]);
    write_again(&mut world, 0..22);
    world.expect_nothing(1_000);
    delete_most(&mut world);
    world.expect_nothing(10_000); // it was accepted once, not for ever
}

#[test]
fn nothing_is_accepted_below_a_mount_that_is_away() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10_000).unmount(0);
    world.accept_deletions();
    assert_eq!(accepted(&mut world), Vec::<usize>::new());
    world.remount(0, 2).expect_nothing(10_000);
    world.accept_deletions();
    assert_eq!(accepted(&mut world), [23]);
    world.expect(10, [DELETED]);
}

#[test]
fn an_accepted_deletion_does_not_count_while_its_mount_is_away() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10);
    world.accept_deletions();
    world.unmount(0).expect_nothing(10_000);
    let fewer = capability_list("/a", &["resourcelist"]);
    world.unseen().write(SET_A, fewer);
    world.remount(0, 2).expect_nothing(10_000);
}

#[test]
fn an_acceptance_when_nothing_is_missing_does_nothing() {
    let mut world = large();
    world.accept_deletions();
    assert_eq!(accepted(&mut world), Vec::<usize>::new());
    delete_most(&mut world);
    world.expect_nothing(10_000);
}

#[test]
fn an_acceptance_is_about_one_source() {
    let mut world = World::new(two_sources("https://other.org/"));
    let sets = ["https://example.org", "https://other.org"];
    for set in sets {
        for part in ["a", "b"] {
            let name = format!("{set}/{part}/capabilitylist.xml");
            world.write(&name, list("capabilitylist"));
        }
    }
    let third = "https://example.org/c/capabilitylist.xml";
    world.write(third, list("capabilitylist")).wait(10).start();
    let delete_all = |world: &mut World, set: &str| {
        for part in ["a", "b"] {
            world.delete(&format!("{set}/{part}/capabilitylist.xml"));
        }
    };
    delete_all(&mut world, sets[1]);
    // A suspension is about one source, too.
    world.delete(third);
    world.expect(1_000, ["d /c/capabilitylist.xml"]);
    delete_all(&mut world, sets[0]);
    world.expect_nothing(10_000);
    world.accept_deletions();
    world.expect(10, [DELETED, "d /b/capabilitylist.xml"]);
    let suspended = [0, 1].map(|source| world.suspension(source).is_some());
    assert_eq!(suspended, [false, true]);
}

#[test]
fn each_channel_announces_its_own_end_when_all_capability_lists_are_accepted() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).delete(SET_B).expect_nothing(10_000);
    world.accept_deletions().wait(10);
    let news = world.news_by_topic().into_iter();
    assert_eq!(
        news.collect::<Vec<_>>(),
        ["a", "b"].map(|set| (
            format!("/{set}/framework/"),
            vec![format!("d /{set}/capabilitylist.xml")]
        ))
    );
    assert!(world.channels().iter().all(|channel| channel.is_retired));
}
