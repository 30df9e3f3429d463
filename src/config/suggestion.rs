//! What a misspelt word probably meant.

/// The candidate that `word` is nearest to, if it is near enough to be a slip.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many insertions, deletions, substitutions and swaps of neighbours lead from one word to the other
/// (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = substituted.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn slips_are_counted() {
        for (from, to, count) in [
            ("", "", 0),
            ("quiet", "quiet", 0),
            ("quite", "quiet", 1),
            ("qiet", "quiet", 1),
            ("", "hub", 3),
            ("poll", "pool", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), count, "{from} {to}");
        }
    }

    #[test]
    fn only_what_is_near_is_suggested() {
        let keys = ["quiet", "max_wait", "hold", "url"];
        for (word, meant) in [
            ("quite", Some("quiet")),
            ("max-wait", Some("max_wait")),
            ("Hold", Some("hold")),
            ("uri", Some("url")),
            ("retries", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, keys), meant, "{word}");
        }
    }
}
