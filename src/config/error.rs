//! The error of a configuration.

use std::path::PathBuf;

/// The error of loading a [`Config`](crate::config::Config).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {path}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "nothing to watch: name a configuration file with --config FILE, or a tree with --root DIR --url URI \
         ({default} does not exist)"
    )]
    Nothing { default: PathBuf },
    #[error(
        "{path} is a configuration of a hub for many Sources ([hub], [[publisher]]): start it with `rsnotify hub --config \
         {path}`; this command needs a file with [[source]]"
    )]
    OfHub { path: PathBuf },
    #[error(
        "{path} is a configuration of `rsnotify run`: a hub for many Sources needs a file with [hub] and [[publisher]]"
    )]
    OfRun { path: PathBuf },
    #[error(
        "{path} has both [[source]] and [[publisher]]: `rsnotify run` and `rsnotify hub` are two daemons, each with a file \
         and a state_dir of its own"
    )]
    OfBoth { path: PathBuf },
    /// The first thing to correct, with its place: a flag, or a line and a column of the file, which count from 1.
    #[error("{0}")]
    Invalid(String),
}
