//! Rounds over lists of words: a letter is an entry, its place in the alphabet its second; one in upper case has no
//! datetime (C7, C13).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use resourcesync::change::{Change, ChangeKey};
use resourcesync::change_list::{EntryPlace, ListedChanges, ListedKey};
use resourcesync::datetime::Datetime;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::Uri;
use rstest::rstest;

use super::KeptFreshSelections;
use crate::changes::round::{ListToRead, RoundInputs, RoundRequest, TakenNow, WatchTime};
use crate::changes::taken_keys::{KEYS_PER_ROW, KeysRow};
use crate::observation::{DocumentPath, MountId, Stat};
use crate::state::DocId;

fn uri(text: &str) -> Uri {
    Uri::parse(&format!("https://e.org/{text}")).unwrap()
}

/// So many seconds after the first entry.
fn at(seconds: u64) -> Timestamp {
    let start: Timestamp = "2026-11-20T10:00:00Z".parse().unwrap();
    start + Duration::from_secs(seconds)
}

fn datetime(letter: char) -> Option<Datetime> {
    let second = u32::from(letter).wrapping_sub(u32::from('a'));
    letter
        .is_ascii_lowercase()
        .then(|| Datetime::parse(&format!("2026-11-20T10:00:{second:02}Z")))?
}

/// Entries of a list, each of so many MiB.
fn listed(word: &str, size: u32) -> ListedChanges {
    let entries = word.chars().zip(0..).map(|(letter, position)| ListedKey {
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
    keys: BTreeMap<(Uri, u32), KeysRow>,
    rounds: KeptFreshSelections,
    /// The last round.
    last: Option<u64>,
    /// Lists that it compared.
    compared: usize,
    /// The time from which on entries wait.
    beyond: Option<Timestamp>,
}

/// Lists, each with its word, and the keys that were taken.
struct Words<'a> {
    words: BTreeMap<Uri, &'a str>,
    keys: &'a BTreeMap<(Uri, u32), KeysRow>,
    /// Lists that were read for their keys.
    read: usize,
}

impl RoundInputs for Words<'_> {
    type Error = Infallible;

    fn read_keys(&mut self, list: &ListToRead) -> Result<ListedChanges, Infallible> {
        self.read += 1;
        let size = match list.path.below.first() {
            Some(b'+') => 7,
            Some(b'#') => 20,
            _ => 0,
        };
        Ok(listed(self.words[&list.list], size))
    }

    fn read_changes(
        &mut self,
        list: &ListToRead,
        _: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, Infallible> {
        let letters: Vec<char> = self.words[&list.list].chars().collect();
        let changes = places.iter().map(|place| {
            let letter = letters[place.position as usize];
            Change {
                datetime: datetime(letter),
                ..Change::new(
                    format!("https://e.org/{letter}").into(),
                    ChangeKind::Updated,
                )
            }
        });
        Ok(changes.collect())
    }

    fn taken_rows(&mut self, list: &Uri) -> Result<BTreeMap<u32, KeysRow>, Infallible> {
        let rows = self.keys.iter().filter(|((of, _), _)| of == list);
        let rows = rows.map(|((_, first), row)| (*first, row.clone()));
        Ok(rows.collect())
    }

    fn last_taken_row(&mut self, list: &Uri) -> Result<Option<(u32, KeysRow)>, Infallible> {
        let mut rows = self.taken_rows(list)?.into_iter();
        Ok(rows.rfind(|(_, row)| row.vanished.is_none()))
    }

    fn each_taken(&mut self, pass: &mut dyn FnMut(Uri, u32, KeysRow)) -> Result<(), Infallible> {
        for ((list, first), row) in self.keys {
            pass(list.clone(), *first, row.clone());
        }
        Ok(())
    }
}

impl TakingChannel {
    /// Takes at most `limit` entries of lists, so many seconds after the first. Returns the letters that were told.
    fn take(&mut self, lists: &[(&str, &str)], limit: usize, seconds: u64) -> (String, TakenNow) {
        let round = self.last.map_or(1, |last| last + 1);
        let versions = lists.iter().map(|(name, word)| version(name, word));
        let request = RoundRequest {
            round,
            after: self.last,
            beyond: self.beyond,
            ..request(versions.collect(), at(seconds), limit)
        };
        let words = lists.iter();
        let words = words.map(|(name, word)| (version(name, word).list, *word));
        let mut files = Words {
            words: words.collect(),
            keys: &self.keys,
            read: 0,
        };
        let Ok(taken) = self.rounds.take_fresh(&request, &mut files);
        (self.compared, self.last) = (files.read, Some(round));
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

    /// Returns the letters that were told, and the number of lists that were compared.
    fn told(&mut self, lists: &[(&str, &str)], limit: usize, seconds: u64) -> (String, usize) {
        let (told, _) = self.take(lists, limit, seconds);
        (told, self.compared)
    }

    /// Begins anew, as after a crash.
    fn restart(&mut self) {
        self.rounds = KeptFreshSelections::default();
        self.last = None;
    }

    /// Returns the letters that were taken of a list, and those that vanished from it.
    fn letters(&self, name: &str) -> (String, String) {
        let rows = self.keys.iter().filter(|((list, _), _)| *list == uri(name));
        let (vanished, there): (Vec<_>, Vec<_>) = rows
            .map(|(_, row)| row)
            .partition(|row| row.vanished.is_some());
        let letters = |rows: Vec<&KeysRow>| {
            let keys = rows.into_iter().flat_map(KeysRow::keys);
            let mut letters: Vec<char> = keys.map(|key| char::from(key.0[0])).collect();
            letters.sort_unstable();
            letters.into_iter().collect()
        };
        (letters(there), letters(vanished))
    }
}

/// A request to take at most `limit` changes of some lists.
pub fn request(lists: Vec<ListToRead>, at: Timestamp, limit: usize) -> RoundRequest {
    RoundRequest {
        set: uri("set"),
        round: 1,
        after: None,
        at,
        lists,
        watch: WatchTime {
            since: at.min(self::at(0)),
            now: at,
            grace: Duration::from_secs(300),
        },
        limit,
        beyond: None,
        told_until: None,
        inventory: None,
    }
}

/// A list that is learned if its name begins with `=`, and archived if with `-`; its entries are large with `+`, and larger
/// with `#`.
pub fn version(name: &str, word: &str) -> ListToRead {
    let letter = |at| word.as_bytes().get(at).copied().unwrap_or_default();
    ListToRead {
        id: DocId(1),
        list: uri(name.trim_start_matches(['=', '-', '+', '#'])),
        path: DocumentPath {
            mount: MountId(1),
            below: name.as_bytes().into(),
        },
        stat: Stat {
            size: 1,
            modified: at(0),
            changed: at(0),
            inode: 1,
        },
        fingerprint: Fingerprint(std::array::from_fn(letter)),
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
    let times: Vec<Timestamp> = taken.changes.iter().map(|fresh| fresh.time).collect();
    assert_eq!(times, [at(2), at(2), at(3), at(60)]);
    let list = &taken.lists[0];
    assert_eq!((list.told, list.undated.missing), (3, 2));
}

#[test]
fn an_entry_that_lies_ahead_counts_as_undated() {
    // 5 minutes before its time, and a second more.
    let earlier = at(1) - Duration::from_secs(300);
    for (now, is_ahead) in [(earlier - Duration::from_secs(1), true), (earlier, false)] {
        let mut files = Words {
            words: [(uri("1"), "b")].into(),
            keys: &BTreeMap::new(),
            read: 0,
        };
        let request = request(vec![version("1", "b")], now, 9);
        let Ok(taken) = KeptFreshSelections::default().take_fresh(&request, &mut files);
        let (fresh, list) = (&taken.changes[0], &taken.lists[0]);
        assert_eq!(fresh.change.datetime.unwrap().at() > fresh.time, is_ahead);
        assert_eq!(list.undated.ahead, usize::from(is_ahead));
        assert_eq!(list.latest, (!is_ahead).then_some(at(1)));
    }
}

#[rstest]
#[case::than_its_limit(&[("1", "aceg"), ("2", "bdf")], 2, &["ab", "cd", "ef", "g"])]
#[case::than_fits_into_memory(&[("+1", "abcde")], 9, &["ab", "cd", "e"])]
#[case::than_one_that_is_large(&[("#1", "abcde")], 9, &["a", "b", "c", "d", "e"])]
fn a_round_takes_no_more(
    #[case] lists: &[(&str, &str)],
    #[case] limit: usize,
    #[case] words: &[&str],
) {
    let mut channel = TakingChannel::default();
    for (word, number) in words.iter().zip(1..) {
        let (told, taken) = channel.take(lists, limit, 60);
        assert_eq!(
            (told.as_str(), taken.has_more),
            (*word, number < words.len())
        );
        let is_whole = taken.lists.iter().all(|list| list.is_whole);
        assert_eq!(is_whole, !taken.has_more);
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
    let rows =
        |taken: TakenNow| -> Vec<u32> { taken.keys.keys().map(|(_, first)| *first).collect() };
    let (_, taken) = channel.take(&[("1", &format!("{word}b"))], 9_999, 1);
    assert_eq!(rows(taken), [1]);
    for (word, seconds) in [("b", 2), ("c", 3)] {
        channel.take(&[("2", word)], 9_999, seconds);
    }
    let (_, taken) = channel.take(&[("2", "cd")], 9_999, 4);
    assert_eq!(rows(taken), [0], "what vanished stays where it is");
}

#[test]
fn lists_are_not_compared_again_while_only_rounds_take_of_them() {
    let mut channel = TakingChannel::default();
    let lists = [("1", "abefY"), ("2", "bcd")];
    assert_eq!(channel.told(&lists, 2, 60), ("ab".into(), 2));
    assert_eq!(channel.letters("2").0, "b", "taken with its copy");
    assert_eq!(channel.told(&lists, 2, 60), ("cd".into(), 0));
    let is_complete = channel.told(&lists[..1], 2, 60);
    assert_eq!(is_complete, ("ef".into(), 0), "2 is complete");
    assert_eq!(channel.told(&lists[..1], 2, 60), ("Y".into(), 0));
}

const BEFORE: [(&str, &str); 2] = [("1", "abcd"), ("2", "e")];

#[rstest]
#[case::a_list_is_rewritten(&[("1", "abcde"), ("2", "e")], false)]
#[case::a_list_joins(&[("1", "abcd"), ("2", "e"), ("3", "")], false)]
#[case::a_list_ends(&[("1", "abcd")], false)]
#[case::the_daemon_restarts(&BEFORE, true)]
fn a_comparison_is_thrown_away_when(#[case] lists: &[(&str, &str)], #[case] restarts: bool) {
    let mut channel = TakingChannel::default();
    assert_eq!(channel.told(&BEFORE, 2, 60), ("ab".into(), 2));
    if restarts {
        channel.restart();
    }
    assert_eq!(channel.told(lists, 2, 60), ("cd".into(), lists.len()));
}

#[test]
fn a_comparison_is_thrown_away_when_a_round_was_not_saved() {
    let mut channel = TakingChannel::default();
    channel.take(&BEFORE, 2, 60);
    let before = std::mem::take(&mut channel.keys);
    channel.last = None;
    assert_eq!(channel.told(&BEFORE, 2, 60), ("ab".into(), 2));
    assert_eq!(channel.keys, before);
}

#[test]
fn times_of_a_comparison_do_not_count_for_long_if_they_depend_on_it() {
    let is_compared = |word: &str, at: &[u64]| -> Vec<usize> {
        let mut channel = TakingChannel::default();
        let read = |at: &u64| channel.told(&[("1", word)], 1, *at).1;
        at.iter().map(read).collect()
    };
    assert_eq!(is_compared("XYZ", &[0, 300, 301]), [1, 0, 1]);
    let own = is_compared("abc", &[60, 6_000]);
    assert_eq!(own, [1, 0], "these have their own");
}

#[test]
fn a_round_writes_no_more_than_it_takes() {
    let mut channel = TakingChannel::default();
    let word: String = std::iter::repeat_n('a', 3 * KEYS_PER_ROW).collect();
    channel.take(&[("1", &word)], 1, 60);
    for taken in 2..9 {
        let (_, round) = channel.take(&[("1", &word)], KEYS_PER_ROW / 2, 60);
        let rows = round.keys.values().flatten();
        let rows: Vec<usize> = rows.map(|row| row.keys().len()).collect();
        assert!(
            rows.iter().sum::<usize>() <= 2 * KEYS_PER_ROW,
            "{taken}: {rows:?}"
        );
    }
    let mut rows = channel.keys.values();
    assert!(rows.all(|row| row.keys().len() <= KEYS_PER_ROW));
    assert_eq!(channel.keys.len(), 3);
}

#[test]
fn an_archived_list_hides_no_entry_of_another() {
    let mut channel = TakingChannel::default();
    let lists = [("-1", "abc"), ("2", "bcd")];
    assert_eq!(channel.take(&lists, 1, 60).0, "b");
    let taken = channel.letters("1").0;
    assert_eq!(taken, "ab", "the others wait for their copies");
    assert_eq!(channel.take(&lists, 9, 60).0, "cd");
    assert_eq!(channel.letters("1").0, "abc");
    let told = channel.take(&[("3", "abcd")], 9, 60).0;
    assert_eq!(told, "", "it was learned");
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
    let (told, taken) = channel.take(&[first, second], 1, 60);
    assert_eq!((told.as_str(), taken.has_more), ("a", true));
    // The first entry of the other list waits, and so does its copy.
    channel.beyond = Some(at(3));
    assert_eq!(channel.take(&[second], 1, 60).0, "X");
    channel.beyond = None;
    let (told, _) = channel.take(&[first, second], 9, 60);
    assert_eq!(told, "d");
}
