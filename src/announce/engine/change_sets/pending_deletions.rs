//! Deletions that wait: resources that are missing from the Resource Lists of a set, until they count as deleted (C29).

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::changes::inventory::MissingResources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;

/// Resources of one set that are missing; none are known of a set that has Change Lists.
#[derive(Debug)]
pub struct PendingDeletions {
    set: Uri,
    missing: Option<MissingResources>,
    /// True from an operator's acceptance of what is missing until a round has deleted all of it.
    is_accepted: bool,
}

impl PendingDeletions {
    pub fn new(set: Uri) -> PendingDeletions {
        PendingDeletions {
            set,
            missing: None,
            is_accepted: false,
        }
    }

    /// Notes which resources are missing after a round, and looks again once the first of them counts as deleted. While
    /// the round `has_more`, the next one deletes what an operator accepts.
    pub fn note(&mut self, missing: MissingResources, has_more: bool, step: &mut Step) {
        self.missing = Some(missing);
        self.is_accepted &= has_more;
        self.wake(step);
    }

    /// Makes a look for missing resources due now.
    pub fn look(&mut self, step: &Step) {
        let missing = self.missing.get_or_insert_default();
        missing.next = Some(step.now());
    }

    /// Forgets the resources of a set whose Resource Lists are not compared any more.
    pub fn forget(&mut self) {
        self.is_accepted = false;
        self.missing = None;
    }

    /// Accepts what is missing as deleted, for an operator.
    pub fn accept(&mut self, step: &mut Step) {
        if self.missing.is_some_and(|missing| missing.missing > 0) {
            self.is_accepted = true;
            step.wake_at(step.now(), Timer::Changes(self.set.clone()));
        }
    }

    /// Sets a timer for the time at which the first counts as deleted.
    pub fn wake(&self, step: &mut Step) {
        if let Some(next) = self.next() {
            step.wake_at(next, Timer::Changes(self.set.clone()));
        }
    }

    /// Returns true if an operator accepts what is missing as deleted.
    pub fn is_accepted(&self) -> bool {
        self.is_accepted
    }

    /// Returns the time at which the first counts as deleted.
    fn next(&self) -> Option<Timestamp> {
        self.missing.and_then(|missing| missing.next)
    }

    /// Returns true if there is a reason to look for them, now or later.
    pub fn is_any(&self) -> bool {
        self.is_accepted || self.next().is_some()
    }

    /// Returns true if they are to be looked for now, although no list changed.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.is_accepted || self.next().is_some_and(|next| next <= now)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resourcesync::uri::Uri;

    use super::PendingDeletions;
    use crate::announce::changes::inventory::MissingResources;
    use crate::announce::engine::change_sets::tests::{moment, timers};
    use crate::announce::engine::step::Step;

    /// Deletions of which the first is due at 50 s, after a round at 0 s.
    fn pending() -> (PendingDeletions, Step) {
        let mut deletions = PendingDeletions::new(Uri::parse("https://e.org/cl.xml").unwrap());
        let mut step = Step::new(Timestamp::UNIX_EPOCH.into());
        step.begin(moment(0));
        let missing = MissingResources {
            next: Some(moment(50).now),
            missing: 1,
            ..MissingResources::default()
        };
        deletions.note(missing, false, &mut step);
        assert_eq!(timers(&mut step), [50]);
        (deletions, step)
    }

    #[test]
    fn they_are_looked_for_once_the_first_counts_as_deleted() {
        let (deletions, _) = pending();
        assert!(deletions.is_any());
        let is_due = [49, 50].map(|second| deletions.is_due(moment(second).now));
        assert_eq!(is_due, [false, true]);
    }

    #[test]
    fn an_operator_accepts_them_until_a_round_took_all() {
        let (mut deletions, mut step) = pending();
        deletions.accept(&mut step);
        assert_eq!(timers(&mut step), [0]);
        assert!(deletions.is_accepted() && deletions.is_due(moment(0).now));
        deletions.note(MissingResources::default(), true, &mut step);
        assert!(deletions.is_accepted(), "one round is not enough");
        deletions.note(MissingResources::default(), false, &mut step);
        assert!(!deletions.is_accepted() && !deletions.is_any());
        deletions.accept(&mut step);
        assert!(!deletions.is_accepted(), "nothing is missing");
    }

    #[test]
    fn nothing_of_them_is_left_once_the_set_has_change_lists() {
        let (mut deletions, mut step) = pending();
        deletions.accept(&mut step);
        deletions.forget();
        assert!(!deletions.is_accepted() && !deletions.is_any());
    }
}
