//! File systems below the root of a mount: what is missing with one that is not mounted is suspended, however little it is
//! (R15).

use announce::event::Fact;
use rsnotify::report::documents::DocumentState;

use crate::absence::{HOUR, NOTHING};
use crate::world::{Aside, SET_A, World, capability_list, list, plan};

const SUSPENDED: &str = "3 of 12 documents of main are missing, and the file system that held those below /srv/www/a is not \
     mounted there: their deletions are suspended until enough are back, or until you run `rsnotify accept main`";

/// Four sets in one mount, of which `/a` and `/b` lie on file systems of their own.
fn nested() -> World {
    let mut world = four_sets();
    world.nest("a", 21);
    world.nest("b", 22);
    baselined(world)
}

fn four_sets() -> World {
    let mut world = World::new(plan());
    for set in ["/a", "/b", "/c", "/d"] {
        world.write_set(set, &["resourcelist", "changelist"]);
    }
    world.wait(10);
    world
}

fn baselined(mut world: World) -> World {
    world.start().expect_nothing(100);
    world.facts();
    world
}

/// Tells of suspended deletions and their end, in the words of the log.
fn suspensions(world: &mut World) -> Vec<String> {
    let told = world.facts().into_iter().filter_map(|fact| match fact {
        Fact::Suspended(suspension) => Some(suspension.to_string()),
        Fact::Resumed { .. } => Some("resumed".to_owned()),
        _ => None,
    });
    told.collect()
}

fn suspension(world: &World) -> Option<String> {
    world.suspension(0).map(|suspension| suspension.to_string())
}

/// Unmounts the file system at a directory, and returns what it held.
fn unmount(world: &mut World, below: &str) -> Aside {
    world.unnest(below);
    world.take_away(&format!("/{below}/"))
}

#[test]
fn a_file_system_below_a_root_that_is_unmounted_deletes_nothing_few_as_its_documents_are() {
    let mut world = nested();
    for round in 0..2 {
        let aside = unmount(&mut world, "a");
        world.sweep(0).expect_nothing(10 * HOUR);
        assert_eq!(suspensions(&mut world), [SUSPENDED], "round {round}");
        assert_eq!(suspension(&world).as_deref(), Some(SUSPENDED));
        let state = world.state_of(SET_A);
        assert_eq!(state, Some(DocumentState::Missing));
        world.nest("a", 21 + round);
        world.bring_back(aside).sweep(0).expect_nothing(HOUR);
        assert_eq!(suspensions(&mut world), ["resumed"]);
        world.update("/a/changelist.xml");
        world.expect(10, ["u /a/changelist.xml"]);
    }
}

#[test]
fn a_file_system_that_is_unmounted_or_an_empty_one_while_the_daemon_is_down_deletes_nothing() {
    for is_other in [false, true] {
        let mut world = nested();
        world.crash();
        if is_other {
            world.nest("a", 77);
        } else {
            world.unnest("a");
        }
        let aside = world.take_away("/a/");
        for run in 0..3 {
            world.crash_and_start().wait(HOUR);
            world.sweep(0).wait(HOUR);
            let said = suspensions(&mut world);
            assert_eq!(said, [SUSPENDED], "said once in run {run}");
        }
        assert_eq!(world.news(), NOTHING);
        // It is mounted while the daemon runs.
        world.nest("a", 99);
        world.bring_back(aside).unseen().update("/a/changelist.xml");
        world.sweep(0).expect(HOUR, ["u /a/changelist.xml"]);
        assert_eq!(suspensions(&mut world), ["resumed"]);
    }
}

#[test]
fn while_one_file_system_is_away_what_is_deleted_elsewhere_is_believed() {
    let mut world = nested();
    drop(unmount(&mut world, "a"));
    world.sweep(0).wait(HOUR);
    for (set, name) in [
        ("b", "on the other file system"),
        ("c", "on the root's own"),
    ] {
        world.delete(&format!("/{set}/capabilitylist.xml"));
        world.wait(310);
        let deleted = format!("d /{set}/capabilitylist.xml");
        assert_eq!(world.news(), [deleted], "{name}");
    }
    world.update("/d/changelist.xml");
    world.expect(10, ["u /d/changelist.xml"]);
    assert!(world.remembers(SET_A));
    assert_eq!(suspensions(&mut world).len(), 1, "said once");
}

#[test]
fn what_is_deleted_on_a_mounted_file_system_or_beside_it_is_believed() {
    let mut world = nested();
    world.delete(SET_A).expect(310, ["d /a/capabilitylist.xml"]);
    drop(world.take_away("/c/"));
    world.sweep(0).expect(310, ["d /c/capabilitylist.xml"]);
    // All that a mounted file system held.
    for name in ["changelist", "resourcelist"] {
        world.delete(&format!("/a/{name}.xml"));
    }
    world.wait(310);
    assert!(!world.remembers("/a/changelist.xml"));
    assert_eq!(suspensions(&mut world), NOTHING);
}

#[test]
fn what_went_with_a_file_system_is_deleted_once_somebody_accepts() {
    let mut world = nested();
    drop(unmount(&mut world, "a"));
    world.sweep(0).wait(HOUR);
    world.crash_and_start().wait(HOUR);
    suspensions(&mut world);
    world.accept_deletions();
    world.expect(310, ["d /a/capabilitylist.xml"]);
    assert_eq!(suspensions(&mut world), ["resumed"]);
    world.sweep(0).crash();
    assert_eq!(world.nested_directories(), ["b"]);
    // What is written to the directory from then on is like anything else below the root.
    world.start();
    world.write_set("/a", &["changelist"]).wait(100).news();
    world.sweep(0);
    world.delete(SET_A).expect(310, ["d /a/capabilitylist.xml"]);
}

#[test]
fn what_was_deleted_while_its_file_system_was_away_has_its_grace_when_that_is_back() {
    let mut world = nested();
    let aside = unmount(&mut world, "a");
    world.sweep(0).wait(HOUR);
    world.nest("a", 21);
    world.bring_back(aside).unseen().delete(SET_A);
    world.sweep(0).expect_nothing(290);
    world.expect(20, ["d /a/capabilitylist.xml"]);
}

#[test]
fn a_file_written_below_a_bare_mount_point_makes_nobody_believe_the_others_gone() {
    let mut world = nested();
    drop(unmount(&mut world, "a"));
    world
        .unseen()
        .write("/a/changelist.xml", list("changelist").version(9));
    for _ in 0..2 {
        world.sweep(0).wait(HOUR);
        world.crash_and_start().wait(HOUR);
    }
    assert_eq!(world.news(), ["u /a/changelist.xml"]);
    assert!(world.remembers(SET_A));
    assert!(suspension(&world).unwrap().starts_with("2 of 12 documents"));
}

#[test]
fn a_release_link_to_another_file_system_and_back_disturbs_nothing() {
    let mut world = baselined(four_sets());
    for (round, device) in [(1, Some(31)), (2, Some(32)), (3, None)] {
        match device {
            Some(device) => world.link_out("a", device),
            None => world.unnest("a"),
        }
        world.unseen().update("/a/changelist.xml");
        world.sweep(0).wait(10);
        assert_eq!(world.news(), ["u /a/changelist.xml"], "round {round}");
    }
    // What a release lacks was deleted.
    world.link_out("a", 33);
    world.unseen().delete("/a/resourcelist.xml");
    world.sweep(0).wait(310);
    assert!(!world.remembers("/a/resourcelist.xml"));
    world.unnest("a");
    world.unseen().delete(SET_A);
    world.sweep(0).expect(310, ["d /a/capabilitylist.xml"]);
    assert_eq!(suspensions(&mut world), NOTHING);
}

#[test]
fn a_link_that_leads_to_nothing_any_more_deletes_nothing() {
    let mut world = four_sets();
    world.link_out("a", 31);
    let mut world = baselined(world);
    drop(unmount(&mut world, "a"));
    for _ in 0..2 {
        world.sweep(0).wait(HOUR).crash_and_start();
    }
    assert_eq!(world.news(), NOTHING);
    assert_eq!(suspension(&world).as_deref(), Some(SUSPENDED));
}

#[test]
fn what_another_file_system_hides_is_not_deleted() {
    let mut world = baselined(four_sets());
    let aside = world.take_away("/a/");
    world.nest("a", 41);
    let other = capability_list("/a", &["changedump"]);
    world.unseen().write(SET_A, other);
    for _ in 0..2 {
        world.sweep(0).wait(HOUR);
        world.crash_and_start().wait(HOUR);
    }
    assert_eq!(world.news(), ["u /a/capabilitylist.xml"]);
    assert!(world.remembers("/a/changelist.xml"));
    assert!(suspension(&world).unwrap().starts_with("2 of 12 documents"));
    world.unnest("a");
    world.bring_back(aside);
    world.sweep(0).expect(HOUR, ["u /a/capabilitylist.xml"]);
    assert_eq!(suspension(&world), None);
}

#[test]
fn the_documents_of_a_file_system_that_is_mounted_late_belong_to_it() {
    let mut world = baselined(four_sets());
    world.nest("e", 51);
    world.unseen().write_set("/e", &["changelist"]);
    world.sweep(0).wait(100).news();
    world.sweep(0);
    drop(unmount(&mut world, "e"));
    world.sweep(0).expect_nothing(HOUR);
    assert!(suspension(&world).is_some());
}

#[test]
fn a_file_system_that_went_before_anybody_was_told_of_it_deletes_nothing() {
    let mut world = baselined(four_sets());
    world.nest_gone("a", 21);
    drop(world.take_away("/a/"));
    world.sweep(0).expect_nothing(10 * HOUR);
    assert_eq!(suspensions(&mut world), [SUSPENDED]);
}

#[test]
fn nothing_of_a_file_system_is_believed_before_a_sweep_has_looked_for_it() {
    let mut plan = plan();
    plan.sources[0].deletion_grace = std::time::Duration::ZERO;
    let mut world = four_sets();
    world.plan = plan;
    world.nest("a", 21);
    let mut world = baselined(world);
    drop(unmount(&mut world, "a"));
    // As the tree tells of it: first that it is gone, then what is missing, one by one.
    world.tell_nested();
    for name in ["resourcelist", "changelist", "capabilitylist"] {
        world.see(&format!("/a/{name}.xml")).wait(1);
    }
    assert_eq!(world.news(), NOTHING);
    assert_eq!(suspensions(&mut world), NOTHING, "not before it is sure");
    world.sweep(0).expect_nothing(HOUR);
    assert_eq!(suspensions(&mut world), [SUSPENDED]);
}
