//! Candidates that are there and tell nothing (R3).

use jiff::Timestamp;

use crate::announce::engine::{Engine, Timer};
use crate::announce::event::Fact;
use crate::announce::observation::{DocumentPath, Incomplete};
use crate::announce::state::{Presence, Trouble};
use crate::announce::time::later;
use crate::report::status::BrokenView;
use crate::resourcesync::uri::Uri;

/// So many candidates that cannot be read are told of; of others, how many they are.
const MOST_BROKEN: usize = 100;

impl Engine {
    /// R3: a document that cannot be read keeps its last good state.
    pub(super) fn incomplete(
        &mut self,
        source: usize,
        uri: Uri,
        path: DocumentPath,
        reason: &Incomplete,
        at: Timestamp,
    ) {
        let state = &mut self.sources[source];
        // R15: what cannot be reached may be there or not, so that nobody sees it absent. What can be reached is there,
        // unless something else was in its place.
        if let Some(away) = state.away.get_mut(&uri) {
            away.since = None;
            if !away.is_replaced && !matches!(reason, Incomplete::Denied(_)) {
                state.away.remove(&uri);
                state.catalog.set_presence(&uri, Presence::Present);
                state.stale.changed.insert(uri.clone());
                self.turn.documents.insert((source, uri.clone()));
            }
        }
        let is_baseline = state
            .mounts
            .get(&path.mount)
            .is_some_and(|mount| mount.is_new_ground(&path.below));
        let predates = is_baseline && state.catalog.get(&uri).is_none();
        if let Some(trouble) = state.troubles.get_mut(&uri) {
            trouble.reason = reason.to_string();
            return;
        }
        let trouble = Trouble {
            path,
            since: at,
            reason: reason.to_string(),
            predates,
            reported: false,
        };
        state.troubles.insert(uri.clone(), trouble);
        if predates {
            self.turn.troubles.insert((source, uri.clone()));
        }
        let reported_at = later(at, self.plan.sources[source].broken_after);
        self.wake_at(reported_at, Timer::Broken(source, uri));
    }

    pub(super) fn report_broken(&mut self, source: usize, uri: &Uri, now: Timestamp) {
        let broken_after = self.plan.sources[source].broken_after;
        let Some(trouble) = self.sources[source].troubles.get_mut(uri) else {
            return;
        };
        if trouble.reported || later(trouble.since, broken_after) > now {
            return;
        }
        trouble.reported = true;
        let fact = Fact::Broken {
            path: trouble.path.clone(),
            uri: uri.clone(),
            reason: trouble.reason.clone(),
            is_known: self.sources[source].catalog.is_there(uri),
        };
        self.turn.broken.push((source, fact));
    }

    pub(super) fn forget_trouble(&mut self, source: usize, uri: &Uri) -> Option<Trouble> {
        let trouble = self.sources[source].troubles.remove(uri)?;
        if trouble.predates {
            self.turn.troubles.insert((source, uri.clone()));
        }
        Some(trouble)
    }

    /// The candidates that cannot be read, and how many more: first those that lasted, each kind by how long it
    /// cannot be read.
    pub(super) fn broken(&self, now: Timestamp) -> (Vec<BrokenView>, usize) {
        let sources = self.sources.iter().zip(&self.plan.sources);
        let troubles = sources.flat_map(|(source, plan)| {
            let troubles = source.troubles.iter();
            troubles.map(move |(uri, trouble)| (source, plan, uri, trouble))
        });
        let mut all: Vec<_> = troubles.collect();
        // Each source has its own `broken_after`: an older trouble may not have lasted where a later one has.
        all.sort_by_key(|(_, plan, uri, trouble)| {
            let is_fresh = later(trouble.since, plan.broken_after) > now;
            (is_fresh, trouble.since, *uri)
        });
        let first = all
            .iter()
            .take(MOST_BROKEN)
            .map(|(source, plan, uri, trouble)| {
                let mut mounts = plan.mounts.iter();
                let mount = mounts.find(|own| own.id == trouble.path.mount);
                BrokenView {
                    source: plan.name.clone(),
                    path: match mount {
                        Some(mount) => {
                            format!("{}/{}", mount.directory.display(), trouble.path.text())
                        }
                        None => trouble.path.text().into_owned(),
                    },
                    uri: (*uri).clone(),
                    reason: trouble.reason.clone(),
                    since: trouble.since,
                    known: source.catalog.is_there(uri),
                    lasting: later(trouble.since, plan.broken_after) <= now,
                }
            });
        (first.collect(), all.len().saturating_sub(MOST_BROKEN))
    }
}
