//! Messages that pages quote exist in the sources, word for word.

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::page::{pages, repository};

/// Returns the sources as one line, with each placeholder replaced by a character that no page contains.
fn sources() -> String {
    let mut text = String::new();
    for folder in ["crates", "src"] {
        collect(&repository().join(folder), &mut text);
    }
    // A text goes on in the next line after a backslash.
    let text: String = text.split("\\\n").map(str::trim_start).collect();
    // Not code in braces.
    let placeholder = Regex::new(r"\{[\w.:?#]*\}").unwrap();
    placeholder.replace_all(&text, "\0").into_owned()
}

fn collect(path: &Path, text: &mut String) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), text);
        }
    } else {
        text.push_str(&fs::read_to_string(path).unwrap());
    }
}

/// Returns the literal parts of a quotation, between the words in capitals, ellipses and numbers that stand for others.
fn fixed_parts(quote: &str) -> Vec<String> {
    let another = Regex::new(r"\S*[…0-9]\S*|[^\w\s…]*\b[A-Z]+\b[^\w\s…]*(?:\s|$)").unwrap();
    let parts = another
        .split(quote)
        .map(|part| part.split_whitespace().collect::<Vec<_>>());
    let parts = parts.map(|part| part.join(" "));
    parts.filter(|part| !part.is_empty()).collect()
}

#[test]
fn quoted_messages_are_ours() {
    let sources = sources();
    for page in pages() {
        for quote in &page.quotes {
            for part in fixed_parts(&quote.text) {
                let (path, line) = (&page.path, quote.line);
                assert!(
                    sources.contains(&part),
                    "{path}:{line}: nothing says {part:?}"
                );
            }
        }
    }
}

#[test]
fn a_quotation_is_compared_between_what_stands_for_something() {
    let parts = fixed_parts("cannot read PATH: REASON; it stands, 12 times, as `ls` says …");
    assert_eq!(parts, ["cannot read", "it stands,", "times, as `ls` says"]);
    assert!(sources().contains("did not accept notification \0: \0"));
}
