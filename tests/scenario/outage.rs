//! A hub that is down for five weeks, during thousands of changes that the other hub receives (R22, R23).

mod library;

use std::path::Path;

use jiff::Timestamp;

use crate::outage::library::{Library, TOPIC, difference, taken};
use crate::world::{HUB, Heard, OTHER_HUB, Reply, World, two_hubs};

/// The most entries of a notification (R21).
const MAX_ENTRIES: usize = 250;
/// The behaviour of the other hub, week by week.
const WEEKS: [Reply; 5] = [
    Reply::Fail(0),
    Reply::Status(503),
    Reply::Fail(30),
    Reply::Status(429),
    Reply::Fail(0),
];

/// The first weeks, in which the daemon is started anew each day.
const WEEKS_WITH_RESTARTS: usize = 2;

#[test]
fn five_weeks_without_a_hub_are_one_difference_to_it_and_nothing_to_the_other() {
    // How long a disk takes to sync is not what this is about.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.unwrap();
    let mut plan = two_hubs();
    plan.sources[0].announce_all_deletions = true;
    plan.window.max_entries = MAX_ENTRIES;
    let mut library = Library::new(World::new(plan).kept_in(directory.path()));
    let known = library.tree.clone();
    let mut sizes = Vec::new();
    for (week, reply) in WEEKS.into_iter().enumerate() {
        library.world.script(OTHER_HUB, reply);
        let mut size = Size::default();
        for day in 0..7 {
            for _ in 0..6 {
                library.publish();
                library.rest();
            }
            library.world.wait(day * 100);
            size = Size::of(&library.world, directory.path());
            // Later weeks show what a daemon gathers that runs on.
            if week < WEEKS_WITH_RESTARTS {
                library.world.crash_and_start();
            }
        }
        let hub = library.world.account(TOPIC, OTHER_HUB).unwrap();
        assert_eq!(hub.in_flight, Some(1), "the first, and no other");
        sizes.push(size);
    }
    assert_eq!(library.heard, library.changes);
    assert!(library.changes > 5_000);
    stays_in_bounds(&sizes);
    keeps_its_pace(&library.attempts);

    library.world.crash_and_start();
    library.world.script(OTHER_HUB, Reply::Accept);
    library.world.wait(16 * 60);
    let heard = library.world.heard_by(OTHER_HUB);
    let (first, rest) = heard.split_first().unwrap();
    let (flight, tree) = library.flight.take().unwrap();
    assert_eq!(first.body, flight.body, "unchanged for five weeks");
    let told = taken(known, &first.payload, &tree);
    let wanted = difference(&told, &library.tree);
    let mut changes: Vec<String> = rest.iter().flat_map(Heard::changes).collect();
    changes.sort();
    assert_eq!(changes, wanted);
    assert_eq!(rest.len(), wanted.len().div_ceil(MAX_ENTRIES));
    assert!(heard.is_sorted_by_key(|heard| heard.payload.until));
    assert_eq!(library.world.told_to(HUB), library.world.told_to(OTHER_HUB));
    library.world.wait(86_400);
    assert_eq!(library.world.news_at(HUB).len(), 0);
    assert_eq!(library.world.news_at(OTHER_HUB).len(), 0);
}

/// The cost of an outage.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    /// All that the engine has in memory, written out.
    engine: usize,
    file: u64,
    log: u64,
}

impl Size {
    fn of(world: &World, directory: &Path) -> Size {
        let bytes = |name| std::fs::metadata(directory.join(name)).unwrap().len();
        Size {
            engine: format!("{:?}", world.engine()).len(),
            file: bytes("state.sqlite"),
            log: bytes("state.sqlite-wal"),
        }
    }
}

/// After a week, in which almost every document was changed, nothing grows any more. In memory is only what is configured,
/// and the last fifty notifications.
fn stays_in_bounds(sizes: &[Size]) {
    let first = sizes[0];
    for size in sizes {
        assert!(size.engine < 32 << 10, "{sizes:?}");
        assert!(size.file < first.file * 11 / 10, "{sizes:?}");
        assert!(size.log < 8 << 20, "{sizes:?}");
    }
}

/// R23: whatever the topics, the hub is asked by one notification at a time, at first each 2 s and later each 30 s. An
/// attempt itself takes up to 30 s. A start asks it twice at once.
fn keeps_its_pace(attempts: &[Timestamp]) {
    let waits = attempts.windows(2).map(|two| two[1].duration_since(two[0]));
    let waits: Vec<f64> = waits.map(|wait| wait.as_secs_f64()).collect();
    for wait in &waits {
        assert!((0.0..=60.0).contains(wait), "{wait} s");
    }
    let at_once = waits.iter().filter(|wait| **wait < 2.0).count();
    assert!(at_once <= 2 * 7 * WEEKS_WITH_RESTARTS, "{at_once}");
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    assert!((20.0..40.0).contains(&mean), "{mean} s on average");
}
