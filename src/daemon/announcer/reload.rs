//! Another plan takes effect over the same state.

use anyhow::bail;
use jiff::Timestamp;

use crate::announce::plan::Plan;
use crate::config::Config;
use crate::daemon::announcer::watched_trees::covers;
use crate::daemon::announcer::{Announcer, moment};
use crate::daemon::event_loop::EventLoop;

impl EventLoop<Announcer> {
    /// Puts another plan into effect. Whatever fails, fails before anything is given up. Submissions that are under way
    /// stay so, and topics are served throughout.
    pub fn change_plan(&mut self, config: &Config, plan: Plan) -> anyhow::Result<()> {
        let began = Timestamp::now();
        if !self.commit()
            && let Some(trouble) = &self.parts.saver.trouble
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
        announcer.unclaimed = announcer.topics.served();
        announcer.effects.extend(effects);
        Ok(())
    }
}
