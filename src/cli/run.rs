//! `run`: watch and announce, until stopped.

use std::path::Path;

use crate::cli::dry_run::dry_run;
use crate::cli::options::{Exit, RunOptions};
use crate::config::Config;
use crate::daemon;

pub fn run(file: Option<&Path>, options: &RunOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.overrides())?;
    if options.dry_run {
        return dry_run(&config);
    }
    daemon::run(&config)?;
    Ok(Exit::Fine)
}
