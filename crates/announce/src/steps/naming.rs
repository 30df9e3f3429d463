//! The prefix that Capability Lists name documents by, beside the one that a mount is configured with: a wrong `url` is
//! the most common mistake.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::observation::MountId;
use crate::plan::{MountPlan, SourcePlan};
use resourcesync::uri::Uri;

use crate::state::{Db, DocId, Result};

/// Lists and entries that are looked at: enough to know, and quickly done.
const MAX_LISTS: usize = 2_000;
const MAX_MEMBERS: usize = 2_000;

/// The numbers of entries of Capability Lists and Source Descriptions that name a document of one mount, by the prefix
/// that they name it by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Entries that name one as the mount is configured.
    pub as_configured: usize,
    /// Entries whose end is the path of one, by what comes before that.
    pub otherwise: BTreeMap<Uri, usize>,
}

/// Returns a finding for each mount of a source whose documents are named otherwise than it says.
pub fn wrong_urls(db: Db<'_>, plan: &SourcePlan) -> Result<BTreeMap<MountId, Finding>> {
    let mut wrong = BTreeMap::new();
    for mount in &plan.mounts {
        if let Some(named) = PrefixCounts::of(db, plan, mount)?.contradiction() {
            let (url, named) = (mount.prefix.clone(), named.clone());
            wrong.insert(mount.id, Finding::WrongUrl { url, named });
        }
    }
    Ok(wrong)
}

impl PrefixCounts {
    /// Counts the entries of the lists of a mount.
    pub fn of(db: Db<'_>, plan: &SourcePlan, mount: &MountPlan) -> Result<PrefixCounts> {
        let lists = db.all::<Vec<(DocId, Uri)>>(
            "SELECT d.id, d.uri FROM source s CROSS JOIN document d ON d.source = s.id WHERE s.name = ?1 \
             AND d.capability IN (0, 1) AND d.presence BETWEEN 1 AND 3 LIMIT ?2",
            (&plan.name, MAX_LISTS),
        )?;
        let mut naming = PrefixCounts::default();
        let mut members = 0;
        let lists = lists.into_iter();
        for (list, _) in lists.filter(|(_, uri)| uri.is_below(&mount.prefix)) {
            let some = db.all::<Vec<(Uri, bool)>>(
                "SELECT d.uri, d.presence BETWEEN 1 AND 3 FROM mention m CROSS JOIN document d ON d.id = m.document \
                 WHERE m.list = ?1 LIMIT 50",
                list,
            )?;
            members += some.len();
            for (member, is_there) in some {
                if is_there {
                    naming.as_configured += usize::from(member.is_below(&mount.prefix));
                } else if let Some(prefix) = other_prefix(db, mount, &member)? {
                    *naming.otherwise.entry(prefix).or_default() += 1;
                }
            }
            if members >= MAX_MEMBERS {
                break;
            }
        }
        Ok(naming)
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
fn other_prefix(db: Db<'_>, mount: &MountPlan, uri: &Uri) -> Result<Option<Uri>> {
    let text = uri.as_str();
    let Some(authority) = text.find("://").map(|at| at + 3) else {
        return Ok(None);
    };
    for (at, _) in text[authority..].match_indices('/') {
        let Ok(prefix) = Uri::parse(&text[..=authority + at]) else {
            continue;
        };
        if let Some(configured) = uri.moved(&prefix, &mount.prefix)
            && let Some(document) = db.document_at(&configured)?
            && !document.is_gone()
        {
            return Ok(Some(prefix));
        }
    }
    Ok(None)
}
