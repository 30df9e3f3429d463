//! Host names of callbacks: which of them one owner has, and which were looked up in vain.

use std::collections::BTreeMap;
use std::time::Duration;

/// Below these, of a country, names are registered.
const SECOND_LEVEL: [&str; 22] = [
    "ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "id", "ltd", "me", "mil", "ne", "net",
    "nhs", "nom", "or", "org", "plc", "police", "sch", "web",
];

/// A lookup that failed is not repeated for so long; twice as long each time after, up to the longest.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Names remembered.
const MOST: usize = 10_000;

/// The name that somebody registered, of a name below it: the last two labels, or three below a country's own
/// categories such as `co.uk`. No list of public suffixes is consulted: customers of one host (`a.github.io`) count as
/// one, which costs them a share of lookups and nothing else.
pub fn registrable(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let mut labels = name.rsplit('.');
    let (top, second) = (labels.next(), labels.next());
    let is_category = top.is_some_and(|top| top.len() == 2)
        && second.is_some_and(|second| SECOND_LEVEL.contains(&second));
    let count = if is_category { 3 } else { 2 };
    let start = name.rmatch_indices('.').nth(count - 1);
    start.map_or(name, |(dot, _)| &name[dot + 1..])
}

/// Names whose lookups failed. Times run from any one beginning.
#[derive(Debug, Default)]
pub struct FailedLookups {
    names: BTreeMap<String, Failed>,
}

#[derive(Debug)]
struct Failed {
    until: Duration,
    wait: Duration,
}

impl FailedLookups {
    /// Whether a name is not to be looked up yet.
    pub fn has(&self, name: &str, now: Duration) -> bool {
        self.names
            .get(name)
            .is_some_and(|failed| now < failed.until)
    }

    pub fn failed(&mut self, name: &str, now: Duration) {
        if self.names.len() >= MOST {
            self.names.retain(|_, failed| now < failed.until);
        }
        if self.names.len() >= MOST {
            // Too many to know them all; the next failures are remembered instead.
            self.names.clear();
        }
        let known = self.names.get(name);
        let wait = known.map_or(SHORTEST, |failed| (failed.wait * 2).min(LONGEST));
        let until = now + wait;
        self.names.insert(name.to_owned(), Failed { until, wait });
    }

    pub fn found(&mut self, name: &str) {
        self.names.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("example.org", "example.org")]
    #[case("a.b.example.org.", "example.org")]
    #[case("a.example.co.uk", "example.co.uk")]
    #[case("example.co.uk", "example.co.uk")]
    #[case("co.uk", "co.uk")]
    #[case("a.t.co", "t.co")]
    #[case("a.com.example", "com.example")]
    #[case("localhost", "localhost")]
    #[case("", "")]
    fn names_of_one_owner_share_the_name_that_was_registered(
        #[case] name: &str,
        #[case] want: &str,
    ) {
        assert_eq!(registrable(name), want);
    }

    #[test]
    fn what_fails_again_is_asked_for_less_often() {
        let seconds = Duration::from_secs;
        let mut failed = FailedLookups::default();
        assert!(!failed.has("a", seconds(0)));
        failed.failed("a", seconds(0));
        assert!(failed.has("a", Duration::from_millis(999)) && !failed.has("b", seconds(0)));
        assert!(!failed.has("a", seconds(1)));
        for _ in 0..9 {
            failed.failed("a", seconds(1));
        }
        assert!(failed.has("a", seconds(60)) && !failed.has("a", seconds(61)));
        failed.found("a");
        failed.failed("a", seconds(70));
        assert!(!failed.has("a", seconds(71)));
        for n in 0..3 * MOST {
            failed.failed(&n.to_string(), seconds(72));
        }
        assert!(failed.names.len() <= MOST);
    }
}
