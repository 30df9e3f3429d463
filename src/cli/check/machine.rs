//! Facts about the machine: state directory, limits, permissions.

use std::path::Path;

use rustix::process::{Resource, geteuid, getrlimit};

use crate::cli::check::CheckSection;
use crate::cli::one_shot_scan::OneShotScan;
use crate::config::Config;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::machine::{self, Users, WatchedKind};
use crate::store;
use crate::tree::SystemLimit;

/// Returns the sections about the machine. `state` is a known problem with the state file.
pub(super) fn sections(
    config: &Config,
    scan: &OneShotScan,
    state: Option<Diagnostic>,
) -> [CheckSection; 2] {
    let mut diagnostics = state_directory(&config.state_dir);
    diagnostics.extend(state);
    [
        CheckSection::new("state", diagnostics),
        CheckSection::new("limits", limits(scan)),
    ]
}

/// Reports the unreadable files of the trees.
pub(super) fn unreadable(scan: &OneShotScan) -> Option<Diagnostic> {
    machine::unreadable(scan.unreadable, user(), &users())
}

pub(super) fn state_directory(directory: &Path) -> Vec<Diagnostic> {
    let place = store::inspect_directory(directory);
    machine::state_directory(&directory.display().to_string(), &place, user(), &users())
}

fn limits(scan: &OneShotScan) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    if cfg!(target_os = "linux") {
        let directories = scan.watches.iter().sum();
        let trees = scan.watches.iter().filter(|count| **count > 0).count();
        for (what, wanted, limit) in [
            (
                WatchedKind::Directories,
                directories,
                SystemLimit::watches(),
            ),
            (WatchedKind::Trees, trees, SystemLimit::instances()),
        ] {
            let remedy = limit.to_string();
            diagnostics.extend(machine::watch_limit(what, wanted, limit.allowed, remedy));
        }
        let events = SystemLimit::events();
        diagnostics.extend(machine::event_queue(events.allowed, events.to_string()));
    }
    diagnostics.extend(machine::file_descriptors(
        getrlimit(Resource::Nofile).current,
    ));
    diagnostics
}

fn user() -> u32 {
    geteuid().as_raw()
}

fn users() -> Users {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    Users::read(&String::from_utf8_lossy(&passwd))
}
