//! Directories, what they are published as, and that they do not overlap.

use std::path::PathBuf;

use crate::announce::observation::MountId;
use crate::announce::plan::MountPlan;
use crate::config::reading::{Given, Origin, Reading};
use crate::config::web_uri;

/// A mount before it is checked.
#[derive(Debug)]
pub struct GivenMount {
    pub origin: Origin,
    pub path: Option<Given<PathBuf>>,
    pub url: Option<Given<String>>,
    pub aliases: Vec<Given<String>>,
}

/// A mount that was accepted, for comparison with the next.
#[derive(Debug)]
pub struct Mounted {
    /// The position of its source.
    pub source: usize,
    pub plan: MountPlan,
}

/// R1: mounts of different sources do not overlap, and those of one source differ.
pub fn mount(
    reading: &mut Reading<'_>,
    source: usize,
    given: GivenMount,
    earlier: &mut Vec<Mounted>,
) -> Option<MountPlan> {
    let url = reading.required(
        "source.mount.url",
        given.origin,
        given.url.as_ref(),
        web_uri::prefix,
    );
    let aliases = given
        .aliases
        .iter()
        .filter_map(|alias| reading.checked("source.mount.aliases", alias, web_uri::prefix))
        .collect();
    let Some(path) = given.path else {
        reading.report_absence(
            &["path"],
            given.origin,
            "source.mount.path",
            "it is missing",
        );
        return None;
    };
    let plan = MountPlan {
        id: MountId(u32::try_from(earlier.len()).unwrap_or(u32::MAX)),
        directory: reading.path("source.mount.path", path.origin, &path.value)?,
        prefix: url?,
        aliases,
    };
    for other in earlier.iter() {
        if let Some((key, message)) = conflict(&plan, &other.plan, other.source == source) {
            let origin = match (key, &given.url) {
                ("source.mount.url", Some(url)) => url.origin,
                _ => path.origin,
            };
            reading.report(origin, key, message);
        }
    }
    earlier.push(Mounted {
        source,
        plan: plan.clone(),
    });
    Some(plan)
}

fn conflict(
    own: &MountPlan,
    other: &MountPlan,
    same_source: bool,
) -> Option<(&'static str, String)> {
    let (directory, theirs) = (&own.directory, &other.directory);
    let directories_clash = if same_source {
        directory == theirs
    } else {
        directory.starts_with(theirs) || theirs.starts_with(directory)
    };
    if directories_clash {
        return Some((
            "source.mount.path",
            format!(
                "{} overlaps {}, which is mounted already",
                directory.display(),
                theirs.display()
            ),
        ));
    }
    let names = |mount: &MountPlan| {
        let aliases = mount.aliases.iter().cloned();
        std::iter::once(mount.prefix.clone())
            .chain(aliases)
            .collect::<Vec<_>>()
    };
    for own in names(own) {
        for theirs in names(other) {
            let clashes = if same_source {
                own == theirs
            } else {
                own.is_below(&theirs) || theirs.is_below(&own)
            };
            if clashes {
                let message = format!("{own} overlaps {theirs}, which is another mount's already");
                return Some(("source.mount.url", message));
            }
        }
    }
    None
}
