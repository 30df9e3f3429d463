//! Asks the daemon or, where none holds the lock, does what is asked on the state that it left.

use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::event::Effect;
use crate::announce::state::Save;
use crate::announce::subscription::audience::Audience;
use crate::cli::survey::take_up;
use crate::config::Config;
use crate::control::{self, Answer, Request};
use crate::daemon::{consult, no_hub, obey};
use crate::store::{Store, StoreError};

/// The answer, and whether a daemon runs.
pub fn ask(config: &Config, request: Request) -> anyhow::Result<(Answer, bool)> {
    let (answer, is_running) = match open(&config.state_dir) {
        Ok(store) => (answer_from(config, store, request)?, false),
        Err(StoreError::InUse { .. }) => (control::ask(&config.state_dir, &request)?, true),
        Err(error) => return Err(error.into()),
    };
    match answer {
        Answer::Error(error) => anyhow::bail!(error),
        answer => Ok((answer, is_running)),
    }
}

/// What a daemon answers that is not of this version.
pub fn unexpected() -> anyhow::Error {
    anyhow::anyhow!(
        "the daemon answers something else than what was asked: is it of another version?"
    )
}

/// The state, if there is one: a new one would be the operator's, and the daemon may be another user.
fn open(state_dir: &Path) -> Result<Option<Store>, StoreError> {
    match Store::open_to_read(state_dir)? {
        Some(_) => Store::open(state_dir).map(Some),
        None => Ok(None),
    }
}

/// Only what was asked is saved: whatever else the state gives rise to is the daemon's to do, and to tell.
fn answer_from(
    config: &Config,
    mut store: Option<Store>,
    request: Request,
) -> anyhow::Result<Answer> {
    if request.is_question() {
        // Nothing keeps a daemon from starting meanwhile.
        drop(store.take());
        store = Store::open_to_read(&config.state_dir)?;
    }
    let mut engine = take_up(config, store.as_ref())?;
    let now = Timestamp::now();
    if !matches!(request, Request::Accept { .. }) {
        engine.take_stock(now);
    }
    let mut audience = match &request {
        Request::Status | Request::Subscriptions(_) => audience(config, store.as_ref())?,
        _ => None,
    };
    let mut records = Vec::new();
    let consult_state = |about| {
        let Some(audience) = &mut audience else {
            return no_hub();
        };
        let (answer, ended) = consult(audience, about, now);
        records.extend(ended.iter().flat_map(|key| audience.unsubscribe(key)));
        answer
    };
    let (mut answer, effects) = obey(&mut engine, Engine::amend, consult_state, request, now);
    if let Answer::Status(status) = &mut answer {
        status.embedded_hub = audience.map(|audience| audience.status(now));
    }
    let mut save = Save::default();
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

/// The embedded hub's subscriptions, if one is configured.
fn audience(config: &Config, store: Option<&Store>) -> anyhow::Result<Option<Audience>> {
    if config.embedded_hub.is_none() {
        return Ok(None);
    }
    let (subscriptions, relays) = store.map(Store::load_hub).transpose()?.unwrap_or_default();
    let (audience, _) = Audience::restore(subscriptions, relays);
    Ok(Some(audience))
}
