//! The work of `rsnotify run`: the engine, the trees that it hears of, and what submits and serves its notifications.

mod daemon;
mod effects;
pub mod logged_bodies;
mod reload;
mod served_topics;
mod status;
mod submissions;
mod watched_trees;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::runtime::Handle;
use tracing::warn;
use websub::http::clock::Clock;
use websub::publisher::http::Submitter;
use websub::topics::http::Topics;

use crate::announce::changes::round::{TakeRequest, TakenRound};
use crate::announce::delivery::Submission;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event, Now};
use crate::broker::client::Brokers;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::announcer::effects::accepted;
use crate::daemon::announcer::logged_bodies::logged_part;
use crate::daemon::announcer::served_topics::ServedTopics;
use crate::daemon::announcer::submissions::Submissions;
use crate::daemon::announcer::watched_trees::{Generation, WatchedTrees};
use crate::daemon::change_reader::ChangeReader;
use crate::daemon::event_loop::commands::{execute, no_embedded_hub};
use crate::daemon::event_loop::state_saver::Unsaved;
use crate::daemon::event_loop::status_reporter::Knowledge;
use crate::daemon::event_loop::{Input, LoopParts, Role};
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log;
use crate::report;
use crate::report::pending::PendingCount;
use crate::report::status::{Detail, Status};
use crate::report::summary::{DaemonActivity, Summary};
use crate::tree::TreeReport;

/// Inputs of `rsnotify run` alone.
pub enum SourceInput {
    Event(Event),
    /// Change Lists were read, as was requested, in so much time.
    Read(Box<TakenRound>, TakeRequest, Duration),
    /// A report of a tree, with the generation of the tree: one of an earlier generation is ignored.
    Tree(Generation, TreeReport),
}

/// Inputs of the loop of `rsnotify run`.
pub type RunInput = Input<SourceInput>;

/// The parts of the loop of `rsnotify run`.
pub type RunParts = LoopParts<SourceInput>;

/// The engine, and the parts that act for it.
pub struct Announcer {
    engine: Engine,
    trees: WatchedTrees,
    topics: ServedTopics,
    submissions: Submissions,
    change_reader: ChangeReader,
    /// Effects to perform once the changes that came with them are saved.
    effects: Vec<Effect>,
    /// Submissions that the embedded hub accepts by owing them to its subscribers.
    relayed: Vec<Submission>,
    /// Its acceptances, which the engine receives in the next step.
    accepted: Vec<Event>,
    pending: PendingCount,
}

/// The adaptors that submit and serve notifications.
pub struct Adaptors {
    pub topics: Topics,
    pub submitter: Arc<Submitter>,
    pub brokers: Arc<Brokers>,
    /// Runtime for submissions: they are kept off the threads that serve.
    pub submission_runtime: Handle,
}

impl Announcer {
    /// Joins the parts. Trees are not watched yet; the effects of `loaded` are taken.
    fn new(
        loaded: (Engine, Vec<Effect>),
        adaptors: Adaptors,
        began: Timestamp,
        parts: &mut RunParts,
    ) -> Announcer {
        let (engine, effects) = loaded;
        let inputs = parts.inputs.clone();
        let failpoints = parts.failpoints.clone();
        let answer = move |round, request, took| {
            failpoints.pass(Failpoint::Taken);
            // If the loop has stopped, the next start reads again.
            let input = SourceInput::Read(Box::new(round), request, took);
            let _ = inputs.send(Input::Work(input));
        };
        let mut announcer = Announcer {
            engine,
            trees: WatchedTrees::new(parts.inputs.clone(), began),
            topics: ServedTopics::new(adaptors.topics),
            submissions: Submissions::new(
                adaptors.submitter,
                adaptors.brokers,
                adaptors.submission_runtime,
                parts.inputs.clone(),
                parts.failpoints.clone(),
            ),
            change_reader: ChangeReader::start(answer),
            effects: Vec::new(),
            relayed: Vec::new(),
            accepted: Vec::new(),
            pending: PendingCount::default(),
        };
        announcer.take(effects, parts);
        announcer
    }

    fn step(&mut self, event: Event, parts: &mut RunParts) {
        let effects = self.engine.step(event, moment(parts.clock));
        self.take(effects, parts);
    }

    fn tree_report(&mut self, mut report: TreeReport, parts: &mut RunParts) {
        self.trees.note(&mut report);
        log::log_report(&report, self.engine.plan());
        self.count_sweep(&report, parts);
        if matches!(report, TreeReport::Observed(_)) {
            parts.failpoints.pass(Failpoint::Observed);
        }
        if let Some(event) = log::engine_event(report) {
            self.step(event, parts);
        }
    }
}

/// Returns the moment of a step.
fn moment(clock: Clock) -> Now {
    Now {
        now: clock.now(),
        wall: Timestamp::now(),
    }
}

impl Role for Announcer {
    type Input = SourceInput;

    const UNSAVED_CHANGES: &'static str = ", which are detected again at the next start";

    /// Tells the engine what the embedded hub has accepted.
    fn begin(&mut self, parts: &mut RunParts) {
        for event in mem::take(&mut self.accepted) {
            self.step(event, parts);
        }
    }

    fn input(&mut self, input: SourceInput, parts: &mut RunParts) {
        match input {
            SourceInput::Event(event) => {
                self.submissions.note(&event);
                self.step(event, parts);
            }
            SourceInput::Read(round, request, took) => {
                self.count_read(&request, &round.outcome, took, parts);
                self.step(Event::Taken(round), parts);
            }
            SourceInput::Tree(generation, _) if !self.trees.is_current(generation) => {}
            SourceInput::Tree(_, report) => self.tree_report(report, parts),
        }
    }

    fn advance(&mut self, parts: &mut RunParts) {
        self.step(Event::Tick, parts);
    }

    fn perform(&mut self, saved: Unsaved, parts: &mut RunParts) {
        for effect in mem::take(&mut self.effects) {
            self.perform_effect(effect, parts);
        }
        self.accepted.extend(self.relayed.drain(..).map(accepted));
        parts.dispatch(saved.owed);
        self.withdraw_unclaimed(parts);
    }

    /// Effects wait until their changes are saved.
    fn not_saved(&mut self) {}

    fn time_to_wait(&self, parts: &RunParts) -> Option<Duration> {
        if !self.accepted.is_empty() {
            return Some(Duration::ZERO);
        }
        let wake = self.engine.wake();
        let wake = wake.filter(|_| parts.saver.trouble().is_none())?;
        let left = wake.duration_since(parts.clock.now());
        Some(Duration::try_from(left).unwrap_or_default())
    }

    fn command(&mut self, request: ControlRequest, parts: &mut RunParts) -> ControlReply {
        let now = moment(parts.clock);
        let saver = &parts.saver;
        let (answer, effects) = execute(
            &mut self.engine,
            Engine::step,
            |_| no_embedded_hub(),
            |id, seq, part| logged_part(saver, id, seq, part).ok(),
            request,
            now,
        );
        self.take(effects, parts);
        answer
    }

    fn status(&self, detail: Detail, now: Timestamp, parts: &RunParts) -> Status {
        self.status_at(detail, now, &parts.counts)
    }

    fn pending(&mut self) -> usize {
        self.pending.update(&mut self.engine)
    }

    fn step_ended(&mut self) -> Knowledge {
        if self.engine.sources().are_settled() {
            self.trees.settled();
            Knowledge::Complete
        } else if self.trees.was_settled() {
            Knowledge::CompleteBefore
        } else {
            Knowledge::Partial
        }
    }

    fn activity(&self, refused: Option<&str>, _: &RunParts) -> DaemonActivity {
        if self.engine.sources().are_settled() {
            DaemonActivity::Watching(Summary {
                refused: refused.map(str::to_owned),
                ..report::summary(&self.engine)
            })
        } else {
            DaemonActivity::Sweeping {
                files: self.trees.files_met(),
            }
        }
    }

    /// Takes no more reports of the trees. The answers to submissions are awaited.
    fn stop(&mut self) {
        self.trees.stop();
    }

    fn is_done(&self) -> bool {
        self.submissions.under_way().is_empty() && self.accepted.is_empty()
    }

    fn log_unanswered(&self) {
        let requests = self.submissions.under_way().len();
        if requests > 0 {
            warn!(
                requests,
                "shutdown timeout: hubs did not answer in time; unanswered notifications are retried at the next start"
            );
        }
    }

    /// Does nothing: submissions under way are repeated at the next start.
    fn end(&mut self) {}
}
