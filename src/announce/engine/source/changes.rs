//! The changes of a source since it last settled.

use std::collections::BTreeSet;

use resourcesync::uri::{Uri, UriMap, UriSet};

use crate::announce::state::{Told, Version};

/// The changes since the source last settled. It settles at the end of each step, but not while a mount is swept for
/// the first time: a half-read tree proves nothing.
#[derive(Debug, Default)]
pub struct Changes {
    /// Documents whose relations must be resolved. Empty until the source first settles, when those of all are.
    pub relations: UriSet,
    /// Documents with a new version.
    pub changed: UriSet,
    /// The versions of those documents before; nothing for new ones.
    pub previous: UriMap<Option<Version>>,
    /// Sets whose channel may have to change.
    pub sets: BTreeSet<Uri>,
    /// The documents of a mount without a baseline when they were first read: these versions count as told (R13).
    pub baseline: UriMap<Told>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.relations.is_empty()
            && self.changed.is_empty()
            && self.sets.is_empty()
            && self.baseline.is_empty()
    }

    /// Notes a new version of a document, or its end. Of several, the first has the version before.
    pub fn version(&mut self, uri: &Uri, previous: Option<Version>) {
        self.previous.entry(uri.clone()).or_insert(previous);
        self.changed.insert(uri.clone());
    }
}
