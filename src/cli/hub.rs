//! `hub`: a hub for many Sources, until stopped.

use std::path::Path;

use crate::cli::exit::Exit;
use crate::cli::logging;
use crate::cli::options::HubOptions;
use crate::config::hub_config::HubConfig;
use crate::daemon;

pub fn hub(file: Option<&Path>, options: &HubOptions) -> anyhow::Result<Exit> {
    let overrides = options.overrides();
    let load = || HubConfig::load(file, &overrides);
    let config = load()?;
    let _logging = logging::start(config.log);
    daemon::run_hub(config, load, logging::set_level)?;
    Ok(Exit::Fine)
}
