//! The engine: events in, effects out, all state within.
//!
//! It is made of parts that own their data: each of the [`Sources`] knows its documents, mounts, deletions and
//! findings, the [`Outbox`] what every hub was told and which submissions may go, the [`ChangeSets`] which entries of
//! Change Lists were taken, `EngineTimers` when something is to be done, and a `Step` collects what one event changes and
//! causes. [`Engine::step`] joins them.
//!
//! Nothing is derived from the order of events, only from what is seen and what was told.

mod change_findings;
mod change_rounds;
pub mod change_sets;
pub mod channels;
mod effects;
pub mod outbox;
mod reconciler;
mod replacement;
mod restore;
mod router;
pub mod source;
pub mod source_list;
mod step;
mod timers;

use std::collections::BTreeSet;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Uri};

use crate::announce::desired_channel::Configured;
use crate::announce::engine::change_rounds::ChangeRounds;
use crate::announce::engine::change_sets::ChangeSets;
use crate::announce::engine::change_sets::seen_lists::note_lists;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::effects::effects;
use crate::announce::engine::outbox::Outbox;
use crate::announce::engine::outbox::hubs::Hubs;
use crate::announce::engine::reconciler::Reconciler;
use crate::announce::engine::replacement::HubChanges;
use crate::announce::engine::restore::restore;
use crate::announce::engine::router::Router;
use crate::announce::engine::source::mounts::Visibility;
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::{EngineTimers, Timer};
use crate::announce::event::{Effect, Event, Now};
use crate::announce::history::History;
use crate::announce::ids::{ChannelId, SubmissionId};
use crate::announce::plan::Plan;
use crate::announce::state::State;
use crate::announce::time::earlier;

/// All of rsnotify's decisions.
#[derive(Debug)]
pub struct Engine {
    plan: Plan,
    configured: Configured,
    sources: Sources,
    outbox: Outbox,
    change_sets: ChangeSets,
    hub_changes: HubChanges,
    timers: EngineTimers,
    step: Step,
}

impl Engine {
    /// Takes up where `state` ends, under a plan that may differ from the one it was made under. The plan's
    /// mounts must have the state's numbers ([`State::number_mounts`]). Configuration announces nothing (R13).
    pub fn new(plan: Plan, state: State, now: Now) -> (Engine, Vec<Effect>) {
        let mut step = Step::new(now);
        let restored = restore(state, &plan, &mut step);
        let mut engine = Engine {
            configured: Configured::new(&plan),
            sources: restored.sources,
            outbox: Outbox::restore(&plan, restored.channels),
            change_sets: restored.change_sets,
            hub_changes: restored.hub_changes,
            timers: EngineTimers::default(),
            step,
            plan,
        };
        let effects = engine.finish();
        (engine, effects)
    }

    /// Takes one event, and returns its effects in order.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.step.begin(now);
        self.note(event);
        self.expire();
        // All missing documents are counted before any of them counts as deleted (R15).
        self.sources.judge_deletions(&mut self.step);
        // Relations, what is due, channels: the order is in `settle_source`.
        self.settle();
        // Once, after all that is due is known.
        let (plan, step) = (&self.plan, &mut self.step);
        self.outbox.cut_ready(&self.sources, plan, step);
        self.sources.tell_lasting(step);
        self.outbox.dispatch(&mut self.sources, plan, step);
        self.finish()
    }

    /// Takes an operator's command, and nothing that follows from it: on a state that no daemon works on, that is
    /// for the next daemon to do, and to tell.
    pub fn amend(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.step.begin(now);
        self.note(event);
        self.finish()
    }

    /// Continues with what the engine before in this run remembers.
    pub fn inherit(&mut self, before: &mut Engine) {
        self.step.began = before.step.began;
        self.outbox.inherit(&mut before.outbox);
        self.change_sets.inherit(&before.change_sets);
        self.sources.inherit(&before.sources);
    }

    /// Awaits the answers to submissions of an engine before this one: until then nothing else is submitted instead of
    /// them.
    pub fn await_answers(&mut self, under_way: impl IntoIterator<Item = SubmissionId>) {
        self.outbox.await_answers(under_way);
    }

    /// Returns the time for a [`Event::Tick`], if nothing else happens before.
    pub fn wake(&self) -> Option<Timestamp> {
        let grace_end = self.sources.next_grace_end();
        self.timers.next().into_iter().chain(grace_end).min()
    }

    /// Compares what was seen with what was told, as a stored state has both: for a command where no daemon
    /// runs, and so nobody looks at the tree. It has no effects.
    pub fn take_stock(&mut self, now: Timestamp) {
        self.step.begin(now.into());
        for position in 0..self.sources.len() {
            let source = &mut self.sources[position];
            source.tree.judge_suspension(&mut self.step);
            source.documents_mut().expire_free_holds();
            self.reconciler(position).all_documents();
        }
        self.step.take();
    }

    /// Makes each document that a list names, and of which there is no file, a finding of its own.
    pub fn find_each(&mut self) {
        self.sources.find_each();
    }

    // Read-only access to the parts.

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the sources, in the order of the plan.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    pub fn channels(&self) -> &Channels {
        self.outbox.channels()
    }

    /// Takes the channels on which something may have changed since the last call, removed ones too.
    pub fn take_changed_channels(&mut self) -> BTreeSet<ChannelId> {
        self.outbox.channels_mut().take_changed()
    }

    pub fn change_sets(&self) -> &ChangeSets {
        &self.change_sets
    }

    pub fn hubs(&self) -> &Hubs {
        self.outbox.hubs()
    }

    /// Returns the hubs that were configured once, and are no more.
    pub fn former_hubs(&self) -> &BTreeSet<Hub> {
        self.hub_changes.former()
    }

    pub fn history(&self) -> &History {
        self.outbox.history()
    }

    /// Returns the moment of the last step.
    pub fn now(&self) -> Timestamp {
        self.step.now()
    }

    // The steps of a step.

    /// Notes what an event changed.
    fn note(&mut self, event: Event) {
        let step = &mut self.step;
        match event {
            Event::Observed(_)
            | Event::Explained(_)
            | Event::MountFound { .. }
            | Event::MountLost { .. }
            | Event::Swept { .. }
            | Event::Unreadable { .. }
            | Event::Nested { .. } => {
                self.sources.note(event, step);
                for (position, visibility) in self.sources.take_visibility_changes() {
                    match visibility {
                        Visibility::Lost => self.change_sets.stop_watching(position),
                        // Only the next round sees which resources are absent from Resource Lists.
                        Visibility::Whole
                            if self.sources[position].plan().changes_from_resource_lists => {}
                        Visibility::Whole => self.change_sets.watch(position, step),
                    }
                }
            }
            Event::Answered {
                channel,
                hub,
                seq,
                answer,
                jitter,
            } => {
                let submission = (channel, hub, seq);
                let (sources, plan) = (&mut self.sources, &self.plan);
                let set = self
                    .outbox
                    .answered(&submission, &answer, jitter, sources, plan, step);
                self.begin_round(set);
            }
            Event::Taken(round) => self.rounds().end(*round),
            Event::Fetched(topic) => self.outbox.fetched(&topic, step),
            Event::Accept { source } => {
                if let Ok(position) = self.plan.source_named(&source) {
                    self.sources[position].tree.accept(step);
                    self.change_sets.accept(position, step);
                }
            }
            Event::HubChanged(hub) => self.outbox.reached_otherwise(&hub),
            Event::Retry { only } => self.outbox.retry(only.as_ref(), step),
            Event::Drop { channel, hub } => {
                let (sources, plan) = (&mut self.sources, &self.plan);
                let set = self.outbox.drop_due(channel, &hub, sources, plan, step);
                self.begin_round(set);
            }
            Event::Tick => {}
        }
    }

    /// Handles every timer and every grace that has expired.
    fn expire(&mut self) {
        self.timers.set(self.step.take_timers());
        while let Some(timer) = self.timers.take_expired(self.step.now()) {
            self.handle(timer);
            self.timers.set(self.step.take_timers());
        }
        self.sources.end_graces(&mut self.step);
    }

    fn handle(&mut self, timer: Timer) {
        let step = &mut self.step;
        let window = &self.plan.window;
        match timer {
            Timer::Window(channel) => {
                let channels = self.outbox.channels_mut();
                channels.cuts.close_window(channel, window, step);
            }
            Timer::Changes(set) => self.rounds().begin(&set),
            Timer::Try(channel, hub) => self.outbox.try_again(channel, &hub, step),
            // The end of each step dispatches what may go now.
            Timer::Probe(_) => {}
            Timer::Refusals(hub) => self.outbox.hubs_mut().sum_up_refusals(&hub, step),
            Timer::Ping(channel, hub) => self.outbox.ping_lasted(channel, &hub, step),
            Timer::Retired(id) => {
                let (sources, sets) = (&mut self.sources, &mut self.change_sets);
                self.outbox
                    .retirement_ends(id, sources, sets, &self.plan, step);
            }
            Timer::Left(id, hub) => {
                let (sources, plan) = (&mut self.sources, &self.plan);
                let set = self.outbox.leaving_ends(id, &hub, sources, plan, step);
                self.begin_round(set);
            }
            Timer::Hold(position, uri) => {
                let documents = self.sources[position].documents_mut();
                documents.hold_expires(&uri, window.hold, step);
            }
            Timer::Broken(position, uri) => self.sources[position].trouble_lasted(&uri, step),
            Timer::Finding(position, uri) => self.sources[position].findings_lasted(&uri, step),
            Timer::FindingKind(position, kind) => {
                let findings = self.sources[position].findings_mut();
                findings.tell_untold(kind, step);
            }
        }
    }

    /// Begins the next round of a set, of which a hub may have been told everything, if it is due (C20).
    fn begin_round(&mut self, set: Option<Uri>) {
        if let Some(set) = set {
            self.rounds().begin(&set);
        }
    }

    fn settle(&mut self) {
        // A channel that retires may leave its topic to a set of another source, and that is all.
        for _ in 0..2 {
            for position in 0..self.sources.len() {
                if self.sources[position].is_settled() {
                    self.outbox.channels_mut().unpark(position);
                    self.change_sets.unpark(position, &mut self.step);
                    self.settle_source(position);
                }
            }
            let freed = self.outbox.channels_mut().take_freed();
            if !freed.is_empty() {
                self.sources.offer_topics(&freed);
            }
        }
        self.change_sets
            .forget_without_channel(self.outbox.channels(), &mut self.step);
    }

    /// Settles what changed in a source, in the order in which one follows from the other.
    fn settle_source(&mut self, position: usize) {
        let Some(mut changes) = self.sources[position].documents_mut().take_changes() else {
            return;
        };
        let is_first = self.sources[position].documents().revision() == 1;
        if is_first {
            let channels = self.outbox.channels().of_source(position);
            changes
                .sets
                .extend(channels.map(|(_, channel)| channel.row.set.clone()));
        }
        let documents = self.sources[position].documents_mut();
        let mut affected = documents.relate(&mut changes, &mut self.step);
        self.reconciler(position)
            .documents(&affected, &changes.changed);
        let (quiet, now) = (self.plan.window.quiet, self.step.now());
        self.sources[position].remember_descriptions(&changes, quiet, now);

        let mut rerouted = self.router(position, is_first).route(&changes);
        self.reconciler(position)
            .documents(&rerouted, &changes.changed);
        let source = &self.sources[position];
        let (window, step) = (&self.plan.window.changes, &mut self.step);
        note_lists(
            &mut self.change_sets,
            source,
            window,
            &affected,
            &changes,
            step,
        );

        // Sets are joined by `append`, which merges: they may hold every document of the source.
        affected.append(&mut rerouted);
        affected.append(&mut changes.sets);
        self.sources[position].find(&mut affected, &changes, &mut self.step);
        let mut reconciler = self.reconciler(position);
        for uri in &affected {
            reconciler.forget_if_done(uri);
        }
    }

    /// Returns a source with the channels, to bring the accounts of hubs up to date with it.
    fn reconciler(&mut self, position: usize) -> Reconciler<'_> {
        let source = &mut self.sources[position];
        self.outbox.reconciler(source, &self.plan, &mut self.step)
    }

    /// Returns a source with the channels, to bring these in line with what it advertises.
    fn router(&mut self, position: usize, is_first: bool) -> Router<'_> {
        Router {
            plan: &self.plan,
            configured: &self.configured,
            hub_changes: &self.hub_changes,
            position,
            is_first,
            sources: &mut self.sources,
            outbox: &mut self.outbox,
            change_sets: &mut self.change_sets,
            step: &mut self.step,
        }
    }

    /// Returns the sets with a change channel, to begin and end their rounds.
    fn rounds(&mut self) -> ChangeRounds<'_> {
        ChangeRounds {
            change_sets: &mut self.change_sets,
            sources: &mut self.sources,
            outbox: &mut self.outbox,
            plan: &self.plan,
            step: &mut self.step,
        }
    }

    /// Returns the effects of the step: what is saved comes before what is sent.
    fn finish(&mut self) -> Vec<Effect> {
        self.timers.set(self.step.take_timers());
        let topic_since = earlier(self.step.now(), self.plan.topic_window);
        effects(
            self.step.take(),
            &self.plan,
            &self.sources,
            self.outbox.channels(),
            topic_since,
        )
    }
}
