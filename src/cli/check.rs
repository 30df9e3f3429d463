//! `check`: problems with the configuration, the tree, the machine, topics and hubs.
//!
//! Binds no listener, saves nothing, submits nothing. The facts are gathered here and judged in
//! [`diagnostics`](crate::diagnostics).

mod network;

use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use announce::state;
use announce::state::open::{StateFileError, copy_to_memory};
use announce::steps::findings::EXAMPLES;
use anyhow::Context;
use jiff::Timestamp;
use resourcesync::escape::escaped;
use rustix::fs::{Access, StatVfsMountFlags};
use rustix::process::{Resource, geteuid, getrlimit};
use serde_json::json;
use websub::probe::http as probe;

use crate::cli::inference::with_url;
use crate::cli::one_shot_scan::{OneShotScan, scan_with_state};
use crate::cli::options::CheckOptions;
use crate::cli::output::{counted, grouped, print};
use crate::cli::{Exit, block_on};
use crate::config::Config;
use crate::config::environment::Overrides;
use crate::config::hub_config::HubConfig;
use crate::daemon::log::error_chain;
use crate::diagnostics::machine::{self, StateDirectory, Users};
use crate::diagnostics::{Diagnostic, Severity, clock, hub as about_hub, topic};
use crate::report::documents::{DocumentState, DocumentView};
use crate::report::{self, JSON_VERSION, limited};
use crate::tree::SystemLimit;

/// The title of a subject, and its diagnostics.
type CheckSection = (&'static str, Vec<Diagnostic>);

/// Returns the finding that stands for more findings of a kind than are printed, if there are any.
fn more_of_kind(kind: &str, more: usize) -> Option<Diagnostic> {
    let message = format!("and {} more of the kind {kind}", grouped(more));
    (more > 0).then(|| Diagnostic {
        count: more,
        ..Diagnostic::finding(message, "`rsnotify check --all` prints each")
    })
}

pub fn check(file: Option<&Path>, options: &CheckOptions) -> anyhow::Result<Exit> {
    let overrides = options.source.overrides();
    if HubConfig::is_hub_file(file, &overrides) {
        let sections = hub_sections(file, &overrides, options.no_environment)?;
        return report_sections(&sections, None, options);
    }
    let config = Config::load(file, &with_url(file, overrides)?)?;
    // Certificates and headers that make requests impossible are errors of the configuration.
    let hubs = config.publish_settings()?;
    let brokers = config.broker_settings()?;
    let mut sections = Vec::new();
    let mut documents = 0;
    let trusting = hubs.iter().filter(|hub| hub.danger_accept_invalid_certs);
    let unverified = trusting
        .map(|settings| about_hub::verification_off(&settings.hub))
        .collect();
    if options.no_environment {
        sections.push(("hubs", unverified));
    } else {
        // Without the saved state, the trees are scanned as if there were none.
        let (copy, of_copy) = match copy_to_memory(&config.state_dir) {
            Ok(copy) => (copy, None),
            // This concerns the user who runs the check, not the daemon.
            Err(error @ StateFileError::Denied(..)) => {
                (None, Some(Diagnostic::note(error_chain(&error), "")))
            }
            Err(error) => (None, Some(Diagnostic::finding(error_chain(&error), ""))),
        };
        let scan = scan_with_state(&config, copy, options.all)?;
        let views = report::documents::all(&scan.engine.reader(scan.now))?;
        documents = views.len();
        let mut tree = tree_findings(&scan, views, options.all)?;
        tree.extend(
            scan.nothing_found_reason(&config)?.map(|nothing| {
                Diagnostic::finding(nothing, "`rsnotify scan FILE` explains one file")
            }),
        );
        let [of_hubs, of_network @ ..] =
            network::sections(&config, &scan, hubs, brokers, unverified)?;
        // The wrong `url` of a hub is why Capability Lists seem to advertise other hubs.
        sections.extend([of_hubs, ("tree", tree)]);
        let mut of_state = state_dir_findings(&config.state_dir);
        of_state.extend(of_copy);
        sections.push(("state", of_state));
        sections.push(("limits", limit_findings(&scan)));
        sections.extend(of_network);
    }
    report_sections(&sections, Some(documents), options)
}

/// Returns the sections of a configuration of `rsnotify hub`; of the configuration alone if `no_environment`.
fn hub_sections(
    file: Option<&Path>,
    overrides: &Overrides,
    no_environment: bool,
) -> anyhow::Result<Vec<CheckSection>> {
    let config = HubConfig::load(file, overrides)?;
    let mut of_publishers = Vec::new();
    let publishers = config.publishers.iter();
    for publisher in publishers.filter(|publisher| publisher.bearer_token_file.is_none()) {
        let name = &publisher.name;
        of_publishers.push(Diagnostic::note(
            format!("publisher {name}: it has no token, so anybody can publish on its topics that name this hub"),
            "set bearer_token_file, unless it pings only",
        ));
    }
    if config.publishers.is_empty() {
        of_publishers.push(Diagnostic::note(
            "there is no [[publisher]], so nobody may publish here",
            "`rsnotify token NAME TOPIC --write` adds one",
        ));
    }
    let hub = &config.hub;
    let mut sections = vec![("publishers", of_publishers)];
    if no_environment {
        return Ok(sections);
    }
    let mut of_hub = state_dir_findings(&config.state_dir);
    let (is_running, note) = network::check_running(&config.state_dir);
    of_hub.extend(note);
    if is_running {
        let get = block_on(probe::get_hub(&hub.url))?.context("cannot prepare requests")?;
        of_hub.extend(about_hub::embedded(&hub.url, &get, "hub.url"));
    }
    sections.push(("hub", of_hub));
    Ok(sections)
}

/// Prints the diagnostics. There are no `documents` where a hub is checked.
fn report_sections(
    sections: &[CheckSection],
    documents: Option<usize>,
    options: &CheckOptions,
) -> anyhow::Result<Exit> {
    let all = || sections.iter().flat_map(|(_, diagnostics)| diagnostics);
    let of = |severity| {
        let diagnostics = all().filter(|diagnostic| diagnostic.severity == severity);
        diagnostics.map(Diagnostic::line).collect::<Vec<String>>()
    };
    let findings = of(Severity::Finding);
    let count: usize = all().map(|diagnostic| diagnostic.count).sum();
    print(|out| {
        if options.json {
            let notes = of(Severity::Note);
            let answer = json!({
                "version": JSON_VERSION,
                "documents": documents.unwrap_or_default(),
                "findings": findings,
                "count": count,
                "notes": notes,
            });
            return writeln!(out, "{answer:#}");
        }
        for section in sections {
            write_section(out, section)?;
        }
        match (count, documents.filter(|_| !options.no_environment)) {
            (0, None) => writeln!(out, "the configuration is fine"),
            (0, Some(documents)) => {
                let documents = counted(documents, "document");
                writeln!(out, "the configuration and {documents} are fine")
            }
            (1, _) => writeln!(out, "1 finding"),
            (count, _) => writeln!(out, "{} findings", grouped(count)),
        }
    })?;
    Ok(Exit::fine_if(findings.is_empty()))
}

fn tree_findings(
    scan: &OneShotScan,
    documents: Vec<DocumentView>,
    all: bool,
) -> state::Result<Vec<Diagnostic>> {
    let reader = &scan.engine.reader(scan.now);
    let finding = |words: String| Diagnostic::finding(words, "");
    let mut diagnostics: Vec<_> = scan.notices.iter().cloned().map(finding).collect();
    let mut broken = documents;
    broken.retain(|document| document.state == DocumentState::Broken);
    // To say that there is one more takes as much room as that one.
    let are_few = all || broken.len() <= EXAMPLES + 1;
    let max = if are_few { broken.len() } else { EXAMPLES };
    let (first, more) = limited(broken, max);
    diagnostics.extend(first.into_iter().map(|document| {
        let reason = document.reason.unwrap_or_default();
        finding(format!("{}: {reason}", document.path))
    }));
    diagnostics.extend(more_of_kind("broken", more));
    let groups = report::findings::groups(reader)?;
    if all {
        let mut findings = report::findings::all(reader)?;
        let sources = &reader.plan.sources;
        findings.retain(|one| !sources.iter().any(|source| source.is_acknowledged(one)));
        diagnostics.extend(findings.iter().map(|one| finding(one.to_string())));
    } else {
        for group in groups.iter().filter(|group| !group.acknowledged) {
            diagnostics.extend(group.examples.iter().cloned().map(finding));
            diagnostics.extend(more_of_kind(&group.kind, group.more()));
        }
    }
    let suspensions = scan.suspensions()?.into_iter();
    diagnostics.extend(suspensions.map(|(message, missing)| Diagnostic::finding(message, missing)));
    let user = geteuid().as_raw();
    diagnostics.extend(machine::unreadable(scan.unreadable, user, &users()));
    if let Some((changed, path)) = &scan.latest {
        let path = path.to_string();
        diagnostics.extend(clock::file_system(&path, *changed, Timestamp::now()));
    }
    let without_channel = report::channels::sets_without_change_channel(reader)?;
    diagnostics.extend(topic::changes_not_enabled(&without_channel));
    let without_list = report::channels::channels_without_change_list(reader)?;
    diagnostics.extend(topic::no_change_list(&without_list));
    for group in groups.iter().filter(|group| group.acknowledged) {
        let count = counted(group.count, "finding");
        let kind = &group.kind;
        let message = format!("{count} of the kind {kind} acknowledged by the configuration");
        diagnostics.push(Diagnostic::note(message, ""));
    }
    Ok(diagnostics)
}

fn write_section(out: &mut impl Write, (title, diagnostics): &CheckSection) -> io::Result<()> {
    if diagnostics.is_empty() {
        return Ok(());
    }
    writeln!(out, "{title}")?;
    for diagnostic in diagnostics {
        let note = match diagnostic.severity {
            Severity::Finding => "",
            Severity::Note => "note: ",
        };
        writeln!(out, "  {note}{}", escaped(&diagnostic.message))?;
        if !diagnostic.remedy.is_empty() {
            writeln!(out, "      {}", escaped(&diagnostic.remedy))?;
        }
    }
    writeln!(out)
}

fn state_dir_findings(directory: &Path) -> Vec<Diagnostic> {
    let place = inspect_directory(directory);
    let user = geteuid().as_raw();
    machine::state_directory(&directory.display().to_string(), &place, user, &users())
}

fn limit_findings(scan: &OneShotScan) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    if cfg!(target_os = "linux") {
        let directories = scan.watches.iter().sum();
        let trees = scan.watches.iter().filter(|count| **count > 0).count();
        for (what, wanted, limit) in [
            ("directories", directories, SystemLimit::watches()),
            ("trees", trees, SystemLimit::instances()),
        ] {
            let remedy = limit.to_string();
            diagnostics.extend(machine::watch_limit(what, wanted, limit.allowed, remedy));
        }
        let events = SystemLimit::events();
        diagnostics.extend(machine::event_queue(events.allowed, events.to_string()));
    }
    let descriptors = getrlimit(Resource::Nofile).current;
    diagnostics.extend(machine::file_descriptors(descriptors));
    diagnostics
}

fn users() -> Users {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    machine::parse_passwd(&String::from_utf8_lossy(&passwd))
}

/// Inspects `directory` as this user.
fn inspect_directory(directory: &Path) -> StateDirectory {
    let metadata = match std::fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) => {
            let is_absent = error.kind() == ErrorKind::NotFound;
            let mut above = directory.ancestors().skip(1).filter(|_| is_absent);
            let nearest = above.find_map(|above| Some((above, std::fs::metadata(above).ok()?)));
            return match nearest {
                Some((above, metadata)) => StateDirectory::Absent {
                    above: above.to_owned(),
                    owner: metadata.uid(),
                },
                None => StateDirectory::Unreadable(error.to_string()),
            };
        }
    };
    let volume = match rustix::fs::statvfs(directory) {
        Ok(volume) => volume,
        Err(error) => return StateDirectory::Unreadable(io::Error::from(error).to_string()),
    };
    let access = Access::WRITE_OK | Access::EXEC_OK;
    StateDirectory::There {
        owner: metadata.uid(),
        is_directory: metadata.is_dir(),
        may_write: rustix::fs::access(directory, access).is_ok()
            && !volume.f_flag.contains(StatVfsMountFlags::RDONLY),
        free_bytes: volume.f_bavail.saturating_mul(volume.f_frsize),
        free_files: (volume.f_files > 0).then_some(volume.f_favail),
    }
}
