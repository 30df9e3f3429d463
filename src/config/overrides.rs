//! Values of the command line, or the environment, that count before the file.

use std::path::PathBuf;

/// One field per flag; a flag that was not given leaves the file's value, or its default.
///
/// `root` and `url` together stand for all `[[source]]` entries: one source named `main`, which keeps the
/// other settings of a source of that name in the file. `hub` stands for all `[[hub]]` entries, and keeps the
/// settings of the one with that URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub root: Option<PathBuf>,
    pub url: Option<String>,
    pub hub: Option<String>,
    pub state_dir: Option<PathBuf>,
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
    pub public_url: Option<String>,
}
