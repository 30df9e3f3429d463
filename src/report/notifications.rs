//! The last notifications, and their outcomes at each hub.

use crate::announce::delivery::attempt::Attempt;
use crate::announce::history::{NotificationView, Outcome, OutcomeView};

use crate::report::Reader;
use crate::state::{ChannelId, Db, Result};

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
    let account = db.first::<(bool, _, Option<Attempt>, bool)>(
        "SELECT a.seq IS NOT DISTINCT FROM ?3, a.attempts, a.last, coalesce(p.heard < ?3, FALSE) \
         FROM hub h CROSS JOIN account a ON a.channel = ?1 AND a.hub = h.id \
         LEFT JOIN log_position p ON p.channel = a.channel AND p.hub = a.hub WHERE h.uri = ?2",
        (channel, hub, seq),
    )?;
    let mut view = OutcomeView::new(hub.clone(), Outcome::Dropped);
    match account {
        Some((true, attempts, last, _)) => {
            let last = last.filter(|last| last.seq == seq);
            view.attempts = attempts;
            view.at = last.as_ref().map(|last| last.at);
            view.reason = last.and_then(|last| Some(last.refusal?.reason));
            view.outcome = match view.reason {
                Some(_) => Outcome::Refused,
                None => Outcome::InFlight,
            };
        }
        Some((false, _, _, true)) => view.outcome = Outcome::Due,
        // Its channel or its hub may not be there any more (R13).
        Some((false, _, _, false)) | None => {}
    }
    Ok(view)
}
