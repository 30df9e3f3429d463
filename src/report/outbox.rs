//! The changes due to one hub on one channel, and the outcome of announcing them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::change_payload::ChangePayload;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::payload::{Entry, Payload};
use resourcesync::uri::{Hub, Uri};

use crate::announce::changes::log::LogPart;
use crate::announce::channel::Channel;
use crate::announce::due::{Due, HeardDocument, due};
use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::notification::{NotificationLimits, spoken};
use crate::announce::plan::{EMBEDDED_NAME, Mode};
use crate::announce::state::Told;
use crate::report::status::account::{AccountView, FlightView, ResourceView};
use crate::report::{MAX_LISTED, channels, limited, waiting};

/// Maximum names that are suggested for an unknown one.
const MAX_NAMES: usize = 10;

/// The error for an unknown account name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAccount {
    #[error("no channel has the topic or the Capability List \"{name}\"; {known}")]
    Channel { name: String, known: String },
    #[error(
        "{name} has a channel of each kind, {topics}: give the topic of the one that you mean, or --kind"
    )]
    Ambiguous { name: String, topics: String },
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

/// The names by which an operator means an account.
#[derive(Debug, Clone, Copy)]
pub struct AccountNames<'a> {
    /// The topic, or the URI of the Capability List.
    pub channel: &'a str,
    /// Needed with a Capability List that has a channel of each kind.
    pub kind: Option<ChannelKind>,
    /// URI of the hub as it is advertised.
    pub hub: &'a str,
}

/// Returns the account that an operator means. Of several channels, a live one is meant, else the latest.
pub fn account(
    engine: &Engine,
    names: AccountNames<'_>,
) -> Result<(ChannelId, Hub), UnknownAccount> {
    let account = named(engine, names)?;
    Ok((account.id, account.hub.clone()))
}

/// Returns the changes due to a hub on a channel, named as in [`account`], and the outcome of announcing them. `logged`
/// returns the body of a part of a logged notification, which is in the state file.
pub fn account_view(
    engine: &Engine,
    names: AccountNames<'_>,
    with_payload: bool,
    logged: impl FnOnce(ChannelId, u64, LogPart) -> Option<Arc<[u8]>>,
    now: Timestamp,
) -> Result<AccountView, UnknownAccount> {
    let account = named(engine, names)?;
    let Account {
        id,
        channel,
        hub,
        ledger,
    } = account;
    let (changes, more_changes) = limited(next_changes(engine, &account), MAX_LISTED);
    let waits = match changes.is_empty() {
        true => None,
        false => waiting::reason(engine, id, ledger, now),
    };
    let (held, more_held) = limited(waiting::held(engine, channel, hub), MAX_LISTED);
    Ok(AccountView {
        at: now,
        source: channel.row.source.clone(),
        kind: channel.row.kind,
        set: channel.row.set.clone(),
        topic: channel.row.topic.clone(),
        retired: channel.row.retired,
        hub: channels::hub_view(engine, id, hub, ledger),
        notification: match channel.is_of_changes() {
            true => logged_flight_view(id, ledger, with_payload, logged),
            false => flight_view(channel, ledger, with_payload),
        },
        changes,
        more_changes,
        waits,
        held,
        more_held,
    })
}

fn named<'a>(engine: &'a Engine, names: AccountNames<'_>) -> Result<Account<'a>, UnknownAccount> {
    let AccountNames { channel, kind, hub } = names;
    let set = Uri::parse(channel).ok();
    let all = || engine.channels().iter();
    let named = all().filter(|(_, named)| {
        let is_named = named.row.topic.as_str() == channel || Some(&named.row.set) == set.as_ref();
        is_named && kind.is_none_or(|kind| named.row.kind == kind)
    });
    let mut named: Vec<(ChannelId, &Channel)> = named.collect();
    if named.iter().any(|(_, named)| named.is_live()) {
        named.retain(|(_, named)| named.is_live());
    }
    // Dropping what another channel is due cannot be undone.
    let topics: BTreeSet<(ChannelKind, &str)> = named
        .iter()
        .map(|(_, named)| (named.row.kind, named.row.topic.as_str()))
        .collect();
    let kinds: BTreeSet<ChannelKind> = topics.iter().map(|(kind, _)| *kind).collect();
    if kinds.len() > 1 && topics.iter().all(|(_, topic)| *topic != channel) {
        let topics = topics
            .iter()
            .map(|(kind, topic)| format!("{topic} ({kind})"));
        return Err(UnknownAccount::Ambiguous {
            name: channel.to_owned(),
            topics: topics.collect::<Vec<_>>().join(" and "),
        });
    }
    let rank = |(id, named): &(ChannelId, &Channel)| (named.row.topic.as_str() == channel, *id);
    let Some((id, meant)) = named.into_iter().max_by_key(rank) else {
        let names = all().map(|(_, other)| other.row.topic.as_str());
        return Err(UnknownAccount::Channel {
            name: channel.to_owned(),
            known: offer(names),
        });
    };
    let named = meant.ledgers.iter().find(|(name, ledger)| {
        name.as_str() == hub || (hub == EMBEDDED_NAME && ledger.mode == Mode::Embedded)
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
        Mode::Content | Mode::ContentQuery | Mode::Embedded | Mode::Broker => &flight.body,
    };
    let changes = Payload::parse(&flight.body).map(|payload| payload.entries);
    Some(FlightView {
        seq: flight.seq,
        changes: changes.unwrap_or_default(),
        resources: Vec::new(),
        bytes: body.len(),
        payload: with_payload.then(|| String::from_utf8_lossy(body).into_owned()),
    })
}

/// Returns what is in flight of a log. A hub that is pinged about it reads the topic, which may have more.
fn logged_flight_view(
    id: ChannelId,
    ledger: &Ledger,
    with_payload: bool,
    logged: impl FnOnce(ChannelId, u64, LogPart) -> Option<Arc<[u8]>>,
) -> Option<FlightView> {
    let flight = ledger.row.flight.as_ref()?;
    let part = flight.part?;
    let body = logged(id, flight.seq, part);
    let payload = body.as_deref().and_then(ChangePayload::parse);
    let resources = payload.iter().flat_map(|payload| &payload.entries);
    Some(FlightView {
        seq: flight.seq,
        changes: Vec::new(),
        resources: resources.map(ResourceView::from).collect(),
        bytes: body.as_ref().map_or(part.bytes, |body| body.len()),
        payload: body
            .filter(|_| with_payload)
            .map(|body| String::from_utf8_lossy(&body).into_owned()),
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
        Some(told) => {
            let document = HeardDocument {
                source: plan,
                catalog,
                channel,
                ledger,
                uri,
                told: *told,
            };
            document.due()
        }
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

/// Returns the known names, for the error about an unknown one.
fn offer<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more; `rsnotify outbox list` has them all"),
    };
    match &names[..names.len().min(MAX_NAMES)] {
        [] => "there is none".to_owned(),
        some => format!("there is {}{more}", some.join(", ")),
    }
}
