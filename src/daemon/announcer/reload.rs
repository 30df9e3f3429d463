//! Another plan takes effect: with the engine that a restart would load from the saved state, and without the restart.

use anyhow::bail;
use jiff::Timestamp;
use resourcesync::uri::Uri;
use websub::hub::SavedHub;
use websub::publisher::http::HubClients;
use websub::topics::http::Topics;

use crate::admin::Readiness;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Now};
use crate::announce::plan::Plan;
use crate::broker::settings::BrokerSettings;
use crate::config::Config;
use crate::daemon::announcer::submissions::answered_submission;
use crate::daemon::announcer::watched_trees::{NextTrees, OtherFiles, covers};
use crate::daemon::announcer::{Adaptors, Announcer, RunParts, moment};
use crate::daemon::configuration_status;
use crate::daemon::event_loop::EventLoop;
use crate::daemon::event_loop::state_saver::StoreProbe;
use crate::report::pending::PendingCount;
use crate::store::{Store, StoreError};
use crate::tree::TreeError;

/// The saved state, loaded under a plan.
pub struct LoadedEngine {
    pub engine: Engine,
    pub effects: Vec<Effect>,
    pub other_files: OtherFiles,
}

impl LoadedEngine {
    pub fn new(store: &Store, mut plan: Plan, now: Now) -> Result<LoadedEngine, StoreError> {
        let state = store.load()?;
        state.number_mounts(&mut plan);
        let other_files = state.other_files.iter();
        let other_files = other_files.map(|(path, (stat, at))| (path.clone(), *stat, *at));
        let other_files = other_files.collect();
        let (engine, effects) = Engine::new(plan, state, now);
        Ok(LoadedEngine {
            engine,
            effects,
            other_files,
        })
    }
}

/// Loads what an embedded hub starts with, if one `is_wanted`.
pub fn saved_subscriptions(store: &Store, is_wanted: bool) -> Result<SavedHub, StoreError> {
    if !is_wanted {
        return Ok(SavedHub::default());
    }
    store.load_hub()
}

impl EventLoop<Announcer> {
    /// Returns the event loop of `rsnotify run`, which serves the topics as they were saved, and watches the trees.
    /// `start_hub` is called in between: deliveries contain the links of the topics, and the hub must exist before
    /// the first report of a tree.
    pub fn announce(
        loaded: LoadedEngine,
        config: &Config,
        adaptors: Adaptors,
        mut parts: RunParts,
        readiness: Readiness,
        start_hub: impl FnOnce(&mut RunParts),
    ) -> Result<EventLoop<Announcer>, TreeError> {
        let LoadedEngine {
            engine,
            effects,
            other_files,
        } = loaded;
        let began = parts.counts.began;
        let announcer = Announcer::new((engine, effects), adaptors, began, &mut parts);
        let configuration = configuration_status(config);
        let mut event_loop = EventLoop::new(announcer, parts, readiness, configuration);
        event_loop.commit(StoreProbe::WhenDue);
        start_hub(&mut event_loop.parts);
        let Announcer { trees, engine, .. } = &mut event_loop.role;
        let first = trees.next_generation(config, engine, &other_files)?;
        trees.begin(first);
        Ok(event_loop)
    }

    /// Puts another plan into effect. Whatever fails, fails before anything is given up. Submissions that are under way
    /// stay so, and topics are served throughout.
    pub fn change_plan(&mut self, config: &Config, plan: Plan) -> anyhow::Result<()> {
        let began = Timestamp::now();
        if !self.commit(StoreProbe::WhenDue)
            && let Some(trouble) = self.parts.saver.trouble()
        {
            bail!("the plan cannot change while the state is not saved: {trouble}");
        }
        let LoadedEngine {
            engine,
            effects,
            other_files,
        } = LoadedEngine::new(self.parts.saver.store(), plan, moment(self.parts.clock))?;
        let announcer = &mut self.role;
        let next = announcer
            .trees
            .next_generation(config, &engine, &other_files)?;
        announcer.carry_counts_over(engine.plan(), &mut self.parts.counts);
        announcer.change_engine(engine, next, began);
        announcer.take(effects, &mut self.parts);
        Ok(())
    }
}

impl Announcer {
    /// Returns the URL of the public listener, under which topics are known.
    pub fn public_url(&self) -> &Uri {
        &self.engine.plan().public_url
    }

    /// Returns the topics that are served.
    pub fn topics(&self) -> &Topics {
        self.topics.topics()
    }

    /// Submits with other settings from now on.
    pub fn change_adaptors(&self, clients: HubClients, brokers: Vec<BrokerSettings>) {
        self.submissions.change(clients, brokers);
    }

    /// Goes on with the engine of another plan.
    fn change_engine(&mut self, mut engine: Engine, next: NextTrees, began: Timestamp) {
        let accepted = self.accepted.iter().filter_map(answered_submission);
        let under_way = self.submissions.under_way().iter().cloned();
        engine.await_answers(under_way.chain(accepted));
        let was_settled = self.trees.was_settled() || self.engine.sources().are_settled();
        let was_settled = was_settled && covers(self.engine.plan(), engine.plan());
        self.trees.replace(next, began, was_settled);
        self.topics.await_claims();
        engine.inherit(&mut self.engine);
        self.engine = engine;
        self.pending = PendingCount::default();
    }
}
