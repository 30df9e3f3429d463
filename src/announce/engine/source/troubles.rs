//! Candidates that cannot be read (R3).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::observation::MountId;
use crate::announce::plan::SourcePlan;
use crate::announce::state::Trouble;
use crate::announce::time::later;

/// The candidates of one source that cannot be read.
#[derive(Debug)]
pub struct Troubles {
    /// The position of the source in the plan.
    source: usize,
    plan: Arc<SourcePlan>,
    troubles: BTreeMap<Uri, Trouble>,
}

impl Troubles {
    pub fn new(source: usize, plan: Arc<SourcePlan>) -> Troubles {
        Troubles {
            source,
            plan,
            troubles: BTreeMap::new(),
        }
    }

    pub fn get(&self, uri: &Uri) -> Option<&Trouble> {
        self.troubles.get(uri)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Uri, &Trouble)> {
        self.troubles.iter()
    }

    pub fn count(&self) -> usize {
        self.troubles.len()
    }

    /// Takes up a stored trouble. It may have been mended meanwhile: the first look tells.
    pub fn restore(&mut self, uri: Uri, trouble: Trouble, step: &mut Step) {
        step.wake_after(
            self.plan.broken_after,
            Timer::Broken(self.source, uri.clone()),
        );
        self.troubles.insert(uri, trouble);
    }

    /// Notes a candidate that cannot be read. It is told of if it lasts.
    pub fn add(&mut self, uri: Uri, trouble: Trouble, step: &mut Step) {
        if let Some(known) = self.troubles.get_mut(&uri) {
            known.reason = trouble.reason;
            return;
        }
        if trouble.predates {
            step.save_trouble(self.source, uri.clone());
        }
        let lasts_at = later(trouble.since, self.plan.broken_after);
        step.wake_at(lasts_at, Timer::Broken(self.source, uri.clone()));
        self.troubles.insert(uri, trouble);
    }

    /// Returns the fact to tell about a candidate that cannot be read for long, once.
    pub fn lasted(&mut self, uri: &Uri, is_known: bool, now: Timestamp) -> Option<Fact> {
        let trouble = self.troubles.get_mut(uri)?;
        if trouble.reported || later(trouble.since, self.plan.broken_after) > now {
            return None;
        }
        trouble.reported = true;
        Some(Fact::Broken {
            path: trouble.path.clone(),
            uri: uri.clone(),
            reason: trouble.reason.clone(),
            is_known,
        })
    }

    /// Forgets a candidate that can be read, or is gone.
    pub fn forget(&mut self, uri: &Uri, step: &mut Step) -> Option<Trouble> {
        let trouble = self.troubles.remove(uri)?;
        if trouble.predates {
            step.save_trouble(self.source, uri.clone());
        }
        Some(trouble)
    }

    /// Forgets the candidates of a mount.
    pub fn forget_mount(&mut self, mount: MountId, step: &mut Step) {
        let of_mount = |trouble: &Trouble| trouble.path.mount == mount;
        let forgotten = self.troubles.extract_if(.., |_, trouble| of_mount(trouble));
        for (uri, trouble) in forgotten {
            if trouble.predates {
                step.save_trouble(self.source, uri);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::Troubles;
    use crate::announce::engine::source::tests::{path, plan, step, timers, uri};
    use crate::announce::state::Trouble;

    fn trouble(reason: &str, predates: bool) -> Trouble {
        Trouble {
            path: path("a.xml"),
            since: Timestamp::UNIX_EPOCH,
            reason: reason.to_owned(),
            predates,
            reported: false,
        }
    }

    #[test]
    fn a_candidate_that_stays_broken_is_told_of_once_with_the_last_reason() {
        let (mut troubles, mut step) = (Troubles::new(0, plan()), step());
        let uri = uri("a.xml");
        for reason in ["one", "two"] {
            troubles.add(uri.clone(), trouble(reason, false), &mut step);
        }
        assert_eq!(timers(&mut step), [10]);
        assert_eq!(troubles.get(&uri).map(|it| &*it.reason), Some("two"));
        let told = [9, 10, 11].map(|second| {
            let now = Timestamp::new(second, 0).unwrap();
            troubles.lasted(&uri, false, now).is_some()
        });
        assert_eq!(told, [false, true, false]);
    }

    #[test]
    fn only_a_trouble_that_predates_the_baseline_is_saved() {
        for predates in [true, false] {
            let (mut troubles, mut step) = (Troubles::new(0, plan()), step());
            troubles.add(uri("a.xml"), trouble("one", predates), &mut step);
            assert_eq!(step.take().troubles.len(), usize::from(predates));
            troubles.forget(&uri("a.xml"), &mut step);
            assert_eq!(step.take().troubles.len(), usize::from(predates));
            assert_eq!(troubles.count(), 0);
        }
    }
}
