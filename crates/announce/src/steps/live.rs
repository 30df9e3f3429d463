//! The part of the state that grows with the configuration or with what is open now: kept in memory, copied for each step
//! and taken over once the step is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::delivery::hub_queue::HubQueue;
use crate::difference::Version;
use crate::finding::Finding;
use crate::observation::{DocumentPath, MountId};
use crate::plan::PublishMode;
use jiff::Timestamp;
use resourcesync::document::NotADocument;
use resourcesync::uri::Hub;

use crate::state::{DocId, HubId};
use crate::steps::findings::FindingLogLimit;
use crate::steps::mounts::LiveMount;

#[derive(Debug, Clone, Default)]
pub struct LiveState {
    /// The hash of the plan.
    pub plan_hash: Arc<str>,
    /// In the order of the plan.
    pub sources: Vec<LiveSource>,
    /// Those that are configured, brokers among them.
    pub hubs: BTreeMap<HubId, LiveHub>,
    /// The number of the last round of any set.
    pub last_round: u64,
    /// True if no daemon runs: the next one tries whatever waits at once.
    pub is_at_rest: bool,
    /// True if each document that a list names, and of which there is no file, is a finding of its own.
    pub find_each: bool,
}

#[derive(Debug, Clone)]
pub struct LiveHub {
    pub hub: Hub,
    pub mode: PublishMode,
    /// Shared with the state before the step until the step changes it.
    pub queue: Arc<HubQueue>,
    /// True if it was not configured before this start, and replaces no other.
    pub is_added: bool,
    /// True if it goes on for one that is no longer configured.
    pub is_inherited: bool,
}

#[derive(Debug, Clone, Default)]
pub struct LiveSource {
    /// The number of its row.
    pub id: i64,
    /// Shared with the state before the step until the step changes one.
    pub mounts: BTreeMap<MountId, Arc<LiveMount>>,
    /// True while so much is missing that no deletion is believed.
    pub is_mass: bool,
    /// Documents that are missing with a file system that is not mounted, and its directories.
    pub away_count: usize,
    pub away: BTreeSet<String>,
    /// True once it has settled in this run.
    pub has_settled: bool,
    /// True if the channels of its sets were settled under the same plan before.
    pub was_routed: bool,
    /// Source Descriptions that changed within the window, with what was told before (R10).
    pub descriptions: BTreeMap<DocId, (Option<Version>, Timestamp)>,
    /// Capability Lists that the configuration names (R7).
    pub configured: Arc<BTreeSet<DocId>>,
    /// The kinds of findings that the operator was told of lately.
    pub told: BTreeMap<&'static str, FindingLogLimit>,
    /// The wrong `url`s of mounts that it was told of.
    pub wrong_urls: BTreeSet<Finding>,
    /// The first file that was read in this run and is no document, and why.
    pub other_file: Option<(DocumentPath, NotADocument)>,
}

impl LiveSource {
    pub fn mount_mut(&mut self, id: MountId) -> Option<&mut LiveMount> {
        self.mounts.get_mut(&id).map(Arc::make_mut)
    }
}

impl LiveHub {
    pub fn queue_mut(&mut self) -> &mut HubQueue {
        Arc::make_mut(&mut self.queue)
    }
}

impl LiveState {
    /// Returns the position in the plan of the source with this row.
    pub fn position(&self, source: i64) -> Option<usize> {
        self.sources.iter().position(|live| live.id == source)
    }

    /// Returns the source with this row.
    pub fn source(&self, id: i64) -> Option<&LiveSource> {
        self.sources.iter().find(|live| live.id == id)
    }

    /// Returns the queue of a hub that is configured.
    pub fn queue_mut(&mut self, hub: HubId) -> Option<&mut HubQueue> {
        self.hubs.get_mut(&hub).map(LiveHub::queue_mut)
    }

    /// Returns a mount, with the position of its source.
    pub fn mount_mut(&mut self, id: MountId) -> Option<(usize, &mut LiveMount)> {
        let mut sources = self.sources.iter_mut().enumerate();
        sources.find_map(|(position, source)| Some((position, source.mount_mut(id)?)))
    }

    pub fn hub_named(&self, hub: &Hub) -> Option<HubId> {
        let mut hubs = self.hubs.iter();
        hubs.find(|(_, live)| live.hub == *hub).map(|(id, _)| *id)
    }
}
