//! Suggestions for misspelt words.

use strsim::osa_distance;

/// Returns the candidate nearest to `word`, if it is near enough to be a spelling mistake.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(&word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_what_is_near_is_suggested() {
        let keys = ["quiet", "max_wait", "hold", "url"];
        for (word, meant) in [
            ("quite", Some("quiet")),
            ("qiet", Some("quiet")),
            ("hodl", Some("hold")),
            ("", None),
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
