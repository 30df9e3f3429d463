//! The last notifications, and their outcomes at each hub.

use crate::announce::delivery::attempt::Attempt;
use crate::announce::history::{NotificationView, Outcome, OutcomeView};
use crate::announce::ids::ChannelId;
use rusqlite::params;

use crate::report::Reader;
use crate::state::{Db, Result, Sql};

/// Returns the last notifications, the newest first.
pub fn latest(reader: &Reader<'_>) -> Result<Vec<NotificationView>> {
    let mut views = Vec::new();
    for (channel, notification) in reader.history.notifications.iter().rev() {
        let mut view = notification.clone();
        let open = view.hubs.iter_mut();
        for outcome in open.filter(|hub| hub.outcome == Outcome::InFlight) {
            *outcome = by_account(reader.db, *channel, view.seq, outcome)?;
        }
        views.push(view);
    }
    Ok(views)
}

/// Returns the outcome of a notification that has no other than what the hub's account says.
fn by_account(
    db: Db<'_>,
    channel: ChannelId,
    seq: u64,
    OutcomeView { hub, .. }: &OutcomeView,
) -> Result<OutcomeView> {
    let outcome = db.first(
        "SELECT a.seq IS NOT DISTINCT FROM ?3, a.attempts, a.last, coalesce(p.heard < ?3, FALSE) \
         FROM hub h CROSS JOIN account a ON a.channel = ?1 AND a.hub = h.id \
         LEFT JOIN log_position p ON p.channel = a.channel AND p.hub = a.hub WHERE h.uri = ?2",
        params![Sql(channel), Sql(hub), seq.cast_signed()],
        |row| {
            let (is_flying, attempts, last) = (row.take()?, row.take()?, Attempt::read(row)?);
            let last = last.filter(|last| last.seq == seq);
            let at = last.as_ref().map(|last| last.at);
            let reason = last.and_then(|last| Some(last.refusal?.reason));
            let outcome = match (is_flying, row.take()?) {
                (true, _) if reason.is_some() => Outcome::Refused,
                (true, _) => Outcome::InFlight,
                (false, true) => return Ok(OutcomeView::new(hub.clone(), Outcome::Due)),
                (false, false) => return Ok(OutcomeView::new(hub.clone(), Outcome::Dropped)),
            };
            Ok(OutcomeView {
                hub: hub.clone(),
                outcome,
                at,
                attempts,
                reason,
            })
        },
    )?;
    // Its channel or its hub may not be there any more (R13).
    Ok(outcome.unwrap_or_else(|| OutcomeView::new(hub.clone(), Outcome::Dropped)))
}
