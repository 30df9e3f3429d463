//! Diagnostics of the machine: inotify limits, state directory, permissions on the tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::diagnostics::Diagnostic;

/// Minimum free space for the state; a busy day fills less.
const MIN_FREE_BYTES: u64 = 64 << 20;
const MIN_FREE_FILES: u64 = 16;
/// The kernel's default for `fs.inotify.max_queued_events`.
const DEFAULT_QUEUE: u64 = 16_384;
/// File descriptors below which connections can use up those that reading the tree takes.
const MIN_DESCRIPTORS: u64 = 1_024;

/// The state directory as the current user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateDirectory {
    /// It does not exist; the nearest existing directory above it, and its owner.
    Absent { above: PathBuf, owner: u32 },
    There {
        owner: u32,
        is_directory: bool,
        may_write: bool,
        free_bytes: u64,
        /// `None` on file systems that do not count files.
        free_files: Option<u64>,
    },
    /// It cannot be inspected; the operating system's message.
    Unreadable(String),
}

/// Names of the machine's users.
pub type Users = BTreeMap<u32, String>;

/// Parses `/etc/passwd` (passwd(5)), skipping lines of another form.
pub fn parse_passwd(passwd: &str) -> Users {
    // Of several names of one user, the first counts, as it does for the system.
    let names = passwd.lines().rev().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some((id.parse().ok()?, name.to_owned()))
    });
    names.collect()
}

/// Returns the user's name, or `user NUMBER`.
fn user_name(users: &Users, id: u32) -> String {
    match (users.get(&id), id) {
        (Some(name), _) => name.clone(),
        (None, 0) => "root".to_owned(),
        (None, _) => format!("user {id}"),
    }
}

/// Diagnoses the state directory as `user` sees it.
pub fn state_directory(
    directory: &str,
    state: &StateDirectory,
    user: u32,
    users: &Users,
) -> Vec<Diagnostic> {
    let by = user_name(users, user);
    match state {
        StateDirectory::Absent { above, owner } => vec![Diagnostic::note(
            format!("{directory} does not exist, which is fine before the first run"),
            format!(
                "the user who runs rsnotify must be able to create it in {}, which is {}'s, or own \
                 it: `install -d -m 700 -o USER {directory}`",
                above.display(),
                user_name(users, *owner)
            ),
        )],
        StateDirectory::Unreadable(reason) => vec![Diagnostic::note(
            format!("{directory} cannot be inspected as {by}: {reason}"),
            "run check as the user who runs rsnotify: its results about state and permissions are those of this user",
        )],
        StateDirectory::There {
            is_directory: false,
            ..
        } => vec![Diagnostic::finding(
            format!("{directory} is no directory"),
            "set state_dir to one, or move that file away",
        )],
        StateDirectory::There {
            owner,
            may_write,
            free_bytes,
            free_files,
            ..
        } => {
            let mut diagnostics = Vec::new();
            if *owner != user {
                let owner = user_name(users, *owner);
                diagnostics.push(Diagnostic::note(
                    format!("check runs as {by}, and {directory} is {owner}'s"),
                    "the permissions of the two may differ: run check as that user",
                ));
            } else if !may_write {
                diagnostics.push(Diagnostic::finding(
                    format!("{directory} cannot be written by its owner, {by}"),
                    "set mode 0700, and mount its file system writable",
                ));
            }
            let is_out_of_files = free_files.is_some_and(|free| free < MIN_FREE_FILES);
            if *free_bytes < MIN_FREE_BYTES || is_out_of_files {
                let room = if is_out_of_files {
                    "no more files".to_owned()
                } else {
                    format!("{} MiB", free_bytes >> 20)
                };
                diagnostics.push(Diagnostic::finding(
                    format!("there is room for {room} on the disk of {directory}"),
                    "changes that cannot be saved are not announced: free some space, or set another state_dir",
                ));
            }
            diagnostics
        }
    }
}

/// Compares the number of watches with the limit; `remedy` names the limit and how to raise it.
pub fn watch_limit(
    what: &str,
    wanted: usize,
    allowed: Option<u64>,
    remedy: String,
) -> Option<Diagnostic> {
    let Some(allowed) = allowed else {
        let message = format!("cannot read the limit of watched {what} under /proc/sys");
        let remedy = "make it readable, for example with ProcSubset=all in the unit";
        return (wanted > 0).then(|| Diagnostic::note(message, remedy));
    };
    let message = format!("{wanted} {what} have to be watched, and the limit is {allowed}");
    // Other programs of this user watch too.
    match wanted as u64 {
        wanted if wanted > allowed => Some(Diagnostic::finding(message, remedy)),
        wanted if wanted > allowed / 2 => Some(Diagnostic::note(message, remedy)),
        _ => None,
    }
}

/// Reports a small event queue of the kernel.
pub fn event_queue(allowed: Option<u64>, remedy: String) -> Option<Diagnostic> {
    let allowed = allowed.filter(|allowed| *allowed < DEFAULT_QUEUE)?;
    let message =
        format!("the kernel's event queue holds {allowed} events, and an overflow causes a sweep");
    Some(Diagnostic::note(message, remedy))
}

/// Reports a low limit of open files.
pub fn file_descriptors(allowed: Option<u64>) -> Option<Diagnostic> {
    let allowed = allowed.filter(|allowed| *allowed < MIN_DESCRIPTORS)?;
    Some(Diagnostic::note(
        format!("the limit of open files is {allowed}"),
        "if it applies to the daemon too, raise it: LimitNOFILE=65536 in its unit, or `ulimit -n 65536`",
    ))
}

/// Reports files and directories that the current user may not read.
pub fn unreadable(count: usize, user: u32, users: &Users) -> Option<Diagnostic> {
    let what = match count {
        0 => return None,
        1 => "one file or directory of the tree".to_owned(),
        _ => format!("{count} files and directories of the tree"),
    };
    Some(Diagnostic::note(
        format!("{what} may not be read by {}", user_name(users, user)),
        "give the user who runs rsnotify a group that may (SupplementaryGroups= in its unit), or open them by \
         chmod",
    ))
}

/// Directories that `ProtectHome=yes` hides: they are unreadable, or look empty.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// Directories of which a service with `PrivateTmp=yes` has its own instances.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Reason for which a directory cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeniedOrAbsent {
    Denied,
    /// It is not there, and the directory around it is.
    Absent,
    /// The directory around it is not there either.
    ParentAbsent,
}

/// Returns the likely remedy, if there is one.
pub fn access_remedy(directory: &Path, failure: DeniedOrAbsent) -> Option<&'static str> {
    let is_in = |prefixes: &[&str]| prefixes.iter().any(|prefix| directory.starts_with(prefix));
    let parent = directory.parent().unwrap_or(directory);
    let mut hidden = HOMES.iter().chain(&TEMPORARY);
    let is_hidden_there = hidden.any(|hidden| Path::new(hidden) == parent);
    if failure == DeniedOrAbsent::Absent && !is_hidden_there {
        // So its name is wrong.
        return None;
    }
    if is_in(&HOMES) {
        return Some(
            "a service sees nothing there unless its unit has ProtectHome=read-only, and reads only what its \
             group may (SupplementaryGroups=)",
        );
    }
    match failure {
        DeniedOrAbsent::Denied => Some(
            "give the user who runs rsnotify a group that may read it (SupplementaryGroups= in its unit), or open \
             it by chmod",
        ),
        _ if is_in(&TEMPORARY) => Some(
            "a service with PrivateTmp= has a private directory there: keep the tree elsewhere",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn there(
        owner: u32,
        may_write: bool,
        free_bytes: u64,
        free_files: Option<u64>,
    ) -> StateDirectory {
        StateDirectory::There {
            owner,
            is_directory: true,
            may_write,
            free_bytes,
            free_files,
        }
    }

    #[rstest]
    #[case(there(7, true, 1 << 30, Some(1_000)), &[])]
    #[case(there(7, true, 1 << 30, None), &[])]
    #[case(there(7, false, 1 << 30, None), &["Finding /s cannot be written by its owner, user 7"])]
    #[case(there(8, false, 1 << 30, None), &["Note check runs as user 7, and /s is user 8's"])]
    #[case(there(7, true, 5 << 20, None), &["Finding there is room for 5 MiB on the disk of /s"])]
    #[case(there(7, true, 1 << 30, Some(2)), &["Finding there is room for no more files"])]
    #[case(
        there(8, true, 0, None),
        &["Note check runs as user 7", "Finding there is room for 0 MiB"]
    )]
    #[case(StateDirectory::Unreadable("permission denied".into()), &["Note /s cannot be inspected as user 7"])]
    #[case(
        StateDirectory::Absent { above: "/".into(), owner: 0 },
        &["Note /s does not exist, which is fine before the first run: the user who runs rsnotify must be able \
           to create it in /, which is root's"]
    )]
    #[case(
        StateDirectory::There { owner: 7, is_directory: false, may_write: true, free_bytes: 0, free_files: None },
        &["Finding /s is no directory"]
    )]
    fn a_state_directory_is_judged(#[case] state: StateDirectory, #[case] want: &[&str]) {
        let found = state_directory("/s", &state, 7, &Users::default());
        assert_eq!(found.len(), want.len(), "{found:?}");
        for (found, want) in found.iter().zip(want) {
            let found = format!("{:?} {}", found.severity, found.line());
            assert!(found.starts_with(want), "{found}");
        }
    }

    #[rstest]
    #[case(5, None)]
    #[case(6, Some("Note"))]
    #[case(10, Some("Note"))]
    #[case(11, Some("Finding"))]
    fn more_directories_than_may_be_watched_are_found(
        #[case] wanted: usize,
        #[case] severity: Option<&str>,
    ) {
        let found = watch_limit("directories", wanted, Some(10), "raise it".into())
            .map(|found| format!("{:?} {}", found.severity, found.line()));
        let words = "directories have to be watched, and the limit is 10: raise it";
        let want = severity.map(|severity| format!("{severity} {wanted} {words}"));
        assert_eq!(found, want);
    }

    #[test]
    fn a_limit_matters_where_directories_are_watched() {
        let found = |wanted, allowed| watch_limit("directories", wanted, allowed, String::new());
        assert_eq!(found(0, Some(0)), None);
        assert_eq!(found(0, None), None);
        let unknown = Diagnostic::note(
            "cannot read the limit of watched directories under /proc/sys",
            "make it readable, for example with ProcSubset=all in the unit",
        );
        assert_eq!(found(1, None), Some(unknown));
    }

    #[test]
    fn small_queues_and_few_descriptors_are_noted() {
        assert_eq!(event_queue(Some(16_384), String::new()), None);
        assert_eq!(event_queue(None, String::new()), None);
        assert!(event_queue(Some(100), "raise it".into()).is_some());
        assert_eq!(file_descriptors(Some(1_024)), None);
        assert_eq!(file_descriptors(None), None);
        assert!(file_descriptors(Some(256)).is_some());
    }

    #[test]
    fn users_have_the_names_that_the_system_gives_them() {
        let passwd = "admin:x:0:0:root:/root:/bin/sh\nroot:x:0:0::/:\n# a comment\nbroken\nwww:x:33:33::/:\n";
        let users = super::parse_passwd(passwd);
        for (id, want) in [(0, "admin"), (33, "www"), (7, "user 7")] {
            assert_eq!(user_name(&users, id), want);
        }
        assert_eq!(user_name(&Users::default(), 0), "root");
    }

    #[test]
    fn what_may_not_be_read_is_counted() {
        assert_eq!(unreadable(0, 7, &Users::default()), None);
        for (count, want) in [(1, "one file or directory"), (2, "2 files and directories")] {
            let found = unreadable(count, 7, &Users::default()).unwrap().line();
            assert!(found.starts_with(want), "{found}");
        }
    }

    #[rstest]
    #[case("/srv/www", DeniedOrAbsent::Denied, Some("SupplementaryGroups="))]
    #[case("/srv/www", DeniedOrAbsent::ParentAbsent, None)]
    #[case("/srv/home", DeniedOrAbsent::ParentAbsent, None)]
    #[case("/homes/www", DeniedOrAbsent::ParentAbsent, None)]
    #[case("/home/ann/www", DeniedOrAbsent::Denied, Some("ProtectHome="))]
    #[case("/home/ann/www", DeniedOrAbsent::ParentAbsent, Some("ProtectHome="))]
    #[case("/root/www", DeniedOrAbsent::Denied, Some("ProtectHome="))]
    #[case("/run/user/7/www", DeniedOrAbsent::ParentAbsent, Some("ProtectHome="))]
    #[case("/home/ann/www", DeniedOrAbsent::Absent, None)]
    #[case("/home/ann", DeniedOrAbsent::Absent, Some("ProtectHome="))]
    #[case("/tmp/www", DeniedOrAbsent::Absent, Some("PrivateTmp="))]
    #[case("/tmp/a/www", DeniedOrAbsent::Absent, None)]
    #[case("/tmp/www", DeniedOrAbsent::Denied, Some("SupplementaryGroups="))]
    fn the_likely_reason_of_an_unreadable_directory_is_named(
        #[case] directory: &str,
        #[case] failure: DeniedOrAbsent,
        #[case] want: Option<&str>,
    ) {
        let found = access_remedy(Path::new(directory), failure);
        let is_as_wanted = match (found, want) {
            (Some(found), Some(want)) => found.contains(want),
            (found, want) => found.is_none() && want.is_none(),
        };
        assert!(is_as_wanted, "{found:?}");
    }
}
