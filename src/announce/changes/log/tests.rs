//! The positions of hubs in a log.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;

use super::{Backlog, ChangeLog, LogPosition, Logged};

/// A log of notifications with so many entries each, from number 1 on.
fn log(sizes: &[usize]) -> ChangeLog {
    let notifications = (1..).zip(sizes).map(|(seq, entries)| {
        let logged = Logged {
            from: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            entries: *entries,
            bytes: 100 * entries,
            cut: Timestamp::UNIX_EPOCH,
        };
        (seq, logged)
    });
    ChangeLog::new(notifications.collect())
}

#[rstest]
#[case::all(LogPosition::default(), 3, 60)]
#[case::some(LogPosition::at(1), 2, 50)]
#[case::part(LogPosition { entries: 5, ..LogPosition::at(1) }, 2, 45)]
#[case::none(LogPosition::at(3), 0, 0)]
#[case::beyond(LogPosition::at(9), 0, 0)]
#[case::skipped(LogPosition { skipped_to: Some(2), ..LogPosition::default() }, 2, 40)]
#[case::part_before_skipped(LogPosition { entries: 4, skipped_to: Some(2), ..LogPosition::default() }, 2, 36)]
#[case::left(LogPosition { last: Some(2), ..LogPosition::default() }, 2, 30)]
#[case::left_before_it_heard(LogPosition { last: Some(1), ..LogPosition::at(2) }, 0, 0)]
fn what_a_hub_has_not_heard_is_its_backlog(
    #[case] position: LogPosition,
    #[case] notifications: usize,
    #[case] entries: usize,
) {
    let backlog = Backlog {
        notifications,
        entries,
    };
    assert_eq!(log(&[10, 20, 30]).backlog(&position), backlog);
}

#[test]
fn a_hub_that_is_too_far_behind_goes_on_later() {
    let log = log(&[10, 20, 30]);
    for (max, flying, heard, skipped_to, dropped) in [
        (60, None, 0, None, 0),
        (59, None, 1, None, 10),
        (30, None, 2, None, 30),
        (29, None, 3, None, 60),
        (59, Some(1), 0, Some(2), 20),
        (0, Some(1), 0, Some(3), 50),
    ] {
        let mut position = LogPosition::default();
        let found = log.fall_behind(&mut position, flying, max);
        let found = (position.heard, position.skipped_to, found);
        assert_eq!(found, (heard, skipped_to, dropped), "{max} {flying:?}");
    }
}

#[test]
fn what_a_hub_skipped_counts_as_heard_once_it_answered() {
    let mut position = LogPosition {
        skipped_to: Some(3),
        ..LogPosition::default()
    };
    assert!(position.accept(1, 10, 10));
    assert_eq!(position, LogPosition::at(3));
}

#[test]
fn what_was_in_flight_is_still_sent_in_parts() {
    let position = LogPosition {
        skipped_to: Some(2),
        ..LogPosition::default()
    };
    let next = log(&[10, 20, 30]).next(&position, 5);
    let next = next.map(|(seq, part)| (seq, part.range.start(), part.range.entries()));
    assert_eq!(next, Some((1, 0, 5)));
}

#[test]
fn an_answer_to_a_later_notification_means_that_it_fell_behind_before() {
    let mut position = LogPosition {
        entries: 5,
        skipped_to: Some(2),
        ..LogPosition::default()
    };
    assert!(!position.accept(3, 10, 30));
    assert_eq!((position.heard, position.entries), (2, 10));
    assert!(position.accept(3, 20, 30));
    assert_eq!(position, LogPosition::at(3));
}

#[test]
fn the_last_notification_is_never_forgotten() {
    let mut log = log(&[1, 1, 1]);
    assert_eq!(log.forget([2..=2]), [1]);
    assert_eq!(log.forget([]), [2]);
    assert_eq!(log.last(), Some(3));
}

#[rstest]
#[case::behind(LogPosition::at(1), None, &[2, 3, 4, 5])]
#[case::skipping(LogPosition { skipped_to: Some(3), ..LogPosition::default() }, Some(1), &[1, 4, 5])]
#[case::left(LogPosition { last: Some(2), ..LogPosition::at(1) }, None, &[2, 3, 4, 5])]
#[case::left_long_ago(LogPosition { last: Some(1), ..LogPosition::default() }, Some(1), &[1, 5])]
#[case::left_and_skipping(LogPosition { last: Some(3), skipped_to: Some(2), ..LogPosition::default() }, Some(1), &[1, 3, 4, 5])]
#[case::done(LogPosition::at(5), None, &[5])]
fn what_a_hub_may_still_be_sent_is_kept(
    #[case] position: LogPosition,
    #[case] flying: Option<u64>,
    #[case] kept: &[u64],
) {
    let mut log = log(&[10; 5]);
    log.forget(log.wanted(&position, flying, 30));
    let left: Vec<u64> = log.iter().map(|(seq, _)| seq).collect();
    assert_eq!(left, kept);
}

#[test]
fn a_hub_that_returns_after_a_gap_falls_behind_beyond_it() {
    let mut log = log(&[10; 5]);
    log.forget([1..=2]);
    let mut position = LogPosition::default();
    assert_eq!(log.fall_behind(&mut position, None, 30), 20);
    let rest: Vec<u64> = log.after(&position).map(|(seq, _)| seq).collect();
    assert_eq!(rest, [5]);
}

proptest! {
    /// A backlog is the sum of what a walk finds, and falling behind drops no more of it than it must.
    #[test]
    fn a_backlog_is_what_was_not_told(
        sizes in prop::collection::vec(1..20_usize, 1..9),
        heard in 0..9_u64,
        skipped_to in prop::option::of(0..9_u64),
        last in prop::option::of(0..9_u64),
        is_flying in any::<bool>(),
        max in 0..60_usize,
    ) {
        let log = log(&sizes);
        let mut position = LogPosition { heard, skipped_to, last, ..LogPosition::default() };
        let walk = |position: &LogPosition| {
            let after: Vec<(u64, usize)> = (1..).zip(&sizes)
                .filter(|(seq, _)| *seq > heard && last.is_none_or(|last| *seq <= last))
                .filter(|(seq, _)| {
                    let skipped_to = position.skipped_to.unwrap_or(0);
                    *seq > position.heard && (*seq == position.heard + 1 || *seq > skipped_to)
                })
                .map(|(seq, entries)| (seq, *entries))
                .collect();
            after
        };
        let sum = |after: &[(u64, usize)]| Backlog {
            notifications: after.len(),
            entries: after.iter().map(|(_, entries)| entries).sum(),
        };
        let before = walk(&position);
        prop_assert_eq!(log.backlog(&position), sum(&before));
        let flying = before.first().map(|(seq, _)| *seq).filter(|seq| is_flying && *seq == heard + 1);
        let dropped = log.fall_behind(&mut position, flying, max);
        let after = walk(&position);
        prop_assert_eq!(log.backlog(&position), sum(&after));
        prop_assert_eq!(sum(&after).entries + dropped, sum(&before).entries);
        prop_assert!(flying.is_none_or(|flying| after.first().is_some_and(|(seq, _)| *seq == flying)));
        let droppable = after.iter().filter(|(seq, _)| Some(*seq) != flying);
        prop_assert!(sum(&after).entries <= max || droppable.count() == 0);
        let (_, last_dropped) = before.iter().rfind(|of| !after.contains(of)).copied().unwrap_or((0, 0));
        prop_assert!(dropped == 0 || sum(&after).entries + last_dropped > max);
    }

    /// However a hub limits the size, and whatever it refuses, it hears each entry once and in order.
    #[test]
    fn every_entry_is_heard_once(
        sizes in prop::collection::vec(1..20_usize, 0..8),
        answers in prop::collection::vec((1..20_usize, any::<bool>()), 0..200),
    ) {
        let log = log(&sizes);
        let mut position = LogPosition::default();
        let mut heard: BTreeMap<u64, usize> = BTreeMap::new();
        let answers = answers.into_iter().chain(std::iter::repeat((20, true)));
        for (limit, is_accepted) in answers {
            let Some((seq, part)) = log.next(&position, limit) else {
                break;
            };
            prop_assert!((1..=limit).contains(&part.range.entries()));
            let before = heard.get(&seq).copied().unwrap_or(0);
            prop_assert_eq!(part.range.start(), before);
            prop_assert_eq!(part.range.is_whole(), part.range.entries() == sizes[seq as usize - 1]);
            prop_assert_eq!(heard.keys().next_back().map_or(1, |last| *last.max(&1)) <= seq, true);
            if is_accepted {
                heard.insert(seq, before + part.range.entries());
                let is_whole = position.accept(seq, part.range.entries(), sizes[seq as usize - 1]);
                prop_assert_eq!(is_whole, heard[&seq] == sizes[seq as usize - 1]);
            }
        }
        let heard: Vec<usize> = heard.into_values().collect();
        prop_assert_eq!(heard, sizes);
    }
}
