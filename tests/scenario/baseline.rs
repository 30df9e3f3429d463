//! The baseline of a tree (R13).

use announce::event::Fact;
use announce::plan::Plan;
use rstest::rstest;

use crate::world::{
    Aside, HUB, NOTHING, Reply, SET_A, SET_B, World, advertise, change_list, list, mount,
    other_source, plan, told,
};

fn existing() -> Plan {
    let mut plan = plan();
    plan.sources[0].announce_existing = true;
    plan
}

fn two_mounts() -> Plan {
    let mut plan = plan();
    plan.sources[0]
        .mounts
        .push(mount("/srv/more", "https://more.example.org/"));
    plan
}

const MORE: &str = "https://more.example.org/changelist.xml";

#[test]
fn all_that_exists_is_announced_if_asked_for() {
    let mut world = World::new(existing());
    world.write_set("/a", &["resourcelist", "changelist"]);
    world.wait(10).start();
    let all = ["capabilitylist", "changelist", "resourcelist"];
    world.expect_sorted(HUB, 10, all.map(|name| format!("c /a/{name}.xml")));
    let says_none = |fact: &Fact| matches!(fact, Fact::Baselined { .. });
    assert!(!world.facts().iter().any(says_none));
}

#[test]
fn a_change_during_the_first_sweep_is_announced() {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist", "changelist"]);
    world.wait(10).launch();
    world.find_mount(0).wait(1);
    // It is swept only after it was written.
    world.unseen().update("/a/changelist.xml");
    world.wait(1);
    world.sweep(0).expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn a_change_after_its_file_was_swept_is_announced_once_the_sweep_ends() {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist", "changelist"]);
    world.wait(10).launch().find_mount(0);
    world.touch("/a/resourcelist.xml").wait(1);
    world.update("/a/changelist.xml").expect_nothing(100); // a half-read tree is not believed
    world.sweep(0).wait(10);
    let mut news = world.news();
    news.sort();
    // Nobody can tell whether a file whose ctime lies within the sweep existed before it.
    assert_eq!(news, ["u /a/changelist.xml", "u /a/resourcelist.xml"]);
}

#[test]
fn a_candidate_unreadable_at_the_baseline_is_updated_later() {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist", "changelist"]);
    world.break_off("/a/resourcelist.xml").deny(SET_A).wait(10);
    world.start().expect_nothing(100);
    world.crash_and_start().wait(100);
    world.write_capability_list("/a", &["resourcelist", "changelist"]);
    world.write_list("/a/resourcelist.xml", "resourcelist");
    world.expect(10, ["u /a/capabilitylist.xml", "u /a/resourcelist.xml"]);
}

#[test]
fn a_crash_during_the_first_sweep_takes_the_baseline_again() {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist", "changelist"]);
    world.wait(10).launch().find_mount(0);
    world.touch("/a/resourcelist.xml");
    world.crash().wait(10).start().expect_nothing(100);
    world.update("/a/resourcelist.xml");
    world.expect(10, ["u /a/resourcelist.xml"]);
}

#[test]
fn a_mount_that_appears_late_is_a_baseline_of_its_own() {
    let mut world = World::new(two_mounts());
    world.write_set("/a", &["resourcelist"]);
    world.write(MORE, list("changelist").of("/a")).wait(10);
    world.unmount(1).start().wait(100);
    world.update("/a/resourcelist.xml");
    world.expect(10, ["u /a/resourcelist.xml"]);
    world.remount(1, 7).expect_nothing(100);
    world.update(MORE).expect(100, [format!("u {MORE}")]);
}

#[rstest]
fn a_capability_list_in_a_baseline_makes_nothing_new_elsewhere(#[values(0, 1)] position: usize) {
    let mut plan = plan();
    let other = other_source(&plan, "https://other.example.org/");
    plan.sources.insert(position, other);
    let mut world = World::new(plan);
    let set = "https://other.example.org/capabilitylist.xml";
    world.write_set("/a", &["resourcelist"]);
    world.write("/b/changelist.xml", list("changelist").up(set));
    world.write(set, list("capabilitylist")).wait(10);
    world.unmount(position).start().wait(100);
    world.remount(position, 7).expect_nothing(10_000);
    world.update("/b/changelist.xml");
    world.expect(100, ["u /b/changelist.xml"]);
}

#[test]
fn a_mount_lost_in_its_first_sweep_is_a_baseline_when_it_returns() {
    let mut world = World::new(two_mounts());
    world.write_set("/a", &["resourcelist"]);
    let index_name = "https://more.example.org/index.xml";
    let doc = crate::world::index("changelist").of("/a").lists(&[MORE]);
    world.write(index_name, doc);
    world.write(MORE, list("changelist")).wait(10).launch();
    world.find_mount(0).sweep(0).find_mount(1);
    world.see(MORE).unmount(1).wait(100);
    world.remount(1, 2).expect_nothing(100);
    world.update(MORE).expect(100, [format!("u {MORE}")]);
}

#[test]
fn a_lost_mount_deletes_nothing() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_B).wait(1);
    world.unmount(0).expect_nothing(10_000);
    world.write_capability_list("/b", &["resourcelist", "changelist"]);
    world.update("/a/changelist.xml").wait(10);
    world.remount(0, 2).expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn a_mount_lost_in_its_first_sweep_leaves_nothing_broken() {
    let mut world = World::new(plan());
    world.launch().find_mount(0).break_off("/a/half.xml");
    assert_eq!(world.troubles(), 1);
    world.unmount(0).wait(100);
    assert_eq!(world.troubles(), 0);
    assert!(!told!(world, Fact::Broken { .. }));
}

#[test]
fn a_sweep_is_remembered_by_its_start() {
    let mut world = World::with_two_sets(plan());
    world.find_mount(0);
    let started = world.now;
    world.wait(5).sweep(0);
    assert_eq!(world.sweeps(), [Some(started)]);
}

/// A daemon that has started while the directory of the set `/b` could not be read, and the files in it.
fn world_without_b(runs: usize) -> (World, Aside) {
    let mut world = World::new(plan());
    world.write_set("/a", &["changelist"]);
    world.write_set("/b", &["changelist"]).wait(10);
    let hidden = world.take_away("/b/");
    for _ in 0..runs {
        world.crash().launch().find_mount(0);
        world.deny_directories(&["b"]).sweep(0).wait(100);
    }
    assert_eq!(world.news(), NOTHING);
    (world, hidden)
}

#[test]
fn what_lies_below_a_directory_that_could_not_be_read_belongs_to_the_baseline() {
    for (runs, is_restarted) in [(1, false), (1, true), (2, false), (3, true)] {
        let (mut world, hidden) = world_without_b(runs);
        world.bring_back(hidden);
        if is_restarted {
            world.crash_and_start();
        } else {
            world.deny_directories(&[]).see(SET_B);
            world.see("/b/changelist.xml");
        }
        world.wait(100);
        assert_eq!(world.news(), NOTHING, "{runs} {is_restarted}");
        world.sweep(0).update("/b/changelist.xml");
        world.expect(100, ["u /b/changelist.xml"]);
        let new = list("changedump").of("/b");
        world.write("/b/new.xml", new);
        world.expect(100, ["c changedump /b/new.xml"]);
    }
}

/// As `chmod -R` and `chown -R` do: the ctime changes, and some files can be read only after their directory.
#[test]
fn mending_the_directory_and_its_files_announces_nothing() {
    let (mut world, hidden) = world_without_b(1);
    world.bring_back(hidden).deny_directories(&[]);
    world.unseen().touch(SET_B);
    world.see(SET_B);
    let text = list("changelist").of("/b");
    world.deny("/b/changelist.xml");
    world.write("/b/changelist.xml", text).expect_nothing(100);
    world.update("/b/changelist.xml");
    world.expect(100, ["u /b/changelist.xml"]).sweep(0);
    let new = list("changedump").of("/b");
    world.write("/b/new.xml", new);
    world.expect(100, ["c changedump /b/new.xml"]);
}

#[rstest]
fn what_was_read_below_such_a_directory_is_kept_until_the_next_sweep(
    #[values(false, true)] is_reload: bool,
    #[values(false, true)] is_denied_again: bool,
) {
    let (mut world, hidden) = world_without_b(1);
    world.bring_back(hidden).deny_directories(&[]).see(SET_B);
    world.see("/b/changelist.xml").wait(100);
    world.script(HUB, Reply::Status(503));
    for name in ["capabilitylist", "changelist"] {
        world.update(&format!("/b/{name}.xml")).wait(100);
    }
    if is_denied_again {
        world.deny_directories(&["b"]).sweep(0);
    }
    world.apply_plan(is_reload);
    world.script(HUB, Reply::Accept);
    world.expect(1_000, ["u /b/capabilitylist.xml", "u /b/changelist.xml"]);
}

#[test]
fn a_directory_that_can_never_be_read_is_no_other_configuration() {
    let (mut world, _) = world_without_b(2);
    assert!(world.is_as_configured());
    world.crash().launch();
    assert!(world.is_as_configured());
    world.plan.sources[0].candidates = crate::world::excluding(&["c/**"]);
    world.launch();
    assert!(!world.is_as_configured());
}

#[test]
fn what_is_new_below_a_directory_that_was_read_before_is_created() {
    let mut world = World::with_two_sets(plan());
    world.deny_directories(&["b"]).sweep(0);
    world.unseen().write_list("/b/new.xml", "changedump");
    world.wait(100).deny_directories(&[]).see("/b/new.xml");
    world.expect(100, ["c changedump /b/new.xml"]);
}

/// The files of a directory are read in order of their names, and not all in one step.
#[rstest]
fn a_component_below_such_a_directory_is_known_although_it_is_read_before_its_index(
    #[values("changelist", "resourcelist")] capability: &str,
    #[values(true, false)] is_of_the_set: bool,
) {
    let index = format!("/b/{capability}.xml");
    let component = format!("/b/{capability}-001.xml");
    let up = SET_A;
    let mut world = World::new(plan());
    let set = advertise("/a/framework/", &[]).change_channel("/a/change/", &[]);
    world.write_changes("/a/changes.xml", &["u z 00:00"]);
    let set = match is_of_the_set {
        true => set,
        false => set.lists(&[&index]),
    };
    world.write(up, set);
    let mut contents = crate::world::index(capability).lists(&[&component]);
    if is_of_the_set {
        contents = contents.up(up);
    }
    world.write(&index, contents);
    let text = match capability {
        "changelist" => change_list(&index, &["u a 01:00"]).replace("rel=\"up\"", "rel=\"index\""),
        _ => list(capability).index(&index).render(),
    };
    world.write_text(&component, text.as_bytes()).wait(10);
    let hidden = world.take_away("/b/");
    world.launch().find_mount(0).deny_directories(&["b"]);
    world.sweep(0).wait(100);
    assert_eq!((world.news(), world.changes()), (vec![], vec![]));
    world.bring_back(hidden).deny_directories(&[]);
    world.see(&component).see(&index).wait(10_000);
    assert_eq!((world.news(), world.changes()), (vec![], vec![]));
}
