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

#[cfg(test)]
mod tests {
    use crate::tree::linked_directories::{LinkRefusal, LinkedDirectories, MAX_LINKED, MAX_LINKS};
    use crate::tree::model::Model;

    #[test]
    fn links_are_refused_beyond_a_depth_and_a_number_in_one_mount() {
        let mut links = LinkedDirectories::default();
        assert_eq!(links.refusal(0, MAX_LINKS - 1), None);
        assert_eq!(links.refusal(0, MAX_LINKS), Some(LinkRefusal::TooDeep));
        (0..MAX_LINKED).for_each(|_| links.reach(0));
        assert_eq!(links.refusal(0, 0), Some(LinkRefusal::TooMany));
        assert_eq!(links.refusal(1, 0), None);
        links.lose(0);
        assert_eq!(links.refusal(0, 0), None);
    }

    #[test]
    fn a_refusal_is_reported_once_for_each_mount_and_reason() {
        let mut links = LinkedDirectories::default();
        assert!(links.is_first(0, LinkRefusal::TooDeep));
        assert!(!links.is_first(0, LinkRefusal::TooDeep));
        assert!(links.is_first(0, LinkRefusal::TooMany));
        assert!(links.is_first(1, LinkRefusal::TooDeep));
    }

    #[test]
    fn the_links_of_all_directories_are_rechecked_in_turn() {
        let mut model = Model::default();
        let root = model.add_directory(0, None, b"", true);
        let [one, two] = [b"1", b"2"].map(|it| model.add_directory(0, Some(root), it, false));
        let mut links = LinkedDirectories::default();
        assert_eq!(links.next(), None);
        for id in [root, one, two] {
            links.insert(id);
        }
        assert_eq!([links.next(), links.next()], [Some(root), Some(one)]);
        links.remove(one);
        assert_eq!([links.next(), links.next()], [Some(two), Some(root)]);
    }
}
