//! Tests of the sets together, and lists for the tests of their parts.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::Uri;

use super::ChangeSets;
use crate::announce::catalog::Catalog;
use crate::announce::changes::round::{ListToRead, Taken, TakenList, UndatedChanges};
use crate::announce::engine::change_sets::lists_to_read::ReadLists;
use crate::announce::engine::step::Step;
use crate::announce::event::Now;
use crate::announce::ids::ChannelId;
use crate::announce::observation::{DocumentPath, MountId, Stat};
use crate::announce::plan::ChangeWindowPlan;
use crate::announce::state::{ChangeSetRow, ListKind};

/// Returns the time at which both clocks show this second.
pub fn moment(second: i64) -> Now {
    Timestamp::new(second, 0).unwrap().into()
}

/// Takes the seconds for which timers were set.
pub fn timers(step: &mut Step) -> Vec<i64> {
    let timers = step.take_timers();
    timers.map(|(at, _)| at.as_second()).collect()
}

pub fn list(name: &str, size: u64) -> ListToRead {
    ListToRead {
        list: Uri::parse(&format!("https://e.org/{name}.xml")).unwrap(),
        path: DocumentPath {
            mount: MountId(1),
            below: Arc::from(name.as_bytes()),
        },
        stat: Stat {
            size,
            modified: Timestamp::UNIX_EPOCH,
            changed: Timestamp::UNIX_EPOCH,
            inode: 1,
        },
        fingerprint: Fingerprint([1; 32]),
        is_learned: false,
        is_archived: false,
        closed_until: None,
        waits: false,
    }
}

/// A list of which one entry was taken, and one is left.
pub fn taken(list: &ListToRead) -> TakenList {
    TakenList {
        list: list.list.clone(),
        version: list.fingerprint,
        fingerprint: None,
        left: None,
        listed: 2,
        taken: 1,
        waiting: 0,
        untold: 0,
        told: 1,
        latest: None,
        skipped: 0,
        first_skipped: None,
        undated: UndatedChanges::default(),
        rewritten: None,
        closed_until: None,
    }
}

/// Returns the names of lists, in order.
pub fn names(lists: &[ListToRead]) -> String {
    let names = lists
        .iter()
        .map(|list| String::from_utf8_lossy(&list.path.below).into_owned());
    let names: Vec<String> = names.collect();
    names.join(" ")
}

/// Begins a round that reads no lists, and returns its number.
fn begin(sets: &mut ChangeSets, set: &Uri, step: &mut Step) -> u64 {
    let next = ReadLists {
        lists: Vec::new(),
        is_partial: false,
        beyond: None,
    };
    let begun = sets.begin(set, ListKind::ChangeLists, &next, false, step);
    begun.unwrap().number
}

#[test]
fn a_comparison_holds_until_something_else_happens_to_the_set() {
    let set = Uri::parse("https://e.org/cl.xml").unwrap();
    let mut sets = ChangeSets::default();
    sets.open(&set, 0);
    let a = taken(&list("a", 1));
    let found = Taken {
        has_more: true,
        lists: vec![a.clone()],
        ..Taken::default()
    };
    let mut step = Step::new(Timestamp::UNIX_EPOCH.into());
    let take = |sets: &mut ChangeSets, step: &mut Step| {
        let round = begin(sets, &set, step);
        let known = sets.get_mut(&set).unwrap();
        assert!(known.schedule_mut().end(round));
        assert_eq!(known.schedule().last_taken(), None, "nothing was taken yet");
        let catalog = Catalog::default();
        sets.taken(&set, round, &found, Duration::ZERO, &catalog, step);
        assert_eq!(sets.get(&set).unwrap().schedule().last_taken(), Some(round));
    };
    take(&mut sets, &mut step);
    sets.learn(&set, &a.list, &mut step);
    assert_eq!(sets.get(&set).unwrap().schedule().last_taken(), None);
    take(&mut sets, &mut step);
    sets.forget_list(&a.list, &mut step);
    assert_eq!(sets.get(&set).unwrap().schedule().last_taken(), None);
}

#[test]
fn a_channel_that_ended_is_not_retiring_any_more() {
    let set = Uri::parse("https://e.org/cl.xml").unwrap();
    let mut sets = ChangeSets::default();
    let mut step = Step::new(Timestamp::UNIX_EPOCH.into());
    let known = sets.open(&set, 0);
    known
        .schedule_mut()
        .sign(&ChangeWindowPlan::default(), &mut step);
    begin(&mut sets, &set, &mut step);
    let (found, catalog) = (Taken::default(), Catalog::default());
    sets.taken(&set, 1, &found, Duration::ZERO, &catalog, &mut step);
    let known = sets.get_mut(&set).unwrap();
    known
        .schedule_mut()
        .sign(&ChangeWindowPlan::default(), &mut step);
    known.retire_channel(ChannelId(1), &mut step);
    let mut saved = |sets: &mut ChangeSets, lost| {
        sets.end_channel(&set, lost, None, &mut step);
        step.rows().change_sets[&set]
    };
    let row = |retiring_channel| {
        let learned = Some(ListKind::ChangeLists);
        Some(ChangeSetRow {
            learned,
            retiring_channel,
        })
    };
    assert_eq!(saved(&mut sets, ChannelId(2)), row(Some(ChannelId(1))));
    assert_eq!(saved(&mut sets, ChannelId(1)), row(None));
}
