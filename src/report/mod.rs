//! The daemon's state as operators and programs read it: one report, for `/status.json`, the status page, the
//! commands and the metrics. Pure.
//!
//! [`status()`] makes all of it from an engine, [`outline`] what the metrics need, [`summary()`] one line. Each part has a
//! file: [`sources`], [`documents`], [`missing`], [`broken`] and [`findings`] are about the trees, [`channels`],
//! [`change_sets`], `waiting`, [`outbox`] and [`notifications`] about what is announced. [`mod@status`] has the types
//! that all of them fill, as JSON has them.

pub mod broken;
pub mod change_sets;
pub mod channels;
pub mod documents;
pub mod figures;
pub mod findings;
pub mod last_day;
pub mod missing;
pub mod notifications;
pub mod outbox;
pub mod pending;
pub mod sources;
pub mod status;
pub mod summary;
mod waiting;

use jiff::Timestamp;
use websub::hub::subscriptions::view::HubStatus;

use crate::announce::engine::Engine;
use crate::announce::engine::source::mounts::root::MountState;
use crate::report::figures::{Counts, Figures};
use crate::report::last_day::Totals;
use crate::report::status::{Condition, MutedSet, SourceStatus, Status};
use crate::report::summary::Summary;

/// The version of the shape of JSON output: `version` in each object that programs read.
pub const JSON_VERSION: u64 = 1;

/// Items of a list that are reported; of others, their number.
const MAX_LISTED: usize = 1_000;

/// Returns the daemon's status.
pub fn status(engine: &Engine, now: Timestamp) -> Status {
    let (broken, more_broken) = broken::first(engine, now);
    let (findings, more_findings) = findings::first(engine);
    let outline = outline(engine, now);
    let mut sources = outline.sources;
    for (position, source) in sources.iter_mut().enumerate() {
        (source.missing_in, source.more_missing_in) = missing::first_suspended(engine, position);
    }
    Status {
        sources,
        channels: channels::all(engine),
        broken,
        more_broken,
        findings,
        more_findings,
        finding_groups: findings::groups(engine),
        notifications: notifications::latest(engine),
        ..outline
    }
}

/// Returns the status without its lists of documents, findings and notifications.
pub fn outline(engine: &Engine, now: Timestamp) -> Status {
    let mut sources = sources::all(engine);
    let muted: Vec<MutedSet> = findings::muted(engine).collect();
    let holdings = sources.iter_mut().map(|source| {
        let mut holdings = std::mem::take(&mut source.holdings);
        holdings.muted = muted.iter().filter(|set| set.source == source.name).count();
        (source.name.clone(), holdings)
    });
    let figures = Figures {
        holdings: holdings.collect(),
        ..Figures::default()
    };
    let (muted, more_muted) = limited(muted, MAX_LISTED);
    Status {
        sources: sources.into_iter().map(SourceStatus::from).collect(),
        channels: channels::outline(engine).collect(),
        failing_hubs: channels::failing_hubs(engine),
        muted,
        more_muted,
        figures,
        ..of_hub(now)
    }
}

/// Returns the status of `rsnotify hub`, which has no sources, without what the hub knows.
pub fn of_hub(now: Timestamp) -> Status {
    Status {
        at: now,
        unsaved: None,
        sources: Vec::new(),
        channels: Vec::new(),
        failing_hubs: Vec::new(),
        fell_behind: Vec::new(),
        muted: Vec::new(),
        more_muted: 0,
        embedded_hub: None,
        publishers: Vec::new(),
        configuration: None,
        broken: Vec::new(),
        more_broken: 0,
        findings: Vec::new(),
        more_findings: 0,
        finding_groups: Vec::new(),
        notifications: Vec::new(),
        last_day: Vec::new(),
        figures: Figures::default(),
    }
}

/// Returns the status in a few numbers and names, without reading each document: it is requested each second.
pub fn summary(engine: &Engine) -> Summary {
    let mut summary = Summary {
        muted: findings::muted(engine).count(),
        ..Summary::default()
    };
    for (id, channel) in engine.channels().iter() {
        summary.channels += usize::from(channel.is_live());
        for (hub, ledger) in &channel.ledgers {
            let view = channels::hub_view(engine, id, hub, ledger);
            summary.pending += view.due;
            if view.state <= Condition::Unfetched {
                let reason = view.last_failure;
                let reason =
                    reason.unwrap_or_else(|| "it does not fetch topics after pings".to_owned());
                summary.troubled.entry(view.hub).or_insert(reason);
            }
        }
    }
    for (source, plan) in engine.sources().iter().zip(&engine.plan().sources) {
        if source.tree.deletions().are_suspended() {
            summary.suspended.push(plan.name.clone());
        }
        let mounts = source.tree.mounts().iter().map(|(_, mount)| mount);
        let absent = mounts.filter(|mount| mount.root.state() == MountState::Absent);
        let directories = absent.map(|mount| mount.directory.clone());
        summary.absent.extend(directories);
    }
    summary
}

/// Returns what hubs, brokers and subscribers accepted and refused since the start, and what is pending.
pub fn totals(counts: &Counts, pending: usize, hub: Option<&HubStatus>) -> Totals {
    let hubs = || counts.hubs.values();
    let accepted: u64 = hubs().map(|counts| counts.accepted).sum();
    let refused: u64 = hubs().flat_map(|counts| counts.refused.values()).sum();
    let deliveries = hub.map(|hub| hub.counts.deliveries).unwrap_or_default();
    let owed = hub.map_or(0, |hub| hub.owed);
    Totals {
        delivered: accepted + deliveries.delivered,
        failed: refused + deliveries.refused + deliveries.failed + deliveries.abandoned,
        pending: (pending + owed) as u64,
    }
}

/// Returns the first items of a list, and the number of the others.
pub fn limited<T>(mut all: Vec<T>, max: usize) -> (Vec<T>, usize) {
    let more = all.len().saturating_sub(max);
    all.truncate(max);
    (all, more)
}
