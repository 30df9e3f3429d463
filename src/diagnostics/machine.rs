//! What the machine allows: to watch directories, to keep the state, to read the tree.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::diagnostics::Remark;

/// Less room than this, and a busy day fills it.
const LEAST_BYTES: u64 = 64 << 20;
const LEAST_FILES: u64 = 16;
/// What the kernel has by itself.
const USUAL_QUEUE: u64 = 16_384;
/// Below it, hubs and web server can use up the descriptors that reading the tree takes.
const LEAST_DESCRIPTORS: u64 = 1_024;

/// The place of the state, as this user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Nothing is there; the nearest directory above it that is, and its owner.
    Absent { above: PathBuf, owner: u32 },
    There {
        owner: u32,
        is_directory: bool,
        may_write: bool,
        free_bytes: u64,
        /// File systems that do not count them have none to tell.
        free_files: Option<u64>,
    },
    /// It cannot be looked at, in the system's words.
    Hidden(String),
}

/// How many of something the kernel allows a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    Directories,
    Trees,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limited::Directories => "directories",
            Limited::Trees => "trees",
        })
    }
}

/// The users of the machine, by the names that the system has for them.
#[derive(Debug, Clone, Default)]
pub struct Users {
    names: BTreeMap<u32, String>,
}

impl Users {
    /// Reads what `/etc/passwd` holds (passwd(5)); lines of another form are left out.
    pub fn read(passwd: &str) -> Users {
        let names = passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, id) = (fields.next()?, fields.nth(1)?);
            Some((id.parse().ok()?, name.to_owned()))
        });
        // Of several names of one user, the first counts, as it does for the system.
        let mut users = Users::default();
        for (id, name) in names {
            users.names.entry(id).or_insert(name);
        }
        users
    }

    /// The user's name, `user NUMBER` where there is none.
    pub fn name(&self, id: u32) -> String {
        match (self.names.get(&id), id) {
            (Some(name), _) => name.clone(),
            (None, 0) => "root".to_owned(),
            (None, _) => format!("user {id}"),
        }
    }
}

/// Judges where the state is kept, looking as `user`.
pub fn state_directory(directory: &str, place: &Place, user: u32, users: &Users) -> Vec<Remark> {
    let by = users.name(user);
    match place {
        Place::Absent { above, owner } => vec![Remark::note(
            format!("{directory} does not exist, which is fine before the first run"),
            format!(
                "the user who runs rsnotify must be able to create it in {}, which is {}'s, or own \
                 it: `install -d -m 700 -o USER {directory}`",
                above.display(),
                users.name(*owner)
            ),
        )],
        Place::Hidden(reason) => vec![Remark::note(
            format!("{directory} cannot be looked at as {by}: {reason}"),
            "run check as the user who runs rsnotify: what it says of state and permissions holds for this one",
        )],
        Place::There {
            is_directory: false,
            ..
        } => vec![Remark::finding(
            format!("{directory} is no directory"),
            "set state_dir to one, or move that file away",
        )],
        Place::There {
            owner,
            may_write,
            free_bytes,
            free_files,
            ..
        } => {
            let mut remarks = Vec::new();
            if *owner != user {
                remarks.push(Remark::note(
                    format!("check runs as {by}, and {directory} is {}'s", users.name(*owner)),
                    "what this one may read, the daemon may not, or the other way round: run check as that user",
                ));
            } else if !may_write {
                remarks.push(Remark::finding(
                    format!("{directory} cannot be written by its owner, {by}"),
                    "give it mode 0700, and let its file system be mounted for writing",
                ));
            }
            let is_out_of_files = free_files.is_some_and(|free| free < LEAST_FILES);
            if *free_bytes < LEAST_BYTES || is_out_of_files {
                let room = match is_out_of_files {
                    true => "no more files".to_owned(),
                    false => format!("{} MiB", free_bytes >> 20),
                };
                remarks.push(Remark::finding(
                    format!("there is room for {room} on the disk of {directory}"),
                    "nothing is announced that cannot be saved: make room, or set another state_dir",
                ));
            }
            remarks
        }
    }
}

/// Judges how many of something are to be watched; `remedy` says what the limit is and how to raise it.
pub fn watches(
    what: Limited,
    wanted: usize,
    allowed: Option<u64>,
    remedy: String,
) -> Option<Remark> {
    let Some(allowed) = allowed else {
        let seen = format!("how many {what} may be watched cannot be read under /proc/sys");
        let remedy = "let this user see it, as by ProcSubset=all in the unit";
        return (wanted > 0).then(|| Remark::note(seen, remedy));
    };
    let seen = format!("{wanted} {what} are to be watched, and {allowed} may be");
    // Other programs of this user watch too.
    match wanted as u64 {
        wanted if wanted > allowed => Some(Remark::finding(seen, remedy)),
        wanted if wanted > allowed / 2 => Some(Remark::note(seen, remedy)),
        _ => None,
    }
}

/// Judges how many events the kernel keeps for us.
pub fn queue(allowed: Option<u64>, remedy: String) -> Option<Remark> {
    let allowed = allowed.filter(|allowed| *allowed < USUAL_QUEUE)?;
    let seen =
        format!("the kernel keeps {allowed} events, and when more come at once all is swept");
    Some(Remark::note(seen, remedy))
}

/// Judges how many files and connections may be open at once.
pub fn descriptors(allowed: Option<u64>) -> Option<Remark> {
    let allowed = allowed.filter(|allowed| *allowed < LEAST_DESCRIPTORS)?;
    Some(Remark::note(
        format!("{allowed} files and connections may be open at once here"),
        "if the daemon is started so too, raise that: LimitNOFILE=65536 in its unit, or `ulimit -n 65536`",
    ))
}

/// Says what to do about names that may not be read, however many.
pub fn unreadable(count: usize, user: u32, users: &Users) -> Option<Remark> {
    let what = match count {
        0 => return None,
        1 => "one file or directory of the tree".to_owned(),
        _ => format!("{count} files and directories of the tree"),
    };
    Some(Remark::note(
        format!("{what} may not be read by {}", users.name(user)),
        "give the user who runs rsnotify a group that may (SupplementaryGroups= in its unit), or open them by \
         chmod",
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn there(owner: u32, may_write: bool, free_bytes: u64, free_files: Option<u64>) -> Place {
        Place::There {
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
    #[case(Place::Hidden("permission denied".into()), &["Note /s cannot be looked at as user 7"])]
    #[case(
        Place::Absent { above: "/".into(), owner: 0 },
        &["Note /s does not exist, which is fine before the first run: the user who runs rsnotify must be able \
           to create it in /, which is root's"]
    )]
    #[case(
        Place::There { owner: 7, is_directory: false, may_write: true, free_bytes: 0, free_files: None },
        &["Finding /s is no directory"]
    )]
    fn a_state_directory_is_judged(#[case] place: Place, #[case] want: &[&str]) {
        let found = state_directory("/s", &place, 7, &Users::default());
        assert_eq!(found.len(), want.len(), "{found:?}");
        for (found, want) in found.iter().zip(want) {
            let found = format!("{:?} {}", found.weight, found.line());
            assert!(found.starts_with(want), "{found}");
        }
    }

    #[rstest]
    #[case(5, Some(10), None)]
    #[case(
        6,
        Some(10),
        Some("Note 6 directories are to be watched, and 10 may be: raise it")
    )]
    #[case(
        10,
        Some(10),
        Some("Note 10 directories are to be watched, and 10 may be: raise it")
    )]
    #[case(
        11,
        Some(10),
        Some("Finding 11 directories are to be watched, and 10 may be: raise it")
    )]
    #[case(0, Some(0), None)]
    #[case(0, None, None)]
    #[case(
        1,
        None,
        Some(
            "Note how many directories may be watched cannot be read under /proc/sys: let this user \
                          see it, as by ProcSubset=all in the unit"
        )
    )]
    fn more_directories_than_may_be_watched_are_found(
        #[case] wanted: usize,
        #[case] allowed: Option<u64>,
        #[case] want: Option<&str>,
    ) {
        let found = watches(Limited::Directories, wanted, allowed, "raise it".into());
        let found = found.map(|found| format!("{:?} {}", found.weight, found.line()));
        assert_eq!(found.as_deref(), want);
    }

    #[test]
    fn small_queues_and_few_descriptors_are_noted() {
        assert_eq!(queue(Some(16_384), String::new()), None);
        assert_eq!(queue(None, String::new()), None);
        assert!(queue(Some(100), "raise it".into()).is_some());
        assert_eq!(descriptors(Some(1_024)), None);
        assert_eq!(descriptors(None), None);
        assert!(descriptors(Some(256)).is_some());
    }

    #[test]
    fn users_have_the_names_that_the_system_gives_them() {
        let passwd = "admin:x:0:0:root:/root:/bin/sh\nroot:x:0:0::/:\n# a comment\nbroken\nwww:x:33:33::/:\n";
        let users = Users::read(passwd);
        for (id, want) in [(0, "admin"), (33, "www"), (7, "user 7")] {
            assert_eq!(users.name(id), want);
        }
        assert_eq!(Users::default().name(0), "root");
    }

    #[test]
    fn what_may_not_be_read_is_counted() {
        assert_eq!(unreadable(0, 7, &Users::default()), None);
        for (count, want) in [(1, "one file or directory"), (2, "2 files and directories")] {
            let found = unreadable(count, 7, &Users::default()).unwrap().line();
            assert!(found.starts_with(want), "{found}");
        }
    }
}
