//! Single values of a configuration that need not be right: a command reaches a running daemon while a secret is being
//! replaced, or another key is being edited.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use crate::config;
use crate::config::address::Address;
use crate::config::environment::Environment;
use crate::config::file::{ConfigError, ConfigFile};
use crate::config::overrides::Overrides;
use crate::config::server::ServerSettings;

/// Returns the state directory, as the flags, the file at `path` or the default one have it. Whatever else is wrong with
/// the file is overlooked, text that is not TOML included.
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
    if let Some(path) = &overrides.state_dir
        && !path.as_os_str().is_empty()
    {
        return Ok(environment.absolute(path));
    }
    let (path, text) = environment.read(path, overrides)?;
    let (file, _) = ConfigFile::recover(path, &text, environment);
    let written = text_of(&file, "state_dir")?.unwrap_or_default();
    config::state_dir(&file, written.as_ref())
}

/// Returns the text of a key, if there is any.
fn text_of<'f>(file: &'f ConfigFile<'_>, key: &str) -> Result<Option<&'f str>, ConfigError> {
    let message = "write \"…\", with quotation marks";
    let text = |value: &'f DeValue<'_>| value.as_str().ok_or_else(|| file.error(key, message));
    file.get(key).map(|value| text(value.get_ref())).transpose()
}

/// Returns the address of the admin listener, as the flags, the file at `path` or the default one have it. A file that
/// need not be read is not; one that is read must be TOML.
pub fn admin_address(path: Option<&Path>, overrides: &Overrides) -> Result<Address, ConfigError> {
    admin_address_in(&Environment::of_this_process(), path, overrides)
}

fn admin_address_in(
    environment: &Environment,
    path: Option<&Path>,
    overrides: &Overrides,
) -> Result<Address, ConfigError> {
    let (path, text) = match overrides.admin_listen {
        Some(_) => (None, String::new()),
        None => environment.read(path, overrides)?,
    };
    let mut file = ConfigFile::parse(path, &text, environment)?;
    overrides.apply(&mut file);
    let key = "server.admin_listen";
    let default = ServerSettings::default().admin_listen;
    let address = text_of(&file, key)?.map_or(Ok(default), Address::parse);
    match address.map_err(|message| file.error(key, message))? {
        Address::Unix(socket) => file.absolute(key, &socket).map(Address::Unix),
        address => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Looks for a value with this as the default file, whose directory is called DIR.
    fn found(
        file: Option<&str>,
        look: impl FnOnce(&Environment) -> Result<String, ConfigError>,
    ) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        if let Some(text) = file {
            fs::write(&path, text).unwrap();
        }
        let mut environment = Environment::of_this_process();
        environment.default_file = path;
        let variable = ("STATE_DIRECTORY".into(), "/default".into());
        environment.variables.extend([variable]);
        match look(&environment) {
            Ok(found) => Ok(found.replace(&directory.path().display().to_string(), "DIR")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn found_state_dir(file: Option<&str>, overrides: Overrides) -> Result<String, String> {
        found(file, |environment| {
            let found = state_dir_in(environment, None, &overrides)?;
            Ok(found.display().to_string())
        })
    }

    fn found_admin_address(file: Option<&str>, overrides: Overrides) -> Result<String, String> {
        found(file, |environment| {
            let found = admin_address_in(environment, None, &overrides)?;
            Ok(found.to_string())
        })
    }

    #[test]
    fn the_flag_counts_before_the_file_and_the_file_before_the_default() {
        let flag = || Overrides {
            admin_listen: Some("127.0.0.1:9".to_owned()),
            ..Overrides::default()
        };
        let file = "[server]\nadmin_listen = \"unix:a.sock\"\n";
        for (file, overrides, want) in [
            (None, Overrides::default(), "127.0.0.1:8401"),
            (Some(""), Overrides::default(), "127.0.0.1:8401"),
            (Some(file), Overrides::default(), "unix:DIR/a.sock"),
            (Some(file), flag(), "127.0.0.1:9"),
            (Some("no TOML"), flag(), "127.0.0.1:9"),
        ] {
            assert_eq!(
                found_admin_address(file, overrides).as_deref(),
                Ok(want),
                "{file:?}"
            );
        }
    }

    #[test]
    fn a_tree_in_a_flag_leaves_the_default_file_alone_as_it_does_for_the_daemon() {
        let overrides = Overrides {
            root: Some("/srv/www".into()),
            ..Overrides::default()
        };
        let file = "[server]\nadmin_listen = \"127.0.0.1:9\"\n";
        assert_eq!(
            found_admin_address(Some(file), overrides).as_deref(),
            Ok("127.0.0.1:8401")
        );
    }

    #[test]
    fn what_else_is_wrong_with_the_file_is_no_matter() {
        let file = "quite = 1\n[server]\nadmin_listen = \"127.0.0.1:9\"\nlisten = 7\n\
                    [[hub]]\nurl = \"no URI\"\nbearer_token_file = \"/nonexistent\"\n";
        let address = found_admin_address(Some(file), Overrides::default());
        assert_eq!(address.as_deref(), Ok("127.0.0.1:9"));
    }

    #[test]
    fn an_address_that_is_none_is_named_with_its_place() {
        let file = "[server]\nadmin_listen = \"localhost:8401\"\n";
        let message = found_admin_address(Some(file), Overrides::default()).unwrap_err();
        assert!(
            message.contains(
                "config.toml:2:16: server.admin_listen: \"localhost:8401\" has a host name"
            ),
            "{message}"
        );
    }

    #[test]
    fn the_state_directory_is_found_whatever_else_is_wrong_with_the_file() {
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
                found_state_dir(file, Overrides::default()).as_deref(),
                Ok(want),
                "{file:?}"
            );
        }
    }

    #[test]
    fn the_flag_for_the_state_directory_counts_before_the_file_which_is_not_read() {
        let overrides = Overrides {
            state_dir: Some("/flag".into()),
            ..Overrides::default()
        };
        let file = Some("state_dir = 3");
        assert_eq!(found_state_dir(file, overrides).as_deref(), Ok("/flag"));
    }
}
