//! The prefix that Capability Lists name documents by, beside the one that a mount is configured with: a wrong `url` is
//! the commonest mistake of all.

use std::collections::BTreeMap;

use crate::announce::catalog::Catalog;
use crate::announce::plan::MountPlan;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::uri::Uri;

/// Entries that are looked at of one list, and in all: enough to know, and quickly done.
const MOST_OF_ONE: usize = 50;
const MOST: usize = 2_000;

/// How many entries of Capability Lists and Source Descriptions name a document of one mount, by the prefix that they
/// name it by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Naming {
    /// Entries that name one as the mount is configured.
    pub as_configured: usize,
    /// Entries whose end is the path of one, by what comes before that.
    pub otherwise: BTreeMap<Uri, usize>,
}

impl Naming {
    /// Counts the entries of what `catalog` holds of a mount.
    pub fn of(catalog: &Catalog, mount: &MountPlan) -> Naming {
        let mut naming = Naming::default();
        let lists = catalog.structures().filter(|(uri, structure)| {
            let kinds = [Capability::CapabilityList, Capability::SourceDescription];
            kinds.contains(&structure.capability) && uri.is_below(&mount.prefix)
        });
        let members = lists.flat_map(|(_, structure)| structure.members.iter().take(MOST_OF_ONE));
        for member in members.take(MOST) {
            if catalog.is_there(member) {
                naming.as_configured += usize::from(member.is_below(&mount.prefix));
            } else if let Some(prefix) = other_prefix(catalog, mount, member) {
                *naming.otherwise.entry(prefix).or_default() += 1;
            }
        }
        naming
    }

    /// Another prefix that more entries go by than by the one that is configured.
    pub fn contradiction(&self) -> Option<&Uri> {
        let (prefix, count) = self.otherwise.iter().max_by_key(|(_, count)| **count)?;
        (*count > self.as_configured).then_some(prefix)
    }

    /// The prefix that most entries go by, where none is configured.
    pub fn majority(&self) -> Option<&Uri> {
        let all: usize = self.otherwise.values().sum();
        let (prefix, count) = self.otherwise.iter().max_by_key(|(_, count)| **count)?;
        (count * 2 > all).then_some(prefix)
    }
}

/// What comes before the path of a document of the mount in `uri`, for the longest such path.
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
