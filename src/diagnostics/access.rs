//! Remedies for directories that a sandboxed service cannot read although other users can.

use std::path::Path;

/// Directories that `ProtectHome=yes` hides: they are unreadable, or look empty.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// Directories of which a service with `PrivateTmp=yes` has its own instances.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Reason for which a directory cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessFailure {
    Denied,
    /// It is not there, and the directory around it is or is not.
    Absent {
        is_parent_there: bool,
    },
}

/// Returns the likely remedy, if there is one.
pub fn remedy(directory: &Path, failure: AccessFailure) -> Option<&'static str> {
    let is_in = |prefixes: &[&str]| prefixes.iter().any(|prefix| directory.starts_with(prefix));
    let parent = directory.parent().unwrap_or(directory);
    let is_hidden_there = HOMES
        .iter()
        .chain(&TEMPORARY)
        .any(|hidden| Path::new(hidden) == parent);
    if failure
        == (AccessFailure::Absent {
            is_parent_there: true,
        })
        && !is_hidden_there
    {
        // Its parent is there, so its name is wrong.
        return None;
    }
    if is_in(&HOMES) {
        return Some(
            "a service sees nothing there unless its unit has ProtectHome=read-only, and reads only what its \
             group may (SupplementaryGroups=)",
        );
    }
    match failure {
        AccessFailure::Denied => Some(
            "give the user who runs rsnotify a group that may read it (SupplementaryGroups= in its unit), or open \
             it by chmod",
        ),
        AccessFailure::Absent { .. } if is_in(&TEMPORARY) => Some(
            "a service with PrivateTmp= has a private directory there: keep the tree elsewhere",
        ),
        AccessFailure::Absent { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/srv/www", AccessFailure::Denied, Some("SupplementaryGroups="))]
    #[case("/srv/www", AccessFailure::Absent { is_parent_there: false }, None)]
    #[case("/srv/home", AccessFailure::Absent { is_parent_there: false }, None)]
    #[case("/homes/www", AccessFailure::Absent { is_parent_there: false }, None)]
    #[case("/home/ann/www", AccessFailure::Denied, Some("ProtectHome="))]
    #[case("/home/ann/www", AccessFailure::Absent { is_parent_there: false }, Some("ProtectHome="))]
    #[case("/root/www", AccessFailure::Denied, Some("ProtectHome="))]
    #[case("/run/user/7/www", AccessFailure::Absent { is_parent_there: false }, Some("ProtectHome="))]
    #[case("/home/ann/www", AccessFailure::Absent { is_parent_there: true }, None)]
    #[case("/home/ann", AccessFailure::Absent { is_parent_there: true }, Some("ProtectHome="))]
    #[case("/tmp/www", AccessFailure::Absent { is_parent_there: true }, Some("PrivateTmp="))]
    #[case("/tmp/a/www", AccessFailure::Absent { is_parent_there: true }, None)]
    #[case("/tmp/www", AccessFailure::Denied, Some("SupplementaryGroups="))]
    fn the_likely_reason_of_an_unreadable_directory_is_named(
        #[case] directory: &str,
        #[case] failure: AccessFailure,
        #[case] want: Option<&str>,
    ) {
        let found = remedy(Path::new(directory), failure);
        let is_as_wanted = match (found, want) {
            (Some(found), Some(want)) => found.contains(want),
            (found, want) => found.is_none() && want.is_none(),
        };
        assert!(is_as_wanted, "{found:?}");
    }
}
