//! `scan`: every document in the tree, with its state.

use std::io::{self, Write};
use std::path::Path;

use resourcesync::escape::escaped;
use serde_json::{Value, json};

use crate::announce::finding::Finding;
use crate::announce::plan::Plan;
use crate::cli::Exit;
use crate::cli::inference::with_url;
use crate::cli::one_shot_scan::scan_once;
use crate::cli::options::ScanOptions;
use crate::cli::output::{grouped, print, say};
use crate::cli::scan_file::explain_file;
use crate::config::Config;
use crate::report::documents::{DocumentState, DocumentView};
use crate::report::{self, JSON_VERSION};
use crate::tree::change_list::ChangeListFile;
use crate::tree::file_path;

pub fn scan(file: Option<&Path>, options: &ScanOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &with_url(file, options.tree.overrides())?)?;
    let scan = scan_once(&config)?;
    let mut documents = report::documents::all(&scan.reader())?;
    if !scan.has_state {
        for document in &mut documents {
            if matches!(
                document.state,
                DocumentState::Announced | DocumentState::Pending
            ) {
                document.state = DocumentState::New;
                document.reason =
                    Some("no state file yet: the first run takes it as known".to_owned());
            }
        }
    }
    let plan = &scan.engine.plan;
    for document in &mut documents {
        read_changes(plan, document);
    }
    if let Some(path) = &options.file {
        return explain_file(&config, &scan, &documents, path, options.output.json);
    }
    documents
        .retain(|document| options.state.is_empty() || options.state.contains(&document.state));
    for finding in report::findings::all(&scan.reader())? {
        if let Finding::WrongUrl { .. } = finding {
            say(finding);
        }
    }
    let suspensions = scan.suspensions()?.into_iter();
    let suspensions = suspensions.flat_map(|(suspension, missing)| [suspension, missing]);
    let suspensions: Vec<String> = suspensions.collect();
    let nothing = scan.without_document(&config)?;
    for notice in scan.notices.iter().chain(&suspensions).chain(&nothing) {
        say(notice);
    }
    print(|out| {
        if options.output.json {
            let documents: Vec<Value> = documents.iter().map(to_json).collect();
            let answer = json!({ "version": JSON_VERSION, "documents": documents });
            return writeln!(out, "{answer:#}");
        }
        documents
            .iter()
            .try_for_each(|document| write_row(out, document))
    })?;
    Ok(Exit::Fine)
}

/// Counts the entries of a Change List again if another version than this was taken as a whole.
fn read_changes(plan: &Plan, document: &mut DocumentView) {
    let Some(changes) = &mut document.changes else {
        return;
    };
    let Some(stat) = changes.unread else {
        return;
    };
    let path = file_path(plan, &document.path);
    let opened = path.and_then(|path| ChangeListFile::open(&path, stat).ok());
    if let Some(listed) = opened.and_then(|mut list| list.keys().ok()) {
        changes.listed = listed.entries.len();
        changes.taken = changes.taken.min(changes.listed);
    }
}

pub fn to_json(document: &DocumentView) -> Value {
    json!({
        "uri": document.uri.as_str(),
        "path": document.path.text(),
        "capability": document.kind.map(|(capability, _)| capability.as_str()),
        "form": document.kind.map(|(_, form)| form.as_str()),
        "index": document.index.as_ref().map(|index| index.as_str()),
        "sets": document.sets.iter().map(|set| set.as_str()).collect::<Vec<_>>(),
        "channels": document.channels.iter().map(|topic| topic.as_str()).collect::<Vec<_>>(),
        "changes": document.changes.map(|changes| json!({
            "listed": changes.listed,
            "taken": changes.taken,
        })),
        "state": document.state.as_str(),
        "reason": document.reason,
    })
}

fn write_row(out: &mut impl Write, document: &DocumentView) -> io::Result<()> {
    let kind = match document.kind {
        Some((capability, form)) => format!("{capability} {}", form.as_str()),
        None => "-".to_owned(),
    };
    write!(
        out,
        "{:<10} {:<26} {}",
        document.state.as_str(),
        kind,
        document.uri
    )?;
    let changes = document.changes.map(|changes| {
        let (listed, taken) = (grouped(changes.listed), grouped(changes.taken));
        format!("{taken} of {listed} changes taken")
    });
    let reason = document.reason.iter().map(|reason| escaped(reason).into());
    let notes: Vec<String> = reason.chain(changes).collect();
    match notes.as_slice() {
        [] => writeln!(out),
        notes => writeln!(out, "  ({})", notes.join("; ")),
    }
}
