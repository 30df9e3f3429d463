//! The part of the state that grows with the configuration or with what is open now: kept in memory, copied before each
//! step and put back if it fails.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, Uri};
use rsnotify::announce::delivery::hub_queue::{HubQueue, SizeLimit};
use rsnotify::announce::event::Fact;
use rsnotify::announce::finding::Finding;
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::observation::MountId;
use rsnotify::announce::plan::Mode;
use rsnotify::announce::state::{Told, Version};

use crate::mounts::KnownMount;
use crate::state::{DocId, HubId};

#[derive(Debug, Default)]
pub struct Live {
    /// In the order of the plan.
    pub sources: Vec<LiveSource>,
    /// Those that are configured, brokers among them.
    pub hubs: BTreeMap<HubId, LiveHub>,
    pub accounts: BTreeMap<(ChannelId, HubId), LiveAccount>,
    /// Times at which refusals are summed up.
    pub wakes: BTreeSet<Timestamp>,
}

#[derive(Debug)]
pub struct LiveHub {
    pub hub: Hub,
    pub mode: Mode,
    pub queue: HubQueue,
    /// True if it was not configured before this start, and replaces no other.
    pub is_added: bool,
    /// True if it goes on for one that is no longer configured.
    pub is_inherited: bool,
}

/// Parts of an account that concern the submission under way.
#[derive(Debug, Default, Clone)]
pub struct LiveAccount {
    /// The number of the submission that is under way: of what is in flight, or of what was dropped meanwhile.
    pub sending: Option<u64>,
    /// True if the answer to come is to a submission as the hub was reached before.
    pub is_answer_old: bool,
    /// Acceptances of the hub when it last refused what is in flight.
    pub acceptances: Option<u64>,
    pub is_at_fault: bool,
    /// The refused size that was heeded when what is in flight was cut.
    pub cut_for: Option<SizeLimit>,
    /// The documents of the last accepted ping, until the topic was fetched or should have been (R25).
    pub unfetched: BTreeSet<Uri>,
}

#[derive(Debug, Default)]
pub struct LiveSource {
    /// The number of its row.
    pub id: i64,
    pub mounts: BTreeMap<MountId, KnownMount>,
    /// True while so much is missing that no deletion is believed.
    pub is_mass: bool,
    /// Documents that are missing with a file system that is not mounted, and its directories.
    pub away_count: usize,
    pub away: BTreeSet<String>,
    /// True once it has settled in this run.
    pub has_settled: bool,
    /// The changes since it last settled: documents, the versions before, and sets whose channels may change.
    pub changed: BTreeSet<DocId>,
    pub previous: BTreeMap<DocId, Option<Version>>,
    pub sets: BTreeSet<DocId>,
    /// The first versions of documents in a baseline, if they changed before it was complete.
    pub first: BTreeMap<DocId, Told>,
    /// Source Descriptions that changed within the window, with the version before (R10).
    pub descriptions: BTreeMap<DocId, (Option<Version>, Timestamp)>,
    /// Broken documents to report at the end of the step.
    pub broken: Vec<Fact>,
    /// Capability Lists that the configuration names (R7).
    pub configured: BTreeSet<DocId>,
    pub findings: Findings,
}

/// The findings about one source.
#[derive(Debug, Default)]
pub struct Findings {
    pub about_channels: BTreeMap<Uri, Vec<Finding>>,
}

impl Findings {
    pub fn replace_about_channel(&mut self, set: &Uri, findings: Vec<Finding>) {
        self.about_channels.insert(set.clone(), findings);
    }

    /// Returns the sets that lack a channel because another set has one of these topics (R8).
    pub fn without_topic(&self, topics: &BTreeSet<Topic>) -> Vec<Uri> {
        let all = self.about_channels.values().flatten();
        all.filter_map(|finding| match finding {
            Finding::SharedTopic { set, topic } if topics.contains(topic) => Some(set.clone()),
            _ => None,
        })
        .collect()
    }
}

impl Live {
    /// Returns the position in the plan of the source with this row.
    pub fn position(&self, source: i64) -> Option<usize> {
        self.sources.iter().position(|live| live.id == source)
    }
}

impl Live {
    pub fn hub_named(&self, hub: &Hub) -> Option<HubId> {
        self.hubs
            .iter()
            .find(|(_, live)| live.hub == *hub)
            .map(|(id, _)| *id)
    }
}
