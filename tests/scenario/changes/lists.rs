//! Change Lists that come, go and change what they are (C1, C4, C6, C7, C8, C10, C11, C13).

use announce::event::Fact;
use announce::finding::Finding;
use announce::steps::change_sets;
use jiff::SignedDuration;
use rstest::rstest;

use crate::changes::{LIST, SECOND, TOPIC, apart, set_a, told, watch, world_of, world_with};
use crate::world::{
    HUB, NOTHING, SET_A, SET_B, World, capability_list, change_list, index, list, mount, plan, uri,
};

const FOREIGN: &str = "https://more.example.org/a/changelist.xml";

#[test]
fn the_lists_of_a_new_mount_are_learned_and_those_that_join_later_are_told() {
    for is_interrupted in [false, true] {
        let mut world = world_of(plan());
        world.crash();
        world.add_mount("/srv/more", "https://more.example.org/");
        world.write_changes_of(FOREIGN, SET_A, &["u a 01:00"]);
        world.start();
        if is_interrupted {
            world.crash_and_start();
        }
        world.expect_no_changes(10);
        let later = "https://more.example.org/a/later.xml";
        world.write_changes_of(later, SET_A, &["u a 01:00", "u b 02:00"]);
        world.expect_changes(1, ["[00:00, 02:00] u b 02:00"]);
        world.write_changes_of(FOREIGN, SET_A, &["u a 01:00", "u c 03:00"]);
        world.expect_changes(1, ["[02:00, 03:00] u c 03:00"]);
    }
}

/// Writes an archived list, whose archive is there.
fn write_archived(world: &mut World, name: &str, entries: &[&str]) {
    let text = change_list(SET_A, entries).replace("rel=\"up\"", "rel=\"index\"");
    let text = text.replace(SET_A, "/a/archive.xml");
    world.write_text(name, text.as_bytes());
}

/// A world with an archive of two lists, which are not there yet.
fn with_archive() -> World {
    let mut world = world_of(plan());
    let archive = index("changelist-archive");
    let archive = archive.up(SET_A).lists(&["/a/old.xml", "/a/older.xml"]);
    world.write("/a/archive.xml", archive).wait(10);
    world
}

#[test]
fn what_is_archived_before_another_list_has_it_is_told() {
    for is_interrupted in [false, true] {
        let mut world = with_archive();
        write_archived(&mut world, "/a/old.xml", &["u z 00:00", "u a 01:00"]);
        world.wait(200);
        if is_interrupted {
            world.crash_and_start().wait(200);
        }
        world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
        world.expect_changes(10, ["[00:00, 01:00] u a 01:00"]);
        world.wait(1_000).touch(LIST);
        world.write_changes(LIST, &["u z 00:00"]).wait(1_000);
        world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
        world.expect_no_changes(10); // the archive has it
        assert_eq!(world.keys_of("/a/old.xml"), (2, 0));
    }
}

#[test]
fn what_is_archived_alone_counts_as_taken_after_a_grace_and_is_reported() {
    let mut world = with_archive();
    write_archived(&mut world, "/a/old.xml", &["u z 00:00", "u a 01:00"]);
    write_archived(&mut world, "/a/older.xml", &["u y 2026-11-19T10:00:00Z"]);
    world.wait(290);
    assert_eq!(world.keys_of("/a/old.xml"), (1, 0));
    // A round that reads other lists.
    world.write_changes(SECOND, &["u b 00:30"]);
    world.expect_changes(30, ["[00:00, 00:30] u b 00:30"]);
    assert_eq!(world.keys_of("/a/old.xml"), (2, 0));
    assert_eq!(world.keys_of("/a/older.xml"), (1, 0));
    let untold = world.facts().into_iter().filter_map(|fact| match fact {
        Fact::ArchivedUntold { list, count, .. } => Some((list, count)),
        _ => None,
    });
    assert_eq!(untold.collect::<Vec<_>>(), [(uri("/a/old.xml"), 1)]);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.expect_no_changes(10);
}

#[test]
fn a_list_that_becomes_an_index_is_told_no_more_than_its_components_add() {
    let mut world = world_with(plan(), &["u z 00:00", "u a 01:00"]);
    let parts = index("changelist").lists(&["/a/part-1.xml", "/a/part-2.xml"]);
    world.write(LIST, parts.up(SET_A));
    world.write_changes("/a/part-1.xml", &["u z 00:00", "u a 01:00"]);
    world.write_changes("/a/part-2.xml", &["u b 02:00"]);
    world.expect_changes(10, ["[01:00, 02:00] u b 02:00"]);
    world.wait(1_000);
    world.append("/a/part-2.xml", &["u c 03:00"]);
    world.expect_changes(10, ["[02:00, 03:00] u c 03:00"]);
    // And its own keys are forgotten.
    assert_eq!(world.keys_of(LIST), (0, 0));
}

#[test]
fn the_components_of_a_change_list_index_are_told() {
    let mut world = world_of(plan());
    let list = index("changelist").up(SET_A).lists(&["/a/part.xml"]);
    world.write("/a/index.xml", list).wait(1);
    let text = change_list(SET_A, &["u a 01:00"]).replace("rel=\"up\"", "rel=\"index\"");
    let text = text.replace(SET_A, "/a/index.xml");
    world.write_text("/a/part.xml", text.as_bytes());
    world.expect_changes(100, ["[00:00, 01:00] u a 01:00"]);
}

#[test]
fn a_list_that_was_deleted_for_good_is_told_when_it_comes_back() {
    let mut world = world_with(plan(), &["u z 00:00", "u a 01:00"]);
    // Another one, so that this is no mass deletion.
    world.write_changes(SECOND, &["u s 01:00"]).wait(10);
    world.changes();
    world.delete(LIST).wait(200);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.expect_no_changes(100); // it is within its grace
    world.delete(LIST).wait(1_000);
    assert_eq!(world.keys_of(LIST), (0, 0));
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.expect_changes(10, ["[01:00.000001, 01:00.000003] u z; u a 01:00"]);
}

#[test]
fn what_vanished_is_forgotten_after_the_grace_and_not_by_a_downtime() {
    type Interruption = fn(&mut World);
    let interruptions: [(&str, Interruption); 3] = [
        ("a downtime", |world| {
            world.crash().wait(4_000).start();
        }),
        ("an absent mount", |world| {
            world.unmount(0).wait(4_000).remount(0, 1);
        }),
        ("none", |_| {}),
    ];
    for (name, interrupt) in interruptions {
        for (seconds, want) in [(100, &[][..]), (400, &["u a 01:00"])] {
            let mut world = world_with(plan(), &["u z 00:00", "u a 01:00"]);
            world.write_changes(LIST, &["u z 00:00"]).wait(10);
            assert_eq!(world.keys_of(LIST), (1, 1));
            interrupt(&mut world);
            world.wait(seconds);
            world.append(LIST, &["u a 01:00"]).wait(10);
            assert_eq!(told(&mut world), want, "{name}, {seconds} s");
        }
    }
}

#[test]
fn what_vanished_is_not_forgotten_while_its_mount_is_away_and_others_change() {
    let mut world = World::new(plan());
    world.add_mount("/srv/more", "https://more.example.org/");
    world.write_changes_of(FOREIGN, SET_A, &["u a 01:00"]);
    watch(&mut world, &["u z 00:00"]);
    world
        .write_changes_of(FOREIGN, SET_A, &["u y 00:00"])
        .wait(10);
    world.unmount(1);
    world.write_changes(LIST, &["u z 00:00", "u b 02:00"]);
    world.wait(400);
    world.write_changes(LIST, &["u z 00:00", "u b 02:00", "u c 03:00"]);
    world.wait(10);
    world
        .unseen()
        .write_changes_of(FOREIGN, SET_A, &["u a 01:00", "u y 00:00"]);
    world.remount(1, 1);
    world.expect_entries(10, ["u y", "u b 02:00", "u c 03:00"]);
    world
        .write_changes_of(FOREIGN, SET_A, &["u y 00:00"])
        .wait(10);
    world.write_changes(LIST, &["u z 00:00", "u b 02:00"]);
    world.wait(400).write_changes(LIST, &["u z 00:00"]).wait(10);
    world.write_changes_of(FOREIGN, SET_A, &["u a 01:00", "u y 00:00"]);
    world.expect_entries(10, ["u a"]); // its mount is back
}

#[test]
fn what_vanished_is_forgotten_although_newer_versions_overtake_some_reads() {
    let mut world = world_with(plan(), &["u z 00:00", "u a 01:00"]);
    world.write_changes(LIST, &["u z 00:00"]).wait(10);
    for minute in 2..10 {
        let entry = |second: u32| format!("u b {minute:02}:{second:02}");
        let (first, second) = (entry(0), entry(1));
        world.write_changes(LIST, &["u z 00:00", &first]);
        world
            .unseen()
            .write_changes(LIST, &["u z 00:00", &first, &second]);
        world.wait(2).see(LIST).wait(98);
    }
    // Fifteen vanished, and those of the last five minutes are remembered.
    let (_, vanished) = world.keys_of(LIST);
    assert!((1..10).contains(&vanished), "{vanished}");
}

#[test]
fn a_document_that_is_no_change_list_for_a_moment_keeps_its_keys_when_the_clock_is_set() {
    let mut world = world_with(plan(), &["u z 00:00", "u a 01:00"]);
    let list = index("changelist").up(SET_A).lists(&["/a/part.xml"]);
    world.write(LIST, list).wait(10);
    world.set_clock(SignedDuration::from_hours(1)).wait(100);
    assert_eq!(world.keys_of(LIST), (2, 0));
    world.wait(300);
    assert_eq!(world.keys_of(LIST), (0, 0));
}

#[test]
fn very_many_changes_are_taken_in_several_rounds_with_a_crash_between_two() {
    let mut world = world_of(plan());
    world.reading = std::time::Duration::from_secs(1);
    world.write_changes(LIST, &apart(45_000, 5));
    world.pass(std::time::Duration::from_millis(1_500));
    world.crash().start().wait(20);
    let heard = world.changes_heard_by(HUB);
    let numbers: Vec<u64> = heard.iter().map(|heard| heard.seq).collect();
    assert_eq!(numbers, (1..=45).collect::<Vec<_>>());
    let mut pairs = heard.windows(2);
    assert!(pairs.all(|pair| pair[0].payload.until == pair[1].payload.from));
    let entries = heard.iter().flat_map(|heard| heard.entries());
    let entries: Vec<String> = entries.collect();
    for (number, entry) in entries.iter().enumerate() {
        assert!(entry.starts_with(&format!("u r{number} ")), "{entry}");
    }
    assert_eq!(entries.len(), 45_000);
    assert_eq!(world.keys_of(LIST), (45_000, 1));
}

#[test]
fn a_version_that_is_back_while_another_is_read_is_taken_again() {
    let mut world = world_of(plan());
    world.reading = std::time::Duration::from_secs(1);
    world.append(LIST, &["u a 01:00"]);
    world.pass(std::time::Duration::from_millis(500));
    world.write_changes(LIST, &["u z 00:00"]);
    world.expect_changes(100, ["[00:00, 01:00] u a 01:00"]);
    assert_eq!(world.keys_of(LIST), (1, 1), "one has vanished");
}

#[test]
fn a_change_of_several_lists_is_told_as_the_first_by_uri_has_it() {
    let mut world = world_of(plan());
    for (name, length) in [(SECOND, 7), (LIST, 5)] {
        let text = change_list(SET_A, &["u z 00:00", "u a 01:00"]);
        let with_length = format!("01:00Z\" length=\"{length}\"");
        world.write_text(name, text.replace("01:00Z\"", &with_length).as_bytes());
    }
    let told = &world.wait(10).changes_heard_by(HUB)[0].payload.entries;
    assert_eq!((told.len(), told[0].length), (1, Some(5)));
}

#[test]
fn a_list_of_two_sets_is_told_on_both_channels() {
    let mut world = world_of(plan());
    let second = capability_list("/b", &[])
        .lists(&[LIST])
        .change_channel("/b/change/", &[]);
    world.write(SET_B, second).expect_no_changes(10);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(1);
    let mut told = world.changes_by_topic();
    told.sort();
    let same = "[00:00, 01:00] u a 01:00";
    let want = ["/a", "/b"].map(|set| format!("{set}/change/ {same}"));
    assert_eq!(told, want);
}

#[test]
fn a_list_that_cannot_be_read_delays_no_other() {
    let mut world = world_of(plan());
    world.crash();
    world.add_mount("/srv/more", "https://more.example.org/");
    world.write_changes_of(FOREIGN, SET_A, &["u z 00:00"]);
    world.start().wait(10);
    world.write_changes_of(FOREIGN, SET_A, &["u z 00:00", "u a 01:00"]);
    world.unmount(1);
    world.append(LIST, &["u b 02:00"]);
    world.expect_changes(100, ["[00:00, 02:00] u b 02:00"]);
    world.remount(1, 2);
    world.expect_changes(100, ["[02:00, 02:00.000001] u a"]);
}

#[rstest]
#[case::its_mount_is_lost("[00:00, 02:00] u a 01:00; u b 02:00", |world: &mut World| {
    world.unmount(0).wait(10_000);
    world.unseen().append(LIST, &["u b 02:00"]);
    world.remount(0, 2);
})]
#[case::it_is_away("[00:00, 01:00] u a 01:00", |world: &mut World| {
    let aside = world.take_away(LIST);
    world.see(LIST).expect_no_changes(10).bring_back(aside);
    world.see(LIST);
})]
#[case::a_sweep_begins("[00:00, 01:00] u a 01:00", |world: &mut World| {
    world.find_mount(0).wait(60).sweep(0);
})]
fn what_a_list_gained_is_told_later_if_before_it_is_read(
    #[case] want: &str,
    #[case] interrupt: fn(&mut World),
) {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 01:00"]);
    interrupt(&mut world);
    world.expect_changes(100, [want]);
}

#[test]
fn a_list_that_is_broken_off_silences_no_other() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 01:00"]);
    let whole = change_list(SET_A, &["u z 00:00", "u a 01:00", "u b 02:00"]);
    world.write_text(LIST, &whole.as_bytes()[..whole.len() - 20]);
    world.wait(1).write_changes(SECOND, &["u c 03:00"]);
    world.expect_changes(10, ["[00:00, 03:00] u c 03:00"]);
    world.append(SECOND, &["u d 04:00"]);
    world.expect_changes(3_600, ["[03:00, 04:00] u d 04:00"]);
    world.write_text(LIST, whole.as_bytes());
    // As if it was published now.
    world.expect_changes(1, ["[04:00, 04:00.000002] u a; u b"]);
}

#[test]
fn a_list_that_is_written_all_the_time_silences_no_other() {
    let mut world = world_of(plan());
    world.reading = std::time::Duration::from_secs(1);
    for number in 0..19 {
        let name = format!("/a/list-{number}.xml");
        world.write_changes(&name, &[format!("u list{number} 01:00")]);
    }
    let mut entries = vec!["u z 00:00".to_owned()];
    for number in 0..100 {
        entries.push(format!("u hot{number} 02:{:02}", number / 2));
        world.write_changes(LIST, &entries);
        // The next version is there before this one is read.
        world.unseen().write_changes(LIST, &entries);
        world.pass(std::time::Duration::from_millis(300));
    }
    let heard = world.changes_heard_by(HUB);
    let told = heard.iter().flat_map(|heard| heard.entries());
    assert_eq!(told.filter(|entry| entry.contains("list")).count(), 19);
}

#[test]
fn a_list_that_cannot_be_read_is_learned_when_it_can() {
    let mut world = World::new(plan());
    world.now = crate::changes::time("2026-11-20T10:06:00Z");
    world.write_changes(SECOND, &["u z 00:00"]);
    world.write(SET_A, capability_list("/a", &["changelist"]));
    world.write_changes(LIST, &["u a 01:00"]).wait(10).start();
    let whole = change_list(SET_A, &["u a 01:00", "u b 02:00"]);
    world.write_text(LIST, &whole.as_bytes()[..whole.len() - 20]);
    world.write(SET_A, set_a(TOPIC, &[])).wait(10);
    world.write_changes(SECOND, &["u z 00:00", "u c 03:00"]);
    world.expect_changes(10, ["[00:00, 03:00] u c 03:00"]);
    world.crash_and_start().wait(10);
    world.write_text(LIST, whole.as_bytes());
    world.expect_no_changes(10);
    world.write_changes(LIST, &["u a 01:00", "u b 02:00", "u d 04:00"]);
    world.expect_changes(10, ["[03:00, 04:00] u d 04:00"]);
}

/// C10: a start is ready once what is there was learned.
#[rstest]
fn a_start_waits_for_a_list_that_changes_while_it_is_read_unless_it_cannot_be_read(
    #[values(true, false)] is_alone: bool,
    #[values(true, false)] is_mended: bool,
) {
    let mut world = World::new(plan());
    world.now = crate::changes::time("2026-11-20T10:06:00Z");
    if !is_alone {
        world.write_changes(SECOND, &["u z 00:00"]);
    }
    world.write_changes(LIST, &["u a 01:00"]);
    world.write(SET_A, capability_list("/a", &["changelist"]));
    world.wait(10).start();
    let text = change_list(SET_A, &["u a 01:00", "u b 02:00"]);
    let lacking = if is_mended { 0 } else { 20 };
    let text = &text.as_bytes()[..text.len() - lacking];
    world.unseen().write_text(LIST, text);
    world.write(SET_A, set_a(TOPIC, &[]));
    let is_learning = |world: &World| change_sets::is_learning(world.db()).unwrap();
    for _ in 0..2 {
        world.wait(2);
        assert!(is_learning(&world), "it was asked for once");
        world.see(LIST).wait(10);
        assert!(!is_learning(&world));
        world.wait(1_000);
        assert!(!is_learning(&world));
        world.crash_and_start();
        if is_mended {
            return;
        }
    }
}

/// C8, C10: each list was asked for in vain once only.
#[test]
fn a_start_waits_for_lists_that_change_by_turns_while_they_are_read() {
    let mut world = World::new(plan());
    world.now = crate::changes::time("2026-11-20T10:06:00Z");
    world.write_changes(LIST, &["u a 01:00"]);
    world.write_changes(SECOND, &["u b 01:00"]);
    world.write(SET_A, capability_list("/a", &["changelist"]));
    world.wait(10).start();
    let is_learning = |world: &World| change_sets::is_learning(world.db()).unwrap();
    world
        .unseen()
        .write_changes(LIST, &["u a 01:00", "u a 02:00"]);
    world.write(SET_A, set_a(TOPIC, &[])).wait(1).see(LIST);
    world
        .unseen()
        .write_changes(SECOND, &["u b 01:00", "u b 02:00"]);
    world.wait(1);
    assert!(is_learning(&world), "what is written now is not told");
    world.see(SECOND).wait(10);
    assert!(!is_learning(&world));
    assert_eq!(world.changes(), NOTHING);
    world.write_changes(SECOND, &["u b 01:00", "u b 02:00", "u c 03:00"]);
    world.expect_changes(10, ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn a_channel_begins_although_its_only_list_is_written_all_the_time() {
    let mut world = World::new(plan());
    world.now = crate::changes::time("2026-11-20T10:06:00Z");
    world.write(SET_A, capability_list("/a", &["changelist"]));
    world.wait(10).start().write(SET_A, set_a(TOPIC, &[]));
    world.reading = std::time::Duration::from_secs(1);
    let mut entries = Vec::new();
    for number in 0..40 {
        entries.push(format!("u r{number} 00:{number:02}"));
        world.write_changes(LIST, &entries);
        world.unseen().write_changes(LIST, &entries);
        world.pass(std::time::Duration::from_millis(300));
    }
    assert!(!change_sets::is_learning(world.db()).unwrap());
    world.see(LIST).expect_no_changes(100);
    entries.push("u a 01:00".to_owned());
    world.write_changes(LIST, &entries).wait(100);
    assert_eq!(world.changes().len(), 1);
}

/// As resync-build writes it: updated, deleted, created, without datetimes, and the deleted one with its old `lastmod`.
#[test]
fn a_generator_without_datetimes_that_begins_anew_each_time_tells_each_run() {
    let mut world = world_with(plan(), &[]);
    for (number, entries) in [&["u a", "d b", "c c"][..], &["u d", "c e"], &["d f"]]
        .into_iter()
        .enumerate()
    {
        world.write_changes(LIST, entries).wait(1);
        let heard = world.changes_heard_by(HUB);
        assert_eq!(heard.len(), 1, "run {number}");
        assert_eq!(heard[0].entries(), entries);
    }
}

#[test]
fn a_list_that_leaves_the_set_is_told_no_more() {
    let mut world = world_of(plan());
    world.write_changes_of(LIST, SET_B, &["u z 00:00"]);
    world.write(SET_A, list("capabilitylist").change_channel(TOPIC, &[]));
    world.wait(10);
    world.write_changes_of(LIST, SET_B, &["u z 00:00", "u a 01:00"]);
    world.expect_no_changes(10);
    // It was published late (C11).
    world.write(SET_A, set_a(TOPIC, &[]));
    world.expect_changes(10, ["[00:00, 01:00] u a 01:00"]);
}

#[test]
fn a_world_without_change_channels_reads_no_list_twice() {
    let mut world = World::with_two_sets(plan());
    world.write_changes(LIST, &["u a 01:00"]);
    world.expect_no_changes(10);
    assert_eq!(world.change_sets(), 0);
}

const DAY: u64 = 24 * 60 * 60;

/// Writes a list with its end.
fn write_closed(world: &mut World, name: &str, entries: &[&str]) {
    let text = change_list(SET_A, entries);
    let closed = text.replacen(
        "\"/>\n<url>",
        "\" until=\"2026-11-20T10:06:00Z\"/>\n<url>",
        1,
    );
    assert_ne!(closed, text);
    world.write_text(name, closed.as_bytes());
}

/// A world with a list that is closed, and did not change for so many days.
fn closed_for(days: u64) -> World {
    let mut world = world_of(plan());
    write_closed(&mut world, SECOND, &["u a 01:00", "u b 02:00"]);
    world.expect_changes(10, ["[00:00, 02:00] u a 01:00; u b 02:00"]);
    world.wait(days * DAY / 2);
    world.crash_and_start().wait(days * DAY / 2);
    world
}

const REWRITTEN: [&str; 4] = [
    "u c 00:30",
    "u a 01:30",
    "u b 02:00",
    "u d 2026-11-21T10:00:00Z",
];

#[test]
fn of_a_list_that_was_closed_for_30_days_only_what_is_later_is_told() {
    let mut world = closed_for(31);
    write_closed(&mut world, SECOND, &REWRITTEN);
    world.expect_changes(10, ["[02:00, 2026-11-21T10:00:00] u d 2026-11-21T10:00:00"]);
    assert!(
        world.entry_findings().is_empty(),
        "another list may tell them"
    );
    world.expect_no_changes(300);
    let rewritten = Finding::ClosedListRewritten {
        list: uri(SECOND),
        untold: 2,
    };
    assert_eq!(world.entry_findings(), [rewritten]);
}

#[test]
fn a_list_that_was_closed_for_30_days_and_is_written_again_often_is_told_as_any_other() {
    let mut world = closed_for(31);
    let later = "u d 2026-11-21T10:00:00Z";
    write_closed(&mut world, SECOND, &["u a 01:00", "u b 02:00", later]);
    let want = ["[02:00, 2026-11-21T10:00:00] u d 2026-11-21T10:00:00"];
    world.expect_changes(1_000, want);
    assert!(world.entry_findings().is_empty(), "nothing is untold");
    world.crash_and_start().wait(DAY);
    // Published late.
    let late = "u e 2026-11-21T09:00:00Z";
    write_closed(&mut world, SECOND, &["u a 01:00", "u b 02:00", late, later]);
    let late = "[2026-11-21T10:00:00, 2026-11-21T10:00:00.000001] u e";
    world.expect_changes(10, [late]);
}

#[test]
fn a_list_that_is_as_it_was_stays_closed_while_another_is_read() {
    let mut world = closed_for(31);
    world.write_changes(LIST, &["u z 00:00", "u y 03:00"]);
    world.expect_changes(10, ["[02:00, 03:00] u y 03:00"]);
    write_closed(&mut world, SECOND, &["u c 00:30", "u a 01:00", "u b 02:00"]);
    world.expect_no_changes(1_000);
}

#[test]
fn of_a_list_that_was_closed_for_30_days_by_a_wrong_clock_all_is_told() {
    let mut world = closed_for(2);
    world.set_clock(SignedDuration::from_hours(30 * 24));
    write_closed(&mut world, SECOND, &["u c 00:30", "u a 01:00", "u b 02:00"]);
    world.expect_changes(10, ["[02:00, 02:00.000001] u c"]);
}

#[test]
fn of_a_list_that_was_closed_for_less_all_is_told() {
    let mut world = closed_for(28);
    write_closed(&mut world, SECOND, &REWRITTEN);
    let all = "[02:00, 2026-11-21T10:00:00] u c; u a; u d 2026-11-21T10:00:00";
    world.expect_changes(10, [all]);
    assert!(matches!(
        world.entry_findings()[..],
        [Finding::BackDated { count: 2, .. }]
    ));
}

#[test]
fn what_a_closed_list_gains_is_told_if_another_list_has_it() {
    let mut world = closed_for(31);
    write_closed(&mut world, SECOND, &REWRITTEN[..3]);
    world.wait(200);
    world.write_changes(LIST, &["u z 00:00", "u c 00:30"]);
    world.expect_changes(10, ["[02:00, 02:00.000001] u c"]);
    world.wait(200);
    world.write_changes(LIST, &["u z 00:00", "u a 01:30"]);
    world.expect_no_changes(10); // it counts as taken
}

#[test]
fn a_list_that_is_open_again_is_told_as_before() {
    let mut world = closed_for(31);
    let open = ["u a 01:00", "u b 02:00", "u d 2026-11-21T10:00:00Z"];
    world.write_changes(SECOND, &open).wait(10).changes();
    world.write_changes(SECOND, &["u a 01:00", "u c 01:30", "u b 02:00"]);
    let want = ["[2026-11-21T10:00:00, 2026-11-21T10:00:00.000001] u c"];
    world.expect_changes(10, want);
}

/// How a list loses entries that another one has, which cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rotation {
    /// The list goes on without them.
    Shortened,
    Deleted,
    /// The list is an index now, of what it was.
    Index,
}

/// C7: a disk is full while a list is rotated, for longer than `deletion_grace`.
#[rstest]
fn entries_in_a_list_that_cannot_be_read_are_not_forgotten(
    #[values(Rotation::Shortened, Rotation::Deleted, Rotation::Index)] rotation: Rotation,
    #[values(true, false)] is_known: bool,
) {
    let mut world = world_of(plan());
    let old = ["u z 00:00", "u a 01:00", "u b 02:00"];
    world.write_changes(LIST, &old);
    if is_known {
        world.write_changes(SECOND, &old[..1]);
    }
    world.expect_changes(10, ["[00:00, 02:00] u a 01:00; u b 02:00"]);
    world.write_text(SECOND, b"<urlset");
    match rotation {
        Rotation::Shortened => world.write_changes(LIST, &["u c 03:00"]),
        Rotation::Deleted => world.delete(LIST),
        Rotation::Index => world.write(LIST, index("changelist").up(SET_A).lists(&[SECOND])),
    };
    world.wait(if is_known { 3 * DAY } else { 1_000 });
    world.write_changes("/a/third.xml", &["u d 04:00"]);
    world.wait(1_000).changes();
    world.write_changes(SECOND, &[&old[..], &["u e 05:00"]].concat());
    world.expect_changes(60, ["[04:00, 05:00] u e 05:00"]);
    // They are forgotten once all lists were read for that time.
    if rotation == Rotation::Shortened {
        world.write_changes(SECOND, &["u e 05:00"]).wait(400);
        world.write_changes(LIST, &["u c 03:00", "u f 06:00"]);
        world.wait(400);
        world.write_changes(LIST, &["u c 03:00", "u f 06:00", "u a 01:00"]);
        let want = ["[05:00, 06:00] u f 06:00", "[06:00, 06:00.000001] u a"];
        world.expect_changes(60, want);
    }
}

#[test]
fn a_list_found_in_its_set_by_a_new_alias_is_learned() {
    for is_reload in [false, true] {
        let mut world = world_of(plan());
        let up = "http://example.org/a/capabilitylist.xml";
        world.write_changes_of(SECOND, up, &["u a 01:00"]);
        world.expect_no_changes(10);
        let alias = uri("http://example.org/");
        world.plan.sources[0].mounts[0].aliases.push(alias);
        world.apply_plan(is_reload).expect_no_changes(10);
        world.write_changes_of(SECOND, up, &["u a 01:00", "u b 02:00"]);
        world.expect_changes(1, ["[00:00, 02:00] u b 02:00"]);
    }
}

/// C7: a list is rotated into a directory that nobody else may read yet.
#[test]
fn entries_below_a_directory_that_cannot_be_read_are_not_forgotten() {
    let old = ["u z 00:00", "u a 01:00"];
    let mut world = world_with(plan(), &old);
    world.deny_directories(&["a/archive"]);
    world.write_changes(LIST, &["u b 02:00"]).wait(1_000);
    world.write_changes(LIST, &["u b 02:00", "u c 03:00"]);
    world.wait(60).changes();
    world.deny_directories(&[]);
    world.write_changes(LIST, &["u b 02:00", "u c 03:00", "u d 04:00"]);
    world.expect_changes(60, ["[03:00, 04:00] u d 04:00"]);
    world.write_changes_of("/a/archive/1.xml", SET_A, &old);
    world.expect_no_changes(60);
}

/// C7: what a list has that is away with its mount is seen by nobody.
#[test]
fn entries_rotated_into_a_list_of_a_mount_that_is_away_are_not_forgotten() {
    let mut plan = plan();
    let other = "https://more.example.org/old.xml";
    let more = mount("/srv/more", "https://more.example.org/");
    plan.sources[0].mounts.push(more);
    let mut world = World::new(plan);
    world.write_changes_of(other, SET_A, &["u z 00:00"]);
    watch(&mut world, &["u a 01:00"]);
    world.unmount(1);
    world.write_changes(LIST, &["u b 02:00"]).wait(3 * DAY);
    world.write_changes(LIST, &["u b 02:00", "u c 03:00"]);
    world.wait(60);
    assert_eq!(world.changes().len(), 2);
    world.write_changes_of(other, SET_A, &["u z 00:00", "u a 01:00"]);
    world.remount(1, 2).expect_no_changes(60);
}

/// C7: many trees have a file or a directory that is never read.
#[rstest]
fn entries_are_forgotten_after_a_day_although_something_cannot_be_read(
    #[values(true, false)] is_file: bool,
    #[values(true, false)] is_deleted: bool,
) {
    let mut world = world_of(plan());
    if is_file {
        world.write_text("/a/empty.xml", b"");
    } else {
        world.deny_directories(&["private"]);
    }
    world.write_changes(SECOND, &["d a"]).wait(60);
    assert_eq!(world.changes().len(), 1);
    for (hours, told) in [(1, 0), (25, 1)] {
        if is_deleted {
            world.delete(SECOND);
        } else {
            world.write_changes(SECOND, &["u b 01:00"]);
        }
        world.wait(hours * 3_600);
        world.write_changes(LIST, &["u z 00:00", &format!("u c {hours:02}:00")]);
        world.wait(60).changes();
        world.write_changes(SECOND, &["d a"]).wait(60);
        assert_eq!(world.changes().len(), told, "after {hours} hours");
    }
}
