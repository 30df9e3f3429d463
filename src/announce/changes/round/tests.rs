//! Rounds over lists of words: a letter is an entry, its place in the alphabet its second; one in upper case has no
//! datetime.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::{KEYS_PER_ROW, ListToRead, TakeRequest, Taken, take};
use crate::announce::observation::{DocumentPath, MountId, Stat};
use crate::announce::state::KeyRow;
use crate::resourcesync::change::{Change, ChangeKey};
use crate::resourcesync::change_list::{Listed, ListedChanges};
use crate::resourcesync::datetime::Datetime;
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::payload::ChangeKind;
use crate::resourcesync::uri::Uri;

const GRACE: Duration = Duration::from_secs(300);

fn uri(text: &str) -> Uri {
    Uri::parse(&format!("https://e.org/{text}")).unwrap()
}

fn start() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn datetime(letter: char) -> Option<Datetime> {
    let second = u32::from(letter).wrapping_sub(u32::from('a'));
    letter
        .is_ascii_lowercase()
        .then(|| Datetime::parse(&format!("2026-11-20T10:00:{second:02}Z")))?
}

fn change(letter: char) -> Change {
    Change {
        loc: format!("https://e.org/{letter}").into(),
        lastmod: None,
        kind: ChangeKind::Updated,
        datetime: datetime(letter),
        hash: None,
        length: None,
        mime_type: None,
        encoding: None,
        links: Vec::new(),
    }
}

fn listed(word: &str) -> ListedChanges {
    let entries = word.chars().zip(0..).map(|(letter, position)| Listed {
        key: ChangeKey([letter as u8; 16]),
        datetime: datetime(letter),
        position,
        offset: 0,
    });
    ListedChanges {
        entries: entries.collect(),
        ..ListedChanges::default()
    }
}

/// A channel with the keys that were taken on it.
#[derive(Default)]
struct Channel {
    keys: BTreeMap<(Uri, u32), KeyRow>,
}

impl Channel {
    /// Takes at most `limit` entries of lists, so many seconds after the first. Returns the letters that were told.
    fn take(&mut self, lists: &[(&str, &str)], limit: usize, seconds: u64) -> (String, Taken) {
        let at = start() + Duration::from_secs(seconds);
        let request = TakeRequest {
            set: uri("set"),
            round: 1,
            at,
            lists: lists.iter().map(|(name, _)| list(name)).collect(),
            vanished_before: at - GRACE,
            limit,
            beyond: None,
            inventory: None,
        };
        let stored = self.keys.iter();
        let stored = stored.map(|((list, first), row)| Ok((list.clone(), *first, row.clone())));
        let all: Vec<ListedChanges> = lists.iter().map(|(_, word)| listed(word)).collect();
        let read = |list: usize, indices: &[usize]| {
            let letters: Vec<char> = lists[list].1.chars().collect();
            let read = indices.iter().map(|at| change(letters[*at]));
            Ok::<_, Infallible>(read.collect())
        };
        let Ok(taken) = take(&request, &all, stored, read);
        for (key, row) in &taken.keys {
            match row {
                Some(row) => self.keys.insert(key.clone(), row.clone()),
                None => self.keys.remove(key),
            };
        }
        let told = taken.changes.iter();
        let told = told.filter_map(|fresh| fresh.change.loc.chars().next_back());
        (told.collect(), taken)
    }

    /// Returns the letters that were taken of a list, and those that vanished from it.
    fn letters(&self, name: &str) -> (String, String) {
        let rows = self.keys.iter().filter(|((list, _), _)| *list == uri(name));
        let (vanished, there): (Vec<_>, Vec<_>) = rows
            .map(|(_, row)| row)
            .partition(|row| row.vanished.is_some());
        let letters = |rows: Vec<&KeyRow>| {
            let keys = rows.into_iter().flat_map(KeyRow::keys);
            keys.map(|key| char::from(key.0[0])).collect()
        };
        (letters(there), letters(vanished))
    }
}

fn list(name: &str) -> ListToRead {
    ListToRead {
        list: uri(name.trim_start_matches('=')),
        path: DocumentPath {
            mount: MountId(1),
            below: name.as_bytes().into(),
        },
        stat: Stat {
            size: 1,
            modified: start(),
            changed: start(),
            inode: 1,
        },
        fingerprint: Fingerprint([1; 32]),
        is_learned: name.starts_with('='),
    }
}

#[test]
fn what_a_list_gains_is_taken_in_order_of_time() {
    let mut channel = Channel::default();
    assert_eq!(channel.take(&[("=1", "ab")], 9, 60).0, "");
    let (told, taken) = channel.take(&[("1", "dcab"), ("2", "e")], 9, 60);
    assert_eq!(told, "cde");
    assert!(!taken.has_more);
    assert_eq!(channel.letters("1"), ("dcab".into(), "".into()));
    assert_eq!(channel.take(&[("1", "dcab"), ("2", "e")], 9, 60).0, "");
}

#[test]
fn an_undated_entry_follows_the_one_before_it_or_is_of_now() {
    let mut channel = Channel::default();
    let (told, taken) = channel.take(&[("1", "XcY"), ("2", "d")], 9, 60);
    assert_eq!(told, "cYdX");
    let times: Vec<i64> = taken
        .changes
        .iter()
        .map(|fresh| fresh.time.as_second() % 100)
        .collect();
    assert_eq!(times[..2], [times[0]; 2]);
    assert_eq!(taken.changes[3].time, start() + Duration::from_secs(60));
    assert_eq!(
        (taken.lists[0].told, taken.lists[0].undated.missing),
        (3, 2)
    );
}

#[test]
fn an_entry_that_lies_ahead_counts_as_undated() {
    let mut channel = Channel::default();
    let ahead = |channel: &mut Channel, at: Timestamp| {
        let request = TakeRequest {
            set: uri("set"),
            round: 1,
            at,
            lists: vec![list("1")],
            vanished_before: at,
            limit: 9,
            beyond: None,
            inventory: None,
        };
        let stored: [Result<(Uri, u32, KeyRow), Infallible>; 0] = [];
        let read =
            |_: usize, positions: &[usize]| Ok(positions.iter().map(|_| change('b')).collect());
        let Ok(taken) = take(&request, &[listed("b")], stored, read);
        let _ = channel;
        (
            taken.changes[0].change.datetime.is_none(),
            taken.lists[0].undated.ahead,
            taken.lists[0].latest,
        )
    };
    let early = "2026-11-20T09:55:00Z".parse().unwrap();
    assert_eq!(ahead(&mut channel, early), (true, 1, None));
    let in_time = "2026-11-20T09:55:01Z".parse().unwrap();
    let at = datetime('b').unwrap().at();
    assert_eq!(ahead(&mut channel, in_time), (false, 0, Some(at)));
}

#[test]
fn a_round_takes_no_more_than_its_limit() {
    let mut channel = Channel::default();
    let lists = [("1", "aceg"), ("2", "bdf")];
    let mut told = Vec::new();
    for _ in 0..4 {
        let (word, taken) = channel.take(&lists, 2, 60);
        assert_eq!(taken.has_more, told.len() < 3);
        let complete = taken.lists.iter().all(|list| list.fingerprint.is_some());
        assert_eq!(complete, !taken.has_more);
        told.push(word);
    }
    assert_eq!(told, ["ab", "cd", "ef", "g"]);
}

#[test]
fn what_vanished_is_forgotten_after_the_grace() {
    let mut channel = Channel::default();
    channel.take(&[("1", "abc")], 9, 0);
    channel.take(&[("1", "c")], 9, 10);
    assert_eq!(channel.letters("1"), ("c".into(), "ab".into()));
    assert_eq!(channel.take(&[("1", "cb")], 9, 310).0, "");
    channel.take(&[("1", "c")], 9, 310);
    // One vanished again, and later.
    assert_eq!(channel.take(&[("1", "c")], 9, 311).0, "");
    assert_eq!(channel.letters("1").1, "b");
    assert_eq!(channel.take(&[("1", "cab")], 9, 312).0, "a");
}

#[test]
fn what_vanished_from_one_list_is_not_fresh_in_another() {
    let mut channel = Channel::default();
    channel.take(&[("1", "abc")], 9, 0);
    channel.take(&[("1", "")], 9, 10);
    assert_eq!(channel.take(&[("1", ""), ("2", "abcd")], 9, 20).0, "d");
}

#[test]
fn rows_that_did_not_change_are_not_written() {
    let mut channel = Channel::default();
    let word: String = std::iter::repeat_n('a', KEYS_PER_ROW).collect();
    channel.take(&[("1", &word)], 9_999, 0);
    let (_, taken) = channel.take(&[("1", &format!("{word}b"))], 9_999, 1);
    let rows: Vec<u32> = taken.keys.keys().map(|(_, first)| *first).collect();
    assert_eq!(rows, [1]);
    for (word, seconds) in [("b", 2), ("c", 3)] {
        channel.take(&[("2", word)], 9_999, seconds);
    }
    let (_, taken) = channel.take(&[("2", "cd")], 9_999, 4);
    let rows: Vec<u32> = taken.keys.keys().map(|(_, first)| *first).collect();
    assert_eq!(rows, [0], "what vanished stays where it is");
}

proptest! {
    /// However lists grow, are rewritten and divided into rounds, each key is told as often as it was fresh.
    #[test]
    fn every_fresh_entry_is_taken_once(
        versions in prop::collection::vec(("[a-eX-Z]{0,8}", "[a-eX-Z]{0,8}"), 1..8),
        limit in 1..5_usize,
    ) {
        let mut channel = Channel::default();
        let mut told: BTreeMap<char, usize> = BTreeMap::new();
        let mut most: BTreeMap<char, usize> = BTreeMap::new();
        for (one, other) in &versions {
            for word in [one, other] {
                for letter in word.chars() {
                    let count = most.entry(letter).or_default();
                    *count = word.matches(letter).count().max(*count);
                }
            }
            loop {
                let (word, taken) = channel.take(&[("1", one), ("2", other)], limit, 60);
                prop_assert!(word.len() <= limit);
                prop_assert!(taken.changes.is_sorted_by_key(|fresh| fresh.time));
                for letter in word.chars() {
                    *told.entry(letter).or_default() += 1;
                }
                if !taken.has_more {
                    break;
                }
                prop_assert_eq!(word.len(), limit);
            }
            let letters = |name, word: &str| {
                let (mut there, _) = channel.letters(name);
                there = there.chars().collect();
                there == word
            };
            prop_assert!(letters("1", one) && letters("2", other));
        }
        prop_assert_eq!(told, most);
    }
}
