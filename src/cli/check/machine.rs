//! Facts about the machine: state directory, limits, permissions.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, StatVfsMountFlags};
use rustix::process::{Resource, geteuid, getrlimit};

use crate::cli::check::CheckSection;
use crate::cli::one_shot_scan::OneShotScan;
use crate::config::Config;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::machine::{self, StateDirectory, Users};
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
    let place = inspect_directory(directory);
    machine::state_directory(&directory.display().to_string(), &place, user(), &users())
}

fn limits(scan: &OneShotScan) -> Vec<Diagnostic> {
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
    machine::users(&String::from_utf8_lossy(&passwd))
}

/// Inspects `directory` as this user.
fn inspect_directory(directory: &Path) -> StateDirectory {
    let metadata = match std::fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) => {
            let is_absent = error.kind() == ErrorKind::NotFound;
            let above = directory.ancestors().skip(1).filter(|_| is_absent);
            let nearest = above
                .filter_map(|above| Some((above, std::fs::metadata(above).ok()?)))
                .next();
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
        Err(error) => return StateDirectory::Unreadable(std::io::Error::from(error).to_string()),
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
