//! The only loop: it takes what happened, steps the engine, saves, and only then sends.
//!
//! One turn takes everything that is at hand, so that a burst costs one commit. If the state cannot be
//! saved, nothing is sent: what was to be done waits, and saving is tried again.

pub mod commands;
mod effects;
mod health;
pub mod reload;
mod shutdown;
mod unsaved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{error, warn};

use crate::admin::Readiness;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event, Now};
use crate::announce::ids::SubmissionId;
use crate::announce::observation::MountId;
use crate::control::{self, Request};
use crate::daemon::event_loop::commands::CommandReply;
use crate::daemon::event_loop::unsaved::Unsaved;
use crate::daemon::failpoints::{Failpoint, Failpoints};
use crate::daemon::log;
use crate::daemon::service_manager::ServiceManager;
use crate::hub::HubRecord;
use crate::report::figures::Counts;
use crate::report::status::{ConfigurationStatus, Detail, RefusedConfiguration, Status};
use crate::resourcesync::uri::Topic;
use crate::store::Store;
use crate::tree::{Tree, TreeReport};
use crate::websub::hub::EmbeddedHub;
use crate::websub::publish::Publisher;
use crate::websub::topics::Topics;

/// What the loop is told.
pub enum Input {
    Event(Event),
    /// With the watching that it came from: an earlier one means nothing any more.
    Tree(Watching, TreeReport),
    /// The embedded hub wants something remembered, all of it or nothing.
    HubRecords(Vec<HubRecord>),
    /// Somebody wants to know how things stand.
    Ask(Detail, oneshot::Sender<Status>),
    /// A command wants something done.
    Command(Request, oneshot::Sender<control::Answer>),
    /// The embedded hub has done what a command wants; what it wants remembered came before this.
    CommandDone(CommandReply),
    /// The embedded hub has ended what it had begun.
    HubDrained,
    Reload,
    Stop,
}

/// Why the loop ended.
pub enum Ended {
    /// Another configuration may be there.
    Reload,
    /// It was told to stop. What others have begun may take until then.
    Stopped { by: Instant },
}

/// Counts how often the trees began to be watched.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Watching(u64);

/// At most so many inputs are taken into one turn.
const TURN: usize = 4_096;
/// The store is asked at least so often whether it can be written, so that it is known before it matters.
const PROBE: Duration = Duration::from_secs(60);

/// The store is looked at so often, for a state file that was deleted or cut.
const LOOK: Duration = Duration::from_secs(5);

/// The engine and all that acts for it.
pub struct EventLoop {
    engine: Engine,
    store: Store,
    topics: Topics,
    publisher: Arc<Publisher>,
    hub: Option<EmbeddedHub>,
    /// Whether it takes subscriptions. One that does not ends what it has begun.
    is_hub_open: bool,
    trees: Vec<Tree>,
    watching: Watching,
    /// The last one that was tried.
    last_watching: Watching,
    inputs: Sender<Input>,
    runtime: Handle,
    /// Where submissions go on.
    submitting: Handle,
    readiness: Readiness,
    failpoints: Failpoints,
    service_manager: ServiceManager,
    /// What each mount's sweep has met, until all are swept.
    sweeps: BTreeMap<MountId, u64>,
    unsaved: Unsaved,
    /// Why the state could not be saved.
    trouble: Option<String>,
    /// When the store is asked whether it can save, or to save what it could not.
    ask_at: Instant,
    /// When the state file is looked at, whether it is still there.
    look_at: Instant,
    /// What commands asked in this turn.
    orders: Vec<CommandReply>,
    /// The embedded hub's acceptances, for the next turn.
    accepted: Vec<Event>,
    /// Submissions whose answer is to come.
    under_way: BTreeSet<SubmissionId>,
    /// When the daemon began or its plan changed, by the clock of `ctime`, until each present mount was swept since.
    began: Option<Timestamp>,
    /// Whether each present mount was swept under the plan before, which has the same ones.
    was_settled: bool,
    /// Topics that are served since another plan was in force, and that this one may not have.
    unclaimed: BTreeSet<Topic>,
    configuration: ConfigurationStatus,
    is_ready: bool,
    is_hub_draining: bool,
    /// Once it was told to stop: until when it waits for what is under way.
    stop_by: Option<Instant>,
    /// When the daemon began, and what was done since.
    counts: Counts,
    /// Where its monotonic clock begins.
    started: Instant,
}

impl EventLoop {
    pub fn new(
        engine: Engine,
        store: Store,
        topics: Topics,
        publisher: Arc<Publisher>,
        inputs: Sender<Input>,
        runtime: Handle,
        readiness: Readiness,
    ) -> EventLoop {
        EventLoop {
            engine,
            store,
            topics,
            publisher,
            hub: None,
            is_hub_open: false,
            trees: Vec::new(),
            watching: Watching::default(),
            last_watching: Watching::default(),
            inputs,
            submitting: runtime.clone(),
            runtime,
            readiness,
            failpoints: Failpoints::from_environment(),
            service_manager: ServiceManager::from_environment(),
            sweeps: BTreeMap::new(),
            unsaved: Unsaved::default(),
            trouble: None,
            ask_at: Instant::now() + PROBE,
            look_at: Instant::now() + LOOK,
            orders: Vec::new(),
            accepted: Vec::new(),
            under_way: BTreeSet::new(),
            began: Some(Timestamp::now()),
            was_settled: false,
            unclaimed: BTreeSet::new(),
            configuration: ConfigurationStatus {
                loaded: Timestamp::now(),
                refused: None,
                in_force: String::new(),
            },
            is_ready: false,
            is_hub_draining: false,
            stop_by: None,
            counts: Counts {
                began: Timestamp::now(),
                ..Counts::default()
            },
            started: Instant::now(),
        }
    }

    /// Submits elsewhere than on the threads that serve.
    pub fn submit_on(&mut self, submitting: Handle) {
        self.submitting = submitting;
    }

    /// Begins earlier than now: when the process did, by its clock and by that of `ctime`.
    pub fn began_at(&mut self, began: Timestamp, by_file_system: Timestamp) {
        self.began = Some(by_file_system);
        self.counts.began = began;
    }

    /// The failpoints that deliveries pass, for whoever passes some elsewhere.
    pub fn failpoints(&self) -> Failpoints {
        self.failpoints.clone()
    }

    /// The embedded hub, if there was ever one, and whether it takes subscriptions.
    pub fn set_hub(&mut self, hub: Option<EmbeddedHub>, is_open: bool) {
        self.hub = hub;
        self.is_hub_open = is_open;
    }

    /// What is in force, and since when.
    pub fn set_configuration(&mut self, configuration: ConfigurationStatus) {
        self.configuration = configuration;
        self.service_manager.hurry();
    }

    /// What is in force goes on, although another configuration was there.
    pub fn refuse(&mut self, refused: RefusedConfiguration) {
        self.configuration.refused = Some(refused);
        self.service_manager.hurry();
    }

    /// Performs what taking up the state asked for, so that topics are served before any tree is looked at.
    pub fn perform_first(&mut self, effects: Vec<Effect>) {
        self.take(effects);
        self.commit(false);
    }

    /// EventLoop until another configuration may be there, or it is told to stop. Then it waits up to `grace` for
    /// answers to what was sent, and sends nothing more.
    pub fn run(&mut self, received: &Receiver<Input>, grace: Duration) -> Ended {
        loop {
            let first = match received.recv_timeout(self.patience()) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ended::Stopped { by: Instant::now() };
                }
            };
            let is_proof_wanted = self.service_manager.wants_proof();
            let mut may_be_changed = false;
            for event in std::mem::take(&mut self.accepted) {
                self.step(event);
            }
            for input in first.into_iter().chain(received.try_iter().take(TURN)) {
                match input {
                    Input::Stop => self.stop(grace),
                    Input::Reload => may_be_changed = true,
                    input => self.input(input),
                }
            }
            self.step(Event::Tick);
            let is_saved = self.commit(is_proof_wanted);
            if is_saved {
                self.withdraw_unclaimed();
            }
            self.answer();
            self.tell_health(is_saved);
            if is_proof_wanted {
                self.service_manager.ping();
            }
            match self.stop_by {
                Some(by) if self.is_done() || Instant::now() >= by => {
                    self.tell_unanswered();
                    return Ended::Stopped { by };
                }
                None if may_be_changed => return Ended::Reload,
                _ => {}
            }
        }
    }

    /// Saves what came after the last turn, once nobody can send any more.
    pub fn finish(&mut self, received: &Receiver<Input>) -> Result<(), String> {
        for input in received.try_iter() {
            self.input(input);
        }
        match self.store.put_back() {
            Ok(true) => warn!("the state file was missing and has been restored"),
            Ok(false) => {}
            Err(error) => {
                let error = log::error_chain(&error);
                error!(error, "cannot restore the state file: {error}");
            }
        }
        // If it could not save, it has to now.
        let must_answer = self.trouble.take().is_some();
        self.commit(must_answer);
        // What the embedded hub has accepted and owes now is not to be submitted again.
        for event in std::mem::take(&mut self.accepted) {
            self.step(event);
        }
        self.commit(false);
        self.answer();
        match &self.trouble {
            None => Ok(()),
            Some(trouble) => Err(trouble.clone()),
        }
    }

    /// How long to wait for the next input.
    fn patience(&self) -> Duration {
        if !self.accepted.is_empty() {
            return Duration::ZERO;
        }
        let wakes = [self.service_manager.wake(), self.stop_by]
            .into_iter()
            .flatten();
        let wake = wakes.fold(self.ask_at.min(self.look_at), Instant::min);
        let mut patience = wake.saturating_duration_since(Instant::now());
        if self.trouble.is_none()
            && let Some(wake) = self.engine.wake()
        {
            let left = wake.duration_since(Timestamp::now());
            patience = patience.min(Duration::try_from(left).unwrap_or_default());
        }
        patience
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Event(event) => {
                if let Some(submission) = answered(&event) {
                    self.under_way.remove(&submission);
                }
                self.step(event);
            }
            Input::Tree(watching, _) if watching != self.watching => {}
            Input::Tree(_, mut reported) => {
                // R13: a change made while the daemon starts is one, although no tree is watched yet.
                if let TreeReport::MountFound { started, .. } = &mut reported
                    && let Some(began) = self.began
                {
                    *started = began.min(*started);
                }
                log::log(&reported, self.engine.plan());
                self.count(&reported);
                self.note_sweep(&reported);
                if matches!(reported, TreeReport::Observed(_)) {
                    self.failpoints.pass(Failpoint::Observed);
                }
                if let Some(event) = log::event(reported) {
                    self.step(event);
                }
            }
            Input::HubRecords(records) => self.unsaved.records.extend(records),
            // Whoever asked may have gone, before or while it is answered.
            Input::Ask(_, answer) if answer.is_closed() => {}
            Input::Ask(detail, answer) => {
                let mut status = match detail {
                    Detail::Everything => self.engine.status(Timestamp::now()),
                    Detail::Figures => self.engine.outline(Timestamp::now()),
                };
                status.unsaved = self.trouble.clone();
                self.complete(&mut status);
                self.count_up(&mut status.figures);
                let _ = answer.send(status);
            }
            Input::Command(request, reply) => self.execute(request, reply),
            Input::CommandDone(order) => self.orders.push(order),
            Input::HubDrained => self.is_hub_draining = false,
            // The loop has heard of it, or has ended.
            Input::Reload | Input::Stop => {}
        }
    }

    fn step(&mut self, event: Event) {
        let effects = self.engine.step(event, self.now());
        self.take(effects);
    }

    /// `Instant` does not count the time that the machine is suspended.
    fn now(&self) -> Now {
        Now {
            wall: Timestamp::now(),
            monotonic: self.started.elapsed(),
        }
    }
}

/// Which submission an event answers.
fn answered(event: &Event) -> Option<SubmissionId> {
    match event {
        Event::Answered {
            channel, hub, seq, ..
        } => Some((*channel, hub.clone(), *seq)),
        _ => None,
    }
}
