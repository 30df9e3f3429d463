//! The outbox: the channels, the submissions that may go to each hub, and what became of the last notifications.
//!
//! A notification that is cut, accepted, withdrawn or dropped concerns all three. A `Cutter` cuts it, a `Dispatcher` submits
//! it, an `AnswerHandler` handles the answer; what is retried before its time is retried here, and what is dropped, with a
//! hub or a channel that goes or because an operator wants it, is dropped here.

mod answer;
pub mod change_log;
mod cutter;
mod dispatcher;
pub mod hubs;
pub mod page;
mod ping;

use std::collections::{BTreeMap, BTreeSet};

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::answer::Answer;

use crate::announce::changes::interval::FreshChange;
use crate::announce::changes::round::TakenList;
use crate::announce::channel::Channel;
use crate::announce::due::{Due, due};
use crate::announce::engine::change_sets::ChangeSets;
use crate::announce::engine::channels::Channels;
use crate::announce::engine::outbox::answer::AnswerHandler;
use crate::announce::engine::outbox::change_log::{cut_changes, fall_behind, go_on_from, trim_log};
use crate::announce::engine::outbox::cutter::Cutter;
use crate::announce::engine::outbox::dispatcher::Dispatcher;
use crate::announce::engine::outbox::hubs::Hubs;
use crate::announce::engine::reconciler::Reconciler;
use crate::announce::engine::source::Source;
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::engine::timers::Timer;
use crate::announce::event::Fact;
use crate::announce::history::{Fate, History, recalled};
use crate::announce::ids::{ChannelId, SubmissionId};
use crate::announce::ledger::Prepared;
use crate::announce::plan::Plan;
use crate::announce::state::Told;

/// All channels, with the queues of their hubs, and the outcomes of the last notifications.
#[derive(Debug)]
pub struct Outbox {
    channels: Channels,
    hubs: Hubs,
    history: History,
}

impl Outbox {
    /// Makes the outbox of restored channels.
    pub fn restore(plan: &Plan, channels: Channels) -> Outbox {
        Outbox {
            hubs: Hubs::new(plan),
            history: recalled(channels.iter()),
            channels,
        }
    }

    pub fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Returns the channels, to change which there are and what their hubs are due.
    pub fn channels_mut(&mut self) -> &mut Channels {
        &mut self.channels
    }

    pub fn hubs(&self) -> &Hubs {
        &self.hubs
    }

    /// Returns the queues of hubs, to report what hubs refused.
    pub fn hubs_mut(&mut self) -> &mut Hubs {
        &mut self.hubs
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns a source with the channels, to bring the accounts of hubs up to date with it.
    pub fn reconciler<'a>(
        &'a mut self,
        source: &'a mut Source,
        plan: &'a Plan,
        step: &'a mut Step,
    ) -> Reconciler<'a> {
        Reconciler::new(source, &mut self.channels, &plan.window, step)
    }

    // Another engine.

    /// Continues the outbox of an engine with another plan.
    pub fn inherit(&mut self, before: &mut Outbox) {
        self.hubs.inherit(&mut before.hubs);
        self.history = std::mem::take(&mut before.history);
    }

    /// Awaits the answers to submissions of an engine before this one: until then nothing else is submitted instead of
    /// them.
    pub fn await_answers(&mut self, under_way: impl IntoIterator<Item = SubmissionId>) {
        for (id, hub, seq) in under_way {
            // A new channel must not receive the answer to one that was removed.
            self.channels.reserve(id);
            if let Some(ledger) = self.channels.ledger_mut(id, &hub) {
                ledger.sending = Some(seq);
                if let Some(queue) = self.hubs.get_mut(&hub) {
                    queue.remove(id);
                    queue.sent(id, seq);
                }
            }
        }
    }

    // Notifications that are cut and submitted.

    /// Cuts the changes that a round found in some lists into notifications, and adds them to the log of a change channel,
    /// in memory and in the state (C13 to C19). Hubs that are too far behind for them fall behind (C22). Returns the numbers
    /// of entries that are told without their datetime, by the position of the list (C15).
    pub fn cut_changes(
        &mut self,
        id: ChannelId,
        changes: Vec<FreshChange>,
        lists: &[TakenList],
        plan: &Plan,
        step: &mut Step,
    ) -> BTreeMap<usize, usize> {
        let Some(channel) = self.channels.get_mut(id) else {
            return BTreeMap::new();
        };
        let cut = cut_changes(channel, id, changes, lists, &plan.window, step);
        for notification in cut.notifications {
            self.history.push(notification);
        }
        fall_behind(channel, id, plan.window.changes.backlog, step);
        trim_log(channel, id, plan, step);
        if let (false, Some(until)) = (channel.is_live(), channel.told_until()) {
            let set = channel.row.set.clone();
            if let Some(live) = self.channels.live(&set, ChannelKind::Change) {
                go_on_from(&mut self.channels, live, until, step);
            }
        }
        step.serve(id);
        self.channels.cuts.set_ready(id);
        cut.back_dated
    }

    /// Cuts the next notifications of all channels that are ready.
    pub fn cut_ready(&mut self, sources: &Sources, plan: &Plan, step: &mut Step) {
        let ready = self.channels.cuts.take_ready();
        let mut cutter = Cutter {
            outbox: self,
            sources,
            plan,
            step,
        };
        for id in ready {
            cutter.cut(id);
        }
    }

    /// Submits what may go now (R23).
    pub fn dispatch(&mut self, sources: &mut Sources, plan: &Plan, step: &mut Step) {
        let mut dispatcher = Dispatcher {
            outbox: self,
            sources,
            plan,
            step,
        };
        dispatcher.dispatch();
    }

    // Answers of hubs, and fetches.

    /// Handles the answer to a submission. On a change channel, returns the set whose next round may begin now, as the hub
    /// may have been told everything (C20).
    pub fn answered(
        &mut self,
        submission: &SubmissionId,
        answer: &Answer,
        jitter: f64,
        sources: &mut Sources,
        plan: &Plan,
        step: &mut Step,
    ) -> Option<Uri> {
        let mut handler = AnswerHandler {
            outbox: self,
            sources,
            plan,
            step,
        };
        handler.handle(submission, answer, jitter)
    }

    /// Notes that a topic was fetched (R24).
    pub fn fetched(&mut self, topic: &Topic, step: &mut Step) {
        let id = self.channels.of_topic(topic);
        if let Some((id, channel)) = id.and_then(|id| Some((id, self.channels.get_mut(id)?))) {
            ping::fetched(channel, id, step);
        }
    }

    /// Handles the end of the least time between two pings of a hub, and of that within which it should have fetched the
    /// topic (R24, R26).
    pub fn ping_lasted(&mut self, id: ChannelId, hub: &Hub, step: &mut Step) {
        self.channels.cuts.set_ready(id);
        if let Some(channel) = self.channels.get_mut(id) {
            ping::report_unfetched(channel, id, hub, step);
        }
    }

    // Retries.

    /// Retries a notification, if it is time.
    pub fn try_again(&mut self, id: ChannelId, hub: &Hub, step: &mut Step) {
        let ledger = self.channels.ledger(id, hub);
        let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
        if flight.is_some_and(|flight| flight.next_try <= step.now()) {
            self.hubs.enqueue(&mut self.channels, id, hub, step);
        }
    }

    /// Retries now the notifications that wait for their next attempt: of one hub on one channel, or all. Submissions
    /// under way are left to their answers.
    pub fn retry(&mut self, only: Option<&(ChannelId, Hub)>, step: &mut Step) {
        let now = step.now();
        let mut notifications = 0;
        for (id, channel) in self.channels.iter_mut() {
            for (hub, ledger) in &mut channel.ledgers {
                let is_meant = only.is_none_or(|(meant, name)| *meant == id && name == hub);
                if !is_meant || ledger.sending.is_some() {
                    continue;
                }
                let Some(flight) = &mut ledger.row.flight else {
                    continue;
                };
                flight.next_try = now;
                notifications += 1;
                step.save_ledger(id, hub.clone());
                step.wake_at(now, Timer::Try(id, hub.clone()));
                if let Some(queue) = self.hubs.get_mut(hub) {
                    match only {
                        Some(_) => queue.push_asked_for(id),
                        None => queue.hurry(now),
                    }
                }
            }
        }
        if notifications > 0 {
            step.tell(Fact::Retried { notifications });
        }
    }

    /// Notes that the address or the credentials of a hub changed. A submission under way used the old ones, so it is
    /// repeated at once unless it is accepted.
    pub fn reached_otherwise(&mut self, hub: &Hub) {
        for (_, channel) in self.channels.iter_mut() {
            if let Some(ledger) = channel.ledgers.get_mut(hub) {
                ledger.is_answer_old = ledger.sending.is_some() && ledger.row.flight.is_some();
            }
        }
    }

    // Drops, and the ends of accounts and channels.

    /// Counts as told what is in flight to a hub on a channel and what it is due, whether its window is open or not
    /// (R23). Changes that are held (R17) and documents that are missing (R15) are not announced yet, so they stay; the
    /// topic and other hubs keep what they have. A submission under way is forgotten: its answer only makes room for
    /// the next one. On a change channel, returns the set whose next round may begin now (C20).
    pub fn drop_due(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        sources: &mut Sources,
        plan: &Plan,
        step: &mut Step,
    ) -> Option<Uri> {
        let channel = self.channels.get(id)?;
        let ledger = channel.ledgers.get(hub)?;
        let source = &mut sources[channel.source];
        let topic = channel.row.topic.clone();
        let owed: BTreeSet<Uri> = ledger.owed().cloned().collect();
        if channel.is_of_changes() {
            let set = channel.row.set.clone();
            let is_sending = ledger.sending.is_some();
            let changes = self.drop_logged(id, hub, plan, step);
            if changes > 0 || is_sending {
                self.hubs.forget(&self.channels, id, hub);
                self.reconciler(source, plan, step).end_accounts(id);
                step.tell(Fact::CountedAsTold {
                    topic,
                    hub: hub.clone(),
                    changes,
                });
            }
            return Some(set);
        }
        if owed.is_empty() {
            return None;
        }
        let becomes = told_if_dropped(channel, hub, &owed, source);
        let ledger = self.channels.ledger_mut(id, hub)?;
        let flight = ledger.drop_due(becomes);
        if let Some(flight) = flight {
            self.history.note(id, flight.seq, hub, Fate::Dropped);
        }
        self.hubs.forget(&self.channels, id, hub);
        step.save_ledger(id, hub.clone());
        self.reconciler(source, plan, step)
            .told(id, hub, owed.iter());
        step.tell(Fact::CountedAsTold {
            topic,
            hub: hub.clone(),
            changes: owed.len(),
        });
        None
    }

    /// Counts everything that was logged as told to a hub. Returns the number of changes.
    fn drop_logged(&mut self, id: ChannelId, hub: &Hub, plan: &Plan, step: &mut Step) -> usize {
        let Some(channel) = self.channels.get_mut(id) else {
            return 0;
        };
        let Some(ledger) = channel.ledgers.get_mut(hub) else {
            return 0;
        };
        let changes = channel.log.backlog(&ledger.row.position).entries;
        let last = ledger.row.position.last.unwrap_or(channel.row.seq);
        ledger.row.position.skip(last);
        if let Some(flight) = ledger.drop_due(Vec::new()) {
            self.history.note(id, flight.seq, hub, Fate::Dropped);
        }
        step.save_ledger(id, hub.clone());
        trim_log(channel, id, plan, step);
        changes
    }

    /// Drops what a hub that left could not be told for so long (R11). On a change channel, returns the set whose next
    /// round may begin now (C20).
    pub fn leaving_ends(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        sources: &mut Sources,
        plan: &Plan,
        step: &mut Step,
    ) -> Option<Uri> {
        let channel = self.channels.get_mut(id)?;
        let source = &mut sources[channel.source];
        let topic = channel.row.topic.clone();
        let ledger = channel.ledgers.get_mut(hub)?;
        let left = ledger.row.left?;
        let end = step.end_of(left, plan.retired_topic);
        if end > step.now() {
            step.wake_at(end, Timer::Left(id, hub.clone()));
            return None;
        }
        step.save_ledger(id, hub.clone());
        let set = channel.is_of_changes().then(|| channel.row.set.clone());
        let changes = match set {
            Some(_) => self.drop_logged(id, hub, plan, step),
            None => self.drop_documents(id, hub, source, step),
        };
        if changes > 0 {
            self.hubs.forget(&self.channels, id, hub);
            step.tell(Fact::Dropped {
                topic,
                hub: hub.clone(),
                changes,
            });
        }
        self.reconciler(source, plan, step).end_accounts(id);
        set
    }

    /// Drops what a hub that left is still owed of documents. Returns their number.
    fn drop_documents(
        &mut self,
        id: ChannelId,
        hub: &Hub,
        source: &mut Source,
        step: &mut Step,
    ) -> usize {
        let Some(ledger) = self.channels.ledger_mut(id, hub) else {
            return 0;
        };
        let owed: Vec<Uri> = ledger.owed().cloned().collect();
        let changes = owed.len();
        let catalog = source.catalog();
        let withdrawn = ledger.withdraw(|uri| catalog.is_away(uri));
        ledger.due.clear();
        ledger.row.still_due = Some(BTreeSet::new());
        ledger.prepared = Prepared::default();
        for uri in withdrawn.doubtful {
            step.save_told(id, hub.clone(), uri);
        }
        source.documents_mut().reconsider(owed);
        changes
    }

    /// Removes a retired channel that was kept for long enough (R11).
    pub fn retirement_ends(
        &mut self,
        id: ChannelId,
        sources: &mut Sources,
        change_sets: &mut ChangeSets,
        plan: &Plan,
        step: &mut Step,
    ) {
        let Some(channel) = self.channels.get_mut(id) else {
            return;
        };
        let Some(retired) = channel.row.retired else {
            return;
        };
        let end = step.end_of(retired, plan.retired_topic);
        if end > step.now() {
            step.wake_at(end, Timer::Retired(id));
            return;
        }
        self.remove(id, sources, change_sets, step);
    }

    /// Removes a channel that retired long ago, or whose topic one of another kind has now (C9), and drops what was due on
    /// it.
    pub fn remove(
        &mut self,
        id: ChannelId,
        sources: &mut Sources,
        change_sets: &mut ChangeSets,
        step: &mut Step,
    ) {
        let Some(channel) = self.channels.remove(id, step) else {
            return;
        };
        for (hub, ledger) in &channel.ledgers {
            let documents = sources[channel.source].documents_mut();
            documents.account_ended(ledger);
            let changes = channel.due_changes(ledger);
            if changes > 0 {
                self.hubs.forget(&self.channels, id, hub);
                step.tell(Fact::DroppedWithChannel {
                    topic: channel.row.topic.clone(),
                    hub: hub.clone(),
                    changes,
                });
            }
        }
        if channel.is_of_changes() {
            let until = channel.told_until();
            change_sets.end_channel(&channel.row.set, id, until, step);
        }
    }
}

/// Returns the versions that count as told once what a hub is owed is dropped; nothing of a document that ended.
fn told_if_dropped(
    channel: &Channel,
    hub: &Hub,
    owed: &BTreeSet<Uri>,
    source: &Source,
) -> Vec<(Uri, Option<Told>)> {
    let ledger = channel.ledgers.get(hub);
    let flight = ledger.and_then(|ledger| ledger.row.flight.as_ref());
    let covers = flight.into_iter().flat_map(|flight| &flight.covers);
    let flying: BTreeMap<&Uri, Option<Told>> = covers.map(|(uri, told)| (uri, *told)).collect();
    let becomes = owed.iter().filter_map(|uri| {
        let told = match due(source.plan(), source.catalog(), channel, hub, uri) {
            Due::Announce(announcement) => announcement.becomes,
            Due::Held | Due::Missing => *flying.get(uri)?,
            // The change in flight was undone: there is nothing to announce.
            Due::Acknowledged | Due::Absorbed(_) => return None,
        };
        Some((uri.clone(), told))
    });
    becomes.collect()
}
