//! Fetches of topics by hubs that are pinged (R24, R26).

use std::time::Duration;

use crate::event::Fact;
use crate::plan::PublishMode;
use crate::time::later;
use jiff::Timestamp;
use resourcesync::uri::Topic;

use crate::state::{AccountId, HubId, Result};
use crate::steps::cut::CHANNELS_PER_STEP;
use crate::steps::{Step, channels};

/// Least time between two pings of a hub about one topic.
pub const PING_APART: Duration = Duration::from_secs(1);
/// Time within which a hub that was pinged fetches the topic.
const PING_FETCHED_WITHIN: Duration = Duration::from_secs(60);

/// Returns when the next ping may follow one, after which the topic was fetched or not yet.
pub fn next_ping(pinged: Timestamp, was_fetched: bool) -> Timestamp {
    if was_fetched {
        later(pinged, PING_APART)
    } else {
        later(pinged, PING_FETCHED_WITHIN)
    }
}

pub fn forget_unfetched(step: &Step<'_>, account: AccountId) -> Result<()> {
    let sql = "DELETE FROM unfetched WHERE channel = ?1 AND hub = ?2";
    step.db.run(sql, account)
}

/// Records a fetch of a topic. It counts for all hubs of the channel that are pinged.
pub fn fetched(step: &mut Step<'_>, topic: &Topic) -> Result<()> {
    let Some(channel) = channels::of_topic(step.db, topic)? else {
        return Ok(());
    };
    let accounts = step.db.all::<Vec<(HubId, Option<_>, bool, bool, u64, Option<u64>)>>(
        "SELECT a.hub, a.pinged, a.fetched, a.unfetched_reported, coalesce(a.sending, a.last ->> 'seq', c.seq), a.sending \
         FROM account a CROSS JOIN channel c ON c.id = a.channel WHERE a.channel = ?1",
        channel.id,
    )?;
    for (hub, at, was_fetched, was_reported, seq, sending) in accounts {
        if step.mode(hub) != Some(PublishMode::Ping) {
            continue;
        }
        let account = (channel.id, hub);
        let columns = "until = (SELECT page_until FROM channel WHERE id = ?1)";
        step.db.set_account(account, columns, ())?;
        forget_unfetched(step, account)?;
        if sending.is_none() && (at.is_none() || was_fetched) {
            continue;
        }
        let pinged = at.unwrap_or(step.now);
        step.db.set_account(
            account,
            "pinged = ?3, fetched = 1, unfetched_reported = 0, ping_due = ?4",
            (pinged, later(pinged, PING_APART)),
        )?;
        step.facts.push(Fact::Fetched {
            topic: topic.clone(),
            hub: step.hub_uri(hub)?,
            seq,
            was_reported: at.is_some() && was_reported,
        });
    }
    Ok(())
}

/// Handles the end of the least time between two pings, and of that within which the topic should have been fetched.
pub fn end_ping_waits(step: &mut Step<'_>) -> Result<()> {
    let due = step.db.all::<Vec<(AccountId, Option<_>, bool, bool, Option<u64>)>>(
        "UPDATE account SET ping_due = NULL WHERE (channel, hub) IN (SELECT channel, hub FROM account \
         WHERE ping_due <= ?1 ORDER BY ping_due LIMIT ?2) \
         RETURNING channel, hub, pinged, fetched, unfetched_reported OR seq IS NOT NULL, last ->> 'seq'",
        (step.now, CHANNELS_PER_STEP),
    )?;
    for (account, pinged, fetched, is_said_or_flying, last) in due {
        step.ready.insert(account.0);
        let Some(pinged) = pinged.filter(|_| !fetched) else {
            continue;
        };
        let ends = later(pinged, PING_FETCHED_WITHIN);
        if ends > step.now {
            step.db.set_account(account, "ping_due = ?3", ends)?;
            continue;
        }
        forget_unfetched(step, account)?;
        // While the next one flies, `fetched` is about that one.
        if is_said_or_flying {
            continue;
        }
        step.db.set_account(account, "unfetched_reported = 1", ())?;
        if let Some(channel) = channels::channel(step, account.0)? {
            step.facts.push(Fact::Unfetched {
                topic: channel.topic,
                hub: step.hub_uri(account.1)?,
                seq: last.unwrap_or_default(),
                after: PING_FETCHED_WITHIN,
            });
        }
    }
    Ok(())
}
