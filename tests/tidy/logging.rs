//! docs/reference.md has each line by which the daemon asks for something, at its level and with its fields, and none that
//! is never logged. Other lines stand there if they need an explanation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::source::{code_files, repository};

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Messages that are made elsewhere: where their words stand, and what begins each of them there.
const MADE_ELSEWHERE: [(&str, &str, &str, &str); 5] = [
    (
        "{notice}",
        "src/tree/mod.rs",
        "pub enum TreeNotice {",
        "#[error(",
    ),
    (
        "{finding}",
        "crates/announce/src/finding.rs",
        "pub enum Finding {",
        "#[error(",
    ),
    (
        "{finding}",
        "crates/announce/src/finding.rs",
        "fn foreign_hubs(",
        "write!(",
    ),
    (
        "{finding}",
        "crates/announce/src/finding.rs",
        "fn invalid_topic(",
        "write!(",
    ),
    (
        "{suspension}",
        "crates/announce/src/event.rs",
        "for SuspendedDeletions {",
        "write!(",
    ),
];

/// Lines that are logged at one level or another, by what they say.
type Lines = BTreeMap<String, BTreeSet<(String, BTreeSet<String>)>>;

/// Returns the first text literal in `code`, as the program has it, and what comes before it.
fn literal(code: &str) -> Option<(&str, String)> {
    static LITERAL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#""((?s:[^"\\]|\\.)*)""#).unwrap());
    // A line that goes on, and a character that is escaped.
    static ESCAPED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\(?:\n\s*|(.))").unwrap());
    let literal = LITERAL.captures(code)?;
    let text = ESCAPED.replace_all(&literal[1], "$1").into_owned();
    Some((&code[..literal.get_match().start()], text))
}

/// Returns the fields and the message of a macro call.
fn call(arguments: &str) -> Option<(BTreeSet<String>, String)> {
    let (fields, message) = literal(arguments)?;
    let fields = fields.split(',').map(str::trim);
    let named = fields.filter(|field| !field.is_empty()).map(|field| {
        let name = field.split('=').next().unwrap_or(field);
        name.trim().trim_start_matches(['%', '?']).to_owned()
    });
    Some((named.collect(), message))
}

/// Every line that the sources may log.
fn logged() -> Lines {
    let macros = Regex::new(&format!(r"\b({})!\(", LEVELS.join("|"))).unwrap();
    let mut lines = Lines::new();
    for file in code_files() {
        let text: Vec<&str> = file.text.lines().collect();
        for (number, code) in file.production() {
            for found in macros.captures_iter(code) {
                // Comments and texts are blank in `code`, at the same places.
                let rest = text[number - 1..].join("\n");
                let (level, from) = (&found[1], rest.find(&found[0]).unwrap() + found[0].len());
                let (fields, message) =
                    call(&rest[from..]).unwrap_or_else(|| panic!("{}:{number}", file.path));
                for message in said(&message) {
                    let line = (level.to_owned(), fields.clone());
                    lines.entry(message).or_default().insert(line);
                }
            }
        }
    }
    lines
}

/// Returns a message itself, or those of the place where it is made.
fn said(message: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for (placeholder, path, begins, mark) in MADE_ELSEWHERE {
        if placeholder != message {
            continue;
        }
        let text = fs::read_to_string(repository().join(path)).unwrap();
        let (_, rest) = text.split_once(begins).unwrap();
        let (body, _) = rest.split_once("\n}\n").unwrap();
        let parts = body.split(mark).skip(1);
        // What a function of its own says is not here.
        let parts = parts.filter(|part| !part.starts_with("fmt = "));
        texts.extend(parts.map(|part| literal(part).unwrap().1));
    }
    if texts.is_empty() {
        texts.push(message.to_owned());
    }
    texts
}

/// Returns the part of docs/reference.md about log lines.
fn page() -> String {
    let page = fs::read_to_string(repository().join("docs/reference.md")).unwrap();
    page.split_once("\n## Metrics\n").unwrap().0.to_owned()
}

/// Every line of the tables in docs/reference.md.
fn documented() -> Lines {
    let page = page();
    let mut lines = Lines::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells = row.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let cells: Vec<&str> = cells.unwrap().split('|').map(str::trim).collect();
        let (message, ways, to_do) = match cells[..] {
            // What fields mean.
            [_, _] => continue,
            // A finding.
            [message, _meaning, to_do] => (message, "warn; `kind`", to_do),
            [message, ways, _meaning, to_do] => (message, ways, to_do),
            _ => panic!("not three or four cells: {row}"),
        };
        // Backticks stand in some messages: those are written between two of them.
        let message = message.trim_matches('`').trim().to_owned();
        let (levels, fields) = ways.split_once(';').unwrap_or((ways, ""));
        for level in levels.split(", ") {
            assert!(LEVELS.contains(&level), "{row}");
            let is_grave = ["error", "warn"].contains(&level);
            assert!(!is_grave || !to_do.is_empty(), "what to do? {row}");
            let line = (level.to_owned(), named(fields));
            let is_new = lines.entry(message.clone()).or_default().insert(line);
            assert!(is_new, "twice: {row}");
        }
    }
    lines
}

/// Returns the names in a cell.
fn named(cell: &str) -> BTreeSet<String> {
    let names = cell.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn the_page_has_each_line_that_asks_for_something_and_none_that_is_not_logged() {
    let (logged, documented) = (logged(), documented());
    let mut failures = Vec::new();
    for (message, ways) in &logged {
        let told = documented.get(message);
        // The level of a notice is its own affair, and what asks for nothing need not stand there.
        let asks_for_something = ways
            .iter()
            .any(|(level, _)| ["error", "warn"].contains(&level.as_str()));
        let is_told = match told {
            None => !asks_for_something,
            Some(told) if ways.len() == 1 => told == ways,
            Some(told) => !told.is_empty() && told.is_subset(ways),
        };
        if !is_told {
            failures.push(format!(
                "logged: {message}\n      as {ways:?}\n      told {told:?}"
            ));
        }
    }
    let gone = documented.keys().filter(|line| !logged.contains_key(*line));
    failures.extend(gone.map(|message| format!("never logged: {message}")));
    assert!(
        failures.is_empty(),
        "\n\ndocs/reference.md differs from src/:\n  {}\n",
        failures.join("\n  ")
    );
}

/// Returns true if a plural follows a number, which may be one: `{changes} changes`.
fn has_number_with_plural(message: &str) -> bool {
    const NUMBERS: &str = "changes channels documents entries files findings limit lines lists \
        notifications requests";
    let mut parts = message
        .split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}'));
    parts.any(|(name, rest)| {
        let mut words = rest.split([' ', ',', ':', ';']).skip(1).take(2);
        NUMBERS.split(' ').any(|it| it == name)
            && words.any(|word| word.ends_with('s') && word.len() > 3)
    })
}

#[test]
fn no_line_says_one_of_several() {
    assert!(has_number_with_plural("took {changes} changes from a list"));
    assert!(!has_number_with_plural("took {taken} from {from}"));
    let mut messages = logged().into_keys();
    assert_eq!(
        messages.find(|message| has_number_with_plural(message)),
        None
    );
}

#[test]
fn the_page_explains_no_field_that_is_gone() {
    let page = page();
    let (_, table) = page.split_once("| field | meaning |\n|---|---|\n").unwrap();
    let rows = table.lines().map_while(|line| line.strip_prefix("| "));
    let told: BTreeSet<String> = rows
        .flat_map(|row| named(row.split_once('|').unwrap().0))
        .collect();
    let ways = logged().into_values().flatten();
    let used: BTreeSet<String> = ways.flat_map(|(_, fields)| fields).collect();
    assert!(told.is_subset(&used), "{:?}", told.difference(&used));
    assert!(told.contains("seq"), "{told:?}");
}

#[test]
fn literals_are_read_as_the_program_has_them() {
    for (code, text) in [
        ("x, \"a {b} c\", \"d\"", "a {b} c"),
        ("x, \"a \\\"b\\\"\")", "a \"b\""),
        ("x, \"a \\\n    b \\\n  c\";", "a b c"),
    ] {
        assert_eq!(literal(code), Some(("x, ", text.to_owned())), "{code}");
    }
    let (fields, message) = call("\n %topic, seq, next_try = %at,\n \"{topic} is {seq}\"").unwrap();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    assert_eq!(fields, ["next_try", "seq", "topic"]);
    assert_eq!(message, "{topic} is {seq}");
    assert!(Path::new("docs/reference.md").is_file());
}
