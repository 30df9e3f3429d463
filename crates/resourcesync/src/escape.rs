//! Escaping of foreign text for terminals, logs and the status page.

use std::borrow::Cow;

/// Returns true if a character controls a terminal, ends a line, or changes the direction of text: C0 and C1 controls,
/// line separators, bidirectional controls.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

/// Returns the text in one line, with unsafe characters escaped as in JSON: `\n`, `\u001b`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape_where(text, is_unsafe)
}

/// Escapes as [`escaped`], but for line ends. JSON stays the same JSON.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape_where(text, |c| c != '\n' && is_unsafe(c))
}

/// Maximum characters kept of a text from elsewhere.
pub const MAX_EXCERPT: usize = 500;

/// Returns the beginning of a text from elsewhere, safe to print on a terminal.
pub fn printable(text: &str) -> String {
    excerpt(text.trim(), MAX_EXCERPT)
}

/// Returns the first characters of a text in one line, with a space for each unsafe one.
pub fn excerpt(text: &str, max: usize) -> String {
    let beginning = text.chars().take(max);
    beginning
        .map(|c| if is_unsafe(c) { ' ' } else { c })
        .collect()
}

fn escape_where(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Nearly every text is plain ASCII, and that is tested fastest.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut rewritten = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if !is_escaped(c) => rewritten.push(c),
            '\n' => rewritten.push_str("\\n"),
            '\r' => rewritten.push_str("\\r"),
            '\t' => rewritten.push_str("\\t"),
            _ => rewritten.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    Cow::Owned(rewritten)
}

#[cfg(test)]
mod tests {
    use super::{escaped, escaped_lines, excerpt, is_unsafe};

    #[test]
    fn control_characters_are_escaped() {
        for (text, want) in [
            ("", ""),
            ("a plain/näme.xml", "a plain/näme.xml"),
            ("文書 \u{5e9}\u{5dc}.xml", "文書 \u{5e9}\u{5dc}.xml"),
            ("\u{1b}[2J\u{7}x", "\\u001b[2J\\u0007x"),
            ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
            ("\0\u{7f}\u{9b}31m", "\\u0000\\u007f\\u009b31m"),
            ("a\u{202e}lmx.b", "a\\u202elmx.b"),
            (
                "\u{61c}\u{200e}\u{200f}\u{202a}\u{2066}\u{2069}",
                "\\u061c\\u200e\\u200f\\u202a\\u2066\\u2069",
            ),
            ("a\u{2028}b\u{85}c", "a\\u2028b\\u0085c"),
        ] {
            assert_eq!(escaped(text), want);
            assert!(!escaped(text).contains(is_unsafe));
        }
    }

    #[test]
    fn line_ends_stay_and_json_means_the_same() {
        let names = ["a\n", "b\u{7f}\u{9b}", "\u{202e}\u{1b}c"];
        let json = serde_json::to_string_pretty(&names).unwrap();
        let shown = escaped_lines(&json);
        assert_eq!(shown.lines().count(), 5);
        assert!(!shown.contains(|c| c != '\n' && is_unsafe(c)), "{shown}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), names);
    }

    #[test]
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt("a\nb\u{202e}cd", 5), "a b c");
    }
}
