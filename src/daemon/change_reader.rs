//! The thread that reads Change Lists and compares them with what was taken, so that the loop never waits for it (C6).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use tracing::error;

use crate::announce::changes::inventory::{DeletionRules, take_inventory};
use crate::announce::changes::round::{self, TakeOutcome, TakeRequest, Taken, TakenRound};
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::plan::Plan;
use crate::daemon::log::error_chain;
use crate::resourcesync::change_list::ListedChanges;
use crate::store::{KeyReader, StoreError};
use crate::tree::change_list::{ChangeListFile, ChangeListFileError};

/// Entries of all lists together whose keys are kept at most; each takes 40 bytes.
const MOST_KEPT: usize = 1 << 20;

/// A request with the files of its lists, in order.
#[derive(Debug)]
pub struct ReadJob {
    pub request: TakeRequest,
    pub paths: Vec<PathBuf>,
    pub keys: KeyReader,
}

impl ReadJob {
    /// Returns the job for a request.
    pub fn new(request: TakeRequest, plan: &Plan, keys: KeyReader) -> ReadJob {
        let lists = request.lists.iter();
        let paths = lists.filter_map(|list| file(plan, &list.path));
        ReadJob {
            paths: paths.collect(),
            request,
            keys,
        }
    }
}

/// Returns where a document lies in the file system.
pub fn file(plan: &Plan, path: &DocumentPath) -> Option<PathBuf> {
    let (_, source) = plan.source_of(path.mount)?;
    let mount = source.mounts.iter().find(|mount| mount.id == path.mount)?;
    Some(mount.directory.join(OsStr::from_bytes(&path.below)))
}

/// Hands requests to the thread.
#[derive(Debug)]
pub struct ChangeReader {
    jobs: Option<Sender<ReadJob>>,
}

impl ChangeReader {
    /// Starts the thread, which ends with this value. It hands its answers to `answer`, with the request and the time that
    /// it took.
    pub fn start(
        answer: impl Fn(TakenRound, TakeRequest, Duration) + Send + 'static,
    ) -> ChangeReader {
        let (jobs, received) = mpsc::channel::<ReadJob>();
        let thread = std::thread::Builder::new().name("change-lists".into());
        let started = thread.spawn(move || {
            let mut kept = KeptLists::default();
            for job in received {
                let began = Instant::now();
                let round = TakenRound {
                    set: job.request.set.clone(),
                    round: job.request.round,
                    outcome: take(&job, &mut kept),
                };
                answer(round, job.request, began.elapsed());
            }
        });
        if let Err(error) = &started {
            error!(%error, "cannot start the thread that reads Change Lists: {error}");
        }
        ChangeReader {
            jobs: started.is_ok().then_some(jobs),
        }
    }

    pub fn read(&self, job: ReadJob) {
        if let Some(jobs) = &self.jobs {
            // The thread ends after this value only.
            let _ = jobs.send(job);
        }
    }
}

/// The keys of the lists of a round that left entries for the next one, which need not be read again.
#[derive(Debug, Default)]
pub struct KeptLists {
    lists: HashMap<PathBuf, (Stat, ListedChanges)>,
}

impl KeptLists {
    /// Removes and returns the keys of a version of a list.
    fn take(&mut self, path: &Path, stat: Stat) -> Option<ListedChanges> {
        let (of, _) = self.lists.get(path)?;
        (*of == stat).then_some(())?;
        self.lists.remove(path).map(|(_, listed)| listed)
    }

    /// Keeps as many lists as there is room for, and no others.
    fn keep(&mut self, lists: impl Iterator<Item = (PathBuf, Stat, ListedChanges)>) {
        self.lists.clear();
        let mut room = MOST_KEPT;
        for (path, stat, listed) in lists {
            if let Some(left) = room.checked_sub(listed.entries.len()) {
                room = left;
                self.lists.insert(path, (stat, listed));
            }
        }
    }
}

/// Takes what is fresh.
pub fn take(job: &ReadJob, kept: &mut KeptLists) -> TakeOutcome {
    match try_take(job, kept) {
        Ok(taken) => TakeOutcome::Taken(Box::new(taken)),
        Err(Refused::Stale) => TakeOutcome::Stale,
        Err(Refused::Failed(reason)) => TakeOutcome::Failed(reason),
    }
}

enum Refused {
    Stale,
    Failed(String),
}

impl From<ChangeListFileError> for Refused {
    fn from(error: ChangeListFileError) -> Refused {
        match error {
            ChangeListFileError::Stale => Refused::Stale,
            error => Refused::Failed(error_chain(&error)),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        Refused::Failed(error_chain(&error))
    }
}

fn try_take(job: &ReadJob, kept: &mut KeptLists) -> Result<Taken, Refused> {
    if let Some(rules) = job.request.inventory {
        return try_take_inventory(job, rules);
    }
    let mut files = Vec::new();
    let mut listed = Vec::new();
    for (list, path) in job.request.lists.iter().zip(&job.paths) {
        let mut file = ChangeListFile::open(path, list.stat)?;
        listed.push(match kept.take(path, list.stat) {
            Some(listed) => listed,
            None => file.keys()?,
        });
        files.push(file);
    }
    let taken = job.keys.read(&job.request.set, |stored| {
        round::take(&job.request, &listed, stored, |list, indices| {
            Ok::<_, Refused>(files[list].changes(&listed[list], indices)?)
        })
    })?;
    let lists = job.request.lists.iter().zip(&job.paths).zip(listed);
    let lists = lists.filter(|_| taken.has_more);
    kept.keep(lists.map(|((list, path), listed)| (path.clone(), list.stat, listed)));
    Ok(taken)
}

fn try_take_inventory(job: &ReadJob, rules: DeletionRules) -> Result<Taken, Refused> {
    let mut files = Vec::new();
    let mut listed = Vec::new();
    for (list, path) in job.request.lists.iter().zip(&job.paths) {
        let mut file = ChangeListFile::open(path, list.stat)?;
        listed.push(file.resources()?);
        files.push(file);
    }
    job.keys.read_inventory(&job.request.set, |stored| {
        take_inventory(&job.request, rules, listed, stored, |list, positions| {
            Ok(files[list].resource_entries(positions)?)
        })
    })
}
