//! The checked configuration, as far as the engine decides by it.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::candidates::{CandidateGlobs, MountUrlPath};
use crate::finding::{AcknowledgedPattern, Finding};
use crate::observation::{DocumentPath, MountId};

/// The globs of files that may be documents unless the configuration says otherwise (R1).
pub const DEFAULT_INCLUDE: [&str; 2] = ["**/*.xml", "**/.well-known/resourcesync"];

/// Name of the embedded hub in commands, besides its URI. No broker may have it.
pub const EMBEDDED_NAME: &str = "embedded";

/// Configuration of the engine, given to it at the start and on a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub sources: Vec<SourcePlan>,
    /// Every hub that notifications may go to, the embedded one included.
    pub hubs: Vec<HubPlan>,
    /// Message brokers, which are told like hubs but are none: nothing advertises them (F1).
    pub brokers: Vec<BrokerPlan>,
    /// The `[[channel]]` entries.
    pub channels: Vec<ConfiguredChannel>,
    /// The address of the public listener; ends in `/`.
    pub public_url: Uri,
    pub window: WindowPlan,
    /// The time for which a topic read by ping hubs repeats what was announced on it (R25).
    pub topic_window: Duration,
    /// The time for which a retired channel's topic is served (R11).
    pub retired_topic: Duration,
}

/// The times and sizes of a channel's notifications (R16, R17, R21, C20, C22).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowPlan {
    pub quiet: Duration,
    pub max_wait: Duration,
    pub hold: Duration,
    /// Maximum number of entries in a notification, at least 1.
    pub max_entries: usize,
    /// Maximum size of a payload, in bytes.
    pub max_bytes: usize,
    /// Time since the last sign of a changed Change List (C20).
    pub change_quiet: Duration,
    /// Longest time since the first sign.
    pub change_max_wait: Duration,
    /// Entries that a hub may be behind before the oldest count as told (C22).
    pub change_backlog: usize,
}

/// One ResourceSync Source and the rules that hold for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    pub name: String,
    pub mounts: Vec<MountPlan>,
    /// The files that may be documents below any of the mounts (R1).
    pub candidates: CandidateGlobs,
    pub broken_after: Duration,
    pub deletion_grace: Duration,
    pub mass_deletion: MassDeletionLimit,
    pub announce_existing: bool,
    pub announce_all_deletions: bool,
    pub announce_all_components: bool,
    /// True if a set that advertises no channel gets one of our own making (R9).
    pub unadvertised_channels: bool,
    /// True if each set has a change channel, advertised or not (C9).
    pub change_notifications: bool,
    /// True if changes are taken from Resource Lists where a set has no Change List (C27).
    pub changes_from_resource_lists: bool,
    /// Findings that raise no alarm.
    pub acknowledged: Vec<AcknowledgedPattern>,
}

/// A directory and what it is published as (R1): an entry of `mount`, of which these are the keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountPlan {
    // Unique over all sources, and the same as long as the plan is effective.
    #[serde(skip)]
    pub id: MountId,
    /// Directory.
    ///
    /// It need not exist yet.
    #[serde(rename = "path")]
    pub directory: PathBuf,
    /// URI that the directory is published as.
    // It ends in `/`, as each alias does.
    #[serde(rename = "url")]
    #[schemars(with = "String", extend("x-form" = "prefix"))]
    pub prefix: Uri,
    /// Other prefixes of the same documents' URIs, such as `http://` beside `https://`.
    #[serde(default)]
    #[schemars(with = "Vec<String>", extend("x-form" = "prefix"))]
    pub aliases: Vec<Uri>,
}

impl MountPlan {
    /// Returns the prefixes of its documents' URIs: its own, then its aliases.
    pub fn prefixes(&self) -> impl Iterator<Item = &Uri> {
        std::iter::once(&self.prefix).chain(&self.aliases)
    }

    /// Returns the path under which it is published, for globs.
    pub fn url_path(&self) -> MountUrlPath {
        MountUrlPath::of_uri(&self.prefix)
    }
}

/// The limit beyond which deletions are suspended (R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MassDeletionLimit {
    /// Suspend above this many percent of a source's documents, 0 to 100.
    Percent(u8),
    /// Never suspend.
    Never,
}

/// Missing documents or resources below which no percentage suspends deletions.
const FEWEST: usize = 10;

impl MassDeletionLimit {
    /// Returns true if `missing` of `of` documents or resources are so many that deletions are suspended.
    pub fn is_exceeded(self, missing: usize, of: usize) -> bool {
        match self {
            MassDeletionLimit::Percent(percent) => {
                let limit = of.saturating_mul(usize::from(percent));
                missing >= FEWEST && missing.saturating_mul(100) > limit
            }
            MassDeletionLimit::Never => false,
        }
    }
}

/// A hub that is configured, or the embedded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubPlan {
    /// URI of the hub as it is advertised.
    pub hub: Hub,
    pub mode: PublishMode,
    pub replaces: ReplacedHub,
}

/// A message broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerPlan {
    /// The name, used like a hub's address. It has no colon, so it is never the address of a hub.
    pub name: Hub,
    /// The kinds of channels that it is told on.
    pub channels: Vec<ChannelKind>,
    /// The names of the sources that it is told of; nothing for all.
    pub sources: Option<Vec<String>>,
}

/// Returns true if what is used like a hub's address is the name of a broker.
pub fn is_broker_name(hub: &Hub) -> bool {
    !hub.as_str().contains(':')
}

/// The hub, no longer configured, that another one replaces (R13).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ReplacedHub {
    /// The one that it replaced, if one replaced one.
    #[default]
    Automatic,
    Nothing,
    Hub(Hub),
}

/// The way in which a hub is notified (R24). The state has the names too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PublishMode {
    /// The payload as body, as Framework Notification 1.0.1 section 4.1 says.
    Content,
    /// A form that names the topic, as W3C-style hubs want it.
    Ping,
    /// The payload as body, the topic in the query.
    ContentQuery,
    /// Our own hub, in this process.
    Embedded,
    /// A message broker, over STOMP (F2).
    Broker,
}

/// A `[[channel]]` entry: for a set that advertises none, or to override what it advertises (R9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfiguredChannel {
    /// URI of the set's Capability List.
    ///
    /// It need not be in the tree: software may generate it.
    #[schemars(with = "String", extend("x-form" = "uri"))]
    #[schemars(example = "https://example.org/dataset1/capabilitylist.xml")]
    pub capability_list: Uri,
    /// Notifications of the channel: of changed documents (`framework`), or of changed resources (`change`).
    ///
    /// A set may have one channel of each kind.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["framework", "change"]))]
    pub kind: ChannelKind,
    /// Topic of the channel, below `public_url` or a mount's `url`.
    #[schemars(with = "String", extend("x-form" = "uri"))]
    #[schemars(example = "https://example.org/dataset1/notifications/")]
    pub topic: Topic,
    /// Hubs to notify, each the `url` of a `[[hub]]` or the URI of the embedded hub. An empty list means all.
    #[serde(default)]
    #[schemars(with = "Vec<String>", extend("x-form" = "uri"))]
    #[schemars(extend("examples" = [["https://hub.example.net/websub/"]]))]
    pub hubs: Vec<Hub>,
}

impl Plan {
    /// Returns every hub and broker, with its mode.
    pub fn hubs_and_brokers(&self) -> impl Iterator<Item = (&Hub, PublishMode)> {
        let hubs = self.hubs.iter().map(|hub| (&hub.hub, hub.mode));
        let brokers = self.brokers.iter();
        hubs.chain(brokers.map(|broker| (&broker.name, PublishMode::Broker)))
    }

    /// Returns the mode of a hub or broker, if it is configured.
    pub fn mode_of(&self, hub: &Hub) -> Option<PublishMode> {
        let mut destinations = self.hubs_and_brokers();
        destinations.find_map(|(configured, mode)| (configured == hub).then_some(mode))
    }

    /// Returns the brokers that are told on the channels of this kind of a source.
    pub fn brokers_of(&self, source: &str, kind: ChannelKind) -> impl Iterator<Item = &Hub> {
        let told = self.brokers.iter().filter(move |broker| {
            let sources = broker.sources.as_ref();
            let is_named = sources.is_none_or(|sources| sources.iter().any(|name| name == source));
            is_named && broker.channels.contains(&kind)
        });
        told.map(|broker| &broker.name)
    }

    /// Returns the source of a mount, with its position in [`Plan::sources`].
    pub fn source_of(&self, mount: MountId) -> Option<(usize, &SourcePlan)> {
        let mut sources = self.sources.iter().enumerate();
        sources.find(|(_, source)| source.mount(mount).is_some())
    }

    /// Returns the position of the source that an operator calls `name`, or the names that there are.
    pub fn source_position(&self, name: &str) -> Result<usize, String> {
        let position = self.sources.iter().position(|source| source.name == name);
        let known = self.sources.iter().map(|source| source.name.as_str());
        position.ok_or_else(|| {
            let known = known.collect::<Vec<_>>().join(", ");
            format!("no source is named \"{name}\"; there is {known}")
        })
    }

    /// Returns the sets of the `[[channel]]` entries that may be of `source`: their Capability Lists lie below a mount, or
    /// below none at all, and there is no other source (R7: software may generate them elsewhere).
    pub fn configured_sets(&self, source: &SourcePlan) -> impl Iterator<Item = &Uri> {
        let sets = self.channels.iter().map(|channel| &channel.capability_list);
        sets.filter(|set| source.mount_of(set).is_some() || self.sources.len() == 1)
    }
}

impl SourcePlan {
    /// Returns true if the configuration acknowledges a finding.
    pub fn is_acknowledged(&self, finding: &Finding) -> bool {
        let mut patterns = self.acknowledged.iter();
        patterns.any(|pattern| pattern.covers(finding))
    }

    /// Returns a mount of this source.
    pub fn mount(&self, id: MountId) -> Option<&MountPlan> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// Returns true if the file at this path may be a document.
    pub fn accepts(&self, path: &DocumentPath) -> bool {
        let mount = self.mount(path.mount);
        mount.is_some_and(|mount| self.candidates.accepts(&mount.url_path(), &path.below))
    }

    /// Returns the longest prefix that `uri` lies below, which may be an alias, with its mount (R1).
    fn longest_prefix_of(&self, uri: &Uri) -> Option<(&MountPlan, &Uri)> {
        let mounts = self.mounts.iter();
        let prefixes = mounts.flat_map(|mount| mount.prefixes().map(move |prefix| (mount, prefix)));
        let around = prefixes.filter(|(_, prefix)| uri.is_below(prefix));
        around.max_by_key(|(_, prefix)| prefix.as_str().len())
    }

    /// Returns the mount that publishes `uri`: of several, the one with the longest prefix. Below an alias that is longer,
    /// none does (R1).
    pub fn mount_of(&self, uri: &Uri) -> Option<&MountPlan> {
        let (mount, prefix) = self.longest_prefix_of(uri)?;
        (*prefix == mount.prefix).then_some(mount)
    }

    /// Returns the prefixes below that of a mount, under which it publishes nothing (R1).
    pub fn prefixes_inside(&self, mount: &MountPlan) -> Vec<Uri> {
        let prefixes = self.mounts.iter().flat_map(MountPlan::prefixes);
        let inside = prefixes.filter(|it| **it != mount.prefix && it.is_below(&mount.prefix));
        inside.cloned().collect()
    }

    /// Returns the URI that the file at `path` is published as; nothing if another mount, with a longer prefix or alias,
    /// has that URI (R1).
    pub fn uri_of(&self, path: &DocumentPath) -> Option<Uri> {
        let mount = self.mount(path.mount)?;
        let uri = Uri::below(&mount.prefix, &path.below);
        (self.mount_of(&uri)?.id == mount.id).then_some(uri)
    }

    /// Returns the path of the file that is published as `uri`; nothing if no file can be (R1).
    pub fn path_of(&self, uri: &Uri) -> Option<DocumentPath> {
        let mount = self.mount_of(uri)?;
        let below = &uri.as_str()[mount.prefix.as_str().len()..];
        let below: Vec<u8> = percent_decode_str(below).collect();
        let is_it =
            !below.is_empty() && !below.contains(&0) && Uri::below(&mount.prefix, &below) == *uri;
        is_it.then(|| DocumentPath {
            mount: mount.id,
            below: below.into(),
        })
    }

    /// Returns the URI under which we know the document that a document of this source calls `uri`: aliases are
    /// replaced by their mount's prefix (R1).
    pub fn canonical(&self, uri: &Uri) -> Uri {
        let mut canonical = uri.clone();
        // What follows the prefix gets shorter each time.
        while let Some((mount, alias)) = self.longest_prefix_of(&canonical)
            && *alias != mount.prefix
            && let Some(moved) = canonical.moved(alias, &mount.prefix)
        {
            canonical = moved;
        }
        canonical
    }
}
