//! The counts that the status of the engine's work is made from.

use std::time::Duration;

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Topic;

use crate::announce::changes::round::{TakeOutcome, TakeRequest};
use crate::announce::event::Fact;
use crate::announce::plan::{MountPlan, Plan};
use crate::daemon::announcer::{Announcer, RunParts};
use crate::report::figures::Counts;
use crate::tree::TreeReport;

impl Announcer {
    /// Carries the counts under the plan before over to this one, but for mounts that it does not have.
    pub(super) fn carry_counts_over(&self, before: &Plan, counts: &mut Counts) {
        let plan = &self.engine.plan;
        let hints = self.trees.hints(before, &counts.hints);
        counts.hints.extend(hints);
        counts.mounts.retain(|(source, directory), _| {
            let is_same = |mount: &MountPlan| mount.directory.to_string_lossy() == *directory;
            let mut sources = plan.sources.iter().filter(|plan| plan.name == *source);
            sources.any(|source| source.mounts.iter().any(is_same))
        });
    }

    /// Counts a fact that the operator is told.
    pub(super) fn count_fact(&self, fact: &Fact, parts: &mut RunParts) {
        let kind = |topic: &Topic| {
            let kind = self
                .engine
                .db()
                .first::<ChannelKind>("SELECT kind FROM channel WHERE topic = ?1", topic);
            kind.ok().flatten().unwrap_or_default()
        };
        parts.counts.tell(fact, kind, Timestamp::now());
    }

    /// Counts a reading of Change Lists.
    pub(super) fn count_read(
        &self,
        request: &TakeRequest,
        outcome: &TakeOutcome,
        took: Duration,
        parts: &mut RunParts,
    ) {
        let source = self.engine.db().first::<String>(
            "SELECT s.name FROM document d CROSS JOIN source s ON s.id = d.source WHERE d.uri = ?1",
            &request.set,
        );
        if let Ok(Some(source)) = source {
            parts.counts.read_changes(&source, request, outcome, took);
        }
    }

    /// Counts a sweep, if the report is the end of one.
    pub(super) fn count_sweep(&self, report: &TreeReport, parts: &mut RunParts) {
        if let TreeReport::Swept {
            mount,
            complete: true,
            files,
            took,
            unwatched,
        } = report
            && let Some((_, source)) = self.engine.plan.source_of(*mount)
            && let Some(mount) = source.mount(*mount)
        {
            let directory = mount.directory.to_string_lossy().into_owned();
            let sweeps = parts.counts.mounts.entry((source.name.clone(), directory));
            let now = Timestamp::now();
            let sweeps = sweeps.or_default();
            sweeps.took.observe(*took);
            (sweeps.last, sweeps.files, sweeps.unwatched) = (now, *files, *unwatched);
        }
    }
}
