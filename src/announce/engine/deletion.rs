//! When a document that is not there counts as deleted (R15).

use std::time::Duration;

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::engine::observe::Sighting;
use crate::announce::engine::source::Absence;
use crate::announce::event::Fact;
use crate::announce::observation::MountId;
use crate::announce::state::Presence;
use crate::resourcesync::uri::Uri;

/// How long an unanswered look at a missing document is waited for.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Engine {
    /// R15: a document that is not there is missing first, and deleted later. So is one whose path holds something
    /// else, such as its `successor`.
    pub(super) fn vanished(
        &mut self,
        source: usize,
        uri: &Uri,
        at: Timestamp,
        is_replaced: bool,
        successor: Option<Sighting>,
    ) {
        let state = &mut self.sources[source];
        let Some(record) = state.catalog.get(uri) else {
            return;
        };
        match record.presence {
            Presence::Gone { .. } => return,
            Presence::Missing { .. } => {}
            Presence::Present => {
                let missing = Presence::Missing {
                    since: at,
                    approved: false,
                };
                state.catalog.set_presence(uri, missing);
                state.stale.changed.insert(uri.clone());
                self.turn.documents.insert((source, uri.clone()));
            }
        }
        let away = state.away.entry(uri.clone()).or_insert(Absence {
            since: None,
            is_replaced,
        });
        away.is_replaced = is_replaced;
        if away.since.is_none() {
            away.since = Some(self.monotonic);
            let grace = self.plan.sources[source].deletion_grace;
            let grace_ends = self.monotonic.saturating_add(grace);
            self.graces.insert((grace_ends, source, uri.clone()));
        }
        self.turn.vanished.insert((source, uri.clone()), successor);
    }

    /// R15: whether a running daemon saw a document absent for the whole grace, in one piece.
    fn is_grace_over(&self, source: usize, uri: &Uri) -> bool {
        let grace = self.plan.sources[source].deletion_grace;
        let since = self.sources[source]
            .away
            .get(uri)
            .and_then(|away| away.since);
        since.is_some_and(|since| since.saturating_add(grace) <= self.monotonic)
    }

    /// A deletion is believed only by a look after the grace, so this asks for one.
    pub(super) fn grace_ends(&mut self, source: usize, uri: &Uri) {
        let state = &self.sources[source];
        let Some(record) = state.catalog.get(uri) else {
            return;
        };
        let Presence::Missing { approved, .. } = record.presence else {
            return;
        };
        if (state.suspended && !approved) || !self.is_grace_over(source, uri) {
            return;
        }
        self.turn.look.insert(record.path.clone());
        let again = self.monotonic.saturating_add(LOOK_AGAIN);
        self.graces.insert((again, source, uri.clone()));
    }

    /// R15: decides about the deletions that this turn's looks found, all of them first counted. While a mount is being
    /// swept, nobody knows how many are missing.
    pub(super) fn judge_deletions(&mut self, source: usize) {
        if !self.sources[source].is_settled() {
            return;
        }
        self.judge_suspension(source);
        let is_own = |own: &(usize, Uri)| own.0 == source;
        let vanished: Vec<_> = self
            .turn
            .vanished
            .extract_if(.., |own, _| is_own(own))
            .collect();
        for ((_, uri), successor) in vanished {
            let state = &mut self.sources[source];
            let Some(record) = state.catalog.get(&uri) else {
                continue;
            };
            let Presence::Missing { since, approved } = record.presence else {
                continue;
            };
            let is_suspended = state.suspended && !approved;
            if is_suspended || !self.is_grace_over(source, &uri) {
                continue;
            }
            self.end(source, &uri, since);
            if let Some(successor) = successor {
                self.seen(source, uri, successor);
            }
        }
    }

    /// A document was deleted.
    fn end(&mut self, source: usize, uri: &Uri, since: Timestamp) {
        let state = &mut self.sources[source];
        let Some(mut record) = state.catalog.get(uri).cloned() else {
            return;
        };
        state.away.remove(uri);
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
        let touched = state.catalog.put(uri, record, None);
        state.stale.relations.extend(touched);
        self.turn.documents.insert((source, uri.clone()));
    }

    pub(super) fn judge_suspension(&mut self, source: usize) {
        let limit = self.plan.sources[source].mass_deletion;
        let state = &mut self.sources[source];
        let was_suspended = state.suspended;
        state.suspended = state.is_mass_deletion(limit);
        if was_suspended == state.suspended {
            return;
        }
        let name = &self.plan.sources[source].name;
        match state.suspension(name) {
            Some(suspension) => self.tell(Fact::Suspended(suspension)),
            None => {
                let source_name = name.clone();
                self.tell(Fact::Resumed {
                    source: source_name,
                });
                self.look_at_missing(source, None);
            }
        }
    }

    /// Asks for a look at what is missing, if its grace is over; and, below a mount that was swept just now, at what this
    /// run has not seen to be absent.
    pub(super) fn look_at_missing(&mut self, source: usize, swept: Option<MountId>) {
        let state = &self.sources[source];
        for uri in state.catalog.census().missing().clone() {
            let state = &self.sources[source];
            let path = state.catalog.get(&uri).map(|record| &record.path);
            match path {
                Some(path) if Some(path.mount) == swept && !state.is_seen_away(&uri) => {
                    self.turn.look.insert(path.clone());
                }
                _ => self.grace_ends(source, &uri),
            }
        }
    }

    /// R15: what is away with its mount is not seen to be absent, and its grace begins anew.
    pub(super) fn lose_sight(&mut self, source: usize, mount: MountId) {
        let state = &mut self.sources[source];
        let catalog = &state.catalog;
        state.away.retain(|uri, _| {
            let record = catalog.get(uri);
            record.is_some_and(|record| record.path.mount != mount)
        });
    }

    /// Goes on with what an engine has seen to be absent that had another plan.
    pub(super) fn inherit_graces(&mut self, before: &Engine) {
        self.monotonic = before.monotonic;
        for (position, source) in self.sources.iter_mut().enumerate() {
            let name = &self.plan.sources[position].name;
            let Ok(earlier) = before.plan.source_named(name) else {
                continue;
            };
            let grace = self.plan.sources[position].deletion_grace;
            for (uri, away) in &before.sources[earlier].away {
                if !source.catalog.census().missing().contains(uri) {
                    continue;
                }
                source.away.insert(uri.clone(), *away);
                if let Some(since) = away.since {
                    let ends = since.saturating_add(grace);
                    self.graces.insert((ends, position, uri.clone()));
                }
            }
        }
    }

    /// The documents that an operator accepts as deleted if asked now: what is missing, except below a mount that is
    /// away, where nobody can see what is missing.
    pub fn acceptable(&self, source: usize) -> Vec<&Uri> {
        let state = &self.sources[source];
        let is_visible = |uri: &&Uri| {
            let record = state.catalog.get(uri);
            record.is_some_and(|record| !state.is_absent(record.path.mount))
        };
        let missing = state.catalog.census().missing().iter();
        missing.filter(is_visible).collect()
    }

    /// The operator believes what is missing now. What goes missing later, or returns and goes missing again, is not
    /// accepted.
    pub(super) fn accept(&mut self, name: &str) {
        let Ok(source) = self.plan.source_named(name) else {
            return;
        };
        let missing: Vec<Uri> = self.acceptable(source).into_iter().cloned().collect();
        let documents = missing.len();
        for uri in missing {
            let catalog = &mut self.sources[source].catalog;
            let presence = catalog.get(&uri).map(|record| record.presence);
            if let Some(Presence::Missing { since, .. }) = presence {
                let accepted = Presence::Missing {
                    since,
                    approved: true,
                };
                catalog.set_presence(&uri, accepted);
                self.turn.documents.insert((source, uri));
            }
        }
        if documents > 0 {
            self.tell(Fact::Accepted {
                source: name.to_owned(),
                documents,
            });
        }
        self.look_at_missing(source, None);
    }
}
