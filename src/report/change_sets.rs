//! The sets whose Change Lists and change channels do not go together: one has lists and no channel, or a channel and no
//! list.

use resourcesync::capability::Capability;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::document::Form;
use resourcesync::uri::{Topic, Uri};

use crate::announce::catalog::Catalog;
use crate::announce::engine::Engine;
use crate::announce::state::{Presence, Record};
use crate::report::channels::is_for_brokers_only;

/// Returns the sets that have Change Lists and no change channel, by their Capability Lists.
pub fn without_channel(engine: &Engine) -> Vec<Uri> {
    let mut sets = Vec::new();
    for source in engine.sources() {
        let lists = source.catalog().iter();
        let lists = lists.filter(|(_, record)| is(record, Capability::CapabilityList));
        let without = lists.filter(|(set, _)| {
            let channel = engine.channels().live(set, ChannelKind::Change);
            channel.is_none() && has_change_list(source.catalog(), set)
        });
        sets.extend(without.map(|(set, _)| set.clone()));
    }
    sets.sort();
    sets
}

/// Returns the change channels of sets that have no Change List.
pub fn without_list(engine: &Engine) -> Vec<(Topic, Uri)> {
    let channels = engine.channels().iter().map(|(_, channel)| channel);
    let channels = channels.filter(|channel| channel.is_live() && channel.is_of_changes());
    // C27: these have changes without.
    let plan = engine.plan();
    let channels =
        channels.filter(|channel| !plan.sources[channel.source].changes_from_resource_lists);
    let without = channels.filter(|channel| {
        if is_for_brokers_only(engine, &channel.row.topic) {
            return false;
        }
        let catalog = engine.sources()[channel.source].catalog();
        !has_change_list(catalog, &channel.row.set)
    });
    let mut topics: Vec<(Topic, Uri)> = without
        .map(|channel| (channel.row.topic.clone(), channel.row.set.clone()))
        .collect();
    topics.sort();
    topics
}

fn has_change_list(catalog: &Catalog, set: &Uri) -> bool {
    let members = catalog.members(set);
    let mut records = members.iter().filter_map(|member| catalog.get(member));
    records.any(|record| is(record, Capability::ChangeList))
}

/// Returns true for a list of this capability that is there, and no index.
fn is(record: &Record, capability: Capability) -> bool {
    let is_kind = (record.version.capability, record.version.form) == (capability, Form::List);
    is_kind && record.presence == Presence::Present
}
