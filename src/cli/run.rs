//! `run` and `hub`: the daemons, which run until stopped. `reload` and `backup`: one that may be running.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use resourcesync::escape::{escaped, escaped_lines};

use crate::cli::daemon_client::unexpected_answer;
use crate::cli::dry_run::dry_run;
use crate::cli::inference::with_url;
use crate::cli::options::{HubOptions, RunOptions};
use crate::cli::output::print;
use crate::cli::{Exit, logging};
use crate::config::Config;
use crate::config::environment::{ProcessEnvironment, StateDirOption};
use crate::config::hub_config::HubConfig;
use crate::control::{self, ControlReply, ControlRequest};
use crate::daemon::Daemon;
use announce::state::open::{back_up, is_in_use};

pub fn run(file: Option<&Path>, options: &RunOptions) -> anyhow::Result<Exit> {
    let overrides = with_url(file, options.keys.clone())?;
    let load = || Config::load(file, &overrides);
    let config = load()?;
    let _logging = logging::start(config.log);
    if options.dry_run {
        return dry_run(&config);
    }
    Daemon::start_announcer(config)?.run(load, logging::set_level)?;
    Ok(Exit::Fine)
}

pub fn hub(file: Option<&Path>, options: &HubOptions) -> anyhow::Result<Exit> {
    let overrides = options.overrides();
    let load = || HubConfig::load(file, &overrides);
    let config = load()?;
    let _logging = logging::start(config.log);
    Daemon::start_public_hub(config)?.run(load, logging::set_level)?;
    Ok(Exit::Fine)
}

/// Copies the state, while the daemon runs or not.
pub fn backup(file: Option<&Path>, to: &Path, options: &StateDirOption) -> anyhow::Result<Exit> {
    let state_dir = ProcessEnvironment::of_this_process().state_dir(file, &options.overrides())?;
    let from = state_dir.display();
    ensure!(back_up(&state_dir, to)?, "there is no state in {from}");
    print(|out| writeln!(out, "copied the state in {from} to {}", to.display()))
}

/// Has the running daemon put its configuration into effect as it is now, or say why not.
pub fn reload(file: Option<&Path>, options: &StateDirOption) -> anyhow::Result<Exit> {
    let state_dir = ProcessEnvironment::of_this_process().state_dir(file, &options.overrides())?;
    let Some(changes) = request_reload(&state_dir)? else {
        bail!("no rsnotify is running with {}", state_dir.display());
    };
    print(|out| writeln!(out, "reloaded the configuration: {}", escaped(&changes)))
}

/// Has the daemon reload its configuration. Returns what that changed, or nothing if no daemon runs.
pub fn request_reload(state_dir: &Path) -> anyhow::Result<Option<String>> {
    if !is_in_use(state_dir).context("cannot look for the daemon")? {
        return Ok(None);
    }
    match control::ask(state_dir, &ControlRequest::Reload)? {
        ControlReply::Reloaded { changes } => Ok(Some(changes)),
        ControlReply::Error(error) => bail!(
            "configuration not reloaded, the daemon keeps the previous one: {}",
            escaped_lines(&error)
        ),
        _ => Err(unexpected_answer()),
    }
}
