//! The configuration of `rsnotify hub`: a file with `[hub]` and `[[publisher]]` instead of sources.

use std::path::{Path, PathBuf};

use resourcesync::uri::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::config::environment::Environment;
use crate::config::file::{Checked, ConfigError, ConfigFile};
use crate::config::log::Log;
use crate::config::overrides::Overrides;
use crate::config::publisher::{self, PublisherSettings};
use crate::config::schema::DaemonKind;
use crate::config::served_hub::ServedHub;
use crate::config::server::ServerSettings;
use crate::config::state_dir;

#[cfg(test)]
mod tests;

/// The configuration of `rsnotify hub`, with the keys of its file. What [`HubConfig::load`] returns was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HubConfig {
    // The file that was read; absolute if it was named so.
    #[serde(skip)]
    pub file: PathBuf,
    /// Directory in which rsnotify keeps what it has seen and told.
    // As the unit of the service has it: two processes cannot share one.
    #[schemars(example = "/var/lib/rsnotify-hub", extend("x-shown" = true, "x-default" = ""))]
    pub state_dir: PathBuf,
    /// Listeners, and the times that belong to them.
    pub server: ServerSettings,
    /// Log on standard error.
    pub log: Log,
    /// The hub of `rsnotify hub`.
    pub hub: ServedHub,
    /// Publishers whose notifications `rsnotify hub` takes.
    #[serde(rename = "publisher")]
    pub publishers: Vec<PublisherSettings>,
}

impl HubConfig {
    /// Reads the file at `path`, or the default one, under what the flags say.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Checked<HubConfig> {
        let environment = Environment::of_this_process();
        let path = path.unwrap_or(&environment.default_file);
        let (_, text) = environment.read(Some(path), overrides)?;
        HubConfig::load_text(path, &text, overrides)
    }

    /// Reads a text as that of the file at `path`.
    pub fn load_text(path: &Path, text: &str, overrides: &Overrides) -> Checked<HubConfig> {
        let environment = Environment::of_this_process();
        let file = &mut ConfigFile::parse(Some(path), text, &environment)?;
        HubConfig::of(file, overrides)
    }

    pub(crate) fn of(file: &mut ConfigFile<'_>, overrides: &Overrides) -> Checked<HubConfig> {
        verify_daemon(file, DaemonKind::Hub)?;
        // There are no flags for its tables.
        let mut flags = overrides.clone();
        let source = &mut flags.source;
        (source.tree.root, source.tree.url, source.hub) = (None, None, None);
        flags.apply(file);
        let mut config: HubConfig = file.read(DaemonKind::Hub)?;
        config.file = file.path.unwrap_or(Path::new("")).to_owned();
        config.hub.check_own(file)?;
        // The URL of the hub says where it is reached.
        if config.server.public_url.is_none() {
            let origin = Url::parse(config.hub.url.as_str()).map(|url| url.origin());
            let origin = origin.map(|origin| format!("{}/", origin.ascii_serialization()));
            config.server.public_url = origin.ok().and_then(|origin| Uri::parse(&origin).ok());
        }
        config.server.check(file)?;
        (config.hub).trust_loopback_proxies(file, "hub", &config.server.listen);
        publisher::check(file, &mut config.publishers)?;
        config.state_dir = state_dir(file, &config.state_dir)?;
        Ok(config)
    }

    /// Returns true if the file at `path`, or the default one, is one of `rsnotify hub`, whatever else is wrong with it.
    pub fn is_at(path: Option<&Path>, overrides: &Overrides) -> bool {
        let environment = Environment::of_this_process();
        let read = environment.read(path, overrides);
        read.is_ok_and(|(path, text)| is_of_hub(&ConfigFile::recover(path, &text, &environment).0))
    }
}

/// Returns true for a file of `rsnotify hub`: it has publishers, or a table `[hub]` and no source.
pub(crate) fn is_of_hub(file: &ConfigFile<'_>) -> bool {
    let has_table = file.get("hub").is_some_and(|hub| hub.get_ref().is_table());
    file.get("publisher").is_some() || has_table && file.get("source").is_none()
}

/// Refuses a file that is not one of this daemon alone.
pub(crate) fn verify_daemon(file: &ConfigFile<'_>, daemon: DaemonKind) -> Checked {
    let path = file.path.unwrap_or(Path::new("")).display();
    let has_source = file.get("source").is_some();
    let message = match (is_of_hub(file), daemon) {
        (true, _) if has_source => format!(
            "{path} has both [[source]] and [[publisher]]: `rsnotify run` and `rsnotify hub` are two daemons, each with a \
             file and a state_dir of its own"
        ),
        (true, DaemonKind::Run) => format!(
            "{path} is a configuration of a hub for many Sources ([hub], [[publisher]]): start it with `rsnotify hub \
             --config {path}`; this command needs a file with [[source]]"
        ),
        (false, DaemonKind::Hub) => format!(
            "{path} is a configuration of `rsnotify run`: a hub for many Sources needs a file with [hub] and [[publisher]]"
        ),
        _ => return Ok(()),
    };
    Err(ConfigError::Invalid(message))
}
