//! The only loop, of `rsnotify run` as of `rsnotify hub`: it takes inputs, steps, saves, and only then performs effects.
//!
//! One step takes the inputs that are waiting, so that a burst costs one commit. While the state cannot be saved, nothing
//! is sent: the inputs of the step are kept, and it is retried. The two daemons differ in their [`DaemonRole`].

pub mod commands;
mod counting;
pub mod hub_link;
pub mod state_saver;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::Connection;
use rustix::system::uname;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{info, warn};
use websub::http::Clock;
use websub::hub::HubRecord;

use crate::admin::Readiness;
use crate::config::ReloadableConfig;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::Daemon;
use crate::daemon::event_loop::commands::{NO_EMBEDDED_HUB, ask_subscriptions};
use crate::daemon::event_loop::counting::LastDay;
use crate::daemon::event_loop::hub_link::EmbeddedHubLink;
use crate::daemon::event_loop::state_saver::StateFileKeeper;
use crate::daemon::failpoints::{Failpoint, FailpointTrigger};
use crate::daemon::log::error_chain;
use crate::daemon::service_manager::ServiceManager;
use crate::report;
use crate::report::figures::DaemonCounts;
use crate::report::status::{ConfigurationStatus, DaemonView, Detail, IntervalDeliveries, Status};
use crate::report::summary::unsaved_line;
use announce::state::open::StateFileError;
use announce::state::{self, Db};
use announce::time::elapsed;

/// Time that requests in flight may take to end when rsnotify stops. Service managers kill it after 30 s or more.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Minimum time between two additions to the counts of the last day.
const NOTED_EACH: Duration = Duration::from_secs(60);

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
    CommandDone(oneshot::Sender<ControlReply>, ControlReply),
    /// The embedded hub has ended the deliveries that it had begun.
    HubDrained,
    Stop,
}

/// Whether every present mount was swept, and its Change Lists were read; `rsnotify hub` has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepReadiness {
    /// Some were not yet.
    Partial,
    /// Some were not yet since the configuration changed; before, all were.
    CompleteBefore,
    Complete,
}

/// Maximum inputs that are taken into one step, and so into one transaction.
const MAX_INPUTS: usize = 4_096;

/// The work of a daemon, as its loop calls for it: [`Announcer`](crate::daemon::announcer::Announcer) or
/// [`PublicHubRole`](crate::daemon::intake::PublicHubRole).
///
/// Inputs are kept until [`DaemonRole::commit_step`] takes them in one transaction; [`DaemonRole::perform_effects`]
/// follows the commit. Effects that wait for that stay with the role.
pub trait DaemonRole: Sized {
    type Input: Send + 'static;
    type Config: ReloadableConfig;

    /// Consequence of changes that are not saved when the daemon stops, to continue a sentence.
    const UNSAVED_CHANGES: &'static str;

    /// Puts another configuration into effect, all of it or nothing.
    fn apply_config(daemon: &mut Daemon<Self>, config: &Self::Config) -> anyhow::Result<()>;

    /// Takes an input.
    fn take_input(&mut self, input: Self::Input, parts: &mut LoopParts<Self::Input>);

    /// Returns true if inputs wait for a step.
    fn has_inputs(&self) -> bool;

    /// Returns true if the inputs that wait fill a step.
    fn is_step_full(&self) -> bool {
        false
    }

    /// Returns the time at which a step has something to do, even without inputs.
    fn wake_time(&self) -> Option<Timestamp>;

    /// Takes the inputs, what is due by now, and the changes of the hub in one transaction. If that fails, nothing happened,
    /// and the inputs are kept. `is_awaited` says that somebody is answered once it is saved.
    fn commit_step(
        &mut self,
        parts: &mut LoopParts<Self::Input>,
        is_awaited: bool,
    ) -> Result<(), StateFileError>;

    /// Performs the effects of what is saved.
    fn perform_effects(&mut self, parts: &mut LoopParts<Self::Input>);

    /// Takes note that the state cannot be saved.
    fn note_unsaved(&mut self) {}

    /// Returns the connection that writes the state.
    fn connection(&mut self) -> &mut Connection;

    /// Takes a command about sources, channels or hubs, of which actions wait for a step. An error is the answer.
    fn command(&mut self, _: &ControlRequest, _: Timestamp) -> Result<(), ControlReply> {
        Ok(())
    }

    /// Answers a question, or the action that the last step has executed.
    fn answer(&mut self, request: ControlRequest, now: Timestamp) -> ControlReply;

    /// Returns the status of its own work.
    fn status(
        &self,
        detail: Detail,
        now: Timestamp,
        parts: &LoopParts<Self::Input>,
    ) -> state::Result<Status>;

    /// Ends a step, and returns whether every present mount was swept.
    fn end_step(&mut self) -> SweepReadiness;

    /// Returns its activity in one line, while the state can be saved. `refused` is the reason why the last configuration
    /// was not reloaded.
    fn activity(&self, refused: Option<&str>, parts: &LoopParts<Self::Input>) -> String;

    /// Begins to shut down: begins nothing new.
    fn stop(&mut self);

    /// Returns true if nothing that it has begun is under way.
    fn is_done(&self) -> bool {
        true
    }

    /// Logs what is under way when the time for the shutdown is over.
    fn log_unanswered(&self) {}

    /// Takes note that the loop has ended: nobody answers any more.
    fn note_loop_end(&mut self) {}
}

/// A command, or its answer, with who waits for that.
type PendingReply = (
    oneshot::Sender<ControlReply>,
    Result<ControlRequest, ControlReply>,
);

/// The parts of a loop that its [`DaemonRole`] uses.
pub struct LoopParts<I> {
    pub clock: Clock,
    pub saver: StateFileKeeper,
    pub hub: EmbeddedHubLink,
    pub counts: DaemonCounts,
    pub failpoints: Arc<FailpointTrigger>,
    pub inputs: Sender<Input<I>>,
    pub runtime: Handle,
    /// Once it was told to stop, so that nothing new begins: the end of the wait for work that is under way.
    pub stop_by: Option<Instant>,
}

/// A role, the parts that act for it, and what probes, the service manager and the status are told.
pub struct EventLoop<R: DaemonRole> {
    pub role: R,
    pub parts: LoopParts<R::Input>,
    pub readiness: Readiness,
    pub service_manager: ServiceManager,
    pub configuration: ConfigurationStatus,
    daemon: DaemonView,
    is_ready: bool,
    last_day: LastDay,
    /// The time of the last addition to it.
    noted: Option<Instant>,
    /// Commands of this step, which are answered once it is saved, or their answers.
    replies: Vec<PendingReply>,
    /// Requests for the status, which is that after this step.
    asks: Vec<(Detail, oneshot::Sender<Status>)>,
}

impl<R: DaemonRole> EventLoop<R> {
    /// Joins the parts. Must be called within a tokio runtime.
    pub fn new(
        mut role: R,
        parts: LoopParts<R::Input>,
        configuration: ConfigurationStatus,
    ) -> EventLoop<R> {
        // Nothing depends on it: if it cannot be read, the counts begin anew.
        let saved = state::last_day(Db(role.connection())).ok().flatten();
        let last_day = LastDay::new(saved.as_deref(), parts.clock.now());
        let daemon = DaemonView {
            host: uname().nodename().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            began: parts.counts.began,
        };
        EventLoop {
            role,
            parts,
            readiness: Readiness::default(),
            service_manager: ServiceManager::from_environment(),
            configuration,
            daemon,
            is_ready: false,
            last_day,
            noted: None,
            replies: Vec::new(),
            asks: Vec::new(),
        }
    }

    /// Runs until the configuration is to be reloaded, and returns who is told the outcome; or until it was told to stop: then
    /// it waits a little for answers to what was sent, and sends nothing more. Work that others have begun may take until
    /// the time that breaks.
    pub fn run(
        &mut self,
        received: &Receiver<Input<R::Input>>,
    ) -> ControlFlow<Instant, Vec<oneshot::Sender<ControlReply>>> {
        loop {
            // It is never disconnected: the parts have a sender.
            let first = received.recv_timeout(self.time_to_wait()).ok();
            let is_ping_due = self.service_manager.is_ping_due();
            let mut reload = Vec::new();
            let inputs = received.try_iter().take(MAX_INPUTS);
            for input in first.into_iter().chain(inputs) {
                match input {
                    Input::Stop => self.stop(),
                    Input::Command(ControlRequest::Reload, reply) => reload.push(reply),
                    input => self.take_input(input),
                }
                // Each command has a step to itself, which counts what it did.
                let last = self.replies.last();
                let is_action = matches!(last, Some((_, Ok(request))) if request.is_action());
                if is_action || self.role.is_step_full() {
                    break;
                }
            }
            if is_ping_due {
                self.parts.saver.request_probe();
            }
            let is_saved = self.save_and_perform();
            self.send_replies();
            self.report_health(is_saved);
            if is_ping_due {
                self.service_manager.ping();
            }
            let is_done = self.role.is_done() && !self.parts.hub.is_draining;
            match self.parts.stop_by {
                Some(by) if is_done || Instant::now() >= by => {
                    self.role.log_unanswered();
                    if self.parts.hub.is_draining {
                        warn!(
                            "shutdown timeout: subscribers did not answer in time; unanswered deliveries are retried at the next start"
                        );
                    }
                    return ControlFlow::Break(by);
                }
                None if !reload.is_empty() => return ControlFlow::Continue(reload),
                _ => {}
            }
        }
    }

    /// Saves inputs that came after the last step, once the loop has ended. Returns why it cannot be saved.
    pub fn save_remaining(&mut self, received: &Receiver<Input<R::Input>>) -> Result<(), String> {
        for input in received.try_iter() {
            self.take_input(input);
        }
        self.parts.saver.restore_if_deleted(self.role.connection());
        let totals = self.delivery_totals(self.parts.clock.now());
        self.last_day.note_totals(totals);
        let saver = &mut self.parts.saver;
        if let Some(day) = self.last_day.take_unsaved(true) {
            saver.unsaved.last_day = Some(day);
        }
        // If a step failed before, it is retried now.
        if saver.trouble.take().is_some() {
            saver.request_probe();
        }
        while self.save_and_perform() && self.role.has_inputs() {}
        self.send_replies();
        self.parts.saver.trouble.take().map_or(Ok(()), Err)
    }

    /// Returns how long to wait for the next input.
    fn time_to_wait(&self) -> Duration {
        let wakes = [self.service_manager.wake_time(), self.parts.stop_by]
            .into_iter()
            .flatten();
        let wake = wakes.fold(self.parts.saver.wake_time(), Instant::min);
        let wait = wake.saturating_duration_since(Instant::now());
        if self.parts.saver.trouble.is_some() {
            return wait;
        }
        if self.role.has_inputs() {
            return Duration::ZERO;
        }
        let now = self.parts.clock.now();
        let work = self.role.wake_time().map(|wake| elapsed(now, wake));
        work.map_or(wait, |work| work.min(wait))
    }

    fn take_input(&mut self, input: Input<R::Input>) {
        match input {
            Input::Work(input) => self.role.take_input(input, &mut self.parts),
            Input::HubRecords(records) => self.parts.saver.unsaved.records.extend(records),
            // The client may have disconnected, before or during the answer.
            Input::Ask(_, answer) if answer.is_closed() => {}
            Input::Ask(detail, answer) => self.asks.push((detail, answer)),
            Input::Command(request, reply) => self.execute_command(request, reply),
            Input::CommandDone(reply, answer) => self.replies.push((reply, Err(answer))),
            Input::HubDrained => self.parts.hub.is_draining = false,
            // The loop has taken note of it, or has ended.
            Input::Stop => {}
        }
    }

    /// Saves the inputs of this step, then performs its effects. Returns false while the state cannot be saved.
    pub fn save_and_perform(&mut self) -> bool {
        let is_awaited = !self.replies.is_empty();
        let EventLoop { role, parts, .. } = self;
        if parts.saver.trouble.is_some() && Instant::now() < parts.saver.wake_time() {
            role.note_unsaved();
            return false;
        }
        if let Some(day) = self.last_day.take_unsaved(false) {
            parts.saver.unsaved.last_day = Some(day);
        }
        let now = parts.clock.now();
        let is_due = role.wake_time().is_some_and(|wake| wake <= now);
        let is_step = is_due || role.has_inputs() || !parts.saver.unsaved.is_empty();
        let began = Instant::now();
        let saved = if is_step {
            let checked = parts.saver.file.check(role.connection());
            checked.and_then(|()| role.commit_step(parts, is_awaited))
        } else {
            parts.saver.maintain(role.connection())
        };
        if let Err(error) = saved {
            parts.saver.note_failure(&error, &mut parts.counts);
            role.note_unsaved();
            return false;
        }
        if is_step {
            parts.counts.saves.observe(began.elapsed());
        }
        parts.saver.note_success(is_step);
        let owed = std::mem::take(&mut parts.saver.unsaved).owed;
        role.perform_effects(parts);
        if let Some(hub) = &parts.hub.linked
            && !owed.is_empty()
        {
            hub.dispatch(owed);
            parts.failpoints.pass(Failpoint::Dispatched);
        }
        true
    }

    /// Executes a command; [`EventLoop::send_replies`] answers it.
    fn execute_command(&mut self, request: ControlRequest, reply: oneshot::Sender<ControlReply>) {
        let now = self.parts.clock.now();
        let ControlRequest::Subscriptions(about) = request else {
            let begun = self.role.command(&request, now);
            self.replies.push((reply, begun.map(|()| request)));
            return;
        };
        let db = Db(self.role.connection());
        let open = self.parts.hub.open.borrow().clone();
        let asked = open
            .ok_or_else(|| NO_EMBEDDED_HUB.to_owned())
            .and_then(|hub| {
                let (answer, ended) =
                    hub.with_subscriptions(|all| ask_subscriptions(all, about, now, db))?;
                if let Some(key) = ended {
                    hub.end_subscription(key, "removed by the hub's operator");
                }
                Ok(answer)
            });
        let answer = asked.unwrap_or_else(ControlReply::Error);
        // The records of the hub wait before it in the queue, and so are saved before it is answered.
        let _ = self.parts.inputs.send(Input::CommandDone(reply, answer));
    }

    /// Answers commands, and requests for the status. None is reported as done while a crash could undo it.
    fn send_replies(&mut self) {
        let now = self.parts.clock.now();
        for (reply, answer) in std::mem::take(&mut self.replies) {
            let answer = match answer {
                Err(answer) => answer,
                Ok(ControlRequest::Status) => {
                    ControlReply::Status(Box::new(self.status(Detail::Everything)))
                }
                Ok(request) => self.role.answer(request, now),
            };
            let answer = match &self.parts.saver.trouble {
                Some(trouble) if answer.is_change() => ControlReply::Error(format!(
                    "{trouble}; this takes effect once the state can be saved, and is lost if rsnotify stops before"
                )),
                _ => answer,
            };
            // The client may have disconnected.
            let _ = reply.send(answer);
        }
        for (detail, answer) in std::mem::take(&mut self.asks) {
            let _ = answer.send(self.status(detail));
        }
    }

    fn status(&mut self, detail: Detail) -> Status {
        let now = self.parts.clock.now();
        let mut last_day = self.last_day.clone();
        last_day.note_totals(self.delivery_totals(now));
        let parts = &self.parts;
        let trouble = parts.saver.trouble.clone();
        let (mut status, trouble) = match self.role.status(detail, now, parts) {
            Ok(status) => (status, trouble),
            Err(error) => {
                let error = error_chain(&parts.saver.file.load_error(error));
                (report::empty_status(now), trouble.or(Some(error)))
            }
        };
        status.unsaved = trouble;
        let hub = parts.hub.open.borrow().clone();
        status.embedded_hub = hub.as_ref().map(|hub| hub.status(now));
        if let (Detail::Subscriptions, Some(hub)) = (detail, hub) {
            // The page does not show the numbers that the state file has.
            status.subscriptions =
                hub.with_subscriptions(|subscriptions| subscriptions.list(now, &|_, _| None));
        }
        status.daemon = Some(self.daemon.clone());
        status.configuration = Some(self.configuration.clone());
        status.last_day = last_day.intervals.into();
        status.figures.counts = parts.counts.clone();
        status
    }

    /// Tells probes and the service manager the outcome of a step.
    fn report_health(&mut self, is_saved: bool) {
        let knowledge = self.role.end_step();
        // Mounts that were swept under the plan before are known.
        let is_known = knowledge != SweepReadiness::Partial;
        self.readiness.update(is_saved, is_known);
        if is_saved && knowledge == SweepReadiness::Complete && !self.is_ready {
            self.is_ready = true;
            info!("ready");
            self.service_manager.report_ready();
            self.parts.failpoints.arm();
        }
        if self.parts.stop_by.is_some() {
            return;
        }
        if self.noted.is_none_or(|noted| noted.elapsed() >= NOTED_EACH) {
            self.noted = Some(Instant::now());
            let totals = self.delivery_totals(self.parts.clock.now());
            self.last_day.note_totals(totals);
        }
        let (role, parts) = (&self.role, &self.parts);
        let last = self.configuration.refused.as_ref();
        let refused = last.map(|refused| refused.error.as_str());
        let service_manager = &mut self.service_manager;
        service_manager.report_status(|| match &parts.saver.trouble {
            Some(trouble) => unsaved_line(trouble),
            None => role.activity(refused, parts),
        });
    }

    /// Begins to shut down: begins no work and no delivery. A second call ends the wait.
    fn stop(&mut self) {
        let parts = &mut self.parts;
        if parts.stop_by.is_some() {
            parts.stop_by = Some(Instant::now());
            return;
        }
        info!("stopping");
        self.service_manager.report_stopping();
        parts.stop_by = Some(Instant::now() + SHUTDOWN_GRACE);
        self.role.stop();
        if let Some(hub) = parts.hub.linked.clone() {
            parts.hub.is_draining = true;
            let inputs = parts.inputs.clone();
            parts.runtime.spawn(async move {
                hub.drain().await;
                let _ = inputs.send(Input::HubDrained);
            });
        }
    }

    /// Returns what hubs, brokers and subscribers accepted and refused since the start, and what is pending now.
    fn delivery_totals(&mut self, now: Timestamp) -> IntervalDeliveries {
        let parts = &self.parts;
        let status = parts.hub.linked.as_ref().map(|hub| hub.status(now));
        let hub = status.unwrap_or_default();
        let deliveries = hub.counts.deliveries;
        let hubs = || parts.counts.hubs.values();
        let accepted: u64 = hubs().map(|counts| counts.accepted).sum();
        let refused: u64 = hubs().flat_map(|counts| counts.refused.values()).sum();
        let retries: u64 = hubs().map(|counts| counts.retries).sum();
        // Counted for each hub but an embedded one, which counts its own.
        let pending = report::pending_count(Db(self.role.connection())).unwrap_or_default();
        IntervalDeliveries {
            from: now,
            delivered: accepted + deliveries.delivered,
            failed: refused + deliveries.refused + deliveries.failed + deliveries.abandoned,
            retries: retries + deliveries.retries,
            pending: (pending + hub.owed) as u64,
            starts: 0,
        }
    }
}
