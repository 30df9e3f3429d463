//! Reads what was missed from the Change Lists of a set, by way of its Capability List.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::cli::listen::memory::Memory;
use crate::cli::listen::missed::{Missed, Selection};
use crate::daemon::log::error_chain;
use crate::resourcesync::listing::Listing;
use crate::resourcesync::receive::{ReceivedChange, time_span};
use crate::websub::retrieve::{Origins, RetrieveError, Retriever};

/// Lists and indexes read at most.
const MAX_DOCUMENTS: usize = 1_000;
/// The capability of an archive of Change Lists.
const ARCHIVE: &str = "changelist-archive";
/// Missed changes kept at most.
const MAX_CHANGES: usize = 1_000_000;

/// The reason why missed changes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("no notification has named the Capability List of the set")]
    NoCapabilityList,
    #[error("{0} names no Change List")]
    NoChangeList(String),
    #[error(transparent)]
    Retrieve(#[from] RetrieveError),
    #[error("{url} is not readable: {reason}")]
    Document { url: String, reason: String },
    #[error(
        "more than {MAX_DOCUMENTS} Change Lists, or {MAX_CHANGES} missed changes, are not read"
    )]
    TooMany,
}

/// Missed changes, as far as they could be read.
#[derive(Debug)]
pub struct ReadChanges {
    /// In order.
    pub missed: Vec<Missed>,
    /// Lists that can never be read.
    pub unreadable: Vec<Unreadable>,
}

/// Reads the changes that are later than the last `until` in `memory`, and not later than `before`, in order. A malformed
/// list is not waited for any more if `is_last_attempt`.
///
/// Documents are read only from the servers of the topic and the Capability List.
pub async fn missed(
    topic: &str,
    memory: &Memory,
    before: Option<Timestamp>,
    now: Timestamp,
    is_last_attempt: bool,
) -> Result<ReadChanges, Unreadable> {
    let up = memory.up.as_deref().ok_or(Unreadable::NoCapabilityList)?;
    let retriever = Retriever::new(Origins::of([topic, up]))?;
    let capability_list = read(&retriever, up).await?;
    let since = memory.known_until().and_then(time_span);
    let is_old = |until: &Option<String>| {
        let ended = until.as_deref().and_then(time_span);
        matches!((ended, since), (Some((_, ended)), Some((since, _))) if ended <= since)
    };
    let lists = capability_list.entries.into_iter();
    let mut waiting: VecDeque<String> = lists
        .filter(|entry| names_changes(entry.capability.as_deref()))
        .filter_map(|entry| entry.loc)
        .collect();
    if waiting.is_empty() {
        return Err(Unreadable::NoChangeList(up.to_owned()));
    }
    let mut known: BTreeSet<String> = waiting.iter().cloned().collect();
    let mut selection = Selection::new(memory, before, now);
    let mut documents = 0;
    let mut unreadable = Vec::new();
    while let Some(url) = waiting.pop_front() {
        documents += 1;
        if documents > MAX_DOCUMENTS {
            return Err(Unreadable::TooMany);
        }
        let listing = match read(&retriever, &url).await {
            Ok(listing) => listing,
            Err(error) if error.is_temporary() && !(is_last_attempt && error.is_malformed()) => {
                return Err(error);
            }
            Err(error) => {
                unreadable.push(error);
                continue;
            }
        };
        if !names_changes(listing.capability.as_deref()) {
            continue;
        }
        if listing.is_list() && listing.capability.as_deref() != Some(ARCHIVE) {
            let changes = listing.entries.into_iter().filter_map(ReceivedChange::of);
            selection.add(changes.collect());
            if selection.len() > MAX_CHANGES {
                return Err(Unreadable::TooMany);
            }
            continue;
        }
        for entry in listing.entries {
            // A closed list that ended before has nothing new: of an archive, most.
            if let Some(loc) = entry.loc.filter(|_| !is_old(&entry.until))
                && known.insert(loc.clone())
            {
                waiting.push_back(loc);
            }
        }
    }
    Ok(ReadChanges {
        missed: selection.in_order(),
        unreadable,
    })
}

/// Returns true for the capability of Change Lists, their indexes and their archives (Archives 0.9.1 section 3); DSpace has
/// a value of its own for indexes.
fn names_changes(capability: Option<&str>) -> bool {
    let capabilities = ["changelist", "changelistindex", ARCHIVE];
    capability.is_some_and(|capability| capabilities.contains(&capability))
}

async fn read(retriever: &Retriever, url: &str) -> Result<Listing, Unreadable> {
    let body = retriever.get(url).await?;
    let unreadable = |reason: String| Unreadable::Document {
        url: url.to_owned(),
        reason,
    };
    match Listing::parse(&body) {
        Ok(Some(listing)) => Ok(listing),
        Ok(None) => Err(unreadable("it is no ResourceSync document".to_owned())),
        Err(error) => Err(unreadable(error_chain(&error))),
    }
}

impl Unreadable {
    /// Returns the wait before the next request that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Unreadable::Retrieve(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns true if a list was read, and is none.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Unreadable::Document { .. })
    }

    /// Returns true if the same may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Unreadable::Retrieve(error) => error.is_temporary(),
            // It may be read while it is written.
            Unreadable::Document { .. } => true,
            Unreadable::NoCapabilityList | Unreadable::NoChangeList(_) | Unreadable::TooMany => {
                false
            }
        }
    }
}
