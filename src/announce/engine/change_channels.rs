//! Change channels that open, retire and move, and their hubs (C9, C10, C12).

use std::collections::BTreeSet;

use crate::announce::channel::Channel;
use crate::announce::desired_channel::Desired;
use crate::announce::engine::Engine;
use crate::announce::engine::change_sets::change_set::ChangeSet;
use crate::announce::engine::change_sets::lists_to_read::has_last_words;
use crate::announce::engine::channels::OpenedChannel;
use crate::announce::engine::outbox::change_log::go_on_from;
use crate::announce::ids::ChannelId;
use crate::announce::state::ChannelRow;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::{Hub, Topic, Uri};

impl Engine {
    /// Brings the change channels of sets in line with what is wanted.
    pub(super) fn route_changes(
        &mut self,
        position: usize,
        wanted: Vec<(Uri, Desired)>,
        is_first: bool,
    ) {
        for (set, desired) in wanted {
            let live = self.outbox.channels().live(&set, ChannelKind::Change);
            let (topic, hubs) = match (desired, live) {
                (Desired::AsItIs, _) | (Desired::Nothing, None) => continue,
                (Desired::Nothing, Some(live)) => {
                    self.retire_changes(live);
                    continue;
                }
                (Desired::Channel { topic, hubs }, _) => (topic, hubs),
            };
            let channel = live.and_then(|id| Some((id, self.outbox.channels().get(id)?)));
            if let Some((id, channel)) = channel {
                if channel.is_as(&topic, &hubs) {
                    continue;
                }
                if channel.row.topic != topic {
                    self.retire_changes(id);
                }
            }
            let hubs = hubs.into_iter().collect();
            self.open_changes(position, &set, topic, &hubs, is_first);
        }
    }

    /// Retires a change channel, on which the changes that are fresh now are announced first (C12).
    fn retire_changes(&mut self, id: ChannelId) {
        let Some(channel) = self.outbox.channels().get(id) else {
            return;
        };
        let (set, source) = (channel.row.set.clone(), channel.source);
        // What changed in this step is noted later in it.
        let step = &mut self.step;
        if let Some(known) = self.change_sets.get_mut(&set) {
            if has_last_words(known, &self.sources[source], step) {
                known.schedule_mut().sign(&self.plan.window.changes, step);
            }
            known.give_last_words(id, step);
        }
        self.outbox
            .channels_mut()
            .retire(id, self.plan.retired_topic, step);
    }

    fn open_changes(
        &mut self,
        position: usize,
        set: &Uri,
        topic: Topic,
        hubs: &BTreeSet<Hub>,
        is_first: bool,
    ) {
        let source = &self.plan.sources[position].name;
        let row = ChannelRow::new(source, ChannelKind::Change, set.clone(), topic);
        let OpenedChannel {
            id,
            taken_from,
            mut is_changed,
        } = self.open_channel(position, row, hubs);
        if let Some(before) = taken_from {
            let until = self.outbox.channels().get(id).and_then(Channel::told_until);
            self.change_sets
                .lose_channel(&before, id, until, &mut self.step);
        }
        let others = self.outbox.channels().of_set(set, ChannelKind::Change);
        let others = others.filter(|(other, _)| *other != id);
        let untils = others.filter_map(|(_, channel)| channel.told_until());
        let lost = self.change_sets.get(set).and_then(ChangeSet::told_until);
        if let Some(until) = untils.chain(lost).max() {
            go_on_from(self.outbox.channels_mut(), id, until, &mut self.step);
        }
        is_changed |= self.change_hubs(id, hubs, is_first);
        if is_changed {
            self.step.serve(id);
        }
        // On a channel that revives, the changes that came meanwhile are announced.
        let known = self.change_sets.open(set, position);
        known
            .schedule_mut()
            .sign(&self.plan.window.changes, &mut self.step);
    }

    /// Lets hubs that are advertised no more leave, and others join. Returns true if any did.
    fn change_hubs(&mut self, id: ChannelId, hubs: &BTreeSet<Hub>, is_first: bool) -> bool {
        let Some(mut accounts) = self.outbox.channels_mut().accounts(id) else {
            return false;
        };
        let position = accounts.channel().source;
        let listening = accounts.channel().listening();
        let listening: BTreeSet<Hub> = listening.map(|(hub, _)| hub.clone()).collect();
        let is_told = |hub: &Hub| !(is_first && self.hub_changes.is_inherited(hub));
        let (kept, step) = (self.plan.retired_topic, &mut self.step);
        let catalog = self.sources[position].catalog();
        accounts.keep_only(hubs, is_told, kept, step);
        for hub in hubs.difference(&listening) {
            accounts.join(hub, self.plan.mode_of(hub), None, catalog, step);
        }
        if listening == *hubs {
            return false;
        }
        self.reconciler(position).end_accounts(id);
        self.outbox.channels_mut().set_ready(id);
        true
    }

    /// Notes that a channel was removed.
    pub(super) fn channel_removed(&mut self, id: ChannelId, channel: &Channel) {
        if channel.is_of_changes() {
            let until = channel.told_until();
            self.change_sets
                .lose_channel(&channel.row.set, id, until, &mut self.step);
        }
    }
}
