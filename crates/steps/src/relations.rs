//! The relations of documents: indexes, sets of resources, archives (R5, R7).

use std::collections::BTreeSet;

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use rusqlite::params;

use crate::documents::{COLUMNS, Document, baseline_told, touch_dependents};
use crate::owed;
use crate::state::{DocId, Result, Sql};
use crate::step::Step;

/// A document that lists another.
struct Lister {
    id: DocId,
    capability: Capability,
    form: Form,
}

/// Resolves the relations of the documents of a source that are touched, indexes first: an index has no index. Returns
/// those of which another change may be due.
pub fn resolve(step: &mut Step<'_>, position: usize) -> Result<BTreeSet<DocId>> {
    let source = step.live.sources[position].id;
    let mut affected = BTreeSet::new();
    let sql = format!(
        "SELECT {COLUMNS} FROM document d WHERE d.source = ?1 AND d.touched = 1 AND (d.form = 1) = ?2 ORDER BY d.id"
    );
    for is_index in [true, false] {
        for document in step
            .db
            .all(&sql, params![source, is_index], Document::read)?
        {
            affected.insert(document.id);
            step.db.run(
                "UPDATE document SET touched = 0 WHERE id = ?1",
                [Sql(document.id)],
            )?;
            if !document.is_gone() {
                resolve_one(step, position, &document)?;
            }
        }
    }
    Ok(affected)
}

fn resolve_one(step: &mut Step<'_>, position: usize, document: &Document) -> Result<()> {
    let listers = step.db.all(
        "SELECT l.id, l.capability, l.form FROM mention m CROSS JOIN document l ON l.id = m.list \
         WHERE m.document = ?1 AND l.source = ?2 AND l.presence BETWEEN 1 AND 3 ORDER BY l.uri",
        params![Sql(document.id), document.source],
        |row| {
            Ok(Lister {
                id: row.sql()?,
                capability: row.sql()?,
                form: row.sql()?,
            })
        },
    )?;
    let index = index_of(step, document, &listers)?;
    let sets = sets_of(step, position, document, &listers, index)?;
    let archived = is_archived(document, &listers);
    if (index, archived) != (document.index_parent, document.archived) {
        step.db.run(
            "UPDATE document SET index_parent = ?2, archived = ?3 WHERE id = ?1",
            params![Sql(document.id), index.map(Sql), archived],
        )?;
    }
    let before = step.db.all(
        "SELECT set_id FROM member WHERE document = ?1",
        [Sql(document.id)],
        |row| row.sql::<DocId>(),
    )?;
    let before: BTreeSet<DocId> = before.into_iter().collect();
    let first = step.live.sources[position].first.get(&document.id).copied();
    for set in sets.difference(&before) {
        step.db.run(
            "INSERT INTO member VALUES (?1, ?2)",
            params![Sql(document.id), Sql(*set)],
        )?;
        // R13: what a baseline holds is told, and so is all else in a set whose Capability List came with it.
        let is_baseline_set = || {
            step.db.exists(
                "SELECT 1 FROM document WHERE id = ?1 AND baseline > 0",
                [Sql(*set)],
            )
        };
        if document.baseline > 0 {
            let told = first.unwrap_or_else(|| baseline_told(document));
            owed::owe_of_set(step, *set, document.id, Some(told))?;
        } else if !is_baseline_set()? {
            owed::owe_of_set(step, *set, document.id, None)?;
        }
    }
    for set in before.difference(&sets) {
        step.db.run(
            "DELETE FROM member WHERE document = ?1 AND set_id = ?2",
            params![Sql(document.id), Sql(*set)],
        )?;
    }
    if document.version.form == Form::Index && sets != before {
        touch_dependents(step, document.id)?;
    }
    Ok(())
}

// R5. An index that is gone lists nothing.
fn index_of(step: &Step<'_>, document: &Document, listers: &[Lister]) -> Result<Option<DocId>> {
    if document.version.form == Form::Index {
        return Ok(None);
    }
    let is_archive = document.version.capability.is_archive();
    let mut listing = listers.iter().filter(|lister| {
        lister.id != document.id
            && lister.form == Form::Index
            && (!lister.capability.is_archive() || is_archive)
    });
    if let Some(first) = listing.next() {
        let named = listing.find(|lister| Some(lister.id) == document.names_index);
        let is_first_named = Some(first.id) == document.names_index;
        return Ok(Some(named.filter(|_| !is_first_named).unwrap_or(first).id));
    }
    let Some(named) = document.names_index else {
        return Ok(None);
    };
    let target = step.db.document(named)?;
    let is_other =
        target.is_some_and(|target| !target.is_gone() && target.version.form != Form::Index);
    Ok((!is_other).then_some(named))
}

// R7.
fn sets_of(
    step: &Step<'_>,
    position: usize,
    document: &Document,
    listers: &[Lister],
    index: Option<DocId>,
) -> Result<BTreeSet<DocId>> {
    if document.is_set() {
        return Ok(BTreeSet::from([document.id]));
    }
    if document.version.capability == Capability::SourceDescription {
        return Ok(BTreeSet::new());
    }
    let listing = listers
        .iter()
        .filter(|lister| lister.capability == Capability::CapabilityList);
    let mut candidates: BTreeSet<DocId> =
        listing.map(|lister| lister.id).chain(document.up).collect();
    if let Some(index) = index {
        let of_index = step.db.all(
            "SELECT set_id FROM member WHERE document = ?1",
            [Sql(index)],
            |row| row.sql::<DocId>(),
        )?;
        candidates.extend(of_index);
    }
    let mut sets = BTreeSet::new();
    for set in candidates {
        if owed::is_a_set(step, position, set)? {
            sets.insert(set);
        }
    }
    Ok(sets)
}

// R7: listed by an archive, and by no Capability List or other index.
fn is_archived(document: &Document, listers: &[Lister]) -> bool {
    let is_living = |lister: &Lister| {
        !lister.capability.is_archive()
            && (lister.capability == Capability::CapabilityList || lister.form == Form::Index)
    };
    !document.version.capability.is_archive()
        && listers.iter().any(|lister| lister.capability.is_archive())
        && !listers.iter().any(is_living)
}
