//! The daemons: `run` watches and announces, `hub` is a hub for many Sources, both until stopped.

use std::path::Path;

use crate::cli::dry_run::dry_run;
use crate::cli::exit::Exit;
use crate::cli::inference::with_url;
use crate::cli::logging;
use crate::cli::options::{HubOptions, RunOptions};
use crate::config::Config;
use crate::config::hub_config::HubConfig;
use crate::daemon;

pub fn run(file: Option<&Path>, options: &RunOptions) -> anyhow::Result<Exit> {
    let overrides = with_url(file, options.keys.overrides())?;
    let load = || Config::load(file, &overrides);
    let config = load()?;
    let _logging = logging::start(config.log);
    if options.dry_run {
        return dry_run(&config);
    }
    daemon::run(config, load, logging::set_level)?;
    Ok(Exit::Fine)
}

pub fn hub(file: Option<&Path>, options: &HubOptions) -> anyhow::Result<Exit> {
    let overrides = options.overrides();
    let load = || HubConfig::load(file, &overrides);
    let config = load()?;
    let _logging = logging::start(config.log);
    daemon::run_hub(config, load, logging::set_level)?;
    Ok(Exit::Fine)
}
