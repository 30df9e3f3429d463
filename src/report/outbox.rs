//! All that one hub is due on one channel, and what came of announcing it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::due::{Due, due, due_after};
use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::notification::{NotificationLimits, spoken};
use crate::announce::plan::Mode;
use crate::announce::state::Told;
use crate::report::status::account::AccountView;
use crate::report::status::account::FlightView;
use crate::report::{channels, limited, waiting};
use crate::resourcesync::payload::{Entry, Payload};
use crate::resourcesync::uri::{Hub, Uri};

/// Names that are offered instead of one that is not known.
const MOST_NAMES: usize = 10;
/// The name of the embedded hub, besides its URI.
const EMBEDDED: &str = "embedded";

/// No account has these names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAccount {
    #[error("no channel has the topic or the Capability List \"{name}\"; {known}")]
    Channel { name: String, known: String },
    #[error("the channel {channel} is not told to \"{name}\"; {known}")]
    Hub {
        channel: String,
        name: String,
        known: String,
    },
}

/// One hub on one channel.
struct Account<'a> {
    id: ChannelId,
    channel: &'a Channel,
    hub: &'a Hub,
    ledger: &'a Ledger,
}

/// Returns the account that an operator means: the channel by its topic or its Capability List, the hub as it is
/// advertised. Of several channels, a live one is meant, else the latest.
pub fn account(
    engine: &Engine,
    channel: &str,
    hub: &str,
) -> Result<(ChannelId, Hub), UnknownAccount> {
    let account = named(engine, channel, hub)?;
    Ok((account.id, account.hub.clone()))
}

/// Returns all that a hub is due on a channel, named as in [`account`], and what came of announcing it.
pub fn account_view(
    engine: &Engine,
    channel: &str,
    hub: &str,
    with_payload: bool,
    now: Timestamp,
) -> Result<AccountView, UnknownAccount> {
    let account = named(engine, channel, hub)?;
    let Account {
        id,
        channel,
        hub,
        ledger,
    } = account;
    let (changes, more_changes) = limited(next_changes(engine, &account));
    let waits = match changes.is_empty() {
        true => None,
        false => waiting::reason(engine, channel, ledger, now),
    };
    let (held, more_held) = limited(waiting::held(engine, channel, hub));
    Ok(AccountView {
        at: now,
        source: channel.row.source.clone(),
        set: channel.row.set.clone(),
        topic: channel.row.topic.clone(),
        retired: channel.row.retired.as_ref().map(|retired| retired.since),
        hub: channels::hub_view(engine, id, hub, ledger),
        notification: flight_view(channel, ledger, with_payload),
        changes,
        more_changes,
        waits,
        held,
        more_held,
    })
}

fn named<'a>(engine: &'a Engine, channel: &str, hub: &str) -> Result<Account<'a>, UnknownAccount> {
    let set = Uri::parse(channel).ok();
    let all = || engine.channels().iter();
    let meant = all().filter(|(_, meant)| {
        meant.row.topic.as_str() == channel || Some(&meant.row.set) == set.as_ref()
    });
    let Some((id, meant)) = meant.max_by_key(|(id, meant)| (meant.is_live(), *id)) else {
        let names = all().map(|(_, other)| other.row.topic.as_str());
        return Err(UnknownAccount::Channel {
            name: channel.to_owned(),
            known: offer(names),
        });
    };
    let named = meant.ledgers.iter().find(|(name, ledger)| {
        name.as_str() == hub || (hub == EMBEDDED && ledger.mode == Mode::Embedded)
    });
    match named {
        Some((hub, ledger)) => Ok(Account {
            id,
            channel: meant,
            hub,
            ledger,
        }),
        None => Err(UnknownAccount::Hub {
            channel: meant.row.topic.to_string(),
            name: hub.to_owned(),
            known: offer(meant.ledgers.keys().map(Hub::as_str)),
        }),
    }
}

fn flight_view(channel: &Channel, ledger: &Ledger, with_payload: bool) -> Option<FlightView> {
    let flight = ledger.row.flight.as_ref()?;
    // A hub that is pinged reads the topic.
    let body = match ledger.mode {
        Mode::Ping => &channel.row.body,
        Mode::Content | Mode::ContentQuery | Mode::Embedded => &flight.body,
    };
    let changes = Payload::parse(&flight.body).map(|payload| payload.entries);
    Some(FlightView {
        seq: flight.seq,
        changes: changes.unwrap_or_default(),
        bytes: body.len(),
        payload: with_payload.then(|| String::from_utf8_lossy(body).into_owned()),
    })
}

/// Returns what would be announced to a hub next, once it has accepted what is in flight.
fn next_changes(engine: &Engine, account: &Account<'_>) -> Vec<Entry> {
    let Account {
        channel,
        hub,
        ledger,
        ..
    } = account;
    let plan = &engine.plan().sources[channel.source];
    let catalog = engine.sources()[channel.source].catalog();
    let covers = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
    let covers: BTreeMap<&Uri, Option<&Told>> =
        covers.map(|(uri, told)| (uri, told.as_ref())).collect();
    let all = ledger.due.iter().map(|uri| match covers.get(uri) {
        Some(told) => due_after(plan, catalog, channel, ledger, uri, *told, true),
        None => due(plan, catalog, channel, hub, uri),
    });
    let announcements = all.filter_map(|due| match due {
        Due::Announce(announcement) => Some(announcement),
        _ => None,
    });
    let limits = NotificationLimits {
        entries: engine.plan().window.max_entries,
        bytes: engine.plan().window.max_bytes,
        all_components: plan.announce_all_components,
    };
    let spoken = spoken(announcements.collect(), catalog, limits).into_iter();
    spoken.flat_map(|spoken| spoken.entries).collect()
}

/// Returns the names that there are instead of one that is not known.
fn offer<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let more = match names.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more; `rsnotify outbox list` has them all"),
    };
    match &names[..names.len().min(MOST_NAMES)] {
        [] => "there is none".to_owned(),
        some => format!("there is {}{more}", some.join(", ")),
    }
}
