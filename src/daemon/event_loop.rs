//! The only loop: it takes inputs, steps the engine, saves, and only then sends.
//!
//! One step takes every input that is waiting, so that a burst costs one commit. While the state cannot be saved,
//! nothing is sent: effects wait, and saving is retried.

pub mod commands;
mod effects;
mod hub_link;
pub mod logged_bodies;
pub mod reload;
mod served_topics;
mod shutdown;
pub mod state_saver;
pub mod status_reporter;
mod submissions;
pub mod watched_trees;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::admin::Readiness;
use crate::announce::changes::round::{TakeRequest, TakenRound};
use crate::announce::engine::Engine;
use crate::announce::event::{Event, Now};
use crate::broker::client::Brokers;
use crate::config::Config;
use crate::control::{self, ControlRequest};
use crate::daemon::change_reader::ChangeReader;
use crate::daemon::event_loop::commands::CommandReply;
use crate::daemon::event_loop::hub_link::HubLink;
use crate::daemon::event_loop::reload::LoadedEngine;
use crate::daemon::event_loop::served_topics::ServedTopics;
use crate::daemon::event_loop::state_saver::StateSaver;
use crate::daemon::event_loop::status_reporter::StatusReporter;
use crate::daemon::event_loop::submissions::Submissions;
use crate::daemon::event_loop::watched_trees::{Generation, WatchedTrees};
use crate::daemon::failpoints::{Failpoint, Failpoints};
use crate::daemon::log;
use crate::hub::HubRecord;
use crate::report::figures::Counts;
use crate::report::status::{ConfigurationStatus, Detail, Status};
use crate::store::Store;
use crate::tree::{TreeError, TreeReport};
use crate::websub::hub::EmbeddedHub;
use crate::websub::publish::Publisher;
use crate::websub::topics::Topics;

/// Inputs of the loop.
pub enum Input {
    Event(Event),
    /// Change Lists were read, as was requested, in so much time.
    Read(Box<TakenRound>, TakeRequest, Duration),
    /// A report of a tree, with the generation of the tree: one of an earlier generation is ignored.
    Tree(Generation, TreeReport),
    /// Changes that the embedded hub wants saved, all of them or none.
    HubRecords(Vec<HubRecord>),
    /// A request for the status, as by the admin pages.
    Ask(Detail, oneshot::Sender<Status>),
    /// A request by a command.
    Command(ControlRequest, oneshot::Sender<control::ControlReply>),
    /// The reply to a command that the embedded hub has executed; its records came before this.
    CommandDone(CommandReply),
    /// The embedded hub has ended the deliveries that it had begun.
    HubDrained,
    Reload,
    Stop,
}

/// Reason why the loop returned.
pub enum Ended {
    /// The configuration is to be reloaded.
    Reload,
    /// It was told to stop. Work that others have begun may take until then.
    Stopped { by: Instant },
}

/// Maximum inputs that are taken into one step.
const MAX_INPUTS: usize = 4_096;

/// The parts that the loop is built from.
pub struct Parts<'a> {
    pub config: &'a Config,
    pub store: Store,
    pub loaded: LoadedEngine,
    pub topics: Topics,
    pub publisher: Arc<Publisher>,
    pub brokers: Arc<Brokers>,
    /// Runtime for submissions: they are kept off the threads that serve.
    pub submission_runtime: Handle,
    pub runtime: Handle,
    pub inputs: Sender<Input>,
    pub readiness: Readiness,
    pub configuration: ConfigurationStatus,
    pub failpoints: Failpoints,
    /// Start of the process.
    pub began: Timestamp,
}

/// The engine and the parts that act for it.
pub struct EventLoop {
    engine: Engine,
    saver: StateSaver,
    trees: WatchedTrees,
    topics: ServedTopics,
    submissions: Submissions,
    change_reader: ChangeReader,
    hub: HubLink,
    reporter: StatusReporter,
    /// Replies to commands of this step, which wait until it is saved.
    replies: Vec<CommandReply>,
    counts: Counts,
    failpoints: Failpoints,
    inputs: Sender<Input>,
    runtime: Handle,
    /// Origin of the engine's monotonic clock.
    started: Instant,
    /// Once it was told to stop: the end of the wait for work that is under way.
    stop_by: Option<Instant>,
}

impl EventLoop {
    /// Joins the parts, serves the topics as they were saved, and starts to watch the trees. `start_hub` is called in
    /// between: deliveries contain the links of the topics, and the hub must exist before the first report of a tree.
    pub fn new(
        parts: Parts<'_>,
        start_hub: impl FnOnce() -> Option<EmbeddedHub>,
    ) -> Result<EventLoop, TreeError> {
        let LoadedEngine {
            engine,
            effects,
            others,
        } = parts.loaded;
        let trees = WatchedTrees::new(parts.inputs.clone(), parts.began);
        let submissions = Submissions::new(
            parts.publisher,
            parts.brokers,
            parts.submission_runtime,
            parts.inputs.clone(),
            parts.failpoints.clone(),
        );
        let inputs = parts.inputs.clone();
        let failpoints = parts.failpoints.clone();
        let answer = move |round, request, took| {
            failpoints.pass(Failpoint::Taken);
            // If the loop has stopped, the next start reads again.
            let _ = inputs.send(Input::Read(Box::new(round), request, took));
        };
        let mut event_loop = EventLoop {
            engine,
            saver: StateSaver::new(parts.store),
            trees,
            topics: ServedTopics::new(parts.topics),
            submissions,
            change_reader: ChangeReader::start(answer),
            hub: HubLink::default(),
            reporter: StatusReporter::new(parts.readiness, parts.configuration),
            replies: Vec::new(),
            counts: Counts {
                began: parts.began,
                ..Counts::default()
            },
            failpoints: parts.failpoints,
            inputs: parts.inputs,
            runtime: parts.runtime,
            started: Instant::now(),
            stop_by: None,
        };
        event_loop.take(effects);
        event_loop.commit(false);
        let hub = start_hub();
        let is_open = hub.is_some();
        event_loop.hub.change(hub, is_open);
        let EventLoop { trees, engine, .. } = &mut event_loop;
        let first = trees.next_generation(parts.config, engine, &others)?;
        trees.begin(first);
        Ok(event_loop)
    }

    /// Runs until the configuration is to be reloaded, or until it was told to stop: then it waits up to `grace` for
    /// answers to what was sent, and sends nothing more.
    pub fn run(&mut self, received: &Receiver<Input>, grace: Duration) -> Ended {
        loop {
            let first = match received.recv_timeout(self.time_to_wait()) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ended::Stopped { by: Instant::now() };
                }
            };
            let is_ping_due = self.reporter.is_ping_due();
            let mut is_reload_wanted = false;
            self.step_accepted();
            for input in first
                .into_iter()
                .chain(received.try_iter().take(MAX_INPUTS))
            {
                match input {
                    Input::Stop => self.stop(grace),
                    Input::Reload => is_reload_wanted = true,
                    input => self.input(input),
                }
            }
            self.step(Event::Tick);
            let is_saved = self.commit(is_ping_due);
            if is_saved {
                self.withdraw_unclaimed();
            }
            self.send_replies();
            self.report_health(is_saved);
            if is_ping_due {
                self.reporter.ping();
            }
            match self.stop_by {
                Some(by) if self.is_done() || Instant::now() >= by => {
                    self.log_unanswered();
                    return Ended::Stopped { by };
                }
                None if is_reload_wanted => return Ended::Reload,
                _ => {}
            }
        }
    }

    /// Saves inputs that came after the last step, once all senders are gone.
    pub fn finish(&mut self, received: &Receiver<Input>) -> Result<(), String> {
        for input in received.try_iter() {
            self.input(input);
        }
        self.saver.restore_file();
        // If saving failed before, it is retried now.
        let must_answer = self.saver.forget_trouble();
        self.commit(must_answer);
        // Submissions that the embedded hub has accepted are not to be submitted again.
        self.step_accepted();
        self.commit(false);
        self.send_replies();
        match self.saver.trouble() {
            None => Ok(()),
            Some(trouble) => Err(trouble.to_owned()),
        }
    }

    /// Returns how long to wait for the next input.
    fn time_to_wait(&self) -> Duration {
        if !self.hub.accepted().is_empty() {
            return Duration::ZERO;
        }
        let wakes = [self.reporter.wake(), self.stop_by].into_iter().flatten();
        let wake = wakes.fold(self.saver.wake(), Instant::min);
        let mut wait = wake.saturating_duration_since(Instant::now());
        if self.saver.trouble().is_none()
            && let Some(wake) = self.engine.wake()
        {
            let left = wake.duration_since(Timestamp::now());
            wait = wait.min(Duration::try_from(left).unwrap_or_default());
        }
        wait
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Event(event) => {
                self.submissions.note(&event);
                self.step(event);
            }
            Input::Read(round, request, took) => {
                self.count_read(&request, &round.outcome, took);
                self.step(Event::Taken(round));
            }
            Input::Tree(generation, _) if !self.trees.is_current(generation) => {}
            Input::Tree(_, report) => self.tree_report(report),
            Input::HubRecords(records) => self.saver.unsaved().records.extend(records),
            // The client may have disconnected, before or during the answer.
            Input::Ask(_, answer) if answer.is_closed() => {}
            Input::Ask(detail, answer) => {
                let _ = answer.send(self.status(detail));
            }
            Input::Command(request, reply) => self.command(request, reply),
            Input::CommandDone(reply) => self.replies.push(reply),
            Input::HubDrained => self.hub.drained(),
            // The loop has taken note of it, or has ended.
            Input::Reload | Input::Stop => {}
        }
    }

    fn tree_report(&mut self, mut report: TreeReport) {
        self.trees.note(&mut report);
        log::log_report(&report, self.engine.plan());
        self.count_sweep(&report);
        if matches!(report, TreeReport::Observed(_)) {
            self.failpoints.pass(Failpoint::Observed);
        }
        if let Some(event) = log::engine_event(report) {
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        let effects = self.engine.step(event, self.now());
        self.take(effects);
    }

    /// Tells the engine what the embedded hub has accepted.
    fn step_accepted(&mut self) {
        for event in self.hub.take_accepted() {
            self.step(event);
        }
    }

    /// Returns the time on both clocks. `Instant` does not count the time that the machine is suspended.
    fn now(&self) -> Now {
        Now {
            wall: Timestamp::now(),
            monotonic: self.started.elapsed(),
        }
    }
}
