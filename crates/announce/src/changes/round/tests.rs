//! Times are milliseconds since the `from` of the first interval (C14, C15, C18).

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use resourcesync::change::Change;
use resourcesync::change_payload::{ChangePayload, entry_len};
use resourcesync::datetime::Datetime;
use resourcesync::payload::ChangeKind;
use rstest::rstest;

use super::{FreshChange, IntervalChanges, NotificationLimits, intervals};

const ANY: NotificationLimits = NotificationLimits {
    entries: 1_000,
    bytes: 1 << 20,
};

fn start() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn at(millis: i64) -> Timestamp {
    start() + SignedDuration::from_millis(millis)
}

/// Cuts changes into notifications, of which the first begins at a time.
fn cut(all: &[FreshChange], from: Timestamp, limits: NotificationLimits) -> Vec<IntervalChanges> {
    let empty = ChangePayload {
        up: None,
        from,
        until: from,
        entries: Vec::new(),
    };
    intervals(all, empty, limits).collect()
}

/// A change of that effective time, which its datetime names if it has one.
fn fresh(number: usize, millis: i64, is_dated: bool) -> FreshChange {
    let datetime = Datetime::parse(&format!("{:.3}", at(millis)));
    FreshChange {
        change: Change {
            datetime: datetime.filter(|_| is_dated),
            ..Change::new(
                format!("https://e.org/{number}").into(),
                ChangeKind::Updated,
            )
        },
        time: at(millis),
        list: number % 2,
    }
}

/// Returns the number of entries and the `until` of each interval, in microseconds.
fn summary(intervals: &[IntervalChanges]) -> Vec<(usize, i64)> {
    let summary = intervals.iter().map(|interval| {
        let until = interval.payload.until.duration_since(start());
        (interval.payload.entries.len(), until.as_micros() as i64)
    });
    summary.collect()
}

#[rstest]
#[case::none(&[], 3, &[])]
#[case::one_notification(&[1, 2, 2], 3, &[(3, 2_000)])]
#[case::between_two_times(&[1, 2, 3, 4], 3, &[(3, 3_000), (1, 4_000)])]
#[case::before_a_time_that_would_be_divided(&[1, 2, 2, 2], 3, &[(1, 1_000), (3, 2_000)])]
#[case::of_one_time(&[1, 1, 1, 1, 1], 2, &[(2, 1_000), (2, 1_002), (1, 1_003)])]
#[case::a_divided_time_leaves_room(&[1, 1, 1, 2], 2, &[(2, 1_000), (2, 2_000)])]
#[case::back_dated(&[-5, -5], 3, &[(2, 2)])]
fn changes_are_cut(#[case] times: &[i64], #[case] max: usize, #[case] want: &[(usize, i64)]) {
    let times = times.iter().enumerate();
    let changes = times.map(|(number, time)| fresh(number, *time, true));
    let changes: Vec<_> = changes.collect();
    let limits = NotificationLimits {
        entries: max,
        ..ANY
    };
    let cut = cut(&changes, start(), limits);
    assert_eq!(summary(&cut), want);
}

#[test]
fn a_notification_has_so_many_bytes() {
    let changes: Vec<FreshChange> = (0..4).map(|at| fresh(at, at as i64 + 1, true)).collect();
    let bytes = entry_len(&changes[0].change);
    let limits = NotificationLimits {
        bytes: 2 * bytes,
        ..ANY
    };
    let two = cut(&changes, start(), limits);
    assert_eq!(summary(&two), [(2, 2_000), (2, 4_000)]);
    // One that is too large by itself is told by itself.
    let limits = NotificationLimits { bytes: 1, ..ANY };
    assert_eq!(cut(&changes, start(), limits).len(), 4);
}

#[rstest]
#[case("2026-11-20T09:59:59Z", false)]
#[case("2026-11-20T09:59:59.999Z", false)]
// It names the whole second in which the interval begins.
#[case("2026-11-20T10:00:00Z", true)]
#[case("2026-11-20T10:00:00.5Z", true)]
#[case("2026-11-20T10:00:00.400Z", false)]
fn a_datetime_before_the_interval_is_left_out(#[case] datetime: &str, #[case] is_kept: bool) {
    let mut change = fresh(1, 0, true);
    let datetime = Datetime::parse(datetime).unwrap();
    (change.change.datetime, change.time) = (Some(datetime), datetime.at());
    let cut = cut(&[change], at(500), ANY);
    assert_eq!(
        cut[0].payload.entries[0].datetime,
        is_kept.then_some(datetime)
    );
    let (mut outside, mut back_dated) = (vec![(0, datetime)], [(1, 1)].into());
    if is_kept {
        (outside, back_dated) = Default::default();
    }
    assert_eq!(
        (&cut[0].outside, &cut[0].back_dated),
        (&outside, &back_dated)
    );
}

#[test]
fn a_datetime_that_is_ahead_of_the_effective_time_is_left_out() {
    let mut change = fresh(1, 600, true);
    let ahead = Datetime::parse("2026-11-20T11:00:00Z");
    change.change.datetime = ahead;
    let cut = cut(&[fresh(0, 600, true), change], at(500), ANY);
    assert!(cut[0].payload.entries[0].datetime.is_some());
    assert_eq!(cut[0].payload.entries[1].datetime, None);
    assert_eq!(cut[0].outside, [(1, ahead.unwrap())]);
    assert!(cut[0].back_dated.is_empty());
}

proptest! {
    #[test]
    fn intervals_are_consecutive_and_have_every_change_once(
        times in prop::collection::vec((-5_000..5_000_i64, any::<bool>()), 0..60),
        entries in 1..8_usize,
        lengths in 1..4_usize,
    ) {
        let mut times = times;
        times.sort();
        let changes: Vec<FreshChange> = times
            .iter()
            .enumerate()
            .map(|(number, (millis, is_dated))| fresh(number, *millis, *is_dated))
            .collect();
        let bytes = 150 * lengths;
        let cut = cut(&changes, start(), NotificationLimits { entries, bytes });
        let mut from = start();
        for interval in &cut {
            prop_assert_eq!(interval.payload.from, from);
            prop_assert!(interval.payload.until > from);
            prop_assert!((1..=entries).contains(&interval.payload.entries.len()));
            let len: usize = interval.payload.entries.iter().map(entry_len).sum();
            // Datetimes that were left out made it shorter.
            prop_assert!(len <= bytes || interval.payload.entries.len() == 1);
            for datetime in interval.payload.entries.iter().filter_map(|entry| entry.datetime) {
                prop_assert!(datetime.end() > from && datetime.at() <= interval.payload.until);
            }
            from = interval.payload.until;
        }
        let told = cut.iter().flat_map(|interval| &interval.payload.entries);
        let told: Vec<_> = told.map(|entry| &entry.loc).collect();
        let want: Vec<_> = changes.iter().map(|fresh| &fresh.change.loc).collect();
        prop_assert_eq!(told, want);
        let left_out: usize = cut.iter().flat_map(|interval| interval.back_dated.values()).sum();
        let dated = |changes: Vec<&Change>| changes.iter().filter(|entry| entry.datetime.is_some()).count();
        let before = dated(changes.iter().map(|fresh| &fresh.change).collect());
        let after = dated(cut.iter().flat_map(|interval| &interval.payload.entries).collect());
        prop_assert_eq!(before, after + left_out);
    }
}
