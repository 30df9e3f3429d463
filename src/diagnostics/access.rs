//! What keeps a service from seeing a directory that everybody else sees: the usual cause, and what to do about it.

use std::path::Path;

/// Hidden by `ProtectHome=yes`, which makes them unreadable, or empty.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];
/// Another directory for a service with `PrivateTmp=yes`.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// How a directory refuses to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Denied,
    Absent,
}

/// What to do where `directory` refuses, as far as that can be guessed.
pub fn remedy(directory: &Path, refusal: Refusal) -> Option<&'static str> {
    let is_in = |places: &[&str]| places.iter().any(|place| directory.starts_with(place));
    if is_in(&HOMES) {
        return Some(
            "a service sees nothing there unless its unit has ProtectHome=read-only, and reads only what its \
             group may (SupplementaryGroups=)",
        );
    }
    match refusal {
        Refusal::Denied => Some(
            "give the user who runs rsnotify a group that may read it (SupplementaryGroups= in its unit), or open \
             it by chmod",
        ),
        Refusal::Absent if is_in(&TEMPORARY) => Some(
            "a service with a user of its own (DynamicUser=) has a directory of its own there: keep the tree elsewhere",
        ),
        Refusal::Absent => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/srv/www", Refusal::Denied, Some("SupplementaryGroups="))]
    #[case("/srv/www", Refusal::Absent, None)]
    #[case("/srv/home", Refusal::Absent, None)]
    #[case("/homes/www", Refusal::Absent, None)]
    #[case("/home/ann/www", Refusal::Denied, Some("ProtectHome="))]
    #[case("/home/ann/www", Refusal::Absent, Some("ProtectHome="))]
    #[case("/root/www", Refusal::Denied, Some("ProtectHome="))]
    #[case("/run/user/7/www", Refusal::Absent, Some("ProtectHome="))]
    #[case("/tmp/www", Refusal::Absent, Some("DynamicUser="))]
    #[case("/tmp/www", Refusal::Denied, Some("SupplementaryGroups="))]
    fn what_hides_a_directory_is_named(
        #[case] directory: &str,
        #[case] refusal: Refusal,
        #[case] want: Option<&str>,
    ) {
        let found = remedy(Path::new(directory), refusal);
        let is_as_wanted = match (found, want) {
            (Some(found), Some(want)) => found.contains(want),
            (found, want) => found.is_none() && want.is_none(),
        };
        assert!(is_as_wanted, "{found:?}");
    }
}
