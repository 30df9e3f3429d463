//! The mounts of a source: directories, what they are published as, and that they do not overlap.

use std::path::{Path, PathBuf};

use resourcesync::uri::Uri;

use crate::announce::observation::MountId;
use crate::announce::plan::MountPlan;
use crate::config::definition::Fallback::{Default, Required};
use crate::config::definition::{Definition, Example, Fallback, Kind};
use crate::config::effective::{inline, list, quoted};
use crate::config::form::{PATH, PREFIX, PREFIXES};
use crate::config::key::ConfigKey;
use crate::config::loader::Loader;
use crate::config::origin::{Given, Origin};
use crate::config::section::Section;
use crate::config::structure::WrittenTable;

pub static MOUNT: Definition = Definition {
    table: "source",
    fallback: Fallback::Required,
    example: Example::Value(
        "[{ path = \"/srv/www\", url = \"https://example.org/\", aliases = [\"http://example.org/\"] }]",
    ),
    flags: &["--root", "--url"],
    ..Definition::table(
        "mount",
        Kind::Tables(&[&PATH_KEY.definition, &URL.definition, &ALIASES.definition]),
        "Directories to watch, and the URIs that they are published as.",
    )
};

pub static PATH_KEY: ConfigKey<PathBuf> =
    ConfigKey::new("source.mount", "path", PATH, Required, "Directory.")
        .more("It need not exist yet.")
        .flags(&["--root"]);

pub static URL: ConfigKey<Uri> = ConfigKey::new(
    "source.mount",
    "url",
    PREFIX,
    Required,
    "URI that the directory is published as.",
)
.flags(&["--url"]);

static ALIASES: ConfigKey<Vec<Uri>> = ConfigKey::new(
    "source.mount",
    "aliases",
    PREFIXES,
    Default("[]"),
    "Other prefixes of the same documents' URIs, such as `http://` beside `https://`.",
);

/// A mount before it is compared with others.
#[derive(Debug)]
pub struct GivenMount {
    pub path: Given<PathBuf>,
    pub url: Given<Uri>,
    pub aliases: Vec<Uri>,
}

/// A mount that was accepted, for comparison with the next.
#[derive(Debug)]
pub struct Mounted {
    /// The position of its source.
    pub source: usize,
    pub plan: MountPlan,
}

/// Reads a table of `mount`.
pub fn mount(loader: &mut Loader<'_>, written: WrittenTable<'_>) -> Option<GivenMount> {
    let mut section = Section::new(loader, 0, written);
    let url = section.required(&URL);
    let aliases = section.value(&ALIASES);
    let path = section.required(&PATH_KEY)?;
    Some(GivenMount {
        path,
        url: url?,
        aliases,
    })
}

/// Returns the mount that `--root` and `--url` name.
pub fn mount_of_flags(loader: &mut Loader<'_>, root: &Path, url: &String) -> Option<GivenMount> {
    let mut written = WrittenTable::default();
    written.set(&URL.definition, Some(url));
    let url = Section::new(loader, 0, written).given(&URL);
    let origin = Origin::Flag("--root");
    let path = loader.path(&PATH_KEY.definition, origin, root)?;
    Some(GivenMount {
        path: Given {
            value: path,
            origin,
        },
        url: url?,
        aliases: Vec::new(),
    })
}

/// Numbers a mount, and reports what it overlaps. R1: mounts of different sources do not overlap, and those of one
/// source differ.
pub fn numbered(
    loader: &mut Loader<'_>,
    source: usize,
    given: GivenMount,
    earlier: &mut Vec<Mounted>,
) -> MountPlan {
    let plan = MountPlan {
        id: MountId(u32::try_from(earlier.len()).unwrap_or(u32::MAX)),
        directory: given.path.value,
        prefix: given.url.value,
        aliases: given.aliases,
    };
    for other in earlier.iter() {
        match conflict(&plan, &other.plan, other.source == source) {
            Some(Conflict::Path(message)) => {
                loader.report(given.path.origin, &PATH_KEY.definition, message);
            }
            Some(Conflict::Url(message)) => {
                loader.report(given.url.origin, &URL.definition, message);
            }
            None => {}
        }
    }
    earlier.push(Mounted {
        source,
        plan: plan.clone(),
    });
    plan
}

/// Two mounts that exclude each other.
enum Conflict {
    Path(String),
    Url(String),
}

fn conflict(mount: &MountPlan, other: &MountPlan, same_source: bool) -> Option<Conflict> {
    let (directory, theirs) = (&mount.directory, &other.directory);
    let directories_clash = if same_source {
        directory == theirs
    } else {
        directory.starts_with(theirs) || theirs.starts_with(directory)
    };
    if directories_clash {
        return Some(Conflict::Path(format!(
            "{} overlaps {}, which is mounted already",
            directory.display(),
            theirs.display()
        )));
    }
    let names = |mount: &MountPlan| {
        let aliases = mount.aliases.iter().cloned();
        std::iter::once(mount.prefix.clone())
            .chain(aliases)
            .collect::<Vec<_>>()
    };
    for prefix in names(mount) {
        for theirs in names(other) {
            let clashes = if same_source {
                prefix == theirs
            } else {
                prefix.is_below(&theirs) || theirs.is_below(&prefix)
            };
            if clashes {
                let message =
                    format!("{prefix} overlaps {theirs}, which is another mount's already");
                return Some(Conflict::Url(message));
            }
        }
    }
    None
}

/// Returns a mount as the effective configuration has it.
pub fn effective(mount: &MountPlan) -> String {
    let path = quoted(mount.directory.display());
    let pairs = [
        format!("{} = {path}", PATH_KEY.definition.name),
        format!("{} = {}", URL.definition.name, quoted(&mount.prefix)),
        format!("{} = {}", ALIASES.definition.name, list(&mount.aliases)),
    ];
    inline(&pairs)
}
