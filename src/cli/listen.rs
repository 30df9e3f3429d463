//! `listen`: subscribes to topics, or reads from a message broker, and prints each notification or runs a command.

use std::path::Path;
use std::time::Duration;

use destination::{ExecOptions, FailureKind, LEASE, ListenTo, OutputOptions, SubscribeOptions};
use messaging::session::MessageSelection;
use messaging::settings::BrokerSettings;

use crate::cli::options::ListenOptions;
use crate::cli::output::eprint_line;
use crate::cli::{Exit, block_on, no_broker_error};
use crate::config::Config;
use crate::daemon::log::error_chain;

pub fn listen(file: Option<&Path>, options: &ListenOptions) -> anyhow::Result<Exit> {
    let origin = match &options.broker {
        Some(name) => match find_broker(name, file, options) {
            Ok((settings, selection)) => ListenTo::Broker(settings, selection),
            Err((exit, reason)) => {
                eprint_line(reason);
                return Ok(exit);
            }
        },
        None => ListenTo::Topics(SubscribeOptions {
            urls: options.urls.clone(),
            kind: options.kind,
            callback: options.callback.clone(),
            callback_listen: options.callback_listen,
            hub: options.hub.clone(),
            state: options.state.clone(),
            lease: (options.lease).map_or(LEASE, |lease| Duration::from_secs(lease.get())),
        }),
    };
    let output = OutputOptions {
        json: options.json,
        xml: options.xml,
        exec: options.exec.clone().map(|line| ExecOptions {
            line,
            is_batch: options.exec_batch,
            timeout: options.exec_timeout,
        }),
    };
    let failed = block_on(destination::listen(origin, output))??;
    Ok(failed.map_or(Exit::Fine, exit_of_failure))
}

fn exit_of_failure(failure: FailureKind) -> Exit {
    match failure {
        FailureKind::Refused => Exit::Refused,
        FailureKind::Temporary => Exit::Temporary,
        FailureKind::NotVerified => Exit::NotVerified,
        FailureKind::Denied => Exit::Denied,
        FailureKind::Other => Exit::Failure,
    }
}

/// Returns the broker of the configuration, and the requested subscription.
fn find_broker(
    name: &str,
    file: Option<&Path>,
    options: &ListenOptions,
) -> Result<(BrokerSettings, MessageSelection), (Exit, String)> {
    let wrong = |reason| (Exit::Configuration, reason);
    let config = Config::load_for_consumer(file).map_err(|error| wrong(error_chain(&error)))?;
    let all = config
        .broker_settings()
        .map_err(|error| wrong(error_chain(&error)))?;
    let mut all = config.brokers.iter().zip(all);
    let found = all.find(|(broker, _)| broker.name.as_str() == name);
    let unknown = || (Exit::Failure, no_broker_error(&config, name).to_string());
    let (broker, settings) = found.ok_or_else(unknown)?;
    let sources = broker.sources.iter().flatten();
    let mut sources: Vec<&str> = sources.map(String::as_str).collect();
    if sources.is_empty() {
        let all = config.sources.iter();
        sources = all.map(|source| source.name.as_str()).collect();
    }
    // Without a source in its name, a destination is that of all.
    if sources.is_empty() && !settings.destination.contains("{source}") {
        sources.push("");
    }
    let of_sources = || sources.iter().map(|source| settings.destination_of(source));
    let named = options.destination.as_ref();
    let mut destinations = named.map_or_else(|| of_sources().collect(), |one| vec![one.clone()]);
    destinations.dedup();
    if destinations.is_empty() {
        let (name, destination) = (&settings.name, &settings.destination);
        return Err(wrong(format!(
            "the destination of {name} is {destination}, and there is no [[source]]: name it with --destination, or the \
             sources in [[broker]]"
        )));
    }
    let selection = MessageSelection {
        destinations,
        selector: options.selector.clone(),
        durable: options.durable.clone(),
        leaves_damaged: options.strict,
    };
    Ok((settings, selection))
}

#[cfg(test)]
mod tests {
    use destination::FailureKind;

    use crate::cli::listen::exit_of_failure;

    #[test]
    fn each_failure_has_its_exit_code() {
        for (failure, code) in [
            (FailureKind::Other, 1),
            (FailureKind::Refused, 69),
            (FailureKind::Temporary, 75),
            (FailureKind::NotVerified, 76),
            (FailureKind::Denied, 77),
        ] {
            assert_eq!(exit_of_failure(failure).code(), code);
        }
    }
}
