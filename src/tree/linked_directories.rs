//! Directories that hold symbolic links: the links are rechecked in turn, and refused where there are too many.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::tree::directories::TreeEntry;
use crate::tree::model::{DirectoryId, Model};

/// Maximum directory links that one path may lead through: links into each other multiply paths.
const MAX_LINKS: usize = 4;
/// Maximum directories of one mount that may be reached through links before no more links are followed. The contents
/// of one link, such as a release, are never cut.
pub const MAX_LINKED: usize = 10_000;

/// Reason why a link to a directory is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkRefusal {
    TooDeep,
    TooMany,
}

#[derive(Debug, Default)]
pub struct LinkedDirectories {
    /// Directories that hold links, with the names of these. None is without.
    pub holders: BTreeMap<DirectoryId, BTreeSet<Arc<[u8]>>>,
    /// The directory whose links were rechecked last.
    last: Option<DirectoryId>,
    /// Directories that were reached through links, by the position of their mount.
    reached: BTreeMap<usize, HashSet<DirectoryId>>,
    /// Refusals that were reported, by the position of their mount.
    pub reported: BTreeSet<(usize, LinkRefusal)>,
}

impl LinkedDirectories {
    /// Takes note that a name in a directory is a symbolic link.
    pub fn insert(&mut self, id: DirectoryId, name: &[u8]) {
        let names = self.holders.entry(id).or_default();
        if !names.contains(name) {
            names.insert(name.into());
        }
    }

    /// Takes note that a name in a directory is no symbolic link.
    pub fn remove(&mut self, id: DirectoryId, name: &[u8]) {
        if let Some(names) = self.holders.get_mut(&id)
            && names.remove(name)
            && names.is_empty()
        {
            self.holders.remove(&id);
        }
    }

    /// Takes note that a directory of a mount is gone.
    pub fn forget(&mut self, id: DirectoryId, mount: usize) {
        self.holders.remove(&id);
        if let Some(reached) = self.reached.get_mut(&mount) {
            reached.remove(&id);
        }
    }

    /// Returns the names of symbolic links in a directory.
    pub fn names(&self, id: DirectoryId) -> Vec<Arc<[u8]>> {
        let names = self.holders.get(&id).into_iter().flatten();
        names.cloned().collect()
    }

    /// Returns the directory whose links are to be rechecked next, round after round.
    pub fn next(&mut self) -> Option<DirectoryId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.holders.range((after, Bound::Unbounded)).next();
        let next = next.or_else(|| self.holders.first_key_value());
        self.last = next.map(|(id, _)| *id);
        self.last
    }

    /// Counts a directory of a mount as reached through a link.
    pub fn reach(&mut self, id: DirectoryId, mount: usize) {
        self.reached.entry(mount).or_default().insert(id);
    }

    /// Counts a new directory as reached through a link, if the one above it is.
    pub fn reach_below(&mut self, parent: DirectoryId, id: DirectoryId, mount: usize) {
        if let Some(reached) = self.reached.get_mut(&mount)
            && reached.contains(&parent)
        {
            reached.insert(id);
        }
    }

    /// Returns why one more link to a directory of a mount is not followed, where it lies behind `depth` others.
    pub fn refusal(&self, mount: usize, depth: usize) -> Option<LinkRefusal> {
        let reached = self.reached.get(&mount).map_or(0, HashSet::len);
        if depth >= MAX_LINKS {
            Some(LinkRefusal::TooDeep)
        } else if reached >= MAX_LINKED {
            Some(LinkRefusal::TooMany)
        } else {
            None
        }
    }

    /// Returns the paths in a mount of links that are not followed.
    pub fn refused(&self, mount: usize, model: &Model) -> Vec<Vec<u8>> {
        let in_mount = |id: DirectoryId| model.mount_of(id) == Some(mount);
        let holders = self.holders.iter().filter(|(id, _)| in_mount(**id));
        let links = holders.flat_map(|(id, names)| names.iter().map(move |name| (*id, name)));
        let is_refused = |(id, name): &(DirectoryId, &Arc<[u8]>)| {
            model.entry(*id, name) == Some(TreeEntry::Refused)
        };
        let refused = links.filter(is_refused);
        refused
            .map(|(id, name)| model.below_name(id, name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::directories::TreeEntry;
    use crate::tree::linked_directories::{LinkRefusal, LinkedDirectories, MAX_LINKED, MAX_LINKS};
    use crate::tree::model::{DirectoryId, Model};

    const IDS: [DirectoryId; 3] = [DirectoryId(0), DirectoryId(1), DirectoryId(2)];

    #[test]
    fn links_are_refused_beyond_a_depth_and_a_number_in_one_mount() {
        let mut links = LinkedDirectories::default();
        assert_eq!(links.refusal(0, MAX_LINKS - 1), None);
        assert_eq!(links.refusal(0, MAX_LINKS), Some(LinkRefusal::TooDeep));
        let ids = (0..).map(DirectoryId).take(MAX_LINKED);
        ids.for_each(|id| links.reach(id, 0));
        assert_eq!(links.refusal(0, 0), Some(LinkRefusal::TooMany));
        assert_eq!(links.refusal(1, 0), None);
        links.forget(IDS[1], 0);
        assert_eq!(links.refusal(0, 0), None);
        links.reach(IDS[2], 0);
        assert_eq!(links.refusal(0, 0), None, "counted twice");
    }

    #[test]
    fn what_lies_below_a_linked_directory_counts_as_reached() {
        let mut links = LinkedDirectories::default();
        let [linked, plain, _] = IDS;
        links.reach(linked, 0);
        let below = (3..).map(DirectoryId).take(MAX_LINKED);
        below.clone().for_each(|id| links.reach_below(plain, id, 0));
        assert_eq!(links.refusal(0, 0), None);
        below.for_each(|id| links.reach_below(linked, id, 0));
        assert_eq!(links.refusal(0, 0), Some(LinkRefusal::TooMany));
    }

    #[test]
    fn the_links_of_all_directories_are_rechecked_in_turn() {
        let mut links = LinkedDirectories::default();
        assert_eq!(links.next(), None);
        IDS.into_iter().for_each(|id| links.insert(id, b"link"));
        let [root, one, two] = IDS.map(Some);
        assert_eq!([links.next(), links.next()], [root, one]);
        links.forget(IDS[1], 0);
        assert_eq!([links.next(), links.next()], [two, root]);
    }

    #[test]
    fn a_directory_holds_links_until_the_last_is_gone() {
        let mut links = LinkedDirectories::default();
        links.insert(IDS[0], b"one");
        links.insert(IDS[0], b"two");
        links.remove(IDS[0], b"two");
        assert_eq!(links.names(IDS[0]), [b"one".as_slice().into()]);
        assert_eq!((links.holders.len(), links.next()), (1, Some(IDS[0])));
        links.remove(IDS[0], b"one");
        assert_eq!((links.holders.len(), links.next()), (0, None));
    }

    #[test]
    fn only_links_that_are_not_followed_are_refused() {
        let mut model = Model::default();
        let root = model.add_root(0);
        let a = model.add_below(root, b"a").unwrap();
        let mut links = LinkedDirectories::default();
        for (name, entry) in [(b"one", TreeEntry::Dangling), (b"two", TreeEntry::Refused)] {
            model.set_entry(a, name.as_slice().into(), entry);
            links.insert(a, name);
        }
        assert_eq!(links.refused(0, &model), [b"a/two"]);
        assert!(links.refused(1, &model).is_empty());
    }
}
