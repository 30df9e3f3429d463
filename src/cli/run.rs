//! `run`: watch and announce, until stopped.

use std::path::Path;

use crate::cli::options::{Exit, RunOptions};
use crate::config::Config;
use crate::daemon;

pub fn run(file: Option<&Path>, options: &RunOptions) -> anyhow::Result<Exit> {
    let config = Config::load(file, &options.overrides())?;
    daemon::run(&config)?;
    Ok(Exit::Fine)
}
