//! The environment of the process, as far as the configuration depends on it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use crate::config::file::ConfigError;
use crate::config::overrides::Overrides;

/// Directory in which systemd keeps the credentials of the service while it runs.
const CREDENTIALS_OF_SERVICE: &str = "/run/credentials/rsnotify.service";

/// The environment of the process.
pub struct Environment {
    pub default_file: PathBuf,
    pub current_dir: PathBuf,
    /// All variables: the file may say that one holds a secret.
    pub variables: HashMap<OsString, OsString>,
}

impl Environment {
    /// A command about the service, such as `rsnotify status`, reads the same credentials as the service, if it may: systemd
    /// tells only the service where they are.
    pub fn of_this_process() -> Environment {
        let mut variables: HashMap<_, _> = env::vars_os().collect();
        if Path::new(CREDENTIALS_OF_SERVICE).is_dir() {
            let directory = variables.entry("CREDENTIALS_DIRECTORY".into());
            directory.or_insert_with(|| CREDENTIALS_OF_SERVICE.into());
        }
        Environment {
            default_file: PathBuf::from("/etc/rsnotify/config.toml"),
            current_dir: env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            variables,
        }
    }

    /// Returns the file to read: the one at `path`, or the default one if nothing else says what to watch.
    pub fn file<'a>(&'a self, path: Option<&'a Path>, overrides: &Overrides) -> Option<&'a Path> {
        // One that cannot be looked at is reported when it is read.
        let is_there = || self.default_file.try_exists().unwrap_or(true);
        let says_what = overrides.root.is_some() || overrides.url.is_some();
        path.or_else(|| (!says_what && is_there()).then_some(self.default_file.as_path()))
    }

    /// Returns that file, if there is one, and its text.
    pub fn read<'a>(
        &'a self,
        path: Option<&'a Path>,
        overrides: &Overrides,
    ) -> Result<(Option<&'a Path>, String), ConfigError> {
        let Some(path) = self.file(path, overrides) else {
            return Ok((None, String::new()));
        };
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok((Some(path), text))
    }

    /// Returns an absolute path, unless it is empty, without `.` and `..`, so that two ways to write a directory
    /// compare equal. Links are not resolved: a mount may appear later.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        if path.as_os_str().is_empty() {
            return plain;
        }
        for component in self.current_dir.join(path).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    plain.pop();
                }
                component => plain.push(component),
            }
        }
        plain
    }

    /// Returns an environment variable that is not empty.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        Some(value.as_os_str()).filter(|value| !value.is_empty())
    }

    pub fn default_state_dir(&self) -> Option<PathBuf> {
        // systemd separates several state directories by colons.
        let given = self.variable("STATE_DIRECTORY");
        let below = |home, path| Some(Path::new(self.variable(home)?).join(path));
        given
            .and_then(|list| env::split_paths(list).next())
            .or_else(|| below("XDG_STATE_HOME", "rsnotify"))
            .or_else(|| below("HOME", ".local/state/rsnotify"))
    }
}
