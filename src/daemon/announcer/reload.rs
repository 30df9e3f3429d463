//! Another plan takes effect over the same state.

use anyhow::bail;
use jiff::Timestamp;
use resourcesync::uri::Uri;
use websub::publisher::http::HubClients;
use websub::publisher::settings::PublishSettings;
use websub::topics::http::Topics;

use crate::admin::Readiness;
use crate::announce::event::Effect;
use crate::announce::plan::Plan;
use crate::announce::steps::engine::Engine;
use crate::broker::settings::BrokerSettings;
use crate::config::Config;
use crate::daemon::announcer::watched_trees::covers;
use crate::daemon::announcer::{Adaptors, Announcer, RunParts, moment};
use crate::daemon::configuration_status;
use crate::daemon::event_loop::state_saver::StoreProbe;
use crate::daemon::event_loop::{EventLoop, Role};

impl EventLoop<Announcer> {
    /// Returns the event loop of `rsnotify run`, which serves the topics as they were saved, and watches the trees.
    /// `start_hub` is called in between: deliveries contain the links of the topics, and the hub must exist before
    /// the first report of a tree.
    pub fn announce(
        started: (Engine, Vec<Effect>),
        config: &Config,
        adaptors: Adaptors,
        parts: RunParts,
        readiness: Readiness,
        start_hub: impl FnOnce(&mut RunParts),
    ) -> anyhow::Result<EventLoop<Announcer>> {
        let began = parts.counts.began;
        let announcer = Announcer::new(started, adaptors, began, &parts);
        let configuration = configuration_status(config);
        let mut event_loop = EventLoop::new(announcer, parts, readiness, configuration);
        // No step yet: what it submits to the embedded hub, that must take.
        let EventLoop { role, parts, .. } = &mut event_loop;
        role.perform(Vec::new(), parts);
        start_hub(parts);
        let Announcer { trees, engine, .. } = &mut event_loop.role;
        trees.current = Some(trees.next_generation(config, &engine.plan, engine.db())?);
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
        let announcer = &mut self.role;
        let Announcer { engine, trees, .. } = announcer;
        let before = engine.plan.clone();
        let was_settled =
            trees.was_settled || (engine.live.sources.iter()).all(|source| source.is_settled());
        let now = moment(self.parts.clock);
        let (next, effects) = engine.change_plan(plan, now, |db, plan| -> anyhow::Result<_> {
            trees.next_generation(config, plan, db)
        })?;
        announcer.carry_counts_over(&before, &mut self.parts.counts);
        let is_covered = covers(&before, &announcer.engine.plan);
        let was_settled = was_settled && announcer.has_learned && is_covered;
        announcer.has_learned = was_settled;
        announcer.trees.replace(next, began, was_settled);
        announcer.topics.await_claims();
        announcer.effects.extend(effects);
        Ok(())
    }
}

impl Announcer {
    /// Returns the URL of the public listener, under which topics are known.
    pub fn public_url(&self) -> &Uri {
        &self.engine.plan.public_url
    }

    /// Returns the topics that are served.
    pub fn topics(&self) -> &Topics {
        self.topics.topics()
    }

    /// Submits with other settings from now on.
    pub fn change_adaptors(&self, clients: HubClients, brokers: Vec<BrokerSettings>) {
        self.submissions.change(clients, brokers);
    }

    /// Tries to reach each hub and broker. Must be called within a tokio runtime.
    pub fn begin_to_reach(&mut self, hubs: Vec<PublishSettings>) {
        self.reach.begin(hubs, &self.submissions.brokers);
    }
}
