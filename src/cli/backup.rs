//! `backup`: a copy of the state, taken while the daemon runs or not.

use std::io::Write;
use std::path::Path;

use anyhow::bail;

use crate::cli::exit::Exit;
use crate::cli::options::BackupOptions;
use crate::cli::output::print;
use crate::config::partial::state_dir;
use crate::state::open::back_up;

pub fn backup(file: Option<&Path>, options: &BackupOptions) -> anyhow::Result<Exit> {
    let state_dir = state_dir(file, &options.state.overrides())?;
    let (from, to) = (state_dir.display(), options.to.display());
    if !back_up(&state_dir, &options.to)? {
        bail!("there is no state in {from}");
    }
    print(|out| writeln!(out, "copied the state in {from} to {to}"))?;
    Ok(Exit::Fine)
}
