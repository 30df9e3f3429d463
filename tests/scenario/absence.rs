//! Absent mounts, empty roots, and the grace of deletions (R13, R15).

mod nested;

use announce::event::Fact;
use announce::plan::Plan;
use jiff::SignedDuration;
use rsnotify::report::documents::DocumentState;

use crate::world::{
    NOTHING, SET_A, SET_B, World, capability_list, index, list, mount, plan, two_sources,
};

const DELETED: &str = "d /a/capabilitylist.xml";
const HOUR: u64 = 3_600;

/// Returns the facts about mounts that are absent.
fn lost(world: &mut World) -> Vec<String> {
    let lost = world.facts().into_iter().filter_map(|fact| match fact {
        Fact::MountLost { reason, .. } => Some(reason),
        _ => None,
    });
    lost.collect()
}

fn is_suspended(world: &World) -> bool {
    world.suspension(0).is_some()
}

/// One Capability List and some documents, in one mount.
fn small() -> World {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist", "changelist"]);
    world.wait(10).start().wait(100).facts();
    world
}

/// A source of three mounts with a set each.
fn three_mounts() -> World {
    let mut plan = plan();
    plan.sources[0].mounts = vec![
        mount("/srv/a", "https://example.org/a/"),
        mount("/srv/b", "https://example.org/b/"),
        mount("/srv/c", "https://example.org/c/"),
    ];
    let mut world = World::new(plan);
    for set in ["/a", "/b", "/c"] {
        world.write_set(set, &["resourcelist", "changelist"]);
    }
    world.wait(10).start().wait(100).facts();
    world
}

#[test]
fn an_empty_root_in_the_place_of_one_with_documents_is_an_absent_mount() {
    let mut world = small();
    let aside = world.take_away("/a/");
    world.remount(0, 99).expect_nothing(10 * HOUR);
    let why = "/srv/www: it is empty, and not the directory that held documents: is its file system mounted?";
    assert_eq!(lost(&mut world), [why]);
    assert_eq!(world.presence(), [Some(false)]);
    assert!(world.is_settled(), "it keeps nobody from being ready");
    let state = world.state_of(SET_A);
    assert_eq!(state, Some(DocumentState::Announced));
    world.accept_deletions().expect_nothing(HOUR); // what is away is never accepted

    world.bring_back(aside).remount(0, 2).expect_nothing(HOUR);
    world.update("/a/changelist.xml");
    world.expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn an_absent_mount_stays_so_over_restarts_and_sweeps() {
    let mut world = small();
    world.crash();
    let aside = world.take_away("/a/");
    world.set_root(0, 99);
    for _ in 0..3 {
        world.crash_and_start().wait(HOUR);
        world.sweep(0).wait(HOUR);
        assert_eq!(lost(&mut world).len(), 1, "said once in each run");
    }
    assert_eq!(world.news(), NOTHING);
    world.crash().bring_back(aside).update("/a/changelist.xml");
    // A file system may have another device number each time.
    world.set_root(0, 7);
    world.start().expect(HOUR, ["u /a/changelist.xml"]);
}

#[test]
fn a_daemon_that_starts_before_its_first_mount_is_up_takes_a_baseline_later() {
    let mut world = World::new(plan());
    world.start().wait(HOUR);
    world
        .unseen()
        .write_set("/a", &["resourcelist", "changelist"]);
    world.wait(10).remount(0, 99).expect_nothing(HOUR);
    world.update("/a/changelist.xml");
    world.expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn one_mount_of_three_is_away_and_the_others_go_on() {
    let mut world = three_mounts();
    let aside = world.take_away("/b/");
    world.remount(1, 99).wait(HOUR);
    assert_eq!(lost(&mut world).len(), 1);
    assert_eq!(world.presence(), [Some(true), Some(false), Some(true)]);
    assert!(!is_suspended(&world));
    world.delete("/c/capabilitylist.xml");
    world.update("/a/changelist.xml");
    world.expect(HOUR, ["u /a/changelist.xml", "d /c/capabilitylist.xml"]);
    world.bring_back(aside).remount(1, 2).expect_nothing(HOUR);
}

#[test]
fn one_mount_of_three_that_is_emptied_is_suspended_whatever_its_number() {
    let mut world = three_mounts();
    let aside = world.take_away("/b/");
    world.sweep(1).expect_nothing(10 * HOUR);
    let suspension = world.suspension(0).unwrap();
    assert_eq!((suspension.missing, suspension.of), (3, 9));
    world.crash_and_start();
    assert!(is_suspended(&world));
    world.expect_nothing(10 * HOUR).bring_back(aside);
    world.sweep(1).expect_nothing(10 * HOUR);
    assert!(!is_suspended(&world));
    // It is accepted like any mass deletion.
    drop(world.take_away("/b/"));
    world.sweep(1).wait(HOUR);
    world.accept_deletions();
    world.expect(10, ["d /b/capabilitylist.xml"]);
    assert!(!is_suspended(&world));
}

#[test]
fn a_release_that_takes_the_place_of_the_root_is_compared_with_it() {
    let mut world = small();
    world.replace_root(0, 99, |name| !name.ends_with("/changelist.xml"));
    assert_eq!(lost(&mut world), NOTHING);
    world.wait(299);
    assert!(world.remembers("/a/changelist.xml"), "it has its grace");
    world.wait(2);
    assert!(!world.remembers("/a/changelist.xml"));
    world.replace_root(0, 100, |name| !name.ends_with("/capabilitylist.xml"));
    world.expect_nothing(299).expect(10, [DELETED]);
}

/// A release is unpacked file by file, and seen meanwhile.
#[test]
fn what_is_found_before_the_sweep_of_another_root_ends_is_not_missing() {
    let mut world = small();
    world.set_root(0, 99);
    world.find_mount(0);
    let aside = world.take_away("/a/changelist.xml");
    world.see("/a/changelist.xml").bring_back(aside);
    world.update("/a/changelist.xml");
    world.sweep(0).expect(10, ["u /a/changelist.xml"]);
    world.expect_nothing(HOUR);
    assert!(world.remembers("/a/changelist.xml"));
}

#[test]
fn a_root_that_is_filled_after_it_was_empty_is_the_mount() {
    let mut world = small();
    drop(world.take_away("/a/"));
    world.remount(0, 99).wait(HOUR);
    assert_eq!(world.presence(), [Some(false)]);
    world.write_list("/a/new.xml", "changelist");
    assert_eq!(world.presence(), [Some(true)]);
    let state = world.state_of(SET_A);
    assert_eq!(state, Some(DocumentState::Missing), "it is looked for now");
    world.wait(250);
    let news = world.news();
    assert_eq!(news, ["c changelist /a/new.xml"]);
    world.expect(100, [DELETED]);
}

#[test]
fn a_root_with_something_else_below_it_is_a_tree_that_lost_its_documents() {
    let mut world = small();
    drop(world.take_away("/a/"));
    world.unseen().write_text("/pom.xml", b"<project/>");
    world.remount(0, 99).wait(HOUR);
    assert_eq!(world.presence(), [Some(true)]);
    assert!(is_suspended(&world));
    assert_eq!(world.news(), NOTHING);
}

#[test]
fn three_documents_that_are_all_missing_or_pages_now_are_suspended() {
    for is_page in [false, true] {
        let mut world = small();
        for name in ["capabilitylist", "resourcelist", "changelist"] {
            let name = format!("/a/{name}.xml");
            match is_page {
                true => world.write_text(&name, b"<html/>"),
                false => world.delete(&name),
            };
        }
        world.wait(10 * HOUR);
        assert!(is_suspended(&world), "{is_page}");
        assert_eq!(world.news(), NOTHING, "{is_page}");
        world.accept_deletions().expect(10, [DELETED]);
    }
}

#[test]
fn two_sources_know_nothing_of_each_others_mounts() {
    let mut world = World::new(two_sources("https://other.org/"));
    world.write_set("/a", &["changelist"]);
    world.write_set("https://other.org/b", &["changelist"]);
    world.wait(10).start().wait(100);
    drop(world.take_away("/a/"));
    world.remount(0, 99);
    world.delete("https://other.org/b/capabilitylist.xml");
    world.wait(HOUR);
    assert_eq!(world.news().len(), 1);
    assert_eq!(world.presence(), [Some(false), Some(true)]);
}

#[test]
fn documents_below_an_absent_mount_prove_nothing_of_the_others() {
    let mut plan: Plan = plan();
    plan.sources[0]
        .mounts
        .push(mount("/srv/more", "https://more.example.org/"));
    let mut world = World::new(plan);
    world.write_set("/a", &["changelist"]);
    for number in 0..30 {
        let more = format!("https://more.example.org/{number}.xml");
        world.write(&more, list("changelist").of("/a"));
        if number < 12 {
            let few = format!("/a/{number}.xml");
            world.write(&few, list("changelist").of("/a"));
        }
    }
    world.wait(10).start().wait(100);
    world.unmount(1);
    for number in 0..12 {
        world.delete(&format!("/a/{number}.xml"));
    }
    world.wait(HOUR);
    assert!(is_suspended(&world), "12 of 14 are missing, not of 44");
}

#[test]
fn the_grace_begins_anew_in_each_run() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A);
    for _ in 0..5 {
        world.wait(250);
        world.crash().wait(10 * HOUR).start().wait(40);
    }
    assert_eq!(world.news(), NOTHING);
    world.expect_nothing(255).expect(10, [DELETED]);
}

#[test]
fn the_grace_counts_only_while_the_tree_can_be_seen() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(250);
    world.unmount(0).wait(10 * HOUR);
    world.remount(0, 2).wait(250);
    world.deny(SET_A).wait(10 * HOUR);
    world.delete(SET_A).expect_nothing(290);
    world.expect(20, [DELETED]);
}

#[test]
fn a_capability_list_that_is_something_else_for_a_moment_is_not_deleted() {
    let something_else = [
        list("resourcelist").of("/a").render(),
        "<html xmlns=\"http://www.w3.org/1999/xhtml\"><body/></html>".to_owned(),
        list("description").render(),
        index("capabilitylist").render(),
    ];
    for content in something_else {
        let mut world = World::with_two_sets(plan());
        world.write_text(SET_A, content.as_bytes()).wait(100);
        world.update("/a/changelist.xml").wait(100);
        // The set goes on meanwhile.
        let news = world.news();
        assert_eq!(news, ["u /a/changelist.xml"], "{content}");
        let set = capability_list("/a", &["resourcelist", "changelist"]);
        world.write(SET_A, set.clone()).wait(1_000);
        assert_eq!(world.news(), NOTHING, "{content}");
        world.write_text(SET_A, content.as_bytes()).wait(100);
        world.write(SET_A, set.version(1)).wait(1_000);
        let news = world.news();
        assert_eq!(news, ["u /a/capabilitylist.xml"], "{content}");
    }
}

#[test]
fn a_page_in_the_place_of_a_capability_list_is_its_deletion_after_the_grace() {
    let mut world = World::with_two_sets(plan());
    world.write_text(SET_A, b"<html/>").wait(200);
    world.crash_and_start().expect_nothing(299);
    world.expect(10, [DELETED]);
}

#[test]
fn a_broken_file_after_a_page_is_not_the_list_that_was_there() {
    for is_page_gone in [false, true] {
        let mut world = World::with_two_sets(plan());
        world.break_off(SET_A).wait(10);
        assert_eq!(world.missing(), 0, "its last good version is kept");
        world.write_text(SET_A, b"<html/>").wait(10);
        assert_eq!(world.missing(), 1);
        if is_page_gone {
            world.delete(SET_A).wait(10);
        }
        world.write_text(SET_A, b"<urlset").wait(10);
        assert_eq!(world.missing(), 1, "{is_page_gone}");
        world.expect_nothing(1_000);
    }
}

#[test]
fn a_source_description_that_becomes_an_index_has_not_ended() {
    const NAME: &str = "/.well-known/resourcesync";
    let mut world = World::with_two_sets(plan());
    world.write(NAME, index("description").lists(&["/d.xml"]));
    world.wait(10);
    assert_eq!(world.state_of(NAME), Some(DocumentState::Silent));
    world.expect_nothing(10 * HOUR);
    world.crash_and_start().expect_nothing(10 * HOUR);
    let lists = [SET_A, SET_B];
    world.write(NAME, list("description").lists(&lists));
    world.expect_nothing(1_000); // it came back as it was
    world.write(NAME, index("description").lists(&["/d.xml"]));
    world.wait(10);
    world.delete(NAME).expect_nothing(250).wait(100);
    let deleted = "d description /.well-known/resourcesync";
    assert_eq!(world.news(), [deleted, deleted]);
}

#[test]
fn a_baseline_announces_nothing_whatever_the_file_systems_clock_says() {
    for by in [-86_400, -61, -60, 60, 61, 3_600] {
        let mut world = World::new(plan());
        world.write_set("/a", &["resourcelist", "changelist"]);
        world.wait(60).update("/a/resourcelist.xml").wait(1);
        // Our clock is set, and the file system's is not.
        world.set_clock(SignedDuration::from_secs(by));
        world.start().wait(100);
        assert_eq!(world.news(), NOTHING, "{by} s");
        world.set_clock(SignedDuration::from_secs(-by));
        world.update("/a/changelist.xml").wait(10);
        let news = world.news();
        assert_eq!(news, ["u /a/changelist.xml"], "{by} s");
    }
}

#[test]
fn a_clock_that_is_set_back_writes_nothing_but_the_time() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml");
    world.delete("/b/changelist.xml");
    let before = world.writes();
    world.set_clock(SignedDuration::from_hours(-5));
    assert_eq!(world.writes(), before + 1);
    world.expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn the_grace_goes_on_over_a_reload() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(200);
    world.plan.topic_window += std::time::Duration::from_secs(1);
    world.reload().expect_nothing(99).expect(10, [DELETED]);
}

#[test]
fn a_source_description_that_became_an_index_is_not_deleted_by_what_its_path_holds_for_a_moment() {
    const NAME: &str = "/.well-known/resourcesync";
    let mut world = World::with_two_sets(plan());
    world.write(NAME, index("description").lists(&["/d.xml"]));
    world.wait(1_000);
    for other in ["capabilitylist", "resourcelist"] {
        world.write(NAME, list(other)).wait(100);
        world.write(NAME, index("description").lists(&["/d.xml"]));
        world.expect_nothing(1_000);
    }
    world.write(NAME, list("capabilitylist")).wait(1_000);
    let deleted = "d description /.well-known/resourcesync".to_owned();
    assert!(world.news().contains(&deleted));
}
