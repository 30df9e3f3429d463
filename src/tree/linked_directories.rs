//! Directories that hold symbolic links: the links are rechecked in turn, and refused where there are too many.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::tree::model::DirectoryId;

/// Maximum directory links that one path may lead through: links into each other multiply paths.
const MAX_LINKS: usize = 4;
/// Maximum directories of one mount that may be reached through links before no more links are followed. The contents
/// of one link, such as a release, are never cut.
pub(super) const MAX_LINKED: usize = 10_000;

/// Reason why a link to a directory is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkRefusal {
    TooDeep,
    TooMany,
}

#[derive(Debug, Default)]
pub(super) struct LinkedDirectories {
    /// Directories that hold links.
    holders: BTreeSet<DirectoryId>,
    /// The directory whose links were rechecked last.
    last: Option<DirectoryId>,
    /// Number of directories that are reached through links, by the position of their mount.
    reached: BTreeMap<usize, usize>,
    /// Refusals that were reported, by the position of their mount.
    reported: BTreeSet<(usize, LinkRefusal)>,
}

impl LinkedDirectories {
    /// Takes note that a directory holds links.
    pub(super) fn insert(&mut self, id: DirectoryId) {
        self.holders.insert(id);
    }

    /// Takes note that a directory holds no links.
    pub(super) fn remove(&mut self, id: DirectoryId) {
        self.holders.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = DirectoryId> {
        self.holders.iter().copied()
    }

    /// Returns the directory whose links are to be rechecked next, round after round.
    pub(super) fn next(&mut self) -> Option<DirectoryId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.holders.range((after, Bound::Unbounded)).next();
        self.last = next.or_else(|| self.holders.first()).copied();
        self.last
    }

    /// Counts one more directory of a mount that is reached through a link.
    pub(super) fn reach(&mut self, mount: usize) {
        *self.reached.entry(mount).or_default() += 1;
    }

    /// Counts one less.
    pub(super) fn lose(&mut self, mount: usize) {
        if let Some(reached) = self.reached.get_mut(&mount) {
            *reached = reached.saturating_sub(1);
        }
    }

    /// Returns why one more link to a directory of a mount is not followed, where it lies behind `depth` others.
    pub(super) fn refusal(&self, mount: usize, depth: usize) -> Option<LinkRefusal> {
        let reached = self.reached.get(&mount).copied().unwrap_or(0);
        if depth >= MAX_LINKS {
            Some(LinkRefusal::TooDeep)
        } else if reached >= MAX_LINKED {
            Some(LinkRefusal::TooMany)
        } else {
            None
        }
    }

    /// Returns true if this refusal has not been reported of this mount, and takes note that it is.
    pub(super) fn is_first(&mut self, mount: usize, refusal: LinkRefusal) -> bool {
        self.reported.insert((mount, refusal))
    }
}
