//! Where the difference starts: what an account takes as told that was told nothing (R13).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::engine::Engine;
use crate::announce::engine::observe::Sighting;
use crate::announce::ids::ChannelId;
use crate::announce::observation::MountId;
use crate::announce::state::{Hold, Record, Told, Trouble, Version};
use crate::announce::time::later;
use crate::resourcesync::uri::Uri;

impl Engine {
    /// R13: what a mount holds that nobody looked at before counts as told, in the version that is read first; unless it
    /// could not be read before, or changed while the mount was swept.
    pub(super) fn remember_baseline(
        &mut self,
        source: usize,
        uri: &Uri,
        sighting: &Sighting,
        trouble: Option<&Trouble>,
    ) {
        let Sighting {
            path,
            parsed,
            stat,
            at,
        } = sighting;
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&path.mount) else {
            return;
        };
        let predates = trouble.is_some_and(|trouble| trouble.predates);
        let is_new_ground = mount.is_new_ground(&path.below);
        let is_baseline = is_new_ground && !self.plan.sources[source].announce_existing;
        if state.catalog.get(uri).is_some() || !(is_baseline || predates) {
            return;
        }
        // A file from the future was stamped by another clock than ours, which says nothing about the sweep.
        let is_fresh = mount.started <= stat.changed && stat.changed <= *at;
        mount.has_other_clock |= stat.changed > *at;
        let is_known = !predates && !is_fresh;
        if !predates && is_fresh {
            mount.fresh.push((uri.clone(), parsed.fingerprint));
        }
        let told = Told {
            capability: parsed.document.capability,
            form: parsed.document.form,
            fingerprint: is_known.then_some(parsed.fingerprint),
        };
        state.stale.baseline.entry(uri.clone()).or_insert(told);
    }

    /// R13: where the file system's clock is not ours, nothing tells that a file changed while its mount was swept: what
    /// was read is the baseline.
    pub(super) fn end_baseline(&mut self, source: usize, id: MountId) {
        let state = &mut self.sources[source];
        let Some(mount) = state.mounts.get_mut(&id) else {
            return;
        };
        let fresh = std::mem::take(&mut mount.fresh);
        if !std::mem::take(&mut mount.has_other_clock) {
            return;
        }
        for (uri, fingerprint) in fresh {
            if let Some(told) = state.stale.baseline.get_mut(&uri) {
                told.fingerprint.get_or_insert(fingerprint);
            }
        }
    }

    /// R10: a set that is published together with a Source Description hears of it, whichever of the two is
    /// seen first. So what the description was is remembered until its change would be said (R16).
    pub(super) fn remember_descriptions(
        &mut self,
        source: usize,
        previous: &BTreeMap<Uri, Option<Version>>,
        baseline: &BTreeMap<Uri, Told>,
        now: Timestamp,
    ) {
        let quiet = self.plan.window.quiet;
        let state = &mut self.sources[source];
        state
            .described
            .retain(|_, (_, changed)| now <= later(*changed, quiet));
        for (uri, before) in previous {
            let record = state.catalog.get(uri);
            let is_description = record.is_some_and(Record::is_source_description);
            if is_description && !baseline.contains_key(uri) {
                let unsaid = state.described.get(uri);
                let before = unsaid.map_or(*before, |(before, _)| *before);
                state.described.insert(uri.clone(), (before, now));
            }
        }
    }

    /// What a new account takes as told of a document: the version before the one that this turn saw, or, of
    /// a Source Description, the one before the window's.
    pub(super) fn starting_point(
        &self,
        source: usize,
        uri: &Uri,
        is_known: bool,
        previous: &BTreeMap<Uri, Option<Version>>,
    ) -> Option<Told> {
        let record = self.sources[source].catalog.get(uri)?;
        let is_waiting = matches!(record.hold, Hold::Waiting { .. });
        if !(is_known || record.is_source_description()) || is_waiting {
            return None;
        }
        let described = self.sources[source].described.get(uri);
        let before = described.map(|(before, _)| before);
        match before.or(previous.get(uri)) {
            Some(before) => before.map(Told::from),
            None if record.is_gone() => None,
            None => Some(record.version.into()),
        }
    }

    /// R13: what a mount held at its baseline counts as told to everybody, and so does all else in a set
    /// whose Capability List came with it.
    pub(super) fn fill_baseline(
        &mut self,
        source: usize,
        baseline: &BTreeMap<Uri, Told>,
    ) -> BTreeSet<Uri> {
        if baseline.is_empty() {
            return BTreeSet::new();
        }
        let mut filled = Vec::new();
        let mut fill = Vec::new();
        for (uri, record) in self.sources[source].catalog.iter() {
            let came_with_set = record
                .relations
                .sets
                .iter()
                .any(|set| baseline.contains_key(set));
            let told = match baseline.get(uri) {
                Some(told) => *told,
                None if came_with_set && !record.is_gone() => record.version.into(),
                None => continue,
            };
            let channels: Vec<ChannelId> = if record.is_source_description() {
                let of_source = |(_, channel): &(&ChannelId, &Channel)| channel.source == source;
                self.channels
                    .iter()
                    .filter(of_source)
                    .map(|(id, _)| *id)
                    .collect()
            } else {
                record
                    .relations
                    .sets
                    .iter()
                    .filter(|set| baseline.contains_key(uri) || baseline.contains_key(*set))
                    .filter_map(|set| self.by_set.get(set))
                    .flatten()
                    .copied()
                    .collect()
            };
            fill.push((uri.clone(), told, channels));
        }
        // In order, because what follows goes into ordered sets.
        fill.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        for (uri, told, channels) in fill {
            for id in channels {
                let Some(channel) = self.channels.get_mut(&id) else {
                    continue;
                };
                for (hub, ledger) in &mut channel.ledgers {
                    // A hub that was told of the document keeps what it was told.
                    if ledger.told.contains_key(&uri) {
                        continue;
                    }
                    ledger.told.insert(uri.clone(), told);
                    self.turn.told.insert((id, hub.clone(), uri.clone()));
                }
                self.heard.entry(uri.clone()).or_default().insert(id);
            }
            filled.push(uri);
        }
        filled.into_iter().collect()
    }
}
