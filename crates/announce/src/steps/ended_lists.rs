//! Lists that ended, and entries that wait for another list to have them (C7).

use std::time::Duration;

use crate::changes::round::AbsenceGrace;
use crate::observation::MountId;
use jiff::Timestamp;
use resourcesync::capability::Capability;

use crate::state::{DocId, Result};
use crate::steps::change_sets::{ListKind, TrackedSet};
use crate::steps::{Step, lists};

/// Time for which entries that vanished are remembered while there is something that cannot be read (C7).
const UNSEEN_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// Forgets what was taken of the lists of a set that ended a grace ago. Returns when the next one is forgotten.
pub fn forget_ended(
    step: &Step<'_>,
    position: usize,
    set: &mut TrackedSet,
) -> Result<Option<Timestamp>> {
    let sql = "SELECT list, ended FROM change_list WHERE set_id = ?1 AND ended IS NOT NULL";
    let ended = step.db.all::<Vec<(DocId, Timestamp)>>(sql, set.id)?;
    if ended.is_empty() {
        return Ok(None);
    }
    let watch = watched_time(step, position, set, ListKind::ChangeLists)?;
    let mut next = None;
    for (list, ended) in ended {
        let ends = watch.grace_end(ended);
        if ends > step.now {
            next = next.into_iter().chain([ends]).min();
            continue;
        }
        let sql = "DELETE FROM change_list WHERE set_id = ?1 AND list = ?2";
        step.db.run(sql, (set.id, list))?;
        lists::forget_stale(step, set.id, list)?;
        // A round under way compares with keys that are gone: another one follows.
        set.last_round = None;
        if set.round.take().is_some() {
            set.triggers = Some((step.now, step.now));
        }
    }
    Ok(next)
}

/// Returns the time for which the lists of a set were watched, with the grace of what they lost. C7: for entries of Change
/// Lists, none passes while one of these cannot be read, and the grace is longer while there may be an unknown one: a mount is
/// away, or a directory or a file cannot be read.
pub fn watched_time(
    step: &Step<'_>,
    position: usize,
    set: &mut TrackedSet,
    kind: ListKind,
) -> Result<AbsenceGrace> {
    let source = &step.live.sources[position];
    let is_entries = kind == ListKind::ChangeLists;
    if is_entries {
        let lists = step.db.all::<Vec<(MountId, bool)>>(
            "SELECT DISTINCT d.mount, d.presence <> 1 OR EXISTS (SELECT 1 FROM trouble t WHERE t.uri = d.uri) \
             FROM member m CROSS JOIN document d ON d.id = m.document \
             WHERE m.set_id = ?1 AND d.capability = ?2 AND d.form = 0 AND d.presence BETWEEN 1 AND 3",
            (set.id, Capability::ChangeList),
        )?;
        let is_unread = |(mount, it): &(MountId, bool)| *it || source.is_absent(*mount);
        set.watched_since.take_if(|_| lists.iter().any(is_unread));
    }
    let is_seen = !is_entries
        || source.is_whole()
            && !step.db.exists(
                "SELECT 1 FROM trouble t WHERE t.source = ?1 AND NOT EXISTS (SELECT 1 FROM document d WHERE d.uri = t.uri \
                 AND d.presence BETWEEN 1 AND 3 AND (d.capability <> ?2 OR d.form <> 0))",
                (source.id, Capability::ChangeList),
            )?;
    let grace = step.plan.sources[position].deletion_grace;
    Ok(AbsenceGrace {
        since: *set.watched_since.get_or_insert(step.now),
        now: step.now,
        grace: if is_seen {
            grace
        } else {
            grace.max(UNSEEN_GRACE)
        },
    })
}
