//! The relations of documents: indexes, sets of resources, archives (R5, R7), Source Descriptions and channels (R10).

use std::collections::BTreeSet;

use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::uri::Uri;

use crate::state::{DocId, Result};
use crate::steps::documents::{self, COLUMNS, ChangedPart, SeenDocument};
use crate::steps::findings::{self, FindingPart};
use crate::steps::owed::Version;
use crate::steps::{Step, lists, owed};
use crate::time::later;

/// Resolves the relations of the documents of a source that are touched, indexes first: an index has no index. New Source
/// Descriptions are owed on every channel.
pub fn resolve(step: &mut Step<'_>, position: usize) -> Result<()> {
    let (quiet, now) = (step.plan.window.quiet, step.now);
    let source = &mut step.live.sources[position];
    (source.descriptions).retain(|_, (_, changed)| now <= later(*changed, quiet));
    for form in ["d.form = 1", "d.form = 0"] {
        each_touched(step, position, form, |step, document, was_member, known| {
            let is_in_set = !document.is_gone() && resolve_one(step, &document, was_member)?;
            let found = findings::of_document(step, position, &document, is_in_set)?;
            if known || !found.is_empty() {
                let part = FindingPart::Document;
                findings::replace(step, position, &document.uri, part, found)?;
            }
            let is_changed = document.touched == ChangedPart::Version && document.baseline == 0;
            if document.version.is_description() && is_changed {
                // R10: `owed::see` owes one that changed. Both are also told on channels that open within `quiet`.
                if document.was.is_none() && !document.is_gone() {
                    let source = document.source;
                    owed::owe(step.db, owed::OF_DESCRIPTION, document.id, source, None)?;
                }
                let descriptions = &mut step.live.sources[position].descriptions;
                let changed = descriptions.entry(document.id);
                changed.or_insert((document.was, now)).1 = now;
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

/// Visits the documents of a source that are touched and fulfil a condition, with whether they were members of a set and had
/// findings before. It reads a few at a time: a first sweep touches all.
pub fn each_touched<'a>(
    step: &mut Step<'a>,
    position: usize,
    condition: &str,
    mut visit: impl FnMut(&mut Step<'a>, SeenDocument, bool, bool) -> Result<()>,
) -> Result<()> {
    let source = step.live.sources[position].id;
    let sql = format!(
        "SELECT {COLUMNS}, EXISTS (SELECT 1 FROM member m WHERE m.document = d.id), \
         EXISTS (SELECT 1 FROM finding f WHERE f.about = d.uri AND f.part = 0) FROM document d \
         WHERE d.source = ?1 AND d.touched > 0 AND d.id > ?2 AND {condition} ORDER BY d.id LIMIT 256"
    );
    let mut last = DocId(0);
    loop {
        let some: Vec<(SeenDocument, bool, bool)> = step.db.all(&sql, (source, last))?;
        let Some((document, ..)) = some.last() else {
            return Ok(());
        };
        last = document.id;
        for (document, was_member, has_findings) in some {
            visit(step, document, was_member, has_findings)?;
        }
    }
}

/// Replaces the URIs by which documents that were read before name others, below aliases of a source, by those that they
/// stand for (R1). R13: those that join a set so are told there as they are, and the entries of their lists count as taken.
pub fn resolve_aliases(step: &mut Step<'_>, position: usize) -> Result<()> {
    let plan = &step.plan.sources[position];
    let source = step.live.sources[position].id;
    let mut touched = BTreeSet::new();
    // The configuration may name their set only since they were read (R7).
    for set in &*step.live.sources[position].configured {
        let sql = "SELECT id FROM document WHERE up = ?1 AND source = ?2 \
                   AND NOT EXISTS (SELECT 1 FROM member m WHERE m.document = document.id AND m.set_id = ?1)";
        touched.extend(step.db.all::<Vec<DocId>>(sql, (*set, source))?);
    }
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
            let target = step.db.ensure_row(&canonical)?;
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
    resolve_silently(step, &touched)
}

/// Resolves documents whose relations another plan changed, and those that depend on the indexes among them. R13: they are
/// told as they are in the sets that they join, and the entries of their lists count as taken; all else is as it was.
fn resolve_silently(step: &mut Step<'_>, changed: &BTreeSet<DocId>) -> Result<()> {
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
        (document.baseline, document.was) = (1, document.seen_version());
        let before = step.db.all::<BTreeSet<DocId>>(sets, document.id)?;
        resolve_one(step, &document, true)?;
        let after = step.db.all::<BTreeSet<DocId>>(sets, document.id)?;
        for set in after.difference(&before) {
            lists::learn_list(step, *set, &document)?;
        }
    }
    Ok(())
}

/// Resolves one document, which may have been a member of sets before. Returns true if it is in a set of resources.
fn resolve_one(step: &Step<'_>, document: &SeenDocument, was_member: bool) -> Result<bool> {
    let (index, sets, archived) = relations_of(step, document)?;
    let orphan = sets.is_empty() && document.version.capability != Capability::SourceDescription;
    if (index, archived, orphan) != (document.index_parent, document.archived, document.orphan) {
        step.db.update_document(
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
            if document.was != document.seen_version() {
                owed::owe(step.db, owed::OF_SET, document.id, set.0, document.was)?;
            }
        } else if step.db.exists(sql, (*set, index))? {
            let mut document = document.clone();
            document.baseline = 1;
            lists::learn_list(step, *set, &document)?;
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

/// Returns the index of a document (R5), its sets, and whether only archives list it (R7).
fn relations_of(
    step: &Step<'_>,
    document: &SeenDocument,
) -> Result<(Option<DocId>, BTreeSet<DocId>, bool)> {
    let Version {
        capability, form, ..
    } = document.version;
    // What is gone lists nothing.
    let listers = step.db.all::<Vec<(DocId, Capability, Form)>>(
        "SELECT l.id, l.capability, l.form FROM mention m CROSS JOIN document l ON l.id = m.list \
         WHERE m.document = ?1 AND l.source = ?2 AND l.presence BETWEEN 1 AND 3 ORDER BY l.uri",
        (document.id, document.source),
    )?;
    let is_archive = capability.is_archive();
    let indexes = listers.iter().filter(|(id, of, lister)| {
        *id != document.id && *lister == Form::Index && (is_archive || !of.is_archive())
    });
    let indexes: Vec<DocId> = indexes.map(|(id, ..)| *id).collect();
    let index = match document.names_index {
        _ if form == Form::Index => None,
        Some(named) if indexes.is_empty() => {
            let is_other =
                "SELECT 1 FROM document WHERE id = ?1 AND presence BETWEEN 1 AND 3 AND form = 0";
            (!step.db.exists(is_other, named)?).then_some(named)
        }
        named => named
            .filter(|it| indexes.contains(it))
            .or(indexes.first().copied()),
    };
    let mut sets = BTreeSet::new();
    if document.version.is_set() {
        sets.insert(document.id);
    } else if capability != Capability::SourceDescription {
        let mut candidates: BTreeSet<DocId> = document.up.into_iter().collect();
        for (id, of, lister) in &listers {
            match (of, lister) {
                (Capability::CapabilityList, Form::List) => sets.insert(*id),
                (Capability::CapabilityList, Form::Index) => candidates.insert(*id),
                _ => false,
            };
        }
        if let Some(index) = index {
            let sql = "SELECT set_id FROM member WHERE document = ?1";
            candidates.extend(step.db.all::<Vec<DocId>>(sql, index)?);
        }
        for set in candidates {
            if !sets.contains(&set) && owed::set_exists(step, document.source, set)? {
                sets.insert(set);
            }
        }
    }
    let is_living = |(_, of, lister): &(DocId, Capability, Form)| {
        !of.is_archive() && (*of == Capability::CapabilityList || *lister == Form::Index)
    };
    let is_archived = !is_archive
        && listers.iter().any(|(_, of, _)| of.is_archive())
        && !listers.iter().any(is_living);
    Ok((index, sets, is_archived))
}
