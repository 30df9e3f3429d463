//! The channels that sets should have, by the configuration, by what advertises them, and by the channels that there are (R8,
//! R9, C9).

use std::collections::BTreeSet;

use crate::announce::desired_channel::{Configured, Desired, desired, for_brokers};
use crate::announce::engine::channels::Channels;
use crate::announce::engine::source::Source;
use crate::announce::finding::Finding;
use crate::announce::plan::Plan;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::uri::{Topic, Uri};

/// The channels that there are, and what advertises them.
pub struct Wishes<'a> {
    pub plan: &'a Plan,
    pub configured: &'a Configured,
    pub source: &'a Source,
    pub channels: &'a Channels,
}

impl Wishes<'_> {
    /// Returns the channel of this kind that a set should have, with the findings about it. `taken` are the topics of
    /// channels before this one.
    pub fn wanted(
        &self,
        set: &Uri,
        kind: ChannelKind,
        taken: &BTreeSet<Topic>,
    ) -> (Desired, Vec<Finding>) {
        let (catalog, plan) = (self.source.catalog(), self.source.plan());
        let (mut wanted, mut findings) = match catalog.is_set(set) {
            true => {
                let had = self.channels.of_set(set, kind);
                let had = had.map(|(_, channel)| channel.row.topic.clone()).collect();
                desired(self.plan, self.configured, plan, catalog, set, kind, &had)
            }
            false => (Desired::Nothing, Vec::new()),
        };
        // A configured channel takes its topic from any other.
        let is_taken = |topic: &Topic| {
            let has_other =
                !self.configured.has(set, kind) && self.channels.has_other(topic, set, kind);
            has_other || taken.contains(topic)
        };
        if let Desired::Channel { topic, .. } = &wanted
            && is_taken(topic)
        {
            findings.push(Finding::SharedTopic {
                set: set.clone(),
                topic: topic.clone(),
            });
            let had = BTreeSet::new();
            wanted = match for_brokers(self.plan, plan, set, kind, &had) {
                Desired::Channel { topic, .. } if is_taken(&topic) => Desired::Nothing,
                wanted => wanted,
            };
        }
        (wanted, findings)
    }
}
