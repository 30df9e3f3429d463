//! Where the admin listener of a running daemon is, and nothing else: whoever asks the daemon whether it is well must
//! not depend on a secret that is being replaced, or on a key that is being edited.

use std::path::Path;

use serde::Deserialize;

use crate::config::address::Address;
use crate::config::error::ConfigError;
use crate::config::overrides::Overrides;
use crate::config::raw::Written;
use crate::config::reading::{Reading, Source};
use crate::config::{Environment, server, syntax};

/// As much of the file as counts; the rest may hold anything that is TOML.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    server: Server,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Server {
    admin_listen: Written<String>,
}

/// The address, as the flags, the file at `path` or the default one have it. A file that need not be read is not.
pub fn admin_address(path: Option<&Path>, overrides: &Overrides) -> Result<Address, ConfigError> {
    admin_address_in(&Environment::of_this_process(), path, overrides)
}

fn admin_address_in(
    environment: &Environment,
    path: Option<&Path>,
    overrides: &Overrides,
) -> Result<Address, ConfigError> {
    let path = match overrides.admin_listen {
        Some(_) => None,
        None => environment.file(path, overrides),
    };
    let text = path.map(super::read).transpose()?;
    let source = path
        .zip(text.as_deref())
        .map(|(path, text)| Source { path, text });
    let File { server } = match source {
        Some(source) => {
            let (file, slips) =
                syntax::parse(source).map_err(|problems| ConfigError::Invalid { problems })?;
            match slips.is_empty() {
                true => file,
                false => return Err(ConfigError::Invalid { problems: slips }),
            }
        }
        None => File::default(),
    };
    let reading = &mut Reading::new(source, environment, Vec::new());
    let given = server::given_admin_listen(server.admin_listen, overrides);
    let address = server::admin_address(reading, given);
    reading.finish(address)
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
            ..Environment::of_this_process()
        };
        match admin_address_in(&environment, None, &overrides) {
            Ok(address) => Ok(address
                .to_string()
                .replace(&directory.path().display().to_string(), "DIR")),
            Err(error) => Err(error.to_string()),
        }
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
            assert_eq!(found(file, overrides).as_deref(), Ok(want), "{file:?}");
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
            found(Some(file), overrides).as_deref(),
            Ok("127.0.0.1:8401")
        );
    }

    #[test]
    fn what_else_is_wrong_with_the_file_is_no_matter() {
        let file = "quite = 1\n[server]\nadmin_listen = \"127.0.0.1:9\"\nlisten = 7\n\
                    [[hub]]\nurl = \"no URI\"\nbearer_token_file = \"/nonexistent\"\n";
        let address = found(Some(file), Overrides::default());
        assert_eq!(address.as_deref(), Ok("127.0.0.1:9"));
    }

    #[test]
    fn an_address_that_is_none_is_named_with_its_place() {
        let file = "[server]\nadmin_listen = \"localhost:8401\"\n";
        let message = found(Some(file), Overrides::default()).unwrap_err();
        assert!(
            message.contains(
                "config.toml:2:16: server.admin_listen: \"localhost:8401\" has a host name"
            ),
            "{message}"
        );
    }
}
