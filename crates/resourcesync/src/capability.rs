//! The values of the `capability` attribute of `rs:md`: of documents, and of notifications with the kinds of their channels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The capability of a document, as its root-level `rs:md capability="…"` declares it (core 1.1 section 7, Archives
/// 0.9.1 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Capability {
    /// Where the sets of resources of a Source are found (core 1.1 section 8): `description`.
    SourceDescription,
    /// The documents of one set of resources (core 1.1 section 9): `capabilitylist`.
    CapabilityList,
    /// The resources of a set at one time (core 1.1 section 10.1): `resourcelist`.
    ResourceList,
    /// Packages with the resources of a set at one time (core 1.1 section 11.1): `resourcedump`.
    ResourceDump,
    /// The content of such a package (core 1.1 section 11.2): `resourcedump-manifest`.
    ResourceDumpManifest,
    /// The changes of a set in an interval (core 1.1 section 12.1): `changelist`.
    ChangeList,
    /// Packages with the resources that changed in an interval (core 1.1 section 13.1): `changedump`.
    ChangeDump,
    /// The content of such a package (core 1.1 section 13.2): `changedump-manifest`.
    ChangeDumpManifest,
    /// Earlier Resource Lists (Archives 0.9.1 section 3): `resourcelist-archive`.
    ResourceListArchive,
    /// Earlier Resource Dumps: `resourcedump-archive`.
    ResourceDumpArchive,
    /// Earlier Change Lists: `changelist-archive`.
    ChangeListArchive,
    /// Earlier Change Dumps: `changedump-archive`.
    ChangeDumpArchive,
}

/// Every capability with its value, in the order of the specifications; a further one comes last, as positions are stored.
/// One that is not here is never recognised.
const ALL: [(Capability, &str); 12] = [
    (Capability::SourceDescription, "description"),
    (Capability::CapabilityList, "capabilitylist"),
    (Capability::ResourceList, "resourcelist"),
    (Capability::ResourceDump, "resourcedump"),
    (Capability::ResourceDumpManifest, "resourcedump-manifest"),
    (Capability::ChangeList, "changelist"),
    (Capability::ChangeDump, "changedump"),
    (Capability::ChangeDumpManifest, "changedump-manifest"),
    (Capability::ResourceListArchive, "resourcelist-archive"),
    (Capability::ResourceDumpArchive, "resourcedump-archive"),
    (Capability::ChangeListArchive, "changelist-archive"),
    (Capability::ChangeDumpArchive, "changedump-archive"),
];

impl Capability {
    /// Returns all capabilities, in the order of the specifications.
    pub fn all() -> impl Iterator<Item = Capability> {
        ALL.into_iter().map(|(capability, _)| capability)
    }

    /// Returns the attribute's value, as in documents and notifications.
    pub fn as_str(self) -> &'static str {
        ALL[self as usize].1
    }

    /// Returns true if documents of this capability list archived documents (Archives 0.9.1 section 2.2).
    pub fn is_archive(self) -> bool {
        self.as_str().ends_with("-archive")
    }

    /// Returns true if documents of this capability describe the content of a dump's package; they lie inside it and
    /// are never announced (R6).
    pub fn is_manifest(self) -> bool {
        self.as_str().ends_with("-manifest")
    }
}

impl From<Capability> for &'static str {
    fn from(capability: Capability) -> &'static str {
        capability.as_str()
    }
}

impl TryFrom<String> for Capability {
    type Error = UnknownCapability;

    fn try_from(value: String) -> Result<Capability, UnknownCapability> {
        value.parse()
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A `capability` value that names no document of the framework (R2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown capability \"{0}\"")]
pub struct UnknownCapability(pub String);

impl FromStr for Capability {
    type Err = UnknownCapability;

    fn from_str(value: &str) -> Result<Capability, UnknownCapability> {
        // R2: DSpace writes `changelistindex` for a Change List Index.
        let value = match value {
            "changelistindex" => "changelist",
            value => value,
        };
        let known = Capability::all().find(|known| known.as_str() == value);
        known.ok_or_else(|| UnknownCapability(value.to_owned()))
    }
}

/// The kind of a channel, and of the notifications on it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// Changes of capability documents (Framework Notification 1.0.1).
    #[default]
    Framework,
    /// Changes of resources (Change Notification 1.0.1).
    Change,
}

impl ChannelKind {
    /// Both kinds.
    pub const ALL: [ChannelKind; 2] = [ChannelKind::Framework, ChannelKind::Change];

    /// Returns the value of `capability` in its notifications, and in the entry of a Capability List that advertises it.
    pub fn capability(self) -> &'static str {
        match self {
            ChannelKind::Framework => "framework-notification",
            ChannelKind::Change => "change-notification",
        }
    }

    /// Returns the kind with this `capability`.
    pub fn of_capability(capability: &str) -> Option<ChannelKind> {
        let mut kinds = ChannelKind::ALL.into_iter();
        kinds.find(|kind| kind.capability() == capability)
    }

    /// Returns `framework` or `change`, as configuration, logs and reports have it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChannelKind::Framework => "framework",
            ChannelKind::Change => "change",
        }
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Capability};

    #[test]
    fn every_value_reads_back() {
        for (capability, value) in ALL {
            assert_eq!(capability.as_str(), value);
            assert_eq!(capability.as_str().parse(), Ok(capability));
        }
        let archives = Capability::all().filter(|capability| capability.is_archive());
        assert_eq!(archives.count(), 4);
        let manifests = Capability::all().filter(|capability| capability.is_manifest());
        assert_eq!(manifests.count(), 2);
        assert_eq!("changelistindex".parse(), Ok(Capability::ChangeList));
        assert!("framework-notification".parse::<Capability>().is_err());
    }
}
