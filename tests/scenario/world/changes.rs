//! Change channels of the simulated world: a reader of Change Lists, and what hubs hear of changes, in short.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Cursor;
use std::ops::Range;
use std::sync::Arc;

use announce::changes::inventory::take_inventory;
use announce::changes::round::{ListToRead, RoundInputs, RoundOutcome, RoundRequest, TakenNow};
use announce::changes::selection::KeptFreshSelections;
use announce::changes::taken_keys::KeysRow;
use announce::observation::Stat;
use announce::plan::Plan;
use announce::state::{Db, StatementError};
use announce::steps::rounds::KEYS;
use jiff::Timestamp;
use resourcesync::change::Change;
use resourcesync::change_list::{
    ChangeListError, EntryPlace, ListedChanges, read_changes_at, read_keys,
};
use resourcesync::change_payload::ChangePayload;
use resourcesync::resource_list::{read_resource_entries, read_resources};
use resourcesync::uri::Uri;

use crate::world::tree::{FakeTree, absolute, path_of};

/// The hour that is left out of short times.
const HOUR: &str = "2026-11-20T10:";
const DAY: &str = "2026-11-20T";

/// Nothing was taken.
enum NotTaken {
    Stale(BTreeMap<Uri, Stat>),
    Unreadable(Uri, Stat, String),
    Failed(String),
}

impl From<StatementError> for NotTaken {
    fn from(error: StatementError) -> NotTaken {
        NotTaken::Failed(error.to_string())
    }
}

/// Reads the lists of a request as they are now, with what the database says was taken.
pub fn take(
    rounds: &mut KeptFreshSelections,
    request: &RoundRequest,
    tree: &FakeTree,
    plan: &Plan,
    db: Db<'_>,
) -> RoundOutcome {
    let taken = texts(request, tree, plan).and_then(|texts| match request.inventory {
        Some(_) => inventory(request, &texts, db),
        None => {
            let mut files = Files {
                request,
                texts,
                rows: db,
            };
            rounds.take_fresh(request, &mut files)
        }
    });
    match taken {
        Ok(taken) => RoundOutcome::Taken(taken.into()),
        Err(NotTaken::Stale(lists)) => RoundOutcome::Stale(lists),
        Err(NotTaken::Unreadable(list, stat, reason)) => {
            RoundOutcome::Unreadable(BTreeMap::from([(list, stat)]), reason)
        }
        Err(NotTaken::Failed(reason)) => RoundOutcome::Failed(reason),
    }
}

/// Compares Resource Lists with those before.
fn inventory(request: &RoundRequest, texts: &[&[u8]], rows: Db<'_>) -> Result<TakenNow, NotTaken> {
    let listed = texts.iter().map(|text| read_resources(*text).unwrap());
    let listed = listed.collect();
    let rules = request.inventory.unwrap();
    rows.read_inventory(&request.set, |stored| {
        take_inventory(request, rules, listed, stored, |list, positions| {
            Ok(read_resource_entries(texts[list], positions).unwrap())
        })
    })
}

/// Returns the lists of a request, if each is the version that was asked for and can be read.
fn texts<'a>(
    request: &RoundRequest,
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
        tree.text(name).ok_or_else(|| {
            let reason = "permission denied".to_owned();
            NotTaken::Unreadable(list.list.clone(), list.stat, reason)
        })
    });
    texts.collect()
}

/// The lists of a request, and what was taken of all sets.
struct Files<'a> {
    request: &'a RoundRequest,
    texts: Vec<&'a [u8]>,
    rows: Db<'a>,
}

impl Files<'_> {
    fn text(&self, list: &ListToRead) -> &[u8] {
        let mut lists = self.request.lists.iter().zip(&self.texts);
        lists.find(|(of, _)| of.list == list.list).unwrap().1
    }
}

impl RoundInputs for Files<'_> {
    type Error = NotTaken;

    fn read_keys(&mut self, list: &ListToRead) -> Result<ListedChanges, NotTaken> {
        let failed = |error: ChangeListError| NotTaken::Failed(error.to_string());
        read_keys(self.text(list)).map_err(failed)
    }

    fn read_changes(
        &mut self,
        list: &ListToRead,
        span: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, NotTaken> {
        let changes = read_changes_at(Cursor::new(self.text(list)), span, places).unwrap();
        assert_eq!(changes.len(), places.len());
        Ok(changes)
    }

    fn taken_rows(&mut self, list: &Uri) -> Result<BTreeMap<u32, KeysRow>, NotTaken> {
        Ok(self.rows.all(KEYS, (&self.request.set, list))?)
    }

    fn last_taken_row(&mut self, list: &Uri) -> Result<Option<(u32, KeysRow)>, NotTaken> {
        Ok(self.rows.last_key_row(&self.request.set, list)?)
    }

    fn each_taken(&mut self, pass: &mut dyn FnMut(Uri, u32, KeysRow)) -> Result<(), NotTaken> {
        Ok(self.rows.each_key_row(&self.request.set, pass)?)
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
