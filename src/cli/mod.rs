//! The command line: one file per subcommand.

mod accept;
mod advertise;
mod backup;
mod check;
mod completions;
mod config;
mod daemon_client;
mod dry_run;
pub mod exit;
mod health;
mod hub;
mod hub_state;
mod inference;
mod listen;
mod logging;
mod man;
mod one_shot_scan;
pub mod options;
mod outbox;
mod output;
mod play_forward;
mod progress;
mod reload;
mod resend;
mod run;
mod scan;
mod scan_file;
mod schema;
mod snippet;
mod status;
mod subscriptions;
mod token;
mod variables;

use anyhow::Context;
use clap::Parser;
use resourcesync::escape::escaped_lines;
use websub::publisher::settings::PublishSettingsError;

use crate::broker::settings::BrokerSettingsError;
use crate::cli::exit::Exit;
use crate::cli::inference::NoUrl;
use crate::cli::options::{Command, Options};
use crate::config::error::ConfigError;
use crate::config::log::{Log, LogFormat, LogLevel};
use crate::daemon::log::error_chain;

/// Runs the command that the arguments name, and reports its error.
pub fn main() -> Exit {
    let options = Options::parse();
    if let Some(error) = variables::unknown(std::env::vars_os().map(|(name, _)| name)) {
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
    let outcome = match &options.command {
        Command::Run(run) => run::run(options.config.as_deref(), run),
        Command::Hub(hub) => hub::hub(options.config.as_deref(), hub),
        Command::Check(check) => check::check(options.config.as_deref(), check),
        Command::Scan(scan) => scan::scan(options.config.as_deref(), scan),
        Command::Accept(accept) => accept::accept(options.config.as_deref(), accept),
        Command::Status(status) => status::status(options.config.as_deref(), status),
        Command::Outbox(outbox) => outbox::outbox(options.config.as_deref(), outbox),
        Command::Subscriptions(command) => {
            subscriptions::subscriptions(options.config.as_deref(), command)
        }
        Command::Listen(listen) => listen::listen(options.config.as_deref(), listen),
        Command::Resend(resend) => resend::resend(options.config.as_deref(), resend),
        Command::Advertise(advertise) => advertise::advertise(options.config.as_deref(), advertise),
        Command::Backup(backup) => backup::backup(options.config.as_deref(), backup),
        Command::Token(token) => token::token(options.config.as_deref(), token),
        Command::Reload(state) => reload::reload(options.config.as_deref(), state),
        Command::Health(health) => health::health(options.config.as_deref(), health),
        Command::Completions(completions) => completions::completions(completions),
        Command::Man(man) => man::man(man),
        Command::Config(config) => config::config(options.config.as_deref(), config),
        Command::Schema => schema::schema(),
        Command::Snippet(snippet) => snippet::snippet(options.config.as_deref(), snippet),
    };
    match outcome {
        Ok(exit) => exit,
        Err(error) => {
            let error_in_words = error_chain(error.as_ref());
            eprintln!("rsnotify: {}", escaped_lines(&error_in_words));
            if is_about_configuration(&error) {
                Exit::Configuration
            } else if error.is::<NoUrl>() {
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

/// Returns true if trying again is of no use before the configuration is edited (exit code 78).
fn is_about_configuration(error: &anyhow::Error) -> bool {
    let is_about_hub = error
        .downcast_ref::<PublishSettingsError>()
        .is_some_and(|error| !matches!(error, PublishSettingsError::Client { .. }));
    error.is::<ConfigError>() || error.is::<BrokerSettingsError>() || is_about_hub
}
