//! The current resources: of each resource of a set, the last thing that its Resource Lists and Change Lists say, if that is
//! no deletion.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::change::Change;
use resourcesync::datetime::Datetime;
use resourcesync::document::{DeclaredSpan, is_structural};
use resourcesync::gzip::{MAGIC, unpacked};
use resourcesync::listing::Listing;
use resourcesync::payload::ChangeKind;
use resourcesync::uri::{Topic, Uri, compared};
use serde::{Deserialize, Serialize};

use crate::config::broker::Broker;
use crate::report::documents::{DocumentState, DocumentView};
use crate::tree::{ListFile, ListFileError, file_path};
use crate::{report, tree};
use announce::observation::Stat;
use announce::steps::engine::StateReader;

/// A set of resources with the lists that name them.
#[derive(Debug)]
pub struct SetLists {
    pub source: String,
    /// Its Capability List.
    pub set: Uri,
    /// The topic of its changes.
    pub topic: Topic,
    /// Resource Lists and Change Lists, in order of their URIs.
    pub lists: Vec<SetList>,
}

/// A list of a set.
#[derive(Debug)]
pub struct SetList {
    pub uri: Uri,
    /// Its position among the lists of its set, in order of the numbers in their URIs.
    pub number: usize,
    capability: Capability,
    path: PathBuf,
}

/// A version of a list, by its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFileVersion {
    size: u64,
    modified: Timestamp,
    inode: u64,
}

/// An open list.
#[derive(Debug)]
pub struct OpenedList<'a> {
    list: &'a SetList,
    file: ListFile,
    stat: Stat,
}

/// The reason why a list cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {uri}")]
pub struct ListError {
    pub uri: Uri,
    source: ListFileError,
}

impl ListError {
    /// Returns true if another version has replaced it.
    pub fn is_stale(&self) -> bool {
        matches!(self.source, ListFileError::Stale)
    }
}

/// The last things that the Change Lists of a set say of resources since its Resource Lists were made, by 128 bits of blake3
/// over their URIs. What no Change List has is as the Resource Lists say.
#[derive(Debug, Default)]
pub struct LastEntries {
    last: HashMap<[u8; 16], LastEntry>,
    /// The versions of the lists that were read, by number.
    pub versions: HashMap<usize, ListFileVersion>,
    /// The time of the oldest Resource List.
    since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct LastEntry {
    at: EntryOrder,
    /// Number of its list, and its position there.
    place: (usize, u32),
    is_deletion: bool,
}

/// The order of entries of different lists: by their times, those of their lists, and those of the files; then by the numbers
/// of the lists, and in their order.
type EntryOrder = (Timestamp, Timestamp, Timestamp, usize, usize);

/// An entry of a Change List in short.
struct ShortChange {
    key: [u8; 16],
    position: u32,
    datetime: Option<Timestamp>,
    is_deletion: bool,
}

impl LastEntries {
    fn add(&mut self, file: &OpenedList<'_>, span: &DeclaredSpan, mut entries: Vec<ShortChange>) {
        let (list, modified) = (file.list, file.stat.modified);
        // A deletion may have the datetime of the version that it deletes.
        let dated = || {
            let entries = entries.iter().filter(|entry| !entry.is_deletion);
            entries.filter_map(|entry| entry.datetime)
        };
        // Some generators write the newest first.
        if dated().next() > dated().next_back() {
            entries.reverse();
        }
        let first = entries.iter().find_map(|entry| entry.datetime);
        let (from, until) = (declared_time(&span.from), declared_time(&span.until));
        let begin = from.or(first).or(until).unwrap_or(modified);
        let end = until.unwrap_or(modified);
        let mut at = begin;
        for (order, entry) in entries.into_iter().enumerate() {
            // The order of the list counts before its datetimes.
            if let Some(datetime) = entry.datetime {
                at = at.max(until.map_or(datetime, |until| datetime.min(until)));
            }
            // What is not dated may be of any time until the end of the list.
            let latest = entry.datetime.map_or(at.max(end), |_| at);
            if self.since.is_some_and(|since| latest < since) {
                continue;
            }
            let entry_now = LastEntry {
                at: (at, begin, modified, list.number, order),
                place: (list.number, entry.position),
                is_deletion: entry.is_deletion,
            };
            let last = self.last.entry(entry.key).or_insert(entry_now);
            if entry_now.at > last.at {
                *last = entry_now;
            }
        }
    }

    /// Returns true if the entry at a position of a list describes a current resource.
    pub fn is_current(&self, list: &SetList, position: u32, change: &Change) -> bool {
        match self.last.get(&resource_key(&change.loc)) {
            Some(last) => last.place == (list.number, position) && !last.is_deletion,
            None => list.capability == Capability::ResourceList,
        }
    }
}

/// Returns a time that a list declares.
fn declared_time(declared: &Option<Box<str>>) -> Option<Timestamp> {
    Some(Datetime::parse(declared.as_deref()?)?.at())
}

/// Returns the key of a resource.
fn resource_key(loc: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(compared(loc).as_bytes()).as_bytes()[..16]);
    key
}

/// Returns the sets with channels of resources that a broker is told of, in order.
///
/// # Errors
///
/// If a list of one of them cannot be read: without it, what is there now is not known.
pub fn broker_sets(reader: &StateReader<'_>, broker: &Broker) -> anyhow::Result<Vec<SetLists>> {
    let documents = report::documents::all(reader)?;
    let channels = report::channels::all_in_outline(reader)?.into_iter();
    let is_told = |source: &String| {
        let sources = broker.sources.as_ref();
        sources.is_none_or(|sources| sources.is_empty() || sources.contains(source))
    };
    let channels = channels.filter(|channel| {
        channel.kind == ChannelKind::Change && channel.retired.is_none() && is_told(&channel.source)
    });
    let mut sets = Vec::new();
    for channel in channels {
        let mut sources = reader.plan.sources.iter();
        let source = sources.find(|source| source.name == channel.source);
        let mut known = BTreeMap::new();
        for document in documents.iter().filter(|one| one.source == channel.source) {
            let gone = "SELECT 1 FROM document WHERE uri = ?1 AND presence = 4";
            if !reader.db.exists(gone, &document.uri)? {
                known.insert(&document.uri, document);
            }
        }
        let mut lists = Vec::new();
        for document in known.values() {
            let Some((capability, form)) = document.kind else {
                continue;
            };
            // One that cannot be read may have a set that is not known yet.
            let is_description = capability == Capability::SourceDescription;
            let is_root = is_description || document.uri == channel.set;
            let is_replaced =
                capability == Capability::ResourceList && document.state == DocumentState::Archived;
            let is_needed = document.sets.contains(&channel.set) && names_resources(capability);
            if !is_root && (!is_needed || is_replaced) {
                continue;
            }
            let path = file_path(reader.plan, &document.path)
                .filter(|_| is_readable(document))
                .with_context(|| format!("cannot read {}", document.uri))?;
            if is_structural(capability, form) {
                for uri in listed_documents(&path, capability)? {
                    let uri = source.map_or(uri.clone(), |source| source.canonical(&uri));
                    let listed = known.get(&uri);
                    if listed.map_or(!is_description, |listed| !is_readable(listed)) {
                        bail!("cannot read {uri}, which {} lists", document.uri);
                    }
                }
            } else {
                lists.push(SetList {
                    uri: document.uri.clone(),
                    number: 0,
                    capability,
                    path,
                });
            }
        }
        number_lists(&mut lists);
        sets.push(SetLists {
            lists,
            source: channel.source,
            set: channel.set,
            topic: channel.topic,
        });
    }
    sets.sort_by(|a, b| (&a.source, &a.set).cmp(&(&b.source, &b.set)));
    Ok(sets)
}

/// Returns true if documents of a capability say what resources there are, or list those that do.
fn names_resources(capability: Capability) -> bool {
    matches!(
        capability,
        Capability::ResourceList | Capability::ChangeList | Capability::ChangeListArchive
    )
}

fn is_readable(document: &DocumentView) -> bool {
    let lost = [DocumentState::Broken, DocumentState::Missing];
    document.kind.is_some() && !lost.contains(&document.state)
}

/// Returns the needed documents that a structural one lists.
fn listed_documents(path: &Path, capability: Capability) -> anyhow::Result<Vec<Uri>> {
    let failed = || format!("cannot read {}", path.display());
    let mut bytes = tree::content(path).with_context(failed)?;
    if bytes.starts_with(&MAGIC) {
        let mut text = Vec::new();
        let unpacked = unpacked(&bytes[..]).read_to_end(&mut text);
        unpacked.with_context(failed)?;
        bytes = text;
    }
    let listing = Listing::parse(&bytes).with_context(failed)?;
    let mut entries = listing.with_context(failed)?.entries;
    if capability == Capability::CapabilityList {
        entries.retain(|entry| {
            entry.capability.is_none() || entry.known_capability().is_some_and(names_resources)
        });
    }
    let uris = entries
        .iter()
        .filter_map(|entry| Uri::parse(entry.loc.as_deref()?).ok());
    Ok(uris.collect())
}

/// Numbers lists, and puts them in order of their URIs.
fn number_lists(lists: &mut [SetList]) {
    lists.sort_by(|a, b| natural_key(a.uri.as_str()).cmp(&natural_key(b.uri.as_str())));
    for (number, list) in lists.iter_mut().enumerate() {
        list.number = number;
    }
    lists.sort_by(|a, b| a.uri.cmp(&b.uri));
}

/// Returns a key that orders texts by the numbers in them, `-9` before `-10`.
fn natural_key(text: &str) -> Vec<(usize, &str, &str)> {
    let parts = text
        .split_inclusive(|c: char| !c.is_ascii_digit())
        .map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, end) = part.split_at(digits);
            let number = number.trim_start_matches('0');
            (number.len(), number, end)
        });
    parts.collect()
}

impl SetLists {
    /// Reads all its lists, and the last entries of resources in its Change Lists. One of them may be open in the version
    /// that counts.
    pub fn last_entries<'a>(
        &'a self,
        mut open: Option<&mut OpenedList<'a>>,
    ) -> Result<LastEntries, ListError> {
        let mut current = LastEntries::default();
        let mut lists: Vec<&SetList> = self.lists.iter().collect();
        lists.sort_by_key(|list| list.capability != Capability::ResourceList);
        for list in lists {
            let mut opened;
            let file = match &mut open {
                Some(file) if file.list.number == list.number => file,
                _ => {
                    opened = list.open()?;
                    &mut opened
                }
            };
            current.versions.insert(list.number, file.version());
            if list.capability == Capability::ResourceList {
                let span = file.each_entry(|_, _| {})?;
                let at = declared_time(&span.at)
                    .or_else(|| declared_time(&span.completed))
                    .unwrap_or(file.stat.modified);
                current.since = Some(current.since.map_or(at, |since| since.min(at)));
                continue;
            }
            let mut entries = Vec::new();
            let span = file.each_entry(|position, change| {
                entries.push(ShortChange {
                    key: resource_key(&change.loc),
                    position,
                    datetime: change.datetime.map(|datetime| datetime.at()),
                    is_deletion: change.kind == ChangeKind::Deleted,
                });
            })?;
            current.add(file, &span, entries);
        }
        Ok(current)
    }
}

impl SetList {
    /// Opens the current version.
    pub fn open(&self) -> Result<OpenedList<'_>, ListError> {
        let opened = ListFile::open_latest(&self.path);
        let (file, stat) = opened.map_err(|source| self.error(source))?;
        let list = self;
        Ok(OpenedList { list, file, stat })
    }

    fn error(&self, source: ListFileError) -> ListError {
        let uri = self.uri.clone();
        ListError { uri, source }
    }
}

impl OpenedList<'_> {
    pub fn version(&self) -> ListFileVersion {
        ListFileVersion {
            size: self.stat.size,
            modified: self.stat.modified,
            inode: self.stat.inode,
        }
    }

    /// Hands over the entries, with their positions in the list. Returns the times that it declares.
    pub fn each_entry(&mut self, take: impl FnMut(u32, Change)) -> Result<DeclaredSpan, ListError> {
        let read = self.file.each_entry(self.list.capability, take);
        read.map_err(|source| self.list.error(source))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use rstest::rstest;

    use super::*;

    /// Returns what is current of lists. Each is a line: its name and its times, then its entries, such as
    /// `created a 09:00`. Files of later ones are newer, unless `is_same_time`.
    fn current(lists: &str, is_same_time: bool) -> String {
        let directory = tempfile::tempdir().unwrap();
        let mut set = SetLists {
            source: "main".to_owned(),
            set: Uri::parse("https://e.org/capabilitylist.xml").unwrap(),
            topic: Topic::new("https://e.org/topic"),
            lists: Vec::new(),
        };
        // A time, with its day if it is another one.
        let at = |name: &str, time: &str| match time.split_once('T') {
            Some(_) => format!("{name}=\"2024-11-{time}:00Z\""),
            None => format!("{name}=\"2024-11-20T{time}:00Z\""),
        };
        for (age, list) in lists.trim().lines().rev().enumerate() {
            let mut parts = list.trim().split(" | ");
            let mut words = parts.next().unwrap().split(' ');
            let name = words.next().unwrap();
            let times = words.map(|word| word.split_once('=').unwrap());
            let times: Vec<String> = times.map(|(name, time)| at(name, time)).collect();
            let md = times.join(" ");
            let entries = parts.map(|entry| {
                let words: Vec<&str> = entry.split(' ').collect();
                let datetime = words.get(2).map(|time| at("datetime", time));
                let (change, name, datetime) = (words[0], words[1], datetime.unwrap_or_default());
                format!("<url><loc>https://e.org/{name}</loc><rs:md change=\"{change}\" {datetime}/></url>")
            });
            let (capability, word) = if name.starts_with('r') {
                (Capability::ResourceList, "resourcelist")
            } else {
                (Capability::ChangeList, "changelist")
            };
            let text = format!(
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                 xmlns:rs=\"http://www.openarchives.org/rs/terms/\"><rs:md capability=\"{word}\" {md}/>{}</urlset>",
                entries.collect::<String>()
            );
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            let age = if is_same_time { 0 } else { age as u64 };
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_732_100_400 - 60 * age);
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
            set.lists.push(SetList {
                uri: Uri::parse(&format!("https://e.org/{name}")).unwrap(),
                number: 0,
                capability,
                path,
            });
        }
        number_lists(&mut set.lists);
        let found = set.last_entries(None).unwrap();
        let mut resources = Vec::new();
        for list in &set.lists {
            let mut file = list.open().unwrap();
            let take = |at, change: Change| {
                if found.is_current(list, at, &change) {
                    let name = change.loc.rsplit('/').next().map(str::to_owned);
                    resources.extend(name);
                }
            };
            file.each_entry(take).unwrap();
        }
        resources.sort();
        resources.join(" ")
    }

    #[rstest]
    #[case::a_resource_list_and_what_changed_since(
        "r.xml at=10:00 | x a | x b | x c
         c.xml | deleted a 11:00 | created d 11:01 | deleted c",
        "b d"
    )]
    #[case::what_changed_before_it_is_in_it_or_is_not_there(
        "c.xml | deleted a 09:00 | created d 09:01
         r.xml at=10:00 | x a",
        "a"
    )]
    #[case::a_list_that_begins_with_it_without_datetimes_or_with_those_of_deleted_versions(
        "c.xml from=10:00 | deleted a | deleted b 08:00 | created d
         r.xml at=10:00 | x a | x b",
        "d"
    )]
    #[case::neither_is_dated_and_the_newer_one_counts(
        "r.xml | x a
         c.xml | deleted a",
        ""
    )]
    #[case::neither_is_dated_and_the_newer_one_counts_the_other_way(
        "c.xml | deleted a
         r.xml | x a",
        "a"
    )]
    #[case::intervals_count_before_the_order_of_the_files(
        "c2.xml from=10:00 | deleted a 09:00
         c1.xml from=09:00 until=10:00 | created a 10:30",
        ""
    )]
    #[case::a_list_that_begins_before_it_without_datetimes(
        "c.xml from=18T10:00 | deleted a | created d
         r.xml at=10:00 | x a | x b",
        "b d"
    )]
    #[case::a_list_that_ends_before_it_without_datetimes(
        "c.xml from=18T10:00 until=19T10:00 | deleted a
         r.xml at=10:00 | x a",
        "a"
    )]
    // A deletion with the datetime of the version that it deletes is no sign that the newest is first.
    #[case::a_deletion_with_an_earlier_datetime("c.xml | updated a 10:00 | deleted a 09:00", "")]
    #[case::the_order_of_entries_counts(
        "c.xml | updated a 10:00 | deleted a 09:00 | created b 11:00",
        "b"
    )]
    #[case::the_order_of_entries_counts_also_if_the_newest_is_first(
        "c.xml | created b 11:00 | deleted a 10:00 | created a 09:00",
        "b"
    )]
    fn the_last_thing_that_the_lists_say_counts(#[case] lists: &str, #[case] want: &str) {
        assert_eq!(current(lists, false), want);
    }

    #[test]
    fn lists_without_times_are_ordered_by_the_numbers_in_their_names() {
        for (before, after) in [("c-9.xml", "c-10.xml"), ("c09", "c10")] {
            let lists = format!("{after} | deleted a\n{before} | created a");
            assert_eq!(current(&lists, true), "");
        }
    }
}
