//! Change channels: what Change Lists gain is told once, in order, in intervals without gap or overlap, also after crashes,
//! reloads and jumps of the clock (C2, C3, C4, C8, C10, C12, C13, C14, C15, C17, C18, C19, C21, C25).

#[path = "changes/channels.rs"]
mod channels;
#[path = "changes/hubs.rs"]
mod hubs;
#[path = "changes/inventories.rs"]
mod inventories;
#[path = "changes/lists.rs"]
mod lists;

use std::collections::BTreeSet;
use std::time::Duration;

use announce::event::Fact;
use announce::finding::Finding;
use announce::plan::Plan;
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use crate::world::{
    Doc, HUB, NOTHING, OTHER_HUB, Reply, SET_A, SET_B, World, capability_list, change_list,
    ping_hub, plan, told, two_hubs, uri,
};

const TOPIC: &str = "/a/change/";
const LIST: &str = "/a/changelist.xml";
const SECOND: &str = "/a/second.xml";

/// The Capability List of `/a`, which advertises a change channel.
fn set_a(topic: &str, hubs: &[&str]) -> Doc {
    capability_list("/a", &["changelist"]).change_channel(topic, hubs)
}

/// The set `/a` with a change channel, of which everything until 10:00:00 is known.
fn world_of(plan: Plan) -> World {
    world_with(plan, &["u z 00:00"])
}

fn world_with(plan: Plan, entries: &[&str]) -> World {
    let mut world = World::new(plan);
    watch(&mut world, entries);
    world
}

/// Writes the set and starts the daemon.
fn watch(world: &mut World, entries: &[&str]) {
    world.now = time("2026-11-20T10:06:00Z");
    world.write_changes(LIST, entries);
    world.write(SET_A, set_a(TOPIC, &[])).wait(10);
    world.start().expect_no_changes(10); // what is there is learned
    world.facts();
}

/// Returns the entries that the first hub was told of since it was last asked.
fn told(world: &mut World) -> Vec<String> {
    let heard = world.changes_heard_by(HUB);
    heard.iter().flat_map(|heard| heard.entries()).collect()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Entries one after another, so many milliseconds apart, from 10:00:01 on.
fn apart(count: usize, millis: usize) -> Vec<String> {
    let start = time("2026-11-20T10:00:01Z");
    let entries = (0..count).map(|number| {
        let at = start + Duration::from_millis((number * millis) as u64);
        format!("u r{number} {at:.3}")
    });
    entries.collect()
}

#[test]
fn appended_entries_of_one_resource_are_all_told() {
    let mut world = world_of(plan());
    let changes = ["c a 05:01", "u a 05:02", "d a 05:31"];
    world.append(LIST, &changes).wait(1);
    let heard = world.changes_heard_by(HUB);
    let want = "[00:00, 05:31] c a 05:01; u a 05:02; d a 05:31";
    assert_eq!(heard[0].to_string(), want);
    assert_eq!(heard[0].payload.up, Some(uri(SET_A)));
    assert_eq!(heard.len(), 1);
    world.crash_and_start().expect_no_changes(1_000);
}

#[test]
fn a_list_that_is_touched_indented_closed_or_says_more_of_old_entries_tells_nothing() {
    let mut world = world_of(plan());
    let text = change_list(SET_A, &["u z 00:00"]);
    world.touch(LIST);
    for changed in [
        text.replace("<url>", "\n    <url>\n"),
        text.replace("rs:", "sync:")
            .replace("xmlns:rs", "xmlns:sync"),
        text.replace("\"/>\n<url>", "\" until=\"2026-11-20T10:06:00Z\"/>\n<url>"),
        text.replace("<rs:md change", "<rs:md hash=\"md5:1\" change"),
        text.replace(
            "<rs:md change",
            "<rs:ln rel=\"describedby\" href=\"https://e.org/\"/><rs:md change",
        ),
    ] {
        assert_ne!(changed, text);
        world.write_text(LIST, changed.as_bytes()).wait(10);
    }
    assert_eq!(world.changes(), NOTHING);
}

#[test]
fn a_list_without_datetimes_is_told_in_its_order_at_the_time_of_the_look() {
    // The channel opens at 09:00:00.
    let mut world = World::new(plan());
    world.now = time("2026-11-20T08:59:50Z");
    world.write_changes(LIST, &["u a"]);
    world.write(SET_A, set_a(TOPIC, &[])).wait(10).start();
    let at = time("2026-11-20T10:07:02.168113Z");
    world.pass(at.duration_since(world.now).unsigned_abs());
    world.write_changes(LIST, &["u a", "u b", "d c", "c d"]);
    world.expect_changes(1, ["[09:00:00, 07:02.418113] u b; d c; c d"]);
    world.write_changes(LIST, &["u a", "u b", "d c", "c d", "c e"]);
    world.wait(1);
    // And nothing again.
    assert_eq!(world.changes(), ["[07:02.418113, 07:03.418113] c e"]);
}

#[test]
fn a_monthly_list_that_repeats_daily_ones_tells_nothing() {
    let mut world = world_of(plan());
    world.write_changes("/a/day-1.xml", &["u a 01:00"]);
    world.write_changes("/a/day-2.xml", &["u b 02:00"]);
    world.expect_changes(1, ["[00:00, 02:00] u a 01:00; u b 02:00"]);
    world.write_changes("/a/month.xml", &["u a 01:00", "u b 02:00"]);
    world.wait(1);
    for day in ["/a/day-1.xml", "/a/day-2.xml"] {
        world.delete(day);
    }
    world.wait(1_000).touch("/a/month.xml");
    world.append("/a/month.xml", &["u c 03:00"]);
    world.expect_changes(1_000, ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn many_changes_are_told_in_consecutive_notifications() {
    let mut world = world_of(plan());
    world.write_changes(LIST, &apart(2_500, 100)).wait(1);
    let heard = world.changes_heard_by(HUB).into_iter();
    let told = heard.map(|heard| {
        let text = heard.to_string();
        let (interval, _) = text.split_once(" u ").unwrap();
        format!("{} {interval}", heard.payload.entries.len())
    });
    let want = [
        "1000 [00:00, 01:40.900000]",
        "1000 [01:40.900000, 03:20.900000]",
        "500 [03:20.900000, 04:10.900000]",
    ];
    assert_eq!(told.collect::<Vec<_>>(), want);
}

#[test]
fn the_changes_of_a_new_set_are_learned() {
    let mut world = world_of(plan());
    let mut entries = apart(50, 1_000);
    world.write_changes("/b/changelist.xml", &entries);
    let list = capability_list("/b", &["changelist"]).change_channel("/b/change/", &[]);
    world.write(SET_B, list).expect_no_changes(10);
    entries.push("u a 05:00".to_owned());
    world.write_changes("/b/changelist.xml", &entries);
    world.expect_changes(1, ["[00:50, 05:00] u a 05:00"]);
}

/// C14: what was published while the clock was wrong.
#[rstest]
#[case("u a", false)]
#[case("u a 2027-11-20T10:00:00Z", false)]
#[case("u a 2027-11-20T10:00:00Z", true)]
fn intervals_that_lie_ahead_of_the_clock_begin_anew(#[case] entry: &str, #[case] moves: bool) {
    let mut world = world_of(plan());
    let year = jiff::SignedDuration::from_hours(365 * 24);
    world.set_clock(year);
    world.write_changes(LIST, &[entry, "u z 00:00"]).wait(10);
    assert_eq!(world.changes().len(), 1);
    world.set_clock(-year).wait(600);
    world.crash_and_start().wait(10).facts();
    if moves {
        world.write(SET_A, set_a("/a/moved/", &[])).wait(10);
    }
    world.write_changes(LIST, &[entry, "u z 00:00", "u b 07:00", "d c 08:00"]);
    world.expect_changes(10, ["[07:00, 08:00] u b 07:00; d c 08:00"]);
    assert_eq!(told!(world, Fact::BeganAnew { .. }), !moves);
    world.write_changes(
        LIST,
        &[entry, "u z 00:00", "u b 07:00", "d c 08:00", "u e 09:00"],
    );
    world.expect_changes(10, ["[08:00, 09:00] u e 09:00"]);
}

#[test]
fn an_entry_without_a_change_is_skipped_and_reported() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00", "? b 05:01", "u c 05:02"]);
    world.expect_changes(1, ["[00:00, 05:02] u a 05:00; u c 05:02"]);
    let found = world.entry_findings();
    let [Finding::UntellableEntries { count, line, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((*count, *line), (1, 6));
}

#[test]
fn a_hub_that_fetches_finds_all_that_it_did_not_fetch() {
    let mut world = world_of(ping_hub());
    world.append(LIST, &["u a 01:00"]).wait(1);
    world.append(LIST, &["u b 02:00"]).wait(1);
    let want = "[00:00, 02:00] u a 01:00; u b 02:00";
    assert_eq!(world.served_changes(TOPIC), want);
}

#[test]
fn a_hub_that_answers_413_receives_halves() {
    let mut world = world_of(two_hubs());
    world.script(OTHER_HUB, Reply::AtMost(500));
    world.write_changes(LIST, &apart(1_000, 100)).wait(10);
    let want = [(1_000, "[00:00, 01:40.900000]".to_owned())];
    assert_eq!(intervals(&mut world, HUB), want);
    let halves = ["[00:00, 00:50.900000]", "[00:50.900000, 01:40.900000]"];
    let halves = halves.map(|half| (500, half.to_owned()));
    assert_eq!(intervals(&mut world, OTHER_HUB), halves);
}

/// Returns the number of entries, `from` and `until` of each notification.
fn intervals(world: &mut World, hub: &str) -> Vec<(usize, String)> {
    let heard = world.changes_heard_by(hub);
    let intervals = heard.iter().map(|heard| {
        let text = heard.to_string();
        let (interval, _) = text.split_once(' ').unwrap();
        let (until, _) = text.split_once(']').unwrap();
        assert!(until.starts_with(interval));
        (heard.payload.entries.len(), format!("{until}]"))
    });
    intervals.collect()
}

/// C20.
#[test]
fn lists_that_never_rest_are_read_after_the_longest_wait() {
    let mut world = world_of(plan());
    let told_after = (0..60).find(|number| {
        world.append(LIST, &[&format!("u r{number} 01:{number:02}")]);
        world.pass(std::time::Duration::from_millis(200));
        !world.changes_heard_by(HUB).is_empty()
    });
    // Each is 250 ms too early for the one before, but the first waits no longer than five seconds.
    assert_eq!(told_after, Some(24));
}

#[test]
fn a_crash_between_any_two_effects_loses_and_changes_nothing() {
    let mut bodies = BTreeSet::new();
    for effects in 0..40 {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(plan()).kept_in(directory.path());
        crate::changes::watch(&mut world, &["u z 00:00"]);
        world.freeze_after(effects);
        world.write_changes(LIST, &["u z 00:00", "u a 05:00", "d b 05:31"]);
        world.wait(10);
        let was_frozen = world.is_frozen();
        world.crash_and_start().wait(100);
        let heard = world.changes_heard_by(HUB);
        assert!(matches!(heard.len(), 1 | 2), "after {effects}: {heard:?}");
        bodies.extend(heard.into_iter().map(|heard| heard.body));
        world.write_changes(LIST, &["u z 00:00", "u a 05:00", "d b 05:31", "u c 06:00"]);
        world.expect_changes(100, ["[05:31, 06:00] u c 06:00"]);
        if !was_frozen {
            assert!(effects > 5);
            assert_eq!(bodies.len(), 1, "the same bytes");
            return;
        }
    }
    panic!("it never came to an end");
}

#[test]
fn a_crash_between_any_two_effects_of_a_start_announces_nothing() {
    for effects in 0..60 {
        let mut world = World::new(plan());
        world.now = time("2026-11-20T10:06:00Z");
        world.write_changes(LIST, &["u z 00:00"]);
        world.write(SET_A, set_a(TOPIC, &[])).wait(10);
        world.start_frozen_after(effects);
        world.wait(10);
        let was_frozen = world.is_frozen();
        world.crash_and_start().wait(100);
        assert_eq!(world.changes(), NOTHING, "after {effects}");
        world.write_changes(LIST, &["u z 00:00", "u a 05:00"]);
        world.expect_changes(10, ["[00:00, 05:00] u a 05:00"]);
        if !was_frozen {
            assert!(effects > 5);
            return;
        }
    }
    panic!("it never came to an end");
}

#[test]
fn a_crash_before_the_answer_repeats_the_same_bytes() {
    let mut world = world_of(plan());
    world.script(HUB, Reply::Hang);
    world.append(LIST, &["u a 05:00"]).wait(10);
    world.crash();
    world.append(LIST, &["u b 05:01"]);
    world.script(HUB, Reply::Accept).start().wait(10);
    let attempts = world.change_attempts_at(HUB);
    assert_eq!(attempts[0].body, attempts[1].body);
    let want = ["[00:00, 05:00] u a 05:00", "[05:00, 05:01] u b 05:01"];
    assert_eq!(world.changes(), want);
}

#[test]
fn the_last_changes_of_a_removed_advertisement_survive_a_crash_and_a_reload() {
    let restarts: [fn(&mut World) -> &mut World; 2] = [World::crash_and_start, World::reload];
    for restart in restarts {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(plan()).kept_in(directory.path());
        crate::changes::watch(&mut world, &["u z 00:00"]);
        world.reading = std::time::Duration::from_secs(5);
        world.write_changes(LIST, &["u z 00:00", "u a 05:00"]);
        world.wait(2);
        world.write(SET_A, capability_list("/a", &["changelist"]));
        world.wait(1);
        restart(&mut world);
        world.expect_changes(30, ["[00:00, 05:00] u a 05:00"]);
        world.write_changes(LIST, &["u z 00:00", "u a 05:00", "u b 05:01"]);
        world.wait(30);
        restart(&mut world);
        world.expect_no_changes(30); // these were the last changes
    }
}

#[test]
fn a_version_that_is_gone_before_it_is_read_is_waited_for() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00"]);
    world
        .unseen()
        .write_changes(LIST, &["u z 00:00", "u a 05:00", "u b 05:01"]);
    world.expect_no_changes(20);
    // It was asked for in vain several times, which delays a version that is seen now no more.
    world.see(LIST);
    world.expect_changes(1, ["[00:00, 05:01] u a 05:00; u b 05:01"]);
}

#[test]
fn a_version_that_is_seen_while_an_older_one_is_asked_for_is_told_at_once() {
    let mut world = world_of(plan());
    world.reading = std::time::Duration::from_secs(5);
    world.append(LIST, &["u a 05:00"]);
    world
        .unseen()
        .write_changes(LIST, &["u z 00:00", "u a 05:00", "u b 05:01"]);
    world.wait(2).see(LIST);
    world.expect_changes(9, ["[00:00, 05:01] u a 05:00; u b 05:01"]);
}

#[test]
fn a_clock_that_is_set_back_delays_nothing_and_repeats_nothing() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00"]);
    world.set_clock(SignedDuration::from_hours(-3)).wait(1);
    // By that clock all datetimes are ahead.
    assert_eq!(world.changes().len(), 1);
    world.append(LIST, &["u b"]).wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!(heard[0].entries(), ["u b"]);
    assert!(heard[0].payload.from < heard[0].payload.until);
    world.set_clock(SignedDuration::from_hours(3));
    world.write_changes(SECOND, &["u c 06:00"]).wait(1);
    assert_eq!(world.changes_heard_by(HUB)[0].entries(), ["u c 06:00"]);
}
