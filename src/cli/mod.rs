//! The command line: its commands, and their exit codes.

mod accept;
mod advertise;
mod check;
mod config;
mod daemon_client;
mod dry_run;
mod health;
mod inference;
mod listen;
mod logging;
mod man;
mod one_shot_scan;
pub mod options;
mod outbox;
mod output;
mod replace;
mod resend;
mod run;
mod scan;
mod snippet;
mod status;
mod subscriptions;
mod token;

use anyhow::Context;
use clap::Parser;
use messaging::settings::BadCertificates;
use resourcesync::escape::escaped_lines;
use websub::publisher::settings::PublishSettingsError;

use crate::cli::inference::UrlInferenceError;
use crate::cli::options::{Command, CommandLine};
use crate::config::Config;
use crate::config::file::ConfigError;
use crate::config::server::{Log, LogFormat, LogLevel};
use crate::daemon::log::error_chain;

/// The result of a command. The argument parser itself exits with 2 for wrong usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Fine = 0,
    /// Something was found, or failed.
    Failure = 1,
    /// The command line lacks something.
    Usage = 2,
    /// A hub refuses a subscription request, or a broker a message.
    Refused = 69,
    /// A hub, topic or broker fails in a way that may pass.
    Temporary = 75,
    /// A hub does not verify a subscription.
    NotVerified = 76,
    /// A hub denies a subscription.
    Denied = 77,
    /// The configuration is wrong. No other error has this code, and a service manager need not try again.
    Configuration = 78,
}

impl Exit {
    /// Returns the exit code of a command that looks for something wrong.
    pub fn fine_if(is_fine: bool) -> Exit {
        if is_fine { Exit::Fine } else { Exit::Failure }
    }

    /// Returns the code, from 69 on as `sysexits.h` has them.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// Runs the command that the arguments name, and reports its error.
pub fn main() -> Exit {
    let options = CommandLine::parse();
    if let Some(error) = config::unknown_variable(std::env::vars_os().map(|(name, _)| name)) {
        eprintln!("rsnotify: {}", escaped_lines(&error));
        return Exit::Configuration;
    }
    // A daemon logs as it is configured; what prints an answer logs warnings only.
    let _logging = match options.command {
        Command::Run(_) | Command::Hub(_) => None,
        _ => Some(logging::start(Log {
            level: LogLevel::Warn,
            format: LogFormat::Human,
        })),
    };
    let file = options.config.as_deref();
    let outcome = match &options.command {
        Command::Run(run) => run::run(file, run),
        Command::Hub(hub) => run::hub(file, hub),
        Command::Check(check) => check::check(file, check),
        Command::Scan(scan) => scan::scan(file, scan),
        Command::Accept(accept) => accept::accept(file, accept),
        Command::Status(status) => status::status(file, status),
        Command::Outbox(outbox) => outbox::outbox(file, outbox),
        Command::Subscriptions(command) => subscriptions::subscriptions(file, command),
        Command::Listen(listen) => listen::listen(file, listen),
        Command::Resend(resend) => resend::resend(file, resend),
        Command::Advertise(advertise) => advertise::advertise(file, advertise),
        Command::Backup { to, state } => run::backup(file, to, state),
        Command::Token(token) => token::token(file, token),
        Command::Reload(state) => run::reload(file, state),
        Command::Health(health) => health::health(file, health),
        Command::Completions { shell } => man::completions(*shell),
        Command::Man { directory } => man::man(directory.as_deref()),
        Command::Config(config) => config::config(file, config),
        Command::Schema => config::schema(),
        Command::Snippet { server, source } => snippet::snippet(file, *server, source),
    };
    match outcome {
        Ok(exit) => exit,
        Err(error) => {
            let error_in_words = error_chain(error.as_ref());
            eprintln!("rsnotify: {}", escaped_lines(&error_in_words));
            if is_config_error(&error) {
                Exit::Configuration
            } else if error.is::<UrlInferenceError>() {
                Exit::Usage
            } else {
                Exit::Failure
            }
        }
    }
}

/// Runs a future to its end. Nothing that it leaves behind is waited for, such as a name server that never answers.
fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the network threads")?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
}

/// Returns the error for a broker that is not configured, with the names of those that are.
fn no_broker_error(config: &Config, name: &str) -> anyhow::Error {
    let names = config.brokers.iter().map(|broker| broker.name.as_str());
    let known = match names.collect::<Vec<_>>().join(", ").as_str() {
        "" => "there is no [[broker]]".to_owned(),
        names => format!("there is {names}"),
    };
    anyhow::anyhow!("no broker is named \"{name}\"; {known}")
}

/// Returns true if trying again is of no use before the configuration is edited (exit code 78).
fn is_config_error(error: &anyhow::Error) -> bool {
    let is_about_hub = error
        .downcast_ref::<PublishSettingsError>()
        .is_some_and(|error| !matches!(error, PublishSettingsError::Client { .. }));
    error.is::<ConfigError>() || error.is::<BadCertificates>() || is_about_hub
}
