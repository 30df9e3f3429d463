//! The threads that read Change Lists and compare them with what was taken, so that the loop never waits for them (C6).

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SendError, Sender};
use std::time::{Duration, Instant};

use resourcesync::change::Change;
use resourcesync::change_list::{EntryPlace, ListedChanges};
use resourcesync::uri::Uri;
use tracing::{error, warn};

use crate::daemon::log::error_chain;
use crate::tree::{ListFile, ListFileError, ListKeyCache, file_path};
use announce::changes::inventory::take_inventory;
use announce::changes::round::{ListToRead, RoundInputs, RoundOutcome, RoundRequest, TakenNow};
use announce::changes::selection::KeptFreshSelections;
use announce::changes::taken_keys::KeysRow;
use announce::plan::Plan;
use announce::state::Db;
use announce::state::open::read_only;
use announce::steps::rounds::KEYS;

/// A request with the files of its lists, by their URIs.
#[derive(Debug)]
pub struct RoundJob {
    pub request: RoundRequest,
    pub paths: BTreeMap<Uri, PathBuf>,
    /// The state file.
    pub keys: PathBuf,
    pub recent_keys: ListKeyCache,
}

impl RoundJob {
    /// Returns the job for a request.
    pub fn new(
        request: RoundRequest,
        plan: &Plan,
        keys: PathBuf,
        recent_keys: ListKeyCache,
    ) -> RoundJob {
        let lists = request.lists.iter();
        let paths = lists.filter_map(|it| Some((it.list.clone(), file_path(plan, &it.path)?)));
        RoundJob {
            paths: paths.collect(),
            request,
            keys,
            recent_keys,
        }
    }

    /// Opens a list of the request.
    fn open_list(&self, list: &ListToRead) -> Result<ListFile, RoundOutcome> {
        let path = self
            .paths
            .get(&list.list)
            .ok_or_else(|| stale_outcome(list))?;
        ListFile::open(path, list.stat).map_err(refusal_outcome(list))
    }
}

/// Callback for the outcome of a round, with its request and the time that it took.
type TakenCallback = dyn Fn(RoundRequest, RoundOutcome, Duration) + Send + Sync;

/// The time after which a job no longer keeps the others waiting: a file may hang, as on a dead network file system.
const PATIENCE: Duration = Duration::from_secs(30);

/// A queue of requests to the thread that reads Change Lists.
pub(super) struct ChangeReader {
    jobs: Sender<RoundJob>,
    answer: Arc<TakenCallback>,
}

impl ChangeReader {
    /// Starts the thread, which ends with this value. It hands outcomes to `answer`, with the request and the time that
    /// it took.
    pub fn start(
        answer: impl Fn(RoundRequest, RoundOutcome, Duration) + Send + Sync + 'static,
    ) -> ChangeReader {
        let answer: Arc<TakenCallback> = Arc::new(answer);
        let answer_of_thread = Arc::clone(&answer);
        let (jobs, received) = mpsc::channel::<RoundJob>();
        let rounds = KeptFreshSelections::default();
        let read = move |job: RoundJob| {
            let began = Instant::now();
            let outcome = or_failed(|| take_fresh(&job, &rounds));
            answer_of_thread(job.request, outcome, began.elapsed());
        };
        let thread = std::thread::Builder::new().name("change-lists".into());
        let started = thread
            .spawn(move || run_each(&received, PATIENCE, |job| job.request.set.to_string(), read));
        if let Err(error) = &started {
            error!(%error, "cannot start the thread that reads Change Lists: {error}");
        }
        ChangeReader { jobs, answer }
    }

    /// Passes a request to the thread. Without the thread, answers that it failed, so that the round ends.
    pub fn enqueue(&self, job: RoundJob) {
        if let Err(SendError(job)) = self.jobs.send(job) {
            let reason = "the thread that reads Change Lists does not run".to_owned();
            (self.answer)(job.request, RoundOutcome::Failed(reason), Duration::ZERO);
        }
    }
}

/// Reads each job on a thread of its own, one after the other, but waits no longer for one than `patience`. `set` names
/// the set of a job.
fn run_each<J: Send>(
    jobs: &Receiver<J>,
    patience: Duration,
    set: impl Fn(&J) -> String,
    read: impl Fn(J) + Sync,
) {
    std::thread::scope(|scope| {
        let read = &read;
        for job in jobs {
            let set = set(&job);
            let (passed, taken) = mpsc::channel();
            let (done, ended) = mpsc::channel::<()>();
            let thread = std::thread::Builder::new().name("change-list".into());
            // Without a thread, `taken` is dropped, and the job comes back.
            let _ = thread.spawn_scoped(scope, move || {
                taken.into_iter().take(1).for_each(read);
                drop(done);
            });
            if let Err(SendError(job)) = passed.send(job) {
                read(job);
            } else if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                warn!(
                    set,
                    "reading the lists of {set} takes long, those of others are read meanwhile"
                );
            }
        }
    });
}

/// Returns what `take` does, or that it failed if it panics: the round is repeated, and other sets are served.
fn or_failed(take: impl FnOnce() -> RoundOutcome) -> RoundOutcome {
    catch_unwind(AssertUnwindSafe(take)).unwrap_or_else(|_| {
        RoundOutcome::Failed("the thread that reads Change Lists panicked".to_owned())
    })
}

/// Takes what is fresh.
pub fn take_fresh(job: &RoundJob, rounds: &KeptFreshSelections) -> RoundOutcome {
    match try_take_fresh(job, rounds) {
        Ok(taken) => RoundOutcome::Taken(Arc::new(taken)),
        // One was found to be another version now: all that are, are named.
        Err(RoundOutcome::Stale(found)) => {
            let is_stale = |list: &&ListToRead| {
                let is_found = found.contains_key(&list.list);
                is_found || matches!(job.open_list(list), Err(RoundOutcome::Stale(_)))
            };
            let stale = job.request.lists.iter().filter(is_stale);
            RoundOutcome::Stale(stale.map(|list| (list.list.clone(), list.stat)).collect())
        }
        Err(outcome) => outcome,
    }
}

/// Returns the outcome of a round in which this list is another version now.
fn stale_outcome(list: &ListToRead) -> RoundOutcome {
    RoundOutcome::Stale(BTreeMap::from([(list.list.clone(), list.stat)]))
}

/// Returns a function that says why a list was refused.
fn refusal_outcome(list: &ListToRead) -> impl Fn(ListFileError) -> RoundOutcome + Copy {
    |error| match error {
        ListFileError::Stale => stale_outcome(list),
        error => {
            let reason = format!("{}: {}", list.list, error_chain(&error));
            RoundOutcome::Unreadable(BTreeMap::from([(list.list.clone(), list.stat)]), reason)
        }
    }
}

/// The files of a job.
struct JobInputs<'a> {
    job: &'a RoundJob,
    rows: Db<'a>,
}

impl RoundInputs for JobInputs<'_> {
    type Error = RoundOutcome;

    fn read_keys(&mut self, list: &ListToRead) -> Result<ListedChanges, RoundOutcome> {
        let keys = self.job.open_list(list)?.take_keys(&self.job.recent_keys);
        keys.map_err(refusal_outcome(list))
    }

    fn read_changes(
        &mut self,
        list: &ListToRead,
        span: &Range<u64>,
        places: &[EntryPlace],
    ) -> Result<Vec<Change>, RoundOutcome> {
        let changes = self.job.open_list(list)?.read_at(span, places);
        changes.map_err(refusal_outcome(list))
    }

    fn taken_rows(&mut self, list: &Uri) -> Result<BTreeMap<u32, KeysRow>, RoundOutcome> {
        Ok(self.rows.all(KEYS, (&self.job.request.set, list))?)
    }

    fn last_taken_row(&mut self, list: &Uri) -> Result<Option<(u32, KeysRow)>, RoundOutcome> {
        Ok(self.rows.last_key_row(&self.job.request.set, list)?)
    }

    fn each_taken(&mut self, pass: &mut dyn FnMut(Uri, u32, KeysRow)) -> Result<(), RoundOutcome> {
        Ok(self.rows.each_key_row(&self.job.request.set, pass)?)
    }
}

fn try_take_fresh(job: &RoundJob, rounds: &KeptFreshSelections) -> Result<TakenNow, RoundOutcome> {
    let connection = read_only(&job.keys)?;
    let rows = Db(&connection);
    let Some(rules) = job.request.inventory else {
        return rounds.take_fresh(&job.request, &mut JobInputs { job, rows });
    };
    let lists = &job.request.lists;
    // One that is not the version that was seen is found before gigabytes of others are read.
    let files: Result<Vec<_>, _> = lists.iter().map(|list| job.open_list(list)).collect();
    let mut files = files?;
    let mut listed = Vec::new();
    for (list, file) in lists.iter().zip(&mut files) {
        listed.push(file.resources().map_err(refusal_outcome(list))?);
    }
    rows.read_inventory(&job.request.set, |stored| {
        take_inventory(&job.request, rules, listed, stored, |list, positions| {
            let entries = files[list].resource_entries(positions);
            entries.map_err(refusal_outcome(&lists[list]))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{or_failed, run_each};
    use announce::changes::round::{RoundOutcome, TakenNow};

    #[test]
    fn a_panic_fails_the_round_and_no_other() {
        let outcome = or_failed(|| panic!("of a test"));
        assert!(matches!(outcome, RoundOutcome::Failed(reason) if reason.contains("panicked")));
        let taken = RoundOutcome::Taken(TakenNow::default().into());
        assert_eq!(or_failed(|| taken.clone()), taken);
    }

    #[test]
    fn a_list_that_hangs_holds_up_no_other() {
        let (jobs, received) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let (released, deadline) = (std::sync::Mutex::new(released), Duration::from_secs(60));
        let reader = std::thread::spawn(move || {
            let read = |job: &'static str| {
                if job == "hangs" {
                    let released = released.lock().unwrap();
                    released.recv_timeout(deadline).unwrap();
                }
                answer.send(job).unwrap();
            };
            let patience = Duration::from_millis(10);
            run_each(&received, patience, |job| (*job).to_owned(), read);
        });
        for job in ["hangs", "first", "second"] {
            jobs.send(job).unwrap();
        }
        drop(jobs);
        // On a busy machine the first may also outlast the patience.
        let others = BTreeSet::from([(); 2].map(|()| answers.recv_timeout(deadline).unwrap()));
        assert_eq!(others, BTreeSet::from(["first", "second"]));
        release.send(()).unwrap();
        assert_eq!(answers.recv_timeout(deadline), Ok("hangs"));
        reader.join().unwrap();
    }
}
