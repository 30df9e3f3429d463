//! The house rules that a machine can hold: what may use what, what the pure folders may not know, and that
//! ARCHITECTURE.md maps the code there is.

#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of `src/` that may use only some of the others.
const MAY_USE: [(&str, &[&str]); 7] = [
    ("resourcesync", &[]),
    ("announce", &["resourcesync"]),
    ("tree", &["resourcesync", "announce"]),
    ("store", &["resourcesync", "announce"]),
    ("websub", &["resourcesync", "announce"]),
    ("admin", &["resourcesync", "announce"]),
    ("config", &["resourcesync", "announce"]),
];

/// The folders that know no clock, disk, network, randomness or logging.
const PURE: [&str; 2] = ["resourcesync", "announce"];

/// What a pure folder may not say: paths, types and macros of the world outside.
const IMPURE: [&str; 37] = [
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "Timestamp::now",
    "Zoned::now",
    "SystemTime",
    "Instant",
    "OsRng",
    "RandomState",
    "thread_rng",
    "axum::",
    "fastrand::",
    "getrandom::",
    "inotify::",
    "notify::",
    "prometheus_client::",
    "rand::",
    "reqwest::",
    "rusqlite::",
    "rustix::",
    "sd_notify::",
    "tokio::",
    "tower_http::",
    "tracing::",
    "tracing_subscriber::",
    "uuid::",
    "dbg!",
    "eprint!",
    "eprintln!",
    "print!",
    "println!",
    "include_str!",
    "include_bytes!",
    "thread_local!",
];

/// What stands nowhere, tests included.
const NOWHERE: [(&str, &str); 4] = [
    ("super::super", "name the module from crate::"),
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("#[ignore", "a test runs, or is deleted"),
];

/// A Rust file, with comments and the content of texts blanked out, line by line.
struct SourceFile {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
    lines: Vec<Line>,
}

struct Line {
    code: String,
    /// Whether it belongs to an item that exists only in tests.
    is_test: bool,
}

impl SourceFile {
    /// The first folder below `src/`, or the name of a file directly in it.
    fn part(&self) -> Option<&str> {
        let below = self.path.strip_prefix("src/")?;
        Some(
            below
                .split('/')
                .next()
                .unwrap_or(below)
                .trim_end_matches(".rs"),
        )
    }

    /// The lines outside tests, numbered from 1.
    fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines.iter().enumerate();
        numbered
            .filter(|(_, line)| !line.is_test)
            .map(|(at, line)| (at + 1, line.code.as_str()))
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below the folders, in order.
fn source_files(folders: &[&str]) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    for folder in folders {
        collect(&repository().join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let path = path
                .strip_prefix(repository())
                .unwrap()
                .to_str()
                .unwrap()
                .replace('\\', "/");
            let is_test_file = !path.starts_with("src/")
                || path.ends_with("/tests.rs")
                || path.contains("/tests/");
            SourceFile {
                lines: lines(&text, is_test_file),
                path,
                text,
            }
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else {
            paths.push(path);
        }
    }
}

fn lines(text: &str, is_test_file: bool) -> Vec<Line> {
    let code = without_comments_and_texts(text);
    // The code is formatted: an item ends with the first line that closes at its own indentation.
    let mut test_item: Option<(usize, bool)> = None;
    code.lines()
        .map(|code| {
            let indentation = code.len() - code.trim_start().len();
            let trimmed = code.trim();
            if test_item.is_none() && is_test_attribute(trimmed) {
                test_item = Some((indentation, false));
            }
            let is_test = is_test_file || test_item.is_some();
            if let Some((item_indentation, has_begun)) = &mut test_item {
                let is_attribute = trimmed.starts_with("#[") || trimmed.is_empty();
                let is_at_level = indentation == *item_indentation && !is_attribute;
                let closes = is_at_level
                    && (trimmed.ends_with(';') || trimmed.ends_with('}') || trimmed.ends_with(','));
                if closes || (*has_begun && is_at_level && trimmed.starts_with('}')) {
                    test_item = None;
                } else {
                    *has_begun |= !is_attribute;
                }
            }
            Line {
                code: code.to_owned(),
                is_test,
            }
        })
        .collect()
}

fn is_test_attribute(trimmed: &str) -> bool {
    trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test")
}

/// The text with the same lines, in which comments, texts and characters are blank.
fn without_comments_and_texts(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let rest = &characters[at..];
        let previous = at.checked_sub(1).and_then(|before| characters.get(before));
        let begins_word =
            !previous.is_some_and(|previous| previous.is_alphanumeric() || *previous == '_');
        let skipped = match character {
            '/' if rest.get(1) == Some(&'/') => {
                rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
            }
            '/' if rest.get(1) == Some(&'*') => block_comment(rest),
            '"' => text_literal(rest),
            'r' if begins_word => raw_literal(rest),
            'b' if begins_word && rest.get(1) == Some(&'r') => match raw_literal(&rest[1..]) {
                0 => 0,
                length => length + 1,
            },
            '\'' => character_literal(rest),
            _ => 0,
        };
        if skipped == 0 {
            code.push(character);
            at += 1;
        } else {
            let blank = |c: &char| if *c == '\n' { '\n' } else { ' ' };
            code.extend(characters[at..at + skipped].iter().map(blank));
            at += skipped;
        }
    }
    code
}

/// The length of the comment that begins here; such comments nest.
fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match (rest[at], rest.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn text_literal(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of the raw text that begins here, or 0.
fn raw_literal(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let end: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    let content = 2 + hashes;
    let length = rest[content..]
        .windows(end.len())
        .position(|window| window == end);
    length.map_or(rest.len(), |length| content + length + end.len())
}

/// The length of the character that begins here, or 0 for a lifetime.
fn character_literal(rest: &[char]) -> usize {
    match (rest.get(1), rest.get(2)) {
        (Some('\\'), Some(_)) => {
            let end = rest[3..].iter().position(|c| *c == '\'');
            end.map_or(0, |end| end + 4)
        }
        (Some(_), Some('\'')) => 3,
        _ => 0,
    }
}

/// Whether `word` stands in the code, and not as a part of a longer name or path.
fn says(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && (word.ends_with(['!', ':']) || !after.is_some_and(is_name))
    })
}

/// The names that follow `crate::` in a line.
fn parts_used(code: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.split("crate::").skip(1).map(move |rest| {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}

fn report(rule: &str, failures: &[String]) {
    assert!(
        failures.is_empty(),
        "\n\n{rule}:\n  {}\n",
        failures.join("\n  ")
    );
}

#[test]
fn folders_use_only_what_they_may() {
    let mut failures = Vec::new();
    for file in source_files(&["src"]) {
        let Some((own, may_use)) = MAY_USE.iter().find(|(part, _)| file.part() == Some(part))
        else {
            continue;
        };
        for (number, code) in file.production() {
            for used in parts_used(code) {
                if used.is_empty() {
                    failures.push(format!(
                        "{}:{number}: write crate::NAME, so that this test can read it",
                        file.path
                    ));
                } else if used != *own && !may_use.contains(&used) {
                    failures.push(format!("{}:{number}: {own} uses {used}", file.path));
                }
            }
            let is_top = file.path == format!("src/{own}/mod.rs");
            if is_top && says(code, "super") && !code.contains("pub(super)") {
                failures.push(format!(
                    "{}:{number}: {own} reaches out by super",
                    file.path
                ));
            }
        }
    }
    report(
        "A folder uses another that it may not (tests/tidy.rs, MAY_USE)",
        &failures,
    );
}

#[test]
fn pure_folders_know_nothing_of_the_world() {
    let mut failures = Vec::new();
    for file in source_files(&["src"]) {
        if !file.part().is_some_and(|part| PURE.contains(&part)) {
            continue;
        }
        for (number, code) in file.production() {
            for word in IMPURE.iter().filter(|word| says(code, word)) {
                failures.push(format!("{}:{number}: {word}", file.path));
            }
            for group in code.split("std::{").skip(1) {
                failures.push(format!(
                    "{}:{number}: std::{{{group} hides what it uses",
                    file.path
                ));
            }
        }
    }
    report(
        "A pure folder has a clock, disk, network, randomness or logging",
        &failures,
    );
}

#[test]
fn every_file_says_first_why_it_exists() {
    let mut failures = Vec::new();
    for file in source_files(&["src", "tests", "benches", "examples", "fuzz/fuzz_targets"]) {
        if !file.text.starts_with("//! ") {
            failures.push(file.path);
        }
    }
    report("The first line is not a //! comment", &failures);
}

#[test]
fn nothing_stands_that_was_banned() {
    let mut failures = Vec::new();
    for file in source_files(&["src", "tests", "benches"]) {
        for (number, line) in file
            .lines
            .iter()
            .enumerate()
            .map(|(at, line)| (at + 1, line))
        {
            let code = line.code.as_str();
            for (word, instead) in NOWHERE.iter().filter(|(word, _)| code.contains(word)) {
                failures.push(format!("{}:{number}: {word}: {instead}", file.path));
            }
            if code.contains("#[allow") || code.contains("#![allow") {
                failures.push(format!(
                    "{}:{number}: #[allow: write #[expect(.., reason = ..)]",
                    file.path
                ));
            }
            if line.is_test {
                continue;
            }
            if code.contains(".unwrap()") {
                failures.push(format!("{}:{number}: .unwrap() outside tests", file.path));
            }
            let is_use =
                code.trim_start().starts_with("use ") || code.trim_start().starts_with("pub use ");
            if is_use && code.contains("::*") {
                failures.push(format!(
                    "{}:{number}: name what you use instead of *",
                    file.path
                ));
            }
        }
    }
    report("Something stands that the house rules ban", &failures);
}

/// The first sentence of the comment that a file begins with.
fn first_sentence(text: &str) -> String {
    let comment: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//! "))
        .map(str::trim)
        .collect();
    let comment = comment.join(" ");
    let (sentence, _) = comment.split_once(". ").unwrap_or((&comment, ""));
    sentence.trim_end_matches('.').to_owned()
}

/// Folders and files below `src/`, with the phrase that ARCHITECTURE.md gives each: lines such as
/// ``- `src/announce/plan.rs`: what the operator wants``.
fn code_map() -> BTreeMap<String, String> {
    let page = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    page.lines()
        .filter_map(|line| line.trim_start().strip_prefix("- `src/"))
        .map(|line| {
            let (path, phrase) = line.split_once('`').unwrap_or((line, ""));
            (
                format!("src/{path}"),
                phrase.trim_start_matches(':').trim().to_owned(),
            )
        })
        .collect()
}

#[test]
fn architecture_md_maps_the_code_there_is() {
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    for file in source_files(&["src"]) {
        // A folder is described by its mod.rs, which has no line of its own.
        let path = file.path.strip_suffix("mod.rs").unwrap_or(&file.path);
        expected.insert(path.to_owned(), first_sentence(&file.text));
    }
    let map = code_map();
    let wanted: BTreeSet<&String> = expected.keys().collect();
    let written: BTreeSet<&String> = map.keys().collect();
    let mut failures = Vec::new();
    for path in wanted.difference(&written) {
        let indentation = "  ".repeat(path.trim_end_matches('/').matches('/').count() - 1);
        failures.push(format!(
            "add:    {indentation}- `{path}`: {}",
            expected[*path]
        ));
    }
    for path in written.difference(&wanted) {
        failures.push(format!("remove: - `{path}`: {}", map[*path]));
    }
    for (path, _) in map.iter().filter(|(_, phrase)| phrase.is_empty()) {
        failures.push(format!("say in a phrase what `{path}` is"));
    }
    report(
        "The code map in ARCHITECTURE.md differs from src/",
        &failures,
    );
}

#[test]
fn comments_and_texts_do_not_count() {
    for (source, code) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("x(\"a\\\"b\") y", "x(      ) y"),
        ("r#\"a\"b\"# c", "         c"),
        ("br\"a\" c", "      c"),
        ("'\"' 'a '\\n' b", "    'a      b"),
        ("for r in x", "for r in x"),
    ] {
        assert_eq!(without_comments_and_texts(source), code, "{source}");
    }
}

#[test]
fn test_items_are_told_from_the_rest() {
    let text = "#[cfg(test)]\nmod tests;\nfn a() {\n}\n#[cfg(test)]\nuse b::c;\n#[cfg(test)]\n#[expect(x)]\nfn d(\n    e: F,\n) {\n    g\n}\nfn h() {}\n#[cfg(test)]\nmod tests {\n    fn i() {\n    }\n}\nj\n";
    let production: Vec<String> = lines(text, false)
        .into_iter()
        .filter(|line| !line.is_test)
        .map(|line| line.code)
        .collect();
    assert_eq!(production, ["fn a() {", "}", "fn h() {}", "j"]);
}

#[test]
fn words_are_whole() {
    for (code, word, is_said) in [
        ("use std::fs;", "std::fs", true),
        ("std::fsx", "std::fs", false),
        ("let instant_of = 1", "Instant", false),
        ("Instant::now()", "Instant", true),
        ("use notify::Watcher", "notify::", true),
        ("use inotify::Watches", "notify::", false),
        ("let notify = notify(hub)", "notify::", false),
        ("eprintln!()", "println!", false),
        ("println!()", "println!", true),
    ] {
        assert_eq!(says(code, word), is_said, "{code}");
    }
}
