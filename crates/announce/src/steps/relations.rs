//! The relations of documents: indexes, sets of resources, archives (R5, R7).

use std::collections::BTreeSet;

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::uri::Uri;

use crate::state::{DocId, Result, from_row};
use crate::steps::documents::{self, COLUMNS, ChangedPart, SeenDocument};
use crate::steps::findings::{self, FindingSubject};
use crate::steps::{Step, lists, owed};

/// A document that lists another, and is not gone.
#[derive(Debug)]
pub struct Lister {
    pub id: DocId,
    pub uri: Uri,
    pub capability: Capability,
    pub form: Form,
}

from_row! { Lister { id, uri, capability, form } }

impl Lister {
    pub fn is_of_capabilities(&self) -> bool {
        self.capability == Capability::CapabilityList
    }
}

/// Resolves the relations of the documents of a source that are touched, indexes first: an index has no index.
pub fn resolve(step: &mut Step<'_>, position: usize) -> Result<()> {
    for form in ["d.form = 1", "d.form = 0"] {
        each_touched(step, position, form, |step, touched| {
            let document = &touched.document;
            let is_in_set = !document.is_gone() && resolve_one(step, document, touched.was_member)?;
            let found = findings::of_document(step, position, document, is_in_set)?;
            if touched.has_findings || !found.is_empty() {
                let part = FindingSubject::Document;
                findings::replace(step, position, &document.uri, part, found)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Documents of a source that came, ended or became others since it last settled: they are not what their dependents knew.
pub const OF_ANOTHER_KIND: &str = "d.source = ?1 AND d.touched > 0 AND d.touched = 3 AND (d.baseline > 0 OR d.presence = 4 \
     OR d.was_capability IS DISTINCT FROM d.capability OR d.was_form IS DISTINCT FROM d.form)";

/// Touches the documents that some list, those that link to these, and the Capability Lists that name these.
pub fn touch_dependents(step: &Step<'_>, condition: &str, value: i64) -> Result<()> {
    let sql = format!(
        "UPDATE document SET touched = 1 WHERE touched = 0 AND presence > 0 AND id IN \
         (SELECT m.document FROM document d CROSS JOIN mention m ON m.list = d.id WHERE {condition} \
          UNION ALL SELECT b.id FROM document d CROSS JOIN document b ON b.up = d.id WHERE {condition} \
          UNION ALL SELECT b.id FROM document d CROSS JOIN document b ON b.names_index = d.id WHERE {condition} \
          UNION ALL SELECT l.id FROM document d CROSS JOIN mention m ON m.document = d.id \
          CROSS JOIN document l ON l.id = m.list WHERE {condition} AND l.capability = 1)"
    );
    step.db.run(&sql, value)
}

/// A touched document.
#[derive(Debug)]
pub struct TouchedDocument {
    pub document: SeenDocument,
    /// True if it was a member of a set before.
    was_member: bool,
    has_findings: bool,
}

from_row! { TouchedDocument { document, was_member, has_findings } }

/// Visits the documents of a source that are touched and fulfil a condition, a few at a time: a first sweep touches all.
pub fn each_touched<'a>(
    step: &mut Step<'a>,
    position: usize,
    condition: &str,
    mut visit: impl FnMut(&mut Step<'a>, TouchedDocument) -> Result<()>,
) -> Result<()> {
    let source = step.live.sources[position].id;
    let sql = format!(
        "SELECT {COLUMNS}, EXISTS (SELECT 1 FROM member m WHERE m.document = d.id), \
         EXISTS (SELECT 1 FROM finding f WHERE f.about = d.uri AND f.part = 0) FROM document d \
         WHERE d.source = ?1 AND d.touched > 0 AND d.id > ?2 AND {condition} ORDER BY d.id LIMIT 256"
    );
    let mut last = DocId(0);
    loop {
        let some: Vec<TouchedDocument> = step.db.all(&sql, (source, last))?;
        let Some(touched) = some.last() else {
            return Ok(());
        };
        last = touched.document.id;
        for touched in some {
            visit(step, touched)?;
        }
    }
}

/// Replaces the URIs by which documents that were read before name others, below aliases of a source, by those that they
/// stand for (R1). R13: those that join a set so are told there as they are, and the entries of their lists count as taken.
pub fn replace_aliases(step: &mut Step<'_>, position: usize) -> Result<()> {
    let plan = &step.plan.sources[position];
    let source = step.live.sources[position].id;
    let mut touched = BTreeSet::new();
    for alias in plan.mounts.iter().flat_map(|mount| &mount.aliases) {
        let after = format!("{}0", alias.as_str().trim_end_matches('/'));
        let sql = "SELECT id, uri FROM document WHERE uri >= ?1 AND uri < ?2";
        for (named, uri) in step.db.all::<Vec<(DocId, Uri)>>(sql, (alias, after))? {
            let canonical = plan.canonical(&uri);
            if canonical == uri {
                continue;
            }
            let sql = "SELECT m.list FROM mention m CROSS JOIN document l ON l.id = m.list \
                       WHERE m.document = ?1 AND l.source = ?2";
            let lists = step.db.all::<Vec<DocId>>(sql, (named, source))?;
            let target = step.db.row_of(&canonical)?;
            if !lists.is_empty() {
                touched.insert(target);
            }
            for column in ["up", "names_index"] {
                let sql = format!(
                    "UPDATE document SET {column} = ?2 WHERE {column} = ?1 AND source = ?3 RETURNING id"
                );
                let renamed = step.db.all::<Vec<DocId>>(&sql, (named, target, source))?;
                touched.extend(renamed);
            }
            for list in lists {
                touched.insert(list);
                let sql = "DELETE FROM mention WHERE list = ?1 AND document = ?2";
                step.db.run(sql, (list, named))?;
                let sql =
                    "INSERT INTO mention VALUES (?1, ?2) ON CONFLICT (list, document) DO NOTHING";
                step.db.run(sql, (list, target))?;
            }
        }
    }
    rejoin(step, &touched)
}

/// Resolves documents whose relations another plan changed, and those that depend on the indexes among them. R13: they are
/// told as they are in the sets that they join, and the entries of their lists count as taken; all else is as it was.
fn rejoin(step: &mut Step<'_>, changed: &BTreeSet<DocId>) -> Result<()> {
    let mut all = changed.clone();
    for id in changed {
        let sql = "SELECT m.document FROM document d CROSS JOIN mention m ON m.list = d.id WHERE d.id = ?1 AND d.form = 1 \
                   UNION ALL SELECT id FROM document WHERE names_index = ?1";
        all.extend(step.db.all::<Vec<DocId>>(sql, *id)?);
    }
    let mut documents = Vec::new();
    for id in all {
        let document = step.db.document(id)?;
        // What has not settled is decided with the rest of its step.
        documents.extend(document.filter(|it| !it.is_gone() && it.touched == ChangedPart::Nothing));
        documents::touch(step, id)?;
    }
    documents.sort_by_key(|document| document.version.form != Form::Index);
    let sets = "SELECT set_id FROM member WHERE document = ?1";
    for mut document in documents {
        (document.baseline, document.was) = (1, document.seen());
        let before = step.db.all::<BTreeSet<DocId>>(sets, document.id)?;
        resolve_one(step, &document, true)?;
        let after = step.db.all::<BTreeSet<DocId>>(sets, document.id)?;
        for set in after.difference(&before) {
            lists::join(step, *set, &document)?;
        }
    }
    Ok(())
}

/// Returns the documents of a source that list one.
pub fn listers(step: &Step<'_>, document: DocId, source: i64) -> Result<Vec<Lister>> {
    let mut listers: Vec<Lister> = step.db.all(
        "SELECT l.id, l.uri, l.capability, l.form FROM mention m CROSS JOIN document l ON l.id = m.list \
         WHERE m.document = ?1 AND l.source = ?2 AND l.presence BETWEEN 1 AND 3",
        (document, source),
    )?;
    listers.sort_unstable_by(|one, other| one.uri.cmp(&other.uri));
    Ok(listers)
}

/// Resolves one document, which may have been a member of sets before. Returns true if it is in a set of resources.
fn resolve_one(step: &Step<'_>, document: &SeenDocument, was_member: bool) -> Result<bool> {
    let listers = listers(step, document.id, document.source)?;
    let index = index_of(step, document, &listers)?;
    let sets = sets_of(step, document, &listers, index)?;
    let archived = is_archived(document, &listers);
    let orphan = sets.is_empty() && document.version.capability != Capability::SourceDescription;
    if (index, archived, orphan) != (document.index_parent, document.archived, document.orphan) {
        step.db.set_document(
            document.id,
            "index_parent = ?2, archived = ?3, orphan = ?4",
            (index, archived, orphan),
        )?;
    }
    let mut before = BTreeSet::new();
    if was_member {
        let sql = "SELECT set_id FROM member WHERE document = ?1";
        before = step.db.all(sql, document.id)?;
    }
    for set in sets.difference(&before) {
        step.db
            .run("INSERT INTO member VALUES (?1, ?2)", (document.id, *set))?;
        // R13: what a baseline holds is told, and so is all else that joins a set by a Capability List or an index of it.
        let sql = "SELECT 1 FROM document WHERE id IN (?1, ?2) AND baseline > 0";
        if document.baseline > 0 {
            if document.was != document.seen() {
                owed::owe(step.db, owed::OF_SET, document.id, set.0, document.was)?;
            }
        } else if step.db.exists(sql, (*set, index))? {
            let mut document = document.clone();
            document.baseline = 1;
            lists::join(step, *set, &document)?;
        } else {
            owed::owe(step.db, owed::OF_SET, document.id, set.0, None)?;
        }
    }
    for set in before.difference(&sets) {
        let sql = "DELETE FROM member WHERE document = ?1 AND set_id = ?2";
        step.db.run(sql, (document.id, *set))?;
    }
    if document.version.form == Form::Index && sets != before {
        touch_dependents(step, "d.id = ?1", document.id.0)?;
    }
    Ok(!sets.is_empty())
}

// R5. An index that is gone lists nothing.
fn index_of(step: &Step<'_>, document: &SeenDocument, listers: &[Lister]) -> Result<Option<DocId>> {
    if document.version.form == Form::Index {
        return Ok(None);
    }
    let is_archive = document.version.capability.is_archive();
    let listing = listers.iter().filter(|lister| {
        lister.id != document.id
            && lister.form == Form::Index
            && (!lister.capability.is_archive() || is_archive)
    });
    let listing: Vec<DocId> = listing.map(|lister| lister.id).collect();
    if let Some(first) = listing.first() {
        let named = document.names_index.filter(|it| listing.contains(it));
        return Ok(named.or(Some(*first)));
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
    document: &SeenDocument,
    listers: &[Lister],
    index: Option<DocId>,
) -> Result<BTreeSet<DocId>> {
    if document.version.is_set() {
        return Ok(BTreeSet::from([document.id]));
    }
    if document.version.capability == Capability::SourceDescription {
        return Ok(BTreeSet::new());
    }
    let listing = listers.iter().filter(|it| it.is_of_capabilities());
    let (lists, indexes): (Vec<&Lister>, Vec<_>) = listing.partition(|it| it.form == Form::List);
    let mut sets: BTreeSet<DocId> = lists.iter().map(|it| it.id).collect();
    let mut candidates: BTreeSet<DocId> = indexes.iter().map(|it| it.id).collect();
    candidates.extend(document.up);
    if let Some(index) = index {
        let sql = "SELECT set_id FROM member WHERE document = ?1";
        candidates.extend(step.db.all::<Vec<DocId>>(sql, index)?);
    }
    for set in candidates {
        if !sets.contains(&set) && owed::is_a_set(step, document.source, set)? {
            sets.insert(set);
        }
    }
    Ok(sets)
}

// R7: listed by an archive, and by no Capability List or other index.
fn is_archived(document: &SeenDocument, listers: &[Lister]) -> bool {
    let is_living = |lister: &Lister| {
        !lister.capability.is_archive()
            && (lister.is_of_capabilities() || lister.form == Form::Index)
    };
    !document.version.capability.is_archive()
        && listers.iter().any(|lister| lister.capability.is_archive())
        && !listers.iter().any(is_living)
}
