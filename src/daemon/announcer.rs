//! The work of `rsnotify run`: the engine, the trees that it hears of, and what submits and serves its notifications.

mod daemon;
mod hubs;
mod watched_trees;

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Topic;
use rusqlite::Connection;
use tracing::{debug, info, warn};
use websub::answer::Answer;
use websub::http::{Clock, lock};
use websub::topics::http::Topics;

use crate::config::Config;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::Daemon;
use crate::daemon::announcer::hubs::Submissions;
use crate::daemon::announcer::watched_trees::{WatchedTrees, drop_elsewhere};
use crate::daemon::change_reader::{ChangeReader, RoundJob};
use crate::daemon::event_loop::commands::{answer, command_event, outcome};
use crate::daemon::event_loop::{DaemonRole, Input, LoopParts, SweepReadiness};
use crate::daemon::failpoints::Failpoint;
use crate::daemon::log::{self, error_chain};
use crate::report;
use crate::report::status::words::counted;
use crate::report::status::{Detail, Status};
use crate::report::summary::{sweeping_line, unsaved_line};
use crate::tree::TreeReport;
use announce::changes::round::{RoundOutcome, RoundRequest};
use announce::event::{Effect, Event};
use announce::observation::Observation;
use announce::plan::PublishMode;
use announce::state;
use announce::state::open::StateFileError;
use announce::steps::change_sets;
use announce::steps::engine::Engine;
use announce::time::{StepClocks, earlier};

/// Observations that fill a step, so that the loop never stalls.
const MAX_OBSERVATIONS: usize = 1024;

/// Time for which the status shows that a hub fell behind.
const FELL_BEHIND_FOR: Duration = Duration::from_secs(24 * 3600);

/// Inputs of `rsnotify run` alone.
pub enum AnnouncerInput {
    Event(Event),
    /// Change Lists were read, as was requested, in so much time.
    Read(RoundRequest, RoundOutcome, Duration),
    /// A report of a tree, with the number of its generation: one of an earlier generation is ignored.
    Tree(u64, TreeReport),
}

/// Inputs of the loop of `rsnotify run`.
pub type RunInput = Input<AnnouncerInput>;

/// The parts of the loop of `rsnotify run`.
pub type RunParts = LoopParts<AnnouncerInput>;

/// The role of `rsnotify run`: the engine, and the parts that act for it.
pub struct Announcer {
    engine: Engine,
    trees: WatchedTrees,
    topics: Arc<Topics>,
    /// Topics served under the plan before, which this plan may not have: they are served until every tree is known.
    unclaimed: BTreeSet<Topic>,
    submissions: Submissions,
    change_reader: ChangeReader,
    /// The lists of changes that were there at the start were read once.
    has_learned: bool,
    /// What waits for a step.
    inputs: Vec<Event>,
    /// Effects to perform once what came with them is saved.
    effects: Vec<Effect>,
    /// The command among the inputs, and then the one that was executed, with its answer.
    commanded: Option<(ControlRequest, ControlReply)>,
}

impl Announcer {
    /// Keeps an event for the next step. While steps fail, a later look at a file replaces one before, and a topic is
    /// fetched once: what is kept does not grow with time.
    fn keep(&mut self, event: Event, is_failing: bool) {
        if is_failing && matches!(event, Event::Fetched(_)) && self.inputs.contains(&event) {
            return;
        }
        match (event, self.inputs.last_mut()) {
            (Event::Observed(seen), Some(Event::Observed(before))) if is_failing => {
                let is_new = |old: &Observation| seen.iter().all(|new| new.path != old.path);
                before.retain(is_new);
                before.extend(seen);
            }
            (event, _) => self.inputs.push(event),
        }
    }

    /// Takes a report of the trees that are in use.
    fn take_report(&mut self, report: TreeReport, parts: &mut RunParts) {
        let plan = &self.engine.plan;
        match report {
            TreeReport::Event(mut event) => {
                // R13: a change made while the daemon starts is one, although no tree is watched yet, so that a mount counts as
                // found when the daemon began.
                if let Event::MountFound { started, .. } = &mut event {
                    *started = self
                        .trees
                        .began
                        .map_or(*started, |began| began.min(*started));
                }
                if matches!(event, Event::Observed(_)) {
                    parts.failpoints.pass(Failpoint::Observed);
                }
                self.keep(event, parts.saver.trouble.is_some());
            }
            TreeReport::Sweeping { mount, files } => {
                self.trees.progress.insert(mount, files);
                let mut sources = plan.sources.iter();
                if let Some(mount) = sources.find_map(|source| source.mount(mount)) {
                    let (mount, found) = (mount.directory.display(), counted(files, "file"));
                    debug!(%mount, files, "sweeping {mount}, {found} so far");
                }
            }
            TreeReport::Swept {
                mount,
                complete,
                files,
                took,
                unwatched,
            } => {
                self.trees.progress.insert(mount, files);
                if let Some((_, source)) = plan.source_of(mount)
                    && let Some(mount) = source.mount(mount)
                {
                    let (mount, found) = (mount.directory.display(), counted(files, "file"));
                    let seconds = took.as_secs_f64();
                    debug!(%mount, files, seconds, "swept {mount}, {found}");
                    if complete {
                        let mount = (source.name.clone(), mount.to_string());
                        let sweeps = parts.counts.mounts.entry(mount).or_default();
                        sweeps.took.observe(took);
                        sweeps.last = Timestamp::now();
                        (sweeps.files, sweeps.unwatched) = (files, unwatched);
                    }
                }
            }
            TreeReport::Notice(notice) if notice.is_warning() => warn!("{notice}"),
            TreeReport::Notice(notice) => info!("{notice}"),
        }
    }

    fn perform_effect(&mut self, effect: Effect, parts: &mut RunParts) {
        match effect {
            Effect::Serve(page) => {
                self.unclaimed.remove(&page.topic);
                self.topics.serve_page(page);
                parts.failpoints.pass(Failpoint::Served);
            }
            Effect::Withdraw(topic) => {
                self.topics.withdraw(&topic);
                if let Some(hub) = &parts.hub.linked {
                    hub.end_topic(&topic);
                }
            }
            // It was cut just before the stop: it is sent at the next start.
            Effect::Submit(_) if parts.stop_by.is_some() => {}
            // The embedded hub accepts by owing each subscriber a delivery, which is saved with the acceptance: a crash
            // before that repeats it.
            Effect::Submit(submission) if submission.mode == PublishMode::Embedded => {
                let Some(hub) = &parts.hub.linked else {
                    return;
                };
                let relay = hub.number_relay(submission.as_relay());
                parts.saver.unsaved.owed.extend(relay);
                self.inputs.push(Event::Answered {
                    id: (submission.channel, submission.hub, submission.seq),
                    answer: Answer::ACCEPTED,
                    jitter: 0.0,
                });
            }
            Effect::Submit(submission) => self.submissions.submit(submission, parts),
            Effect::Take(request) => {
                parts.failpoints.pass(Failpoint::Reading);
                let keys = parts.saver.file.path.clone();
                let recent_keys = self.trees.recent_keys.clone();
                let job = RoundJob::new(*request, &self.engine.plan, keys, recent_keys);
                self.change_reader.enqueue(job);
            }
            Effect::Look(paths) => {
                let trees = self.trees.current.iter().flat_map(|it| &it.trees);
                trees.for_each(|tree| tree.request_looks(paths.clone()));
            }
            Effect::Explain(paths) => {
                let trees = self.trees.current.iter().flat_map(|it| &it.trees);
                trees.for_each(|tree| tree.request_explanations(paths.clone()));
            }
            Effect::Tell(fact) => {
                parts.counts.count_fact(&fact, Timestamp::now());
                log::log_fact(&fact);
            }
        }
    }

    fn has_swept_all(&self) -> bool {
        let mut sources = self.engine.live.sources.iter();
        sources.all(|source| source.is_swept())
    }
}

/// Returns true for an event that says what a hub did: a power failure may undo that it is saved, since the hub is asked
/// again then.
fn is_answer(event: &Event) -> bool {
    matches!(event, Event::Answered { .. } | Event::Fetched(_))
}

/// Returns true for an effect that somebody outside sees: a power failure may not undo that it is saved.
fn is_externally_visible(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Submit(_) | Effect::Serve(_) | Effect::Withdraw(_)
    )
}

/// Returns the moment of a step.
fn read_clocks(clock: Clock) -> StepClocks {
    StepClocks {
        now: clock.now(),
        wall: Timestamp::now(),
    }
}

impl DaemonRole for Announcer {
    type Input = AnnouncerInput;
    type Config = Config;

    const UNSAVED_CHANGES: &'static str = ", which are detected again at the next start";

    fn apply_config(daemon: &mut Daemon<Announcer>, config: &Config) -> anyhow::Result<()> {
        daemon.apply_config(config)
    }

    fn take_input(&mut self, input: AnnouncerInput, parts: &mut RunParts) {
        let is_failing = parts.saver.trouble.is_some();
        match input {
            AnnouncerInput::Event(event) => {
                self.submissions.note_answer(&event);
                self.keep(event, is_failing);
            }
            AnnouncerInput::Read(request, outcome, took) => {
                let source = self.engine.db().first::<String>(
                    "SELECT s.name FROM document d CROSS JOIN source s ON s.id = d.source WHERE d.uri = ?1",
                    &request.set,
                );
                if let Ok(Some(source)) = source {
                    parts.counts.count_round(&source, &request, &outcome, took);
                }
                let answer = Box::new(request.answer_with(outcome));
                self.keep(Event::Taken(answer), is_failing);
            }
            AnnouncerInput::Tree(number, report) => {
                let current = self.trees.current.as_ref();
                if let Some(current) = current.filter(|trees| trees.number == number) {
                    let _ = current.waiting.try_recv();
                    self.take_report(report, parts);
                }
            }
        }
    }

    fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }

    fn is_step_full(&self) -> bool {
        let observations = self.inputs.iter().map(|event| match event {
            Event::Observed(seen) => seen.len(),
            _ => 0,
        });
        observations.sum::<usize>() >= MAX_OBSERVATIONS
    }

    fn wake_time(&self) -> Option<Timestamp> {
        self.engine.wake
    }

    fn commit_step(
        &mut self,
        parts: &mut RunParts,
        is_awaited: bool,
    ) -> Result<(), StateFileError> {
        let now = read_clocks(parts.clock);
        let (saver, failpoints) = (&mut parts.saver, &parts.failpoints);
        let changes = &saver.unsaved;
        let batch = mem::take(&mut self.inputs);
        let can_lag =
            !is_awaited && changes.is_empty() && !batch.is_empty() && batch.iter().all(is_answer);
        let synced = saver.file.sync_commits(&self.engine.connection, !can_lag);
        let stepped = synced.and_then(|()| {
            let beside = |db: state::Db<'_>, effects: &[Effect]| {
                failpoints.pass_step(false, &batch, effects, &changes.records);
                changes.write(db)
            };
            let stepped = self.engine.step(batch.clone(), now, beside);
            stepped.map_err(|error| saver.file.save_error(error))
        });
        let effects = match stepped {
            Ok(effects) => effects,
            Err(error) => {
                self.inputs = batch;
                return Err(error);
            }
        };
        failpoints.pass_step(true, &batch, &effects, &changes.records);
        if let Some((request, answer)) = &mut self.commanded {
            *answer = outcome(request, &effects);
        }
        let must_sync = can_lag && effects.iter().any(is_externally_visible);
        self.effects.extend(effects);
        if must_sync {
            // Nothing is sent that a power failure could take back.
            saver.file.probe(&self.engine.connection)?;
        }
        Ok(())
    }

    fn perform_effects(&mut self, parts: &mut RunParts) {
        for effect in mem::take(&mut self.effects) {
            self.perform_effect(effect, parts);
        }
        // Once every tree is known, no channel claims those that are left.
        if self.has_swept_all() {
            for topic in mem::take(&mut self.unclaimed) {
                self.perform_effect(Effect::Withdraw(topic), parts);
            }
        }
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.engine.connection
    }

    fn command(&mut self, request: &ControlRequest, now: Timestamp) -> Result<(), ControlReply> {
        if request.is_action() {
            let event = command_event(&self.engine.reader(now), request);
            self.inputs.push(event.map_err(ControlReply::Error)?);
            self.commanded = Some((request.clone(), outcome(request, &[])));
        }
        Ok(())
    }

    fn answer(&mut self, request: ControlRequest, now: Timestamp) -> ControlReply {
        if !request.is_action() {
            return answer(&self.engine.reader(now), request).unwrap_or_else(ControlReply::Error);
        }
        let executed = self.commanded.take().map(|(_, answer)| answer);
        executed.unwrap_or_else(|| ControlReply::Error("nothing was done".to_owned()))
    }

    fn status(&self, detail: Detail, now: Timestamp, parts: &RunParts) -> state::Result<Status> {
        let reader = self.engine.reader(now);
        let mut status = match detail {
            Detail::Everything => report::status(&reader)?,
            Detail::Figures | Detail::Subscriptions => report::outline(&reader)?,
        };
        let lately = earlier(now, FELL_BEHIND_FOR);
        let overflows = parts.counts.fell_behind.values();
        let fell_behind = overflows.filter(|behind| behind.last > lately);
        status.fell_behind = fell_behind.cloned().collect();
        let submissions = &self.submissions;
        status.unreached = lock(&submissions.unreached).values().cloned().collect();
        let figures = &mut status.figures;
        figures.hints = self
            .trees
            .hint_counts(&self.engine.plan, &parts.counts.hints);
        figures.attempts = submissions.submitter.durations();
        figures
            .attempts
            .extend(submissions.brokers.submit_durations());
        figures.topics = self.topics.request_counts();
        Ok(status)
    }

    fn end_step(&mut self) -> SweepReadiness {
        let is_settled = self.has_swept_all();
        if is_settled {
            let trees = &mut self.trees;
            (trees.began, trees.was_settled) = (None, false);
            trees.progress.clear();
            // If the state cannot be read, nothing is ready either.
            self.has_learned =
                self.has_learned || change_sets::is_learning(self.engine.db()).is_ok_and(|it| !it);
        }
        if is_settled && self.has_learned {
            SweepReadiness::Complete
        } else if self.trees.was_settled {
            SweepReadiness::CompleteBefore
        } else {
            SweepReadiness::Partial
        }
    }

    fn activity(&self, refused: Option<&str>, parts: &RunParts) -> String {
        if self.has_swept_all() {
            match report::summary(&self.engine.reader(parts.clock.now())) {
                Ok(summary) => summary.line(refused),
                Err(error) => unsaved_line(&error_chain(&error)),
            }
        } else {
            sweeping_line(self.trees.progress.values().sum())
        }
    }

    /// Stops watching: reports of the trees that are still queued count no more. The answers to submissions are awaited.
    fn stop(&mut self) {
        drop_elsewhere(self.trees.current.take());
    }

    fn is_done(&self) -> bool {
        self.submissions.under_way.is_empty() && !self.inputs.iter().any(is_answer)
    }

    fn log_unanswered(&self) {
        let requests = self.submissions.under_way.len();
        if requests > 0 {
            warn!(
                requests,
                "shutdown timeout: hubs did not answer in time; unanswered notifications are retried at the next start"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::{Hub, Topic, Uri};
    use websub::answer::Answer;
    use websub::topics::TopicPage;

    use super::{is_answer, is_externally_visible};
    use announce::event::{Effect, Event};
    use announce::state::ChannelId;

    #[test]
    fn what_somebody_outside_learns_may_not_be_lost_with_the_power() {
        let (channel, hub) = (ChannelId(1), Hub::new("https://hub.example/"));
        let topic = Topic::new("https://e.org/t");
        let answered = Event::Answered {
            id: (channel, hub.clone(), 1),
            answer: Answer::ACCEPTED,
            jitter: 0.0,
        };
        assert!(is_answer(&answered) && is_answer(&Event::Fetched(topic.clone())));
        for event in [
            Event::Tick,
            Event::Observed(Vec::new()),
            Event::Retry { only: None },
            Event::Drop { channel, hub },
        ] {
            assert!(!is_answer(&event), "{event:?}");
        }
        let page = TopicPage {
            topic: topic.clone(),
            capability_list: Uri::parse("https://e.org/cl.xml").unwrap(),
            hubs: Vec::new(),
            body: Vec::new().into(),
            report_fetches: false,
        };
        assert!(is_externally_visible(&Effect::Serve(page)));
        assert!(is_externally_visible(&Effect::Withdraw(topic)));
        assert!(!is_externally_visible(&Effect::Look(Vec::new())));
    }
}
