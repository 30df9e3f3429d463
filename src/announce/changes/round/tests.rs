//! Rounds over lists of words: a letter is an entry, its place in the alphabet its second; one in upper case has no
//! datetime (C7, C13).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use resourcesync::change::{Change, ChangeKey};
use resourcesync::change_list::{EntryPlace, Listed, ListedChanges};
use resourcesync::datetime::Datetime;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::Uri;

use super::{ListToRead, RoundFiles, Rounds, TakeRequest, Taken, WatchedTime};
use crate::announce::changes::taken_keys::KEYS_PER_ROW;
use crate::announce::changes::taken_keys::KeyRow;
use crate::announce::observation::{DocumentPath, MountId, Stat};
use crate::state::DocId;

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

/// Entries of a list, each of so many MiB.
fn listed(word: &str, size: u32) -> ListedChanges {
    let entries = word.chars().zip(0..).map(|(letter, position)| Listed {
        place: EntryPlace {
            position,
            key: ChangeKey([letter as u8; 16]),
            offset: position * (size << 20),
            end: (position + 1) * (size << 20),
        },
        datetime: datetime(letter),
    });
    ListedChanges {
        entries: entries.collect(),
        ..ListedChanges::default()
    }
}

/// A channel with the keys that were taken on it.
#[derive(Default)]
struct TakingChannel {
    keys: BTreeMap<(Uri, u32), KeyRow>,
    rounds: Rounds,
    /// The last round.
    last: Option<u64>,
}

/// Lists, each with its word, and the keys that were taken.
struct Words<'a> {
    words: BTreeMap<Uri, &'a str>,
    keys: &'a BTreeMap<(Uri, u32), KeyRow>,
    /// Lists that were read for their keys.
    read: usize,
}

impl RoundFiles for Words<'_> {
    type Error = Infallible;

    fn keys(&mut self, list: &ListToRead) -> Result<ListedChanges, Infallible> {
        self.read += 1;
        let size = match list.path.below.first() {
            Some(b'+') => 7,
            Some(b'#') => 20,
            _ => 0,
        };
        Ok(listed(self.words[&list.list], size))
    }

    fn changes(
        &mut self,
        list: &ListToRead,
        _: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, Infallible> {
        let letters: Vec<char> = self.words[&list.list].chars().collect();
        let read = places
            .iter()
            .map(|place| change(letters[place.position as usize]));
        Ok(read.collect())
    }

    fn taken(&mut self, list: &Uri) -> Result<BTreeMap<u32, KeyRow>, Infallible> {
        let rows = self.keys.iter().filter(|((of, _), _)| of == list);
        Ok(rows
            .map(|((_, first), row)| (*first, row.clone()))
            .collect())
    }

    fn last_taken(&mut self, list: &Uri) -> Result<Option<(u32, KeyRow)>, Infallible> {
        let mut rows = self.taken(list)?.into_iter();
        Ok(rows.rfind(|(_, row)| row.vanished.is_none()))
    }

    fn each_taken(&mut self, pass: &mut dyn FnMut(Uri, u32, KeyRow)) -> Result<(), Infallible> {
        for ((list, first), row) in self.keys {
            pass(list.clone(), *first, row.clone());
        }
        Ok(())
    }
}

impl TakingChannel {
    /// Takes at most `limit` entries of lists, so many seconds after the first. Returns the letters that were told.
    fn take(&mut self, lists: &[(&str, &str)], limit: usize, seconds: u64) -> (String, Taken) {
        let (told, taken, _) = self.read(lists, limit, seconds);
        (told, taken)
    }

    /// Returns the number of lists that were compared, too.
    fn read(
        &mut self,
        lists: &[(&str, &str)],
        limit: usize,
        seconds: u64,
    ) -> (String, Taken, usize) {
        self.read_before(lists, limit, seconds, None)
    }

    /// Lets the entries from a time on wait.
    fn read_before(
        &mut self,
        lists: &[(&str, &str)],
        limit: usize,
        seconds: u64,
        beyond: Option<Timestamp>,
    ) -> (String, Taken, usize) {
        let at = start() + Duration::from_secs(seconds);
        let round = self.last.map_or(1, |last| last + 1);
        let request = TakeRequest {
            set: uri("set"),
            round,
            after: self.last,
            at,
            lists: lists
                .iter()
                .map(|(name, word)| version(name, word))
                .collect(),
            watch: WatchedTime {
                since: start(),
                now: at,
                grace: GRACE,
            },
            limit,
            beyond,
            told_until: None,
            inventory: None,
        };
        let words = lists.iter();
        let words = words.map(|(name, word)| (version(name, word).list, *word));
        let mut files = Words {
            words: words.collect(),
            keys: &self.keys,
            read: 0,
        };
        let Ok(taken) = self.rounds.take(&request, &mut files);
        let read = files.read;
        self.last = Some(round);
        for (key, row) in &taken.keys {
            match row {
                Some(row) => self.keys.insert(key.clone(), row.clone()),
                None => self.keys.remove(key),
            };
        }
        let told = taken.changes.iter();
        let told = told.filter_map(|fresh| fresh.change.loc.chars().next_back());
        (told.collect(), taken, read)
    }

    /// Begins anew, as after a crash.
    fn restart(&mut self) {
        self.rounds = Rounds::default();
        self.last = None;
    }

    /// Returns the letters that were taken of a list, and those that vanished from it.
    fn letters(&self, name: &str) -> (String, String) {
        let rows = self.keys.iter().filter(|((list, _), _)| *list == uri(name));
        let (vanished, there): (Vec<_>, Vec<_>) = rows
            .map(|(_, row)| row)
            .partition(|row| row.vanished.is_some());
        let letters = |rows: Vec<&KeyRow>| {
            let keys = rows.into_iter().flat_map(KeyRow::keys);
            let mut letters: Vec<char> = keys.map(|key| char::from(key.0[0])).collect();
            letters.sort_unstable();
            letters.into_iter().collect()
        };
        (letters(there), letters(vanished))
    }
}

/// A list that is learned if its name begins with `=`, and archived if with `-`; its entries are large with `+`, and larger
/// with `#`.
fn version(name: &str, word: &str) -> ListToRead {
    let mut fingerprint = [0; 32];
    for (byte, letter) in fingerprint.iter_mut().zip(word.bytes()) {
        *byte = letter;
    }
    ListToRead {
        id: DocId(1),
        list: uri(name.trim_start_matches(['=', '-', '+', '#'])),
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
        fingerprint: Fingerprint(fingerprint),
        is_learned: name.starts_with('='),
        is_archived: name.starts_with('-'),
        closed_until: None,
        waits: false,
        left: None,
    }
}

#[test]
fn what_a_list_gains_is_taken_in_order_of_time() {
    let mut channel = TakingChannel::default();
    assert_eq!(channel.take(&[("=1", "ab")], 9, 60).0, "");
    let (told, taken) = channel.take(&[("1", "dcab"), ("2", "e")], 9, 60);
    assert_eq!(told, "cde");
    assert!(!taken.has_more);
    assert_eq!(channel.letters("1"), ("abcd".into(), "".into()));
    assert_eq!(channel.take(&[("1", "dcab"), ("2", "e")], 9, 60).0, "");
}

#[test]
fn an_undated_entry_follows_the_one_before_it_or_is_of_now() {
    let mut channel = TakingChannel::default();
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
    let ahead = |at: Timestamp| {
        let request = TakeRequest {
            set: uri("set"),
            round: 1,
            after: None,
            at,
            lists: vec![version("1", "b")],
            watch: WatchedTime {
                since: at,
                now: at,
                grace: GRACE,
            },
            limit: 9,
            beyond: None,
            told_until: None,
            inventory: None,
        };
        let mut files = Words {
            words: [(uri("1"), "b")].into(),
            keys: &BTreeMap::new(),
            read: 0,
        };
        let Ok(taken) = Rounds::default().take(&request, &mut files);
        (
            taken.changes[0]
                .change
                .datetime
                .map(|datetime| datetime.at())
                > Some(taken.changes[0].time),
            taken.lists[0].undated.ahead,
            taken.lists[0].latest,
        )
    };
    let early = "2026-11-20T09:55:00Z".parse().unwrap();
    assert_eq!(ahead(early), (true, 1, None));
    let in_time = "2026-11-20T09:55:01Z".parse().unwrap();
    let at = datetime('b').unwrap().at();
    assert_eq!(ahead(in_time), (false, 0, Some(at)));
}

#[test]
fn a_round_takes_no_more_than_its_limit() {
    let mut channel = TakingChannel::default();
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
fn a_round_takes_no_more_than_fits_into_memory() {
    for (list, words) in [
        ("+1", &["ab", "cd", "e"][..]),
        ("#1", &["a", "b", "c", "d", "e"]),
    ] {
        let mut channel = TakingChannel::default();
        let mut told = Vec::new();
        for _ in words {
            let (word, taken) = channel.take(&[(list, "abcde")], 9, 60);
            told.push(word);
            assert_eq!(taken.has_more, told.len() < words.len());
        }
        assert_eq!(told, words);
    }
}

#[test]
fn what_vanished_is_forgotten_after_the_grace() {
    let mut channel = TakingChannel::default();
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
    let mut channel = TakingChannel::default();
    channel.take(&[("1", "abc")], 9, 0);
    channel.take(&[("1", "")], 9, 10);
    assert_eq!(channel.take(&[("1", ""), ("2", "abcd")], 9, 20).0, "d");
}

#[test]
fn rows_that_did_not_change_are_not_written() {
    let mut channel = TakingChannel::default();
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

#[test]
fn lists_are_not_compared_again_while_only_rounds_take_of_them() {
    let mut channel = TakingChannel::default();
    let lists = [("1", "abefY"), ("2", "bcd")];
    let read = |channel: &mut TakingChannel, lists: &[(&str, &str)]| {
        let (told, _, read) = channel.read(lists, 2, 60);
        (told, read)
    };
    assert_eq!(read(&mut channel, &lists), ("ab".into(), 2));
    assert_eq!(channel.letters("2").0, "b", "taken with its copy");
    assert_eq!(read(&mut channel, &lists), ("cd".into(), 0));
    let lists = [("1", "abefY")];
    assert_eq!(
        read(&mut channel, &lists),
        ("ef".into(), 0),
        "2 is complete"
    );
    assert_eq!(read(&mut channel, &lists), ("Y".into(), 0));
}

#[test]
fn a_comparison_is_thrown_away_when_anything_changes() {
    let begin = |channel: &mut TakingChannel| channel.read(&[("1", "abcd"), ("2", "e")], 2, 60).2;
    let mut channel = TakingChannel::default();
    assert_eq!(begin(&mut channel), 2);
    let rewritten = channel.read(&[("1", "abcde"), ("2", "e")], 2, 60);
    assert_eq!((rewritten.0.as_str(), rewritten.2), ("cd", 2));

    let mut channel = TakingChannel::default();
    begin(&mut channel);
    let joined = channel.read(&[("1", "abcd"), ("2", "e"), ("3", "")], 2, 60);
    assert_eq!((joined.0.as_str(), joined.2), ("cd", 3));

    let mut channel = TakingChannel::default();
    begin(&mut channel);
    let ended = channel.read(&[("1", "abcd")], 2, 60);
    assert_eq!((ended.0.as_str(), ended.2), ("cd", 1));

    let mut channel = TakingChannel::default();
    begin(&mut channel);
    channel.restart();
    let restarted = channel.read(&[("1", "abcd"), ("2", "e")], 2, 60);
    assert_eq!((restarted.0.as_str(), restarted.2), ("cd", 2));

    let mut channel = TakingChannel::default();
    begin(&mut channel);
    let before = channel.keys.clone();
    channel.last = None;
    channel.keys.clear();
    let lost = channel.read(&[("1", "abcd"), ("2", "e")], 2, 60);
    assert_eq!((lost.0.as_str(), lost.2), ("ab", 2), "it was not saved");
    assert_eq!(channel.keys, before);
}

#[test]
fn times_of_a_comparison_do_not_count_for_long_if_they_depend_on_it() {
    let mut channel = TakingChannel::default();
    let lists = [("1", "XYZ")];
    assert_eq!(channel.read(&lists, 1, 0).2, 1);
    assert_eq!(channel.read(&lists, 1, 300).2, 0);
    assert_eq!(channel.read(&lists, 1, 301).2, 1);
    let mut channel = TakingChannel::default();
    let lists = [("1", "abc")];
    assert_eq!(channel.read(&lists, 1, 60).2, 1);
    assert_eq!(channel.read(&lists, 1, 6_000).2, 0, "these have their own");
}

#[test]
fn a_round_writes_no_more_than_it_takes() {
    let mut channel = TakingChannel::default();
    let word: String = std::iter::repeat_n('a', 3 * KEYS_PER_ROW).collect();
    channel.take(&[("1", &word)], 1, 60);
    for taken in 2..9 {
        let (_, round) = channel.take(&[("1", &word)], KEYS_PER_ROW / 2, 60);
        let rows: Vec<usize> = round.keys.values().flatten().map(KeyRow::count).collect();
        assert!(
            rows.iter().sum::<usize>() <= 2 * KEYS_PER_ROW,
            "{taken}: {rows:?}"
        );
    }
    assert!(channel.keys.values().all(|row| row.count() <= KEYS_PER_ROW));
    assert_eq!(channel.keys.len(), 3);
}

#[test]
fn an_archived_list_hides_no_entry_of_another() {
    let mut channel = TakingChannel::default();
    let lists = [("-1", "abc"), ("2", "bcd")];
    assert_eq!(channel.take(&lists, 1, 60).0, "b");
    assert_eq!(
        channel.letters("1").0,
        "ab",
        "the others wait for their copies"
    );
    assert_eq!(channel.take(&lists, 9, 60).0, "cd");
    assert_eq!(channel.letters("1").0, "abc");
    assert_eq!(
        channel.take(&[("3", "abcd")], 9, 60).0,
        "",
        "it was learned"
    );
}

#[test]
fn of_equal_entries_that_wait_the_earliest_are_taken_first() {
    let mut channel = TakingChannel::default();
    channel.rounds.max = 1;
    channel.take(&[("1", ""), ("2", "Z")], 1, 60);
    let mut told = String::new();
    loop {
        // The first stands for what was taken from the other list, and has the time of the round.
        let (word, taken) = channel.take(&[("1", "ZaZ"), ("2", "")], 1, 60);
        told.push_str(&word);
        if !taken.has_more {
            break;
        }
    }
    assert_eq!(told, "aZ");
}

#[test]
fn a_list_that_keeps_losing_entries_has_few_rows() {
    let mut channel = TakingChannel::default();
    let word: String = std::iter::repeat_n('a', 5 * KEYS_PER_ROW).collect();
    channel.take(&[("1", &word)], usize::MAX, 60);
    channel.take(&[("1", &format!("{}b", &word[..KEYS_PER_ROW]))], 9, 60);
    channel.take(&[("1", "b")], 9, 400);
    channel.take(&[("1", "bc")], 9, 800);
    assert_eq!(channel.keys.len(), 1);
}

proptest! {
    /// However lists grow, are rewritten and divided into rounds, each key is told as often as it was fresh.
    #[test]
    fn every_fresh_entry_is_taken_once(
        versions in prop::collection::vec(("[a-eX-Z]{0,8}", "[a-eX-Z]{0,8}"), 1..8),
        limit in 1..5_usize,
        room in 1..9_usize,
        crashes: u64,
    ) {
        let mut channel = TakingChannel::default();
        let mut rounds = 0;
        let mut told: BTreeMap<char, usize> = BTreeMap::new();
        let mut max: BTreeMap<char, usize> = BTreeMap::new();
        for (one, other) in &versions {
            for word in [one, other] {
                for letter in word.chars() {
                    let count = max.entry(letter).or_default();
                    *count = word.matches(letter).count().max(*count);
                }
            }
            loop {
                if crashes & (1 << rounds) != 0 {
                    channel.restart();
                }
                channel.rounds.max = room;
                rounds = (rounds + 1) % 64;
                let (word, taken) = channel.take(&[("1", one), ("2", other)], limit, 60);
                prop_assert!(word.len() <= limit);
                prop_assert!(taken.changes.is_sorted_by_key(|fresh| fresh.time));
                for letter in word.chars() {
                    *told.entry(letter).or_default() += 1;
                }
                if !taken.has_more {
                    break;
                }
                let has_taken = taken.lists.iter().any(|list| list.taken > 0);
                prop_assert!(has_taken);
            }
            let letters = |name, word: &str| {
                let mut wanted: Vec<char> = word.chars().collect();
                wanted.sort_unstable();
                channel.letters(name).0.chars().eq(wanted)
            };
            prop_assert!(letters("1", one) && letters("2", other));
        }
        prop_assert_eq!(told, max);
    }
}

#[test]
fn an_entry_that_another_list_tells_later_is_told_by_the_list_that_is_read_alone() {
    let mut channel = TakingChannel::default();
    let (first, second) = (("1", "dX"), ("2", "aX"));
    let (told, taken, _) = channel.read(&[first, second], 1, 60);
    assert_eq!((told.as_str(), taken.has_more), ("a", true));
    // The first entry of the other list waits, and so does its copy.
    let beyond = start() + Duration::from_secs(3);
    let (told, _, _) = channel.read_before(&[second], 1, 60, Some(beyond));
    assert_eq!(told, "X");
    let (told, _, _) = channel.read(&[first, second], 9, 60);
    assert_eq!(told, "d");
}
