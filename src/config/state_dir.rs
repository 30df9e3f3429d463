//! `state_dir`: the directory of the state file.

use std::path::{Path, PathBuf};

use crate::config::definition::{Example, Fallback};
use crate::config::environment::Environment;
use crate::config::form::PATH;
use crate::config::key::ConfigKey;
use crate::config::loader::Loader;
use crate::config::origin::{Given, Origin};
use crate::config::overrides::Overrides;
use crate::config::section::Section;
use crate::config::source::SourceSettings;
use crate::config::structure::WrittenTable;

pub static STATE_DIR: ConfigKey<PathBuf> = ConfigKey::new(
    "",
    "state_dir",
    PATH,
    Fallback::Described("`$STATE_DIRECTORY`, else `$XDG_STATE_HOME/rsnotify`, else `~/.local/state/rsnotify`"),
    "Directory in which rsnotify keeps what it has seen and told.",
)
.more(
    "Commands such as `rsnotify accept` and `rsnotify outbox` reach the daemon by a socket in it: run them as its user, \
     or as root. Do not put it into a published directory.",
)
.example(Example::Value("\"/var/lib/rsnotify\""))
.flags(&["--state-dir"]);

/// Reads the state directory.
pub fn state_dir(
    loader: &mut Loader<'_>,
    environment: &Environment,
    written: WrittenTable<'_>,
    overrides: &Overrides,
) -> Given<PathBuf> {
    let key = &STATE_DIR.definition;
    if let Some(path) = &overrides.state_dir {
        let origin = Origin::Flag("--state-dir");
        let value = loader.path(key, origin, path).unwrap_or_default();
        loader.note(key, 0, origin);
        return Given { value, origin };
    }
    if let Some(origin) = written.origin_of(key.name).given() {
        let given = Section::new(loader, 0, written).given(&STATE_DIR);
        let value = given.map(|given| given.value).unwrap_or_default();
        return Given { value, origin };
    }
    let value = environment.default_state_dir().unwrap_or_else(|| {
        let message =
            "it is needed, because none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is set";
        loader.report_absence(&[key.name], Origin::Absent, key, message);
        PathBuf::new()
    });
    let origin = Origin::Absent;
    Given { value, origin }
}

/// Reports a state directory in a mount, where it would be watched and published: there are subscribers' secrets in it.
pub fn refuse_in_mount(
    loader: &mut Loader<'_>,
    state_dir: &Given<PathBuf>,
    sources: &[SourceSettings],
) {
    if state_dir.value.as_os_str().is_empty() {
        return;
    }
    let resolved = resolved(&state_dir.value);
    let mut mounts = sources.iter().flat_map(|source| &source.plan.mounts);
    let around = mounts.find(|mount| {
        state_dir.value.starts_with(&mount.directory)
            || resolved.starts_with(self::resolved(&mount.directory))
    });
    if let Some(mount) = around {
        let message = format!(
            "{} lies inside the mount {}, where it would be watched, and published: put it elsewhere",
            state_dir.value.display(),
            mount.directory.display()
        );
        loader.report(state_dir.origin, &STATE_DIR.definition, message);
    }
}

/// Returns the path with symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    path.ancestors()
        .find_map(|above| {
            let below = path.strip_prefix(above).ok()?;
            // An empty path below would add a slash.
            let real = above.canonicalize().ok()?;
            Some(match below.as_os_str().is_empty() {
                true => real,
                false => real.join(below),
            })
        })
        .unwrap_or_else(|| path.to_owned())
}
