//! A step: a batch of events in one transaction, and the effects that follow once it is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use crate::changes::round::RoundRequest;
use crate::delivery::Submission;
use crate::event::{DropCause, Effect, Event, Fact};
use crate::history::{NotificationState, NotificationView, OutcomeView, SharedPayload};
use crate::observation::{DocumentPath, MountId, Observation};
use crate::plan::{Plan, PublishMode, SourcePlan};
use crate::time::{StepClocks, later};
use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::{Document, Form};
use resourcesync::uri::{Hub, Topic, Uri};

use crate::state::{AccountId, ChannelId, Db, DocId, HubId, Result, save_time};
use crate::steps::channels::Channel;
use crate::steps::documents::ChangedPart;
use crate::steps::findings::FindingLogLimit;
use crate::steps::live::{LiveSource, LiveState};
use crate::steps::{
    change_sets, channels, cut, deletions, delivery, documents, findings, lists, mounts, owed,
    relations, rounds, routing, served,
};

/// Documents that settle by one statement.
const SETTLED_AT_ONCE: usize = 1_024;

/// One step: what it works on, and what it has collected. State beside the transaction falls with it.
#[derive(Debug)]
pub struct Step<'a> {
    pub db: Db<'a>,
    pub plan: &'a Plan,
    pub live: &'a mut LiveState,
    pub now: Timestamp,
    pub wall: Timestamp,
    /// Documents that looks did not find, with those that were found at their paths (R14).
    pub successors: BTreeMap<DocId, Option<Observation>>,
    /// The row that was named last by a link `up`, and by `index`. Rows of documents are never deleted.
    pub named: [Option<(Uri, DocId)>; 2],
    /// Numbers of new rows of documents that the census does not have yet. `observe` leaves none.
    pub arrived: BTreeMap<(MountId, Capability, Form), usize>,
    /// Structural documents whose entries are to be noted, with their sources; without a document, they have none.
    pub entries: Vec<(usize, DocId, Option<Arc<Document>>)>,
    /// Documents to weigh at the end of the settling, besides those that are touched.
    pub weigh: BTreeSet<DocId>,
    /// Sets that lacked a topic which is free now, or are no longer configured.
    pub sets: BTreeMap<usize, BTreeSet<DocId>>,
    /// Documents that cannot be read for long.
    pub broken: Vec<(usize, Fact)>,
    /// Channels with accounts that may be due nothing any more.
    pub relieved: BTreeSet<ChannelId>,
    /// Channels with new changes, and those whose next notifications are cut now.
    pub touched_channels: BTreeSet<ChannelId>,
    pub ready: BTreeSet<ChannelId>,
    /// Topics that another set may take now.
    pub freed: BTreeSet<Topic>,
    /// Sets that lost a change channel, and may have another one at the end of the step.
    pub lost_channels: BTreeSet<DocId>,
    pub facts: Vec<Fact>,
    /// Notifications that were cut, and what became of those and others.
    pub made: Vec<(ChannelId, NotificationView)>,
    pub outcomes: Vec<(ChannelId, u64, OutcomeView)>,
    pub serve: BTreeSet<ChannelId>,
    pub withdraw: BTreeSet<Topic>,
    pub submit: Vec<Submission>,
    pub take: Vec<Box<RoundRequest>>,
    pub look: BTreeSet<DocumentPath>,
    pub explain: BTreeSet<DocumentPath>,
}

impl<'a> Step<'a> {
    pub fn new(db: Db<'a>, plan: &'a Plan, live: &'a mut LiveState, at: StepClocks) -> Step<'a> {
        Step {
            db,
            plan,
            live,
            now: at.now,
            wall: at.wall,
            successors: BTreeMap::new(),
            named: [None, None],
            arrived: BTreeMap::new(),
            entries: Vec::new(),
            weigh: BTreeSet::new(),
            sets: BTreeMap::new(),
            broken: Vec::new(),
            relieved: BTreeSet::new(),
            touched_channels: BTreeSet::new(),
            ready: BTreeSet::new(),
            freed: BTreeSet::new(),
            lost_channels: BTreeSet::new(),
            facts: Vec::new(),
            made: Vec::new(),
            outcomes: Vec::new(),
            serve: BTreeSet::new(),
            withdraw: BTreeSet::new(),
            submit: Vec::new(),
            take: Vec::new(),
            look: BTreeSet::new(),
            explain: BTreeSet::new(),
        }
    }

    /// Returns the source with this row, and its plan.
    pub fn source_with_row(&self, row: i64) -> Option<(&LiveSource, &'a SourcePlan)> {
        let position = self.live.source_position(row)?;
        Some((&self.live.sources[position], &self.plan.sources[position]))
    }

    /// Returns true if deletions of a source are announced that Framework Notification Table 2 does not have (R12).
    pub fn announces_all_deletions(&self, source: i64) -> bool {
        let source = self.source_with_row(source);
        source.is_some_and(|(_, plan)| plan.announce_all_deletions)
    }

    pub fn mode(&self, hub: HubId) -> Option<PublishMode> {
        self.live.hubs.get(&hub).map(|live| live.mode)
    }

    pub fn hub_uri(&self, hub: HubId) -> Result<Hub> {
        if let Some(live) = self.live.hubs.get(&hub) {
            return Ok(live.hub.clone());
        }
        self.db.one("SELECT uri FROM hub WHERE id = ?1", hub)
    }

    /// Reports changes that a hub was due and is not told, if there are any.
    pub fn report_dropped(
        &mut self,
        topic: &Topic,
        hub: HubId,
        changes: usize,
        cause: DropCause,
    ) -> Result<()> {
        if changes > 0 {
            self.facts.push(Fact::Dropped {
                topic: topic.clone(),
                hub: self.hub_uri(hub)?,
                changes,
                cause,
            });
        }
        Ok(())
    }

    /// Notes a notification that was cut for hubs.
    pub fn note_made(
        &mut self,
        channel: &Channel,
        seq: u64,
        changes: usize,
        body: &Arc<[u8]>,
        hubs: impl IntoIterator<Item = HubId>,
    ) -> Result<()> {
        let state = NotificationState::InFlight;
        let outcome = |hub| Ok(OutcomeView::new(self.hub_uri(hub)?, state));
        let made = NotificationView {
            kind: channel.kind,
            topic: channel.topic.clone(),
            seq,
            cut: self.now,
            changes: Some(changes),
            hubs: hubs.into_iter().map(outcome).collect::<Result<_>>()?,
            bytes: Some(body.len()),
            payload: Some(SharedPayload(Arc::clone(body))),
        };
        self.made.push((channel.id, made));
        Ok(())
    }

    /// Notes the outcome of a notification at a hub.
    pub fn note_outcome(
        &mut self,
        account: AccountId,
        seq: u64,
        outcome: NotificationState,
    ) -> Result<()> {
        let outcome = OutcomeView::new(self.hub_uri(account.1)?, outcome);
        self.outcomes.push((account.0, seq, outcome));
        Ok(())
    }

    /// Takes a batch of events, and handles what is due by now, if something was due (`is_due`) after the last step.
    pub fn take_events(&mut self, events: Vec<Event>, is_due: bool) -> Result<()> {
        for event in events {
            self.handle_event(event)?;
        }
        if is_due {
            delivery::retry_due(self)?;
            delivery::sum_up_refusals(self);
            served::end_ping_waits(self)?;
            channels::expire(self)?;
            self.end_holds()?;
            documents::report_unreadable(self)?;
            deletions::request_due_looks(self)?;
        }
        // All missing documents are counted before any of them counts as deleted (R15).
        for position in 0..self.plan.sources.len() {
            deletions::judge_deletions(self, position)?;
        }
        documents::replace_entries(self)?;
        // A channel that retires may leave its topic to a set of another source, and that is all.
        for _ in 0..2 {
            for position in 0..self.plan.sources.len() {
                if self.live.sources[position].is_swept() {
                    self.settle(position)?;
                }
            }
            let freed = take(&mut self.freed);
            if freed.is_empty() {
                break;
            }
            for position in 0..self.plan.sources.len() {
                for set in findings::sets_awaiting_freed(self, position, &freed)? {
                    let id = self.db.ensure_row(&set)?;
                    self.sets.entry(position).or_default().insert(id);
                }
            }
        }
        change_sets::forget_without_channel(self)?;
        rounds::begin_due(self)?;
        cut::open_windows(self)?;
        if is_due {
            // Last: what changes in the step in which a window ends is in its notification.
            cut::close_windows(self)?;
            findings::report_lasting(self)?;
        }
        cut::cut_ready(self)?;
        delivery::dispatch(self)?;
        save_time(self.db, self.now, self.wall)
    }

    /// Notes what an event says.
    pub fn handle_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Observed(observations) => documents::observe(self, observations)?,
            Event::Explained(explained) => {
                for (path, cause) in explained {
                    if let Some((position, plan)) = self.plan.source_of(path.mount)
                        && let Some(uri) = plan.uri_of(&path)
                    {
                        findings::explained(self, position, &uri, &cause)?;
                    }
                }
            }
            Event::MountFound {
                mount,
                identity,
                started,
            } => mounts::found(self, mount, identity, started)?,
            Event::MountLost { mount, reason } => mounts::lost(self, mount, reason)?,
            Event::Swept {
                mount,
                complete: true,
                candidates,
            } => mounts::end_sweep(self, mount, candidates)?,
            Event::Swept { mount, .. } => mounts::mark_absent(self, mount)?,
            Event::Unreadable {
                mount,
                directories,
                more,
            } => {
                if let Some((position, known)) = self.live.mount_mut(mount) {
                    known.unreadable = (directories, more);
                    change_sets::clear_watched_since(self, self.live.sources[position].id, false)?;
                }
            }
            Event::Nested { mount, nested } => mounts::set_nested(self, mount, nested)?,
            Event::Answered { id, answer, jitter } => {
                let (channel, hub, seq) = id;
                if let Some(hub) = self.live.hub_named(&hub) {
                    delivery::answered(self, (channel, hub), seq, &answer, jitter)?;
                }
            }
            Event::Taken(round) => rounds::end(self, *round)?,
            Event::Fetched(topic) => served::fetched(self, &topic)?,
            Event::Accept { source } => {
                if let Ok(position) = self.plan.source_position(&source) {
                    let documents = deletions::accept(self, position)?;
                    let resources =
                        change_sets::accept_missing(self, self.live.sources[position].id)?;
                    if documents + resources > 0 {
                        self.facts.push(Fact::Accepted {
                            source,
                            documents,
                            resources,
                        });
                    }
                }
            }
            Event::HubChanged(hub) => {
                if let Some(hub) = self.live.hub_named(&hub) {
                    delivery::retry_reconfigured(self, hub)?;
                }
            }
            Event::Retry { only } => {
                let only = only.map(|(id, hub)| Some((id, self.live.hub_named(&hub)?)));
                if only != Some(None) {
                    delivery::retry(self, only.flatten())?;
                }
            }
            Event::Drop { channel, hub } => {
                if let Some(hub) = self.live.hub_named(&hub) {
                    delivery::drop_due(self, (channel, hub))?;
                }
            }
            Event::Tick => {}
        }
        Ok(())
    }

    /// Ends the holds that have lasted: the changes are announced although nothing lists the documents (R17).
    fn end_holds(&mut self) -> Result<()> {
        let ended = self.db.all::<Vec<(DocId, Uri, Option<Uri>)>>(
            "SELECT d.id, d.uri, (SELECT s.uri FROM member m CROSS JOIN document s ON s.id = m.set_id \
             WHERE m.document = d.id ORDER BY s.uri LIMIT 1) FROM document d \
             WHERE d.held_until <= ?1 AND d.presence = 1 ORDER BY d.held_until",
            self.now,
        )?;
        for (id, uri, set) in ended {
            let expired = "hold = 2, held_until = NULL, touched = max(touched, 2)";
            self.db.update_document(id, expired, ())?;
            self.facts.push(Fact::HoldExpired { uri, set });
        }
        // A missing document is not announced; if it comes back, it may be listed by then.
        let again = later(self.now, self.plan.window.hold.max(Duration::from_secs(1)));
        let sql = "UPDATE document SET held_until = ?2 WHERE held_until <= ?1";
        self.db.run(sql, (self.now, again))
    }

    /// Settles what changed in a source, in the order in which one follows from the other.
    fn settle(&mut self, position: usize) -> Result<()> {
        let source = &self.live.sources[position];
        let (id, is_first) = (source.id, !source.has_settled);
        let freed = self.sets.remove(&position);
        let sql = "SELECT 1 FROM document WHERE source = ?1 AND touched > 0";
        let is_quiet = !is_first && freed.is_none() && self.weigh.is_empty();
        if is_quiet && !self.db.exists(sql, id)? {
            return Ok(());
        }
        // Of a new state, all are touched.
        if !is_first || !self.live.is_new {
            relations::touch_dependents(self, relations::OF_ANOTHER_KIND, id)?;
        }
        // What is due on the channel of a set that ended stays due; then its documents leave it.
        let sets = channels::retire_ended(self, position, freed.unwrap_or_default())?;
        relations::resolve(self, position)?;
        routing::update_channels(self, position, &sets)?;
        let mut affected = self.db.all::<BTreeSet<DocId>>(lists::TOUCHED, id)?;
        let may_be_due = "(d.hold <> 0 OR d.presence = 4 OR EXISTS (SELECT 1 FROM owed o WHERE o.document = d.id))";
        relations::each_touched(self, position, may_be_due, |step, document, _, _| {
            step.weigh.remove(&document.id);
            let is_changed = document.touched >= ChangedPart::Presence;
            owed::weigh(step, document, is_changed)
        })?;
        for document in take(&mut self.weigh) {
            affected.insert(document);
            if let Some(document) = self.db.document(document)? {
                owed::weigh(self, document, false)?;
            }
        }
        lists::note_seen(self, position, &affected)?;
        for channel in take(&mut self.relieved) {
            channels::end_left_accounts(self, channel)?;
        }
        // A few at a time: a statement that fails is taken back from memory.
        let settle = "UPDATE document SET touched = 0, baseline = 0, was_capability = NULL, was_form = NULL, \
             was_fingerprint = NULL WHERE id IN (SELECT id FROM document WHERE source = ?1 AND touched > 0 LIMIT ?2)";
        while self.db.run_and_count(settle, (id, SETTLED_AT_ONCE))? == SETTLED_AT_ONCE {}
        if is_first {
            // Each run tells all findings once it has seen the tree.
            let tell_at = later(self.now, self.plan.sources[position].broken_after);
            let sql = "UPDATE finding SET tell_at = ?2 WHERE source = ?1 AND tell_at IS NULL";
            self.db.run(sql, (id, tell_at))?;
            let sql = "UPDATE source SET routed = ?2 WHERE id = ?1";
            self.db.run(sql, (id, &*self.live.plan_hash))?;
            for (hub, _) in self.live.hubs.iter().filter(|(_, hub)| hub.is_inherited) {
                self.db.run(
                    "UPDATE account SET retry_at = ?2 WHERE hub = ?1 AND seq IS NOT NULL AND retry_at IS NULL \
                     AND (SELECT source FROM channel WHERE id = account.channel) = ?3",
                    (*hub, self.now, id),
                )?;
            }
        }
        self.live.sources[position].has_settled = true;
        Ok(())
    }

    /// Returns the effects of the step, in the order in which they are performed.
    pub fn effects(&mut self) -> Result<Vec<Effect>> {
        let withdraw = take(&mut self.withdraw).into_iter();
        let mut effects: Vec<Effect> = withdraw.map(Effect::Withdraw).collect();
        for id in take(&mut self.serve) {
            effects.extend(served::topic_page(self, id)?.map(Effect::Serve));
        }
        // A cut is told before the submission.
        effects.extend(take(&mut self.facts).into_iter().map(Effect::Tell));
        effects.extend(take(&mut self.submit).into_iter().map(Effect::Submit));
        effects.extend(take(&mut self.take).into_iter().map(Effect::Take));
        let of: [(_, fn(_) -> _); 2] = [
            (take(&mut self.look), Effect::Look),
            (take(&mut self.explain), Effect::Explain),
        ];
        let paths = of.into_iter().filter(|(paths, _)| !paths.is_empty());
        effects.extend(paths.map(|(paths, effect)| effect(paths.into_iter().collect())));
        Ok(effects)
    }

    /// Returns the time of the next deadline.
    pub fn next_deadline(&self) -> Result<Option<Timestamp>> {
        let mut next: Option<Timestamp> = self.db.value(
            "SELECT min(at) FROM (SELECT min(ends) AS at FROM channel WHERE ends IS NOT NULL \
             UNION ALL SELECT min(retry_at) FROM account WHERE retry_at IS NOT NULL \
             UNION ALL SELECT min(ping_due) FROM account WHERE ping_due IS NOT NULL \
             UNION ALL SELECT min(ends) FROM account WHERE ends IS NOT NULL \
             UNION ALL SELECT min(look_at) FROM document WHERE look_at IS NOT NULL \
             UNION ALL SELECT min(held_until) FROM document WHERE held_until IS NOT NULL \
             UNION ALL SELECT min(report_at) FROM trouble WHERE report_at IS NOT NULL \
             UNION ALL SELECT min(tell_at) FROM finding WHERE tell_at IS NOT NULL)",
            (),
        )?;
        // The windows and rounds of the others wait until their sources are settled.
        for source in self.live.sources.iter().filter(|it| it.is_swept()) {
            let sql = "SELECT min(at) FROM (SELECT min(deadline) AS at FROM channel \
                       WHERE source = ?1 AND deadline IS NOT NULL \
                       UNION ALL SELECT min(wake) FROM change_set WHERE source = ?1 AND wake IS NOT NULL)";
            let wake: Option<_> = self.db.value(sql, source.id)?;
            next = next.into_iter().chain(wake).min();
        }
        let told = self.live.sources.iter().flat_map(|it| it.told.values());
        let hubs = self.live.hubs.values();
        let wakes = hubs
            .filter_map(|live| live.queue.wake(self.now))
            .chain(told.filter_map(FindingLogLimit::summary_at));
        Ok(next.into_iter().chain(wakes).min())
    }
}
