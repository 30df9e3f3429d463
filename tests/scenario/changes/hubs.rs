//! Hubs of change channels: each hears the log from its own position on (C20, C21, C22, C24, C26).

use std::time::Duration;

use announce::event::DropCause;
use announce::history::NotificationState;
use announce::plan::PublishMode;
use resourcesync::capability::ChannelKind;
use rstest::rstest;

use crate::changes::{LIST, TOPIC, set_a, world_of};
use crate::world::{
    HUB, NOTHING, OTHER_HUB, Reply, SET_A, World, altered, plan, set_hubs, two_hubs,
};

/// The first notifications of [`publish`], told one by one.
const FIRST: &str = "[00:00, 01:00] u r1 01:00";
const SECOND: &str = "[01:00, 02:00] u r2 02:00";
const GATHERED: &str = "[01:00, 05:00] u r2 02:00; u r3 03:00; u r4 04:00; u r5 05:00";
const THIRD: &str = "[02:00, 03:00] u r3 03:00";

/// Appends an update of `r{number}` at that minute, and waits.
fn publish(world: &mut World, number: usize) {
    let entries = (1..=number).map(|at| format!("u r{at} 0{at}:00"));
    let entries: Vec<String> = std::iter::once("u z 00:00".to_owned())
        .chain(entries)
        .collect();
    world.write_changes(LIST, &entries).wait(2);
}

#[test]
fn what_an_operator_drops_leaves_a_gap_that_shows() {
    let mut world = world_of(two_hubs()).with_down(OTHER_HUB);
    publish(&mut world, 1);
    publish(&mut world, 2);
    world.drop_due_on(TOPIC, OTHER_HUB);
    let dropped = [format!("{OTHER_HUB} {TOPIC} 2")];
    assert_eq!(world.dropped(DropCause::Operator), dropped);
    world.script(OTHER_HUB, Reply::Accept);
    world.expect_changes_at(OTHER_HUB, 60, NOTHING);
    publish(&mut world, 3);
    assert_eq!(world.read_at(OTHER_HUB), [THIRD]);
    assert_eq!(world.changes().len(), 3);
}

#[test]
fn what_follows_in_the_log_is_due_and_a_restart_remembers_the_log() {
    let mut world = world_of(two_hubs()).with_down(OTHER_HUB);
    publish(&mut world, 1);
    publish(&mut world, 2);
    let outcomes = |world: &World| -> Vec<(u64, Option<usize>, Vec<NotificationState>)> {
        let reader = world.engine().reader(world.now);
        let all = reader.history.latest(reader.db).unwrap();
        let of_changes = all.iter().filter(|shown| shown.kind == ChannelKind::Change);
        let outcomes = of_changes.map(|shown| {
            let hubs = shown.hubs.iter().map(|hub| hub.outcome);
            (shown.seq, shown.changes, hubs.collect())
        });
        outcomes.collect()
    };
    let (accepted, refused, due) = (
        NotificationState::Accepted,
        NotificationState::Refused,
        NotificationState::Due,
    );
    let shown = outcomes(&world);
    let wanted = [
        (2, Some(1), vec![accepted, due]),
        (1, Some(1), vec![accepted, refused]),
    ];
    assert_eq!(shown, wanted);
    world.crash_and_start();
    let after = outcomes(&world);
    assert_eq!(after[0], wanted[0]);
    assert_eq!(after[1], (1, Some(1), vec![refused]));
}

#[test]
fn what_is_dropped_during_its_submission_is_not_submitted_again() {
    let mut world = world_of(plan());
    world.script(HUB, Reply::Slow(20));
    publish(&mut world, 1);
    world.drop_due_on(TOPIC, HUB).wait(60);
    assert_eq!(world.change_attempts_at(HUB).len(), 1);
    publish(&mut world, 2);
    world.expect_changes(60, [FIRST, SECOND]);
}

#[test]
fn a_hub_that_joins_receives_what_is_cut_from_then_on() {
    for is_advertised in [true, false] {
        let mut world = world_of(two_hubs());
        world.write(SET_A, set_a(TOPIC, &[HUB]));
        publish(&mut world, 1);
        if is_advertised {
            world.write(SET_A, set_a(TOPIC, &[HUB, OTHER_HUB]));
        } else {
            world.write(SET_A, set_a(TOPIC, &[]));
        }
        world.read_at(OTHER_HUB);
        publish(&mut world, 2);
        assert_eq!(world.read_at(OTHER_HUB), [SECOND]);
        assert_eq!(world.changes().len(), 2);
    }
}

#[test]
fn a_hub_that_leaves_receives_what_was_cut_until_then() {
    let mut world = world_of(two_hubs()).with_down(OTHER_HUB);
    publish(&mut world, 1);
    world.write(SET_A, set_a(TOPIC, &[HUB]));
    publish(&mut world, 2);
    world.script(OTHER_HUB, Reply::Accept);
    world.expect_changes_at(OTHER_HUB, 60, [FIRST]);
    assert_eq!(world.changes().len(), 2);
}

#[test]
fn a_hub_that_replaces_another_goes_on_for_it() {
    let mut world = world_of(plan()).with_down(HUB);
    publish(&mut world, 1);
    publish(&mut world, 2);
    world.crash();
    set_hubs(&mut world.plan, &[(OTHER_HUB, PublishMode::Content)]);
    world.start();
    world.expect_changes_at(OTHER_HUB, 60, [FIRST, SECOND]);
}

#[test]
fn a_hub_that_replaces_another_and_is_not_advertised_receives_nothing() {
    let mut world = world_of(plan());
    world.write(SET_A, set_a(TOPIC, &[HUB]));
    world.script(HUB, Reply::Status(503));
    publish(&mut world, 1);
    world.crash();
    set_hubs(&mut world.plan, &[(OTHER_HUB, PublishMode::Content)]);
    world.start().expect_changes_at(OTHER_HUB, 60, NOTHING);
}

/// C20: a generator that writes its list anew with each run loses nothing either.
#[rstest]
#[case(1)]
#[case(3 * 60)]
fn what_a_list_had_while_no_hub_takes_any_is_announced(#[case] minutes: u64) {
    let mut world = world_of(plan()).with_down(HUB);
    for number in 1..6 {
        world.write_changes(LIST, &[format!("u r{number} 0{number}:00")]);
        world.wait(minutes * 60);
        if number == 3 {
            world.crash_and_start();
        }
    }
    assert_eq!(world.logged(), [1, 2]); // what is in flight, and what follows it
    world.script(HUB, Reply::Accept);
    world.expect_changes(60, [FIRST, GATHERED]);
}

#[test]
fn a_channel_without_hubs_waits_for_none() {
    let mut world = world_of(two_hubs());
    world.write(SET_A, set_a(TOPIC, &["https://foreign.example.com/"]));
    publish(&mut world, 1);
    publish(&mut world, 2);
    assert_eq!(world.served_changes(TOPIC), SECOND);
}

#[test]
fn every_hub_hears_the_same_and_what_all_heard_is_forgotten_but_the_last() {
    let mut world = world_of(two_hubs()).with_down(OTHER_HUB);
    for number in 1..4 {
        publish(&mut world, number);
    }
    assert_eq!(world.logged(), [1, 2, 3]);
    world.script(OTHER_HUB, Reply::Accept).wait(60);
    assert_eq!(world.logged(), [3]);
    let [same, late] = [HUB, OTHER_HUB].map(|hub| {
        let heard = world.changes_heard_by(hub).into_iter();
        heard.map(|heard| heard.body).collect::<Vec<_>>()
    });
    assert_eq!((same.len(), &same), (3, &late));
    world.crash_and_start();
    assert_eq!(world.served_changes(TOPIC), THIRD);
}

/// C22: the log is no longer than what hubs may still be sent.
#[test]
fn what_a_hub_skips_that_fell_behind_is_forgotten() {
    let mut world =
        world_of(altered(two_hubs(), |plan| plan.window.change_backlog = 3)).with_down(OTHER_HUB);
    for number in 1..9 {
        publish(&mut world, number);
    }
    let behind = world.dropped(DropCause::FellBehind);
    assert_eq!(behind, vec![format!("{OTHER_HUB} {TOPIC} 1"); 5]);
    assert_eq!(world.logged(), [1, 7, 8], "what is in flight, and two more");
    assert_eq!(world.changes_due(), [0, 3]);
    world.crash_and_start();
    publish(&mut world, 9);
    assert_eq!(world.logged(), [1, 8, 9]);
    world.script(OTHER_HUB, Reply::Accept);
    let last = ["[07:00, 08:00] u r8 08:00", "[08:00, 09:00] u r9 09:00"];
    world.expect_changes_at(OTHER_HUB, 3_600, [FIRST, last[0], last[1]]);
    assert_eq!(world.logged(), [9]);
}

#[test]
fn what_is_published_after_a_hub_left_is_kept_for_its_return_up_to_the_backlog() {
    let mut world =
        world_of(altered(two_hubs(), |plan| plan.window.change_backlog = 3)).with_down(OTHER_HUB);
    publish(&mut world, 1);
    world.write(SET_A, set_a(TOPIC, &[HUB]));
    for number in 2..5 {
        publish(&mut world, number);
    }
    assert_eq!(world.logged(), [1, 2, 3, 4]);
    publish(&mut world, 5);
    assert_eq!(world.logged(), [1, 5]);
    publish(&mut world, 6);
    world.write(SET_A, set_a(TOPIC, &[HUB, OTHER_HUB]));
    publish(&mut world, 7);
    world.script(OTHER_HUB, Reply::Accept);
    let last = ["[05:00, 06:00] u r6 06:00", "[06:00, 07:00] u r7 07:00"];
    world.expect_changes_at(OTHER_HUB, 3_600, [FIRST, last[0], last[1]]);
}

/// R11.
#[test]
fn what_a_hub_that_left_does_not_take_is_dropped_after_a_while() {
    let mut plan = two_hubs();
    plan.retired_topic = Duration::from_secs(3_600);
    let mut world = world_of(plan).with_down(OTHER_HUB);
    publish(&mut world, 1);
    publish(&mut world, 2);
    world.write(SET_A, set_a(TOPIC, &[HUB])).facts();
    world.wait(3_500);
    assert_eq!(world.logged(), [1, 2]);
    world.wait(200);
    let dropped = [format!("{OTHER_HUB} {TOPIC} 2")];
    assert_eq!(world.dropped(DropCause::HubRemoved), dropped);
    assert_eq!(world.logged(), [2]);
    assert!(!world.has_account(TOPIC, OTHER_HUB));
    world.change_attempts_at(OTHER_HUB);
    world.wait(20_000);
    assert!(world.change_attempts_at(OTHER_HUB).is_empty());
    // It returns as a new hub.
    world.script(OTHER_HUB, Reply::Accept);
    world.write(SET_A, set_a(TOPIC, &[HUB, OTHER_HUB]));
    publish(&mut world, 3);
    world.expect_changes_at(OTHER_HUB, 60, [THIRD]);
}

#[test]
fn halves_go_on_after_a_crash() {
    let mut world = world_of(plan());
    world.script(HUB, Reply::AtMost(1));
    world.append(LIST, &["u a 01:00", "u b 02:00", "u c 03:00"]);
    world.expect_changes(
        1,
        [
            "[00:00, 01:00] u a 01:00",
            "[01:00, 02:00] u b 02:00",
            "[02:00, 03:00] u c 03:00",
        ],
    );
    world.script(HUB, Reply::FirstOf(1, 413));
    world.write_changes(LIST, &["u z 00:00", "u d 04:00", "u e 05:00", "u f 06:00"]);
    world.wait(1);
    let first = world.changes();
    world.crash().script(HUB, Reply::Accept);
    world.start().wait(3_600);
    let mut heard = first;
    heard.extend(world.changes());
    let entries: Vec<String> = heard
        .iter()
        .flat_map(|heard| heard.split_once("] ").unwrap().1.split("; "))
        .map(str::to_owned)
        .collect();
    assert_eq!(entries, ["u d 04:00", "u e 05:00", "u f 06:00"]);
}
