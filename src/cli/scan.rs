//! `scan`: every document in the tree, with its state. `scan FILE`: one file explained: the glob that matches it, its place
//! in the framework, and why it is no document.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use jiff::Timestamp;
use resourcesync::escape::escaped;
use serde_json::{Value, json};

use crate::cli::Exit;
use crate::cli::inference::with_url;
use crate::cli::one_shot_scan::{OneShotScan, scan_once};
use crate::cli::options::ScanOptions;
use crate::cli::output::{eprint_line, grouped, print};
use crate::config::Config;
use crate::report::documents::{DocumentState, DocumentView};
use crate::report::{self, JSON_VERSION};
use crate::tree::{self, ListFile, ListKeyCache, file_path};
use announce::candidates::{CandidateGlobs, MountUrlPath};
use announce::finding::Finding;
use announce::observation::DocumentPath;
use announce::plan::Plan;
use announce::state::Db;
use announce::state::open::open_to_read;

pub fn scan(file: Option<&Path>, options: &ScanOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &with_url(file, options.tree.overrides())?)?;
    let scan = scan_once(&config)?;
    let mut documents = report::documents::all(&scan.engine.reader(scan.now))?;
    let would_be_known = [DocumentState::Announced, DocumentState::Pending];
    for document in &mut documents {
        if !scan.has_state && would_be_known.contains(&document.state) {
            document.state = DocumentState::New;
            let reason = "no state file yet: the first run takes it as known";
            document.reason = Some(reason.to_owned());
        }
        recount_changes(&scan.engine.plan, document);
    }
    if let Some(path) = &options.file {
        return explain_file(&config, &scan, &documents, path, options.json);
    }
    documents
        .retain(|document| options.state.is_empty() || options.state.contains(&document.state));
    let findings = report::findings::all(&scan.engine.reader(scan.now))?.into_iter();
    let wrong_urls = findings.filter(|finding| matches!(finding, Finding::WrongUrl { .. }));
    wrong_urls.for_each(eprint_line);
    let parts = scan.suspensions()?.into_iter();
    let suspensions = parts.flat_map(|(suspension, missing)| [suspension, missing]);
    let suspensions: Vec<String> = suspensions.collect();
    let nothing = scan.nothing_found_reason(&config)?;
    let notices = scan.notices.iter().chain(&suspensions).chain(&nothing);
    notices.for_each(eprint_line);
    print(|out| {
        if options.json {
            let documents: Vec<Value> = documents.iter().map(document_to_json).collect();
            let answer = json!({ "version": JSON_VERSION, "documents": documents });
            return writeln!(out, "{answer:#}");
        }
        let mut all = documents.iter();
        all.try_for_each(|document| write_row(out, document))
    })
}

/// Counts the entries of a Change List again if another version than this was taken as a whole.
fn recount_changes(plan: &Plan, document: &mut DocumentView) {
    if let Some(changes) = &mut document.changes
        && let Some(stat) = changes.unread
        && let Some(path) = file_path(plan, &document.path)
        && let Ok(listed) = ListFile::open(&path, stat)
            .and_then(|mut list| list.take_keys(&ListKeyCache::default()))
    {
        changes.listed = listed.entries.len();
        changes.taken = changes.taken.min(changes.listed);
    }
}

fn document_to_json(document: &DocumentView) -> Value {
    json!({
        "uri": document.uri,
        "path": document.path.text(),
        "capability": document.kind.map(|(capability, _)| capability.as_str()),
        "form": document.kind.map(|(_, form)| form.as_str()),
        "index": document.index,
        "sets": document.sets,
        "channels": document.channels,
        "changes": document.changes.map(|changes| json!({
            "listed": changes.listed,
            "taken": changes.taken,
        })),
        "state": document.state.as_str(),
        "reason": document.reason,
    })
}

fn kind_in_words(document: &DocumentView) -> Option<String> {
    let (capability, form) = document.kind?;
    Some(format!("{capability} {}", form.as_str()))
}

fn write_row(out: &mut impl Write, document: &DocumentView) -> io::Result<()> {
    let kind = kind_in_words(document).unwrap_or_else(|| "-".to_owned());
    let (state, uri) = (document.state.as_str(), &document.uri);
    write!(out, "{state:<10} {kind:<26} {uri}")?;
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

/// Prints what is known of the file at `path`. The exit status is 1 if it is no document.
fn explain_file(
    config: &Config,
    scan: &OneShotScan,
    documents: &[DocumentView],
    path: &Path,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let plan = &scan.engine.plan;
    let file = std::path::absolute(path).context("cannot tell the current directory")?;
    let (source, place) = place_of_file(plan, &file)?;
    let settings = &plan.sources[source];
    let uri = settings.uri_of(&place);
    let mount = settings.mount(place.mount);
    let published = mount.map(|mount| mount.url_path()).unwrap_or_default();
    let glob = matching_glob(&settings.candidates, &published, &place);
    let sql = "SELECT looked FROM document WHERE mount = ?1 AND path = ?2 AND presence > 0 AND looked > 0";
    let state = open_to_read(&config.state_dir)?;
    let read = state.map(|state| Db(&state).first::<Timestamp>(sql, &place));
    let looked = read.transpose()?.flatten();
    let document = documents.iter().find(|document| document.path == place);
    let reason = if let Some(document) = document {
        document.reason.clone()
    } else {
        let tree = config.sources[source].tree_settings(settings);
        let why = tree::explain(&tree, &place).map(|why| why.to_string());
        why.or(uri
            .is_none()
            .then(|| "another mount has its URI".to_owned()))
    };
    let file = file.to_string_lossy().into_owned();
    print(|out| {
        if as_json {
            let answer = json!({
                "version": JSON_VERSION,
                "file": file,
                "uri": uri.as_ref().map(|uri| uri.as_str()),
                "include": glob,
                "read": looked,
                "document": document.map(document_to_json),
                "reason": reason,
            });
            return writeln!(out, "{answer:#}");
        }
        let mut row = |name: &str, value: Option<String>| match value {
            Some(value) => writeln!(out, "{name:<9} {}", escaped(&value)),
            None => Ok(()),
        };
        row("file", Some(file.clone()))?;
        row("URI", uri.as_ref().map(ToString::to_string))?;
        row("include", glob.clone())?;
        row("read", looked.map(|at| format!("{at:.0} by the daemon")))?;
        let Some(document) = document else {
            row("state", Some("no document".to_owned()))?;
            return row("reason", reason.clone());
        };
        row("kind", kind_in_words(document))?;
        row("index", document.index.as_ref().map(ToString::to_string))?;
        for set in &document.sets {
            row("set", Some(set.to_string()))?;
        }
        for topic in &document.channels {
            row("channel", Some(topic.to_string()))?;
        }
        row("state", Some(document.state.as_str().to_owned()))?;
        row("reason", reason.clone())
    })?;
    Ok(Exit::fine_if(document.is_some()))
}

/// Returns the position of the source that has a file, and its place there: below the longest mount.
fn place_of_file(plan: &Plan, file: &Path) -> anyhow::Result<(usize, DocumentPath)> {
    let sources = plan.sources.iter().enumerate();
    let mounts = sources.flat_map(|(source, plan)| plan.mounts.iter().map(move |of| (source, of)));
    let places = mounts.clone().filter_map(|(source, mount)| {
        let below = file.strip_prefix(&mount.directory).ok()?;
        Some((source, mount, below.as_os_str()))
    });
    let longest = places.min_by_key(|(_, mount, _)| Reverse(mount.directory.as_os_str()));
    let Some((source, mount, below)) = longest.filter(|(.., below)| !below.is_empty()) else {
        let paths = mounts.map(|(_, mount)| mount.directory.display().to_string());
        let directories = paths.collect::<Vec<_>>().join(", ");
        bail!(
            "{} lies below no mount; these are {directories}",
            file.display()
        );
    };
    let place = DocumentPath {
        mount: mount.id,
        below: below.as_bytes().into(),
    };
    Ok((source, place))
}

/// Returns the first include glob that matches a file, if it is a candidate.
fn matching_glob(
    candidates: &CandidateGlobs,
    published: &MountUrlPath,
    place: &DocumentPath,
) -> Option<String> {
    let mut globs = candidates.include.iter().cloned();
    globs.find(|glob| {
        let alone = CandidateGlobs::new(vec![glob.clone()], candidates.exclude.clone());
        alone.is_ok_and(|alone| alone.accepts(published, &place.below))
    })
}
