//! The configuration of `rsnotify hub`: a file with `[hub]` and `[[publisher]]` instead of sources.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::config::definition::Definition;
use crate::config::effective::{Comment, Page, quoted};
use crate::config::environment::Environment;
use crate::config::error::ConfigError;
use crate::config::loader::Loader;
use crate::config::origin::{FileText, Origins, located};
use crate::config::overrides::Overrides;
use crate::config::own_hub::{self, OWN_HUB, OwnHubSettings};
use crate::config::publisher::{self, PUBLISHER, PublisherSettings};
use crate::config::section::Section;
use crate::config::server::{self, SERVER, ServerSettings};
use crate::config::state_dir::{self, STATE_DIR};
use crate::config::structure::{self, WrittenTable};

/// The keys of the file of `rsnotify hub`.
pub static HUB_KEYS: [&Definition; 4] = [&STATE_DIR.definition, &SERVER, &OWN_HUB, &PUBLISHER];

/// A configuration of `rsnotify hub` that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubConfig {
    /// The file that was read; absolute if it was named so.
    pub file: PathBuf,
    pub state_dir: PathBuf,
    pub server: ServerSettings,
    pub hub: OwnHubSettings,
    /// At least one.
    pub publishers: Vec<PublisherSettings>,
}

impl HubConfig {
    /// Reads the file at `path`, or the default one, under what the flags say.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<HubConfig, ConfigError> {
        let (config, _) = HubConfig::load_with_origins(path, overrides)?;
        Ok(config)
    }

    /// As [`HubConfig::load`], with the origins of the values.
    pub fn load_with_origins(
        path: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<(HubConfig, Origins), ConfigError> {
        let environment = &Environment::of_this_process();
        let path = path.unwrap_or(&environment.default_file);
        let text = &crate::config::read(path)?;
        load(environment, FileText { path, text }, overrides)
    }

    /// Returns true if the file at `path`, or the default one, is one of `rsnotify hub`, whatever else is wrong with it.
    pub fn is_at(path: Option<&Path>, overrides: &Overrides) -> bool {
        let environment = &Environment::of_this_process();
        let Some(path) = environment.file(path, overrides) else {
            return false;
        };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let (table, _) = DeTable::parse_recoverable(&text);
        is_of_hub(table.get_ref())
    }

    /// Returns TOML that gives this configuration when it is read again. Secrets are named by their holders.
    pub fn effective(&self) -> String {
        self.effective_with(&|_, _| None)
    }

    /// As [`HubConfig::effective`], with comments behind values.
    pub fn effective_with(&self, comment: Comment<'_>) -> String {
        let mut page = Page::new(comment);
        page.key(&STATE_DIR.definition, quoted(self.state_dir.display()));
        page.table(&SERVER, 0);
        server::effective(&mut page, &self.server);
        page.table(&OWN_HUB, 0);
        own_hub::effective(&mut page, &self.hub);
        for (position, settings) in self.publishers.iter().enumerate() {
            page.table(&PUBLISHER, position);
            publisher::effective(&mut page, settings);
        }
        page.text
    }
}

/// Returns true for a file of `rsnotify hub`: it has publishers, or a table `[hub]` and no source.
pub(super) fn is_of_hub(table: &DeTable<'_>) -> bool {
    let has_table = matches!(
        table.get("hub").map(toml::Spanned::get_ref),
        Some(DeValue::Table(_))
    );
    table.contains_key("publisher") || has_table && !table.contains_key("source")
}

fn load(
    environment: &Environment,
    file: FileText<'_>,
    overrides: &Overrides,
) -> Result<(HubConfig, Origins), ConfigError> {
    let table = structure::parse(file)?;
    let (of_hub, of_run) = (
        is_of_hub(table.get_ref()),
        table.get_ref().contains_key("source"),
    );
    match (of_hub, of_run) {
        (false, _) => {
            return Err(ConfigError::OfRun {
                path: file.path.to_owned(),
            });
        }
        (true, true) => {
            return Err(ConfigError::OfBoth {
                path: file.path.to_owned(),
            });
        }
        (true, false) => {}
    }
    let mut loader = Loader::new(Some(file), environment);
    let mut slips = Vec::new();
    let mut written = WrittenTable::new(file, "", &HUB_KEYS, located(table), &mut slips);
    loader.report_slips(slips);
    let loader = &mut loader;
    let hub = written.take_table(OWN_HUB.name);
    let hub = own_hub::own_hub(&mut Section::new(loader, 0, hub));
    let mut server = server::with_flags(written.take_table(SERVER.name), overrides);
    // The URL of the hub says where it is reached.
    if let Some(origin) = hub.as_ref().and_then(OwnHubSettings::origin) {
        server::set_public_url(&mut server, origin.as_str());
    }
    let server = server::server(&mut Section::new(loader, 0, server));
    let publishers = written.take_tables(PUBLISHER.name).value;
    let publishers = publisher::publishers(loader, publishers);
    let state_dir = state_dir::state_dir(loader, environment, written, overrides);
    let (hub, origins) = loader.finish(hub)?;
    let Some(hub) = hub else {
        // Its absence was reported, so this is not reached.
        return Err(ConfigError::OfRun {
            path: file.path.to_owned(),
        });
    };
    let config = HubConfig {
        file: file.path.to_owned(),
        state_dir: state_dir.value,
        server,
        hub,
        publishers,
    };
    Ok((config, origins))
}

#[cfg(test)]
mod tests;
