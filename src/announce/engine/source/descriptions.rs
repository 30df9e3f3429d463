//! The Source Descriptions that changed within the window: a set that is published together with one is told of it,
//! whichever of the two is seen first (R10, R16).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::{Uri, UriMap};

use crate::announce::catalog::Catalog;
use crate::announce::engine::source::changes::Changes;
use crate::announce::state::{Hold, Record, Told, Version};
use crate::announce::time::later;

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

    /// R13: returns what a new account takes as told of a document: the version before the one that this step saw, of which
    /// `previous` are known, or, of a Source Description, the one before the window's. Nothing for a document of a set that
    /// is new.
    pub fn starting_point(
        &self,
        uri: &Uri,
        record: &Record,
        is_known: bool,
        previous: &UriMap<Option<Version>>,
    ) -> Option<Told> {
        let is_waiting = matches!(record.hold, Hold::Waiting { .. });
        if !(is_known || record.is_source_description()) || is_waiting {
            return None;
        }
        let changed = self.changed.get(uri).map(|(before, _)| before);
        match changed.or(previous.get(uri)) {
            Some(before) => before.map(Told::from),
            None if record.is_gone() => None,
            None => Some(record.version.into()),
        }
    }
}
