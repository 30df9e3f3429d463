//! Where log lines go: to standard error, for people or for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::options::{Command, LogFormat, Options};

/// Starts logging for this process. Commands that print an answer log warnings only.
pub fn start(options: &Options) {
    let (level, format) = match &options.command {
        Command::Run(run) => (run.log_level.as_str(), run.log_format),
        _ => ("warn", LogFormat::Human),
    };
    // The `notify` crate warns of each directory that goes, because it forgets a watch twice.
    let filter = EnvFilter::new(format!("warn,notify=error,rsnotify={level}"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match format {
        LogFormat::Human => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
