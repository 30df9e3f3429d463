//! The cutter: makes notifications of what hubs are due, and what topics serve with them (R21, R22, R25).

use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::payload::Payload;
use resourcesync::uri::Hub;

use crate::announce::catalog::Catalog;
use crate::announce::channel::Channel;
use crate::announce::delivery::hub_queue::SizeLimit;
use crate::announce::due::{Due, due};
use crate::announce::engine::outbox::Outbox;
use crate::announce::engine::outbox::change_log::launch_next;
use crate::announce::engine::outbox::page;
use crate::announce::engine::source::Source;
use crate::announce::engine::source_list::Sources;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::history::{Fate, PastNotification};
use crate::announce::ids::ChannelId;
use crate::announce::ledger::{Ledger, Prepared};
use crate::announce::notification::{Cut, NotificationLimits, cut, overhead, spoken, up};
use crate::announce::plan::{Plan, SourcePlan, WindowPlan};
use crate::announce::span::Span;
use crate::announce::state::{Flight, Said};
use crate::announce::time::earlier;

/// Full notifications that are prepared at once, which bounds the memory that it takes.
const PREPARED: usize = 16;

/// The next notification of a hub.
#[derive(Debug, PartialEq, Eq)]
struct NextNotification {
    cut: Cut,
    /// The `until` of the notification before.
    before: Option<Timestamp>,
    /// The time of the earliest change that is held or left for the one after.
    open: Option<Timestamp>,
}

/// The outbox, while notifications are cut. The sources are only read.
pub struct Cutter<'a> {
    pub outbox: &'a mut Outbox,
    pub sources: &'a Sources,
    pub plan: &'a Plan,
    pub step: &'a mut Step,
}

impl Cutter<'_> {
    /// Gives every hub of a channel that is free and due something its next notification; hubs that are due
    /// the same get the same one.
    pub fn cut(&mut self, id: ChannelId) {
        let Some(channel) = self.outbox.channels.get(id) else {
            return;
        };
        if channel.is_of_changes() {
            self.launch_logged(id);
            return;
        }
        if self.outbox.channels.cuts.window(id).is_some() {
            return;
        }
        if !self.sources[channel.source].is_settled() {
            self.outbox.channels.cuts.park(id);
            return;
        }
        let mut cuts: Vec<(NextNotification, Vec<Hub>)> = Vec::new();
        for hub in self.outbox.channels.hubs(id) {
            let Some(next) = self.next_notification(id, &hub) else {
                continue;
            };
            match cuts.iter_mut().find(|(cut, _)| *cut == next) {
                Some((_, hubs)) => hubs.push(hub),
                None => cuts.push((next, vec![hub])),
            }
        }
        if cuts.is_empty() {
            self.serve_what_waits(id);
        }
        for (next, hubs) in cuts {
            self.launch(id, next, &hubs);
        }
    }

    /// Cuts the next notification of a hub, if it may have one and is due anything.
    fn next_notification(&mut self, id: ChannelId, hub: &Hub) -> Option<NextNotification> {
        let now = self.step.now();
        let channel = self.outbox.channels.get_mut(id)?;
        let source = &self.sources[channel.source];
        let ledger = channel.ledgers.get(hub)?;
        if ledger.due.is_empty() || ledger.free_from()? > now {
            return None;
        }
        let size = self.outbox.hubs.size_limit(hub, now);
        let limits = limits(&self.plan.window, source.plan(), ledger, size);
        next_notification(channel, hub, source, limits)
    }

    /// Puts a notification in flight to the hubs that get it.
    fn launch(&mut self, id: ChannelId, next: NextNotification, hubs: &[Hub]) {
        let (now, wall) = (self.step.now(), self.step.wall());
        let Outbox {
            channels,
            hubs: queues,
            history,
        } = &mut *self.outbox;
        let Some(channel) = channels.get_mut(id) else {
            return;
        };
        let catalog = self.sources[channel.source].catalog();
        let (payload, flight) = compose(channel, next, hubs, catalog, self.step);
        self.step.tell(Fact::Cut {
            topic: channel.row.topic.clone(),
            seq: flight.seq,
            changes: flight.entries,
            hubs: hubs.len(),
        });
        history.push(PastNotification {
            channel: id,
            topic: channel.row.topic.clone(),
            seq: flight.seq,
            cut: now,
            changes: Some(flight.entries),
            bytes: Some(flight.body.len()),
            body: Some(Arc::clone(&flight.body)),
            hubs: hubs.iter().map(|hub| (hub.clone(), Fate::Open)).collect(),
        });
        for hub in hubs {
            if let Some(ledger) = channel.ledgers.get_mut(hub) {
                ledger.launch(flight.clone(), queues.size_limit(hub, now));
            }
        }
        if channel.has_pinged() {
            if hubs.iter().any(|hub| channel.is_pinged(hub)) {
                let said = payload.entries.into_iter();
                let said = said.map(|entry| Said { at: now, entry });
                channel.row.said.extend(said);
            }
            let oldest = earlier(now, self.plan.topic_window);
            channel.forget_said(oldest, self.plan.window.max_entries);
            page::write(channel, self.plan, catalog, wall);
        } else {
            channel.row.said.clear();
            channel.row.body = flight.body;
        }
        self.step.serve(id);
        for hub in hubs {
            self.step.save_ledger(id, hub.clone());
            queues.enqueue(channels, id, hub, self.step);
        }
    }

    /// Puts the next notification of the log of a change channel in flight to each hub that is free.
    fn launch_logged(&mut self, id: ChannelId) {
        let now = self.step.now();
        let Outbox { channels, hubs, .. } = &mut *self.outbox;
        for hub in channels.hubs(id) {
            let size = hubs.size_limit(&hub, now);
            let Some(channel) = channels.get_mut(id) else {
                return;
            };
            let limit = self.plan.window.max_entries;
            if launch_next(channel, &hub, limit, size, now) {
                self.step.save_ledger(id, hub.clone());
                hubs.enqueue(channels, id, &hub, self.step);
            }
        }
    }

    /// Serves what a ping hub is due and cannot be told yet, if its topic does not have it (R25).
    fn serve_what_waits(&mut self, id: ChannelId) {
        let wall = self.step.wall();
        let Some(channel) = self.outbox.channels.get_mut(id) else {
            return;
        };
        let catalog = self.sources[channel.source].catalog();
        if page::is_outdated(channel, self.plan, catalog, wall) {
            page::write(channel, self.plan, catalog, wall);
            self.step.serve(id);
        }
    }
}

/// Cuts the next notification of a hub from what was prepared, or is prepared now.
fn next_notification(
    channel: &mut Channel,
    hub: &Hub,
    source: &Source,
    limits: NotificationLimits,
) -> Option<NextNotification> {
    let catalog = source.catalog();
    let overhead = overhead(&channel.row.set, catalog);
    let revision = source.documents().revision();
    let ledger = channel.ledgers.get(hub)?;
    let prepared = (!ledger.prepared.is_valid(revision))
        .then(|| prepare(channel, hub, catalog, source.plan(), limits, revision));
    let waiting = ledger.waiting_since(catalog);

    let ledger = channel.ledgers.get_mut(hub)?;
    if let Some(prepared) = prepared {
        ledger.prepared = prepared;
    }
    let cut = cut(&mut ledger.prepared.spoken, limits, overhead);
    let left = ledger.prepared.spoken.iter().map(|spoken| spoken.since);
    let open = left.chain(ledger.prepared.beyond).chain(waiting).min();
    (!cut.entries.is_empty()).then_some(NextNotification {
        cut,
        before: ledger.row.until,
        open,
    })
}

/// Returns what the next notification of a hub may hold: no more than is configured, and than the hub refused lately
/// (R21, R23).
fn limits(
    window: &WindowPlan,
    source: &SourcePlan,
    ledger: &Ledger,
    size: Option<SizeLimit>,
) -> NotificationLimits {
    NotificationLimits {
        entries: ledger.entry_limit(window.max_entries, size),
        bytes: size.map_or(window.max_bytes, |size| window.max_bytes.min(size.bytes)),
        all_components: source.announce_all_components,
    }
}

/// Prepares the next notifications of a hub from all that it is due.
fn prepare(
    channel: &Channel,
    hub: &Hub,
    catalog: &Catalog,
    plan: &SourcePlan,
    limits: NotificationLimits,
    revision: u64,
) -> Prepared {
    let ledger = channel.ledgers.get(hub).into_iter();
    let uris = ledger.flat_map(|ledger| &ledger.due);
    let announcements = uris.filter_map(|uri| match due(plan, catalog, channel, hub, uri) {
        Due::Announce(announcement) => Some(announcement),
        _ => None,
    });
    let mut spoken = spoken(announcements.collect(), catalog, limits);
    let max = limits.entries.saturating_mul(PREPARED).min(spoken.len());
    let beyond = spoken.drain(max..).map(|spoken| spoken.since).min();
    Prepared {
        revision,
        spoken: spoken.into(),
        beyond,
    }
}

/// Numbers and renders the next notification of some hubs of a channel.
fn compose(
    channel: &mut Channel,
    next: NextNotification,
    hubs: &[Hub],
    catalog: &Catalog,
    step: &Step,
) -> (Payload, Flight) {
    let NextNotification {
        mut cut,
        before,
        open,
    } = next;
    // For ping hubs, the `from` and `until` of the topic count, not those of a notification.
    let span = match hubs.iter().all(|hub| channel.is_pinged(hub)) {
        true => Span::default(),
        false => channel.next_span(step.wall(), before, open),
    };
    span.fit(&mut cut.entries);
    channel.row.seq += 1;
    let payload = Payload {
        up: up(&cut.entries, &channel.row.set, catalog),
        from: span.from,
        until: span.until,
        entries: cut.entries,
    };
    let flight = Flight {
        seq: channel.row.seq,
        body: payload.render().into(),
        part: None,
        entries: payload.entries.len(),
        covers: cut.covers,
        until: span.until,
        cut: step.now(),
        attempts: 0,
        next_try: step.now(),
    };
    (payload, flight)
}
