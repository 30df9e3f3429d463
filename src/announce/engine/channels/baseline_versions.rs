//! The versions that count as told because a baseline holds them (R13).

use std::collections::BTreeSet;

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Uri, UriMap};

use crate::announce::catalog::Catalog;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::channels::channel_map::ChannelMap;
use crate::announce::engine::step::Step;
use crate::announce::ids::ChannelId;
use crate::announce::state::{Record, Told};

/// A version of a document that counts as told on some channels.
#[derive(Debug, PartialEq, Eq)]
struct BaselineVersion {
    uri: Uri,
    told: Told,
    channels: Vec<ChannelId>,
}

/// Takes what a mount held at its baseline as told to everybody, and so all else in a set whose Capability List came with
/// it. Returns the documents.
pub fn fill_baseline(
    channels: &mut Channels,
    source: usize,
    baseline: &UriMap<Told>,
    catalog: &Catalog,
    step: &mut Step,
) -> BTreeSet<Uri> {
    if baseline.is_empty() {
        return BTreeSet::new();
    }
    let versions = baseline_versions(channels, source, baseline, catalog);
    for version in &versions {
        for id in &version.channels {
            if let Some(mut accounts) = channels.accounts(*id) {
                accounts.fill_all(&version.uri, version.told, step);
            }
        }
    }
    versions.into_iter().map(|version| version.uri).collect()
}

/// Returns which versions of a source's documents count as told, in order, and on which channels.
fn baseline_versions(
    channels: &ChannelMap,
    source: usize,
    baseline: &UriMap<Told>,
    catalog: &Catalog,
) -> Vec<BaselineVersion> {
    let versions = catalog.iter().filter_map(|(uri, record)| {
        Some(BaselineVersion {
            uri: uri.clone(),
            told: told_by_baseline(uri, record, baseline)?,
            channels: hearing(uri, record, baseline, channels, source),
        })
    });
    let mut versions: Vec<BaselineVersion> = versions.collect();
    // In order, because their consequences go into ordered sets.
    versions.sort_unstable_by(|one, other| one.uri.cmp(&other.uri));
    versions
}

fn told_by_baseline(uri: &Uri, record: &Record, baseline: &UriMap<Told>) -> Option<Told> {
    let is_of_its_set = || {
        let mut sets = record.relations.sets.iter();
        sets.any(|set| baseline.contains_key(set))
    };
    match baseline.get(uri) {
        Some(told) => Some(*told),
        None if is_of_its_set() && !record.is_gone() => Some(record.version.into()),
        None => None,
    }
}

/// Returns the channels on which a version counts as told: all of a Source Description, and else those of the sets that it
/// is in, or of those that came with the baseline if it did not.
fn hearing(
    uri: &Uri,
    record: &Record,
    baseline: &UriMap<Told>,
    channels: &ChannelMap,
    source: usize,
) -> Vec<ChannelId> {
    if record.is_source_description() {
        return channels.of_documents(source).map(|(id, _)| id).collect();
    }
    let is_itself = baseline.contains_key(uri);
    let sets = record.relations.sets.iter();
    let sets = sets.filter(|set| is_itself || baseline.contains_key(*set));
    let ids = sets.flat_map(|set| channels.of_set(set, ChannelKind::Framework));
    ids.map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use resourcesync::capability::Capability;
    use resourcesync::channel_kind::ChannelKind;
    use resourcesync::document::Form;
    use resourcesync::fingerprint::Fingerprint;
    use resourcesync::uri::{Topic, Uri, UriMap};

    use super::{BaselineVersion, baseline_versions};
    use crate::announce::catalog::Catalog;
    use crate::announce::channel::Channel;
    use crate::announce::engine::channels::channel_map::ChannelMap;
    use crate::announce::ids::ChannelId;
    use crate::announce::observation::{DocumentPath, MountId, Stat};
    use crate::announce::state::{ChannelRow, Hold, Presence, Record, Relations, Told, Version};

    fn uri(name: &str) -> Uri {
        Uri::parse(&format!("https://e.org/{name}")).unwrap()
    }

    fn record(capability: Capability, sets: &[&str], presence: Presence) -> Record {
        let mut relations = Relations::default();
        for set in sets {
            relations.sets.insert(uri(set));
        }
        let start = Timestamp::UNIX_EPOCH;
        Record {
            path: DocumentPath {
                mount: MountId(1),
                below: Arc::default(),
            },
            stat: Stat {
                size: 1,
                modified: start,
                changed: start,
                inode: 1,
            },
            version: Version {
                capability,
                form: Form::List,
                fingerprint: Fingerprint([1; 32]),
            },
            up: None,
            named_index: None,
            named_index_form: None,
            newly_indexed: false,
            changed: start,
            looked: start,
            presence,
            hold: Hold::Free,
            relations,
            is_new_set: false,
        }
    }

    /// A Source Description and the set `a`, each of whose documents is also in the set `b`.
    fn catalog() -> Catalog {
        let mut catalog = Catalog::new(Default::default());
        let gone = Presence::Gone {
            since: Timestamp::UNIX_EPOCH,
        };
        for (name, capability, sets, presence) in [
            (
                "a",
                Capability::CapabilityList,
                &["a"][..],
                Presence::Present,
            ),
            (
                "list",
                Capability::ResourceList,
                &["a", "b"],
                Presence::Present,
            ),
            ("gone", Capability::ResourceList, &["a", "b"], gone),
            (
                "source",
                Capability::SourceDescription,
                &[],
                Presence::Present,
            ),
        ] {
            let record = record(capability, sets, presence);
            catalog.restore(uri(name), Arc::new(record));
        }
        catalog
    }

    /// Returns the documents that count as told, as what, and on which channels: 1 is of the set `a`, 2 of `b`, and 3 has
    /// changes of the resources of `a`.
    fn versions(baseline: &[&str]) -> Vec<(String, Option<Fingerprint>, Vec<u64>)> {
        let mut channels = ChannelMap::default();
        for (set, kind) in [
            ("a", ChannelKind::Framework),
            ("b", ChannelKind::Framework),
            ("a", ChannelKind::Change),
        ] {
            let topic = Topic::new(format!("https://e.org/{set}/{kind:?}"));
            channels.add(Channel::new(
                0,
                ChannelRow::new("main", kind, uri(set), topic),
            ));
        }
        let unclear = Told {
            capability: Capability::ResourceList,
            form: Form::List,
            fingerprint: None,
        };
        let baseline: UriMap<Told> = baseline.iter().map(|name| (uri(name), unclear)).collect();
        let versions = baseline_versions(&channels, 0, &baseline, &catalog());
        let versions = versions.into_iter().map(|version| {
            let BaselineVersion {
                uri,
                told,
                channels,
            } = version;
            let name = uri.as_str().trim_start_matches("https://e.org/").to_owned();
            let channels = channels.into_iter().map(|ChannelId(id)| id).collect();
            (name, told.fingerprint, channels)
        });
        versions.collect()
    }

    #[test]
    fn a_document_of_the_baseline_counts_as_told_on_the_channels_of_its_sets() {
        assert_eq!(versions(&["list"]), [("list".to_owned(), None, vec![1, 2])]);
        assert_eq!(
            versions(&["source"]),
            [("source".to_owned(), None, vec![1, 2])]
        );
    }

    #[test]
    fn all_that_is_there_counts_as_told_on_the_channel_of_a_set_that_came_with_the_baseline() {
        let seen = Some(Fingerprint([1; 32]));
        let want = [
            ("a".to_owned(), None, vec![1]),
            ("list".to_owned(), seen, vec![1]),
        ];
        assert_eq!(versions(&["a"]), want);
    }
}
