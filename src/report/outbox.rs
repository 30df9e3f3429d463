//! The changes due to one hub on one channel, and the outcome of announcing them.

use std::sync::Arc;

use announce::plan::{EMBEDDED_NAME, PublishMode};
use announce::steps::engine::StateReader;
use announce::time::StepClocks;
use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::change_payload::ChangePayload;
use resourcesync::payload::{Entry, Payload};
use resourcesync::uri::{Hub, Topic, Uri};
use serde::{Deserialize, Serialize};

use crate::report::status::{ChannelView, HubView, WaitingDocument};
use crate::report::{MAX_LISTED, channels, limited};
use announce::state::{ChannelId, HubId, Result, StatementError};
use announce::steps::change_log;
use announce::steps::channels::channel;
use announce::steps::cut::due_entries;
use announce::steps::step::Step;

/// Maximum names that are suggested for an unknown one.
const MAX_NAMES: usize = 10;

/// The error for an account that cannot be reported.
#[derive(Debug, thiserror::Error)]
pub enum UnknownAccount {
    /// A name that no account has; the message lists those that there are.
    #[error("{0}")]
    Name(String),
    #[error(transparent)]
    State(#[from] StatementError),
}

/// The name of a hub on a channel in commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountName {
    /// The topic, or the URI of the Capability List.
    pub channel: String,
    /// Needed with a Capability List that has a channel of each kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ChannelKind>,
    /// URI of the hub as it is advertised, or the name of the embedded one.
    pub hub: String,
}

/// One hub on one channel, with all changes due to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountView {
    /// The time of this report.
    pub at: Timestamp,
    pub source: String,
    #[serde(default)]
    pub kind: ChannelKind,
    pub set: Uri,
    pub topic: Topic,
    pub retired: Option<Timestamp>,
    #[serde(flatten)]
    pub hub: HubView,
    pub notification: Option<FlightView>,
    /// The entries of the next notification, in order, and the number of further ones.
    pub changes: Vec<Entry>,
    pub more_changes: usize,
    /// The event that these changes wait for, besides the answer to what is in flight.
    pub waits: Option<String>,
    /// The changes that are held, and the number of further ones.
    pub held: Vec<WaitingDocument>,
    pub more_held: usize,
}

/// The notification in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlightView {
    pub seq: u64,
    pub changes: Vec<Entry>,
    /// On a change channel, the changes of resources instead.
    #[serde(default)]
    pub resources: Vec<ResourceChangeView>,
    pub bytes: usize,
    /// The payload for the hub, or for readers of the topic that it is pinged about; if it was asked for.
    pub payload: Option<String>,
}

/// A change of a resource, as its Change List has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceChangeView {
    pub uri: String,
    /// `created`, `updated` or `deleted`.
    pub change: String,
    pub datetime: Option<String>,
}

/// Returns the account that an operator means. Of several channels, a live one is meant, else the latest.
pub fn find_account(
    reader: &StateReader<'_>,
    name: &AccountName,
) -> Result<(ChannelId, Hub), UnknownAccount> {
    let (channel, hub) = find_by_name(reader, name)?;
    Ok((channel.id, hub.hub))
}

/// Returns the changes due to a hub on a channel, named as in [`find_account`], and the outcome of announcing them.
pub fn account_view(
    reader: &StateReader<'_>,
    name: &AccountName,
    with_payload: bool,
) -> Result<AccountView, UnknownAccount> {
    let (channel, hub) = find_by_name(reader, name)?;
    let changes = next_changes(reader, &channel, hub.id)?;
    let (changes, more_changes) = limited(changes, MAX_LISTED);
    let mut held = channels::held_by_channel(reader, Some((channel.id, hub.id)))?;
    let mut held = held.remove(&channel.id).unwrap_or_default();
    held.sort_by(|one, other| one.uri.cmp(&other.uri));
    let (held, more_held) = limited(held, MAX_LISTED);
    Ok(AccountView {
        at: reader.now,
        source: channel.source,
        kind: channel.kind,
        set: channel.set,
        topic: channel.topic,
        retired: channel.retired,
        notification: flight(reader, channel.id, &hub, with_payload)?,
        waits: hub.waits.clone().filter(|_| !changes.is_empty()),
        hub,
        changes,
        more_changes,
        held,
        more_held,
    })
}

/// Returns the channel that is meant, without the hub on it that is meant, and this.
fn find_by_name(
    reader: &StateReader<'_>,
    name: &AccountName,
) -> Result<(ChannelView, HubView), UnknownAccount> {
    let AccountName { channel, kind, hub } = name;
    let set = Uri::parse(channel).ok();
    let is_topic = |view: &ChannelView| view.topic.as_str() == *channel;
    let mut named = channels::all_in_outline(reader)?;
    let topics: Vec<String> = named.iter().map(|view| view.topic.to_string()).collect();
    named.retain(|view| is_topic(view) || set.as_ref() == Some(&view.set));
    named.retain(|view| kind.is_none_or(|kind| kind == view.kind));
    if named.iter().any(|view| view.retired.is_none()) {
        named.retain(|view| view.retired.is_none());
    }
    // Dropping what another channel is due cannot be undone.
    let is_of_several_kinds = named.iter().any(|view| view.kind != named[0].kind);
    if is_of_several_kinds && !named.iter().any(is_topic) {
        named.sort_by_key(|view| (view.kind, view.topic.to_string()));
        let shown = |view: &ChannelView| format!("{} ({})", view.topic, view.kind);
        let topics = Vec::from_iter(named.iter().map(shown)).join(" and ");
        return Err(UnknownAccount::Name(format!(
            "{channel} has a channel of each kind, {topics}: give the topic of the one that you mean, or --kind"
        )));
    }
    let named = named.into_iter();
    let Some(mut meant) = named.max_by_key(|view| (is_topic(view), view.id)) else {
        let known = known_names(&topics);
        return Err(UnknownAccount::Name(format!(
            "no channel has the topic or the Capability List \"{channel}\"; {known}"
        )));
    };
    let is_meant = |view: &HubView| {
        view.hub.as_str() == *hub || (hub == EMBEDDED_NAME && view.mode == PublishMode::Embedded)
    };
    if let Some(at) = meant.hubs.iter().position(is_meant) {
        let hub = meant.hubs.swap_remove(at);
        return Ok((meant, hub));
    }
    let hubs = meant.hubs.iter().map(|view| view.hub.to_string());
    let (topic, known) = (&meant.topic, known_names(&hubs.collect::<Vec<_>>()));
    Err(UnknownAccount::Name(format!(
        "the channel {topic} is not told to \"{hub}\"; {known}"
    )))
}

fn flight(
    reader: &StateReader<'_>,
    channel: ChannelId,
    hub: &HubView,
    with_payload: bool,
) -> Result<Option<FlightView>> {
    let logged = reader.db.first::<(u64, usize)>(
        "SELECT seq, entries FROM account WHERE channel = ?1 AND hub = ?2 AND seq IS NOT NULL AND body IS NULL",
        (channel, hub.id),
    )?;
    // A hub that is pinged about what is in flight of a log reads the topic, which may have more.
    let (seq, changes, resources, body) = if let Some((seq, entries)) = logged {
        let body = change_log::remaining_body(reader.db, (channel, hub.id), seq, entries)?;
        let payload = ChangePayload::parse(&body);
        let changes = payload.iter().flat_map(|payload| &payload.entries);
        let resources = changes.map(|change| ResourceChangeView {
            uri: change.loc.to_string(),
            change: change.kind.as_str().to_owned(),
            datetime: change.datetime.as_ref().map(ToString::to_string),
        });
        (seq, Vec::new(), resources.collect(), body)
    } else {
        let flying = reader.db.first::<(_, Vec<u8>, Arc<[u8]>)>(
            "SELECT a.seq, a.body, CASE WHEN ?3 THEN c.body ELSE a.body END FROM account a \
             CROSS JOIN channel c ON c.id = a.channel WHERE a.channel = ?1 AND a.hub = ?2 AND a.seq IS NOT NULL",
            // A hub that is pinged reads the topic.
            (channel, hub.id, hub.mode == PublishMode::Ping),
        )?;
        let Some((seq, flying, body)) = flying else {
            return Ok(None);
        };
        let changes = Payload::parse(&flying).unwrap_or_default().entries;
        (seq, changes, Vec::new(), body)
    };
    Ok(Some(FlightView {
        seq,
        changes,
        resources,
        bytes: body.len(),
        payload: with_payload.then(|| String::from_utf8_lossy(&body).into_owned()),
    }))
}

/// Returns what would be announced to a hub next, once it has accepted what is in flight: what a step would cut that is
/// never committed.
fn next_changes(reader: &StateReader<'_>, of: &ChannelView, hub: HubId) -> Result<Vec<Entry>> {
    let mut live = reader.live.clone();
    let now = StepClocks::from(reader.now);
    let step = Step::new(reader.db, reader.plan, &mut live, now);
    let Some(channel) = channel(&step, of.id)? else {
        return Ok(Vec::new());
    };
    let (announced, _) = due_entries(&step, &channel, hub, None)?;
    Ok(announced
        .into_iter()
        .flat_map(|one| one.payload.entries)
        .collect())
}

/// Returns the known names, for the error about an unknown one.
fn known_names(names: &[String]) -> String {
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more; `rsnotify outbox list` has them all"),
    };
    match &names[..names.len().min(MAX_NAMES)] {
        [] => "there is none".to_owned(),
        some => format!("there is {}{more}", some.join(", ")),
    }
}
