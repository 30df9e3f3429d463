//! The channels: which there are, which of them a document concerns, and when notifications of each are cut.

pub mod accounts;
pub mod baseline_versions;
pub mod channel_map;
pub mod cut_schedule;
mod hearers;
mod index;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::time::Duration;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::engine::channels::accounts::ChannelAccounts;
use crate::announce::engine::channels::channel_map::ChannelMap;
use crate::announce::engine::channels::cut_schedule::CutSchedule;
use crate::announce::engine::channels::hearers::Hearers;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::state::{ChannelRow, Record};

/// The channels, with what follows from them. Each is found as in the [`ChannelMap`]; one is added, removed or given to
/// another set only here.
#[derive(Debug, Default)]
pub struct Channels {
    map: ChannelMap,
    /// Derived from the channels.
    hearers: Hearers,
    pub cuts: CutSchedule,
    /// Topics that another set may take now.
    freed: BTreeSet<Topic>,
}

impl Deref for Channels {
    type Target = ChannelMap;

    fn deref(&self) -> &ChannelMap {
        &self.map
    }
}

impl Channels {
    // Changes of a channel.

    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.map.get_mut(id)
    }

    pub fn ledger_mut(&mut self, id: ChannelId, hub: &Hub) -> Option<&mut Ledger> {
        self.map.ledger_mut(id, hub)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChannelId, &mut Channel)> {
        self.map.iter_mut()
    }

    /// Takes the channels that may have changed since the last call, removed ones too.
    pub fn take_changed(&mut self) -> BTreeSet<ChannelId> {
        self.map.take_changed()
    }

    // Documents and the channels that they concern.

    /// Returns the channels on which a document must be announced, or was (R10).
    pub fn concerned(&self, source: usize, uri: &Uri, record: &Record) -> BTreeSet<ChannelId> {
        let mut concerned: BTreeSet<ChannelId> = self.hearers.of(uri).collect();
        for set in &record.relations.sets {
            concerned.extend(self.ids_of_set(set, ChannelKind::Framework));
        }
        if record.is_source_description() {
            concerned.extend(self.of_documents(source).map(|(id, _)| id));
        }
        concerned
    }

    /// Returns the channels on which some hub was told of a document, or is due to be.
    pub fn that_heard(&self, uri: &Uri) -> impl Iterator<Item = &Channel> {
        let ids = self.hearers.of(uri);
        ids.filter_map(|id| self.get(id))
    }

    /// Notes that some hub of a channel was told of a document, or is due to be.
    pub fn hears(&mut self, id: ChannelId, uri: &Uri) {
        self.hearers.insert(id, uri);
    }

    /// Returns true if some hub was told of a document, or is due to be. If not, forgets which might have been.
    pub fn owes(&self, uri: &Uri) -> bool {
        let mut ledgers = self
            .that_heard(uri)
            .flat_map(|channel| channel.ledgers.values());
        ledgers.any(|ledger| ledger.told.contains_key(uri) || ledger.owes(uri))
    }

    /// Forgets a document that no hub is owed anything of.
    pub fn forget(&mut self, uri: &Uri) {
        self.hearers.forget(uri);
    }

    /// Returns the accounts of the hubs of a channel, to change them.
    pub fn accounts(&mut self, id: ChannelId) -> Option<ChannelAccounts<'_>> {
        let channel = self.map.get_mut(id)?;
        Some(ChannelAccounts::new(id, channel, &mut self.hearers))
    }

    // Channels that come and go.

    /// Keeps ids from being used again that are not greater than this one.
    pub fn reserve(&mut self, id: ChannelId) {
        self.map.reserve(id);
    }

    /// Adds a stored channel.
    pub fn restore(&mut self, id: ChannelId, channel: Channel) {
        self.hearers.restore(id, &channel);
        self.map.insert(id, channel);
    }

    /// Opens the channel of a topic, or revives the one that the set has or had. `hubs` is the number of hubs that it will
    /// have. Returns its id, and true unless it is as it was before.
    pub fn open(
        &mut self,
        source: usize,
        row: ChannelRow,
        hubs: usize,
        step: &mut Step,
    ) -> (ChannelId, bool) {
        if let Some(id) = self.of_topic(&row.topic) {
            return (id, self.revive(id, step));
        }
        let fact = Fact::ChannelOpened {
            topic: row.topic.clone(),
            set: row.set.clone(),
            hubs,
        };
        let id = self.map.add(Channel::new(source, row));
        step.save_channel(id);
        step.tell(fact);
        (id, true)
    }

    /// R11: retires a channel, which outlives its advertisement to announce what is still due.
    pub fn retire(
        &mut self,
        id: ChannelId,
        retention: Duration,
        catalog: &Catalog,
        step: &mut Step,
    ) {
        let Some(channel) = self.map.get_mut(id) else {
            return;
        };
        channel.retire(catalog, step.now());
        let (topic, set) = (channel.row.topic.clone(), channel.row.set.clone());
        self.freed.insert(topic.clone());
        save_ledgers(id, channel.ledgers.keys(), step);
        step.save_channel(id);
        step.tell(Fact::ChannelRetired { topic, set });
        step.wake_after(retention, Timer::Retired(id));
    }

    /// R11: makes a retired channel live again. Returns true if it was retired.
    fn revive(&mut self, id: ChannelId, step: &mut Step) -> bool {
        let Some(channel) = self.map.get_mut(id) else {
            return false;
        };
        if !channel.revive() {
            return false;
        }
        save_ledgers(id, channel.listening().map(|(hub, _)| hub), step);
        step.save_channel(id);
        step.tell(Fact::ChannelRevived {
            topic: channel.row.topic.clone(),
            set: channel.row.set.clone(),
        });
        true
    }

    /// Removes a channel that was kept for long enough since it retired (R11), or whose topic another set takes, or
    /// one of another kind (C9). Returns it.
    pub fn remove(&mut self, id: ChannelId, step: &mut Step) -> Option<Channel> {
        let channel = self.map.take_out(id)?;
        self.cuts.forget(id);
        step.save_channel(id);
        step.withdraw(channel.row.topic.clone());
        Some(channel)
    }

    /// Takes the topics that another set may have now.
    pub fn take_freed(&mut self) -> BTreeSet<Topic> {
        std::mem::take(&mut self.freed)
    }

    /// Makes the channels of a source ready that were parked, now that it is settled.
    pub fn unpark(&mut self, source: usize) {
        let channels = &self.map;
        self.cuts.unpark(|id| {
            let channel = channels.get(id);
            channel.is_some_and(|channel| channel.source == source)
        });
    }
}

fn save_ledgers<'a>(id: ChannelId, hubs: impl Iterator<Item = &'a Hub>, step: &mut Step) {
    hubs.for_each(|hub| step.save_ledger(id, hub.clone()));
}
