//! The difference between what each hub was told and what is seen, and the part of it that may be announced now (R6, R7,
//! R10 to R15, R17): which differences between a version told and a version seen are changes to announce.
//!
//! No row means: told what is seen. So a change of a document's version writes first what is owed, by [`see`].

use resourcesync::capability::Capability;
use resourcesync::document::{Document, Form};
use resourcesync::fingerprint::Fingerprint;
use resourcesync::payload::ChangeKind;
use rusqlite::Statement;

use crate::state::{
    AccountId, Columns, Db, DocId, FromRow, Parameters, Result, from_row, parameters,
};
use crate::steps::documents::{HoldState, SeenDocument};
use crate::steps::{Step, deletions};
use crate::time::later;

/// One version of a document, as far as versions are compared (R4, R14): seen, or told to a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub capability: Capability,
    pub form: Form,
    /// Nothing where hubs know that the document existed, but not its content (R13).
    pub fingerprint: Option<Fingerprint>,
}

from_row! { Version { capability, form, fingerprint } }
parameters! { Version { capability, form, fingerprint } }

impl FromRow for Option<Version> {
    fn from_row(row: &mut Columns<'_>) -> rusqlite::Result<Option<Version>> {
        let (kind, fingerprint): (Option<_>, _) = row.read()?;
        Ok(kind.map(|(capability, form)| Version {
            capability,
            form,
            fingerprint,
        }))
    }
}

impl Parameters for Option<Version> {
    fn bind(&self, statement: &mut Statement<'_>, bound: &mut usize) -> rusqlite::Result<()> {
        let kind = self.map(|told| (told.capability, told.form));
        (kind, self.and_then(|told| told.fingerprint)).bind(statement, bound)
    }
}

impl Version {
    /// Returns the version that a look read.
    pub fn of(parsed: &Document) -> Version {
        Version {
            capability: parsed.capability,
            form: parsed.form,
            fingerprint: Some(parsed.fingerprint),
        }
    }

    /// Returns true for a list with this capability. An index of several is not one.
    pub fn is_list_of(&self, capability: Capability) -> bool {
        (self.capability, self.form) == (capability, Form::List)
    }

    /// Returns true for a Source Description, whose changes are announced on every channel (R10).
    pub fn is_description(&self) -> bool {
        (self.capability, self.form) == (Capability::SourceDescription, Form::List)
    }

    /// Returns true for a Capability List, which stands for a set of resources (R7).
    pub fn is_set(&self) -> bool {
        (self.capability, self.form) == (Capability::CapabilityList, Form::List)
    }

    /// Returns true if `version` is a version of the same document: a path whose document changes capability or
    /// form is an old document that ended and a new one that began (R14).
    pub fn is_same_document(&self, version: &Version) -> bool {
        (self.capability, self.form) == (version.capability, version.form)
    }
}

/// Returns the changes that may be announced of a document, by the version told and the version seen, which is nothing once it
/// ended: one change; two where an old document ended and a new one began at the same path (R14). Where versions differ and
/// none may be announced, what is seen counts as told (R22). An archived document is routed, but silent (R7).
fn changes_between(
    told: Option<&Version>,
    seen: Option<&Version>,
    is_archived: bool,
    all_deletions: bool,
) -> Vec<(ChangeKind, Capability)> {
    let known = told.filter(|told| seen.is_some_and(|seen| told.is_same_document(seen)));
    if known.is_some() && known == seen {
        return Vec::new();
    }
    let is_announced = |told: &Version| is_deletion_announced(told, is_archived, all_deletions);
    let ended = told
        .filter(|told| known.is_none() && is_announced(told))
        .map(|told| (ChangeKind::Deleted, told.capability));
    let announceable = seen.filter(|seen| is_announceable(seen) && !is_archived);
    let said = announceable.map(|seen| match seen.capability {
        // R12: a Resource Dump is a snapshot, and knows no update.
        Capability::ResourceDump => (ChangeKind::Created, seen.capability),
        _ if known.is_none() => (ChangeKind::Created, seen.capability),
        _ => (ChangeKind::Updated, seen.capability),
    });
    ended.into_iter().chain(said).collect()
}

/// Returns true if a document's deletion would be announced. R12, Framework Notification 1.0.1 Table 2: only that of a
/// Capability List or a Source Description is foreseen; `all_deletions` has those of others announced too.
pub fn is_deletion_announced(version: &Version, is_archived: bool, all_deletions: bool) -> bool {
    let is_foreseen = version.is_set() || version.is_description();
    is_announceable(version) && (is_foreseen || (all_deletions && !is_archived))
}

// R6, Framework Notification 1.0.1 section 2: an index is never announced itself; manifests lie in packages.
fn is_announceable(version: &Version) -> bool {
    version.form == Form::List && !version.capability.is_manifest()
}

/// Accounts that are told of what changes from now on in a document of a set: those of its live channels.
const OF_MEMBER: &str = "FROM member m CROSS JOIN channel c ON c.set_id = m.set_id AND c.kind = 0 AND c.retired IS NULL \
     CROSS JOIN account a ON a.channel = c.id AND a.left_at IS NULL WHERE m.document = ?1";
/// Accounts that are told of Source Descriptions: those of every channel of their source (R10).
pub const OF_DESCRIPTION: &str = "FROM channel c CROSS JOIN account a ON a.channel = c.id AND a.left_at IS NULL \
     WHERE c.source = ?2 AND c.kind = 0 AND ?1 = ?1";

/// Accounts that are told of what changes from now on in the documents of a set: those of its live channels.
pub const OF_SET: &str = "FROM channel c CROSS JOIN account a ON a.channel = c.id AND a.left_at IS NULL \
     WHERE c.set_id = ?2 AND c.kind = 0 AND c.retired IS NULL AND ?1 = ?1";

/// Writes what is owed of a document before its version changes, or ends. That is permitted until the caller empties `seeing`.
pub fn see(db: Db<'_>, source: i64, before: &SeenDocument, now: Option<&Version>) -> Result<()> {
    let told = before.seen_version();
    if before.version.is_description() {
        owe(db, OF_DESCRIPTION, before.id, source, told)?;
    } else {
        owe(db, OF_MEMBER, before.id, source, told)?;
        if now.is_some_and(Version::is_description) {
            owe(db, OF_DESCRIPTION, before.id, source, None)?;
        }
    }
    db.run("INSERT INTO seeing VALUES (?1)", before.id)
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
pub fn owe_nothing_after_flight(step: &Step<'_>, account: AccountId) -> Result<()> {
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
pub fn decide_due(
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
    } else if is_concerned || !set_exists(step, document.source, set)? {
        (is_same || is_concerned).then_some(version)
    } else if is_same {
        // R14: leaving a set announces nothing.
        return Ok(DueDecision::Nothing);
    } else {
        None
    };
    let all_deletions = step.announces_all_deletions(document.source);
    let changes = changes_between(told.as_ref(), seen, document.archived, all_deletions);
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
pub fn set_exists(step: &Step<'_>, source: i64, set: DocId) -> Result<bool> {
    let source = step.source_with_row(source);
    let is_configured = source.is_some_and(|(source, _)| source.configured.contains(&set));
    Ok(is_configured || has_capability_list(step, set)?)
}

fn has_capability_list(step: &Step<'_>, set: DocId) -> Result<bool> {
    let sql = "SELECT 1 FROM document WHERE id = ?1 AND presence BETWEEN 1 AND 3 AND capability = 1 AND form = 0";
    step.db.exists(sql, set)
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
        let change = match decide_due(step, of, &document, told)? {
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
    let db = step.db;
    match (is_held, document.hold) {
        (true, HoldState::Free) => {
            let until = later(step.now, step.plan.window.hold);
            db.update_document(id, "hold = 1, held_until = ?2", until)?;
        }
        (false, HoldState::Waiting) => db.update_document(id, "hold = 0, held_until = NULL", ())?,
        _ => {}
    }
    if document.is_gone() {
        deletions::forget_if_unowed(step, id)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use resourcesync::capability::Capability::{self, *};
    use resourcesync::document::Form;
    use resourcesync::fingerprint::Fingerprint;
    use resourcesync::payload::ChangeKind::{self, *};
    use rstest::rstest;

    use super::changes_between;
    use crate::steps::owed::Version;

    fn version(capability: Capability, form: Form, content: u8) -> Version {
        Version {
            capability,
            form,
            fingerprint: Some(Fingerprint([content; 32])),
        }
    }

    #[rstest]
    #[case(ResourceList, &[Created], &[Updated], &[])]
    #[case(ResourceDump, &[Created], &[Created], &[])]
    #[case(ChangeList, &[Created], &[Updated], &[])]
    #[case(ChangeDump, &[Created], &[Updated], &[])]
    #[case(CapabilityList, &[Created], &[Updated], &[Deleted])]
    #[case(SourceDescription, &[Created], &[Updated], &[Deleted])]
    #[case(ResourceListArchive, &[Created], &[Updated], &[])]
    #[case(ResourceDumpArchive, &[Created], &[Updated], &[])]
    #[case(ChangeListArchive, &[Created], &[Updated], &[])]
    #[case(ChangeDumpArchive, &[Created], &[Updated], &[])]
    #[case(ResourceDumpManifest, &[], &[], &[])]
    fn table_2_decides_what_may_be_said(
        #[case] capability: Capability,
        #[case] created: &[ChangeKind],
        #[case] updated: &[ChangeKind],
        #[case] deleted: &[ChangeKind],
    ) {
        let first = version(capability, Form::List, 1);
        let second = version(capability, Form::List, 2);
        for (told, seen, want) in [
            (None, Some(&first), created),
            (Some(&first), Some(&second), updated),
            (Some(&first), None, deleted),
        ] {
            let want: Vec<_> = want.iter().map(|kind| (*kind, capability)).collect();
            assert_eq!(changes_between(told, seen, false, false), want);
        }
        assert_eq!(
            changes_between(Some(&first), Some(&first), false, false),
            []
        );
    }

    #[test]
    fn an_index_is_never_announced() {
        for capability in Capability::all() {
            let index = version(capability, Form::Index, 1);
            assert_eq!(changes_between(None, Some(&index), false, true), []);
            assert_eq!(changes_between(Some(&index), None, false, true), []);
        }
    }

    #[test]
    fn a_list_that_becomes_another_document_ended_and_began() {
        let list = version(CapabilityList, Form::List, 1);
        let other = version(ResourceList, Form::List, 1);
        assert_eq!(
            changes_between(Some(&list), Some(&other), false, false),
            [(Deleted, CapabilityList), (Created, ResourceList)]
        );
    }

    #[test]
    fn an_archived_document_is_silent() {
        let seen = version(ChangeList, Form::List, 2);
        assert_eq!(changes_between(None, Some(&seen), true, true), []);
        assert_eq!(changes_between(Some(&seen), None, true, true), []);
    }

    #[test]
    fn unknown_content_is_updated_at_its_first_good_reading() {
        let seen = version(ChangeList, Form::List, 2);
        let told = Version {
            fingerprint: None,
            ..seen
        };
        assert_eq!(
            changes_between(Some(&told), Some(&seen), false, false),
            [(Updated, ChangeList)]
        );
    }
}
