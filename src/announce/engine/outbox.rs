//! What an operator may see of the hubs: how each stands on every channel, and all that one is due on one.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::announce::channel::Channel;
use crate::announce::delivery::hub_queue::HubQueue;
use crate::announce::due::{Due, due, due_after};
use crate::announce::engine::waiting::Held;
use crate::announce::engine::{Engine, Turn};
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::notification::{Limits, spoken};
use crate::announce::plan::Mode;
use crate::announce::state::{Hold, Told};
use crate::report::figures::Figures;
use crate::report::status::{AccountView, ChannelView, Condition, FailingHub, FlightView, HubView};
use crate::report::status::{SourceStatus, Status};
use crate::resourcesync::payload::{Entry, Payload};
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// So many changes of one account are listed; of others it is told how many they are.
const MOST_LISTED: usize = 1_000;
/// So many names are offered instead of one that is not known.
const MOST_NAMES: usize = 10;
/// What the embedded hub may be called.
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

impl Engine {
    /// How everything stands.
    pub fn status(&self, now: Timestamp) -> Status {
        let (broken, more_broken) = self.broken(now);
        let (findings, more_findings) = self.first_findings();
        let outline = self.outline(now);
        let mut sources = outline.sources;
        for (position, source) in sources.iter_mut().enumerate() {
            (source.missing_in, source.more_missing_in) = self.first_suspended(position);
        }
        Status {
            sources,
            channels: self.channels(),
            broken,
            more_broken,
            findings,
            more_findings,
            finding_groups: self.finding_groups(),
            notifications: self.notifications(),
            ..outline
        }
    }

    /// The same without its lists: of documents, findings and notifications.
    pub fn outline(&self, now: Timestamp) -> Status {
        let mut sources = self.sources();
        let holdings = sources.iter_mut().map(|source| {
            let holdings = std::mem::take(&mut source.holdings);
            (source.name.clone(), holdings)
        });
        let (muted, more_muted) = first(self.muted().collect());
        let figures = Figures {
            holdings: holdings.collect(),
            ..Figures::default()
        };
        Status {
            at: now,
            unsaved: None,
            sources: sources.into_iter().map(SourceStatus::from).collect(),
            channels: self.views().collect(),
            failing_hubs: self.failing_hubs(),
            muted,
            more_muted,
            embedded_hub: None,
            configuration: None,
            broken: Vec::new(),
            more_broken: 0,
            findings: Vec::new(),
            more_findings: 0,
            finding_groups: Vec::new(),
            notifications: Vec::new(),
            figures,
        }
    }

    /// Every channel, retired ones too, in the order they were opened.
    pub fn channels(&self) -> Vec<ChannelView> {
        let held = self.held_by_channel();
        let views = self
            .channels
            .iter()
            .zip(self.views())
            .map(|((id, channel), view)| {
                let (pending, more_pending) = self.pending(channel, self.now);
                let (held, more_held) = held.get(id).map_or_else(Default::default, Held::tell);
                ChannelView {
                    pending,
                    more_pending,
                    held,
                    more_held,
                    ..view
                }
            });
        views.collect()
    }

    /// The hubs that a channel has, in order; those that have left are none of them (R11).
    pub fn hubs_of(&self, topic: &Topic) -> Vec<Hub> {
        let channel = self
            .by_topic
            .get(topic)
            .and_then(|id| self.channels.get(id));
        let listening = channel.into_iter().flat_map(Channel::listening);
        listening.map(|(hub, _)| hub.clone()).collect()
    }

    /// Each channel without what waits on it.
    fn views(&self) -> impl Iterator<Item = ChannelView> {
        let is_shown =
            |ledger: &Ledger| ledger.row.left.is_none() || ledger.owed().next().is_some();
        self.channels.iter().map(move |(id, channel)| {
            let hubs = channel.ledgers.iter();
            let hubs = hubs.filter(|(_, ledger)| is_shown(ledger));
            let hubs = hubs.map(|(hub, ledger)| self.hub_view(*id, hub, ledger));
            ChannelView {
                source: channel.row.source.clone(),
                set: channel.row.set.clone(),
                topic: channel.row.topic.clone(),
                retired: channel.row.retired.as_ref().map(|retired| retired.since),
                seq: channel.row.seq,
                hubs: hubs.collect(),
                pending: Vec::new(),
                more_pending: 0,
                held: Vec::new(),
                more_held: 0,
            }
        })
    }

    /// Whether any notification of any channel is in flight to a hub.
    pub(super) fn is_sending_to(&self, hub: &Hub) -> bool {
        let mut ledgers = self
            .channels
            .values()
            .filter_map(|own| own.ledgers.get(hub));
        ledgers.any(|ledger| ledger.row.flight.is_some())
    }

    fn failing_hubs(&self) -> Vec<FailingHub> {
        let failing = self.queues.iter().filter_map(|(hub, queue)| {
            let outage = queue.outage().filter(|_| self.is_sending_to(hub))?;
            Some(FailingHub {
                hub: hub.clone(),
                since: outage.since,
                attempts: outage.attempts,
                refusal: outage.refusal.clone(),
                next_try: outage.next_probe,
                waiting: queue.waiting(),
            })
        });
        failing.collect()
    }

    pub(super) fn hub_view(&self, id: ChannelId, hub: &Hub, ledger: &Ledger) -> HubView {
        let mut view = hub_view(hub, ledger);
        let queue = self.queues.get(hub);
        let queue = queue.filter(|queue| view.in_flight.is_some() && queue.is_waiting(id));
        if let Some(outage) = queue.and_then(HubQueue::outage) {
            view.next_try = Some(outage.next_probe);
            view.hub_failure = Some(outage.refusal.clone());
        }
        view.last_failure = view.failure().map(|refusal| refusal.reason.clone());
        view.state = view.condition();
        view
    }

    /// The account that an operator means: the channel by its topic or its Capability List, the hub as it is
    /// advertised. Of several channels, a live one is meant, else the latest.
    pub fn account(&self, channel: &str, hub: &str) -> Result<(ChannelId, Hub), UnknownAccount> {
        let found = self.named(channel, hub);
        found.map(|(id, _, hub, _)| (id, hub.clone()))
    }

    fn named(
        &self,
        channel: &str,
        hub: &str,
    ) -> Result<(ChannelId, &Channel, &Hub, &Ledger), UnknownAccount> {
        let set = Uri::parse(channel).ok();
        let is_meant = |own: &&(&ChannelId, &Channel)| {
            own.1.row.topic.as_str() == channel || Some(&own.1.row.set) == set.as_ref()
        };
        let all: Vec<(&ChannelId, &Channel)> = self.channels.iter().collect();
        let meant = all.iter().filter(is_meant);
        let Some((id, own)) = meant.max_by_key(|(id, own)| (own.is_live(), **id)) else {
            let names = all.iter().map(|(_, own)| own.row.topic.as_str());
            return Err(UnknownAccount::Channel {
                name: channel.to_owned(),
                known: offer(names),
            });
        };
        let named = own.ledgers.iter().find(|(own, ledger)| {
            own.as_str() == hub || (hub == EMBEDDED && ledger.mode == Mode::Embedded)
        });
        match named {
            Some((hub, ledger)) => Ok((**id, own, hub, ledger)),
            None => Err(UnknownAccount::Hub {
                channel: own.row.topic.to_string(),
                name: hub.to_owned(),
                known: offer(own.ledgers.keys().map(Hub::as_str)),
            }),
        }
    }

    /// All that a hub is due on a channel, named as in [`Engine::account`], and what came of telling it.
    pub fn outbox(
        &self,
        channel: &str,
        hub: &str,
        with_payload: bool,
        now: Timestamp,
    ) -> Result<AccountView, UnknownAccount> {
        let (id, channel, hub, ledger) = self.named(channel, hub)?;
        let notification = ledger.row.flight.as_ref().map(|flight| {
            // A hub that is pinged reads the topic.
            let body = match ledger.mode {
                Mode::Ping => &channel.row.body,
                Mode::Content | Mode::ContentQuery | Mode::Embedded => &flight.body,
            };
            FlightView {
                seq: flight.seq,
                changes: Payload::parse(&flight.body)
                    .map(|payload| payload.entries)
                    .unwrap_or_default(),
                bytes: body.len(),
                payload: with_payload.then(|| String::from_utf8_lossy(body).into_owned()),
            }
        });
        let (changes, more_changes) = first(self.next_changes(channel, ledger, hub));
        let waits = match changes.is_empty() {
            true => None,
            false => self.waits(channel, ledger, now),
        };
        let (held, more_held) = first(self.held(channel, hub));
        Ok(AccountView {
            at: now,
            source: channel.row.source.clone(),
            set: channel.row.set.clone(),
            topic: channel.row.topic.clone(),
            retired: channel.row.retired.as_ref().map(|retired| retired.since),
            hub: self.hub_view(id, hub, ledger),
            notification,
            changes,
            more_changes,
            waits,
            held,
            more_held,
        })
    }

    /// What the hub would be told next, once it has accepted what is in flight.
    fn next_changes(&self, channel: &Channel, ledger: &Ledger, hub: &Hub) -> Vec<Entry> {
        let plan = &self.plan.sources[channel.source];
        let catalog = &self.sources[channel.source].catalog;
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
        let limits = Limits {
            entries: self.plan.window.max_entries,
            bytes: self.plan.window.max_bytes,
            all_components: plan.announce_all_components,
        };
        let spoken = spoken(announcements.collect(), catalog, limits).into_iter();
        spoken.flat_map(|spoken| spoken.entries).collect()
    }

    /// Compares what was seen with what was told, as a stored state has both: for a command where no daemon
    /// runs, and so nobody looks at the tree. Nothing comes of it.
    pub fn take_stock(&mut self, now: Timestamp) {
        for source in 0..self.sources.len() {
            self.judge_suspension(source);
            let known = self.sources[source].catalog.iter();
            let known: Vec<Uri> = known.map(|(uri, _)| uri.clone()).collect();
            for uri in known {
                // R17: nobody has read what lists it, so what did not wait when it was stored does not now.
                if let Some(record) = self.sources[source].catalog.get_mut(&uri)
                    && record.hold == Hold::Free
                {
                    record.hold = Hold::Expired;
                }
                self.refresh(source, &uri, false, now);
            }
        }
        self.turn = Turn::default();
    }
}

/// A hub on a channel, as far as its account tells.
fn hub_view(hub: &Hub, ledger: &Ledger) -> HubView {
    let flight = ledger.row.flight.as_ref();
    let ping = ledger.row.ping.filter(|_| ledger.mode == Mode::Ping);
    HubView {
        hub: hub.clone(),
        mode: ledger.mode,
        state: Condition::Fine,
        due: ledger.owed().count(),
        in_flight: flight.map(|flight| flight.seq),
        since: flight.map(|flight| flight.cut),
        attempts: flight.map_or(0, |flight| flight.attempts),
        sending: ledger.sending.is_some(),
        next_try: flight.map(|flight| flight.next_try),
        last_failure: None,
        hub_failure: None,
        last: ledger.row.last.clone(),
        accepted: ledger.row.accepted,
        fetch_confirmed: ping.and_then(|ping| match (ping.fetched, ping.reported) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }),
    }
}

/// The first of them, and how many more there are.
fn first<T>(mut all: Vec<T>) -> (Vec<T>, usize) {
    let more = all.len().saturating_sub(MOST_LISTED);
    all.truncate(MOST_LISTED);
    (all, more)
}

/// What there is instead of a name that is not known.
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
