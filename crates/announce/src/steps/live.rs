//! The part of the state that grows with the configuration or with what is open now: kept in memory, copied for each step
//! and taken over once the step is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::document::{Document, NotADocument};
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::{Hub, Uri};
use serde_json::json;

use crate::candidates::CandidateGlobs;
use crate::delivery::HubQueue;
use crate::finding::Finding;
use crate::observation::{DocumentPath, FileId, MountId, Stat, UnreadableDirectory, WhyAbsent};
use crate::plan::{MountPlan, Plan, PublishMode, SourcePlan};
use crate::state::{Db, DocId, HubId, Result};
use crate::steps::documents::KnownCandidate;
use crate::steps::findings::FindingLogLimit;
use crate::steps::mounts::NestedFileSystems;
use crate::steps::owed::Version;

#[derive(Debug, Clone, Default)]
pub struct LiveState {
    /// True if no document was there when this plan came into effect: until a source settles, all of its documents are touched.
    pub is_new: bool,
    /// The hash of the plan.
    pub plan_hash: Arc<str>,
    /// In the order of the plan.
    pub sources: Vec<LiveSource>,
    /// Those that are configured, brokers among them.
    pub hubs: BTreeMap<HubId, LiveHub>,
    /// The number of the last round of any set.
    pub last_round: u64,
    /// True if no daemon runs: the next one tries whatever waits at once.
    pub is_at_rest: bool,
    /// True if each document that a list names, and of which there is no file, is a finding of its own.
    pub find_each: bool,
}

#[derive(Debug, Clone)]
pub struct LiveHub {
    pub hub: Hub,
    pub mode: PublishMode,
    /// Shared with the state before the step until the step changes it.
    pub queue: Arc<HubQueue>,
    /// True if it was not configured before this start, and replaces no other.
    pub is_added: bool,
    /// True if it goes on for one that is no longer configured.
    pub is_inherited: bool,
}

#[derive(Debug, Clone, Default)]
pub struct LiveSource {
    /// The number of its row.
    pub id: i64,
    /// Shared with the state before the step until the step changes one.
    pub mounts: BTreeMap<MountId, Arc<LiveMount>>,
    /// True while so much is missing that no deletion is believed.
    pub is_mass: bool,
    /// Documents that are missing with a file system that is not mounted, and its directories.
    pub away_count: usize,
    pub away: BTreeSet<String>,
    /// True once it has settled in this run.
    pub has_settled: bool,
    /// True if the channels of its sets were settled under the same plan before.
    pub was_routed: bool,
    /// Source Descriptions that changed within the window, with what was told before (R10).
    pub descriptions: BTreeMap<DocId, (Option<Version>, Timestamp)>,
    /// Capability Lists that the configuration names (R7).
    pub configured: Arc<BTreeSet<DocId>>,
    /// The kinds of findings that the operator was told of lately.
    pub told: BTreeMap<&'static str, FindingLogLimit>,
    /// The wrong `url`s of mounts that it was told of.
    pub wrong_urls: BTreeSet<Finding>,
    /// The first file that was read in this run and is no document, and why.
    pub other_file: Option<(DocumentPath, NotADocument)>,
}

impl LiveSource {
    /// Returns true if every present mount was swept to its end in this run.
    pub fn is_swept(&self) -> bool {
        let mut mounts = self.mounts.values();
        mounts.all(|it| matches!(it.state, MountPhase::Ready | MountPhase::Absent))
    }

    /// Returns true if every mount is there, was swept in this run, and has no directory that cannot be read.
    pub fn is_whole(&self) -> bool {
        let mut mounts = self.mounts.values();
        mounts.all(|it| it.state == MountPhase::Ready && it.unreadable.0.is_empty())
    }

    /// Returns why the first file that is no document is none, if it was read in this run.
    pub fn non_document_reason(&self, path: &DocumentPath) -> Option<WhyAbsent> {
        let (first, reason) = self.other_file.as_ref()?;
        (first == path).then(|| WhyAbsent::Other(reason.clone()))
    }

    pub fn is_absent(&self, id: MountId) -> bool {
        let mount = self.mounts.get(&id);
        mount.is_none_or(|mount| mount.state == MountPhase::Absent)
    }

    /// Returns true if a path was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_never_looked_at(&self, path: &DocumentPath) -> bool {
        self.mounts.get(&path.mount).is_some_and(|mount| {
            let is_new = |swept: &SweepReach| {
                let uri = Uri::below(&mount.plan.prefix, &path.below);
                let is_below = |uris: &[Uri]| uris.iter().any(|it| uri.is_below(it));
                let is_candidate =
                    || (swept.candidates).accepts(&mount.plan.url_path(), &path.below);
                is_below(&swept.unread)
                    || !swept.are_configured && (is_below(&swept.inside) || !is_candidate())
            };
            !mount.baseline.is_complete || mount.baseline.candidates.as_ref().is_some_and(is_new)
        })
    }

    /// Returns true if the deletions of some documents are suspended.
    pub fn is_suspended(&self) -> bool {
        self.is_mass || self.away_count > 0
    }

    /// Returns true if a path lies where another file system was when documents were last seen there (R15).
    pub fn is_nested_away(&self, path: &DocumentPath) -> bool {
        let mount = self.mounts.get(&path.mount);
        mount.is_some_and(|mount| mount.nested.is_away(&path.below))
    }

    /// Notes whether a document was found in a mount whose root is in doubt. Returns false if it is not.
    pub fn record_doubtful_look(&mut self, id: MountId, uri: &Uri, is_found: bool) -> bool {
        let mount = self.mounts.get_mut(&id);
        let doubtful = mount.filter(|mount| mount.doubt.is_some());
        let doubt = doubtful.and_then(|it| Arc::make_mut(it).doubt.as_mut());
        doubt.is_some_and(|(_, unfound)| {
            if is_found {
                unfound.remove(uri);
            } else {
                unfound.insert(uri.clone());
            }
            true
        })
    }

    pub fn note_had_document(&mut self, db: Db<'_>, id: MountId) -> Result<()> {
        let mount = self.mounts.get_mut(&id);
        mount.filter(|it| !it.held_document).map_or(Ok(()), |it| {
            let mount = Arc::make_mut(it);
            mount.held_document = true;
            mount.save(db)
        })
    }
}

impl LiveState {
    /// Returns what is kept in memory under a plan, as the state leaves it.
    pub fn load(db: Db<'_>, plan: &Plan, wall: Timestamp) -> Result<LiveState> {
        let text = format!("{} {plan:?}", env!("CARGO_PKG_VERSION"));
        let plan_hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        let mut live = LiveState::default();
        for source in &plan.sources {
            let sql = "SELECT id, coalesce(routed = ?2, FALSE) FROM source WHERE name = ?1";
            let (id, was_routed) = db.value::<(i64, bool)>(sql, (&source.name, &plan_hash))?;
            let mut configured = BTreeSet::new();
            for set in plan.configured_sets(source) {
                configured.extend(db.id_of(set)?);
            }
            live.sources.push(LiveSource {
                id,
                was_routed,
                mounts: load_mounts(db, source, id, wall)?,
                configured: configured.into(),
                ..LiveSource::default()
            });
        }
        for (hub, mode) in plan.hubs_and_brokers() {
            if let Some(id) = db.first("SELECT id FROM hub WHERE uri = ?1", hub)? {
                let live_hub = LiveHub {
                    hub: hub.clone(),
                    mode,
                    queue: Default::default(),
                    is_added: false,
                    is_inherited: false,
                };
                live.hubs.insert(id, live_hub);
            }
        }
        live.plan_hash = plan_hash.into();
        live.is_new = !db.exists("SELECT 1 FROM census WHERE count > 0", ())?;
        Ok(live)
    }

    /// Returns the position in the plan of the source with this row.
    pub fn source_position(&self, source: i64) -> Option<usize> {
        self.sources.iter().position(|live| live.id == source)
    }

    /// Returns the queue of a hub that is configured.
    pub fn queue_mut(&mut self, hub: HubId) -> Option<&mut HubQueue> {
        let live = self.hubs.get_mut(&hub)?;
        Some(Arc::make_mut(&mut live.queue))
    }

    /// Returns a mount, with the position of its source.
    pub fn mount_mut(&mut self, id: MountId) -> Option<(usize, &mut LiveMount)> {
        let mut sources = self.sources.iter_mut().enumerate();
        let found = sources.find_map(|(at, source)| Some((at, source.mounts.get_mut(&id)?)));
        found.map(|(position, mount)| (position, Arc::make_mut(mount)))
    }

    pub fn hub_named(&self, hub: &Hub) -> Option<HubId> {
        let mut hubs = self.hubs.iter();
        hubs.find(|(_, live)| live.hub == *hub).map(|(id, _)| *id)
    }
}

/// A mount, with what this run knows of it.
///
/// Once its root held documents, another directory in its place is taken for the mount only if it holds something.
#[derive(Debug, Clone)]
pub struct LiveMount {
    pub plan: MountPlan,
    /// The number of its source's row.
    pub source: i64,
    /// The root that held documents, once one did; until then the last one that was found.
    pub identity: Option<FileId>,
    pub held_document: bool,
    pub state: MountPhase,
    /// Another directory that is there than the one that held documents, with the documents that were not found below it.
    pub doubt: Option<(FileId, BTreeSet<Uri>)>,
    /// The reason why the mount is absent.
    pub reason: Option<String>,
    pub baseline: MountSweeps,
    pub nested: NestedFileSystems,
    /// The first directories that may not be read, and how many more.
    pub unreadable: (Vec<UnreadableDirectory>, usize),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MountPhase {
    /// Neither found nor lost since the start.
    #[default]
    Unknown,
    Sweeping,
    Ready,
    /// It is not there, could not be swept to the end, or is an empty directory where another one held documents.
    Absent,
}

impl LiveMount {
    /// Returns the path of something below its root in the file system, as text.
    pub fn text_of(&self, below: &[u8]) -> String {
        let path = self.plan.directory.join(OsStr::from_bytes(below));
        path.to_string_lossy().into_owned()
    }

    pub fn save(&self, db: Db<'_>) -> Result<()> {
        let swept = self.baseline.candidates.as_ref();
        let include = swept.map(|swept| json!(swept.candidates.include).to_string());
        let exclude = swept.map(|swept| json!(swept.candidates.exclude).to_string());
        let unseen = swept.map(|swept| json!((&swept.inside, &swept.unread)).to_string());
        db.run(
            "INSERT INTO mount VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO UPDATE SET \
             source = excluded.source, directory = excluded.directory, prefix = excluded.prefix, device = excluded.device, \
             inode = excluded.inode, baselined = excluded.baselined, held_document = excluded.held_document, \
             swept = excluded.swept, include = excluded.include, exclude = excluded.exclude, unseen = excluded.unseen",
            (
                (self.plan.id, self.source, self.plan.directory.as_os_str().as_bytes(), &self.plan.prefix),
                self.identity.map(|identity| (identity.device, identity.inode)),
                (self.baseline.is_complete, self.held_document, self.baseline.swept),
                (include, exclude, unseen),
            ),
        )?;
        let id = self.plan.id;
        db.run("DELETE FROM nested_file_system WHERE mount = ?1", id)?;
        for (below, row) in &self.nested.rows {
            let sql = "INSERT INTO nested_file_system VALUES (?1, ?2, ?3, ?4, ?5)";
            db.run(sql, (id, below, row.device, row.is_link, row.is_away))?;
        }
        Ok(())
    }
}

/// Takes up what is stored of a source's mounts.
fn load_mounts(
    db: Db<'_>,
    source: &SourcePlan,
    source_id: i64,
    wall: Timestamp,
) -> Result<BTreeMap<MountId, Arc<LiveMount>>> {
    let mut mounts = BTreeMap::new();
    for plan in &source.mounts {
        let sql = "SELECT device, inode, baselined, held_document, swept, include, exclude, unseen FROM mount WHERE id = ?1";
        let (identity, (baselined, held_document, swept), globs, unseen) =
            db.value::<(Option<(u64, u64)>, (bool, bool, Option<_>), _, _)>(sql, plan.id)?;
        let identity = identity.map(|(device, inode)| FileId { device, inode });
        let configured = (&source.candidates, &source.prefixes_inside(plan));
        let candidates = parse_sweep_scope(globs, unseen, configured);
        let sql = "SELECT below, device, is_link, is_away FROM nested_file_system WHERE mount = ?1";
        let nested = db.all(sql, plan.id)?;
        let mount = LiveMount {
            plan: plan.clone(),
            source: source_id,
            identity,
            held_document,
            state: MountPhase::Unknown,
            doubt: None,
            reason: None,
            baseline: MountSweeps {
                is_complete: baselined,
                swept,
                candidates,
                started: wall,
                ..MountSweeps::default()
            },
            nested: NestedFileSystems {
                rows: nested,
                are_noted: baselined,
                ..NestedFileSystems::default()
            },
            unreadable: Default::default(),
        };
        mounts.insert(plan.id, Arc::new(mount));
    }
    Ok(mounts)
}

/// Reads the candidates of a sweep, and where it saw nothing.
fn parse_sweep_scope(
    globs: Option<(String, String)>,
    unseen: Option<String>,
    configured: (&CandidateGlobs, &Vec<Uri>),
) -> Option<SweepReach> {
    let (include, exclude) = globs?;
    let include = serde_json::from_str(&include).ok()?;
    let exclude = serde_json::from_str(&exclude).ok()?;
    let candidates = CandidateGlobs::new(include, exclude).ok()?;
    let (inside, unread) = serde_json::from_str(&unseen?).ok()?;
    Some(SweepReach {
        are_configured: (&candidates, &inside) == configured,
        candidates,
        inside,
        unread,
    })
}

/// Complete sweeps of one mount, and the documents that were read first in the one under way.
#[derive(Debug, Clone, Default)]
pub struct MountSweeps {
    pub is_complete: bool,
    /// The start of the last complete sweep.
    pub swept: Option<Timestamp>,
    /// The candidates of that sweep, if they were stored. What is added to them later was there before, as far as anybody
    /// knows (R13).
    pub candidates: Option<SweepReach>,
    /// A time before the sweep under way, or the next one, begins. By the file system's clock if the mount was just
    /// found.
    pub started: Timestamp,
    /// Documents that changed since `started` by the clock of the files; nothing after the sweep of a root that was found.
    pub fresh: Option<Vec<(Uri, Fingerprint)>>,
    /// True if some file is from the future, so that the clock of the files is not ours.
    pub has_other_clock: bool,
}

/// The part of a mount that its last complete sweep looked at.
#[derive(Debug, Clone)]
pub struct SweepReach {
    pub candidates: CandidateGlobs,
    /// The prefixes of others inside, below which it saw nothing.
    pub inside: Vec<Uri>,
    /// False if the configuration has other candidates, or prefixes inside. Until the mount was swept, what else there is
    /// counts as known.
    pub are_configured: bool,
    /// The directories that could not be read so far.
    pub unread: Vec<Uri>,
}

impl MountSweeps {
    /// Returns true if the last complete sweep had the candidates that are configured.
    pub fn is_swept_as_configured(&self) -> bool {
        let swept = self.candidates.as_ref();
        self.is_complete && swept.is_some_and(|swept| swept.are_configured)
    }

    /// Takes a document that is read for the first time. Returns whether its content counts as told (R13): not if it changed
    /// while the mount was swept.
    pub fn counts_as_told(&mut self, known: &KnownCandidate, found: &Document, stat: Stat) -> bool {
        let (changed, at) = (stat.changed, known.at);
        // A file from the future was stamped by another clock than ours, which says nothing about the sweep.
        let is_fresh = self.started <= changed && changed <= at;
        self.has_other_clock |= changed > at;
        let Some(fresh) = self.fresh.as_mut().filter(|_| is_fresh) else {
            return true;
        };
        fresh.push((known.uri.clone(), found.fingerprint));
        false
    }

    /// Ends a complete sweep, with the directories that could not be read. What lies below one that never could, under
    /// this configuration, belongs to the baseline once it can (R13). Returns the documents whose first version counts
    /// as told after all: where the file system's clock is not ours, nothing tells that a file changed while its mount
    /// was swept.
    pub fn end_sweep(&mut self, mut swept: SweepReach, at: Timestamp) -> Vec<(Uri, Fingerprint)> {
        let before = self.candidates.take();
        if let Some(before) = before.filter(|it| self.is_complete && it.are_configured) {
            let was_unread = |uri: &Uri| before.unread.iter().any(|it| uri.is_below(it));
            swept.unread.retain(was_unread);
        }
        self.candidates = Some(swept);
        // No later sweep begins earlier, and not every one says when.
        self.swept = Some(std::mem::replace(&mut self.started, at));
        self.is_complete = true;
        let has_other_clock = std::mem::take(&mut self.has_other_clock);
        let fresh = self.fresh.take().filter(|_| has_other_clock);
        fresh.unwrap_or_default()
    }
}
