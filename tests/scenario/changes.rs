//! Change channels: what Change Lists gain is told once, in order, in intervals without gap or overlap (C2, C3, C4, C8,
//! C10, C11, C13, C14, C15, C17, C18, C19, C21, C22, C23, C25).

#[path = "changes/channels.rs"]
mod channels;
#[path = "changes/crashes.rs"]
mod crashes;
#[path = "changes/hubs.rs"]
mod hubs;
#[path = "changes/inventories.rs"]
mod inventories;
#[path = "changes/lists.rs"]
mod lists;

use std::time::Duration;

use announce::event::{DropCause, Fact};
use announce::finding::Finding;
use announce::plan::Plan;
use jiff::Timestamp;
use rstest::rstest;

use crate::world::{
    Doc, HUB, NOTHING, OTHER_HUB, Reply, SET_A, SET_B, World, altered, capability_list,
    change_list, ping_hub, plan, told, two_hubs, uri,
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
fn appended_entries_are_told() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00", "d b 05:31"]).wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!(heard[0].to_string(), "[00:00, 05:31] u a 05:00; d b 05:31");
    assert_eq!(heard[0].payload.up, Some(uri(SET_A)));
    assert_eq!(heard.len(), 1);
    world.crash_and_start().expect_no_changes(1_000);
}

#[test]
fn a_list_that_is_touched_indented_or_closed_tells_nothing() {
    let mut world = world_of(plan());
    let text = change_list(SET_A, &["u z 00:00"]);
    world.touch(LIST);
    for changed in [
        text.replace("<url>", "\n    <url>\n"),
        text.replace("rs:", "sync:")
            .replace("xmlns:rs", "xmlns:sync"),
        text.replace("\"/>\n<url>", "\" until=\"2026-11-20T10:06:00Z\"/>\n<url>"),
    ] {
        assert_ne!(changed, text);
        world.write_text(LIST, changed.as_bytes()).wait(10);
    }
    assert_eq!(world.changes(), NOTHING);
}

#[test]
fn hashes_and_links_that_old_entries_gain_tell_nothing() {
    let mut world = world_of(plan());
    let text = change_list(SET_A, &["u z 00:00"]);
    let text = text.replace(
        "<rs:md change",
        "<rs:ln rel=\"describedby\" href=\"https://example.org/m\"/><rs:md hash=\"md5:1\" change",
    );
    world.write_text(LIST, text.as_bytes());
    world.expect_no_changes(10);
}

#[test]
fn every_change_of_one_resource_is_told_in_order() {
    let mut world = world_of(plan());
    world.append(LIST, &["c a 05:01", "u a 05:02", "d a 05:03"]);
    world.expect_changes(1, ["[00:00, 05:03] c a 05:01; u a 05:02; d a 05:03"]);
}

#[test]
fn an_entry_that_stands_twice_is_two_changes() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00"]).wait(1);
    world.append(LIST, &["u a 05:00"]);
    let first = "[00:00, 05:00] u a 05:00";
    world.expect_changes(1, [first, "[05:00, 05:00.000001] u a 05:00"]);
}

/// A channel that opened at 09:00:00, with a change later.
fn undated() -> World {
    let mut world = World::new(plan());
    world.now = time("2026-11-20T08:59:50Z");
    world.write_changes(LIST, &["u a"]);
    world.write(SET_A, set_a(TOPIC, &[])).wait(10);
    world.start();
    let at = time("2026-11-20T10:07:02.168113Z");
    world.pass(at.duration_since(world.now).unsigned_abs());
    world.write_changes(LIST, &["u a", "u b", "d c", "c d"]);
    world.wait(1);
    world
}

#[test]
fn a_list_without_datetimes_is_told_in_its_order_at_the_time_of_the_look() {
    let mut world = undated();
    assert_eq!(world.changes(), ["[09:00:00, 07:02.418113] u b; d c; c d"]);
}

#[test]
fn a_list_without_datetimes_tells_what_it_gains() {
    let mut world = undated();
    world.changes();
    world.write_changes(LIST, &["u a", "u b", "d c", "c d", "c e"]);
    world.wait(1);
    // And nothing again.
    assert_eq!(world.changes(), ["[07:02.418113, 07:03.418113] c e"]);
}

#[test]
fn an_undated_entry_has_the_time_of_the_one_before() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 05:00", "u a"]);
    world.expect_changes(1, ["[00:00, 05:00] u a 05:00; u a"]);
}

#[test]
fn a_list_with_the_newest_first_is_told_in_order() {
    let before = [
        "u c 00:00",
        "u b 2026-11-20T09:59:00Z",
        "u a 2026-11-20T09:58:00Z",
    ];
    let mut world = world_with(plan(), &before);
    world.write_changes(LIST, &["u f 05:03", "u e 05:02", "u d 05:01"]);
    world.expect_changes(1, ["[00:00, 05:03] u d 05:01; u e 05:02; u f 05:03"]);
}

#[test]
fn a_back_dated_entry_is_told_without_its_datetime() {
    let mut world = world_with(plan(), &["u z 05:31"]);
    world.append(LIST, &["u a 02:00"]);
    world.expect_changes(1, ["[05:31, 05:31.000001] u a"]);
    assert_eq!(
        world.entry_findings(),
        [Finding::BackDated {
            list: uri(LIST),
            count: 1
        }]
    );
}

#[test]
fn an_entry_of_next_year_is_told_without_its_datetime() {
    let mut world = world_of(plan());
    let entries = ["u z 00:00", "u a 2027-11-20T10:00:00Z", "u b 05:00"];
    world.write_changes(LIST, &entries);
    world.expect_changes(1, ["[00:00, 05:00] u a; u b 05:00"]);
    assert_eq!(
        world.entry_findings(),
        [Finding::Ahead {
            list: uri(LIST),
            count: 1
        }]
    );
}

#[test]
fn a_list_that_is_renamed_and_closed_tells_nothing() {
    let mut world = world_with(plan(), &["u z 00:00", "u a 05:00"]);
    world.write_changes("/a/changelist-1.xml", &["u z 00:00", "u a 05:00"]);
    world.write_changes(LIST, &[""; 0]).expect_no_changes(1_000);
    world.write_changes(LIST, &["u b 05:40"]);
    world.expect_changes(1, ["[05:00, 05:40] u b 05:40"]);
}

#[test]
fn entries_that_move_to_another_list_tell_nothing() {
    let mut world = world_with(plan(), &["u z 00:00", "u a 05:00"]);
    world.write_changes(LIST, &[""; 0]).wait(3);
    world.write_changes(SECOND, &["u z 00:00", "u a 05:00"]);
    world.expect_no_changes(1_000);
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
    world.wait(1_000);
    world.touch("/a/month.xml");
    world.append("/a/month.xml", &["u c 03:00"]);
    world.expect_changes(1_000, ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn the_entries_of_two_lists_are_sorted_together() {
    let mut world = world_of(plan());
    world.write_changes(SECOND, &["u a 01:00", "u c 03:00"]);
    world.append(LIST, &["u b 02:00", "u d 04:00"]);
    let all = "[00:00, 04:00] u a 01:00; u b 02:00; u c 03:00; u d 04:00";
    world.expect_changes(1, [all]);
}

#[test]
fn lists_that_came_while_it_was_down_are_told_in_order_of_time() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 01:00"]).wait(1).changes();
    world.crash().wait(7_200);
    for (name, entry) in [("x", "u d 04:00"), ("y", "u b 02:00"), ("w", "u c 03:00")] {
        world.write_changes(&format!("/a/{name}.xml"), &[entry]);
    }
    world.start();
    world.expect_changes(1, ["[01:00, 04:00] u b 02:00; u c 03:00; u d 04:00"]);
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

/// Entries of one time.
fn at_once(name: &str, count: usize, time: &str) -> Vec<String> {
    let entries = (0..count).map(|number| format!("u {name}{number} {time}"));
    entries.collect()
}

#[rstest]
#[case::of_many_times(
    apart(2_500, 100),
    &[
        (1_000, "[00:00, 01:40.900000]"),
        (1_000, "[01:40.900000, 03:20.900000]"),
        (500, "[03:20.900000, 04:10.900000]"),
    ]
)]
#[case::of_one_time(
    at_once("r", 2_500, "05:00"),
    &[
        (1_000, "[00:00, 05:00]"),
        (1_000, "[05:00, 05:00.001000]"),
        (500, "[05:00.001000, 05:00.001500]"),
    ]
)]
#[case::cut_between_two_times(
    [at_once("r", 900, "05:00"), at_once("s", 400, "06:00")].concat(),
    &[(900, "[00:00, 05:00]"), (400, "[05:00, 06:00]")]
)]
fn many_changes_are_told_in_consecutive_notifications(
    #[case] entries: Vec<String>,
    #[case] want: &[(usize, &str)],
) {
    let mut world = world_of(plan());
    world.write_changes(LIST, &entries).wait(1);
    let told = intervals(&mut world, HUB);
    let told: Vec<(usize, &str)> = told.iter().map(|(count, it)| (*count, &**it)).collect();
    assert_eq!(told, want);
}

#[test]
fn a_hub_that_was_down_receives_the_same_notifications() {
    let mut world = world_of(two_hubs()).with_down(OTHER_HUB);
    let mut entries = vec!["u z 00:00".to_owned()];
    for minute in 1..6 {
        entries.push(format!("u r{minute} 0{minute}:00"));
        world.write_changes(LIST, &entries).wait(10);
    }
    assert_eq!(world.changes_at(OTHER_HUB), NOTHING);
    world.script(OTHER_HUB, Reply::Accept).wait(3_600);
    let bodies = |world: &mut World, hub| {
        let heard = world.changes_heard_by(hub).into_iter();
        heard.map(|heard| heard.body).collect::<Vec<_>>()
    };
    let first = bodies(&mut world, HUB);
    assert_eq!(first.len(), 5);
    assert_eq!(bodies(&mut world, OTHER_HUB), first);
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

#[test]
fn a_hub_beyond_the_backlog_is_told_where_it_continues() {
    let mut world =
        world_of(altered(two_hubs(), |plan| plan.window.change_backlog = 2)).with_down(OTHER_HUB);
    let mut entries = vec!["u z 00:00".to_owned()];
    for minute in 1..6 {
        entries.push(format!("u r{minute} 0{minute}:00"));
        world.write_changes(LIST, &entries).wait(10);
    }
    let behind = world.dropped(DropCause::FellBehind);
    assert_eq!(behind, vec![format!("{OTHER_HUB} {TOPIC} 1"); 3]);
    world.script(OTHER_HUB, Reply::Accept);
    let want = ["[00:00, 01:00] u r1 01:00", "[04:00, 05:00] u r5 05:00"];
    world.expect_changes_at(OTHER_HUB, 3_600, want);
    assert_eq!(world.changes().len(), 5);
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

#[test]
fn a_list_that_is_cut_off_for_a_while_tells_its_tail_once() {
    let mut world = world_of(plan());
    let text = change_list(SET_A, &["u z 00:00", "u a 05:00"]);
    world.write_text(LIST, &text.as_bytes()[..text.len() - 20]);
    world.expect_no_changes(20);
    world.write_text(LIST, text.as_bytes());
    world.expect_changes(1_000, ["[00:00, 05:00] u a 05:00"]);
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
