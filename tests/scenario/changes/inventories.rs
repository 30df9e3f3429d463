//! Changes of sets without Change Lists, from their Resource Lists (C7, C11, C12, C27, C28, C29).

use std::fmt::Write;

use jiff::SignedDuration;

use announce::event::Fact;
use announce::finding::Finding;
use rstest::rstest;

use crate::changes::{LIST, TOPIC, set_a, time, told};
use crate::world::{Doc, NOTHING, SET_A, World, capability_list, plan};

const RESOURCES: &str = "/a/resourcelist.xml";
const MORE: &str = "/a/more.xml";

/// A Resource List of these resources, of which each has a hash.
fn resource_list(resources: impl Iterator<Item = (usize, u32)>) -> String {
    let mut xml = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:ln rel=\"up\" href=\"https://example.org/a/capabilitylist.xml\"/>\
         <rs:md capability=\"resourcelist\" at=\"2026-11-20T10:05:00Z\"/>"
        .to_owned();
    for (number, hash) in resources {
        write!(
            xml,
            "<url><loc>https://example.org/r/r{number}</loc><rs:md hash=\"md5:{hash}\"/></url>"
        )
        .unwrap();
    }
    xml + "</urlset>"
}

fn world() -> World {
    let mut plan = plan();
    plan.sources[0].changes_from_resource_lists = true;
    let mut world = World::new(plan);
    world.now = time("2026-11-20T10:06:00Z");
    world.write(SET_A, set_a(TOPIC, &[]));
    world
}

/// C7: no round of this run has seen its lists.
#[test]
fn a_list_that_was_deleted_for_good_is_told_when_it_comes_back_although_nothing_is_compared() {
    let mut world = world();
    world.write_changes(LIST, &["u a 01:00"]).wait(10);
    world.start().wait(60);
    world.crash_and_start().wait(60);
    world.delete(LIST).wait(1_000);
    assert_eq!(world.keys_of(LIST), (0, 0));
    world.write_changes(LIST, &["u a 01:00"]);
    world.expect_entries(60, ["u a 01:00"]);
}

#[test]
fn what_resource_lists_gain_and_lose_is_told() {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().expect_no_changes(60);
    write_hashes(&mut world, &[(0, 1), (1, 5), (3, 1), (4, 1)]);
    world.expect_no_changes(20);
    write_hashes(&mut world, &[(0, 1), (1, 2), (3, 1), (4, 1)]);
    world.expect_no_changes(29);
    world.expect_entries(3, ["u r1", "c r4"]);
    world.crash_and_start().expect_entries(400, ["d r2"]);
}

#[test]
fn the_lists_of_a_new_mount_are_learned_beside_what_others_gain() {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().wait(60);
    world.crash();
    world.add_mount("/srv/more", "https://more.example.org/");
    write_resources(&mut world, "https://more.example.org/a/more.xml", 4..8);
    write_hashes(&mut world, &[(0, 1), (1, 2), (2, 1), (3, 1), (9, 1)]);
    world.start().expect_entries(60, ["u r1", "c r9"]);
    // What nobody is to look at any more is not deleted.
    world.plan.sources[0].mounts.pop();
    world.reload().expect_no_changes(1_000);
    write_hashes(&mut world, &[(0, 1), (1, 3), (2, 1), (3, 1), (9, 1)]);
    world.expect_entries(60, ["u r1"]);
}

/// A world that was told of four resources, of which the lists lack the third now, for 40 s.
fn missing_one() -> World {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().wait(60);
    write_hashes(&mut world, &[(0, 1), (1, 1), (3, 1)]);
    world.expect_no_changes(70);
    world
}

#[rstest]
#[case::a_downtime_is_none_and_begins_it_anew(320, |world: &mut World| {
    world.crash().wait(600);
    world.set_clock(SignedDuration::from_hours(-24));
    world.start();
})]
#[case::a_clock_that_is_set_forward_ends_none(250, |world: &mut World| {
    world.set_clock(SignedDuration::from_hours(1));
})]
#[case::a_clock_that_is_set_back_prolongs_none(250, |world: &mut World| {
    world.set_clock(SignedDuration::from_hours(-1));
})]
#[case::a_reload_ends_none(250, |world: &mut World| {
    world.reload();
})]
fn of_the_grace_of_a_resource(#[case] seconds: u64, #[case] interrupt: fn(&mut World)) {
    let mut world = missing_one();
    interrupt(&mut world);
    world.expect_entries(seconds, NOTHING);
    world.expect_entries(60, ["d r2"]);
}

#[test]
fn time_without_the_list_is_no_grace_of_a_resource() {
    let mut world = missing_one();
    world.unmount(0).wait(3_600).remount(0, 1);
    write_hashes(&mut world, &[(0, 1), (1, 2), (3, 1)]);
    world.expect_entries(200, ["u r1"]); // its mount was absent
    world.unseen().delete(RESOURCES);
    world.see(RESOURCES).wait(200);
    write_hashes(&mut world, &[(0, 1), (1, 3), (3, 1)]);
    world.expect_entries(200, ["u r1"]); // it was missing itself
    world.expect_entries(140, ["d r2"]);
}

/// C29: the lists are seen whatever else cannot be read.
#[rstest]
fn a_directory_or_file_that_cannot_be_read_now_and_then_ends_no_grace_of_a_resource(
    #[values(true, false)] is_file: bool,
) {
    let mut world = missing_one();
    for _ in 0..10 {
        if is_file {
            world.write_text("/a/other.xml", b"<urlset").wait(200);
            world.delete("/a/other.xml");
        } else {
            world.deny_directories(&["a/temporary"]).wait(100);
            world.deny_directories(&[]);
        }
        world.wait(100);
    }
    assert_eq!(told(&mut world), ["d r2"]);
}

/// Writes resources, of which each has the hash 1.
fn write_resources(world: &mut World, name: &str, numbers: std::ops::Range<usize>) {
    let list = resource_list(numbers.map(|number| (number, 1)));
    world.write_text(name, list.as_bytes());
}

/// Writes resources with their hashes.
fn write_hashes(world: &mut World, resources: &[(usize, u32)]) {
    let list = resource_list(resources.iter().copied());
    world.write_text(RESOURCES, list.as_bytes());
}

fn compare_resource_lists(world: &mut World, is_wanted: bool) {
    world.plan.sources[0].changes_from_resource_lists = is_wanted;
}

#[test]
fn what_was_there_before_resource_lists_are_compared_is_not_told() {
    for is_reloaded in [true, false] {
        let mut world = world();
        compare_resource_lists(&mut world, false);
        write_resources(&mut world, RESOURCES, 0..4);
        world.start().wait(60);
        let turn = |world: &mut World, is_wanted| {
            compare_resource_lists(world, is_wanted);
            world.apply_plan(is_reloaded).wait(60);
            assert_eq!(told(world), NOTHING);
        };
        turn(&mut world, true);
        write_resources(&mut world, RESOURCES, 0..5);
        world.expect_entries(60, ["c r4"]);
        turn(&mut world, false);
        write_resources(&mut world, RESOURCES, 1..7);
        world.wait(60);
        turn(&mut world, true);
        world.expect_entries(400, NOTHING);
        write_resources(&mut world, RESOURCES, 1..8);
        world.expect_entries(60, ["c r7"]);
    }
}

#[test]
fn a_crash_while_a_large_inventory_is_learned_announces_nothing() {
    for is_switched_on in [false, true] {
        let mut world = world();
        world.reading = std::time::Duration::from_secs(5);
        write_resources(&mut world, RESOURCES, 0..30_000);
        write_resources(&mut world, MORE, 30_000..60_000);
        if is_switched_on {
            compare_resource_lists(&mut world, false);
            world.start().wait(60);
            compare_resource_lists(&mut world, true);
            world.reload();
        } else {
            world.wait(10).start();
        }
        // One round is over, and the next one is not.
        world.wait(38).crash_and_start().expect_no_changes(100);
    }
}

#[test]
fn a_first_resource_list_that_comes_late_is_learned() {
    let mut world = world();
    world.start().wait(100);
    write_resources(&mut world, RESOURCES, 0..4);
    world.expect_entries(60, NOTHING);
    write_resources(&mut world, RESOURCES, 0..5);
    world.expect_entries(60, ["c r4"]);
}

#[test]
fn a_change_list_that_comes_before_any_resource_list_is_told() {
    let mut world = world();
    world.start().wait(100).write_changes(LIST, &["u a 05:00"]);
    world.expect_entries(60, ["u a"]); // C11
}

#[test]
fn resource_lists_are_learned_when_the_only_change_list_is_gone() {
    let mut world = world();
    world.write_changes(LIST, &["u z 00:00"]).wait(10);
    world.start().wait(10);
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(60).delete(LIST).expect_entries(400, NOTHING);
    write_resources(&mut world, RESOURCES, 0..5);
    world.expect_entries(60, ["c r4"]);
    world.write_changes(LIST, &["u a 05:00"]);
    world.expect_entries(60, ["u a 05:00"]); // C11
    write_resources(&mut world, RESOURCES, 0..6);
    world.expect_entries(60, NOTHING); // it has a Change List
}

#[test]
fn a_change_list_that_is_not_listed_for_a_while_stays_known() {
    let mut world = world();
    let entries = ["u z 00:00", "u a 01:00"];
    world.write_text(LIST, without_up(&entries).as_bytes());
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().wait(60);
    world.write(SET_A, without_change_list()).wait(40);
    write_resources(&mut world, RESOURCES, 0..5);
    world.expect_entries(60, ["c r4"]); // they were learned
    world.write(SET_A, set_a(TOPIC, &[]));
    world.expect_entries(60, NOTHING);
    let grown = [&entries[..], &["u b 02:00"]].concat();
    world.write_text(LIST, without_up(&grown).as_bytes());
    world.expect_entries(10, ["u b"]);
}

/// The Capability List of `/a`, which lists its Resource List alone.
fn without_change_list() -> Doc {
    capability_list("/a", &["resourcelist"]).change_channel(TOPIC, &[])
}

/// A Change List that only a Capability List lists.
fn without_up(entries: &[&str]) -> String {
    let text = crate::world::change_list(SET_A, entries);
    let up = "<rs:ln rel=\"up\" href=\"https://example.org/a/capabilitylist.xml\"/>\n";
    text.replace(up, "")
}

#[test]
fn the_last_changes_of_change_lists_are_told_although_resource_lists_may_be_compared() {
    let mut world = world();
    world.write_text(LIST, without_up(&["u z 00:00"]).as_bytes());
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().wait(60);
    world.delete(SET_A).wait(299);
    world.write_text(LIST, without_up(&["u z 00:00", "u a 01:00"]).as_bytes());
    world.expect_entries(60, ["u a 01:00"]);
}

#[test]
fn the_last_changes_of_a_change_list_are_told_if_its_set_has_resource_lists_from_then_on() {
    let mut world = world();
    world.write_text(LIST, without_up(&["u z 00:00"]).as_bytes());
    world.wait(10).start().wait(10);
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(60);
    let up = capability_list("/a", &["resourcelist"]);
    let text = without_up(&["u z 00:00", "u a 10:00"]);
    let mut unseen = world.unseen();
    unseen.write(SET_A, up.change_channel("/a/moved/", &[]));
    unseen.write_text(LIST, text.as_bytes());
    drop(unseen);
    world.see_all([SET_A, LIST]).wait(60);
    write_resources(&mut world, RESOURCES, 0..5);
    world.wait(60);
    let heard = world.changes_heard_by(crate::world::HUB);
    let heard = heard.iter();
    let heard: Vec<String> = heard
        .map(|heard| format!("{} {}", heard.topic, heard.entries().join("; ")))
        .collect();
    assert_eq!(heard, ["/a/change/ u a 10:00", "/a/moved/ c r4"]);
}

#[test]
fn the_last_changes_of_resource_lists_are_told_on_the_old_topic() {
    let mut world = world();
    world.write(SET_A, without_change_list());
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().wait(60);
    world.delete(SET_A).wait(299);
    write_resources(&mut world, RESOURCES, 0..5);
    world.expect_entries(60, ["c r4"]);
}

#[test]
fn the_deletion_of_all_resource_lists_waits_for_the_operator() {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(10).start().wait(60);
    world.delete(RESOURCES).wait(800);
    for is_restarted in [false, true] {
        if is_restarted {
            world.crash_and_start().wait(800);
        }
        assert_eq!(told(&mut world), NOTHING);
        let found = world.entry_findings();
        let [Finding::MissingResources { missing, of, .. }] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((*missing, *of), (4, 4), "restarted: {is_restarted}");
    }
    world.accept_deletions().wait(60);
    let mut told = told(&mut world);
    told.sort();
    assert_eq!(told, ["d r0", "d r1", "d r2", "d r3"]);
    assert_eq!(world.entry_findings(), []);
    write_resources(&mut world, RESOURCES, 0..1);
    world.wait(60);
    assert_eq!(world.changes().len(), 1);
}

#[test]
fn one_confirmation_deletes_more_than_a_round_takes() {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..25_000);
    world.wait(10).start().wait(60);
    write_resources(&mut world, RESOURCES, 0..1);
    world.expect_no_changes(800);
    world.accept_deletions().wait(600);
    assert_eq!(told(&mut world).len(), 24_999);
}

/// C29: nobody confirmed what the round under way finds missing.
#[test]
fn a_confirmation_during_a_round_is_of_what_was_missing_before() {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..30);
    world.wait(10).start().wait(60);
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(800);
    world.reading = std::time::Duration::from_secs(100);
    write_resources(&mut world, RESOURCES, 0..3);
    world.wait(60);
    world.accept_deletions().wait(250);
    assert_eq!(told(&mut world).len(), 26);
    world.expect_entries(800, ["d r3"]);
}

/// C29: what is confirmed is counted first, and stays so if the daemon stops before it is said.
#[test]
fn a_confirmation_counts_what_it_confirms_and_no_restart_loses_it() {
    let mut world = world();
    write_resources(&mut world, RESOURCES, 0..30);
    world.wait(10).start().wait(60);
    write_resources(&mut world, RESOURCES, 0..4);
    world.wait(800);
    // As a command reads it while no daemon runs, and at a start.
    world.crash_and_start();
    let reader = world.engine().reader(world.now);
    let missing = rsnotify::report::sources::acceptable(&reader, 0).unwrap();
    assert_eq!(missing.documents, 0);
    assert_eq!(missing.sets, [(crate::changes::uri(SET_A), 26, 30)]);
    world.facts();
    world.accept_deletions();
    let accepted = world.facts().into_iter().find_map(|fact| match fact {
        Fact::Accepted {
            documents,
            resources,
            ..
        } => Some((documents, resources)),
        _ => None,
    });
    assert_eq!(accepted, Some((0, 26)));
    world.crash();
    // One more is missing now, which nobody confirmed.
    write_resources(&mut world.unseen(), RESOURCES, 0..3);
    world.start().wait(60);
    assert_eq!(told(&mut world).len(), 26);
    world.expect_entries(800, ["d r3"]); // after its grace
}
