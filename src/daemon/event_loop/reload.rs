//! Another plan takes over: with the engine that a restart would make of what is saved, and without the restart.

use std::ops::ControlFlow;

use anyhow::bail;
use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event};
use crate::announce::observation::{DocumentPath, Stat};
use crate::announce::plan::{Plan, SourcePlan};
use crate::config::Config;
use crate::daemon::event_loop::shutdown::leave;
use crate::daemon::event_loop::{EventLoop, Input, answered};
use crate::daemon::settings;
use crate::resourcesync::uri::Hub;
use crate::store::{Store, StoreError};
use crate::tree::{Tree, TreeError};
use crate::websub::hub::Restored;

/// Where the saved state ends, taken up under a plan.
pub struct LoadedEngine {
    pub engine: Engine,
    pub effects: Vec<Effect>,
    pub others: OtherFiles,
}

/// Files that are no documents, as they were last seen.
pub type OtherFiles = Vec<(DocumentPath, Stat, Timestamp)>;

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

impl EventLoop {
    /// Watches the trees of the plan in force.
    pub fn watch(&mut self, config: &Config, others: &OtherFiles) -> Result<(), TreeError> {
        self.last_watching.0 += 1;
        self.trees = self.watched(config, &self.engine, others)?;
        self.watching = self.last_watching;
        Ok(())
    }

    /// Goes on under another plan. Whatever fails, fails before anything is given up. Submissions that are under way
    /// stay so, and topics are served throughout.
    pub fn succeed(&mut self, config: &Config, plan: Plan) -> anyhow::Result<()> {
        let began = Timestamp::now();
        if !self.commit(false)
            && let Some(trouble) = &self.trouble
        {
            bail!("what is not saved cannot be taken up: {trouble}");
        }
        let LoadedEngine {
            mut engine,
            effects,
            others,
        } = LoadedEngine::new(&self.store, plan)?;
        let accepted = self.accepted.iter().filter_map(answered);
        engine.await_answers(self.under_way.iter().cloned().chain(accepted));
        self.last_watching.0 += 1;
        // These begin before the others end, and until then take as many watches again; where those ran out, the next
        // sweep finds them free.
        let trees = self.watched(config, &engine, &others)?;
        self.watching = self.last_watching;
        self.keep_counts(engine.plan());
        leave(std::mem::replace(&mut self.trees, trees));
        let was_settled = self.was_settled || self.engine.is_settled();
        self.was_settled = was_settled && self.looks_where(engine.plan());
        self.unclaimed = self.topics.served();
        self.began.get_or_insert(began);
        engine.inherit(&mut self.engine);
        self.engine = engine;
        self.take(effects);
        Ok(())
    }

    /// These hubs are reached otherwise from now on.
    pub fn hubs_changed(&mut self, hubs: impl Iterator<Item = Hub>) {
        for hub in hubs {
            self.step(Event::HubChanged(hub));
        }
    }

    /// What an embedded hub starts with, if there is to be one.
    pub fn saved_subscriptions(&self, is_wanted: bool) -> Result<Restored, StoreError> {
        if !is_wanted {
            return Ok(Restored::default());
        }
        let (subscriptions, relays) = self.store.load_hub()?;
        Ok(Restored {
            subscriptions,
            relays,
        })
    }

    /// Whether the plan in force looks at all that `plan` does.
    fn looks_where(&self, plan: &Plan) -> bool {
        let is_looked_at = |source: &SourcePlan| {
            let same = |own: &SourcePlan| {
                own.mounts == source.mounts && own.candidates == source.candidates
            };
            self.engine.plan().sources.iter().any(same)
        };
        plan.sources.iter().all(is_looked_at)
    }

    /// Once every tree is known, topics that no channel has claimed are none any more.
    pub(super) fn withdraw_unclaimed(&mut self) {
        if self.engine.is_settled() {
            for topic in std::mem::take(&mut self.unclaimed) {
                self.perform(Effect::Withdraw(topic));
            }
        }
    }

    fn watched(
        &self,
        config: &Config,
        engine: &Engine,
        others: &OtherFiles,
    ) -> Result<Vec<Tree>, TreeError> {
        let watching = self.last_watching;
        let watch = |source| {
            let tree = settings::tree(config, source, engine.plan());
            let known = settings::known(engine, source, others);
            let inputs = self.inputs.clone();
            Tree::watch(tree, known, move |report| {
                match inputs.send(Input::Tree(watching, report)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            })
        };
        (0..config.sources.len()).map(watch).collect()
    }
}
