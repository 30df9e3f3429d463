//! Comparison of shown with real output: `…` stands for any text, and times and durations are ignored.

/// Returns true if `shown` is equal to the whole output.
pub fn is_shown(shown: &str, output: &str) -> bool {
    matches(&lines(shown), &lines(output))
}

/// Returns true if the output has the lines of `shown` in this order, with any lines between them.
pub fn appeared(shown: &str, output: &str) -> bool {
    let mut output = lines(output).into_iter();
    let mut shown = lines(shown).into_iter().filter(|line| line != "…");
    shown.all(|line| output.any(|candidate| line_matches(&line, &candidate)))
}

fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(masked).collect()
}

fn matches(shown: &[String], output: &[String]) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((line, rest)) if line == "…" => {
            (0..=output.len()).any(|left_out| matches(rest, &output[left_out..]))
        }
        Some((line, rest)) => output
            .split_first()
            .is_some_and(|(first, others)| line_matches(line, first) && matches(rest, others)),
    }
}

fn line_matches(shown: &str, output: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| output.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// Returns a line with times, durations and white space normalised.
fn masked(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rest = line.split_whitespace().peekable();
    while let Some(word) = rest.next() {
        let number = word.trim_start_matches('(');
        let unit = rest
            .peek()
            .filter(|_| is_number(number))
            .and_then(|word| unit_end(word));
        match unit {
            Some(end) => {
                rest.next();
                let before = &word[..word.len() - number.len()];
                // A number and a unit, and maybe another pair: "9 d 23 h".
                let goes_on = words.pop_if(|last| last.ends_with("DURATION"));
                let before = goes_on.unwrap_or_else(|| format!("{before}DURATION"));
                words.push(before + end);
            }
            None => words.push(without_time(word)),
        }
    }
    words.join(" ").replace("DURATION ago", "now")
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Returns the end of a unit of time at the beginning of a word.
fn unit_end(word: &str) -> Option<&str> {
    let end = word
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(word.len());
    ["ms", "s", "min", "h", "d"]
        .contains(&&word[..end])
        .then(|| &word[end..])
}

/// Returns a word with its RFC 3339 times replaced.
fn without_time(word: &str) -> String {
    const PATTERN: &str = "0000-00-00T00:00:00";
    let is_time = |text: &str| {
        text.len() >= PATTERN.len()
            && std::iter::zip(text.chars(), PATTERN.chars()).all(|(c, pattern)| match pattern {
                '0' => c.is_ascii_digit(),
                other => c == other,
            })
    };
    let Some((at, _)) = word.char_indices().find(|(at, _)| is_time(&word[*at..])) else {
        return word.to_owned();
    };
    let after =
        word[at + PATTERN.len()..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let after = after.strip_prefix('Z').unwrap_or(after);
    format!("{}TIME{}", &word[..at], without_time(after))
}

#[test]
fn what_differs_from_run_to_run_is_not_compared() {
    for (shown, output, is_same) in [
        ("a  b", "a b\n", true),
        ("a", "a\nb", false),
        ("…\nb", "a\na\nb", true),
        ("a\n…", "a", true),
        ("a\n…\nc", "a\nb", false),
        ("etag: \"…\"", "etag: \"5f\"", true),
        ("etag: \"…\"", "etag: 5f", false),
        ("a … c … e", "a b c d e", true),
        ("a … c … e", "a b d e", false),
        ("6 s ago", "14 min 53 s ago", true),
        ("6 s ago", "14 documents ago", false),
        ("it (in 9 d 23 h)", "it (in 6 s)", true),
        ("it (6 s ago)", "it (now)", true),
        ("(2026-11-21T14:55:32Z)", "(2027-01-01T00:00:00.123Z)", true),
        ("due 2", "due 3", false),
    ] {
        assert_eq!(is_shown(shown, output), is_same, "{shown:?} {output:?}");
    }
    assert!(appeared("b\nd", "a\nb\nc\nd\ne"));
    assert!(!appeared("d\nb", "a\nb\nc\nd\ne"));
}
