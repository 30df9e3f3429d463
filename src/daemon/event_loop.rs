//! The only loop, of `rsnotify run` as of `rsnotify hub`: it takes inputs, steps, saves, and only then performs effects.
//!
//! One step takes every input that is waiting, so that a burst costs one commit. While the state cannot be saved,
//! nothing is sent: effects wait, and saving is retried. The two daemons differ in their [`Role`].

pub mod commands;
pub mod hub_link;
pub mod state_saver;
pub mod status_reporter;

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{info, warn};
use websub::http::clock::Clock;
use websub::hub::HubRecord;

use crate::admin::Readiness;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::event_loop::commands::{CommandReply, ask_hub, no_embedded_hub};
use crate::daemon::event_loop::hub_link::HubLink;
use crate::daemon::event_loop::state_saver::{StateSaver, StoreProbe, Unsaved};
use crate::daemon::event_loop::status_reporter::{Knowledge, StatusReporter};
use crate::daemon::failpoints::Failpoints;
use crate::report;
use crate::report::figures::Counts;
use crate::report::last_day::Totals;
use crate::report::status::{ConfigurationStatus, Detail, Status};
use crate::report::summary::DaemonActivity;
use crate::store::Store;

/// Inputs of the loop; `I` are those that only one of the daemons has.
pub enum Input<I> {
    Work(I),
    /// Changes that the embedded hub wants saved, all of them or none.
    HubRecords(Vec<HubRecord>),
    /// A request for the status, as by the admin pages.
    Ask(Detail, oneshot::Sender<Status>),
    /// A request by a command.
    Command(ControlRequest, oneshot::Sender<ControlReply>),
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

/// Maximum inputs that are taken into one step, and so into one transaction.
const MAX_INPUTS: usize = 4_096;

/// The work of a daemon, as its loop calls for it: [`Announcer`](crate::daemon::announcer::Announcer) or
/// [`Intake`](crate::daemon::intake::Intake).
///
/// A step is `begin`, `input` for each input, `advance`, and `perform` once the changes are saved. Effects that wait for
/// that stay with the role.
pub trait Role: Sized {
    type Input: Send + 'static;

    /// Consequence of changes that are not saved when the daemon stops, to continue a sentence.
    const UNSAVED_CHANGES: &'static str;

    /// Begins a step with the consequences of the last one.
    fn begin(&mut self, parts: &mut LoopParts<Self::Input>);

    /// Takes an input.
    fn input(&mut self, input: Self::Input, parts: &mut LoopParts<Self::Input>);

    /// Does what is due by now.
    fn advance(&mut self, parts: &mut LoopParts<Self::Input>);

    /// Performs the effects that have waited for `saved`.
    fn perform(&mut self, saved: Unsaved, parts: &mut LoopParts<Self::Input>);

    /// Takes note that the state cannot be saved.
    fn not_saved(&mut self);

    /// Returns the time until [`Role::advance`] has something to do.
    fn time_to_wait(&self, parts: &LoopParts<Self::Input>) -> Option<Duration>;

    /// Executes a command about sources, channels or hubs; its answer is given once the step is saved.
    fn command(
        &mut self,
        request: ControlRequest,
        parts: &mut LoopParts<Self::Input>,
    ) -> ControlReply;

    /// Returns the status of its own work.
    fn status(&self, detail: Detail, now: Timestamp, parts: &LoopParts<Self::Input>) -> Status;

    /// Returns the number of changes that are pending, counted for each hub.
    fn pending(&mut self) -> usize;

    /// Ends a step, and returns whether every present mount was swept.
    fn step_ended(&mut self) -> Knowledge;

    /// Returns its activity, while the state can be saved. `refused` is the reason why the last configuration was not
    /// reloaded.
    fn activity(&self, refused: Option<&str>, parts: &LoopParts<Self::Input>) -> DaemonActivity;

    /// Begins to shut down: begins nothing new.
    fn stop(&mut self);

    /// Returns true if nothing that it has begun is under way.
    fn is_done(&self) -> bool;

    /// Logs what is under way when the time for the shutdown is over.
    fn log_unanswered(&self);

    /// Takes note that the loop has ended: nobody answers any more.
    fn end(&mut self);
}

/// The parts of a loop that its [`Role`] uses.
pub struct LoopParts<I> {
    pub clock: Clock,
    pub saver: StateSaver,
    pub hub: HubLink,
    pub counts: Counts,
    pub failpoints: Failpoints,
    pub inputs: Sender<Input<I>>,
    pub runtime: Handle,
    /// Once it was told to stop: the end of the wait for work that is under way.
    stop_by: Option<Instant>,
}

impl<I> LoopParts<I> {
    /// Returns the parts of a process that began at `began`, without a hub.
    pub fn new(
        store: Store,
        clock: Clock,
        inputs: Sender<Input<I>>,
        failpoints: Failpoints,
        began: Timestamp,
    ) -> LoopParts<I> {
        LoopParts {
            clock,
            saver: StateSaver::new(store),
            hub: HubLink::default(),
            counts: Counts {
                began,
                ..Counts::default()
            },
            failpoints,
            inputs,
            runtime: Handle::current(),
            stop_by: None,
        }
    }

    /// Returns true once nothing new is to begin.
    pub fn is_stopping(&self) -> bool {
        self.stop_by.is_some()
    }
}

/// A role, and the parts that act for it.
pub struct EventLoop<R: Role> {
    pub role: R,
    pub parts: LoopParts<R::Input>,
    reporter: StatusReporter,
    /// Replies to commands of this step, which wait until it is saved.
    replies: Vec<CommandReply>,
}

impl<R: Role> EventLoop<R> {
    /// Joins the parts. Must be called within a tokio runtime.
    pub fn new(
        role: R,
        parts: LoopParts<R::Input>,
        readiness: Readiness,
        configuration: ConfigurationStatus,
    ) -> EventLoop<R> {
        EventLoop {
            role,
            parts,
            reporter: StatusReporter::new(readiness, configuration),
            replies: Vec::new(),
        }
    }

    /// Runs until the configuration is to be reloaded, or until it was told to stop: then it waits up to `grace` for
    /// answers to what was sent, and sends nothing more.
    pub fn run(&mut self, received: &Receiver<Input<R::Input>>, grace: Duration) -> Ended {
        loop {
            // It is never disconnected: the parts have a sender.
            let first = received.recv_timeout(self.time_to_wait()).ok();
            let is_ping_due = self.reporter.is_ping_due();
            let mut is_reload_wanted = false;
            self.role.begin(&mut self.parts);
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
            self.role.advance(&mut self.parts);
            let is_saved = self.commit(StoreProbe::now_if(is_ping_due));
            self.send_replies();
            self.report_health(is_saved);
            if is_ping_due {
                self.reporter.ping();
            }
            match self.parts.stop_by {
                Some(by) if self.is_done() || Instant::now() >= by => {
                    self.log_unanswered();
                    return Ended::Stopped { by };
                }
                None if is_reload_wanted => return Ended::Reload,
                _ => {}
            }
        }
    }

    /// Saves inputs that came after the last step, once the loop has ended. Returns why it cannot be saved.
    pub fn finish(&mut self, received: &Receiver<Input<R::Input>>) -> Result<(), String> {
        for input in received.try_iter() {
            self.input(input);
        }
        self.parts.saver.restore_file();
        // If saving failed before, it is retried now.
        let had_trouble = self.parts.saver.forget_trouble();
        self.commit(StoreProbe::now_if(had_trouble));
        // Submissions that the embedded hub has accepted are not to be submitted again.
        self.role.begin(&mut self.parts);
        self.commit(StoreProbe::WhenDue);
        self.send_replies();
        match self.parts.saver.trouble() {
            None => Ok(()),
            Some(trouble) => Err(trouble.to_owned()),
        }
    }

    /// Takes note of a configuration that was loaded, or of one that was refused.
    pub fn note_configuration(&mut self, note: impl FnOnce(&mut ConfigurationStatus)) {
        self.reporter.note_configuration(note);
    }

    /// Returns how long to wait for the next input.
    fn time_to_wait(&self) -> Duration {
        let wakes = [self.reporter.wake(), self.parts.stop_by];
        let wakes = wakes.into_iter().flatten();
        let wake = wakes.fold(self.parts.saver.wake(), Instant::min);
        let wait = wake.saturating_duration_since(Instant::now());
        let work = self.role.time_to_wait(&self.parts);
        work.map_or(wait, |work| work.min(wait))
    }

    fn input(&mut self, input: Input<R::Input>) {
        match input {
            Input::Work(input) => self.role.input(input, &mut self.parts),
            Input::HubRecords(records) => self.parts.saver.unsaved().records.extend(records),
            // The client may have disconnected, before or during the answer.
            Input::Ask(_, answer) if answer.is_closed() => {}
            Input::Ask(detail, answer) => {
                let _ = answer.send(self.status(detail));
            }
            Input::Command(request, reply) => self.command(request, reply),
            Input::CommandDone(reply) => self.replies.push(reply),
            Input::HubDrained => self.parts.hub.drained(),
            // The loop has taken note of it, or has ended.
            Input::Reload | Input::Stop => {}
        }
    }

    /// Saves the changes of this step, then performs its effects. Returns false while the state cannot be saved.
    pub fn commit(&mut self, probe: StoreProbe) -> bool {
        let LoopParts {
            clock,
            saver,
            failpoints,
            counts,
            ..
        } = &mut self.parts;
        saver.unsaved().is_awaited |= !self.replies.is_empty();
        match saver.save(probe, *clock, failpoints, counts) {
            Some(saved) => {
                self.role.perform(saved, &mut self.parts);
                true
            }
            None => {
                self.role.not_saved();
                false
            }
        }
    }

    /// Executes a command; [`EventLoop::send_replies`] answers it.
    fn command(&mut self, request: ControlRequest, reply: oneshot::Sender<ControlReply>) {
        let answer = match request {
            ControlRequest::Status => {
                ControlReply::Status(Box::new(self.status(Detail::Everything)))
            }
            ControlRequest::Subscriptions(about) => {
                let hub = self.parts.hub.open();
                let answer = hub.map_or_else(no_embedded_hub, |hub| {
                    let now = self.parts.clock.now();
                    ask_hub(&hub, about, now, self.parts.saver.store())
                });
                // The records of the hub wait before it in the queue, and so are saved before it is answered.
                let done = CommandReply::new(reply, answer);
                let _ = self.parts.inputs.send(Input::CommandDone(done));
                return;
            }
            request => self.role.command(request, &mut self.parts),
        };
        self.replies.push(CommandReply::new(reply, answer));
    }

    /// Answers commands. None is reported as done while a crash could undo it.
    fn send_replies(&mut self) {
        for reply in self.replies.drain(..) {
            reply.send(self.parts.saver.trouble());
        }
    }

    fn status(&mut self, detail: Detail) -> Status {
        let now = self.parts.clock.now();
        let EventLoop {
            role,
            parts,
            reporter,
            ..
        } = self;
        let mut status = role.status(detail, now, parts);
        status.unsaved = parts.saver.trouble().map(str::to_owned);
        status.embedded_hub = parts.hub.open().map(|hub| hub.status(now));
        status.configuration = Some(reporter.configuration().clone());
        status.last_day = reporter.last_day(now, totals(role, parts, now));
        status.figures.counts = parts.counts.clone();
        status
    }

    /// Tells probes and the service manager the outcome of a step.
    fn report_health(&mut self, is_saved: bool) {
        let EventLoop {
            role,
            parts,
            reporter,
            ..
        } = self;
        if reporter.stepped(is_saved, role.step_ended()) {
            parts.failpoints.ready();
        }
        if parts.is_stopping() {
            return;
        }
        let now = parts.clock.now();
        reporter.note_totals(now, || totals(role, parts, now));
        reporter.report_activity(|refused| match parts.saver.trouble() {
            Some(trouble) => DaemonActivity::Waiting {
                trouble: trouble.to_owned(),
            },
            None => role.activity(refused, parts),
        });
    }

    /// Begins to shut down: begins no work and no delivery. A second call ends the wait.
    fn stop(&mut self, grace: Duration) {
        let parts = &mut self.parts;
        if parts.is_stopping() {
            parts.stop_by = Some(Instant::now());
            return;
        }
        info!("stopping");
        self.reporter.stopping();
        parts.stop_by = Some(Instant::now() + grace);
        self.role.stop();
        parts.hub.drain(&parts.runtime, &parts.inputs);
    }

    /// Returns true if nothing is under way any more.
    fn is_done(&self) -> bool {
        self.role.is_done() && !self.parts.hub.is_draining()
    }

    fn log_unanswered(&self) {
        self.role.log_unanswered();
        if self.parts.hub.is_draining() {
            warn!(
                "shutdown timeout: subscribers did not answer in time; unanswered deliveries are retried at the next start"
            );
        }
    }
}

/// Returns what was counted since the start, and what is pending.
fn totals<R: Role>(role: &mut R, parts: &LoopParts<R::Input>, now: Timestamp) -> Totals {
    let hub = parts.hub.linked().map(|hub| hub.status(now));
    report::totals(&parts.counts, role.pending(), hub.as_ref())
}
