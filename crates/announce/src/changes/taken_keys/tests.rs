//! Lists and taken keys as words, a key for each letter (C1, C4, C5).

use std::collections::BTreeMap;
use std::convert::Infallible;

use jiff::Timestamp;
use proptest::prelude::*;
use resourcesync::change::ChangeKey;
use resourcesync::change_list::EntryPlace;
use rstest::rstest;

use super::{ChannelComparison, ComparedEntries, UntakenEntry};

fn key(letter: char) -> ChangeKey {
    ChangeKey([letter as u8; 16])
}

/// Entries, each by its list and its letter.
fn letters(entries: &[UntakenEntry]) -> Vec<(u32, char)> {
    let letter = |entry: &UntakenEntry| (entry.list, char::from(entry.place.key.0[0]));
    entries.iter().map(letter).collect()
}

/// Compares lists with what was taken from others, each letter dated by its position. A list that begins with `=` is
/// learned, one with `-` is archived. Returns the letters that were too late to be kept, too.
fn compare(words: &[&str], taken: &[&str], max: usize) -> (ComparedEntries, Vec<(u32, char)>) {
    let mut comparison = ChannelComparison::new(max);
    let mut late = Vec::new();
    for (list, word) in (0..).zip(words) {
        let mut copies: BTreeMap<char, u32> = BTreeMap::new();
        for (position, letter) in (0..).zip(word.trim_start_matches(['=', '-']).chars()) {
            let copy = copies.entry(letter).or_default();
            *copy += 1;
            if word.starts_with('=') {
                comparison.learn(key(letter), *copy);
                continue;
            }
            let candidate = UntakenEntry {
                place: EntryPlace {
                    position,
                    key: key(letter),
                    offset: 0,
                    end: 0,
                },
                time: Timestamp::new(i64::from(position), 0).unwrap(),
                list,
                copy: *copy,
                is_ahead: false,
                is_silent: word.starts_with('-'),
            };
            comparison.add(candidate, |dropped| late.push(*dropped));
        }
    }
    let compared = comparison.compare_across_lists(|pass| {
        for (number, word) in (1..).zip(taken) {
            word.chars().for_each(|letter| pass(number, key(letter)));
        }
        Ok::<_, Infallible>(())
    });
    let Ok(compared) = compared;
    (compared, letters(&late))
}

/// Returns the fresh letters of each list.
fn fresh(words: &[&str], taken: &[&str]) -> Vec<String> {
    let (compared, _) = compare(words, taken, usize::MAX);
    let mut fresh = vec![String::new(); words.len()];
    for (list, letter) in letters(&compared.fresh) {
        fresh[list as usize].push(letter);
    }
    fresh
}

#[rstest]
#[case::nothing_was_taken(&["abc"], &[], &["abc"])]
#[case::all_was_taken(&["abc"], &["cba"], &[""])]
#[case::appended(&["abcd"], &["ab"], &["cd"])]
#[case::slid(&["cde"], &["abc"], &["de"])]
#[case::as_often_as_it_stands_there(&["aaab"], &["a"], &["aab"])]
#[case::less_often_than_before(&["ab"], &["aaa"], &["b"])]
#[case::once_in_several_lists(&["ab", "bc"], &[], &["ab", "c"])]
#[case::the_most_in_one_list_counts(&["aa", "aaa"], &[], &["aa", "a"])]
#[case::the_most_that_was_taken_from_one_list_counts(&["aaa"], &["a", "a"], &["aa"])]
#[case::taken_from_another_list(&["ab"], &["", "b"], &["a"])]
#[case::learned(&["=ab"], &[], &[""])]
#[case::learned_from_a_later_list(&["abc", "=b"], &[], &["ac", ""])]
#[case::archived(&["-ab"], &[], &[""])]
#[case::archived_and_told_by_a_later_list(&["-ab", "b"], &[], &["", "b"])]
fn what_is_listed_and_was_not_taken_is_fresh(
    #[case] words: &[&str],
    #[case] taken: &[&str],
    #[case] want: &[&str],
) {
    assert_eq!(fresh(words, taken), want);
}

#[test]
fn an_archived_entry_is_not_taken_for_one_that_was_too_late_to_be_kept() {
    // The live list has its entries later than the archived one.
    let (compared, late) = compare(&["-ab", "xyab"], &[], 2);
    assert!(compared.taken.is_empty(), "{compared:?}");
    assert!(late.contains(&(0, 'a')) && late.contains(&(0, 'b')));
    assert_eq!(letters(&compared.fresh), [(1, 'x'), (1, 'y')]);
}

#[test]
fn a_copy_is_taken_with_the_entry_that_is_told_for_it() {
    let (compared, _) = compare(&["ab", "xb"], &["x"], usize::MAX);
    assert_eq!(letters(&compared.fresh), [(0, 'a'), (0, 'b')]);
    assert_eq!(letters(&compared.copies), [(1, 'b')]);
    assert_eq!(letters(&compared.taken), [(1, 'x')]);
}

#[test]
fn of_too_many_entries_the_earliest_are_kept() {
    let (compared, late) = compare(&["abcdef", "ghijkl"], &[], 4);
    let kept = letters(&compared.fresh).into_iter();
    let kept: String = kept.map(|(_, letter)| letter).collect();
    assert!("agbhci".starts_with(&kept) && kept.len() >= 4, "{kept}");
    assert_eq!(kept.len() + late.len(), 12);
    assert!(late.iter().all(|(_, letter)| !kept.contains(*letter)));
}

proptest! {
    /// Over all lists a key is fresh as often as the most in one list exceeds the most that was taken from one.
    #[test]
    fn each_key_is_fresh_as_often_as_it_came(
        words in prop::collection::vec("[a-c]{0,6}", 0..4),
        taken in prop::collection::vec("[a-c]{0,6}", 0..4),
    ) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
        let found = fresh(&words, &taken).concat();
        for letter in ['a', 'b', 'c'] {
            let max = |words: &[&str]| words.iter().map(|word| word.matches(letter).count()).max();
            let want = max(&words).unwrap_or(0).saturating_sub(max(&taken).unwrap_or(0));
            prop_assert_eq!(found.matches(letter).count(), want);
        }
    }
}
