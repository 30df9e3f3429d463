//! The channels and the state of each hub on them.

use resourcesync::uri::{Hub, Topic};

use crate::announce::channel::Channel;
use crate::announce::delivery::hub_queue::HubQueue;
use crate::announce::desired_channel::is_name_only;
use crate::announce::engine::Engine;
use crate::announce::ids::ChannelId;
use crate::announce::ledger::Ledger;
use crate::announce::plan::Mode;
use crate::report::status::{BacklogView, ChannelView, Condition, FailingHub, HubView, failure};
use crate::report::waiting::{self, HeldDocuments};

/// Returns every channel, retired ones too, in the order they were opened.
pub fn all(engine: &Engine) -> Vec<ChannelView> {
    let held = waiting::held_by_channel(engine);
    let channels = engine.channels().iter().zip(outline(engine));
    let views = channels.map(|((id, _), view)| {
        let (pending, more) = waiting::pending(engine, id);
        let held = held.get(&id);
        let (held, more_held) = held.map_or_else(Default::default, HeldDocuments::views);
        ChannelView {
            pending,
            more_pending: more + view.more_pending,
            held,
            more_held,
            ..view
        }
    });
    views.collect()
}

/// Returns every channel without what waits on it.
pub fn outline(engine: &Engine) -> impl Iterator<Item = ChannelView> {
    let is_shown = |ledger: &Ledger| !ledger.has_ended();
    engine.channels().iter().map(move |(id, channel)| {
        let hubs = channel.ledgers.iter();
        let hubs = hubs.filter(|(_, ledger)| is_shown(ledger));
        let hubs = hubs.map(|(hub, ledger)| hub_view(engine, id, hub, ledger));
        let hubs: Vec<HubView> = hubs.collect();
        let backlogs = hubs.iter().filter_map(|hub| hub.backlog.as_ref());
        let furthest_behind = backlogs.map(|backlog| backlog.changes).max();
        ChannelView {
            source: channel.row.source.clone(),
            kind: channel.row.kind,
            set: channel.row.set.clone(),
            topic: channel.row.topic.clone(),
            retired: channel.row.retired,
            seq: channel.row.seq,
            hubs,
            pending: Vec::new(),
            more_pending: furthest_behind.unwrap_or_default(),
            held: Vec::new(),
            more_held: 0,
        }
    })
}

/// Returns the hubs of a channel, in order; without those that have left (R11).
pub fn hubs_of(engine: &Engine, topic: &Topic) -> Vec<Hub> {
    let channels = engine.channels();
    let channel = channels.of_topic(topic).and_then(|id| channels.get(id));
    let listening = channel.into_iter().flat_map(Channel::listening);
    listening.map(|(hub, _)| hub.clone()).collect()
}

/// Returns true if only message brokers are told on a channel and nothing advertises it, so that its topic is only a
/// name.
pub fn is_for_brokers_only(engine: &Engine, topic: &Topic) -> bool {
    let channels = engine.channels();
    let Some(channel) = channels.of_topic(topic).and_then(|id| channels.get(id)) else {
        return false;
    };
    let plan = engine.plan();
    let source = engine.sources().get(channel.source);
    let source = source.zip(plan.sources.get(channel.source));
    source.is_some_and(|(source, of)| is_name_only(plan, of, source.catalog(), channel))
}

/// Returns the hubs that accept nothing at the moment (R23).
pub fn failing_hubs(engine: &Engine) -> Vec<FailingHub> {
    let failing = engine.hubs().iter().filter_map(|(hub, queue)| {
        let outage = queue.outage()?;
        engine.channels().is_sending_to(hub).then(|| FailingHub {
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

/// Returns the state of a hub on a channel.
pub fn hub_view(engine: &Engine, id: ChannelId, hub: &Hub, ledger: &Ledger) -> HubView {
    let channel = engine.channels().get(id);
    let changes = channel.filter(|channel| channel.is_of_changes());
    let due = changes.map_or_else(
        || ledger.owed().count(),
        |channel| channel.due_changes(ledger),
    );
    let flight = ledger.row.flight.as_ref();
    let in_flight = flight.map(|flight| flight.seq);
    let queue = engine.hubs().get(hub);
    let queue = queue.filter(|queue| in_flight.is_some() && queue.is_waiting(id));
    let outage = queue.and_then(HubQueue::outage);
    let hub_failure = outage.map(|outage| &outage.refusal);
    let failure = failure(hub_failure, ledger.row.last.as_ref(), in_flight);
    let next_try = outage.map(|outage| outage.next_probe);
    let fetch_confirmed = fetch_confirmed(ledger);
    HubView {
        hub: hub.clone(),
        mode: ledger.mode,
        state: Condition::of(failure, fetch_confirmed, due),
        due,
        backlog: changes.map(|channel| backlog(engine, id, channel, ledger)),
        in_flight,
        since: flight.map(|flight| flight.cut),
        attempts: flight.map_or(0, |flight| flight.attempts),
        sending: ledger.sending.is_some(),
        next_try: next_try.or(flight.map(|flight| flight.next_try)),
        last_failure: failure.map(|refusal| refusal.reason.clone()),
        hub_failure: hub_failure.cloned(),
        last: ledger.row.last.clone(),
        accepted: ledger.row.accepted,
        fetch_confirmed,
    }
}

/// Returns the part of the log of a change channel that a hub was not told.
fn backlog(engine: &Engine, id: ChannelId, channel: &Channel, ledger: &Ledger) -> BacklogView {
    let position = &ledger.row.position;
    let backlog = channel.log.backlog(position);
    let mut unheard = channel.log.after(position).map(|(_, logged)| logged);
    let first = unheard.next();
    let last = unheard.next_back().or(first);
    let reason = waiting::reason(engine, id, ledger, engine.now());
    BacklogView {
        notifications: backlog.notifications,
        changes: channel.due_changes(ledger),
        from: first.map(|logged| logged.from),
        until: last.map(|logged| logged.until),
        since: first.map(|logged| logged.cut),
        waits: reason.filter(|_| first.is_some()),
    }
}

/// Returns whether the topic was fetched after the last ping, as far as that is known (R26).
fn fetch_confirmed(ledger: &Ledger) -> Option<bool> {
    let ping = ledger.row.ping.filter(|_| ledger.mode == Mode::Ping)?;
    match (ping.fetched, ping.reported) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}
