//! When a document that is not there counts as deleted (R15).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::channel::later;
use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::state::Presence;
use crate::resourcesync::uri::Uri;

/// How long an unanswered look at a missing document is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Engine {
    /// R15: a document that is not there is missing first, and deleted later.
    pub(super) fn vanished(&mut self, source: usize, uri: &Uri, at: Timestamp) {
        let Some(record) = self.sources[source].catalog.get_mut(uri) else {
            return;
        };
        match record.presence {
            Presence::Gone { .. } => return,
            Presence::Missing { .. } => {}
            Presence::Present => {
                record.presence = Presence::Missing {
                    since: at,
                    approved: false,
                };
                self.turn.documents.insert((source, uri.clone()));
                self.sources[source].stale.changed.insert(uri.clone());
                let grace_ends = later(at, self.plan.sources[source].deletion_grace);
                self.wake_at(grace_ends, Timer::Grace(source, uri.clone()));
            }
        }
        self.turn.vanished.insert((source, uri.clone()));
    }

    /// A deletion is believed only by a look after the grace, so this asks for one.
    pub(super) fn grace_ends(&mut self, source: usize, uri: &Uri, now: Timestamp) {
        let state = &self.sources[source];
        let Some(record) = state.catalog.get(uri) else {
            return;
        };
        let Presence::Missing { since, approved } = record.presence else {
            return;
        };
        let grace_ends = later(since, self.plan.sources[source].deletion_grace);
        if grace_ends > now || (state.suspended && !approved) {
            return;
        }
        self.turn.look.insert(record.path.clone());
        self.wake_at(later(now, LOOK_AGAIN), Timer::Grace(source, uri.clone()));
    }

    /// R15: decides about the deletions that this turn's looks found, all of them first counted.
    pub(super) fn judge_deletions(&mut self, source: usize, now: Timestamp) {
        let vanished: Vec<Uri> = self
            .turn
            .vanished
            .iter()
            .filter(|(own, _)| *own == source)
            .map(|(_, uri)| uri.clone())
            .collect();
        if vanished.is_empty() && !self.sources[source].suspended {
            return;
        }
        self.turn.vanished.retain(|(own, _)| *own != source);
        self.judge_suspension(source, now);
        let grace = self.plan.sources[source].deletion_grace;
        let state = &mut self.sources[source];
        for uri in vanished {
            let Some(record) = state.catalog.get(&uri) else {
                continue;
            };
            let Presence::Missing { since, approved } = record.presence else {
                continue;
            };
            if later(since, grace) > now || (state.suspended && !approved) {
                continue;
            }
            let mut record = record.clone();
            record.presence = Presence::Gone { since };
            if record.is_capability_list() {
                state.stale.sets.insert(uri.clone());
            }
            state
                .stale
                .previous
                .entry(uri.clone())
                .or_insert(Some(record.version));
            state.stale.changed.insert(uri.clone());
            let touched = state.catalog.put(&uri, record, None);
            state.stale.relations.extend(touched);
            self.turn.documents.insert((source, uri));
        }
    }

    pub(super) fn judge_suspension(&mut self, source: usize, now: Timestamp) {
        let name = self.plan.sources[source].name.clone();
        let limit = self.plan.sources[source].mass_deletion;
        let state = &mut self.sources[source];
        let was_suspended = state.suspended;
        state.suspended = state.is_mass_deletion(limit);
        match (was_suspended, state.suspension(&name)) {
            (false, Some(suspension)) => self.tell(Fact::Suspended(suspension)),
            (true, None) => {
                self.tell(Fact::Resumed { source: name });
                self.look_at_missing(source, now);
            }
            _ => {}
        }
    }

    fn look_at_missing(&mut self, source: usize, now: Timestamp) {
        for uri in self.missing(source) {
            self.grace_ends(source, &uri, now);
        }
    }

    fn missing(&self, source: usize) -> Vec<Uri> {
        self.sources[source]
            .catalog
            .iter()
            .filter(|(_, record)| record.is_missing())
            .map(|(uri, _)| uri.clone())
            .collect()
    }

    /// The operator believes what is missing now, except below a mount that is away: nobody can see what is
    /// missing there. What goes missing later, or returns and goes missing again, is not accepted.
    pub(super) fn accept(&mut self, name: &str, now: Timestamp) {
        let Ok(source) = self.plan.source_named(name) else {
            return;
        };
        let mut documents = 0;
        let state = &self.sources[source];
        let missing = state
            .catalog
            .iter()
            .filter(|(_, record)| record.is_missing() && !state.is_absent(record.path.mount));
        let missing: Vec<Uri> = missing.map(|(uri, _)| uri.clone()).collect();
        for uri in missing {
            if let Some(record) = self.sources[source].catalog.get_mut(&uri)
                && let Presence::Missing { since, .. } = record.presence
            {
                record.presence = Presence::Missing {
                    since,
                    approved: true,
                };
                documents += 1;
                self.turn.documents.insert((source, uri));
            }
        }
        if documents > 0 {
            self.tell(Fact::Accepted {
                source: name.to_owned(),
                documents,
            });
        }
        self.look_at_missing(source, now);
    }
}
