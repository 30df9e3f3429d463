//! Directories that hold symbolic links: the links are rechecked in turn, and refused where there are too many.

use std::collections::BTreeSet;
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
    directories: BTreeSet<DirectoryId>,
    /// The directory whose links were rechecked last.
    last: Option<DirectoryId>,
    /// Refusals that were reported, by the position of their mount.
    reported: BTreeSet<(usize, LinkRefusal)>,
}

impl LinkedDirectories {
    pub(super) fn insert(&mut self, id: DirectoryId) {
        self.directories.insert(id);
    }

    pub(super) fn remove(&mut self, id: DirectoryId) {
        self.directories.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.directories.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = DirectoryId> {
        self.directories.iter().copied()
    }

    /// Returns the directory whose links are to be rechecked next, round after round.
    pub(super) fn next(&mut self) -> Option<DirectoryId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.directories.range((after, Bound::Unbounded)).next();
        self.last = next.or_else(|| self.directories.first()).copied();
        self.last
    }

    /// Returns why one more link to a directory is not followed: it lies behind `depth` others, and `linked` directories
    /// of its mount are reached through links.
    pub(super) fn refusal(depth: usize, linked: usize) -> Option<LinkRefusal> {
        if depth >= MAX_LINKS {
            Some(LinkRefusal::TooDeep)
        } else if linked >= MAX_LINKED {
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
