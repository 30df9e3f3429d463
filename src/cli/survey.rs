//! One look at the trees with the state beside it, as `scan` and `check` need it: nothing is saved or sent.

use std::ops::ControlFlow;

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::event::Event;
use crate::config::Config;
use crate::config::address::Address;
use crate::daemon::{report, settings};
use crate::resourcesync::uri::Uri;
use crate::store::Store;
use crate::tree::{self, Report};

/// What a survey found.
pub struct Survey {
    pub engine: Engine,
    /// Whether there was a state to compare with.
    pub has_state: bool,
    /// What should be told besides: unreadable directories, links in circles, mounts that are not there.
    pub notices: Vec<String>,
}

/// Sweeps every mount once.
pub fn survey(config: &Config) -> anyhow::Result<Survey> {
    let store = Store::open_to_read(&config.state_dir)?;
    let has_state = store.is_some();
    let state = store
        .map(|store| store.load())
        .transpose()?
        .unwrap_or_default();
    let mut plan = config.plan(&public_url(config)?);
    plan.adopt(&state.mounts);
    let (mut engine, _) = Engine::new(plan, state, Timestamp::now());
    let mut notices = Vec::new();
    for source in 0..config.sources.len() {
        let tree = settings::tree(config, source, engine.plan());
        tree::survey(tree, |reported| {
            match &reported {
                Report::Notice(notice) if notice.is_warning() => notices.push(notice.to_string()),
                Report::MountLost { reason, .. } => notices.push(reason.clone()),
                _ => {}
            }
            if let Some(event) = report::event(reported) {
                engine.step(event, Timestamp::now());
            }
            ControlFlow::Continue(())
        })?;
    }
    engine.step(Event::Tick, Timestamp::now());
    Ok(Survey {
        engine,
        has_state,
        notices,
    })
}

/// What the public listener would be reached as.
fn public_url(config: &Config) -> anyhow::Result<Uri> {
    if let Some(url) = config.server.known_public_url() {
        return Ok(url);
    }
    match &config.server.listen {
        Address::Tcp(address) => Ok(config.server.public_url_at(*address)),
        Address::Unix(_) => {
            anyhow::bail!("a Unix socket says nothing about how it is reached: set public_url")
        }
    }
}
