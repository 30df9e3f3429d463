//! Entries of a list that the operator should know of: those that do not count, or are told otherwise than they are listed
//! (C2, C7, C15).

use resourcesync::fingerprint::Fingerprint;

use crate::announce::changes::round::TakenList;

/// Numbers of entries of one version of a list that the operator should know of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OddEntries {
    /// Entries that do not count (C2).
    pub skipped: usize,
    /// Entries that are told without their datetime (C15).
    pub back_dated: usize,
    pub ahead: usize,
    /// Present if the list was closed for good: entries that are not told (C7).
    pub rewritten: Option<usize>,
}

/// The odd entries of one list, in the version that was read last.
#[derive(Debug, Default)]
pub struct LastOddEntries {
    /// Nothing if there are none.
    last: Option<(Fingerprint, OddEntries)>,
}

impl OddEntries {
    /// Adds what a later round found in the same version.
    fn add(&mut self, later: OddEntries) {
        self.back_dated += later.back_dated;
        self.ahead += later.ahead;
        if let Some(rewritten) = later.rewritten {
            *self.rewritten.get_or_insert_default() += rewritten;
        }
    }
}

impl LastOddEntries {
    /// Notes what a round found odd. Returns all that was found in this version, and how many more entries do not count
    /// than in the one before: most of them stand there in every version.
    pub fn note(&mut self, list: &TakenList, back_dated: usize) -> (OddEntries, usize) {
        let mut odd = OddEntries {
            skipped: list.skipped,
            back_dated,
            ahead: list.undated.ahead,
            rewritten: list.rewritten,
        };
        let before = self.last.take();
        let skipped = before.map_or(0, |(_, before)| before.skipped);
        let more = odd.skipped.saturating_sub(skipped);
        if let Some((_, before)) = before.filter(|(version, _)| *version == list.version) {
            odd.add(before);
        }
        if odd != OddEntries::default() {
            self.last = Some((list.version, odd));
        }
        (odd, more)
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::fingerprint::Fingerprint;

    use super::{LastOddEntries, OddEntries};
    use crate::announce::changes::round::TakenList;
    use crate::announce::engine::change_sets::tests::{list, taken};

    #[test]
    fn entries_that_cannot_be_told_count_once() {
        let mut odd = LastOddEntries::default();
        let counted = [3, 3, 5, 0, 2].map(|skipped| {
            let taken = TakenList {
                skipped,
                ..taken(&list("a", 1))
            };
            odd.note(&taken, 0).1
        });
        assert_eq!(counted, [3, 0, 2, 0, 2]);
    }

    #[test]
    fn what_rounds_find_in_one_version_adds_up() {
        let mut odd = LastOddEntries::default();
        let mut list = TakenList {
            skipped: 1,
            rewritten: Some(2),
            ..taken(&list("a", 1))
        };
        list.undated.ahead = 3;
        odd.note(&list, 4);
        list.rewritten = None;
        let (found, _) = odd.note(&list, 5);
        let expected = OddEntries {
            skipped: 1,
            back_dated: 9,
            ahead: 6,
            rewritten: Some(2),
        };
        assert_eq!(found, expected);
        list.version = Fingerprint([2; 32]);
        let (found, _) = odd.note(&list, 0);
        assert_eq!(
            (found.back_dated, found.ahead, found.rewritten),
            (0, 3, None)
        );
    }
}
