//! Requests of commands to the daemon. Where none runs, they are answered from the state that it left.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use resourcesync::escape::{escaped, escaped_lines};
use resourcesync::uri::Uri;
use rusqlite::Connection;
use serde::Serialize;
use websub::http::Clock;
use websub::hub::publication::{PublisherCounts, views};
use websub::hub::published_topics::PublishedTopics;
use websub::hub::subscriptions::Subscriptions;

use crate::cli::Exit;
use crate::cli::one_shot_scan::plan;
use crate::cli::options::DaemonQueryOptions;
use crate::cli::output::{EscapedStdout, print};
use crate::config::Config;
use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::ConfigError;
use crate::config::hub_config::HubConfig;
use crate::control::{self, ControlReply, ControlRequest, SubscriptionsAction};
use crate::daemon::NO_SOURCES;
use crate::daemon::commands::{NO_EMBEDDED_HUB, answer, ask_subscriptions, command_event, outcome};
use crate::daemon::log::error_chain;
use crate::report::status::Status;
use crate::report::{self, JSON_VERSION};
use announce::state::open::{StateFile, StateFileError, in_memory, is_in_use, open_to_read};
use announce::state::{self, Db, hub, last_time_saved};
use announce::steps::engine::Engine;

/// A daemon, by its state directory.
#[derive(Debug)]
pub struct DaemonClient<'a> {
    state_dir: PathBuf,
    file: Option<&'a Path>,
    overrides: Overrides,
    as_json: bool,
    /// True if it runs, and has answered the last request itself.
    pub is_running: bool,
}

/// An answer with the version of its shape, and whether a daemon gave it.
#[derive(Serialize)]
struct JsonAnswer<'a, T> {
    version: u64,
    running: bool,
    #[serde(flatten)]
    answer: &'a T,
}

impl<'a> DaemonClient<'a> {
    /// Finds the daemon that `--config` and the flags name. Of the configuration file only `state_dir` matters while the
    /// daemon runs: the file may be invalid at the moment.
    pub fn new(
        file: Option<&'a Path>,
        options: &DaemonQueryOptions,
    ) -> anyhow::Result<DaemonClient<'a>> {
        let overrides = options.tree.overrides();
        Ok(DaemonClient {
            state_dir: ProcessEnvironment::of_this_process().state_dir(file, &overrides)?,
            file,
            overrides,
            as_json: options.json,
            is_running: false,
        })
    }

    /// Returns the answer of the daemon, or of its state.
    pub fn ask(&mut self, request: ControlRequest) -> anyhow::Result<ControlReply> {
        // Only a state that is there is opened: a new one would belong to the operator, and the daemon may be another user.
        let read = open_to_read(&self.state_dir);
        let state = read.and_then(|it| it.map(|_| StateFile::open(&self.state_dir)).transpose());
        self.is_running = matches!(state, Err(StateFileError::InUse(_)));
        let answer = match state {
            Ok(state) if HubConfig::is_hub_file(self.file, &self.overrides) => {
                let config = HubConfig::load(self.file, &self.overrides)?;
                answer_from_hub_state(&config, state, request)?
            }
            Ok(state) => answer_from_state(&self.load_config()?, state, request)?,
            Err(StateFileError::InUse(_)) => {
                self.warn_invalid_config();
                control::ask(&self.state_dir, &request)?
            }
            Err(error) => return Err(error.into()),
        };
        match answer {
            ControlReply::Error(reason) => Err(refusal_error(reason)),
            answer => Ok(answer),
        }
    }

    /// Prints an answer: as JSON, if that is asked for, or as text.
    pub fn print_answer(
        &self,
        answer: &impl Serialize,
        text: impl FnOnce(&mut EscapedStdout) -> io::Result<()>,
    ) -> anyhow::Result<Exit> {
        if self.as_json {
            let printed = JsonAnswer {
                version: JSON_VERSION,
                running: self.is_running,
                answer,
            };
            let json = serde_json::to_string_pretty(&printed)?;
            print(|out| writeln!(out, "{json}"))
        } else {
            print(text)
        }
    }

    /// Loads the configuration, without which the state cannot be understood.
    fn load_config(&self) -> anyhow::Result<Config> {
        Config::load(self.file, &self.overrides).map_err(|error| match error {
            error @ ConfigError::Nothing { .. } => {
                let directory = self.state_dir.display();
                anyhow::Error::new(error).context(format!(
                    "no rsnotify is running with {directory}, and its state needs a configuration to be read"
                ))
            }
            error => error.into(),
        })
    }

    /// Warns if the configuration file is invalid: the daemon then runs with an earlier one.
    fn warn_invalid_config(&self) {
        let invalid = if HubConfig::is_hub_file(self.file, &self.overrides) {
            HubConfig::load(self.file, &self.overrides).err()
        } else {
            Config::load(self.file, &self.overrides).err()
        };
        if let Some(error) = invalid.filter(|error| !matches!(error, ConfigError::Nothing { .. })) {
            eprintln!(
                "rsnotify: the configuration is invalid, and the daemon runs with an earlier one: {}",
                escaped_lines(&error_chain(&error))
            );
        }
    }
}

/// Returns the public URL of a running daemon.
pub fn public_url(config: &Config) -> Option<Uri> {
    if !is_in_use(&config.state_dir).ok()? {
        return None;
    }
    match control::ask(&config.state_dir, &ControlRequest::PublicUrl) {
        Ok(ControlReply::PublicUrl(url)) => Uri::parse(&url).ok(),
        _ => None,
    }
}

/// Returns the error for a request that was refused.
fn refusal_error(reason: impl AsRef<str>) -> anyhow::Error {
    anyhow::anyhow!("{}", escaped(reason.as_ref()))
}

/// Returns the error for an answer to another request.
pub fn unexpected_answer() -> anyhow::Error {
    anyhow::anyhow!("unexpected answer of the daemon: is it of another version?")
}

/// A state that no daemon uses, kept so.
type OpenState = (StateFile, Connection);

/// Answers from the state. Saves only the requested change; the next daemon does and announces the rest.
fn answer_from_state(
    config: &Config,
    state: Option<OpenState>,
    request: ControlRequest,
) -> anyhow::Result<ControlReply> {
    let (lock, state) = if request.is_query() {
        // A daemon may start meanwhile.
        drop(state);
        (None, open_to_read(&config.state_dir)?)
    } else {
        state.unzip()
    };
    let state = state.map_or_else(in_memory, Ok)?;
    let now = Clock::start(last_time_saved(&state)?).now();
    if let ControlRequest::Subscriptions(about) = request {
        let saved = saved_subscriptions(config, Db(&state))?;
        let mut saved = saved.ok_or_else(|| refusal_error(NO_EMBEDDED_HUB))?;
        return answer_subscriptions(&mut saved, about, now, Db(&state));
    }
    let mut engine = Engine::read_only(state, plan(config)?, now.into())?;
    if request.is_query() {
        let mut answer = answer(&engine.reader(now), request).map_err(refusal_error)?;
        if let ControlReply::Status(status) = &mut answer {
            let subscriptions = saved_subscriptions(config, engine.db())?;
            status.embedded_hub = subscriptions.map(|subscriptions| subscriptions.status(now));
        }
        return Ok(answer);
    }
    let event = command_event(&engine.reader(now), &request).map_err(refusal_error)?;
    let amended = engine.execute_offline(event, now.into());
    let effects = match (amended, &lock) {
        (Err(error), Some(file)) => Err(file.save_error(error)).context("nothing was done")?,
        (effects, _) => effects?,
    };
    Ok(outcome(&request, &effects))
}

/// Answers a question about the subscriptions of a hub, or ends one.
fn answer_subscriptions(
    subscriptions: &mut Subscriptions,
    about: SubscriptionsAction,
    now: Timestamp,
    db: Db<'_>,
) -> anyhow::Result<ControlReply> {
    let asked = ask_subscriptions(subscriptions, about, now, db);
    let (answer, ended) = asked.map_err(refusal_error)?;
    if let Some(key) = ended {
        hub::save_hub(db, &subscriptions.unsubscribe(&key), &[]).context("nothing was done")?;
    }
    Ok(answer)
}

/// Loads the embedded hub's subscriptions, if one is configured.
fn saved_subscriptions(config: &Config, db: Db<'_>) -> state::Result<Option<Subscriptions>> {
    let embedded = config.embedded_hub.as_ref();
    let saved = embedded.map(|_| hub::load(db)).transpose()?;
    Ok(saved.map(|saved| Subscriptions::restore(saved).0))
}

/// Answers a request from the state of `rsnotify hub`, if there is one. A subscription that ends is removed from it.
fn answer_from_hub_state(
    config: &HubConfig,
    state: Option<OpenState>,
    request: ControlRequest,
) -> anyhow::Result<ControlReply> {
    let (_lock, state) = state.unzip();
    let state = state.map_or_else(in_memory, Ok)?;
    let db = Db(&state);
    let now = Clock::start(last_time_saved(&state)?).now();
    let (mut subscriptions, _) = Subscriptions::restore(hub::load(db)?);
    match request {
        ControlRequest::Status => {
            let topics = PublishedTopics::restore(hub::load_published_topics(db)?);
            let publishers = config.publisher_plan();
            let publishers = publishers.0.iter();
            let uncounted = publishers.map(|publisher| (publisher, PublisherCounts::default()));
            Ok(ControlReply::Status(Box::new(Status {
                embedded_hub: Some(subscriptions.status(now)),
                publishers: views(uncounted, &topics),
                ..report::empty_status(now)
            })))
        }
        ControlRequest::Subscriptions(about) => {
            answer_subscriptions(&mut subscriptions, about, now, db)
        }
        _ => Err(refusal_error(NO_SOURCES)),
    }
}
