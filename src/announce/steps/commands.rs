//! What operators ask for: to retry what waits, and to drop what is due (R23).

use std::collections::BTreeSet;

use crate::announce::event::{DropCause, Fact};
use crate::announce::history::Outcome;
use resourcesync::channel_kind::ChannelKind;

use crate::announce::steps::{Step, change_log, channels, delivery, owed};
use crate::state::{AccountId, DocId, Result};

/// Retries now the notifications that wait for their next attempt: of one hub on one channel, or all.
pub fn retry(step: &mut Step<'_>, only: Option<AccountId>) -> Result<()> {
    let flying = step.db.all::<Vec<AccountId>>(
        "SELECT a.channel, a.hub FROM hub h CROSS JOIN account a ON a.hub = h.id \
         WHERE a.seq IS NOT NULL AND a.sending IS NULL",
        (),
    )?;
    let mut notifications = 0;
    for (id, hub) in flying {
        if only.is_some_and(|meant| meant != (id, hub)) {
            continue;
        }
        notifications += 1;
        let sql = "UPDATE account SET retry_at = ?3 WHERE channel = ?1 AND hub = ?2";
        step.db.run(sql, (id, hub, step.now))?;
        let now = step.now;
        if let Some(live) = step.live.hubs.get_mut(&hub) {
            match only {
                Some(_) => live.queue_mut().push_asked_for(id),
                None => live.queue_mut().hurry(now),
            }
        }
    }
    if notifications > 0 {
        step.facts.push(Fact::Retried { notifications });
    }
    delivery::retry_due(step)
}

/// Counts as told what is in flight on an account and what it is due (R23). Changes that are held and documents that are
/// missing are not announced yet, so they stay.
pub fn drop_due(step: &mut Step<'_>, account: AccountId) -> Result<usize> {
    let (id, hub) = account;
    let Some(channel) = channels::channel(step, id)? else {
        return Ok(0);
    };
    let sql = "SELECT seq FROM account WHERE channel = ?1 AND hub = ?2";
    let seq = step.db.first::<Option<u64>>(sql, account)?.flatten();
    let (changes, documents) = match channel.kind {
        ChannelKind::Framework => drop_documents(step, account)?,
        ChannelKind::Change => (change_log::drop_due(step, account)?, BTreeSet::new()),
    };
    if changes == 0 {
        return Ok(0);
    }
    delivery::clear_flight(step, account)?;
    let sql = "UPDATE account SET until = NULL, max_entries = NULL WHERE channel = ?1 AND hub = ?2";
    step.db.run(sql, account)?;
    if channel.kind == ChannelKind::Change {
        change_log::trim(step, id)?;
    }
    if let Some(seq) = seq {
        step.note_outcome(account, seq, Outcome::Dropped)?;
    }
    let is_last = !step.db.exists(
        "SELECT 1 FROM account WHERE hub = ?1 AND seq IS NOT NULL",
        hub,
    )?;
    if let Some(live) = step.live.hubs.get_mut(&hub) {
        live.queue_mut().remove(id);
        // Nothing is left that could find out whether the hub still fails: the next notification does.
        if is_last {
            live.queue_mut().end_outage();
        }
    }
    delivery::follow_up(step, id, documents.into_iter().collect())?;
    step.report_dropped(&channel.topic, hub, changes, DropCause::Operator)?;
    Ok(changes)
}

/// Takes as told what is in flight on an account and what it is due of documents. Returns these, and their number.
fn drop_documents(step: &Step<'_>, account: AccountId) -> Result<(usize, BTreeSet<DocId>)> {
    let sql = "SELECT document FROM owed WHERE channel = ?1 AND hub = ?2 AND due IS NOT NULL";
    let due = step.db.all::<Vec<DocId>>(sql, account)?;
    let flown = delivery::covered(step, account)?;
    let mut owed: BTreeSet<DocId> = due.iter().copied().collect();
    owed.extend(flown.iter().map(|(document, _)| *document));
    for (document, told) in &flown {
        let sql = "SELECT 1 FROM owed WHERE channel = ?1 AND hub = ?2 AND document = ?3";
        if !due.contains(document) && step.db.exists(sql, (account, *document))? {
            owed::set_told(step.db, account, *document, *told)?;
        }
    }
    for document in due {
        let seen = step.db.document(document)?.and_then(|it| it.seen());
        owed::set_told(step.db, account, document, seen)?;
    }
    Ok((owed.len(), owed))
}
