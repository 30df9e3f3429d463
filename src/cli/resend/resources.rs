//! The current resources: those that the Resource Lists of a set name; without one, those whose last entry in the set's
//! Change Lists is no deletion.

use std::collections::HashMap;
use std::path::PathBuf;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::change::Change;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::document::Form;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{Topic, Uri};
use serde::{Deserialize, Serialize};

use crate::announce::observation::Stat;
use crate::config::broker::Broker;
use crate::report::documents::DocumentState;
use crate::report::{self, Reader};
use crate::state;
use crate::tree::change_list::{ChangeListFile, ChangeListFileError};
use crate::tree::file_path;

/// A set of resources with the lists that name them.
#[derive(Debug)]
pub struct Set {
    pub source: String,
    /// Its Capability List.
    pub set: Uri,
    /// The topic of its changes.
    pub topic: Topic,
    /// Resource Lists, or else Change Lists, in order of their URIs.
    pub lists: Vec<List>,
}

/// A list of a set.
#[derive(Debug)]
pub struct List {
    pub uri: Uri,
    /// Its position among the lists of its set.
    number: usize,
    capability: Capability,
    path: PathBuf,
}

/// A version of a list, by its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListVersion {
    size: u64,
    modified: Timestamp,
    inode: u64,
}

/// An open list.
#[derive(Debug)]
pub struct OpenList<'a> {
    list: &'a List,
    file: ChangeListFile,
    stat: Stat,
}

/// The reason why a list cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {uri}")]
pub struct ListError {
    uri: Uri,
    source: ChangeListFileError,
}

impl ListError {
    /// Returns true if another version has replaced it.
    pub fn is_stale(&self) -> bool {
        matches!(self.source, ChangeListFileError::Stale)
    }
}

/// The last entries of resources in Change Lists, by 128 bits of blake3 over their URIs. Empty for Resource Lists.
#[derive(Debug, Default)]
pub struct Current {
    last: HashMap<[u8; 16], LastEntry>,
    /// The versions of the Change Lists that were read, by number.
    versions: HashMap<usize, ListVersion>,
}

#[derive(Debug, Clone, Copy)]
struct LastEntry {
    /// By datetime, then by position.
    at: (Option<Timestamp>, usize, u32),
    is_deletion: bool,
}

impl Current {
    fn add(&mut self, list: &List, position: u32, at: Option<Timestamp>, change: &Change) {
        let entry = LastEntry {
            at: (at, list.number, position),
            is_deletion: change.kind == ChangeKind::Deleted,
        };
        let last = self.last.entry(key(&change.loc)).or_insert(entry);
        if entry.at > last.at {
            *last = entry;
        }
    }

    /// Returns true if it was made from another version of a list, whose entries are at other positions.
    pub fn is_stale(&self, list: &List, version: &ListVersion) -> bool {
        list.capability == Capability::ChangeList
            && self.versions.get(&list.number) != Some(version)
    }

    fn is_current(&self, list: &List, position: u32, change: &Change) -> bool {
        list.capability == Capability::ResourceList
            || self.last.get(&key(&change.loc)).is_some_and(|last| {
                (last.at.1, last.at.2) == (list.number, position) && !last.is_deletion
            })
    }
}

/// Returns the key of a resource.
fn key(loc: &str) -> [u8; 16] {
    let uri = Uri::parse(loc);
    let uri = uri.as_ref().map_or(loc, Uri::as_str);
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(uri.as_bytes()).as_bytes()[..16]);
    key
}

/// Returns the sets with channels of resources that a broker is told of, in order.
pub fn sets(reader: &Reader<'_>, broker: &Broker) -> state::Result<Vec<Set>> {
    let documents = report::documents::all(reader)?;
    let channels = report::channels::outline(reader)?.into_iter();
    let is_told = |source: &String| {
        let mut sources = broker.sources.iter().flatten().peekable();
        sources.peek().is_none() || sources.any(|one| one == source)
    };
    let is_gone = |uri: &Uri| {
        let gone = "SELECT 1 FROM document WHERE uri = ?1 AND presence = 4";
        reader.db.exists(gone, uri).unwrap_or_default()
    };
    let channels = channels.filter(|channel| {
        channel.kind == ChannelKind::Change && channel.retired.is_none() && is_told(&channel.source)
    });
    let sets = channels.map(|channel| {
        let lists_of = |capability: Capability| -> Vec<List> {
            let lists = documents.iter().filter(|document| {
                document.source == channel.source
                    && document.kind == Some((capability, Form::List))
                    && document.sets.contains(&channel.set)
                    && !is_gone(&document.uri)
                    && (document.state != DocumentState::Archived
                        || capability == Capability::ChangeList)
            });
            let lists = lists.enumerate().filter_map(|(number, document)| {
                Some(List {
                    uri: document.uri.clone(),
                    number,
                    capability,
                    path: file_path(reader.plan, &document.path)?,
                })
            });
            lists.collect()
        };
        let resource_lists = lists_of(Capability::ResourceList);
        Set {
            lists: if resource_lists.is_empty() {
                lists_of(Capability::ChangeList)
            } else {
                resource_lists
            },
            source: channel.source,
            set: channel.set,
            topic: channel.topic,
        }
    });
    let mut sets: Vec<Set> = sets.collect();
    sets.sort_by(|a, b| (&a.source, &a.set).cmp(&(&b.source, &b.set)));
    Ok(sets)
}

impl Set {
    /// Reads which entries of its Change Lists are the last ones of their resources.
    pub fn current(&self) -> Result<Current, ListError> {
        let mut current = Current::default();
        for list in &self.lists {
            if list.capability == Capability::ResourceList {
                continue;
            }
            // An entry without a datetime comes after the one before it.
            let mut latest = None;
            let mut file = list.open()?;
            current.versions.insert(list.number, file.version());
            file.each(|position, change| {
                latest = change.datetime.map(|datetime| datetime.at()).or(latest);
                current.add(list, position, latest, &change);
            })?;
        }
        Ok(current)
    }
}

impl List {
    /// Opens the current version.
    pub fn open(&self) -> Result<OpenList<'_>, ListError> {
        let (file, stat) = ChangeListFile::open_latest(&self.path).map_err(|source| ListError {
            uri: self.uri.clone(),
            source,
        })?;
        Ok(OpenList {
            list: self,
            file,
            stat,
        })
    }
}

impl OpenList<'_> {
    pub fn version(&self) -> ListVersion {
        ListVersion {
            size: self.stat.size,
            modified: self.stat.modified,
            inode: self.stat.inode,
        }
    }

    /// Hands over the current resources, with their positions in the list.
    pub fn each_resource(
        &mut self,
        current: &Current,
        mut take: impl FnMut(u32, Change),
    ) -> Result<(), ListError> {
        let list = self.list;
        self.each(|position, change| {
            if current.is_current(list, position, &change) {
                take(position, change);
            }
        })
    }

    fn each(&mut self, take: impl FnMut(u32, Change)) -> Result<(), ListError> {
        let read = self.file.each_entry(self.list.capability, take);
        read.map_err(|source| ListError {
            uri: self.list.uri.clone(),
            source,
        })
    }
}
