//! A step: a batch of events in one transaction, and the effects that follow once it is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use crate::announce::changes::round::TakeRequest;
use crate::announce::delivery::Submission;
use crate::announce::delivery::hub_queue::HubQueue;
use crate::announce::event::{DropCause, Effect, Event, Fact, Now};
use crate::announce::history::{
    History, NotificationView, Outcome, OutcomeView, PayloadText, recalled,
};
use crate::announce::ids::{AccountId, ChannelId};
use crate::announce::observation::{DocumentPath, MountId};
use crate::announce::plan::{Mode, Plan, Replaces, SourcePlan};
use crate::announce::time::later;
use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, Uri};
use rusqlite::Connection;
use websub::retention::end_of;

use crate::announce::steps::channels::Channel;
use crate::announce::steps::documents::{COLUMNS, SeenDocument, Sighting, Touched};
use crate::announce::steps::findings::ToldLately;
use crate::announce::steps::live::{Live, LiveHub, LiveSource};
use crate::announce::steps::{
    change_sets, channels, cut, delivery, documents, findings, lists, mounts, owed, relations,
    rounds,
};
use crate::state::{Db, DocId, HubId, Result, StateError, save_time};

/// One step: what it works on, and what it has collected. State beside the transaction falls with it.
#[derive(Debug)]
pub struct Step<'a> {
    pub db: Db<'a>,
    pub plan: &'a Plan,
    pub live: &'a mut Live,
    pub now: Timestamp,
    pub wall: Timestamp,
    /// Documents that looks did not find, with those that were found at their paths (R14).
    pub successors: BTreeMap<DocId, Option<Sighting>>,
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
    pub take: Vec<TakeRequest>,
    pub look: BTreeSet<DocumentPath>,
    pub explain: BTreeSet<DocumentPath>,
    pub wakes: Vec<Timestamp>,
}

impl<'a> Step<'a> {
    pub fn new(db: Db<'a>, plan: &'a Plan, live: &'a mut Live, now: Now) -> Step<'a> {
        Step {
            db,
            plan,
            live,
            now: now.now,
            wall: now.wall,
            successors: BTreeMap::new(),
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
            wakes: Vec::new(),
        }
    }

    pub fn mode(&self, hub: HubId) -> Option<Mode> {
        self.live.hubs.get(&hub).map(|live| live.mode)
    }

    pub fn hub_uri(&self, hub: HubId) -> Result<Hub> {
        if let Some(live) = self.live.hubs.get(&hub) {
            return Ok(live.hub.clone());
        }
        let uri = self.db.first("SELECT uri FROM hub WHERE id = ?1", hub)?;
        Ok(uri.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
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
        let mut outcomes = Vec::new();
        for hub in hubs {
            outcomes.push(OutcomeView::new(self.hub_uri(hub)?, Outcome::InFlight));
        }
        let made = NotificationView {
            kind: channel.kind,
            topic: channel.topic.clone(),
            seq,
            cut: self.now,
            changes: Some(changes),
            hubs: outcomes,
            bytes: Some(body.len()),
            payload: Some(PayloadText(Arc::clone(body))),
        };
        self.made.push((channel.id, made));
        Ok(())
    }

    /// Notes the outcome of a notification at a hub.
    pub fn note_outcome(&mut self, account: AccountId, seq: u64, outcome: Outcome) -> Result<()> {
        let outcome = OutcomeView::new(self.hub_uri(account.1)?, outcome);
        self.outcomes.push((account.0, seq, outcome));
        Ok(())
    }

    /// Takes a batch of events, and handles what is due by now, if something was due (`is_due`) after the last step.
    fn take_events(&mut self, events: Vec<Event>, is_due: bool) -> Result<()> {
        for event in events {
            self.note(event)?;
        }
        if is_due {
            self.expire()?;
        }
        // All missing documents are counted before any of them counts as deleted (R15).
        for position in 0..self.plan.sources.len() {
            mounts::judge_deletions(self, position)?;
        }
        // A channel that retires may leave its topic to a set of another source, and that is all.
        for _ in 0..2 {
            for position in 0..self.plan.sources.len() {
                if self.live.sources[position].is_settled() {
                    self.settle(position)?;
                }
            }
            let freed = take(&mut self.freed);
            if freed.is_empty() {
                break;
            }
            for position in 0..self.plan.sources.len() {
                for set in findings::without_topic(self, position, &freed)? {
                    let id = self.db.row_of(&set)?;
                    self.sets.entry(position).or_default().insert(id);
                }
            }
        }
        change_sets::forget_without_channel(self)?;
        rounds::begin_due(self)?;
        cut::open_windows(self)?;
        cut::cut_ready(self)?;
        findings::tell(self)?;
        delivery::dispatch(self)?;
        save_time(self.db, self.now, self.wall)
    }

    fn mount(&self, id: MountId) -> Option<usize> {
        self.plan.source_of(id).map(|(position, _)| position)
    }

    /// Notes what an event says.
    fn note(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Observed(observations) => {
                for observation in observations {
                    let Some(position) = self.mount(observation.path.mount) else {
                        continue;
                    };
                    if let Some(uri) = self.plan.sources[position].uri_of(&observation.path) {
                        documents::observe(self, position, uri, observation)?;
                    }
                }
            }
            Event::Explained(explained) => {
                for (path, cause) in explained {
                    if let Some(position) = self.mount(path.mount)
                        && let Some(uri) = self.plan.sources[position].uri_of(&path)
                    {
                        findings::explained(self, position, &uri, &cause)?;
                    }
                }
            }
            Event::MountFound {
                mount,
                identity,
                started,
            } => {
                if let Some(position) = self.mount(mount) {
                    mounts::found(self, position, mount, identity, started)?;
                }
            }
            Event::MountLost { mount, reason } => {
                if let Some(position) = self.mount(mount) {
                    mounts::lost(self, position, mount, reason)?;
                }
            }
            Event::Swept {
                mount,
                complete,
                candidates,
            } => {
                if let Some(position) = self.mount(mount) {
                    if complete {
                        mounts::swept(self, position, mount, candidates)?
                    } else {
                        mounts::leave(self, position, mount)?
                    }
                }
            }
            Event::Unreadable {
                mount,
                directories,
                more,
            } => {
                if let Some(position) = self.mount(mount)
                    && let Some(known) = self.live.sources[position].mount_mut(mount)
                {
                    known.unreadable = (directories, more);
                    change_sets::stop_watching_entries(self, self.live.sources[position].id)?;
                }
            }
            Event::Nested {
                mount,
                file_systems,
            } => {
                if let Some(position) = self.mount(mount) {
                    mounts::set_nested(self, position, mount, file_systems)?;
                }
            }
            Event::Answered {
                channel,
                hub,
                seq,
                answer,
                jitter,
            } => {
                if let Some(hub) = self.live.hub_named(&hub) {
                    delivery::answered(self, (channel, hub), seq, &answer, jitter)?;
                }
            }
            Event::Taken(round) => rounds::end(self, *round)?,
            Event::Fetched(topic) => delivery::fetched(self, &topic)?,
            Event::Accept { source } => {
                if let Ok(position) = self.plan.source_named(&source) {
                    let documents = mounts::accept(self, position)?;
                    let resources = change_sets::accept(self, self.live.sources[position].id)?;
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
                    delivery::reached_otherwise(self, hub)?;
                }
            }
            Event::Retry { only: None } => delivery::retry(self, None)?,
            Event::Retry {
                only: Some((channel, hub)),
            } => {
                if let Some(hub) = self.live.hub_named(&hub) {
                    delivery::retry(self, Some((channel, hub)))?;
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

    /// Handles every deadline that has passed.
    fn expire(&mut self) -> Result<()> {
        cut::close_windows(self)?;
        delivery::retry_due(self)?;
        delivery::sum_up_refusals(self);
        delivery::pings_lasted(self)?;
        channels::expire(self)?;
        self.end_holds()?;
        documents::report_troubles(self)?;
        findings::sum_up_again(self);
        mounts::end_graces(self)
    }

    /// Ends the holds that have lasted: the changes are announced although nothing lists the documents (R17).
    fn end_holds(&mut self) -> Result<()> {
        let ended = self.db.all::<Vec<(DocId, Uri, u8, Option<Uri>)>>(
            "SELECT d.id, d.uri, d.presence, (SELECT s.uri FROM member m CROSS JOIN document s ON s.id = m.set_id \
             WHERE m.document = d.id ORDER BY s.uri LIMIT 1) FROM document d WHERE d.held_until <= ?1",
            self.now,
        )?;
        for (id, uri, presence, set) in ended {
            if presence == 1 {
                self.db.run(
                    "UPDATE document SET hold = 2, held_until = NULL, touched = max(touched, 2) WHERE id = ?1",
                    id,
                )?;
                self.facts.push(Fact::HoldExpired { uri, set });
            } else {
                // A missing document is not announced; if it comes back, it may be listed by then.
                let hold = self.plan.window.hold.max(Duration::from_secs(1));
                let again = later(self.now, hold);
                let sql = "UPDATE document SET held_until = ?2 WHERE id = ?1";
                self.db.run(sql, (id, again))?;
            }
        }
        Ok(())
    }

    /// Settles what changed in a source, in the order in which one follows from the other.
    fn settle(&mut self, position: usize) -> Result<()> {
        let (id, is_first) = {
            let source = &self.live.sources[position];
            (source.id, !source.has_settled)
        };
        let freed = self.sets.remove(&position);
        let sql = "SELECT 1 FROM document WHERE source = ?1 AND touched > 0";
        let is_touched = self.db.exists(sql, id)?;
        if !is_first && !is_touched && freed.is_none() && self.weigh.is_empty() {
            return Ok(());
        }
        relations::touch_dependents(self, relations::OF_ANOTHER_KIND, id)?;
        let mut sets = self.sets_to_route(position)?;
        sets.extend(freed.into_iter().flatten());
        // What is due on the channel of a set that ended stays due; then its documents leave it.
        channels::retire_ended(self, position, &sets)?;
        relations::resolve(self, position)?;
        self.note_descriptions(position)?;
        channels::route(self, position, &sets)?;
        let mut affected = lists::touched_lists(self, position)?;
        let may_be_due = "(d.hold <> 0 OR d.presence = 4 OR EXISTS (SELECT 1 FROM owed o WHERE o.document = d.id))";
        relations::each_touched(self, position, may_be_due, |step, document| {
            step.weigh.remove(&document.id);
            let is_changed = document.touched >= Touched::Presence;
            owed::weigh(step, position, document, is_changed)
        })?;
        for document in take(&mut self.weigh) {
            affected.insert(document);
            if let Some(document) = self.db.document(document)? {
                owed::weigh(self, position, document, false)?;
            }
        }
        lists::note_seen(self, position, is_first, &affected)?;
        for channel in take(&mut self.relieved) {
            channels::end_accounts(self, channel)?;
        }
        // A few at a time: a statement that fails is taken back from memory.
        let settle = "UPDATE document SET touched = 0, baseline = 0, was_capability = NULL, was_form = NULL, \
             was_fingerprint = NULL WHERE id IN (SELECT id FROM document WHERE source = ?1 AND touched > 0 LIMIT 1024)";
        while self.db.change(settle, id)? > 0 {}
        if is_first {
            findings::tell_again(self, position)?;
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

    /// Returns the sets whose channels may change: those that began, ended or changed, and all when a plan first settles.
    fn sets_to_route(&self, position: usize) -> Result<BTreeSet<DocId>> {
        let source = &self.live.sources[position];
        let touched = "SELECT id FROM document WHERE source = ?1 AND touched > 0 AND touched = 3 \
             AND (capability = 1 AND form = 0 OR was_capability = 1 AND was_form = 0)";
        let about = "SELECT d.id FROM finding f CROSS JOIN document d ON d.uri = f.about WHERE f.source = ?1";
        let sql = match (source.has_settled, source.was_routed) {
            (true, _) => touched.to_owned(),
            // Another source may have settled before, and left a topic.
            (false, true) => format!("{touched} UNION {about} AND f.kind = 'shared_topic'"),
            (false, false) => format!(
                "SELECT id FROM document WHERE source = ?1 AND capability IN (0, 1) AND capability = 1 AND form = 0 \
                 AND presence BETWEEN 1 AND 3 UNION SELECT set_id FROM channel WHERE source = ?1 \
                 UNION {about} AND f.part = 1"
            ),
        };
        let mut sets = self.db.all::<BTreeSet<DocId>>(&sql, source.id)?;
        if !source.has_settled {
            sets.extend(source.configured.iter());
        }
        Ok(sets)
    }

    /// Announces new Source Descriptions on every channel, and remembers those that changed for sets that are published
    /// together with them (R10).
    fn note_descriptions(&mut self, position: usize) -> Result<()> {
        let (quiet, now) = (self.plan.window.quiet, self.now);
        let source = &mut self.live.sources[position];
        source
            .descriptions
            .retain(|_, (_, changed)| now <= later(*changed, quiet));
        let id = source.id;
        let sql = format!(
            "SELECT {COLUMNS} FROM document d WHERE d.source = ?1 AND d.touched > 0 AND d.touched = 3 AND d.capability = 0 \
             AND d.form = 0 AND d.baseline = 0"
        );
        for document in self.db.all::<Vec<SeenDocument>>(&sql, id)? {
            if document.was.is_none() && !document.is_gone() {
                owed::owe_description(self, document.id, id)?;
            }
            let descriptions = &mut self.live.sources[position].descriptions;
            let known = descriptions.get(&document.id);
            let before = known.map_or(document.was, |(before, _)| *before);
            descriptions.insert(document.id, (before, now));
        }
        Ok(())
    }

    /// Returns the effects of the step, in the order in which they are performed.
    fn effects(&mut self) -> Result<Vec<Effect>> {
        let withdraw = take(&mut self.withdraw).into_iter();
        let mut effects: Vec<Effect> = withdraw.map(Effect::Withdraw).collect();
        for id in take(&mut self.serve) {
            effects.extend(cut::topic_page(self, id)?.map(Effect::Serve));
        }
        // A cut is told before the submission.
        effects.extend(take(&mut self.facts).into_iter().map(Effect::Tell));
        effects.extend(take(&mut self.submit).into_iter().map(Effect::Submit));
        let requests = take(&mut self.take).into_iter();
        effects.extend(requests.map(|request| Effect::Take(Box::new(request))));
        let of: [(_, fn(_) -> _); 2] = [
            (take(&mut self.look), Effect::Look),
            (take(&mut self.explain), Effect::Explain),
        ];
        let paths = of.into_iter().filter(|(paths, _)| !paths.is_empty());
        effects.extend(paths.map(|(paths, effect)| effect(paths.into_iter().collect())));
        Ok(effects)
    }

    /// Returns the time of the next deadline.
    fn next_deadline(&self) -> Result<Option<Timestamp>> {
        let next: Option<Option<Timestamp>> = self.db.first(
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
        let mut next = next.flatten();
        // The windows and rounds of the others wait until their sources are settled.
        for source in self
            .live
            .sources
            .iter()
            .filter(|source| source.is_settled())
        {
            let sql = "SELECT min(at) FROM (SELECT min(deadline) AS at FROM channel \
                       WHERE source = ?1 AND deadline IS NOT NULL \
                       UNION ALL SELECT min(wake) FROM change_set WHERE source = ?1 AND wake IS NOT NULL)";
            let wake = self.db.first::<Option<_>>(sql, source.id)?;
            next = next.into_iter().chain(wake.flatten()).min();
        }
        let told = self
            .live
            .sources
            .iter()
            .flat_map(|source| source.told.values());
        let wakes = self.wakes.iter().chain(&self.live.wakes).copied();
        let wakes = wakes.chain(told.filter_map(ToldLately::wake));
        Ok(next.into_iter().chain(wakes).min())
    }
}

/// The state under a plan, with what is kept in memory of it.
#[derive(Debug)]
pub struct Engine {
    pub connection: Connection,
    pub plan: Plan,
    pub live: Live,
    pub history: History,
    /// The time for a [`Event::Tick`], if nothing else happens before.
    pub wake: Option<Timestamp>,
}

impl Engine {
    /// Puts a plan into effect over a database. What is under way goes on with `before`.
    pub fn start(
        mut connection: Connection,
        mut plan: Plan,
        now: Now,
        before: Option<Live>,
    ) -> Result<(Engine, Vec<Effect>)> {
        let transaction = connection.transaction()?;
        let (live, effects, wake) =
            put_into_effect(Db(&transaction), &mut plan, now, before.as_ref())?;
        let history = recalled(Db(&transaction))?;
        transaction.commit()?;
        let engine = Engine {
            connection,
            plan,
            live,
            history,
            wake,
        };
        Ok((engine, effects))
    }

    /// Puts another plan into effect. If that fails, or `prepare` does, which is called before the commit, nothing happened.
    pub fn change_plan<T, E: From<StateError>>(
        &mut self,
        mut plan: Plan,
        now: Now,
        prepare: impl FnOnce(Db<'_>, &Plan) -> Result<T, E>,
    ) -> Result<(T, Vec<Effect>), E> {
        let transaction = self.connection.transaction().map_err(StateError)?;
        let (live, effects, wake) =
            put_into_effect(Db(&transaction), &mut plan, now, Some(&self.live))?;
        let prepared = prepare(Db(&transaction), &plan)?;
        transaction.commit().map_err(StateError)?;
        self.plan = plan;
        self.live = live;
        self.wake = wake;
        Ok((prepared, effects))
    }

    /// Returns an engine for a look at a state that is left as it is: it may be read only.
    pub fn read(connection: Connection, mut plan: Plan, now: Now) -> Result<Engine> {
        let db = Db(&connection);
        mounts::number(db, &mut plan)?;
        let mut live = load(db, &plan, now.wall)?;
        live.is_at_rest = true;
        for (source, plan) in live.sources.iter_mut().zip(&plan.sources) {
            mounts::judge(db, plan, source)?;
        }
        Ok(Engine {
            history: recalled(db)?,
            connection,
            plan,
            live,
            wake: None,
        })
    }

    /// Takes a batch of events. If it fails, nothing happened, and it is to be tried again.
    pub fn step(&mut self, events: Vec<Event>, now: Now) -> Result<Vec<Effect>> {
        self.step_with(events, now, |_, _| Ok(()))
    }

    /// Takes a batch of events, and commits with it what `beside` writes, which is called with the effects.
    pub fn step_with(
        &mut self,
        events: Vec<Event>,
        now: Now,
        beside: impl FnOnce(Db<'_>, &[Effect]) -> Result<()>,
    ) -> Result<Vec<Effect>> {
        let mut live = self.live.clone();
        let transaction = self.connection.transaction()?;
        let mut step = Step::new(Db(&transaction), &self.plan, &mut live, now);
        let is_due = self.wake.is_none_or(|wake| wake <= now.now);
        step.take_events(events, is_due)?;
        let effects = step.effects()?;
        let wake = step.next_deadline()?;
        let (made, outcomes) = (step.made, step.outcomes);
        beside(Db(&transaction), &effects)?;
        transaction.commit()?;
        (self.live, self.wake) = (live, wake);
        for (channel, made) in made {
            self.history.push(channel, made);
        }
        for (channel, seq, outcome) in outcomes {
            self.history.note(channel, seq, outcome);
        }
        Ok(effects)
    }

    /// Takes an operator's command, and nothing that follows from it: on a state that no daemon works on, that is for the
    /// next daemon to do, and to report.
    pub fn amend(&mut self, event: Event, now: Now) -> Result<Vec<Effect>> {
        let mut live = self.live.clone();
        let transaction = self.connection.transaction()?;
        let mut step = Step::new(Db(&transaction), &self.plan, &mut live, now);
        step.note(event)?;
        let facts = take(&mut step.facts);
        transaction.commit()?;
        self.live = live;
        Ok(facts.into_iter().map(Effect::Tell).collect())
    }

    pub fn db(&self) -> Db<'_> {
        Db(&self.connection)
    }
}

/// Puts a plan into effect. Returns what is kept in memory of it, the effects, and the time of the next deadline.
fn put_into_effect(
    db: Db<'_>,
    plan: &mut Plan,
    now: Now,
    before: Option<&Live>,
) -> Result<(Live, Vec<Effect>, Option<Timestamp>)> {
    let mut live = Live::default();
    mounts::number(db, plan)?;
    let mut step = Step::new(db, plan, &mut live, now);
    begin(&mut step, before)?;
    cut::cut_ready(&mut step)?;
    let effects = step.effects()?;
    let wake = step.next_deadline()?;
    Ok((live, effects, wake))
}

/// Returns what is kept in memory under a plan, as the state leaves it.
fn load(db: Db<'_>, plan: &Plan, wall: Timestamp) -> Result<Live> {
    let text = format!("{} {plan:?}", env!("CARGO_PKG_VERSION"));
    let plan_hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    let mut live = Live::default();
    for source in &plan.sources {
        let sql = "SELECT id, coalesce(routed = ?2, FALSE) FROM source WHERE name = ?1";
        let row = db.first::<(i64, bool)>(sql, (&source.name, &plan_hash))?;
        let (id, was_routed) = row.unwrap_or_default();
        let mut configured = BTreeSet::new();
        for channel in &plan.channels {
            if plan.may_hold(source, &channel.capability_list) {
                configured.extend(db.id_of(&channel.capability_list)?);
            }
        }
        live.sources.push(LiveSource {
            id,
            was_routed,
            mounts: mounts::load(db, source, id, wall)?,
            configured: configured.into(),
            ..LiveSource::default()
        });
    }
    for (hub, mode) in plan.destinations() {
        if let Some(id) = db.first("SELECT id FROM hub WHERE uri = ?1", hub)? {
            let live_hub = LiveHub {
                hub: hub.clone(),
                mode,
                queue: Default::default(),
                is_added: false,
                is_inherited: false,
            };
            live.hubs.insert(id, live_hub);
        }
    }
    live.plan_hash = plan_hash.into();
    Ok(live)
}

/// Puts the plan of a step into effect: rows of what is not configured any more go, and nothing is announced (R13).
fn begin(step: &mut Step<'_>, before: Option<&Live>) -> Result<()> {
    let db = step.db;
    let is_start = before.is_none();
    for plan in &step.plan.sources {
        let sql = "INSERT INTO source (name) VALUES (?1) ON CONFLICT (name) DO NOTHING";
        db.run(sql, &plan.name)?;
        for channel in &step.plan.channels {
            if step.plan.may_hold(plan, &channel.capability_list) {
                db.row_of(&channel.capability_list)?;
            }
        }
    }
    let (added, inherited) = begin_hubs(step)?;
    *step.live = load(db, step.plan, step.wall)?;
    // What this plan decides is to be decided again, should the plan before it return.
    let sql = "UPDATE source SET routed = NULL WHERE routed <> ?1";
    db.run(sql, &*step.live.plan_hash)?;
    for live in step.live.hubs.values_mut() {
        live.is_added = added.contains(&live.hub);
        live.is_inherited = inherited.contains(&live.hub);
        let mut hubs = before.iter().flat_map(|before| before.hubs.values());
        if let Some(before) = hubs.find(|before| before.hub == live.hub) {
            live.queue_mut()
                .inherit(&mut HubQueue::clone(&before.queue));
        }
    }
    for source in &mut step.live.sources {
        for known in source.mounts.values() {
            known.save(db)?;
        }
        let mut sources = before.iter().flat_map(|before| &before.sources);
        if let Some(before) = sources.find(|before| before.id == source.id) {
            (source.is_mass, source.away_count) = (before.is_mass, before.away_count);
            source.away.clone_from(&before.away);
        }
    }
    if is_start {
        let sql = "UPDATE document SET grace_ends = NULL, look_at = NULL WHERE presence IN (2, 3)";
        db.run(sql, ())?;
        // What ended while nobody ran is served and sent for a while first (R11).
        let kept = end_of(step.now, step.plan.retired_topic, step.now);
        for table in ["channel", "account"] {
            db.run(
                &format!("UPDATE {table} SET ends = ?1 WHERE ends < ?1"),
                kept,
            )?;
        }
        // What was under way may have been taken.
        db.run(
            "UPDATE account SET in_doubt = max(in_doubt, sending IS NOT NULL), sending = NULL, is_answer_old = 0, \
             acceptances = NULL, is_at_fault = 0 WHERE sending IS NOT NULL OR acceptances IS NOT NULL",
            (),
        )?;
        for (position, plan) in step.plan.sources.iter().enumerate() {
            let report_at = later(step.now, plan.broken_after);
            let sql = "UPDATE trouble SET reported = 0, report_at = ?1 WHERE source = ?2";
            db.run(sql, (report_at, step.live.sources[position].id))?;
        }
    } else if let Some(before) = before {
        step.live.last_round = before.last_round;
    }
    change_sets::restart(step, is_start)?;
    let sql = "SELECT channel, hub, sending FROM account WHERE sending IS NOT NULL";
    let sending = db.all::<Vec<(AccountId, u64)>>(sql, ())?;
    for ((id, hub), seq) in sending {
        if let Some(live) = step.live.hubs.get_mut(&hub) {
            live.queue_mut().sent(id, seq);
        }
    }
    db.run("UPDATE finding SET tell_at = NULL", ())?;
    forget_unconfigured(step)?;
    for position in 0..step.plan.sources.len() {
        relations::replace_aliases(step, position)?;
    }
    withdraw_unserved(step)?;
    // A window that is open closes no later than the plan says.
    let window = &step.plan.window;
    let (quiet, max_wait) = (later(step.now, window.quiet), window.max_wait.as_nanos());
    db.run(
        "UPDATE channel SET deadline = min(deadline, ?1, window_first + ?2) WHERE deadline IS NOT NULL \
         AND window_first IS NOT NULL AND kind = 0",
        (quiet, i64::try_from(max_wait).unwrap_or(i64::MAX / 4)),
    )?;
    // What was dropped while it was submitted may have held up what is due since then.
    db.run(
        "UPDATE channel SET deadline = ?1 WHERE deadline IS NULL AND id IN (SELECT o.channel FROM owed o \
         CROSS JOIN account a ON a.channel = o.channel AND a.hub = o.hub \
         WHERE o.due IS NOT NULL AND a.seq IS NULL AND a.sending IS NULL)",
        step.now,
    )?;
    // Whatever waits is tried at once.
    for (id, hub) in &step.live.hubs {
        // R13: a list that still advertises the hub that was replaced is read first.
        let retry_at = (!hub.is_inherited).then_some(step.now);
        let sql = "UPDATE account SET retry_at = ?2 WHERE hub = ?1 AND seq IS NOT NULL";
        db.run(sql, (*id, retry_at))?;
    }
    let served = db.all::<Vec<ChannelId>>("SELECT id FROM channel", ())?;
    step.serve.extend(served);
    Ok(())
}

/// Notes the hubs that are configured; the accounts of one that is replaced become those of the other (R13). Returns the hubs
/// that are new, and those that replace others.
fn begin_hubs(step: &mut Step<'_>) -> Result<(BTreeSet<Hub>, BTreeSet<Hub>)> {
    let db = step.db;
    let known =
        db.all::<Vec<(HubId, Hub, String, bool)>>("SELECT id, uri, mode, configured FROM hub", ())?;
    let mut added = BTreeSet::new();
    for (hub, mode) in step.plan.destinations() {
        let was_configured = known
            .iter()
            .any(|(_, uri, _, configured)| uri == hub && *configured);
        if !was_configured {
            added.insert(hub.clone());
        }
        db.run(
            "INSERT INTO hub (uri, mode, configured) VALUES (?1, ?2, 1) \
             ON CONFLICT (uri) DO UPDATE SET mode = excluded.mode, configured = 1",
            (hub, mode_text(mode)),
        )?;
    }
    let removed = known
        .iter()
        .filter(|(_, uri, _, configured)| *configured && step.plan.mode_of(uri).is_none());
    let removed: Vec<_> = removed.cloned().collect();
    let mut replacements: Vec<(Hub, Hub)> = Vec::new();
    for hub in &step.plan.hubs {
        if let Replaces::Hub(old) = &hub.replaces
            && step.plan.mode_of(old).is_none()
        {
            replacements.push((old.clone(), hub.hub.clone()));
        }
    }
    let mut unnamed = removed.iter().filter(|(_, uri, mode, _)| {
        mode != mode_text(Mode::Broker) && !replacements.iter().any(|(old, _)| old == uri)
    });
    let new: Vec<_> = step
        .plan
        .hubs
        .iter()
        .filter(|hub| added.contains(&hub.hub) && !matches!(hub.replaces, Replaces::Hub(_)))
        .collect();
    if let (Some((_, old, mode, _)), None, [new]) = (unnamed.next(), unnamed.next(), &new[..]) {
        // Our own hub has subscribers of its own.
        let was_embedded = mode == mode_text(Mode::Embedded);
        if new.replaces == Replaces::Automatic && was_embedded == (new.mode == Mode::Embedded) {
            replacements.push((old.clone(), new.hub.clone()));
        }
    }
    let mut inherited = BTreeSet::new();
    for (old, new) in replacements {
        let channels = db.change(
            "UPDATE account SET hub = (SELECT id FROM hub WHERE uri = ?2), max_entries = NULL, pinged = NULL, fetched = 0, \
             unfetched_reported = 0, ping_due = NULL, last = NULL, sending = NULL, is_answer_old = 0, acceptances = NULL, \
             is_at_fault = 0, \
             attempts = CASE WHEN seq IS NOT NULL THEN 0 END \
             WHERE hub = (SELECT id FROM hub WHERE uri = ?1) AND NOT EXISTS (SELECT 1 FROM account b \
             WHERE b.channel = account.channel AND b.hub = (SELECT id FROM hub WHERE uri = ?2))",
            (&old, &new),
        )?;
        if channels > 0 {
            added.remove(&new);
            inherited.insert(new.clone());
            step.facts.push(Fact::HubReplaced {
                hub: old,
                by: new,
                channels,
            });
        }
    }
    for (id, ..) in removed {
        let channels =
            db.all::<Vec<ChannelId>>("SELECT channel FROM account WHERE hub = ?1", id)?;
        for channel in channels {
            channels::report_dropped(step, (channel, id))?;
        }
        db.run("DELETE FROM account WHERE hub = ?1", id)?;
        db.run("UPDATE hub SET configured = 0 WHERE id = ?1", id)?;
    }
    Ok((added, inherited))
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Content => "content",
        Mode::Ping => "ping",
        Mode::ContentQuery => "content-query",
        Mode::Embedded => "embedded",
        Mode::Broker => "broker",
    }
}

/// Forgets documents, files and channels that are not configured any more, and baselines that were not finished.
fn forget_unconfigured(step: &mut Step<'_>) -> Result<()> {
    let db = step.db;
    let known = db.all::<Vec<MountId>>("SELECT id FROM mount", ())?;
    let mounts = step.live.sources.iter().flat_map(|it| it.mounts.values());
    let unchanged = mounts.filter(|mount| mount.baseline.is_as_configured());
    // If the state is that of this plan, and every mount was swept since, it has nothing else.
    let is_of_plan = step.live.sources.iter().all(|source| source.was_routed);
    if !is_of_plan || unchanged.count() < known.len() {
        forget_files(step)?;
    }
    for channel in channels::of_no_source(step)? {
        channels::remove(step, &channel)?;
    }
    // R13: one that is configured again is new.
    for mount in known {
        if step.plan.source_of(mount).is_none() {
            db.run("DELETE FROM mount WHERE id = ?1", mount)?;
        }
    }
    Ok(())
}

/// Returns the path of a document of a source under another plan. A document is what its URI says, so another mount of its
/// source may have it. Nothing if it is no longer configured (R13).
fn place_of(step: &Step<'_>, uri: &Uri, source: Option<i64>) -> Option<DocumentPath> {
    let sources = step.plan.sources.iter().zip(&step.live.sources);
    let mut places = sources.filter_map(|it| Some((it, it.0.path_of(uri)?)));
    let ((plan, live), place) = places.next()?;
    (source == Some(live.id) && plan.accepts(&place)).then_some(place)
}

/// Forgets what lies on no mount that is configured, or where its source has no candidates, or was read for a baseline that
/// was not finished.
fn forget_files(step: &mut Step<'_>) -> Result<()> {
    let db = step.db;
    let documents = db.all::<Vec<(DocId, Uri, DocumentPath, Option<i64>)>>(
        "SELECT d.id, d.uri, d.mount, d.path, m.source FROM document d LEFT JOIN mount m \
         ON m.id = d.mount AND (m.baselined = 1 OR d.baseline = 0) WHERE d.presence > 0",
        (),
    )?;
    let mut forgotten = Vec::new();
    for (id, uri, path, source) in documents {
        match place_of(step, &uri, source) {
            Some(place) if place != path => {
                let sql = "UPDATE document SET mount = ?2, path = ?3, looked = 0 WHERE id = ?1";
                db.run(sql, (id, &place))?;
                // R15: the file system that has it may not be mounted yet.
                if let Some(position) = step.mount(place.mount) {
                    step.live.sources[position].hold_document(db, place.mount)?;
                }
            }
            Some(_) => {}
            None => forgotten.push(id),
        }
    }
    documents::forget_aloud(step, &forgotten)?;
    for table in ["other_file", "trouble"] {
        let files = db.all::<Vec<DocumentPath>>(&format!("SELECT mount, path FROM {table}"), ())?;
        for path in files {
            let source = step.plan.source_of(path.mount);
            let is_ours =
                |source: &SourcePlan| source.uri_of(&path).is_some() && source.accepts(&path);
            if !source.is_some_and(|(_, source)| is_ours(source)) {
                db.run(
                    &format!("DELETE FROM {table} WHERE mount = ?1 AND path = ?2"),
                    &path,
                )?;
            }
        }
    }
    Ok(())
}

/// R25: withdraws what is in flight to hubs that are pinged from now on, and not on the topic: they would be pinged about
/// what they cannot fetch.
fn withdraw_unserved(step: &mut Step<'_>) -> Result<()> {
    let flying = step.db.all::<Vec<(AccountId, Vec<u8>, Vec<u8>)>>(
        "SELECT a.channel, a.hub, a.body, c.body FROM account a CROSS JOIN channel c ON c.id = a.channel \
         WHERE a.seq IS NOT NULL AND c.kind = 0",
        (),
    )?;
    for (account, flying, served) in flying {
        if step.mode(account.1) == Some(Mode::Ping) && cut::lacks(&served, &flying) {
            delivery::withdraw(step, account)?;
        }
    }
    Ok(())
}
