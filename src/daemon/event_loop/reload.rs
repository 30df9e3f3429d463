//! Another plan takes effect: with the engine that a restart would load from the saved state, and without the restart.

use anyhow::bail;
use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event};
use crate::announce::plan::Plan;
use crate::config::Config;
use crate::daemon::event_loop::EventLoop;
use crate::daemon::event_loop::submissions::answered_submission;
use crate::daemon::event_loop::watched_trees::{OtherFiles, covers};
use crate::hub::SavedHub;
use crate::report::status::{ConfigurationStatus, RefusedConfiguration};
use crate::resourcesync::uri::Hub;
use crate::store::{Store, StoreError};
use crate::websub::hub::EmbeddedHub;

/// The saved state, loaded under a plan.
pub struct LoadedEngine {
    pub engine: Engine,
    pub effects: Vec<Effect>,
    pub others: OtherFiles,
}

impl LoadedEngine {
    pub fn new(store: &Store, mut plan: Plan) -> Result<LoadedEngine, StoreError> {
        let state = store.load()?;
        state.number_mounts(&mut plan);
        let others = state.others.iter();
        let others = others.map(|(path, (stat, at))| (path.clone(), *stat, *at));
        let others = others.collect();
        let (engine, effects) = Engine::new(plan, state, Timestamp::now());
        Ok(LoadedEngine {
            engine,
            effects,
            others,
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

impl EventLoop {
    /// Returns the store, to load from it.
    pub fn store(&self) -> &Store {
        self.saver.store()
    }

    /// Puts another plan into effect. Whatever fails, fails before anything is given up. Submissions that are under way
    /// stay so, and topics are served throughout.
    pub fn change_plan(&mut self, config: &Config, plan: Plan) -> anyhow::Result<()> {
        let began = Timestamp::now();
        if !self.commit(false)
            && let Some(trouble) = self.saver.trouble()
        {
            bail!("the plan cannot change while the state is not saved: {trouble}");
        }
        let LoadedEngine {
            mut engine,
            effects,
            others,
        } = LoadedEngine::new(self.saver.store(), plan)?;
        let accepted = self.hub.accepted().iter().filter_map(answered_submission);
        let under_way = self.submissions.under_way().iter().cloned();
        engine.await_answers(under_way.chain(accepted));
        let next = self.trees.next_generation(config, &engine, &others)?;
        self.carry_counts_over(engine.plan());
        let was_settled = self.trees.was_settled() || self.engine.sources().are_settled();
        let was_settled = was_settled && covers(self.engine.plan(), engine.plan());
        self.trees.replace(next, began, was_settled);
        self.topics.await_claims();
        engine.inherit(&mut self.engine);
        self.engine = engine;
        self.take(effects);
        Ok(())
    }

    /// Tells the engine that the addresses or credentials of these hubs changed.
    pub fn hubs_changed(&mut self, hubs: impl Iterator<Item = Hub>) {
        for hub in hubs {
            self.step(Event::HubChanged(hub));
        }
    }

    /// Takes note of the embedded hub, if there ever was one, and of whether it takes subscriptions.
    pub fn change_hub(&mut self, hub: Option<EmbeddedHub>, is_open: bool) {
        self.hub.change(hub, is_open);
    }

    /// Takes note of a configuration that was loaded.
    pub fn configuration_loaded(&mut self, configuration: ConfigurationStatus) {
        self.reporter.loaded(configuration);
    }

    /// Takes note of a configuration that was refused.
    pub fn configuration_refused(&mut self, refused: RefusedConfiguration) {
        self.reporter.refused(refused);
    }
}
