//! The sets that have taken entries of a list: looked up for each document that changes.

use resourcesync::uri::{Uri, UriMap};

use crate::announce::small_set::SmallSet;

/// Sets by list. Derived from the lists that each set knows.
#[derive(Debug, Default)]
pub struct ListIndex {
    sets: UriMap<SmallSet<Uri>>,
}

impl ListIndex {
    pub fn add(&mut self, list: &Uri, set: &Uri) {
        let sets = self.sets.entry(list.clone()).or_default();
        sets.insert(set.clone());
    }

    pub fn remove(&mut self, list: &Uri, set: &Uri) {
        if let Some(sets) = self.sets.get_mut(list) {
            sets.remove(set);
            if sets.is_empty() {
                self.sets.remove(list);
            }
        }
    }

    /// Returns the sets that have taken entries of a list.
    pub fn sets(&self, list: &Uri) -> Vec<Uri> {
        let sets = self.sets.get(list).into_iter().flatten();
        sets.cloned().collect()
    }
}
