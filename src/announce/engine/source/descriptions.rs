//! The Source Descriptions that changed within the window: a set that is published together with one is told of it,
//! whichever of the two is seen first (R10, R16).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::changes::Changes;
use crate::announce::state::{Record, Version};
use crate::announce::time::{earlier, later};
use crate::resourcesync::uri::Uri;

/// The versions of Source Descriptions before they changed, and when they last did, until their change is announced.
#[derive(Debug, Default)]
pub struct Descriptions {
    changed: BTreeMap<Uri, (Option<Version>, Timestamp)>,
}

impl Descriptions {
    /// Remembers those that changed, and forgets those whose change was to be announced `quiet` after it.
    pub fn remember(
        &mut self,
        changes: &Changes,
        catalog: &Catalog,
        quiet: Duration,
        now: Timestamp,
    ) {
        self.changed
            .retain(|_, (_, changed)| now <= later(*changed, quiet));
        for (uri, before) in &changes.previous {
            let record = catalog.get(uri);
            let is_description = record.is_some_and(Record::is_source_description);
            if is_description && !changes.baseline.contains_key(uri) {
                let known = self.changed.get(uri);
                let before = known.map_or(*before, |(before, _)| *before);
                self.changed.insert(uri.clone(), (before, now));
            }
        }
    }

    /// Returns the version before a change that is remembered; nothing inside if there was none.
    pub fn before(&self, uri: &Uri) -> Option<&Option<Version>> {
        self.changed.get(uri).map(|(before, _)| before)
    }

    /// Moves all times as the clock was set back.
    pub fn set_back(&mut self, by: Duration) {
        for (_, changed) in self.changed.values_mut() {
            *changed = earlier(*changed, by);
        }
    }
}
