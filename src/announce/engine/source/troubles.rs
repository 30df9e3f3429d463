//! Candidates that cannot be read (R3).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::observation::MountId;
use crate::announce::state::Trouble;
use crate::announce::time::{earlier, later};
use crate::resourcesync::uri::Uri;

/// The candidates of one source that cannot be read.
#[derive(Debug)]
pub struct Troubles {
    source: usize,
    troubles: BTreeMap<Uri, Trouble>,
}

impl Troubles {
    pub fn new(source: usize) -> Troubles {
        Troubles {
            source,
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
    pub fn restore(&mut self, uri: Uri, trouble: Trouble, wait: Duration, step: &mut Step) {
        step.wake_after(wait, Timer::Broken(self.source, uri.clone()));
        self.troubles.insert(uri, trouble);
    }

    /// Notes a candidate that cannot be read. It is told of if it lasts for `wait`.
    pub fn add(&mut self, uri: Uri, trouble: Trouble, wait: Duration, step: &mut Step) {
        if let Some(known) = self.troubles.get_mut(&uri) {
            known.reason = trouble.reason;
            return;
        }
        if trouble.predates {
            step.save_trouble(self.source, uri.clone());
        }
        let lasts_at = later(trouble.since, wait);
        step.wake_at(lasts_at, Timer::Broken(self.source, uri.clone()));
        self.troubles.insert(uri, trouble);
    }

    /// Returns the fact to tell about a candidate that cannot be read for long, once.
    pub fn lasted(
        &mut self,
        uri: &Uri,
        is_known: bool,
        wait: Duration,
        now: Timestamp,
    ) -> Option<Fact> {
        let trouble = self.troubles.get_mut(uri)?;
        if trouble.reported || later(trouble.since, wait) > now {
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

    /// Moves the times of all as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        for trouble in self.troubles.values_mut() {
            trouble.since = earlier(trouble.since, by);
        }
    }
}
