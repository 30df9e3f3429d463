//! `check` of a configuration of `rsnotify hub`.

use std::path::Path;

use anyhow::Context;
use websub::probe::http as probe;

use crate::cli::block_on;
use crate::cli::check::{CheckSection, machine, network};
use crate::config::hub_config::HubConfig;
use crate::config::overrides::Overrides;
use crate::diagnostics::hub::HubTable;
use crate::diagnostics::{Diagnostic, hub};

/// Returns the sections about the hub; of the configuration alone if `no_environment`.
pub(super) fn sections(
    file: Option<&Path>,
    overrides: &Overrides,
    no_environment: bool,
) -> anyhow::Result<Vec<CheckSection>> {
    let config = HubConfig::load(file, overrides)?;
    let publishers = config
        .publishers
        .iter()
        .filter(|settings| settings.bearer_token_file.is_none());
    let of_publishers: Vec<Diagnostic> = publishers
        .map(|settings| hub::open_publisher(&settings.name))
        .collect();
    let mut sections = vec![CheckSection::new("publishers", of_publishers)];
    if no_environment {
        return Ok(sections);
    }
    let mut of_hub = machine::state_directory(&config.state_dir);
    let (is_running, note) = network::is_running(&config.state_dir);
    of_hub.extend(note);
    if is_running {
        let get = block_on(probe::hub_in_public(&config.hub.url))?;
        let get = get.context("cannot prepare requests")?;
        of_hub.extend(hub::embedded(&config.hub.url, &get, HubTable::Hub));
    }
    sections.push(CheckSection::new("hub", of_hub));
    Ok(sections)
}
