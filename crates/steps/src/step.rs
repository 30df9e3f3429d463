//! A step: a batch of events in one transaction, and the effects that follow once it is committed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, Uri};
use rsnotify::announce::delivery::Submission;
use rsnotify::announce::event::{Effect, Event, Fact, Now};
use rsnotify::announce::history::{Fate, History, PastNotification};
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::observation::{DocumentPath, MountId};
use rsnotify::announce::plan::{Mode, Plan, Replaces};
use rsnotify::announce::time::later;
use rusqlite::{Connection, params};

use crate::documents::Sighting;
use crate::live::{Live, LiveHub, LiveSource};
use crate::state::{Db, DocId, HubId, Result, Sql};
use crate::{channels, cut, delivery, documents, mounts, owed, relations};

/// A change of what is remembered of the last notifications.
#[derive(Debug)]
pub enum HistoryChange {
    Push(PastNotification),
    Note(ChannelId, u64, Hub, Fate),
}

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
    /// Documents to weigh at the end of the settling.
    pub weigh: BTreeSet<DocId>,
    /// Accounts that may be due nothing any more.
    pub relieved: BTreeSet<(ChannelId, HubId)>,
    /// Channels with new changes, and those whose next notifications are cut now.
    pub touched_channels: BTreeSet<ChannelId>,
    pub ready: BTreeSet<ChannelId>,
    /// Topics that another set may take now.
    pub freed: BTreeSet<Topic>,
    pub facts: Vec<Fact>,
    pub history: Vec<HistoryChange>,
    pub serve: BTreeSet<ChannelId>,
    pub withdraw: BTreeSet<Topic>,
    pub submit: Vec<Submission>,
    pub look: BTreeSet<DocumentPath>,
    pub explain: BTreeSet<DocumentPath>,
    pub wakes: Vec<Timestamp>,
}

impl<'a> Step<'a> {
    fn new(db: Db<'a>, plan: &'a Plan, live: &'a mut Live, now: Now) -> Step<'a> {
        Step {
            db,
            plan,
            live,
            now: now.now,
            wall: now.wall,
            successors: BTreeMap::new(),
            weigh: BTreeSet::new(),
            relieved: BTreeSet::new(),
            touched_channels: BTreeSet::new(),
            ready: BTreeSet::new(),
            freed: BTreeSet::new(),
            facts: Vec::new(),
            history: Vec::new(),
            serve: BTreeSet::new(),
            withdraw: BTreeSet::new(),
            submit: Vec::new(),
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
        let uri = self
            .db
            .first("SELECT uri FROM hub WHERE id = ?1", [Sql(hub)], |row| {
                row.sql()
            })?;
        Ok(uri.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    fn take_events(&mut self, events: Vec<Event>) -> Result<()> {
        for event in events {
            self.note(event)?;
        }
        self.expire()?;
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
            let freed = std::mem::take(&mut self.freed);
            if freed.is_empty() {
                break;
            }
            for position in 0..self.plan.sources.len() {
                let sets = self.live.sources[position].findings.without_topic(&freed);
                for set in sets {
                    let id = self.db.row_of(&set)?;
                    self.live.sources[position].sets.insert(id);
                }
            }
        }
        cut::open_windows(self)?;
        cut::cut_ready(self)?;
        for position in 0..self.plan.sources.len() {
            let broken = std::mem::take(&mut self.live.sources[position].broken);
            self.facts.extend(broken);
        }
        delivery::dispatch(self)?;
        self.db.run(
            "INSERT INTO clock VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE SET now = max(now, excluded.now), \
             said = max(said, excluded.said)",
            params![Sql(self.now), Sql(self.wall)],
        )?;
        Ok(())
    }

    fn mount(&self, id: MountId) -> Option<usize> {
        self.plan.source_of(id).map(|(position, _)| position)
    }

    fn hub(&self, hub: &Hub) -> Option<HubId> {
        self.live.hub_named(hub)
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
            Event::Explained(_) => {}
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
                    match complete {
                        true => mounts::swept(self, position, mount, candidates)?,
                        false => mounts::leave(self, position, mount)?,
                    }
                }
            }
            Event::Unreadable {
                mount,
                directories,
                more,
            } => {
                if let Some(position) = self.mount(mount)
                    && let Some(known) = self.live.sources[position].mounts.get_mut(&mount)
                {
                    known.unreadable = (directories, more);
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
                if let Some(hub) = self.hub(&hub) {
                    delivery::answered(self, channel, hub, seq, &answer, jitter)?;
                }
            }
            Event::Taken(_) => {}
            Event::Fetched(topic) => delivery::fetched(self, &topic)?,
            Event::Accept { source } => {
                if let Ok(position) = self.plan.source_named(&source) {
                    mounts::accept(self, position)?;
                }
            }
            Event::HubChanged(hub) => {
                if let Some(hub) = self.hub(&hub) {
                    delivery::reached_otherwise(self, hub)?;
                }
            }
            Event::Retry { only } => {
                let only = match only {
                    Some((channel, hub)) => match self.hub(&hub) {
                        Some(hub) => Some((channel, hub)),
                        None => return Ok(()),
                    },
                    None => None,
                };
                delivery::retry(self, only)?;
            }
            Event::Drop { channel, hub } => {
                if let Some(hub) = self.hub(&hub) {
                    delivery::drop_due(self, channel, hub)?;
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
        mounts::end_graces(self)
    }

    /// Ends the holds that have lasted: the changes are announced although nothing lists the documents (R17).
    fn end_holds(&mut self) -> Result<()> {
        let ended = self.db.all(
            "SELECT d.id, d.uri, d.source, d.presence, (SELECT s.uri FROM member m CROSS JOIN document s ON s.id = m.set_id \
             WHERE m.document = d.id ORDER BY s.uri LIMIT 1) FROM document d WHERE d.held_until <= ?1",
            [Sql(self.now)],
            |row| {
                let (id, uri): (DocId, Uri) = (row.sql()?, row.sql()?);
                Ok((id, uri, row.take::<i64>()?, row.take::<u8>()?, row.option::<Uri>()?))
            },
        )?;
        for (id, uri, source, presence, set) in ended {
            if presence == 1 {
                self.db.run(
                    "UPDATE document SET hold = 2, held_until = NULL WHERE id = ?1",
                    [Sql(id)],
                )?;
                self.facts.push(Fact::HoldExpired { uri, set });
                if let Some(position) = self.live.position(source) {
                    self.live.sources[position].changed.insert(id);
                }
            } else {
                // A missing document is not announced; if it comes back, it may be listed by then.
                let again = later(
                    self.now,
                    self.plan.window.hold.max(std::time::Duration::from_secs(1)),
                );
                self.db.run(
                    "UPDATE document SET held_until = ?2 WHERE id = ?1",
                    params![Sql(id), Sql(again)],
                )?;
            }
        }
        Ok(())
    }

    /// Settles what changed in a source, in the order in which one follows from the other.
    fn settle(&mut self, position: usize) -> Result<()> {
        let source = &mut self.live.sources[position];
        let is_first = !source.has_settled;
        let id = source.id;
        if is_first {
            let sets = self.db.all(
                "SELECT id FROM document WHERE source = ?1 AND capability = 1 AND form = 0 AND presence BETWEEN 1 AND 3 \
                 UNION SELECT set_id FROM channel WHERE source = ?1",
                [id],
                |row| row.sql::<DocId>(),
            )?;
            let source = &mut self.live.sources[position];
            source.sets.extend(sets);
            let configured = source.configured.clone();
            source.sets.extend(configured);
        }
        let is_touched = self.db.exists(
            "SELECT 1 FROM document WHERE source = ?1 AND touched = 1",
            [id],
        )?;
        let source = &self.live.sources[position];
        if !is_first
            && !is_touched
            && source.changed.is_empty()
            && source.sets.is_empty()
            && self.weigh.is_empty()
        {
            return Ok(());
        }
        // What is due on the channel of a set that ended stays due; then its documents leave it.
        channels::retire_ended(self, position)?;
        let mut affected = relations::resolve(self, position)?;
        self.note_descriptions(position)?;
        let sets = std::mem::take(&mut self.live.sources[position].sets);
        channels::route(self, position, &sets)?;
        let changed = std::mem::take(&mut self.live.sources[position].changed);
        affected.extend(&changed);
        affected.extend(std::mem::take(&mut self.weigh));
        for document in affected {
            owed::weigh(self, position, document, changed.contains(&document))?;
        }
        for (channel, _) in std::mem::take(&mut self.relieved) {
            channels::end_accounts(self, channel)?;
        }
        self.db.run(
            "UPDATE document SET baseline = 0 WHERE source = ?1 AND baseline > 0",
            [id],
        )?;
        let source = &mut self.live.sources[position];
        source.previous.clear();
        source.first.clear();
        source.has_settled = true;
        Ok(())
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
        for (document, before) in source.previous.clone() {
            let Some(document) = self
                .db
                .document(document)?
                .filter(|document| document.is_description())
            else {
                continue;
            };
            if document.baseline > 0 {
                continue;
            }
            if before.is_none() && !document.is_gone() {
                owed::owe_description(self, document.id, id)?;
            }
            let descriptions = &mut self.live.sources[position].descriptions;
            let known = descriptions
                .get(&document.id)
                .map_or(before, |(before, _)| *before);
            descriptions.insert(document.id, (known, now));
        }
        Ok(())
    }

    /// Returns the effects of the step, in the order in which they are performed.
    fn effects(&mut self) -> Result<Vec<Effect>> {
        let mut effects: Vec<Effect> = std::mem::take(&mut self.withdraw)
            .into_iter()
            .map(Effect::Withdraw)
            .collect();
        for id in std::mem::take(&mut self.serve) {
            effects.extend(cut::topic_page(self, id)?.map(Effect::Serve));
        }
        // A cut is told before the submission.
        effects.extend(
            std::mem::take(&mut self.facts)
                .into_iter()
                .map(Effect::Tell),
        );
        effects.extend(
            std::mem::take(&mut self.submit)
                .into_iter()
                .map(Effect::Submit),
        );
        if !self.look.is_empty() {
            effects.push(Effect::Look(
                std::mem::take(&mut self.look).into_iter().collect(),
            ));
        }
        if !self.explain.is_empty() {
            effects.push(Effect::Explain(
                std::mem::take(&mut self.explain).into_iter().collect(),
            ));
        }
        Ok(effects)
    }

    /// Returns the time of the next deadline.
    fn next_deadline(&self) -> Result<Option<Timestamp>> {
        let next = self.db.first(
            "SELECT min(at) FROM (SELECT min(deadline) AS at FROM channel WHERE deadline IS NOT NULL \
             UNION ALL SELECT min(ends) FROM channel WHERE ends IS NOT NULL \
             UNION ALL SELECT min(retry_at) FROM account WHERE retry_at IS NOT NULL \
             UNION ALL SELECT min(ping_due) FROM account WHERE ping_due IS NOT NULL \
             UNION ALL SELECT min(ends) FROM account WHERE ends IS NOT NULL \
             UNION ALL SELECT min(look_at) FROM document WHERE look_at IS NOT NULL \
             UNION ALL SELECT min(held_until) FROM document WHERE held_until IS NOT NULL \
             UNION ALL SELECT min(report_at) FROM trouble WHERE report_at IS NOT NULL)",
            [],
            |row| row.option::<Timestamp>(),
        )?;
        let wakes = self.wakes.iter().chain(&self.live.wakes).copied();
        Ok(next.flatten().into_iter().chain(wakes).min())
    }
}

/// The state under a plan, with what is kept in memory of it.
#[derive(Debug)]
pub struct Engine {
    pub connection: Connection,
    pub plan: Plan,
    pub live: Live,
    pub history: History,
    wake: Option<Timestamp>,
}

impl Engine {
    /// Puts a plan into effect over a database. What is under way goes on with `before`.
    pub fn start(
        mut connection: Connection,
        mut plan: Plan,
        now: Now,
        before: Option<Live>,
    ) -> Result<(Engine, Vec<Effect>)> {
        let mut live = Live::default();
        let transaction = connection.transaction()?;
        let db = Db(&transaction);
        mounts::number(db, &mut plan)?;
        let mut step = Step::new(db, &plan, &mut live, now);
        begin(&mut step, before)?;
        let effects = step.effects()?;
        let wake = step.next_deadline()?;
        transaction.commit()?;
        let engine = Engine {
            connection,
            plan,
            live,
            history: History::default(),
            wake,
        };
        Ok((engine, effects))
    }

    /// Takes a batch of events. If it fails, nothing happened, and it is to be tried again.
    pub fn step(&mut self, events: Vec<Event>, now: Now) -> Result<Vec<Effect>> {
        let transaction = self.connection.transaction()?;
        let mut step = Step::new(Db(&transaction), &self.plan, &mut self.live, now);
        step.take_events(events)?;
        let effects = step.effects()?;
        self.wake = step.next_deadline()?;
        let history = std::mem::take(&mut step.history);
        transaction.commit()?;
        for change in history {
            match change {
                HistoryChange::Push(notification) => self.history.push(notification),
                HistoryChange::Note(channel, seq, hub, fate) => {
                    self.history.note(channel, seq, &hub, fate)
                }
            }
        }
        Ok(effects)
    }

    /// Returns the time for a [`Event::Tick`], if nothing else happens before.
    pub fn wake(&self) -> Option<Timestamp> {
        self.wake
    }

    pub fn db(&self) -> Db<'_> {
        Db(&self.connection)
    }
}

/// Puts the plan of a step into effect: rows of what is not configured any more go, and nothing is announced (R13).
fn begin(step: &mut Step<'_>, before: Option<Live>) -> Result<()> {
    let db = step.db;
    let is_start = before.is_none();
    for (position, plan) in step.plan.sources.iter().enumerate() {
        db.run(
            "INSERT INTO source (name) VALUES (?1) ON CONFLICT (name) DO NOTHING",
            [&plan.name],
        )?;
        let id = db.first(
            "SELECT id FROM source WHERE name = ?1",
            [&plan.name],
            |row| row.take::<i64>(),
        )?;
        let id = id.unwrap_or_default();
        let mut configured = BTreeSet::new();
        for channel in &step.plan.channels {
            if step.plan.may_hold(plan, &channel.capability_list) {
                configured.insert(db.row_of(&channel.capability_list)?);
            }
        }
        let source = LiveSource {
            id,
            mounts: mounts::load(db, plan, id, step.now)?,
            configured,
            ..LiveSource::default()
        };
        step.live.sources.push(source);
        let _ = position;
    }
    begin_hubs(step, before.as_ref())?;
    if is_start {
        db.run(
            "UPDATE document SET grace_ends = NULL, look_at = NULL WHERE presence IN (2, 3)",
            [],
        )?;
        db.run("UPDATE account SET in_doubt = 1 WHERE seq IS NOT NULL", [])?;
        for (position, plan) in step.plan.sources.iter().enumerate() {
            let report_at = Sql(later(step.now, plan.broken_after));
            db.run(
                "UPDATE trouble SET reported = 0, report_at = ?1 WHERE source = ?2",
                params![report_at, step.live.sources[position].id],
            )?;
        }
    } else if let Some(before) = before {
        step.live.accounts = before.accounts;
    }
    forget_unconfigured(step)?;
    withdraw_unserved(step)?;
    // Whatever waits is tried at once.
    db.run(
        "UPDATE account SET retry_at = ?1 WHERE seq IS NOT NULL",
        [Sql(step.now)],
    )?;
    let served = db.all("SELECT id FROM channel", [], |row| row.sql::<ChannelId>())?;
    step.serve.extend(served);
    Ok(())
}

/// Notes the hubs that are configured; the accounts of one that is replaced become those of the other (R13).
fn begin_hubs(step: &mut Step<'_>, before: Option<&Live>) -> Result<()> {
    let db = step.db;
    let known = db.all("SELECT id, uri, mode, configured FROM hub", [], |row| {
        Ok((
            row.sql::<HubId>()?,
            row.sql::<Hub>()?,
            row.take::<String>()?,
            row.take::<bool>()?,
        ))
    })?;
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
            params![Sql(hub), mode_text(mode)],
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
        let channels = db.run(
            "UPDATE account SET hub = (SELECT id FROM hub WHERE uri = ?2), max_entries = NULL, pinged = NULL, fetched = 0, \
             unfetched_reported = 0, ping_due = NULL, last = NULL, \
             attempts = CASE WHEN seq IS NOT NULL THEN 0 END \
             WHERE hub = (SELECT id FROM hub WHERE uri = ?1) AND NOT EXISTS (SELECT 1 FROM account b \
             WHERE b.channel = account.channel AND b.hub = (SELECT id FROM hub WHERE uri = ?2))",
            params![Sql(&old), Sql(&new)],
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
    for (id, uri, ..) in removed {
        let dropped = db.all(
            "SELECT c.topic, (SELECT count(*) FROM (SELECT document FROM owed o WHERE o.channel = a.channel AND o.hub = a.hub \
             AND o.due IS NOT NULL UNION SELECT document FROM flight_entry f WHERE f.channel = a.channel \
             AND f.hub = a.hub)) FROM account a CROSS JOIN channel c ON c.id = a.channel WHERE a.hub = ?1",
            [Sql(id)],
            |row| Ok((row.sql::<Topic>()?, row.count()?)),
        )?;
        for (topic, changes) in dropped.into_iter().filter(|(_, changes)| *changes > 0) {
            step.facts.push(Fact::Dropped {
                topic,
                hub: uri.clone(),
                changes,
            });
        }
        db.run("DELETE FROM account WHERE hub = ?1", [Sql(id)])?;
        db.run("UPDATE hub SET configured = 0 WHERE id = ?1", [Sql(id)])?;
    }
    for (hub, mode) in step.plan.destinations() {
        let id = db.first("SELECT id FROM hub WHERE uri = ?1", [Sql(hub)], |row| {
            row.sql::<HubId>()
        })?;
        let Some(id) = id else { continue };
        let _ = before;
        step.live.hubs.insert(
            id,
            LiveHub {
                hub: hub.clone(),
                mode,
                queue: Default::default(),
                is_added: added.contains(hub),
                is_inherited: inherited.contains(hub),
            },
        );
    }
    Ok(())
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
    let documents = db.all(
        "SELECT id, uri, mount, path FROM document WHERE presence > 0",
        [],
        |row| {
            let (id, uri): (DocId, Uri) = (row.sql()?, row.sql()?);
            Ok((
                id,
                uri,
                DocumentPath {
                    mount: row.sql()?,
                    below: row.bytes()?,
                },
            ))
        },
    )?;
    let mut forgotten: BTreeMap<(ChannelId, HubId), usize> = BTreeMap::new();
    let is_wanted = |step: &Step<'_>, path: &DocumentPath| {
        let (position, source) = step.plan.source_of(path.mount)?;
        source.accepts(path).then_some(position)
    };
    for (id, uri, path) in documents {
        let position = is_wanted(step, &path).filter(|position| {
            step.plan.sources[*position].uri_of(&path).as_ref() == Some(&uri)
                && !step.live.sources[*position].is_new_ground(&path)
        });
        match position {
            Some(position) => {
                let source = step.live.sources[position].id;
                db.run(
                    "UPDATE document SET source = ?2 WHERE id = ?1 AND source IS NOT ?2",
                    params![Sql(id), source],
                )?;
            }
            None => {
                let due = db.all(
                    "SELECT o.channel, o.hub FROM owed o WHERE o.document = ?1 AND o.due IS NOT NULL",
                    [Sql(id)],
                    |row| Ok((row.sql::<ChannelId>()?, row.sql::<HubId>()?)),
                )?;
                due.into_iter()
                    .for_each(|account| *forgotten.entry(account).or_insert(0) += 1);
                documents::forget(db, id)?;
            }
        }
    }
    for ((channel, hub), changes) in forgotten {
        let channel = channels::channel(step, channel)?;
        if let Some(channel) = channel {
            let hub = step.hub_uri(hub)?;
            step.facts.push(Fact::Forgotten {
                topic: channel.topic,
                hub,
                changes,
            });
        }
    }
    let files = db.all("SELECT mount, path FROM other_file", [], |row| {
        Ok(DocumentPath {
            mount: row.sql()?,
            below: row.bytes()?,
        })
    })?;
    for path in files {
        if is_wanted(step, &path).is_none() {
            db.run(
                "DELETE FROM other_file WHERE mount = ?1 AND path = ?2",
                params![Sql(path.mount), &path.below[..]],
            )?;
        }
    }
    Ok(())
}

/// R25: withdraws what is in flight to hubs that are pinged from now on, and not on the topic: they would be pinged about
/// what they cannot fetch.
fn withdraw_unserved(step: &mut Step<'_>) -> Result<()> {
    let flying = step.db.all(
        "SELECT a.channel, a.hub, a.body, c.body FROM account a CROSS JOIN channel c ON c.id = a.channel \
         WHERE a.seq IS NOT NULL AND c.kind = 0",
        [],
        |row| Ok((row.sql::<ChannelId>()?, row.sql::<HubId>()?, row.bytes()?, row.bytes()?)),
    )?;
    for (channel, hub, flying, served) in flying {
        if step.mode(hub) == Some(Mode::Ping) && cut::lacks(&served, &flying) {
            delivery::withdraw(step, channel, hub)?;
        }
    }
    Ok(())
}
