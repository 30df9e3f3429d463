//! The relations of documents: indexes, sets of resources, archives (R5, R7).

use std::collections::BTreeSet;

use crate::announce::difference::Told;
use resourcesync::capability::Capability;
use resourcesync::document::Form;
use rusqlite::params;

use crate::announce::steps::documents::{COLUMNS, SeenDocument, touch_dependents};
use crate::announce::steps::step::Step;
use crate::announce::steps::{findings, owed};
use crate::state::{DocId, Result, Sql};

/// A document that lists another.
struct Lister {
    id: DocId,
    capability: Capability,
    form: Form,
}

/// Resolves the relations of the documents of a source that are touched, indexes first: an index has no index.
pub fn resolve(step: &mut Step<'_>, position: usize) -> Result<()> {
    for form in ["d.form = 1", "d.form = 0"] {
        each_touched(step, position, form, |step, document| {
            let is_in_set = !document.is_gone() && resolve_one(step, position, &document)?;
            findings::note_document(step, position, &document, is_in_set)
        })?;
    }
    Ok(())
}

/// Visits the documents of a source that are touched and fulfil a condition, a few at a time: a first sweep touches all.
pub fn each_touched<'a>(
    step: &mut Step<'a>,
    position: usize,
    condition: &str,
    mut visit: impl FnMut(&mut Step<'a>, SeenDocument) -> Result<()>,
) -> Result<()> {
    let source = step.live.sources[position].id;
    let sql = format!(
        "SELECT {COLUMNS} FROM document d WHERE d.source = ?1 AND d.touched > 0 AND d.id > ?2 AND {condition} ORDER BY d.id \
         LIMIT 256"
    );
    let mut last = DocId(0);
    loop {
        let some = step
            .db
            .all(&sql, params![source, Sql(last)], SeenDocument::read)?;
        let Some(document) = some.last() else {
            return Ok(());
        };
        last = document.id;
        for document in some {
            visit(step, document)?;
        }
    }
}

/// Returns true if the document is in a set of resources.
fn resolve_one(step: &mut Step<'_>, position: usize, document: &SeenDocument) -> Result<bool> {
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
    let orphan = sets.is_empty() && document.version.capability != Capability::SourceDescription;
    step.db.run(
        "UPDATE document SET index_parent = ?2, archived = ?3, orphan = ?4 \
         WHERE id = ?1 AND (index_parent IS DISTINCT FROM ?2 OR archived <> ?3 OR orphan <> ?4)",
        params![Sql(document.id), index.map(Sql), archived, orphan],
    )?;
    let mut before = BTreeSet::new();
    // One of a baseline is in none yet.
    if document.baseline == 0 {
        let sets = "SELECT set_id FROM member WHERE document = ?1";
        let sets = step
            .db
            .all(sets, [Sql(document.id)], |row| row.sql::<DocId>())?;
        before.extend(sets);
    }
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
            if document.was != document.seen().map(Told::from) {
                owed::owe_of_set(step, *set, document.id, document.was)?;
            }
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
    Ok(!sets.is_empty())
}

// R5. An index that is gone lists nothing.
fn index_of(step: &Step<'_>, document: &SeenDocument, listers: &[Lister]) -> Result<Option<DocId>> {
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
    document: &SeenDocument,
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
fn is_archived(document: &SeenDocument, listers: &[Lister]) -> bool {
    let is_living = |lister: &Lister| {
        !lister.capability.is_archive()
            && (lister.capability == Capability::CapabilityList || lister.form == Form::Index)
    };
    !document.version.capability.is_archive()
        && listers.iter().any(|lister| lister.capability.is_archive())
        && !listers.iter().any(is_living)
}
