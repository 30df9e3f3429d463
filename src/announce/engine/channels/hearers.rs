//! The channels on which hubs were told of a document.

use resourcesync::uri::{Uri, UriMap};

use crate::announce::channel::Channel;
use crate::announce::ids::ChannelId;
use crate::announce::small_set::SmallSet;

/// The channels on which some hub was told of a document, is being told, or is due to be.
///
/// A channel may stay until the document is forgotten, although no hub of it is owed anything any more.
#[derive(Debug, Default)]
pub struct Hearers {
    by_document: UriMap<SmallSet<ChannelId>>,
}

impl Hearers {
    pub fn insert(&mut self, id: ChannelId, uri: &Uri) {
        self.by_document.entry(uri.clone()).or_default().insert(id);
    }

    /// Adds a stored channel to those of each document that its ledgers name.
    pub fn restore(&mut self, id: ChannelId, channel: &Channel) {
        for ledger in channel.ledgers.values() {
            let covers = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
            let covers = covers.map(|(uri, _)| uri);
            for uri in ledger.told.keys().chain(&ledger.due).chain(covers) {
                self.insert(id, uri);
            }
        }
    }

    /// Returns the channels of a document.
    pub fn of(&self, uri: &Uri) -> impl Iterator<Item = ChannelId> {
        let ids = self.by_document.get(uri).into_iter().flatten();
        ids.copied()
    }

    /// Forgets a document that no hub is owed anything of.
    pub fn forget(&mut self, uri: &Uri) {
        self.by_document.remove(uri);
    }
}
