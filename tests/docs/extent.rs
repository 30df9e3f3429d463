//! The pages are few, short and found by the words that people search for, and have every rule that is cited. A test
//! names each rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::page::repository;

/// Words that a heading, or a row of the README's table of pages, has.
const SEARCHED: &str = "backup|cron|docker|dspace|log level|pubsubhubbub|reload|resync-sync|troubleshooting|\
                        uninstall|upgrade|webhook";

/// Returns the pages of `docs/` with their texts.
fn texts() -> Vec<(String, String)> {
    let entries = fs::read_dir(repository().join("docs")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| has_ending(path, "md")).map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    pages.collect()
}

fn has_ending(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|ending| ending == wanted)
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[test]
fn pages_are_few_and_short() {
    let texts = texts();
    assert!(texts.len() <= 14, "{} pages", texts.len());
    let all: usize = texts.iter().map(|(_, text)| words(text)).sum();
    assert!(all <= 25_000, "{all} words in docs/*.md");
    for (name, text) in &texts {
        let is_of_rules = name == "how-it-decides.md";
        let most = if is_of_rules { 3_000 } else { 4_500 };
        assert!(words(text) <= most, "{} words in {name}", words(text));
    }
}

#[test]
fn pages_are_found_by_the_words_that_people_search_for() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, index) = readme.split_once("\n## Documentation\n").unwrap();
    let rows = index.lines().take_while(|line| !line.starts_with("## "));
    let texts = texts();
    let headings = texts.iter().flat_map(|(_, text)| text.lines());
    let headings = headings.filter(|line| line.starts_with('#'));
    let lines: Vec<String> = rows.chain(headings).map(str::to_lowercase).collect();
    for word in SEARCHED.split('|') {
        assert!(lines.iter().any(|line| line.contains(word)), "{word}");
    }
}

/// Returns the rules in a text: a letter and a number, as words of their own.
fn rules(text: &str) -> impl Iterator<Item = &str> {
    static RULE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b[RCFS](?:[1-9]|[123][0-9])\b").unwrap());
    RULE.find_iter(text).map(|rule| rule.as_str())
}

/// Adds the rules that the sources below `folder` cite in comments: to `tried` in tests, else to `cited`.
fn collect(folder: &Path, cited: &mut BTreeSet<String>, tried: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, cited, tried);
        } else if has_ending(&path, "rs") || has_ending(&path, "sql") {
            let text = fs::read_to_string(&path).unwrap();
            let is_of_tests = path
                .iter()
                .any(|part| part == "tests" || part == "tests.rs");
            let (rest, tests) = match text.split_once("\nmod tests {") {
                _ if is_of_tests => ("", text.as_str()),
                parts => parts.unwrap_or((&text, "")),
            };
            let comments = |text| {
                str::lines(text).filter_map(|line| {
                    let comment = line.split_once("//").or_else(|| line.split_once("--"));
                    comment.map(|(_, comment)| comment)
                })
            };
            tried.extend(comments(tests).flat_map(rules).map(str::to_owned));
            cited.extend(comments(rest).flat_map(rules).map(str::to_owned));
        }
    }
}

#[test]
fn rules_that_are_cited_exist_and_each_is_named_by_a_test() {
    let page = fs::read_to_string(repository().join("docs/how-it-decides.md")).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("**"));
    let there = headings.filter_map(|line| rules(line.split_once('.')?.0).next());
    let there: Vec<&str> = there.collect();
    for (letter, number) in [("R", 26), ("C", 29), ("F", 7), ("S", 4)] {
        let mut of_it = there.clone();
        of_it.retain(|rule| rule.starts_with(letter));
        let wanted = (1..=of_it.len().max(number)).map(|n| format!("{letter}{n}"));
        assert_eq!(of_it, Vec::from_iter(wanted));
    }
    let (mut cited, mut tried) = (BTreeSet::new(), BTreeSet::new());
    for folder in ["src", "crates", "tests"] {
        collect(&repository().join(folder), &mut cited, &mut tried);
    }
    let mut untried = there.clone();
    untried.retain(|rule| !tried.contains(*rule));
    assert!(untried.is_empty(), "no test names {untried:?}");
    cited.extend(tried);
    assert!(cited.contains("R15") && cited.contains("C8"), "{cited:?}");
    cited.retain(|rule| !there.contains(&rule.as_str()));
    assert!(cited.is_empty(), "docs/how-it-decides.md lacks {cited:?}");
}
