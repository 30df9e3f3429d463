//! Requests of commands to the daemon. Where none runs, they are answered from the state that it left.

use std::path::{Path, PathBuf};

use anyhow::Context;
use resourcesync::escape::{escaped, escaped_lines};
use resourcesync::uri::Uri;
use websub::hub::subscriptions::Subscriptions;

use crate::announce::engine::Engine;
use crate::announce::event::Effect;
use crate::announce::state::Save;
use crate::cli::hub_state;
use crate::cli::one_shot_scan::restored_engine;
use crate::cli::options::TreeOptions;
use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::hub_config::HubConfig;
use crate::config::overrides::Overrides;
use crate::config::partial::state_dir;
use crate::control::{self, ControlReply, ControlRequest};
use crate::daemon::log::error_chain;
use crate::daemon::{ask_subscriptions, execute, no_embedded_hub, reduced};
use crate::store::{self, Store, StoreError};

/// A daemon, by its state directory.
#[derive(Debug)]
pub struct DaemonClient<'a> {
    state_dir: PathBuf,
    file: Option<&'a Path>,
    overrides: Overrides,
}

impl<'a> DaemonClient<'a> {
    /// Finds the daemon that `--config` and the flags name. Of the configuration file only `state_dir` matters while the
    /// daemon runs: the file may be invalid at the moment.
    pub fn new(file: Option<&'a Path>, tree: &TreeOptions) -> anyhow::Result<DaemonClient<'a>> {
        let overrides = tree.overrides();
        Ok(DaemonClient {
            state_dir: state_dir(file, &overrides)?,
            file,
            overrides,
        })
    }

    /// Returns the answer, and true if a daemon runs.
    pub fn ask(&self, request: ControlRequest) -> anyhow::Result<(ControlReply, bool)> {
        let (answer, is_running) = match open(&self.state_dir) {
            Ok(store) if HubConfig::is_at(self.file, &self.overrides) => {
                let config = HubConfig::load(self.file, &self.overrides)?;
                (hub_state::answer(&config, store, request)?, false)
            }
            Ok(store) => (answer_from(&self.config()?, store, request)?, false),
            Err(StoreError::InUse { .. }) => {
                self.warn_of_configuration();
                (control::ask(&self.state_dir, &request)?, true)
            }
            Err(error) => return Err(error.into()),
        };
        match answer {
            ControlReply::Error(error) => anyhow::bail!("{}", escaped(&error)),
            answer => Ok((answer, is_running)),
        }
    }

    /// Loads the configuration, without which the state cannot be understood.
    fn config(&self) -> anyhow::Result<Config> {
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

    fn warn_of_configuration(&self) {
        let loaded = match HubConfig::is_at(self.file, &self.overrides) {
            true => HubConfig::load(self.file, &self.overrides).map(|_| ()),
            false => Config::load(self.file, &self.overrides).map(|_| ()),
        };
        match loaded {
            Ok(()) | Err(ConfigError::Nothing { .. }) => {}
            Err(error) => eprintln!(
                "rsnotify: the configuration is invalid, and the daemon runs with an earlier one: {}",
                escaped_lines(&error_chain(&error))
            ),
        }
    }
}

/// Returns the public URL of a running daemon.
pub fn public_url(config: &Config) -> Option<Uri> {
    if !store::is_in_use(&config.state_dir).ok()? {
        return None;
    }
    match control::ask(&config.state_dir, &ControlRequest::PublicUrl) {
        Ok(ControlReply::PublicUrl(url)) => Uri::parse(&url).ok(),
        _ => None,
    }
}

/// Returns the error for an answer to another request.
pub fn unexpected_answer() -> anyhow::Error {
    anyhow::anyhow!("unexpected answer of the daemon: is it of another version?")
}

/// Opens the state, if there is one: a new one would belong to the operator, and the daemon may be another user.
fn open(state_dir: &Path) -> Result<Option<Store>, StoreError> {
    match Store::open_to_read(state_dir)? {
        Some(_) => Store::open(state_dir).map(Some),
        None => Ok(None),
    }
}

/// Answers from the state. Saves only the requested change; the next daemon does and announces the rest.
fn answer_from(
    config: &Config,
    mut store: Option<Store>,
    request: ControlRequest,
) -> anyhow::Result<ControlReply> {
    if request.is_query() {
        // A daemon may start meanwhile.
        drop(store.take());
        store = Store::open_to_read(&config.state_dir)?;
    }
    let mut engine = restored_engine(config, store.as_ref())?;
    let now = engine.now();
    if !matches!(
        request,
        ControlRequest::Accept { .. } | ControlRequest::Missing { .. }
    ) {
        engine.take_stock(now);
    }
    let mut subscriptions = match &request {
        ControlRequest::Status | ControlRequest::Subscriptions(_) => {
            saved_subscriptions(config, store.as_ref())?
        }
        _ => None,
    };
    let mut records = Vec::new();
    let ask_state = |about| {
        let Some(subscriptions) = &mut subscriptions else {
            return no_embedded_hub();
        };
        let (answer, ended) = ask_subscriptions(subscriptions, about, now, store.as_ref());
        records.extend(ended.iter().flat_map(|key| subscriptions.unsubscribe(key)));
        answer
    };
    let logged = |id, seq, part| {
        let body = store.as_ref()?.logged_body(id, seq).ok()??;
        reduced(body, seq, part).ok()
    };
    let (mut answer, effects) = execute(
        &mut engine,
        Engine::amend,
        ask_state,
        logged,
        request,
        now.into(),
    );
    if let ControlReply::Status(status) = &mut answer {
        status.embedded_hub = subscriptions.map(|subscriptions| subscriptions.status(now));
    }
    let mut save = Save {
        clock: Some(now),
        ..Save::default()
    };
    for effect in effects {
        if let Effect::Save(asked) = effect {
            save.merge(*asked);
        }
    }
    if let Some(mut store) = store.filter(|_| !(save.is_empty() && records.is_empty())) {
        store
            .save(&save, &records, &[])
            .context("nothing was done")?;
    }
    Ok(answer)
}

/// Loads the embedded hub's subscriptions, if one is configured.
fn saved_subscriptions(
    config: &Config,
    store: Option<&Store>,
) -> anyhow::Result<Option<Subscriptions>> {
    if config.embedded_hub.is_none() {
        return Ok(None);
    }
    let saved = store.map(Store::load_hub).transpose()?.unwrap_or_default();
    let (subscriptions, _) = Subscriptions::restore(saved);
    Ok(Some(subscriptions))
}
