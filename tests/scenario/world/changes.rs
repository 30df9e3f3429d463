//! Change channels of the simulated world: a reader of Change Lists, the rows that are read and never loaded (keys, and
//! bodies of logged notifications), and what hubs hear of changes, in short.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::change::Change;
use resourcesync::change_list::{
    ChangeListError, EntryPlace, ListedChanges, ResourceKey, read_changes_at, read_keys,
    read_resource_entries, read_resources,
};
use resourcesync::change_payload::{ChangePayload, merge, part};
use resourcesync::uri::Uri;
use rsnotify::announce::changes::inventory::{InventoryRow, take_inventory};
use rsnotify::announce::changes::log::{LogPart, LogRange};
use rsnotify::announce::changes::round::{
    ListToRead, RoundFiles, Rounds, TakeOutcome, TakeRequest, Taken,
};
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::observation::Stat;
use rsnotify::announce::plan::Plan;
use rsnotify::announce::state::{KeyRow, ListKind, Save, State};
use rsnotify::store::{Store, StoreError, TakenRows};

use crate::world::tree::{FakeTree, absolute, path_of};

/// The hour that is left out of short times.
const HOUR: &str = "2026-11-20T10:";
const DAY: &str = "2026-11-20T";

/// The rows that a daemon reads when it needs them.
#[derive(Debug, Default)]
pub struct ChangeRows {
    keys: BTreeMap<(Uri, Uri, u32), KeyRow>,
    bodies: BTreeMap<(ChannelId, u64), Arc<[u8]>>,
    inventory: BTreeMap<(Uri, ResourceKey), InventoryRow>,
    rounds: Rounds,
}

/// Nothing was taken.
enum NotTaken {
    Stale(BTreeMap<Uri, Stat>),
    Unreadable(Uri, Stat, String),
    Failed(String),
}

impl From<StoreError> for NotTaken {
    fn from(error: StoreError) -> NotTaken {
        NotTaken::Failed(error.to_string())
    }
}

impl ChangeRows {
    /// Takes over what is saved. Deleting a set, a list or a channel deletes its rows.
    pub fn save(&mut self, save: &Save) {
        let is_deleted = |set: &Uri, list: &Uri| {
            let list = save.change_lists.get(&(set.clone(), list.clone()));
            save.change_sets.get(set) == Some(&None) || matches!(list, Some(None))
        };
        self.keys.retain(|(set, list, _), _| !is_deleted(set, list));
        for (key, row) in &save.change_keys {
            match row {
                Some(row) => self.keys.insert(key.clone(), row.clone()),
                None => self.keys.remove(key),
            };
        }
        self.inventory
            .retain(|(set, _), _| save.change_sets.get(set) != Some(&None));
        self.inventory
            .retain(|(set, _), _| !save.forgotten_inventories.contains(set));
        for (key, row) in &save.inventory {
            match row {
                Some(row) => self.inventory.insert(key.clone(), row.clone()),
                None => self.inventory.remove(key),
            };
        }
        for (key, row) in &save.change_log {
            match row {
                Some(row) => self.bodies.insert(*key, Arc::clone(&row.body)),
                None => self.bodies.remove(key),
            };
        }
    }

    /// Compares the rows with the state that goes with them.
    pub fn check(&mut self, disk: &State) {
        self.bodies
            .retain(|(id, _), _| disk.channels.contains_key(id));
        let is_logged = |(id, seq): &(ChannelId, u64)| {
            let log = disk.change_log.get(id);
            log.is_some_and(|log| log.contains_key(seq))
        };
        assert!(self.bodies.keys().all(is_logged), "bodies are of the log");
        for (set, _) in self.inventory.keys() {
            let learned = disk.change_sets[set].learned;
            assert_ne!(learned, Some(ListKind::ChangeLists), "{set}");
        }
        for (set, list, _) in self.keys.keys() {
            let lists = disk.change_lists.get(set);
            let is_known = lists.is_some_and(|lists| lists.contains_key(list));
            assert!(is_known, "keys of {list} belong to a list");
        }
    }

    /// Returns the number of keys that were taken from a list, and of those that vanished from it.
    pub fn keys_of(&self, list: &str) -> (usize, usize) {
        let list = absolute(list);
        let rows = self.keys.iter();
        let rows = rows.filter(|((_, of, _), _)| of.as_str() == list);
        rows.fold((0, 0), |(there, vanished), (_, row)| match row.vanished {
            None => (there + row.len(), vanished),
            Some(_) => (there, vanished + row.len()),
        })
    }

    /// Returns the body of a logged notification, or a part of it; it must have been saved.
    pub fn body(&self, id: ChannelId, seq: u64, wanted: LogPart) -> Arc<[u8]> {
        let body = &self.bodies[&(id, seq)];
        match wanted.range {
            LogRange::Whole { .. } => Arc::clone(body),
            LogRange::Part { start, end } => part(body, start..end).unwrap().into(),
        }
    }

    /// Returns consecutive logged notifications in one.
    pub fn merged(&self, id: ChannelId, first: u64, last: u64, most: (usize, usize)) -> Arc<[u8]> {
        let bodies: Vec<&[u8]> = (first..=last)
            .map(|seq| &*self.bodies[&(id, seq)])
            .collect();
        merge(bodies.into_iter(), most.0, most.1).unwrap().into()
    }

    /// Reads the Resource Lists of a request as they are now.
    fn take_inventory(
        &self,
        request: &TakeRequest,
        tree: &FakeTree,
        plan: &Plan,
    ) -> Result<Taken, NotTaken> {
        let texts = texts(request, tree, plan)?;
        let listed = texts.iter().map(|text| read_resources(*text).unwrap());
        let own = self.inventory.iter();
        let own = own.filter(|((set, _), _)| *set == request.set);
        let own = own.map(|((_, key), row)| Ok((*key, row.clone())));
        let rules = request.inventory.unwrap();
        take_inventory(request, rules, listed.collect(), own, |list, positions| {
            Ok(read_resource_entries(texts[list], positions).unwrap())
        })
    }

    /// Reads the lists of a request as they are now, with the keys in the state file if there is one.
    pub fn take(
        &mut self,
        request: &TakeRequest,
        tree: &FakeTree,
        plan: &Plan,
        store: Option<&Store>,
    ) -> TakeOutcome {
        let mut rounds = std::mem::take(&mut self.rounds);
        let taken = match request.inventory {
            Some(_) => self.take_inventory(request, tree, plan),
            None => texts(request, tree, plan).and_then(|texts| {
                let mut files = Files {
                    request,
                    texts,
                    keys: &self.keys,
                    rows: store.map(|store| store.key_reader().open()).transpose()?,
                };
                rounds.take(request, &mut files)
            }),
        };
        self.rounds = rounds;
        match taken {
            Ok(taken) => TakeOutcome::Taken(Box::new(taken)),
            Err(NotTaken::Stale(lists)) => TakeOutcome::Stale(lists),
            Err(NotTaken::Unreadable(list, stat, reason)) => {
                TakeOutcome::Unreadable(BTreeMap::from([(list, stat)]), reason)
            }
            Err(NotTaken::Failed(reason)) => TakeOutcome::Failed(reason),
        }
    }
}

/// Returns the lists of a request, if each is the version that was asked for and can be read.
fn texts<'a>(
    request: &TakeRequest,
    tree: &'a FakeTree,
    plan: &Plan,
) -> Result<Vec<&'a [u8]>, NotTaken> {
    let stale = request.lists.iter().filter(|list| {
        let name = list.list.as_str();
        let mount = path_of(plan, name).map(|(_, directory)| directory);
        let is_mounted = mount.is_some_and(|directory| tree.is_mounted(&directory));
        is_mounted && tree.stat(name) != Some(list.stat)
    });
    let stale: BTreeMap<Uri, Stat> = stale.map(|list| (list.list.clone(), list.stat)).collect();
    let texts = request.lists.iter().map(|list| {
        let name = list.list.as_str();
        let mount = path_of(plan, name).map(|(_, directory)| directory);
        if mount.is_none_or(|directory| !tree.is_mounted(&directory)) {
            let reason = "no such directory".to_owned();
            return Err(NotTaken::Unreadable(list.list.clone(), list.stat, reason));
        }
        if stale.contains_key(&list.list) {
            return Err(NotTaken::Stale(stale.clone()));
        }
        let text = tree.text(name);
        text.ok_or_else(|| {
            let reason = "permission denied".to_owned();
            NotTaken::Unreadable(list.list.clone(), list.stat, reason)
        })
    });
    texts.collect()
}

/// The lists of a request, and the keys of all sets.
struct Files<'a> {
    request: &'a TakeRequest,
    texts: Vec<&'a [u8]>,
    keys: &'a BTreeMap<(Uri, Uri, u32), KeyRow>,
    /// The same in the state file, if there is one.
    rows: Option<TakenRows>,
}

impl Files<'_> {
    fn text(&self, list: &ListToRead) -> &[u8] {
        let mut lists = self.request.lists.iter().zip(&self.texts);
        lists.find(|(of, _)| of.list == list.list).unwrap().1
    }
}

impl RoundFiles for Files<'_> {
    type Error = NotTaken;

    fn keys(&mut self, list: &ListToRead) -> Result<ListedChanges, NotTaken> {
        let failed = |error: ChangeListError| NotTaken::Failed(error.to_string());
        read_keys(self.text(list)).map_err(failed)
    }

    fn changes(
        &mut self,
        list: &ListToRead,
        span: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, NotTaken> {
        let changes = read_changes_at(Cursor::new(self.text(list)), span, places).unwrap();
        assert_eq!(changes.len(), places.len());
        Ok(changes)
    }

    fn taken(&mut self, list: &Uri) -> Result<BTreeMap<u32, KeyRow>, NotTaken> {
        let set = &self.request.set;
        let own = self.keys.iter();
        let own = own.filter(|((of, of_list, _), _)| (of, of_list) == (set, list));
        let own: BTreeMap<u32, KeyRow> = own
            .map(|((_, _, first), row)| (*first, row.clone()))
            .collect();
        if let Some(rows) = &self.rows {
            assert_eq!(rows.of_list(set, list)?, own, "the file has the keys");
        }
        Ok(own)
    }

    fn last_taken(&mut self, list: &Uri) -> Result<Option<(u32, KeyRow)>, NotTaken> {
        let mut rows = self.taken(list)?.into_iter();
        let last = rows.rfind(|(_, row)| row.vanished.is_none());
        if let Some(rows) = &self.rows {
            assert_eq!(rows.last_of_list(&self.request.set, list)?, last);
        }
        Ok(last)
    }

    fn each_taken(&mut self, pass: &mut dyn FnMut(Uri, u32, KeyRow)) -> Result<(), NotTaken> {
        let own = self.keys.iter();
        let own = own.filter(|((set, ..), _)| *set == self.request.set);
        let own = own.map(|((_, list, first), row)| (list.clone(), *first, row.clone()));
        if let Some(rows) = &self.rows {
            let mut stored = Vec::new();
            rows.each(&self.request.set, &mut |list, first, row| {
                stored.push((list, first, row));
            })?;
            assert!(stored.into_iter().eq(own.clone()), "the file has the keys");
        }
        own.for_each(|(list, first, row)| pass(list, first, row));
        Ok(())
    }
}

/// A change notification as a hub got it.
#[derive(Debug, Clone)]
pub struct HeardChanges {
    /// Without the site's address.
    pub topic: String,
    pub seq: u64,
    pub body: Arc<[u8]>,
    pub payload: ChangePayload,
}

impl HeardChanges {
    /// Returns the entries as `u a 05:00`.
    pub fn entries(&self) -> Vec<String> {
        self.payload.entries.iter().map(entry).collect()
    }
}

/// Writes it as `[00:00, 05:31] u a 05:00; d b 05:31`.
impl std::fmt::Display for HeardChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&summary(&self.payload))
    }
}

/// Returns a notification as `[00:00, 05:31] u a 05:00; d b 05:31`.
pub fn summary(payload: &ChangePayload) -> String {
    let entries: Vec<String> = payload.entries.iter().map(entry).collect();
    let (from, until) = (time(payload.from), time(payload.until));
    format!("[{from}, {until}] {}", entries.join("; "))
}

fn entry(change: &Change) -> String {
    let name = change.loc.rsplit('/').next().unwrap();
    let mut entry = format!("{} {name}", &change.kind.as_str()[..1]);
    if let Some(datetime) = change.datetime {
        write!(entry, " {}", short_time(&datetime.to_string())).unwrap();
    }
    entry
}

fn time(time: Timestamp) -> String {
    match time.subsec_nanosecond() {
        0 => short_time(&format!("{time:.0}")),
        _ => short_time(&format!("{time:.6}")),
    }
}

fn short_time(text: &str) -> String {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let text = text.strip_prefix(HOUR).unwrap_or(text);
    text.strip_prefix(DAY).unwrap_or(text).to_owned()
}

/// Returns a Change List of entries like `u a 05:00`: their change, the name of their resource, and their datetime, if
/// they have one. `?` stands for no change.
pub fn change_list(up: &str, entries: &[impl AsRef<str>]) -> String {
    let mut xml = format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         <rs:ln rel=\"up\" href=\"{}\"/>\n\
         <rs:md capability=\"changelist\" from=\"2026-01-01T00:00:00Z\"/>\n",
        absolute(up)
    );
    for entry in entries {
        let mut parts = entry.as_ref().split(' ');
        let change = parts.next().unwrap();
        let loc = absolute(&format!("/r/{}", parts.next().unwrap()));
        let change = match change {
            "c" => " change=\"created\"",
            "u" => " change=\"updated\"",
            "d" => " change=\"deleted\"",
            _ => "",
        };
        let datetime = parts.next().map(|time| match time.split('-').count() {
            1 => format!(" datetime=\"{HOUR}{time}Z\""),
            _ => format!(" datetime=\"{time}\""),
        });
        let datetime = datetime.unwrap_or_default();
        writeln!(xml, "<url><loc>{loc}</loc><rs:md{change}{datetime}/></url>").unwrap();
    }
    xml.push_str("</urlset>");
    xml
}
