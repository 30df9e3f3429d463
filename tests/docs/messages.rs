//! Messages that pages quote exist in the sources, word for word.

use std::fs;
use std::path::Path;

use crate::page::{pages, repository};

/// Returns the sources as one line, with each placeholder replaced by a character that no page contains.
fn sources() -> String {
    let mut text = String::new();
    for folder in ["crates", "src"] {
        collect(&repository().join(folder), &mut text);
    }
    // A text goes on in the next line after a backslash.
    let text: String = text.split("\\\n").map(str::trim_start).collect();
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once('}') {
        Some((name, after)) if is_filled_in(name) => text + "\0" + after,
        _ => text + part,
    })
}

/// Returns true if this is a placeholder in a text, and not code in braces.
fn is_filled_in(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_alphanumeric() || "_.:?#".contains(c))
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
    let stands_for_another = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '…');
        word.contains('…')
            || (!word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase()))
            || word.contains(|c: char| c.is_ascii_digit())
    };
    let words: Vec<&str> = quote.split_whitespace().collect();
    let parts = words.split(|word| stands_for_another(word));
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
