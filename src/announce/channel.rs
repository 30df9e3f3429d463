//! A channel: its stored row, and the ledgers of its hubs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use resourcesync::channel_kind::ChannelKind;
use resourcesync::payload::{Entry, Payload};
use resourcesync::uri::{Hub, Topic, Uri};
use websub::topics::TopicPage;

use crate::announce::catalog::Catalog;
use crate::announce::changes::log::ChangeLog;
use crate::announce::ledger::Ledger;
use crate::announce::plan::{Mode, WindowPlan};
use crate::announce::span::{Span, span};
use crate::announce::state::{ChannelRow, Said};

/// A channel with what every hub was told on it.
#[derive(Debug)]
pub struct Channel {
    pub row: ChannelRow,
    /// The position of its source in the plan.
    pub source: usize,
    // A node of the map has room for eleven, and most channels have one hub.
    pub ledgers: BTreeMap<Hub, Box<Ledger>>,
    /// The entries that its topic serves, if a ping hub reads it (R25); derived.
    pub page: Vec<Entry>,
    /// The time until which that has all changes (R20); derived.
    pub page_until: Option<Timestamp>,
    /// The notifications of a change channel (C21).
    pub log: ChangeLog,
}

/// Number of `until` values remembered per topic, so that none is repeated (R20).
const UNTILS: usize = 64;

impl Channel {
    /// Makes a channel without hubs.
    pub fn new(source: usize, row: ChannelRow) -> Channel {
        Channel {
            row,
            source,
            ledgers: BTreeMap::new(),
            page: Vec::new(),
            page_until: None,
            log: ChangeLog::default(),
        }
    }

    /// Returns true unless the channel retired.
    pub fn is_live(&self) -> bool {
        self.row.retired.is_none()
    }

    // The life of a channel (R11).

    /// Retires it: it outlives its advertisement, to announce what is due now.
    pub fn retire(&mut self, catalog: &Catalog, now: Timestamp) {
        for ledger in self.ledgers.values_mut() {
            ledger.close(catalog);
        }
        self.row.retired = Some(now);
    }

    /// Makes it live again, and returns true, if it retired. The accounts of hubs that left stay closed.
    pub fn revive(&mut self) -> bool {
        if self.row.retired.take().is_none() {
            return false;
        }
        let ledgers = self.ledgers.values_mut();
        for ledger in ledgers.filter(|ledger| ledger.row.left.is_none()) {
            ledger.row.still_due = None;
        }
        true
    }

    // Intervals and topic.

    /// Returns the end of the last interval that was told.
    pub fn told_until(&self) -> Option<Timestamp> {
        self.row.untils.last().copied()
    }

    /// R20: returns the span of the next notification, which differs from all others of this topic. See [`span`].
    pub fn next_span(
        &mut self,
        now: Timestamp,
        before: Option<Timestamp>,
        open: Option<Timestamp>,
    ) -> Span {
        let untils = &mut self.row.untils;
        let span = span(now, before, open, untils);
        untils.extend(span.until);
        untils.drain(..untils.len().saturating_sub(UNTILS));
        span
    }

    /// Returns the ledgers of hubs that are told of all changes.
    pub fn listening(&self) -> impl Iterator<Item = (&Hub, &Ledger)> {
        let ledgers = self.ledgers.iter().map(|(hub, ledger)| (hub, &**ledger));
        ledgers.filter(|(_, ledger)| ledger.row.left.is_none())
    }

    /// Returns the hubs that are advertised to subscribers; a broker is none (F1).
    pub fn advertised(&self) -> Vec<Hub> {
        let hubs = self
            .listening()
            .filter(|(_, ledger)| ledger.mode != Mode::Broker);
        hubs.map(|(hub, _)| hub.clone()).collect()
    }

    /// Returns the accounts of hubs that fetch the topic.
    pub fn pinged(&self) -> impl Iterator<Item = (&Hub, &Ledger)> {
        let ledgers = self.ledgers.iter().map(|(hub, ledger)| (hub, &**ledger));
        ledgers.filter(|(_, ledger)| ledger.mode == Mode::Ping)
    }

    /// Returns true if any hub of this channel fetches its topic.
    pub fn has_pinged(&self) -> bool {
        self.pinged().next().is_some()
    }

    /// Returns true if a hub of this channel fetches its topic.
    pub fn is_pinged(&self, hub: &Hub) -> bool {
        let ledger = self.ledgers.get(hub);
        ledger.is_some_and(|ledger| ledger.mode == Mode::Ping)
    }

    /// Returns the documents in flight to hubs that fetch the topic, and those of accepted pings which they have not
    /// fetched yet.
    pub fn flying(&self) -> BTreeSet<Uri> {
        let flying = self.pinged().flat_map(|(_, ledger)| {
            let covers = ledger.row.flight.iter().flat_map(|flight| &flight.covers);
            covers.map(|(uri, _)| uri).chain(&ledger.unfetched)
        });
        flying.cloned().collect()
    }

    /// Keeps the last entry of each document and kind of change, since `oldest` and no more than
    /// `max`, and what is still on its way to a hub that fetches it (R25).
    pub fn forget_said(&mut self, oldest: Timestamp, max: usize) {
        let owed = self.flying();
        let mut last = BTreeMap::new();
        for said in std::mem::take(&mut self.row.said) {
            let entry = &said.entry;
            if said.at >= oldest || owed.contains(&entry.uri) {
                let key = (entry.uri.clone(), entry.change, entry.capability);
                last.insert(key, said);
            }
        }
        let mut kept: Vec<Said> = last.into_values().collect();
        kept.sort_by_key(|said| said.entry.datetime);
        let mut beyond = kept.len().saturating_sub(max);
        kept.retain(|said| {
            let is_newest = beyond == 0;
            beyond = beyond.saturating_sub(1);
            is_newest || owed.contains(&said.entry.uri)
        });
        self.row.said = kept;
    }

    /// Returns true if the channel announces changes of resources.
    pub fn is_of_changes(&self) -> bool {
        match self.row.kind {
            ChannelKind::Framework => false,
            ChannelKind::Change => true,
        }
    }

    /// Returns the number of documents with a change that a hub is due, or of changes of resources; those in flight
    /// included.
    pub fn due_changes(&self, ledger: &Ledger) -> usize {
        match self.is_of_changes() {
            true => self.log.backlog(&ledger.row.position).entries,
            false => ledger.owed().count(),
        }
    }

    /// Returns the first and the last notification that the topic of a change channel serves as one, because a ping hub
    /// fetches it (C25): those cut since this time, and those that such a hub is due. They are consecutive, and have no
    /// more than `max` entries together.
    pub fn logged_page(&self, since: Timestamp, max: usize) -> Option<(u64, u64)> {
        let mut newest_first = self.log.iter().rev();
        let (last, newest) = newest_first.next().filter(|_| self.is_of_changes())?;
        let heard = self.pinged().map(|(_, ledger)| ledger.row.position.heard);
        let heard = heard.min()?;
        let (mut first, mut from, mut entries) = (last, newest.from, newest.entries);
        for (seq, logged) in newest_first {
            entries += logged.entries;
            let is_served = seq > heard || logged.cut >= since;
            let is_next = seq + 1 == first && logged.until == from;
            if !(is_served && is_next && entries <= max) {
                break;
            }
            (first, from) = (seq, logged.from);
        }
        (first < last).then_some((first, last))
    }

    /// Forgets logged notifications that no hub is due, except those that the topic serves. Returns their numbers.
    pub fn forget_heard(&mut self, since: Timestamp, window: &WindowPlan) -> Vec<u64> {
        let ledgers = self.ledgers.values().filter(|ledger| !ledger.has_ended());
        let wanted = ledgers.flat_map(|ledger| {
            let flying = ledger.row.flight.as_ref().map(|flight| flight.seq);
            self.log
                .wanted(&ledger.row.position, flying, window.changes.backlog)
        });
        let served = self.logged_page(since, window.max_entries);
        let served = served.map(|(first, last)| first..=last);
        let wanted: Vec<_> = wanted.chain(served).collect();
        self.log.forget(wanted)
    }

    /// Returns what the topic serves.
    pub fn topic_page(&self) -> TopicPage {
        let is_pinged = self.has_pinged();
        // R25: some hubs never fetch an empty topic again.
        let is_empty = self.row.body.is_empty() && !self.is_of_changes();
        let body = match is_empty && is_pinged {
            true => Payload::default().render().into(),
            false => self.row.body.clone(),
        };
        TopicPage {
            topic: self.row.topic.clone(),
            capability_list: self.row.set.clone(),
            hubs: self.advertised(),
            body,
            report_fetches: is_pinged,
        }
    }

    /// Returns true if it has this topic and these hubs, no more and no less.
    pub fn is_as(&self, topic: &Topic, hubs: &[Hub]) -> bool {
        let listening: BTreeSet<&Hub> = self.listening().map(|(hub, _)| hub).collect();
        self.row.topic == *topic && listening == hubs.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::{Timestamp, ToSpan};
    use resourcesync::channel_kind::ChannelKind;
    use resourcesync::uri::{Hub, Topic, Uri};

    use super::Channel;
    use crate::announce::catalog::Catalog;
    use crate::announce::changes::log::{ChangeLog, LogPosition, Logged};
    use crate::announce::ledger::Ledger;
    use crate::announce::plan::Mode;
    use crate::announce::state::ChannelRow;

    /// A notification of ten entries, and of the minute of its number.
    fn logged(seq: i64) -> Logged {
        let time = |minute: i64| Timestamp::UNIX_EPOCH + minute.minutes();
        Logged {
            from: time(seq - 1),
            until: time(seq),
            entries: 10,
            bytes: 1_000,
            cut: time(seq),
        }
    }

    /// A change channel whose hub was told the first three of these notifications, and fetches the topic.
    fn channel(log: BTreeMap<u64, Logged>) -> Channel {
        let set = Uri::parse("https://e.org/cl.xml").unwrap();
        let topic = Topic::new("https://e.org/change/");
        let row = ChannelRow::new("main", ChannelKind::Change, set, topic);
        let mut channel = Channel::new(0, row);
        let mut ledger = Ledger::new(Mode::Ping);
        ledger.row.position = LogPosition::at(3);
        let hub = Hub::new("https://hub.example.net/");
        channel.ledgers.insert(hub, Box::new(ledger));
        channel.log = ChangeLog::new(log);
        channel
    }

    #[test]
    fn a_channel_that_retired_is_due_what_it_was_due_until_it_is_revived() {
        let mut channel = channel(BTreeMap::new());
        let (one, two) = (
            Hub::new("https://one.example/"),
            Hub::new("https://two.example/"),
        );
        let b = Uri::parse("https://e.org/b").unwrap();
        let catalog = Catalog::default();
        for hub in [&one, &two] {
            let mut ledger = Ledger::new(Mode::Content);
            ledger.due.insert(b.clone());
            channel.ledgers.insert(hub.clone(), Box::new(ledger));
        }
        let left = channel.ledgers.get_mut(&two).unwrap();
        left.row.left = Some(Timestamp::UNIX_EPOCH);
        left.close(&catalog);
        let still_due =
            |channel: &Channel| [&one, &two].map(|hub| channel.ledgers[hub].row.still_due.clone());
        let due = Some(BTreeSet::from([b]));
        assert!(!channel.revive(), "it is live");
        assert_eq!(still_due(&channel), [None, due.clone()]);
        channel.retire(&catalog, Timestamp::UNIX_EPOCH);
        assert!(!channel.is_live());
        assert_eq!(still_due(&channel), [due.clone(), due.clone()]);
        assert!(channel.revive() && channel.is_live());
        assert_eq!(still_due(&channel), [None, due]);
    }

    #[test]
    fn a_topic_serves_consecutive_notifications_and_no_more_than_fit() {
        let log: BTreeMap<u64, Logged> = (1..=9_u64).zip((1..).map(logged)).collect();
        let whole = channel(log.clone());
        let page = |channel: &Channel, since: i64, max| {
            channel.logged_page(Timestamp::UNIX_EPOCH + since.minutes(), max)
        };
        assert_eq!(page(&whole, 60, 1_000), Some((4, 9)));
        assert_eq!(page(&whole, 2, 1_000), Some((2, 9)));
        assert_eq!(page(&whole, 2, 35), Some((7, 9)));
        assert_eq!(page(&whole, 2, 19), None);
        let mut with_gap = log.clone();
        with_gap.remove(&6);
        assert_eq!(page(&channel(with_gap), 2, 1_000), Some((7, 9)));
        let mut with_other = log;
        with_other.insert(6, logged(60));
        assert_eq!(page(&channel(with_other), 2, 1_000), Some((7, 9)));
    }
}
