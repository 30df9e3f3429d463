//! Submissions and the answers to them: what they mean for the notification, for the account, and for all else that waits
//! for the hub; and what operators ask for (R22 to R24, R26).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::delivery::{HubFault, HubQueue, KeptAnswer, Outage, SIZE_REMEMBERED, Submission};
use crate::event::{AnswerOutcome, AnsweredNotification, DropCause, Fact};
use crate::plan::PublishMode;
use crate::steps::owed::Version;
use crate::time::{earlier, elapsed, later};
use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Hub;
use websub::answer::Answer;
use websub::publisher::reason::{Refusal, RefusalKind};
use websub::publisher::verdict::{Verdict, verdict};

use crate::history::{NotificationState, OutcomeView};
use crate::state::{AccountId, ChannelId, DocId, HubId, Result, from_row};
use crate::steps::channels::{self, Channel, channel};
use crate::steps::cut::{CHANNELS_PER_STEP, cut_ready, size_limit};
use crate::steps::documents::{Presence, SeenDocument};
use crate::steps::served::{PING_APART, forget_unfetched};
use crate::steps::{Step, change_log, owed};

/// The wait of a notification that cannot be made smaller (R23).
const TOO_LARGE_WAIT: Duration = Duration::from_secs(15 * 60);

/// The notification in flight on an account.
#[derive(Debug, Default)]
pub struct Flight {
    pub seq: u64,
    pub entries: usize,
    /// The size of its body; of a part of a logged one by estimate.
    pub bytes: usize,
    pub until: Option<Timestamp>,
    pub cut: Timestamp,
    pub attempts: u32,
    /// True while it, or one that was dropped meanwhile, is being submitted.
    pub is_sending: bool,
    /// True if it is in the log of a change channel.
    pub is_logged: bool,
}

from_row! { Flight { seq, entries, bytes, until, cut, attempts, is_sending, is_logged } }

/// Puts a notification in flight to a hub, whose body the log has if it is not given.
pub fn launch(
    step: &mut Step<'_>,
    account: AccountId,
    flight: &Flight,
    body: Option<&[u8]>,
) -> Result<()> {
    step.db.set_account(account, "seq = ?3, body = ?4, entries = ?5, flight_until = ?6, cut = ?7, attempts = 0, retry_at = NULL, \
         in_doubt = 0, fetched = 0", (flight.seq, body, flight.entries, flight.until, flight.cut))?;
    if step.mode(account.1) == Some(PublishMode::Ping) {
        forget_unfetched(step, account)?;
    }
    enqueue(step, account, 0, false)
}

// Submissions.

/// Queues the notification in flight of an account, to be submitted as soon as the hub may be sent more.
fn enqueue(step: &mut Step<'_>, account: AccountId, attempts: u32, is_sending: bool) -> Result<()> {
    // It takes everything at once, in this process.
    let (id, hub) = account;
    if step.mode(hub) == Some(PublishMode::Embedded) {
        if let Some((_, submission)) = submission(step, account)? {
            submit(step, account, submission)?;
        }
    } else if let Some(queue) = step.live.queue_mut(hub).filter(|_| !is_sending) {
        queue.push(id, attempts == 0);
    }
    Ok(())
}

/// Returns what is in flight on an account, and how it is submitted.
fn submission(step: &Step<'_>, account: AccountId) -> Result<Option<(Flight, Submission)>> {
    let row = step.db.first::<(Flight, Option<Arc<[u8]>>, _, _, _, _)>(
        "SELECT a.seq, a.entries, coalesce(length(a.body), l.bytes * a.entries / l.entries), a.flight_until, a.cut, a.attempts, \
         a.sending IS NOT NULL, a.body IS NULL, a.body, c.kind, c.topic, s.name, d.uri FROM account a \
         LEFT JOIN change_log l ON l.channel = a.channel AND l.seq = a.seq CROSS JOIN channel c ON c.id = a.channel \
         CROSS JOIN source s ON s.id = c.source CROSS JOIN document d ON d.id = c.set_id \
         WHERE a.channel = ?1 AND a.hub = ?2 AND a.seq IS NOT NULL",
        account,
    )?;
    let (Some((flight, body, kind, topic, source, capability_list)), Some(live)) =
        (row, step.live.hubs.get(&account.1))
    else {
        return Ok(None);
    };
    let body = match body {
        Some(body) => body,
        None => change_log::remaining_body(step.db, account, flight.seq, flight.entries)?,
    };
    let outside = (kind == ChannelKind::Change && live.mode == PublishMode::Broker)
        .then(|| change_log::omitted_datetimes(step.db, account.0, flight.seq));
    let submission = Submission {
        channel: account.0,
        hub: live.hub.clone(),
        mode: live.mode,
        seq: flight.seq,
        source,
        kind,
        topic,
        capability_list,
        body,
        outside: outside.transpose()?.unwrap_or_default(),
    };
    Ok(Some((flight, submission)))
}

fn submit(step: &mut Step<'_>, account: AccountId, submission: Submission) -> Result<()> {
    if let Some(queue) = step.live.queue_mut(account.1) {
        queue.sent(account.0, submission.seq);
    }
    step.submit.push(submission);
    step.db.set_account(account, "sending = seq", ())
}

/// Submits what may go now to every hub, and cuts again what was never answered and is out of date or too large.
pub fn dispatch(step: &mut Step<'_>) -> Result<()> {
    let hubs: Vec<HubId> = step.live.hubs.keys().copied().collect();
    for hub in hubs {
        loop {
            let of_hub = step.live.hubs.get_mut(&hub);
            let live = of_hub.filter(|live| !live.queue.waiting.is_empty());
            let Some(id) = live.and_then(|it| Arc::make_mut(&mut it.queue).pop(step.now)) else {
                break;
            };
            let account = (id, hub);
            let next = submission(step, account)?;
            let Some((flight, submission)) = next.filter(|(flight, _)| !flight.is_sending) else {
                continue;
            };
            if flight.attempts > 0 || !is_outdated(step, account, &flight)? {
                submit(step, account, submission)?;
                continue;
            }
            step.note_outcome(account, flight.seq, NotificationState::Withdrawn)?;
            withdraw_flight(step, account)?;
            cut_ready(step)?;
        }
    }
    Ok(())
}

/// Returns true if the notification in flight no longer announces what there is to announce, or is larger than what the hub
/// refused since it was cut: one that was cut later may be indivisible.
fn is_outdated(step: &Step<'_>, account: AccountId, flight: &Flight) -> Result<bool> {
    let size = size_limit(step, account.1, None);
    let is_too_large = flight.entries > size.entries || flight.bytes > size.bytes;
    if is_too_large && !flight.is_logged && flight.cut < earlier(size.until, SIZE_REMEMBERED) {
        return Ok(true);
    }
    if step.mode(account.1) == Some(PublishMode::Ping) || flight.cut >= step.now {
        return Ok(false);
    }
    step.db.exists(
        "SELECT 1 FROM flight_entry f LEFT JOIN document d ON d.id = f.document AND d.presence BETWEEN 1 AND 3 \
         LEFT JOIN owed o ON o.channel = f.channel AND o.hub = f.hub AND o.document = f.document \
         WHERE f.channel = ?1 AND f.hub = ?2 AND (o.due IS NULL AND coalesce(o.dormant, 0) = 0 OR (f.capability IS NOT NULL \
         AND (f.fingerprint IS NOT d.fingerprint OR f.capability IS NOT d.capability OR f.form IS NOT d.form)))",
        account,
    )
}

/// Withdraws what is in flight. Where the hub may have taken it, it is not known any more what the hub was told of its
/// documents; a document that it was never told of counts as not told, unless it is away: its end is to be told then.
pub fn withdraw_flight(step: &mut Step<'_>, account: AccountId) -> Result<()> {
    let sql = "SELECT 1 FROM account WHERE channel = ?1 AND hub = ?2 AND (in_doubt = 1 OR sending IS NOT NULL)";
    let in_doubt = step.db.exists(sql, account)?;
    let covered = flight_versions(step, account)?;
    step.db.run(
        "UPDATE owed SET dormant = 0 WHERE channel = ?1 AND hub = ?2 AND dormant = 1 \
         AND document IN (SELECT document FROM flight_entry WHERE channel = ?1 AND hub = ?2)",
        account,
    )?;
    if in_doubt {
        step.db.set_account(account, "until = NULL", ())?;
        for (document, flown) in &covered {
            let sql = "SELECT told_capability, told_form, told_fingerprint FROM owed \
                       WHERE channel = ?1 AND hub = ?2 AND document = ?3";
            let owed: Option<Option<Version>> = step.db.first(sql, (account, *document))?;
            let seen = step.db.document(*document)?;
            let is_there = |seen: &SeenDocument| seen.presence == Presence::Present;
            let is_away = !seen.as_ref().is_some_and(is_there);
            let told = owed.unwrap_or_else(|| seen.and_then(|seen| seen.seen_version()));
            if let Some(mut told) = told.or(flown.filter(|_| is_away)) {
                told.fingerprint = None;
                owed::set_told(step.db, account, *document, Some(told))?;
            }
        }
    }
    clear_flight(step, account)?;
    step.ready.insert(account.0);
    let documents = covered.into_iter().map(|(document, _)| document);
    weigh_again(step, account.0, documents.collect())
}

/// The columns of an account with nothing in flight.
const NO_FLIGHT: &str = "seq = NULL, body = NULL, entries = NULL, flight_until = NULL, cut = NULL, attempts = NULL, \
                         retry_at = NULL, in_doubt = 0";

/// Forgets what is in flight on an account.
pub fn clear_flight(step: &Step<'_>, account: AccountId) -> Result<()> {
    let sql = "DELETE FROM flight_entry WHERE channel = ?1 AND hub = ?2";
    step.db.run(sql, account)?;
    step.db.set_account(account, NO_FLIGHT, ())
}

fn flight_versions(step: &Step<'_>, account: AccountId) -> Result<Vec<(DocId, Option<Version>)>> {
    let sql = "SELECT document, capability, form, fingerprint FROM flight_entry WHERE channel = ?1 AND hub = ?2";
    step.db.all(sql, account)
}

/// Weighs documents again, after what an account of a channel was told of them changed.
fn weigh_again(step: &mut Step<'_>, channel: ChannelId, documents: Vec<DocId>) -> Result<()> {
    for document in documents {
        if let Some(document) = step.db.document(document)? {
            owed::weigh(step, document, false)?;
        }
    }
    channels::end_left_accounts(step, channel)
}

/// Queues the notifications whose time has come.
pub fn retry_due(step: &mut Step<'_>) -> Result<()> {
    let due = step.db.all::<Vec<(AccountId, Option<u32>, bool)>>(
        "UPDATE account SET retry_at = NULL WHERE (channel, hub) IN (SELECT channel, hub FROM account \
         WHERE retry_at <= ?1 ORDER BY retry_at LIMIT ?2) RETURNING channel, hub, attempts, sending IS NOT NULL",
        (step.now, CHANNELS_PER_STEP),
    )?;
    for (account, attempts, is_sending) in due {
        enqueue(step, account, attempts.unwrap_or_default(), is_sending)?;
    }
    Ok(())
}

// Answers.

/// The answer to the notification in flight of an account.
struct AnsweredFlight<'a> {
    account: AccountId,
    hub: Hub,
    channel: Channel,
    flight: Flight,
    answer: &'a Answer,
    /// The attempt before at the same notification.
    before: Option<KeptAnswer>,
    was_probe: bool,
    jitter: f64,
}

impl AnsweredFlight<'_> {
    /// Returns the fact of the answer.
    fn fact(&self, outcome: AnswerOutcome) -> Fact {
        let answered = AnsweredNotification {
            kind: self.channel.kind,
            topic: self.channel.topic.clone(),
            hub: self.hub.clone(),
            seq: self.flight.seq,
            attempts: self.flight.attempts,
        };
        Fact::Answered(answered, outcome)
    }
}

/// Handles the answer to a submission.
pub fn answered(
    step: &mut Step<'_>,
    account: AccountId,
    seq: u64,
    answer: &Answer,
    jitter: f64,
) -> Result<()> {
    let (id, hub) = account;
    let queue = step.live.queue_mut(hub);
    let was_probe = queue.is_some_and(|queue| queue.answered(id, seq));
    let of_log = "(SELECT l.bytes * account.entries / l.entries FROM change_log l \
                  WHERE l.channel = account.channel AND l.seq = account.seq)";
    let flying = step.db.first::<(Flight, Option<KeptAnswer>)>(
        &format!(
            "UPDATE account SET attempts = attempts + 1, in_doubt = max(in_doubt, ?4), retry_at = NULL, sending = NULL \
             WHERE channel = ?1 AND hub = ?2 AND sending = ?3 AND seq IS NOT NULL \
             RETURNING seq, entries, coalesce(length(body), {of_log}), flight_until, cut, attempts, FALSE, body IS NULL, last"
        ),
        (account, seq, answer.leaves_doubt()),
    )?;
    let (Some(channel), Some((flight, last))) = (channel(step, id)?, flying) else {
        let sql =
            "UPDATE account SET sending = NULL WHERE channel = ?1 AND hub = ?2 AND sending = ?3";
        if step.db.run_and_count(sql, (account, seq))? > 0 {
            // It was dropped meanwhile: what is due since then may be cut now.
            step.ready.insert(id);
        }
        return Ok(());
    };
    let attempts = flight.attempts;
    let answered = AnsweredFlight {
        account,
        hub: step.hub_uri(hub)?,
        channel,
        flight,
        answer,
        before: last.filter(|last| last.seq == seq),
        was_probe,
        jitter,
    };
    match verdict(answer, attempts, step.now, jitter) {
        Verdict::Accepted => accepted(step, &answered),
        Verdict::TooLarge if withdraw_too_large(step, &answered)? => Ok(()),
        Verdict::TooLarge => {
            let reason = "a notification of one document is too large for it";
            let refusal = Refusal::new(RefusalKind::TooLarge, reason, true);
            refused(step, &answered, later(step.now, TOO_LARGE_WAIT), refusal)
        }
        Verdict::Refused { at, refusal } => refused(step, &answered, at, refusal),
    }
}

/// R22: takes what was in flight as told, and lets the next notification be cut from what is due now.
fn accepted(step: &mut Step<'_>, answered: &AnsweredFlight<'_>) -> Result<()> {
    let (account, now) = (answered.account, step.now);
    let (id, hub) = account;
    let last = KeptAnswer::new(answered.flight.seq, answered.answer, None, now);
    step.facts.push(answered.fact(AnswerOutcome::Delivered {
        changes: answered.flight.entries,
        took: elapsed(answered.flight.cut, now),
    }));
    let accepted = OutcomeView {
        at: Some(now),
        attempts: Some(answered.flight.attempts),
        ..OutcomeView::new(answered.hub.clone(), NotificationState::Accepted)
    };
    step.outcomes.push((id, answered.flight.seq, accepted));
    let is_pinged = step.mode(hub) == Some(PublishMode::Ping);
    step.db.run(
        "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint) \
         SELECT channel, hub, document, capability, form, fingerprint FROM flight_entry WHERE channel = ?1 AND hub = ?2 \
         ON CONFLICT (channel, hub, document) DO UPDATE SET told_capability = excluded.told_capability, \
         told_form = excluded.told_form, told_fingerprint = excluded.told_fingerprint",
        account,
    )?;
    if is_pinged {
        step.db.run(
            "INSERT INTO unfetched SELECT channel, hub, document FROM flight_entry WHERE channel = ?1 AND hub = ?2 \
             ON CONFLICT (channel, hub, document) DO NOTHING",
            account,
        )?;
    }
    let sql = "DELETE FROM flight_entry WHERE channel = ?1 AND hub = ?2 RETURNING document";
    let told = step.db.all::<Vec<DocId>>(sql, account)?;
    let is_whole =
        !answered.flight.is_logged || change_log::record_accepted(step, account, &answered.flight)?;
    // Of a hub that is pinged, what it fetches counts.
    let columns = format!(
        "until = CASE WHEN ?7 THEN until ELSE flight_until END, pinged = CASE WHEN ?7 THEN ?3 ELSE pinged END, \
         ping_due = CASE WHEN ?7 THEN ?4 ELSE ping_due END, max_entries = CASE WHEN NOT ?5 THEN max_entries END, \
         accepted = ?3, is_answer_old = 0, last = ?6, {NO_FLIGHT}"
    );
    let ping_due = later(now, PING_APART);
    let values = (now, ping_due, is_whole, last.to_json(), is_pinged);
    step.db.set_account(account, &columns, values)?;
    if answered.flight.is_logged {
        change_log::forget_told(step, id)?;
    }
    weigh_again(step, id, told)?;
    step.ready.insert(id);
    let ended = step.live.queue_mut(hub).and_then(HubQueue::accepted);
    release_waiting(step, hub, ended)
}

/// Withdraws a notification that is too large, so that half of it is cut. Returns false if it cannot be made smaller.
fn withdraw_too_large(step: &mut Step<'_>, answered: &AnsweredFlight<'_>) -> Result<bool> {
    let (account, now) = (answered.account, step.now);
    let (hub, entries) = (account.1, answered.flight.entries);
    let sql = "SELECT max_entries FROM account WHERE channel = ?1 AND hub = ?2";
    let limit = size_limit(step, hub, step.db.value(sql, account)?).entries;
    // One document may have two entries, which no limit parts.
    if entries < 2 || entries == 2 && limit <= 1 && !answered.flight.is_logged {
        return Ok(false);
    }
    let limit = limit.min(entries / 2);
    let refusal = Refusal::new(RefusalKind::TooLarge, "it is too large for it", false);
    let last = KeptAnswer::new(answered.flight.seq, answered.answer, Some(refusal), now);
    withdraw_flight(step, account)?;
    let values = (limit, last.to_json());
    step.db
        .set_account(account, "max_entries = ?3, last = ?4", values)?;
    if !answered.flight.is_logged {
        step.note_outcome(account, answered.flight.seq, NotificationState::Withdrawn)?;
    }
    let Some(queue) = step.live.queue_mut(hub) else {
        return Ok(true);
    };
    let is_news = queue.too_large(limit, answered.flight.bytes.div_ceil(2) + 512, now);
    let ended = queue.end_outage();
    let halved = AnswerOutcome::Halved { limit, is_news };
    step.facts.push(answered.fact(halved));
    release_waiting(step, hub, ended)?;
    Ok(true)
}

/// Plans the retry of a notification that was not accepted: by whether the hub fails as a whole or the notification does.
fn refused(
    step: &mut Step<'_>,
    answered: &AnsweredFlight<'_>,
    at: Timestamp,
    refusal: Refusal,
) -> Result<()> {
    let (account, now) = (answered.account, step.now);
    let (id, hub) = account;
    let seq = answered.flight.seq;
    let attempt = KeptAnswer::new(seq, answered.answer, Some(refusal.clone()), now);
    let sql = "UPDATE account SET last = ?3 WHERE channel = ?1 AND hub = ?2 \
               RETURNING is_answer_old, acceptances, is_at_fault";
    let retries: Option<(bool, Option<i64>, bool)> =
        step.db.first(sql, (account, attempt.to_json()))?;
    let (Some(queue), Some((is_answer_old, acceptances, was_at_fault))) =
        (step.live.queue_mut(hub), retries)
    else {
        return Ok(());
    };
    let accepted_since = acceptances.is_some_and(|before| queue.acceptances.cast_signed() > before);
    let is_at_fault = answered.before.is_some() && (was_at_fault || accepted_since);
    let may_be_of_hub = attempt.is_hub_wide_refusal();
    let is_of_hub = may_be_of_hub && (!is_at_fault || queue.record_repeated_fault(id));
    let (mut retry_at, mut is_news, mut ended) = (at, true, None);
    if is_answer_old {
        // The hub was reached in another way then.
        retry_at = now;
        queue.push(id, false);
        queue.make_probe_due(now);
    } else if is_of_hub {
        let failure = HubFault {
            refusal: refusal.clone(),
            retry_after: answered.answer.retry_after(now),
            is_doubtful: is_at_fault,
            jitter: answered.jitter,
        };
        is_news = queue.failed(failure, answered.was_probe, now);
        // Others may find out whether an operator is needed for this topic or for all.
        if !refusal.needs_operator {
            queue.push(id, false);
            retry_at = queue.outage.as_ref().map_or(at, |outage| outage.next_probe);
        }
    } else {
        if !may_be_of_hub {
            ended = queue.end_outage();
        }
        let last = answered.before.as_ref();
        let before = last.and_then(|last| last.refusal.as_ref());
        let is_repeated = before.is_some_and(|before| before.kind == refusal.kind);
        is_news = queue.note_refusal(&refusal, is_repeated, now);
    }
    let acceptances = queue.acceptances.cast_signed();
    let columns = "retry_at = ?3, is_answer_old = 0, acceptances = ?4, is_at_fault = ?5";
    let values = (retry_at, acceptances, is_at_fault);
    step.db.set_account(account, columns, values)?;
    step.facts.push(answered.fact(AnswerOutcome::Refused {
        refusal,
        next_try: retry_at,
        is_news,
    }));
    release_waiting(step, hub, ended)
}

/// Releases everything that waited for a failing hub, now that it answers.
fn release_waiting(step: &mut Step<'_>, hub: HubId, ended: Option<Outage>) -> Result<()> {
    let Some(outage) = ended else {
        return Ok(());
    };
    let sql = "SELECT channel, seq, attempts, last FROM account WHERE hub = ?1 AND seq IS NOT NULL AND sending IS NULL";
    let flying = step
        .db
        .all::<Vec<(ChannelId, u64, u32, Option<KeptAnswer>)>>(sql, hub)?;
    let mut notifications = 0;
    for (id, seq, attempts, last) in flying {
        let last = last.filter(|last| last.seq == seq);
        if last.is_none_or(|last| last.is_hub_wide_refusal()) {
            enqueue(step, (id, hub), attempts, false)?;
            notifications += 1;
        }
    }
    step.facts.push(Fact::Recovered {
        hub: step.hub_uri(hub)?,
        attempts: outage.attempts,
        took: elapsed(outage.since, step.now),
        notifications,
    });
    Ok(())
}

/// Reports how many refusals were like those that were reported.
pub fn sum_up_refusals(step: &mut Step<'_>) {
    let now = step.now;
    for live in step.live.hubs.values_mut() {
        if live.queue.sums_up_at().is_none_or(|at| at > now) {
            continue;
        }
        for (kind, reason, notifications) in Arc::make_mut(&mut live.queue).sum_up_refusals(now) {
            step.facts.push(Fact::RefusedAlike {
                hub: live.hub.clone(),
                kind,
                reason,
                notifications,
            });
        }
    }
}

/// Retries at once what waits for a hub whose address or credentials changed. A submission under way used the old ones.
pub fn retry_reconfigured(step: &mut Step<'_>, hub: HubId) -> Result<()> {
    let sql = "UPDATE account SET retry_at = ?2, is_answer_old = sending IS NOT NULL WHERE hub = ?1 AND seq IS NOT NULL";
    step.db.run(sql, (hub, step.now))?;
    if let Some(queue) = step.live.queue_mut(hub) {
        queue.make_probe_due(step.now);
    }
    retry_due(step)
}

// What operators ask for.

/// Retries now the notifications that wait for their next attempt: of one hub on one channel, or all.
pub fn retry(step: &mut Step<'_>, only: Option<AccountId>) -> Result<()> {
    let sql = "SELECT a.channel, a.hub FROM hub h CROSS JOIN account a ON a.hub = h.id \
               WHERE a.seq IS NOT NULL AND a.sending IS NULL";
    let mut notifications = 0;
    for (id, hub) in step.db.all::<Vec<AccountId>>(sql, ())? {
        if only.is_some_and(|meant| meant != (id, hub)) {
            continue;
        }
        notifications += 1;
        step.db.set_account((id, hub), "retry_at = ?3", step.now)?;
        if let Some(queue) = step.live.queue_mut(hub) {
            match only {
                Some(_) => queue.push_asked_for(id),
                None => queue.make_probe_due(step.now),
            }
        }
    }
    if notifications > 0 {
        step.facts.push(Fact::Retried { notifications });
    }
    retry_due(step)
}

/// Counts as told what is in flight on an account and what it is due (R23). Changes that are held and documents that are
/// missing are not announced yet, so they stay.
pub fn drop_due(step: &mut Step<'_>, account: AccountId) -> Result<()> {
    let (id, hub) = account;
    let Some(channel) = channel(step, id)? else {
        return Ok(());
    };
    let sql = "SELECT seq FROM account WHERE channel = ?1 AND hub = ?2";
    let seq: Option<u64> = step.db.value(sql, account)?;
    let (changes, documents) = match channel.kind {
        ChannelKind::Framework => drop_due_documents(step, account)?,
        ChannelKind::Change => (change_log::drop_due(step, account)?, BTreeSet::new()),
    };
    if changes == 0 && seq.is_none() {
        return Ok(());
    }
    clear_flight(step, account)?;
    step.db.set_account(account, "max_entries = NULL", ())?;
    step.db.end_intervals(account)?;
    if channel.kind == ChannelKind::Change {
        change_log::forget_told(step, id)?;
    }
    if let Some(seq) = seq {
        step.note_outcome(account, seq, NotificationState::Dropped)?;
    }
    let sql = "SELECT 1 FROM account WHERE hub = ?1 AND seq IS NOT NULL";
    let is_last = !step.db.exists(sql, hub)?;
    if let Some(queue) = step.live.queue_mut(hub) {
        queue.remove(id);
        // Nothing is left that could find out whether the hub still fails: the next notification does.
        if is_last {
            queue.end_outage();
        }
    }
    weigh_again(step, id, documents.into_iter().collect())?;
    step.report_dropped(&channel.topic, hub, changes, DropCause::Operator)
}

/// Takes as told what is in flight on an account and what it is due of documents. Returns these, and their number.
fn drop_due_documents(step: &Step<'_>, account: AccountId) -> Result<(usize, BTreeSet<DocId>)> {
    let sql = "SELECT document FROM owed WHERE channel = ?1 AND hub = ?2 AND due IS NOT NULL";
    let due = step.db.all::<Vec<DocId>>(sql, account)?;
    let flown = flight_versions(step, account)?;
    let mut owed: BTreeSet<DocId> = due.iter().copied().collect();
    owed.extend(flown.iter().map(|(document, _)| *document));
    for (document, told) in &flown {
        let sql = "SELECT 1 FROM owed WHERE channel = ?1 AND hub = ?2 AND document = ?3";
        if !due.contains(document) && step.db.exists(sql, (account, *document))? {
            owed::set_told(step.db, account, *document, *told)?;
        }
    }
    for document in due {
        let seen = step.db.document(document)?.and_then(|it| it.seen_version());
        owed::set_told(step.db, account, document, seen)?;
    }
    Ok((owed.len(), owed))
}
