//! Looks at what the machine allows: the state directory, the limits, and what this user may read.

use std::path::Path;

use rustix::process::{Resource, geteuid, getrlimit};

use crate::cli::check::Section;
use crate::cli::survey::Survey;
use crate::config::Config;
use crate::diagnostics::Remark;
use crate::diagnostics::machine::{self, Limited, Users};
use crate::store;
use crate::tree::SystemLimit;

/// `state` is what is wrong with the state file, if that was found already.
pub(super) fn sections(config: &Config, survey: &Survey, state: Option<Remark>) -> [Section; 2] {
    let mut remarks = state_directory(&config.state_dir);
    remarks.extend(state);
    [
        Section::new("state", remarks),
        Section::new("limits", limits(survey)),
    ]
}

/// What may not be read of the trees.
pub(super) fn unreadable(survey: &Survey) -> Option<Remark> {
    machine::unreadable(survey.unreadable, user(), &users())
}

fn state_directory(directory: &Path) -> Vec<Remark> {
    let place = store::place(directory);
    machine::state_directory(&directory.display().to_string(), &place, user(), &users())
}

fn limits(survey: &Survey) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if cfg!(target_os = "linux") {
        let directories = survey.watches.iter().sum();
        let trees = survey.watches.iter().filter(|own| **own > 0).count();
        for (what, wanted, limit) in [
            (Limited::Directories, directories, SystemLimit::watches()),
            (Limited::Trees, trees, SystemLimit::instances()),
        ] {
            let remedy = limit.to_string();
            remarks.extend(machine::watches(what, wanted, limit.allowed, remedy));
        }
        let events = SystemLimit::events();
        remarks.extend(machine::queue(events.allowed, events.to_string()));
    }
    remarks.extend(machine::descriptors(getrlimit(Resource::Nofile).current));
    remarks
}

fn user() -> u32 {
    geteuid().as_raw()
}

fn users() -> Users {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    Users::read(&String::from_utf8_lossy(&passwd))
}
