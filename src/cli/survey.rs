//! One look at the trees with the state beside it, as `scan`, `check` and a dry run need it: nothing is saved or sent.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event};
use crate::announce::observation::{DocumentPath, Look, MountId, Observation};
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
    /// What a daemon would have submitted, or looked at again, by now.
    pub begun: Vec<Effect>,
}

impl Survey {
    /// The sources of which too much is missing to be believed, and what to do about it (R15).
    pub fn suspensions(&self) -> Vec<String> {
        let sources = self.engine.sources().into_iter();
        let suspensions = sources.filter_map(|source| source.suspension);
        suspensions
            .map(|suspension| suspension.to_string())
            .collect()
    }
}

/// The engine as the state leaves it. What it would have done about that is left to the daemon.
pub fn take_up(config: &Config, store: Option<&Store>) -> anyhow::Result<Engine> {
    let state = store.map(Store::load).transpose()?.unwrap_or_default();
    let mut plan = config.plan(&public_url(config)?);
    plan.adopt(&state.mounts);
    let (engine, _) = Engine::new(plan, state, Timestamp::now());
    Ok(engine)
}

/// Sweeps every mount once.
pub fn survey(config: &Config) -> anyhow::Result<Survey> {
    let store = Store::open_to_read(&config.state_dir)?;
    let has_state = store.is_some();
    let mut engine = take_up(config, store.as_ref())?;
    let mut notices = Vec::new();
    let mut begun = Vec::new();
    let mut step = |engine: &mut Engine, event| {
        let effects = engine.step(event, Timestamp::now()).into_iter();
        begun
            .extend(effects.filter(|effect| matches!(effect, Effect::Submit(_) | Effect::Look(_))));
    };
    for source in 0..config.sources.len() {
        let tree = settings::tree(config, source, engine.plan());
        let mut sight = Sight::default();
        tree::survey(tree, |reported| {
            sight.note(&reported);
            if let Some(event) = report::event(reported) {
                step(&mut engine, event);
            }
            ControlFlow::Continue(())
        })?;
        let missing = sight.missing(&engine);
        step(&mut engine, Event::Observed(missing));
        notices.extend(sight.notices);
    }
    step(&mut engine, Event::Tick);
    Ok(Survey {
        engine,
        has_state,
        notices,
        begun,
    })
}

/// What one source's sweep saw.
#[derive(Default)]
struct Sight {
    seen: HashSet<DocumentPath>,
    swept: HashSet<MountId>,
    notices: Vec<String>,
}

impl Sight {
    fn note(&mut self, report: &Report) {
        match report {
            Report::Observed(observations) => {
                let paths = observations
                    .iter()
                    .map(|observation| observation.path.clone());
                self.seen.extend(paths);
            }
            Report::Swept {
                mount,
                complete: true,
                ..
            } => {
                self.swept.insert(*mount);
            }
            Report::MountLost { reason, .. } => self.notices.push(reason.clone()),
            Report::Notice(notice) if notice.is_warning() => self.notices.push(notice.to_string()),
            _ => {}
        }
    }

    /// The documents that the state knows and the sweep did not meet.
    fn missing(&self, engine: &Engine) -> Vec<Observation> {
        let known = engine
            .known()
            .map(|(path, _, _)| path)
            .chain(engine.reread());
        known
            .filter(|path| self.swept.contains(&path.mount) && !self.seen.contains(*path))
            .map(|path| Observation {
                path: path.clone(),
                at: Timestamp::now(),
                look: Look::Missing,
            })
            .collect()
    }
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
