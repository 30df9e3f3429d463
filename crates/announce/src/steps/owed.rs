//! The difference between what each hub was told and what is seen, and the part of it that may be announced now (R6, R7,
//! R10 to R15, R17).
//!
//! No row means: told what is seen. So a change of a document's version writes first what is owed, by [`see`].

use crate::difference::{Version, difference};
use crate::time::later;
use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::payload::ChangeKind;

use crate::state::{AccountId, Db, DocId, Result};
use crate::steps::Step;
use crate::steps::documents::{HoldState, SeenDocument, forget_if_done};

/// Accounts that are told of what changes from now on in a document of a set: those of its live channels.
const OF_MEMBER: &str = "FROM member m CROSS JOIN channel c ON c.set_id = m.set_id AND c.kind = 0 AND c.retired IS NULL \
     CROSS JOIN account a ON a.channel = c.id AND a.left_at IS NULL WHERE m.document = ?1";
/// Accounts that are told of Source Descriptions: those of every channel of their source (R10).
pub const OF_DESCRIPTION: &str = "FROM channel c CROSS JOIN account a ON a.channel = c.id AND a.left_at IS NULL \
     WHERE c.source = ?2 AND c.kind = 0 AND ?1 = ?1";

/// Accounts that are told of what changes from now on in the documents of a set: those of its live channels.
pub const OF_SET: &str = "FROM channel c CROSS JOIN account a ON a.channel = c.id AND a.left_at IS NULL \
     WHERE c.set_id = ?2 AND c.kind = 0 AND c.retired IS NULL AND ?1 = ?1";

/// Writes what is owed of a document before its version changes, or ends.
pub fn see(db: Db<'_>, source: i64, before: &SeenDocument, now: Option<&Version>) -> Result<()> {
    let told = before.seen();
    if before.version.is_description() {
        return owe(db, OF_DESCRIPTION, before.id, source, told);
    }
    owe(db, OF_MEMBER, before.id, source, told)?;
    if now.is_some_and(Version::is_description) {
        owe(db, OF_DESCRIPTION, before.id, source, None)?;
    }
    Ok(())
}

/// Notes what the accounts of a source or set, or of a member's sets, were told of a document, unless that is noted.
pub fn owe(db: Db<'_>, to: &str, document: DocId, of: i64, told: Option<Version>) -> Result<()> {
    let sql = format!(
        "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint) \
         SELECT a.channel, a.hub, ?1, ?3, ?4, ?5 {to} AND ?2 = ?2 ON CONFLICT (channel, hub, document) \
         DO UPDATE SET dormant = 0 WHERE owed.dormant = 1"
    );
    db.run(&sql, (document, of, told))
}

/// Takes a version as told to an account; nothing of a document that ended.
pub fn set_told(db: Db<'_>, account: AccountId, id: DocId, told: Option<Version>) -> Result<()> {
    db.run(
        "INSERT INTO owed (channel, hub, document, told_capability, told_form, told_fingerprint) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (channel, hub, document) DO UPDATE SET \
         told_capability = excluded.told_capability, told_form = excluded.told_form, \
         told_fingerprint = excluded.told_fingerprint",
        (account, id, told),
    )
}

/// R11: nothing follows what is in flight on a retired channel, or to a hub that left, if it is what is seen there: nothing
/// of a document that ended, or that became another one outside the set.
pub fn make_flown_dormant(step: &Step<'_>, account: AccountId) -> Result<()> {
    step.db.run(
        "UPDATE owed SET dormant = 1, due = NULL WHERE channel = ?1 AND hub = ?2 AND document IN (SELECT f.document \
         FROM flight_entry f CROSS JOIN document d ON d.id = f.document WHERE f.channel = ?1 AND f.hub = ?2 \
         AND CASE WHEN f.capability IS NULL THEN d.presence = 4 OR NOT EXISTS (SELECT 1 FROM member m \
         WHERE m.document = d.id AND m.set_id = (SELECT set_id FROM channel WHERE id = ?1)) \
         ELSE d.presence <> 4 AND f.capability = d.capability AND f.form = d.form \
         AND f.fingerprint IS NOT DISTINCT FROM d.fingerprint END)",
        account,
    )
}

/// A document's change that is due on an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DueDecision {
    /// Nothing, and nothing is noted any more.
    Nothing,
    /// Nothing now, and what was told stays noted.
    Later { is_held: bool },
    /// These changes.
    Announce(Vec<(ChangeKind, Capability)>, Option<Version>),
}

/// Returns what is due of a document, which may be a member of a set, on an account of the set's channel that was told this
/// version of it.
pub fn due(
    step: &Step<'_>,
    (set, is_member): (DocId, bool),
    document: &SeenDocument,
    told: Option<Version>,
) -> Result<DueDecision> {
    let version = &document.version;
    let is_index_of_descriptions =
        version.capability == Capability::SourceDescription && version.form == Form::Index;
    let is_told_description = told.as_ref().is_some_and(Version::is_description);
    if !document.is_gone() && is_index_of_descriptions && is_told_description {
        return Ok(DueDecision::Later { is_held: false });
    }
    let is_concerned = document.version.is_description() || is_member;
    let is_same = told.is_none_or(|told| told.is_same_document(version));
    let seen = if document.is_gone() {
        None
    } else if is_concerned || !is_a_set(step, document.source, set)? {
        (is_same || is_concerned).then_some(version)
    } else if is_same {
        // R14: leaving a set announces nothing.
        return Ok(DueDecision::Nothing);
    } else {
        None
    };
    let conditions = step.conditions(document.source, document.archived);
    let changes = difference(told.as_ref(), seen, conditions);
    if changes.is_empty() {
        return Ok(DueDecision::Nothing);
    }
    let is_above = document.version.is_set() || document.version.is_description();
    if is_concerned && seen.is_some() && !is_above && document.hold != HoldState::Expired {
        // R17: a created document waits for its Capability List, an index or an archive to list it, an updated one only if the
        // index that it names is new to it.
        let mut must_be_listed = false;
        for (kind, _) in &changes {
            must_be_listed |= match kind {
                ChangeKind::Created if told.is_none() => has_capability_list(step, set)?,
                ChangeKind::Created | ChangeKind::Updated => document.newly_indexed,
                ChangeKind::Deleted => false,
            };
        }
        let is_listed = "SELECT 1 FROM mention m CROSS JOIN document l ON l.id = m.list WHERE m.document = ?1 \
                         AND l.source = ?2 AND l.capability <> 0 AND l.presence BETWEEN 1 AND 3";
        if must_be_listed && !step.db.exists(is_listed, (document.id, document.source))? {
            return Ok(DueDecision::Later { is_held: true });
        }
    }
    if seen.is_some() && document.is_missing() {
        return Ok(DueDecision::Later { is_held: false });
    }
    Ok(DueDecision::Announce(changes, seen.copied()))
}

/// R7: returns true for a set, which exists when its Capability List is in the tree, or when the configuration names it.
pub fn is_a_set(step: &Step<'_>, source: i64, set: DocId) -> Result<bool> {
    let source = step.live.source(source);
    let is_configured = source.is_some_and(|source| source.configured.contains(&set));
    Ok(is_configured || has_capability_list(step, set)?)
}

pub fn has_capability_list(step: &Step<'_>, set: DocId) -> Result<bool> {
    step.db.exists(
        "SELECT 1 FROM document WHERE id = ?1 AND presence BETWEEN 1 AND 3 AND capability = 1 AND form = 0",
        set,
    )
}

/// Weighs what is owed of a document on all accounts: what is due opens their channels' windows, what is not is deleted.
/// Begins or ends the hold of the document (R17).
pub fn weigh(step: &mut Step<'_>, document: SeenDocument, is_changed: bool) -> Result<()> {
    let id = document.id;
    let rows = step.db.all::<Vec<(AccountId, (DocId, bool), bool, Option<Version>, bool)>>(
        "SELECT o.channel, o.hub, c.set_id, EXISTS (SELECT 1 FROM member m WHERE m.document = o.document AND m.set_id = c.set_id), \
         a.left_at IS NOT NULL OR c.retired IS NOT NULL AND ?2, \
         o.told_capability, o.told_form, o.told_fingerprint, o.due IS NOT NULL FROM owed o CROSS JOIN channel c ON c.id = o.channel \
         CROSS JOIN account a ON a.channel = o.channel AND a.hub = o.hub WHERE o.document = ?1 AND o.dormant = 0",
        (id, !document.version.is_description()),
    )?;
    let mut is_held = false;
    for (account, of, is_over, told, was_due) in rows {
        let change = match due(step, of, &document, told)? {
            DueDecision::Nothing => {
                step.relieved.insert(account.0);
                // R11: it is due no more, whatever follows. What was told is kept for the day on which the set comes back.
                let is_kept = is_over && !document.is_gone();
                let kept = "UPDATE owed SET dormant = 1, due = NULL";
                Some(if is_kept { kept } else { "DELETE FROM owed" })
            }
            DueDecision::Later { is_held: held } => {
                is_held |= held;
                was_due.then_some("UPDATE owed SET due = NULL")
            }
            DueDecision::Announce(..) => {
                if !was_due || is_changed {
                    step.touched_channels.insert(account.0);
                }
                (!was_due).then_some("UPDATE owed SET due = ?4")
            }
        };
        if let Some(change) = change {
            let sql =
                format!("{change} WHERE channel = ?1 AND hub = ?2 AND document = ?3 AND ?4 = ?4");
            step.db.run(&sql, (account, id, step.now))?;
        }
    }
    match (is_held, document.hold) {
        (true, HoldState::Free) => {
            let until = later(step.now, step.plan.window.hold);
            step.db
                .set_document(id, "hold = 1, held_until = ?2", until)?;
        }
        (false, HoldState::Waiting) => {
            step.db
                .set_document(id, "hold = 0, held_until = NULL", ())?;
        }
        _ => {}
    }
    if document.is_gone() {
        forget_if_done(step, id)?;
    }
    Ok(())
}
