//! The engine: the state under a plan. It takes steps, and puts other plans into effect.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;

use crate::event::{DropCause, Effect, Event, Fact};
use crate::history::{NotificationHistory, load_history};
use crate::observation::{DocumentPath, MountId};
use crate::plan::{Plan, PublishMode, ReplacedHub, SourcePlan};
use crate::time::{StepClocks, later};
use jiff::Timestamp;
use resourcesync::uri::{Hub, Uri};
use rusqlite::Connection;
use websub::retry::end_after_restart;

use crate::state::{AccountId, ChannelId, Db, DocId, HubId, Result, StatementError};
use crate::steps::live::{LiveSource, LiveState};
use crate::steps::{Step, change_sets, channels, cut, deletions, mounts, owed, relations, served};

/// What reports are made from: the database, and what is in memory alone. Where no daemon runs, that is
/// [at rest](LiveState::is_at_rest).
#[derive(Debug, Clone, Copy)]
pub struct StateReader<'a> {
    pub db: Db<'a>,
    /// Its mounts have the [numbers](crate::steps::mounts::number_mounts) of the state.
    pub plan: &'a Plan,
    pub live: &'a LiveState,
    pub history: &'a NotificationHistory,
    pub now: Timestamp,
}

impl<'a> StateReader<'a> {
    /// Returns the sources, in the order of the plan.
    pub fn sources(&self) -> impl Iterator<Item = (&'a SourcePlan, &'a LiveSource)> {
        self.plan.sources.iter().zip(&self.live.sources)
    }
}

/// The state under a plan, with what is kept in memory of it.
#[derive(Debug)]
pub struct Engine {
    pub connection: Connection,
    pub plan: Plan,
    pub live: LiveState,
    pub history: NotificationHistory,
    /// The time for a [`Event::Tick`], if nothing else happens before.
    pub wake: Option<Timestamp>,
}

impl Engine {
    /// Puts a plan into effect over a database.
    pub fn start(
        mut connection: Connection,
        mut plan: Plan,
        now: StepClocks,
    ) -> Result<(Engine, Vec<Effect>)> {
        let transaction = connection.transaction()?;
        let (live, effects, wake) = put_into_effect(Db(&transaction), &mut plan, now, None)?;
        let history = load_history(Db(&transaction))?;
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
    pub fn change_plan<T, E: From<StatementError>>(
        &mut self,
        mut plan: Plan,
        now: StepClocks,
        prepare: impl FnOnce(Db<'_>, &Plan) -> Result<T, E>,
    ) -> Result<(T, Vec<Effect>), E> {
        let transaction = self.connection.transaction().map_err(StatementError)?;
        let (live, effects, wake) =
            put_into_effect(Db(&transaction), &mut plan, now, Some(&self.live))?;
        let prepared = prepare(Db(&transaction), &plan)?;
        transaction.commit().map_err(StatementError)?;
        self.plan = plan;
        self.live = live;
        self.wake = wake;
        Ok((prepared, effects))
    }

    /// Returns an engine for a look at a state that is left as it is: it may be read only.
    pub fn read_only(connection: Connection, mut plan: Plan, now: StepClocks) -> Result<Engine> {
        let db = Db(&connection);
        mounts::number_mounts(db, &mut plan)?;
        let mut live = LiveState::load(db, &plan, now.wall)?;
        live.is_at_rest = true;
        for (source, plan) in live.sources.iter_mut().zip(&plan.sources) {
            deletions::judge_missing(db, plan, source)?;
        }
        Ok(Engine {
            history: load_history(db)?,
            connection,
            plan,
            live,
            wake: None,
        })
    }

    /// Takes a batch of events, and commits with it what `beside` writes, which is called with the effects. If it fails,
    /// nothing happened, and it is to be tried again.
    pub fn step(
        &mut self,
        events: Vec<Event>,
        now: StepClocks,
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
            self.history.note_outcome(channel, seq, outcome);
        }
        Ok(effects)
    }

    /// Takes an operator's command, and nothing that follows from it: on a state that no daemon works on, that is for the
    /// next daemon to do, and to report.
    pub fn execute_offline(&mut self, event: Event, now: StepClocks) -> Result<Vec<Effect>> {
        let mut live = self.live.clone();
        let transaction = self.connection.transaction()?;
        let mut step = Step::new(Db(&transaction), &self.plan, &mut live, now);
        step.handle_event(event)?;
        let facts = take(&mut step.facts);
        transaction.commit()?;
        self.live = live;
        Ok(facts.into_iter().map(Effect::Tell).collect())
    }

    pub fn db(&self) -> Db<'_> {
        Db(&self.connection)
    }

    /// Returns what reports are made from.
    pub fn reader(&self, now: Timestamp) -> StateReader<'_> {
        StateReader {
            db: self.db(),
            plan: &self.plan,
            live: &self.live,
            history: &self.history,
            now,
        }
    }
}

/// Puts a plan into effect. Returns what is kept in memory of it, the effects, and the time of the next deadline.
fn put_into_effect(
    db: Db<'_>,
    plan: &mut Plan,
    now: StepClocks,
    before: Option<&LiveState>,
) -> Result<(LiveState, Vec<Effect>, Option<Timestamp>)> {
    let mut live = LiveState::default();
    mounts::number_mounts(db, plan)?;
    let mut step = Step::new(db, plan, &mut live, now);
    apply_plan(&mut step, before)?;
    cut::cut_ready(&mut step)?;
    let effects = step.effects()?;
    let wake = step.next_deadline()?;
    Ok((live, effects, wake))
}

/// Puts the plan of a step into effect: rows of what is not configured any more go, and nothing is announced (R13).
fn apply_plan(step: &mut Step<'_>, before: Option<&LiveState>) -> Result<()> {
    let db = step.db;
    for plan in &step.plan.sources {
        let sql = "INSERT INTO source (name) VALUES (?1) ON CONFLICT (name) DO NOTHING";
        db.run(sql, &plan.name)?;
        for set in step.plan.configured_sets(plan) {
            db.ensure_row(set)?;
        }
    }
    let (added, inherited) = apply_configured_hubs(step)?;
    *step.live = LiveState::load(db, step.plan, step.wall)?;
    // What this plan decides is to be decided again, should the plan before it return.
    let sql = "UPDATE source SET routed = NULL WHERE routed <> ?1";
    db.run(sql, &*step.live.plan_hash)?;
    for (id, live) in &mut step.live.hubs {
        live.is_added = added.contains(&live.hub);
        live.is_inherited = inherited.contains(&live.hub);
        if let Some((all, before)) = before.and_then(|all| Some((all, all.hubs.get(id)?))) {
            Arc::make_mut(&mut live.queue).inherit_refusals(&before.queue);
            // No list may have been read under the plan before.
            if !all.sources.iter().all(|source| source.has_settled) {
                live.is_added |= before.is_added;
                live.is_inherited |= before.is_inherited;
            }
        }
    }
    // R20: what a hub was pinged about and did not fetch, no notification has.
    let sql = "UPDATE account SET until = CASE WHEN fetched THEN until END, pinged = NULL WHERE pinged IS NOT NULL \
               AND (SELECT mode FROM hub WHERE id = account.hub) <> 'ping'";
    db.run(sql, ())?;
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
    if let Some(before) = before {
        step.live.last_round = before.last_round;
    } else {
        let sql = "UPDATE document SET grace_ends = NULL, look_at = NULL WHERE presence IN (2, 3)";
        db.run(sql, ())?;
        // What ended while nobody ran is served and sent for a while first (R11).
        let kept = end_after_restart(step.now, step.plan.retired_topic, step.now);
        for table in ["channel", "account"] {
            let sql = format!("UPDATE {table} SET ends = ?1 WHERE ends < ?1");
            db.run(&sql, kept)?;
        }
        // What was under way may have been taken.
        let sql = "UPDATE account SET in_doubt = max(in_doubt, sending IS NOT NULL), sending = NULL, is_answer_old = 0, \
                   acceptances = NULL, is_at_fault = 0 WHERE sending IS NOT NULL OR acceptances IS NOT NULL";
        db.run(sql, ())?;
        for (position, plan) in step.plan.sources.iter().enumerate() {
            let report_at = later(step.now, plan.broken_after);
            let sql = "UPDATE trouble SET reported = 0, report_at = ?1 WHERE source = ?2";
            db.run(sql, (report_at, step.live.sources[position].id))?;
        }
    }
    change_sets::restart_rounds(step, before.is_none())?;
    let sql = "SELECT channel, hub, sending FROM account WHERE sending IS NOT NULL";
    let sending = db.all::<Vec<(AccountId, u64)>>(sql, ())?;
    for ((id, hub), seq) in sending {
        if let Some(queue) = step.live.queue_mut(hub) {
            queue.sent(id, seq);
        }
    }
    db.run("UPDATE finding SET tell_at = NULL", ())?;
    forget_unconfigured(step)?;
    // R12: the deletions that are announced may be others now.
    let sql = "SELECT o.document FROM owed o CROSS JOIN document d ON d.id = o.document WHERE o.due IS NOT NULL \
               AND o.told_capability IS NOT NULL AND (d.presence = 4 OR (o.told_capability, o.told_form) <> (d.capability, d.form))";
    for gone in db.all::<BTreeSet<DocId>>(sql, ())? {
        if let Some(document) = db.document(gone)? {
            owed::weigh(step, document, false)?;
        }
    }
    for position in 0..step.plan.sources.len() {
        relations::resolve_aliases(step, position)?;
    }
    served::withdraw_unserved_pings(step)?;
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
    step.serve
        .extend(db.all::<Vec<ChannelId>>("SELECT id FROM channel", ())?);
    Ok(())
}

/// Notes the hubs that are configured; the accounts of one that is replaced become those of the other (R13). Returns the hubs
/// that are new, and those that replace others.
fn apply_configured_hubs(step: &mut Step<'_>) -> Result<(BTreeSet<Hub>, BTreeSet<Hub>)> {
    let db = step.db;
    let sql = "SELECT id, uri, mode FROM hub WHERE configured = 1";
    let known = db.all::<Vec<(HubId, Hub, String)>>(sql, ())?;
    let mut added = BTreeSet::new();
    for (hub, mode) in step.plan.hubs_and_brokers() {
        if !known.iter().any(|(_, uri, _)| uri == hub) {
            added.insert(hub.clone());
        }
        db.run(
            "INSERT INTO hub (uri, mode, configured) VALUES (?1, ?2, 1) \
             ON CONFLICT (uri) DO UPDATE SET mode = excluded.mode, configured = 1",
            (hub, serde_json::json!(mode).as_str()),
        )?;
    }
    let mut removed = known;
    removed.retain(|(_, uri, _)| step.plan.mode_of(uri).is_none());
    let named = step.plan.hubs.iter().filter_map(|hub| match &hub.replaces {
        ReplacedHub::Hub(old) => Some((old.clone(), hub.hub.clone())),
        _ => None,
    });
    let named = named.filter(|(old, _)| step.plan.mode_of(old).is_none());
    let mut replacements: Vec<(Hub, Hub)> = named.collect();
    let mut unnamed = removed.iter().filter(|(_, uri, mode)| {
        mode != "broker" && !replacements.iter().any(|(old, _)| old == uri)
    });
    let mut new: Vec<_> = step.plan.hubs.iter().collect();
    new.retain(|hub| added.contains(&hub.hub) && !matches!(hub.replaces, ReplacedHub::Hub(_)));
    if let (Some((_, old, mode)), None, [new]) = (unnamed.next(), unnamed.next(), &new[..]) {
        // Our own hub has subscribers of its own.
        let was_embedded = mode == "embedded";
        if new.replaces == ReplacedHub::Automatic
            && was_embedded == (new.mode == PublishMode::Embedded)
        {
            replacements.push((old.clone(), new.hub.clone()));
        }
    }
    let mut inherited = BTreeSet::new();
    for (old, new) in replacements {
        let channels = db.run_and_count(
            "UPDATE account SET hub = (SELECT id FROM hub WHERE uri = ?2), max_entries = NULL, \
             until = CASE WHEN pinged IS NULL OR fetched THEN until END, pinged = NULL, fetched = 0, unfetched_reported = 0, \
             ping_due = NULL, last = NULL, sending = NULL, is_answer_old = 0, acceptances = NULL, is_at_fault = 0, \
             attempts = CASE WHEN seq IS NOT NULL THEN 0 END \
             WHERE hub = (SELECT id FROM hub WHERE uri = ?1) AND NOT EXISTS (SELECT 1 FROM account b \
             WHERE b.channel = account.channel AND b.hub = (SELECT id FROM hub WHERE uri = ?2))",
            (&old, &new),
        )?;
        if channels > 0 {
            added.remove(&new);
            inherited.insert(new.clone());
            let (hub, by) = (old, new);
            step.facts.push(Fact::HubReplaced { hub, by, channels });
        }
    }
    for (id, ..) in removed {
        let sql = "SELECT channel, hub FROM account WHERE hub = ?1";
        for account in db.all::<Vec<AccountId>>(sql, id)? {
            channels::report_due(step, account, DropCause::HubRemoved)?;
        }
        db.run("DELETE FROM account WHERE hub = ?1", id)?;
        db.run("UPDATE hub SET configured = 0 WHERE id = ?1", id)?;
    }
    Ok((added, inherited))
}

/// Forgets documents, files and channels that are not configured any more, and baselines that were not finished.
fn forget_unconfigured(step: &mut Step<'_>) -> Result<()> {
    let db = step.db;
    let known = db.all::<Vec<MountId>>("SELECT id FROM mount", ())?;
    let mounts = step.live.sources.iter().flat_map(|it| it.mounts.values());
    let unchanged = mounts.filter(|mount| mount.baseline.is_swept_as_configured());
    // If the state is that of this plan, and every mount was swept since, it has nothing else.
    let is_of_plan = step.live.sources.iter().all(|source| source.was_routed);
    if !is_of_plan || unchanged.count() < known.len() {
        forget_files(step)?;
    }
    channels::remove_orphaned(step)?;
    change_sets::forget_without_channel(step)?;
    // R13: one that is configured again is new.
    let mut gone = known
        .into_iter()
        .filter(|it| step.plan.source_of(*it).is_none());
    gone.try_for_each(|mount| db.run("DELETE FROM mount WHERE id = ?1", mount))
}

/// Returns the path of a document of a source under another plan. A document is what its URI says, so another mount of its
/// source may have it. Nothing if it is no longer configured (R13).
fn path_in_plan(step: &Step<'_>, uri: &Uri, source: Option<i64>) -> Option<DocumentPath> {
    let sources = step.plan.sources.iter().zip(&step.live.sources);
    let mut places = sources.filter_map(|it| Some((it, it.0.path_of(uri)?)));
    let ((plan, live), place) = places.next()?;
    (source == Some(live.id) && plan.accepts(&place)).then_some(place)
}

/// Forgets what lies on no mount that is configured, or where its source has no candidates, or was read for a baseline that
/// was not finished.
fn forget_files(step: &mut Step<'_>) -> Result<()> {
    let db = step.db;
    let sql = "SELECT d.id, d.uri, d.mount, d.path, m.source FROM document d LEFT JOIN mount m \
               ON m.id = d.mount AND (m.baselined = 1 OR d.baseline = 0) WHERE d.presence > 0";
    let documents = db.all::<Vec<(DocId, Uri, DocumentPath, Option<i64>)>>(sql, ())?;
    let mut forgotten = Vec::new();
    for (id, uri, path, source) in documents {
        match path_in_plan(step, &uri, source) {
            Some(place) if place != path => {
                db.update_document(id, "mount = ?2, path = ?3, looked = 0", &place)?;
                // R15: the file system that has it may not be mounted yet.
                if let Some((position, _)) = step.plan.source_of(place.mount) {
                    step.live.sources[position].note_had_document(db, place.mount)?;
                }
            }
            Some(_) => {}
            None => forgotten.push(id),
        }
    }
    deletions::forget_and_report(step, &forgotten)?;
    let sql = "SELECT DISTINCT about, source FROM finding WHERE part = 2";
    for (file, source) in db.all::<Vec<(Uri, i64)>>(sql, ())? {
        if path_in_plan(step, &file, Some(source)).is_none() {
            db.run("DELETE FROM finding WHERE about = ?1 AND part = 2", &file)?;
        }
    }
    for table in ["other_file", "trouble"] {
        let files = db.all::<Vec<DocumentPath>>(&format!("SELECT mount, path FROM {table}"), ())?;
        for path in files {
            let source = step.plan.source_of(path.mount);
            if source.is_none_or(|(_, it)| it.uri_of(&path).is_none() || !it.accepts(&path)) {
                let sql = format!("DELETE FROM {table} WHERE mount = ?1 AND path = ?2");
                db.run(&sql, &path)?;
            }
        }
    }
    Ok(())
}
