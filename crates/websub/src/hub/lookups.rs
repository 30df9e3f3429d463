//! Host names of callbacks: the registrable domain of a name, and a cache of failed lookups.

use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(feature = "hub")]
pub mod dns;

/// Second-level categories of country domains, below which names are registered.
const SECOND_LEVEL: [&str; 22] = [
    "ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "id", "ltd", "me", "mil", "ne", "net",
    "nhs", "nom", "or", "org", "plc", "police", "sch", "web",
];

/// The first and the maximum time for which a failed lookup is not repeated; it doubles with each failure.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Maximum names remembered.
const MAX_NAMES: usize = 10_000;

/// Returns the registrable domain of a name: the last two labels, or three below a country's categories such as `co.uk`.
/// The public suffix list is not consulted: customers of one host (`a.github.io`) count as one, and share its lookup
/// slots.
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

/// Names whose lookups failed. Times count from any one start.
#[derive(Debug, Default)]
pub struct FailedLookups {
    names: BTreeMap<String, FailedLookup>,
}

#[derive(Debug)]
struct FailedLookup {
    until: Duration,
    wait: Duration,
}

impl FailedLookups {
    /// Returns true if a name is not to be looked up yet.
    pub fn contains(&self, name: &str, now: Duration) -> bool {
        self.names
            .get(name)
            .is_some_and(|failed| now < failed.until)
    }

    /// Records a failed lookup.
    pub fn insert(&mut self, name: &str, now: Duration) {
        if self.names.len() >= MAX_NAMES {
            self.names.retain(|_, failed| now < failed.until);
        }
        if self.names.len() >= MAX_NAMES {
            // Too many to remember all; begin anew.
            self.names.clear();
        }
        let known = self.names.get(name);
        let wait = known.map_or(MIN_WAIT, |failed| (failed.wait * 2).min(MAX_WAIT));
        let until = now + wait;
        self.names
            .insert(name.to_owned(), FailedLookup { until, wait });
    }

    /// Forgets a name that was resolved.
    pub fn remove(&mut self, name: &str) {
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
    fn names_of_one_owner_share_a_registrable_domain(#[case] name: &str, #[case] want: &str) {
        assert_eq!(registrable(name), want);
    }

    #[test]
    fn a_name_that_fails_again_is_looked_up_less_often() {
        let seconds = Duration::from_secs;
        let mut failed = FailedLookups::default();
        assert!(!failed.contains("a", seconds(0)));
        failed.insert("a", seconds(0));
        assert!(
            failed.contains("a", Duration::from_millis(999)) && !failed.contains("b", seconds(0))
        );
        assert!(!failed.contains("a", seconds(1)));
        for _ in 0..9 {
            failed.insert("a", seconds(1));
        }
        assert!(failed.contains("a", seconds(60)) && !failed.contains("a", seconds(61)));
        failed.remove("a");
        failed.insert("a", seconds(70));
        assert!(!failed.contains("a", seconds(71)));
        for n in 0..3 * MAX_NAMES {
            failed.insert(&n.to_string(), seconds(72));
        }
        assert!(failed.names.len() <= MAX_NAMES);
    }
}
