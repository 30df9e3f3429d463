//! Every document of the trees with its state, and why it is not announced.

use std::collections::BTreeSet;

use announce::observation::{DocumentPath, Stat};
use announce::plan::SourcePlan;
use announce::steps::engine::StateReader;
use announce::time::earlier;
use jiff::Timestamp;
use resourcesync::capability::Capability;
use resourcesync::document::Form;
use resourcesync::uri::{Topic, Uri};

use crate::report::sources::{HAS_HUB, IS_TOLD};
use announce::state::{DocId, Result};
use announce::steps::live::LiveSource;

/// A document, or a candidate that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentView {
    pub source: String,
    pub uri: Uri,
    pub path: DocumentPath,
    /// Nothing for a candidate that was never read.
    pub kind: Option<(Capability, Form)>,
    pub index: Option<Uri>,
    pub sets: BTreeSet<Uri>,
    pub channels: BTreeSet<Topic>,
    /// Changes that were taken of a Change List on a change channel.
    pub changes: Option<ListedAndTaken>,
    pub state: DocumentState,
    pub reason: Option<String>,
}

/// The entries of a Change List, and those of them that were taken to be told, or that count as such (C10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedAndTaken {
    /// In the version that was read for them last.
    pub listed: usize,
    pub taken: usize,
    /// The version that is there now, if not all of it was taken.
    pub unread: Option<Stat>,
}

/// The state of a document, as `scan` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentState {
    Announced,
    Pending,
    Held,
    Missing,
    Broken,
    /// No hub is told of it: it belongs to no set, or to one without a channel or without a configured hub.
    Unrouted,
    Archived,
    Silent,
    New,
}

impl DocumentState {
    /// Each with its name, in the order of their definition.
    pub const NAMES: [(DocumentState, &str); 9] = [
        (DocumentState::Announced, "announced"),
        (DocumentState::Pending, "pending"),
        (DocumentState::Held, "held"),
        (DocumentState::Missing, "missing"),
        (DocumentState::Broken, "broken"),
        (DocumentState::Unrouted, "unrouted"),
        (DocumentState::Archived, "archived"),
        (DocumentState::Silent, "silent"),
        (DocumentState::New, "new"),
    ];

    pub fn as_str(self) -> &'static str {
        DocumentState::NAMES[self as usize].1
    }
}

/// Returns every document of every source, and every candidate that was never read, in order of their URIs.
pub fn all(reader: &StateReader<'_>) -> Result<Vec<DocumentView>> {
    let mut documents = Vec::new();
    // A Source Description that is no index is announced on all channels.
    let of_source = format!(
        "SELECT d.uri, d.mount, d.path, t.reason, d.id, i.uri, d.capability, d.form, d.presence, d.hold = 1, d.held_until, \
         d.absent_since, d.archived, \
         (SELECT string_agg(s.uri, '\n') FROM member m CROSS JOIN document s ON s.id = m.set_id WHERE m.document = d.id), \
         (SELECT string_agg(c.topic, '\n') FROM member m CROSS JOIN channel c ON c.set_id = m.set_id \
         WHERE m.document = d.id AND c.source = d.source AND c.kind = 0 AND c.retired IS NULL), {IS_TOLD}, \
         (SELECT string_agg(h.uri, '\n') FROM owed o CROSS JOIN hub h ON h.id = o.hub \
         WHERE o.document = d.id AND o.due IS NOT NULL) FROM document d LEFT JOIN document i ON i.id = d.index_parent \
         LEFT JOIN trouble t ON t.uri = d.uri WHERE d.source = ?1 AND d.presence > 0"
    );
    for (plan, live) in reader.sources() {
        let sql = "SELECT topic FROM channel WHERE source = ?1 AND kind = 0 AND retired IS NULL";
        let topics = reader.db.all(sql, live.id)?;
        let is_any_told = reader.db.exists(HAS_HUB, live.id)?;
        for row in reader.db.all::<Vec<DocumentRow>>(&of_source, live.id)? {
            let id = row.1.0;
            let mut document = view_of_row(reader, (plan, live), (&topics, is_any_told), row);
            if document.kind == Some((Capability::ChangeList, Form::List)) {
                document.changes = taken_of_change_list(reader, id)?;
            }
            documents.push(document);
        }
        let unread = reader.db.all::<Vec<_>>(
            "SELECT t.uri, t.mount, t.path, t.reason FROM trouble t WHERE t.source = ?1 \
             AND NOT EXISTS (SELECT 1 FROM document d WHERE d.uri = t.uri AND d.presence > 0)",
            live.id,
        )?;
        documents.extend(unread.into_iter().map(|row| unreadable_view(plan, row)));
    }
    documents.sort_by(|one, other| one.uri.cmp(&other.uri));
    Ok(documents)
}

/// Returns a document that cannot be read, or of which nothing else is known yet.
fn unreadable_view(
    plan: &SourcePlan,
    (uri, path, reason): (Uri, DocumentPath, Option<String>),
) -> DocumentView {
    DocumentView {
        source: plan.name.clone(),
        uri,
        path,
        kind: None,
        index: None,
        sets: BTreeSet::new(),
        channels: BTreeSet::new(),
        changes: None,
        state: DocumentState::Broken,
        reason,
    }
}

/// Returns how much of a Change List was taken; of several sets, for the one that has taken least.
fn taken_of_change_list(reader: &StateReader<'_>, id: DocId) -> Result<Option<ListedAndTaken>> {
    let changes = reader.db.first(
        "SELECT coalesce(l.listed, 0), coalesce(l.taken, 0), l.fingerprint IS NOT DISTINCT FROM d.fingerprint, \
         d.size, d.modified, d.changed, d.inode FROM document d CROSS JOIN member m ON m.document = d.id \
         CROSS JOIN change_set s ON s.id = m.set_id LEFT JOIN change_list l ON l.set_id = s.id AND l.list = d.id \
         WHERE d.id = ?1 AND d.presence <> 4 AND s.learned > 0 ORDER BY 2 LIMIT 1",
        id,
    )?;
    let counts = |(listed, taken, is_read, stat): (_, _, bool, _)| ListedAndTaken {
        listed,
        taken,
        unread: (!is_read).then_some(stat),
    };
    Ok(changes.map(counts))
}

/// The columns of a document: what is known of an unreadable one, its number, index and kind, its presence, and the lines of
/// its sets, of its channels and of the hubs that are due it.
type DocumentRow = (
    (Uri, DocumentPath, Option<String>),
    (DocId, Option<Uri>, (Capability, Form)),
    (u8, bool, Option<Timestamp>, Option<Timestamp>, bool),
    (Option<String>, Option<String>, bool, Option<String>),
);

/// Returns a document. `of_source` has the topics of all channels of the source, and whether any hub is told on them.
fn view_of_row(
    reader: &StateReader<'_>,
    (plan, live): (&SourcePlan, &LiveSource),
    of_source: (&BTreeSet<Topic>, bool),
    (file, (_, index, kind), state, (sets, channels, is_routed, due)): DocumentRow,
) -> DocumentView {
    let (presence, is_held, held_until, absent_since, is_archived) = state;
    let mut is_told = is_routed;
    let mut view = DocumentView {
        index,
        kind: Some(kind),
        sets: split_lines(&sets).flat_map(Uri::parse).collect(),
        channels: split_lines(&channels).map(Topic::new).collect(),
        ..unreadable_view(plan, file)
    };
    if kind == (Capability::SourceDescription, Form::List) {
        (view.channels, is_told) = (of_source.0.clone(), of_source.1);
    }
    if view.reason.is_some() {
        return view;
    }
    view.state = match state_ignoring_due(kind, presence, is_held, is_archived, is_told) {
        DocumentState::Missing => DocumentState::Missing,
        _ if due.is_some() => DocumentState::Pending,
        alone => alone,
    };
    view.reason = match view.state {
        // R15.
        DocumentState::Missing => absent_since.map(|since| {
            let belief = match presence {
                3 => ", accepted as deleted".to_owned(),
                _ if live.is_mass || live.is_nested_away(&view.path) => {
                    format!(", suspended until `rsnotify accept {}`", plan.name)
                }
                _ => String::new(),
            };
            format!("not found since {since:.0}{belief}")
        }),
        DocumentState::Pending => {
            let what = if presence == 4 { "deletion" } else { "change" };
            let hubs: BTreeSet<&str> = split_lines(&due).collect();
            let hubs: Vec<&str> = hubs.into_iter().collect();
            Some(format!("its {what} is due to {}", hubs.join(" ")))
        }
        DocumentState::Held => held_until.map(|until| {
            let since = earlier(until, reader.plan.window.hold);
            format!("has waited since {since:.0} for a document that lists it")
        }),
        state => why_not_announced(state, kind.0, &view).map(str::to_owned),
    };
    view
}

/// Returns why no hub is told of a document.
fn why_not_announced(
    state: DocumentState,
    capability: Capability,
    view: &DocumentView,
) -> Option<&'static str> {
    let is_description = capability == Capability::SourceDescription;
    Some(match state {
        DocumentState::Silent if capability.is_manifest() => "manifests are not announced",
        DocumentState::Silent => "indexes are not announced",
        DocumentState::Archived => "listed by an archive only",
        DocumentState::Unrouted if is_description && view.channels.is_empty() => {
            "no set has a channel, so it is not announced"
        }
        DocumentState::Unrouted if is_description => {
            "no channel has a configured hub, so it is not announced"
        }
        DocumentState::Unrouted if view.sets.is_empty() => "belongs to no set of resources",
        DocumentState::Unrouted if view.channels.is_empty() => {
            "its set has no channel, so it is not announced"
        }
        DocumentState::Unrouted => "its channel has no configured hub, so it is not announced",
        _ => return None,
    })
}

/// Returns several values, of which each has a line.
fn split_lines(text: &Option<String>) -> impl Iterator<Item = &str> {
    text.iter().flat_map(|text| text.lines())
}

/// Returns the state of a document by itself, whatever hubs are due of it.
pub fn state_ignoring_due(
    (capability, form): (Capability, Form),
    presence: u8,
    is_held: bool,
    is_archived: bool,
    is_told: bool,
) -> DocumentState {
    if matches!(presence, 2 | 3) {
        DocumentState::Missing
    } else if is_held {
        DocumentState::Held
    } else if capability.is_manifest() || form == Form::Index {
        DocumentState::Silent
    } else if is_archived {
        DocumentState::Archived
    } else if is_told {
        DocumentState::Announced
    } else {
        DocumentState::Unrouted
    }
}
