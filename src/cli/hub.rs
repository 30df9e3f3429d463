//! `hub`: a hub for many Sources, until stopped.

use std::path::Path;

use crate::cli::exit::Exit;
use crate::cli::options::HubOptions;
use crate::config::hub_config::HubConfig;
use crate::daemon;

pub fn hub(file: Option<&Path>, options: &HubOptions) -> anyhow::Result<Exit> {
    let overrides = options.overrides();
    let load = || HubConfig::load(file, &overrides);
    daemon::run_hub(load()?, load)?;
    Ok(Exit::Fine)
}
