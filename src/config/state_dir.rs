//! The state directory, and nothing else: commands that ask a running daemon reach it while its configuration file is
//! being edited.

use std::path::{Path, PathBuf};

use crate::config::error::ConfigError;
use crate::config::overrides::Overrides;
use crate::config::raw::Written;
use crate::config::reading::{Reading, Source};
use crate::config::{Environment, syntax};

/// The directory, as the flags, the file at `path` or the default one have it. Whatever else is wrong with the file is
/// overlooked, text that is not TOML included.
///
/// # Errors
/// The file cannot be read, or its `state_dir` is none.
pub fn state_dir(path: Option<&Path>, overrides: &Overrides) -> Result<PathBuf, ConfigError> {
    state_dir_in(&Environment::of_this_process(), path, overrides)
}

fn state_dir_in(
    environment: &Environment,
    path: Option<&Path>,
    overrides: &Overrides,
) -> Result<PathBuf, ConfigError> {
    let path = match overrides.state_dir {
        Some(_) => None,
        None => environment.file(path, overrides),
    };
    let text = path.map(super::read).transpose()?;
    let source = path
        .zip(text.as_deref())
        .map(|(path, text)| Source { path, text });
    let written: Written<String> = source.and_then(|source| syntax::text_of(source, "state_dir"));
    let reading = &mut Reading::new(source, environment, Vec::new());
    let state_dir = super::state_dir(reading, environment, written, overrides);
    reading.finish(state_dir.value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(file: Option<&str>, overrides: Overrides) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        if let Some(text) = file {
            fs::write(&path, text).unwrap();
        }
        let environment = Environment {
            default_file: path,
            state_directory: Some("/default".into()),
            ..Environment::of_this_process()
        };
        match state_dir_in(&environment, None, &overrides) {
            Ok(found) => Ok(found
                .display()
                .to_string()
                .replace(&directory.path().display().to_string(), "DIR")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn it_is_found_whatever_else_is_wrong_with_the_file() {
        for (file, want) in [
            (None, "/default"),
            (Some(""), "/default"),
            (Some("state_dir = \"a\"\n"), "DIR/a"),
            (Some("state_dir = \"/a\"\nquite = 1\n[sever]\n"), "/a"),
            (
                Some("state_dir = \"/a\"\n[[source]]\nname = \"main\n"),
                "/a",
            ),
            (Some("state_dir = \"/a\"\n[[hub]\nurl =\n= 3\n"), "/a"),
            (Some("quite = \nstate_dir = \"/a\"\n"), "/a"),
        ] {
            assert_eq!(
                found(file, Overrides::default()).as_deref(),
                Ok(want),
                "{file:?}"
            );
        }
    }

    #[test]
    fn the_flag_counts_before_the_file_which_is_not_read() {
        let overrides = Overrides {
            state_dir: Some("/flag".into()),
            ..Overrides::default()
        };
        let file = Some("state_dir = 3");
        assert_eq!(found(file, overrides).as_deref(), Ok("/flag"));
    }
}
