//! `reload`: the running daemon puts its configuration into effect as it is now, or says why not.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use resourcesync::escape::{escaped, escaped_lines};

use crate::cli::daemon_client::unexpected_answer;
use crate::cli::exit::Exit;
use crate::cli::options::StateOptions;
use crate::cli::output::print;
use crate::config::partial::state_dir;
use crate::control::{self, ControlReply, ControlRequest};
use crate::state::lock;

pub fn reload(file: Option<&Path>, options: &StateOptions) -> anyhow::Result<Exit> {
    let state_dir = state_dir(file, &options.overrides())?;
    let Some(changes) = reloaded(&state_dir)? else {
        bail!("no rsnotify is running with {}", state_dir.display());
    };
    print(|out| writeln!(out, "reloaded the configuration: {}", escaped(&changes)))?;
    Ok(Exit::Fine)
}

/// Has the daemon reload its configuration. Returns what that changed, or nothing if no daemon runs.
pub fn reloaded(state_dir: &Path) -> anyhow::Result<Option<String>> {
    if !lock::is_in_use(state_dir).context("cannot look for the daemon")? {
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
