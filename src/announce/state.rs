//! The stored state: the rows that the engine loads once and hands out whenever they change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::change_list::ResourceKey;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::document::{Form, MAX_SIZE, is_structural};
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::Entry;
use resourcesync::uri::{Hub, Topic, Uri};

use crate::announce::candidates::Candidates;
use crate::announce::changes::inventory::InventoryRow;
use crate::announce::changes::log::{LogPart, LogPosition, Logged};
use crate::announce::delivery::attempt::Attempt;
use crate::announce::ids::ChannelId;
use crate::announce::observation::{DocumentPath, Identity, MountId, RACY, Stat};
use crate::announce::plan::{Mode, Plan};
use crate::announce::small_set::SmallSet;
use crate::announce::time::later;

/// Time after which a closed Change List that did not change is not expected to (C7).
const CLOSED_FOR_GOOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// One version of a document, as far as versions are compared (R4, R14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub capability: Capability,
    pub form: Form,
    pub fingerprint: Fingerprint,
}

/// The version of a document that a hub was last told of on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub capability: Capability,
    pub form: Form,
    /// Nothing where the document existed but its content was not known (R13).
    pub fingerprint: Option<Fingerprint>,
}

impl From<Version> for Told {
    fn from(version: Version) -> Told {
        Told {
            capability: version.capability,
            form: version.form,
            fingerprint: Some(version.fingerprint),
        }
    }
}

impl Told {
    /// Returns true if `version` is a version of the same document: a path whose document changes capability or
    /// form is an old document that ended and a new one that began (R14).
    pub fn is_same_document(&self, version: &Version) -> bool {
        (self.capability, self.form) == (version.capability, version.form)
    }

    /// Returns true for a Source Description, as [`Record::is_source_description`].
    pub fn is_source_description(&self) -> bool {
        (self.capability, self.form) == (Capability::SourceDescription, Form::List)
    }
}

/// A document as last seen complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub path: DocumentPath,
    pub stat: Stat,
    pub version: Version,
    /// `rel="up"`, aliases resolved.
    pub up: Option<Uri>,
    /// `rel="index"`, aliases resolved.
    pub named_index: Option<Uri>,
    /// The form that the named index had when this version was seen (R17).
    pub named_index_form: Option<Form>,
    /// True if this version names an index that its predecessor did not name, or that changed form (R17).
    pub newly_indexed: bool,
    /// The time of this version, as R19 has it.
    pub changed: Timestamp,
    /// The last look that read it.
    pub looked: Timestamp,
    pub presence: Presence,
    pub hold: Hold,
    pub relations: Relations,
    /// True for a Capability List that came after the baseline, and of whose set no hub was told yet (R13).
    pub is_new_set: bool,
}

impl Record {
    pub fn is_structural(&self) -> bool {
        is_structural(self.version.capability, self.version.form)
    }

    /// Returns true if a new run reads it although its stat data did not change: because its entries are needed, or its
    /// size is a finding.
    pub fn is_read_at_start(&self) -> bool {
        self.is_structural() || self.stat.size > MAX_SIZE
    }

    /// Returns true for a Source Description, whose changes are announced on every channel (R10). An index of several
    /// is not one.
    pub fn is_source_description(&self) -> bool {
        self.version.capability == Capability::SourceDescription && self.version.form == Form::List
    }

    /// Returns true for a Capability List, which stands for a set of resources (R7).
    pub fn is_capability_list(&self) -> bool {
        self.version.capability == Capability::CapabilityList && self.version.form == Form::List
    }

    /// Returns true if the file changed so shortly before it was read that it may have changed again unseen, by git's
    /// racy rule (R4).
    pub fn is_racy(&self) -> bool {
        later(self.stat.changed, RACY) >= self.looked
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.presence, Presence::Gone { .. })
    }

    pub fn is_missing(&self) -> bool {
        matches!(self.presence, Presence::Missing { .. })
    }

    /// Returns true if it is missing, and an operator accepts that it is deleted (R15).
    pub fn is_accepted(&self) -> bool {
        matches!(self.presence, Presence::Missing { approved: true, .. })
    }
}

/// The presence of a document in the tree (R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Present,
    /// Not found since then, and not yet counted as deleted. `approved` by the operator, it does not count towards a
    /// mass deletion.
    Missing {
        since: Timestamp,
        approved: bool,
    },
    /// Deleted; kept until every hub has been told what there is to tell.
    Gone {
        since: Timestamp,
    },
}

/// The hold of a change until the document is listed (R17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Free,
    Waiting {
        since: Timestamp,
    },
    /// It was held to the end once, and is never held again.
    Expired,
}

/// The relations of a document to others (R5, R7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relations {
    pub index: Option<Uri>,
    /// The sets of resources it belongs to, by their Capability Lists.
    pub sets: SmallSet<Uri>,
    pub archived: bool,
}

/// A candidate that is not (or not yet) a document and could not be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    pub path: DocumentPath,
    pub since: Timestamp,
    pub reason: String,
    /// True if it was there when its mount's baseline was taken, so that its first good reading is an
    /// update (R13).
    pub predates: bool,
    /// True once the operator was told (R3).
    pub reported: bool,
}

/// A mount as it was last found (R13).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRow {
    pub source: String,
    pub directory: PathBuf,
    pub prefix: Uri,
    pub identity: Option<Identity>,
    pub baselined: bool,
    pub held_document: bool,
    /// The start of the last complete sweep.
    pub swept: Option<Timestamp>,
    /// The candidates of that sweep. Files that a later configuration adds to them were there before, as far as anybody
    /// knows (R13).
    pub candidates: Option<Candidates>,
    /// The file systems below the root that held documents, by their paths from there (R15).
    pub nested: BTreeMap<Arc<[u8]>, NestedRow>,
}

/// A directory below the root of a mount where another file system begins, or began when its documents were last seen
/// (R15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestedRow {
    /// The file system that the documents were last seen on; nothing for that of the directory above, which another one
    /// hides now.
    pub device: Option<u64>,
    /// True if a link leads there.
    pub is_link: bool,
    /// True while another file system is there, or none, and documents are missing with it.
    pub is_away: bool,
}

/// A channel, live or retired (R9, R11).
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelRow {
    pub source: String,
    pub kind: ChannelKind,
    /// The Capability List that names the set.
    pub set: Uri,
    pub topic: Topic,
    /// The time since which nothing becomes due but changes of Source Descriptions (R10, R11).
    pub retired: Option<Timestamp>,
    /// The last notification's number; 0 before the first.
    pub seq: u64,
    /// The `until` of the last notifications, the newest last: the next one's differs (R20).
    pub untils: Vec<Timestamp>,
    /// The body that the topic serves (R25).
    pub body: Arc<[u8]>,
    /// The entries for ping hubs within the topic window, in order of their datetimes (R25).
    pub said: Vec<Said>,
}

impl ChannelRow {
    /// Makes the row of a channel on which nothing was announced yet.
    pub fn new(source: &str, kind: ChannelKind, set: Uri, topic: Topic) -> ChannelRow {
        ChannelRow {
            source: source.to_owned(),
            kind,
            set,
            topic,
            retired: None,
            seq: 0,
            untils: Vec::new(),
            body: Arc::from([]),
            said: Vec::new(),
        }
    }
}

/// An entry that a topic repeats for hubs which only fetch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub at: Timestamp,
    pub entry: Entry,
}

/// The account of one hub on one channel, without the versions it was told of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedgerRow {
    pub flight: Option<Flight>,
    /// The `until` of the last notification that the hub has: the next one's `from` (R20).
    pub until: Option<Timestamp>,
    /// The time since which the hub is advertised no more, and nothing becomes due to it (R11).
    pub left: Option<Timestamp>,
    /// Documents that were due when the hub left or the channel retired, and still are, except those in flight; nothing
    /// while the account is open (R11).
    pub still_due: Option<BTreeSet<Uri>>,
    /// Maximum number of entries in the next notification, after a 413 (R23).
    pub limit: Option<usize>,
    /// The time of the last accepted notification.
    pub accepted: Option<Timestamp>,
    pub ping: Option<Ping>,
    pub last: Option<Attempt>,
    /// The part of the log that the hub was told, on a change channel (C21).
    pub position: LogPosition,
}

/// A notification on its way to one hub: immutable, retried byte for byte (R22).
#[derive(Debug, Clone, PartialEq)]
pub struct Flight {
    pub seq: u64,
    /// Empty on a change channel: the log has it.
    pub body: Arc<[u8]>,
    /// The entries of the logged notification that are sent, on a change channel (C23).
    pub part: Option<LogPart>,
    /// The number of its entries.
    pub entries: usize,
    /// The versions that count as told once the hub accepts, by document; nothing for one that ended.
    pub covers: Vec<(Uri, Option<Told>)>,
    pub until: Option<Timestamp>,
    pub cut: Timestamp,
    pub attempts: u32,
    pub next_try: Timestamp,
}

/// The last accepted ping (R24, R26).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    pub at: Timestamp,
    pub fetched: bool,
    /// True if the operator was told that the topic is not fetched, and it was not since.
    pub reported: bool,
}

impl Ping {
    /// Returns a ping that was accepted now. A hub may fetch the topic before it answers the ping.
    pub fn accepted(before: Option<Ping>, now: Timestamp) -> Ping {
        Ping {
            at: now,
            fetched: before.is_some_and(|ping| ping.fetched),
            reported: before.is_some_and(|ping| ping.reported),
        }
    }
}

/// Contents of the state file, as the engine restores them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub mounts: BTreeMap<MountId, MountRow>,
    pub documents: BTreeMap<Uri, Arc<Record>>,
    /// XML files that are no documents, by their stat data and when they were read (R2).
    pub other_files: BTreeMap<DocumentPath, (Stat, Timestamp)>,
    pub troubles: BTreeMap<Uri, Trouble>,
    pub channels: BTreeMap<ChannelId, ChannelRow>,
    pub ledgers: BTreeMap<(ChannelId, Hub), LedgerRow>,
    pub told: BTreeMap<(ChannelId, Hub), BTreeMap<Uri, Told>>,
    /// Every hub that was ever configured.
    pub hubs: BTreeMap<Hub, KnownHub>,
    /// The sets with a change channel.
    pub change_sets: BTreeMap<Uri, ChangeSetRow>,
    /// The Change Lists of each set, as far as their entries were taken.
    pub change_lists: BTreeMap<Uri, BTreeMap<Uri, ChangeListRow>>,
    /// The logs of change channels, without the bodies.
    pub change_log: BTreeMap<ChannelId, BTreeMap<u64, Logged>>,
    /// The last time saved, by the clock that nobody sets: no run begins earlier.
    pub clock: Option<Timestamp>,
}

/// A set with a change channel (C10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeSetRow {
    /// Kind of the lists whose first contents were learned last; nothing until all entries that were there when the
    /// channel opened have been learned.
    pub learned: Option<ListKind>,
    /// The retiring channel that is still to be told what was fresh when it retired (C12).
    pub retiring_channel: Option<ChannelId>,
}

/// The lists from which the changes of a set are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    ChangeLists,
    /// Compared with those before (C27).
    ResourceLists,
}

/// A Change List of a set, as far as its entries were taken (C6). An empty row is of a list whose entries count as taken
/// when they are read first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeListRow {
    /// The version that was taken as a whole.
    pub fingerprint: Option<Fingerprint>,
    /// Entries that count.
    pub listed: usize,
    /// Of these, entries that were taken.
    pub taken: usize,
    /// Present if it was closed when it was taken.
    pub closed: Option<ClosedList>,
}

/// A Change List that is closed: its `rs:md` says until when (core 1.1 section 12.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedList {
    /// Time since which no other version was seen.
    pub since: Timestamp,
    /// Time of its last entry.
    pub last: Timestamp,
}

impl ClosedList {
    /// Returns true if it has not changed for so long that it is not expected to.
    pub fn is_final(&self, now: Timestamp) -> bool {
        later(self.since, CLOSED_FOR_GOOD) <= now
    }
}

/// Keys of entries that were taken from one Change List, 16 bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    pub bytes: Arc<[u8]>,
    /// The time at which the list was seen without these entries (C7).
    pub vanished: Option<Timestamp>,
}

/// A notification to add to the log of a change channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    pub logged: Logged,
    pub body: Arc<[u8]>,
}

/// A hub as it was last configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHub {
    pub mode: Mode,
    /// True if it was at the last start.
    pub is_configured: bool,
}

/// Rows to write, in one transaction; nothing for a row to delete. Deleting a channel deletes its ledgers,
/// and deleting a ledger what was told on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Save {
    pub mounts: BTreeMap<MountId, Option<MountRow>>,
    /// Shared with the engine, because a first start saves all there are.
    pub documents: BTreeMap<Uri, Option<Arc<Record>>>,
    pub other_files: BTreeMap<DocumentPath, Option<(Stat, Timestamp)>>,
    pub troubles: BTreeMap<Uri, Option<Trouble>>,
    pub channels: BTreeMap<ChannelId, Option<ChannelRow>>,
    /// Accounts to delete before anything is written, with what was told on them: each may have begun again since.
    pub ended_accounts: BTreeSet<(ChannelId, Hub)>,
    pub ledgers: BTreeMap<(ChannelId, Hub), Option<LedgerRow>>,
    pub told: BTreeMap<(ChannelId, Hub, Uri), Option<Told>>,
    pub hubs: BTreeMap<Hub, KnownHub>,
    /// Deleting a set deletes its lists and their keys.
    pub change_sets: BTreeMap<Uri, Option<ChangeSetRow>>,
    /// By set and list; deleting a list deletes its keys.
    pub change_lists: BTreeMap<(Uri, Uri), Option<ChangeListRow>>,
    /// By set, list and number of the row.
    pub change_keys: BTreeMap<(Uri, Uri, u32), Option<KeyRow>>,
    pub change_log: BTreeMap<(ChannelId, u64), Option<LogRow>>,
    /// Resources as they were listed, by set.
    pub inventory: BTreeMap<(Uri, ResourceKey), Option<InventoryRow>>,
    /// Sets whose resources are forgotten.
    pub forgotten_inventories: BTreeSet<Uri>,
    /// The time at which it is saved, by the clock that nobody sets.
    pub clock: Option<Timestamp>,
}

impl State {
    /// Gives each mount of a plan the number under which the state knows it, and new numbers to the others, so that
    /// stored paths stay right when mounts are added, removed or exchanged. A mount keeps its number in another directory
    /// if no other of its source, before or now, has its prefix.
    pub fn number_mounts(&self, plan: &mut Plan) {
        let mut next = self.mounts.keys().map(|id| id.0 + 1).max().unwrap_or(1);
        for source in &mut plan.sources {
            let prefixes: Vec<Uri> = source
                .mounts
                .iter()
                .map(|mount| mount.prefix.clone())
                .collect();
            for mount in &mut source.mounts {
                let of_prefix = self.mounts.iter();
                let of_prefix: Vec<_> = of_prefix
                    .filter(|(_, row)| row.source == source.name && row.prefix == mount.prefix)
                    .collect();
                let same = of_prefix.iter();
                let same = same
                    .copied()
                    .find(|(_, row)| row.directory == mount.directory);
                let is_only = prefixes
                    .iter()
                    .filter(|prefix| **prefix == mount.prefix)
                    .count()
                    == 1;
                let moved = match &of_prefix[..] {
                    [only] if is_only => Some(*only),
                    _ => None,
                };
                mount.id = match same.or(moved) {
                    Some((id, _)) => *id,
                    None => {
                        next += 1;
                        MountId(next - 1)
                    }
                };
            }
        }
    }

    /// Makes this the state that the store holds once `save` is committed.
    pub fn apply(&mut self, save: Save) {
        self.clock = save.clock.or(self.clock);
        for (id, row) in save.mounts {
            if row.is_none() {
                self.other_files.retain(|path, _| path.mount != id);
            }
            put(&mut self.mounts, id, row);
        }
        for (uri, record) in save.documents {
            put(&mut self.documents, uri, record);
        }
        for (path, other) in save.other_files {
            put(&mut self.other_files, path, other);
        }
        for (uri, trouble) in save.troubles {
            put(&mut self.troubles, uri, trouble);
        }
        for account in save.ended_accounts {
            self.ledgers.remove(&account);
            self.told.remove(&account);
        }
        for (id, row) in save.channels {
            if row.is_none() {
                self.ledgers.retain(|(channel, _), _| *channel != id);
                self.told.retain(|(channel, _), _| *channel != id);
                self.change_log.remove(&id);
            }
            put(&mut self.channels, id, row);
        }
        for (key, row) in save.ledgers {
            match row {
                Some(row) if self.channels.contains_key(&key.0) => {
                    self.ledgers.insert(key, row);
                }
                _ => {
                    self.ledgers.remove(&key);
                    self.told.remove(&key);
                }
            }
        }
        for ((channel, hub, uri), told) in save.told {
            let key = (channel, hub);
            if self.ledgers.contains_key(&key) {
                put(self.told.entry(key).or_default(), uri, told);
            }
        }
        self.hubs.extend(save.hubs);
        for (set, row) in save.change_sets {
            if row.is_none() {
                self.change_lists.remove(&set);
            }
            put(&mut self.change_sets, set, row);
        }
        for ((set, list), row) in save.change_lists {
            if self.change_sets.contains_key(&set) {
                put(self.change_lists.entry(set).or_default(), list, row);
            }
        }
        for ((id, seq), row) in save.change_log {
            if self.channels.contains_key(&id) {
                let logged = row.map(|row| row.logged);
                put(self.change_log.entry(id).or_default(), seq, logged);
            }
        }
    }
}

fn put<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: Option<V>) {
    match row {
        Some(row) => rows.insert(key, row),
        None => rows.remove(&key),
    };
}

impl Save {
    pub fn is_empty(&self) -> bool {
        self.ledgers.is_empty() && self.told.is_empty() && self.has_ledgers_only()
    }

    /// Returns true if it notes nothing but answers of hubs that nothing follows. Lost with the power, such an answer
    /// is asked for again: the notification is sent once more, as after a crash before the answer came (R22).
    pub fn only_notes_answers(&self) -> bool {
        let mut ledgers = self.ledgers.values();
        self.has_ledgers_only()
            && ledgers.all(|row| row.as_ref().is_some_and(|row| row.flight.is_none()))
    }

    /// Returns true if there is nothing besides ledgers and what was told on them.
    fn has_ledgers_only(&self) -> bool {
        self.mounts.is_empty()
            && self.documents.is_empty()
            && self.other_files.is_empty()
            && self.troubles.is_empty()
            && self.channels.is_empty()
            && self.ended_accounts.is_empty()
            && self.hubs.is_empty()
            && self.change_sets.is_empty()
            && self.change_lists.is_empty()
            && self.change_keys.is_empty()
            && self.change_log.is_empty()
            && self.inventory.is_empty()
            && self.forgotten_inventories.is_empty()
    }

    /// Forgets the resources of a set, those too that are to be written.
    pub fn forget_inventory(&mut self, set: &Uri) {
        self.inventory.retain(|(of, _), _| of != set);
        self.forgotten_inventories.insert(set.clone());
    }

    /// Adds what a later step changed.
    pub fn merge(&mut self, later: Save) {
        self.mounts.extend(later.mounts);
        append(&mut self.documents, later.documents);
        append(&mut self.other_files, later.other_files);
        self.troubles.extend(later.troubles);
        self.channels.extend(later.channels);
        let deleted = later.ledgers.iter().filter(|(_, row)| row.is_none());
        let deleted = deleted.map(|(account, _)| account.clone());
        let ended: BTreeSet<_> = later.ended_accounts.into_iter().chain(deleted).collect();
        if !ended.is_empty() {
            self.told
                .retain(|(id, hub, _), _| !ended.contains(&(*id, hub.clone())));
            self.ended_accounts.extend(ended);
        }
        self.ledgers.extend(later.ledgers);
        append(&mut self.told, later.told);
        self.hubs.extend(later.hubs);
        self.change_sets.extend(later.change_sets);
        self.change_lists.extend(later.change_lists);
        self.change_keys.extend(later.change_keys);
        self.change_log.extend(later.change_log);
        self.inventory
            .retain(|(set, _), _| !later.forgotten_inventories.contains(set));
        self.inventory.extend(later.inventory);
        self.forgotten_inventories
            .extend(later.forgotten_inventories);
    }
}

/// Adds rows to others. The first ones, of which a start has very many, are moved as they are.
pub fn append<K: Ord, V>(rows: &mut BTreeMap<K, V>, later: BTreeMap<K, V>) {
    match rows.is_empty() {
        true => *rows = later,
        false => rows.extend(later),
    }
}
