//! The daemon's state as operators and programs read it: one report, for `/status.json`, the status page, the
//! commands and the metrics. Each is a few queries, in the daemon as in a command, whether a daemon runs or not.
//!
//! [`status()`] makes all of it, [`outline`] what the metrics need, [`summary()`] one line. Each part has a file:
//! [`sources`], [`documents`] and [`findings`] are about the trees, [`channels`] and [`outbox`] about what is announced; the
//! engine's history has the last notifications. [`mod@status`] has the types that all of them fill, as JSON has them.

pub mod channels;
pub mod documents;
pub mod figures;
pub mod findings;
pub mod outbox;
pub mod sources;
pub mod status;
pub mod summary;
#[cfg(test)]
pub mod tests;

use jiff::Timestamp;
use serde::Serialize;

use crate::report::status::Status;
use crate::report::summary::StatusSummary;
use announce::state::{Db, Result};
use announce::steps::engine::StateReader;

/// The version of the shape of JSON output: `version` in each object that programs read.
pub const JSON_VERSION: u64 = 1;

/// An object that programs read, with the version of its shape.
#[derive(Debug, Serialize)]
pub struct Versioned<'a, T> {
    pub version: u64,
    #[serde(flatten)]
    pub message: &'a T,
}

/// Items of a list that are reported; of others, their number.
const MAX_LISTED: usize = 1_000;

/// Returns the daemon's status. It reads what waits, and where documents are missing, each of them.
pub fn status(reader: &StateReader<'_>) -> Result<Status> {
    let mut status = outline(reader)?;
    for (source, live) in status.sources.iter_mut().zip(&reader.live.sources) {
        let missing_in = sources::suspending_directories(reader, live)?;
        (source.missing_in, source.more_missing_in) = limited(missing_in, sources::MAX_DIRECTORIES);
    }
    status.channels = channels::all(reader)?;
    (status.broken, status.more_broken) = sources::broken(reader)?;
    (status.findings, status.more_findings) = findings::unacknowledged_in_words(reader)?;
    status.finding_groups = findings::groups(reader)?;
    status.notifications = reader.history.latest(reader.db)?;
    Ok(status)
}

/// Returns the status without its lists of documents, findings and notifications. It reads each channel and account, and
/// no document but those that cannot be read and those of sets that no hub is told of.
pub fn outline(reader: &StateReader<'_>) -> Result<Status> {
    let muted = findings::muted_sets(reader)?;
    let mut status = empty_status(reader.now);
    for (plan, live) in reader.sources() {
        let mut holdings = sources::holdings(reader, plan, live)?;
        holdings.muted = muted.iter().filter(|set| set.source == plan.name).count();
        let source = sources::source(reader, plan, live, &holdings)?;
        status.sources.push(source);
        status.figures.holdings.insert(plan.name.clone(), holdings);
    }
    (status.muted, status.more_muted) = limited(muted, MAX_LISTED);
    status.channels = channels::all_in_outline(reader)?;
    status.failing_hubs = channels::failing_hubs(reader)?;
    Ok(status)
}

/// Returns the status of `rsnotify hub`, which has no sources, without what the hub knows.
pub fn empty_status(now: Timestamp) -> Status {
    Status {
        at: now,
        ..Status::default()
    }
}

/// Returns the status in a few numbers and names. It is requested each second, and reads only what is due, in flight or
/// in trouble, by indexes that have nothing else.
pub fn summary(reader: &StateReader<'_>) -> Result<StatusSummary> {
    // Of the channels, those that are not retired.
    let channels = "SELECT (SELECT count(*) FROM channel) - (SELECT count(*) FROM channel WHERE ends IS NOT NULL)";
    let suspended = reader.sources().filter(|(_, live)| live.is_suspended());
    let absent = reader.live.sources.iter().flat_map(sources::absent_mounts);
    Ok(StatusSummary {
        channels: reader.db.value(channels, ())?,
        pending: pending_count(reader.db)?,
        troubled: channels::troubled_hubs(reader)?,
        suspended: suspended.map(|(plan, _)| plan.name.clone()).collect(),
        muted: findings::muted_sets(reader)?.len(),
        absent: absent.cloned().collect(),
    })
}

/// Returns the number of changes that are pending, counted for each hub.
pub fn pending_count(db: Db<'_>) -> Result<usize> {
    let counts = channels::pending_by_account(db)?;
    Ok(counts.values().sum())
}

/// Returns the first items of a list, and the number of the others.
pub fn limited<T>(mut all: Vec<T>, max: usize) -> (Vec<T>, usize) {
    let more = all.len().saturating_sub(max);
    all.truncate(max);
    (all, more)
}
