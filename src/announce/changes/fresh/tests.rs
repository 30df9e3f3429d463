//! Lists and taken keys as words, a key for each letter.

use proptest::prelude::*;
use rstest::rstest;

use super::{Comparison, ListedEntries};
use crate::resourcesync::change::ChangeKey;
use crate::resourcesync::change_list::Listed;
use crate::resourcesync::uri::Uri;

fn key(letter: char) -> ChangeKey {
    ChangeKey([letter as u8; 16])
}

fn listed(word: &str) -> Vec<Listed> {
    let entries = word.chars().zip(0..).map(|(letter, position)| Listed {
        key: key(letter),
        datetime: None,
        position,
        offset: 0,
    });
    entries.collect()
}

/// Returns the fresh letters of each list. One that begins with `=` is learned.
fn fresh(words: &[&str], taken: &[&str]) -> Vec<String> {
    let list = Uri::parse("https://e.org/list.xml").unwrap();
    let letters = words
        .iter()
        .map(|word| listed(word.trim_start_matches('=')));
    let letters: Vec<Vec<Listed>> = letters.collect();
    let lists = words
        .iter()
        .zip(&letters)
        .map(|(word, entries)| ListedEntries {
            list: &list,
            entries,
            is_learned: word.starts_with('='),
        });
    let lists: Vec<ListedEntries<'_>> = lists.collect();
    let mut comparison = Comparison::new(&lists);
    for word in taken {
        comparison.pass(word.chars().map(key));
    }
    let fresh = comparison.fresh().into_iter().zip(&lists);
    let fresh = fresh.map(|(fresh, list)| {
        let letters = fresh
            .iter()
            .map(|at| char::from(list.entries[*at].key.0[0]));
        letters.collect()
    });
    fresh.collect()
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
fn what_is_listed_and_was_not_taken_is_fresh(
    #[case] words: &[&str],
    #[case] taken: &[&str],
    #[case] want: &[&str],
) {
    assert_eq!(fresh(words, taken), want);
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
            let most = |words: &[&str]| words.iter().map(|word| word.matches(letter).count()).max();
            let want = most(&words).unwrap_or(0).saturating_sub(most(&taken).unwrap_or(0));
            prop_assert_eq!(found.matches(letter).count(), want);
        }
    }
}
