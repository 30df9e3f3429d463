//! The prefix that Capability Lists name documents by, beside the one that a mount is configured with: a wrong `url` is
//! the most common mistake.

use std::collections::BTreeMap;

use resourcesync::capability::Capability;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::finding::Finding;
use crate::announce::observation::MountId;
use crate::announce::plan::{MountPlan, SourcePlan};

/// Entries that are looked at of one list, and in all: enough to know, and quickly done.
const MAX_OF_ONE: usize = 50;
const MAX_MEMBERS: usize = 2_000;

/// The numbers of entries of Capability Lists and Source Descriptions that name a document of one mount, by the prefix
/// that they name it by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Naming {
    /// Entries that name one as the mount is configured.
    pub as_configured: usize,
    /// Entries whose end is the path of one, by what comes before that.
    pub otherwise: BTreeMap<Uri, usize>,
}

/// Returns a finding for each mount whose documents are named otherwise than it says.
pub fn wrong_urls(catalog: &Catalog, source: &SourcePlan) -> BTreeMap<MountId, Finding> {
    let wrong = source.mounts.iter().filter_map(|mount| {
        let naming = Naming::of(catalog, mount);
        let finding = Finding::WrongUrl {
            url: mount.prefix.clone(),
            named: naming.contradiction()?.clone(),
        };
        Some((mount.id, finding))
    });
    wrong.collect()
}

impl Naming {
    /// Counts the entries of what `catalog` holds of a mount.
    pub fn of(catalog: &Catalog, mount: &MountPlan) -> Naming {
        let mut naming = Naming::default();
        let lists = catalog.structures().filter(|(uri, structure)| {
            let kinds = [Capability::CapabilityList, Capability::SourceDescription];
            kinds.contains(&structure.capability) && uri.is_below(&mount.prefix)
        });
        let members = lists.flat_map(|(_, structure)| structure.members.iter().take(MAX_OF_ONE));
        for member in members.take(MAX_MEMBERS) {
            if catalog.is_there(member) {
                naming.as_configured += usize::from(member.is_below(&mount.prefix));
            } else if let Some(prefix) = other_prefix(catalog, mount, member) {
                *naming.otherwise.entry(prefix).or_default() += 1;
            }
        }
        naming
    }

    /// Returns a prefix that more entries go by than by the one that is configured.
    pub fn contradiction(&self) -> Option<&Uri> {
        let (prefix, count) = self.otherwise.iter().max_by_key(|(_, count)| **count)?;
        (*count > self.as_configured).then_some(prefix)
    }

    /// Returns the prefix that most entries go by, where none is configured.
    pub fn majority(&self) -> Option<&Uri> {
        let all: usize = self.otherwise.values().sum();
        let (prefix, count) = self.otherwise.iter().max_by_key(|(_, count)| **count)?;
        (count * 2 > all).then_some(prefix)
    }
}

/// Returns the part of `uri` before the path of a document of the mount, for the longest such path.
fn other_prefix(catalog: &Catalog, mount: &MountPlan, uri: &Uri) -> Option<Uri> {
    let text = uri.as_str();
    let authority = text.find("://")? + 3;
    let slashes = text[authority..].match_indices('/');
    slashes
        .filter_map(|(at, _)| Uri::parse(&text[..=authority + at]).ok())
        .find(|prefix| {
            let configured = uri.moved(prefix, &mount.prefix);
            configured.is_some_and(|configured| catalog.is_there(&configured))
        })
}
