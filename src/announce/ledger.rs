//! One hub's account on one channel: the versions it was told of, and the changes it is due (R22).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::catalog::Catalog;
use crate::announce::delivery::attempt::{Attempt, RefusalScope};
use crate::announce::delivery::hub_queue::{HubQueue, SizeLimit};
use crate::announce::notification::Spoken;
use crate::announce::plan::Mode;
use crate::announce::state::{Flight, LedgerRow, Ping, Presence, Record, Told};
use crate::announce::time::later;

/// Minimum time between two pings of one topic (R24).
pub const PING_APART: Duration = Duration::from_secs(2);
/// The time after an accepted ping within which the topic is to be fetched (R24, R26).
pub const PING_FETCHED_WITHIN: Duration = Duration::from_secs(60);

/// One hub's account on one channel.
#[derive(Debug)]
pub struct Ledger {
    pub mode: Mode,
    pub row: LedgerRow,
    pub told: BTreeMap<Uri, Told>,
    /// The documents with a change to announce; derived.
    pub due: BTreeSet<Uri>,
    /// Documents with a change that may have to be announced later: held, or missing (R15, R17); derived.
    pub waiting: BTreeSet<Uri>,
    /// The number of the submission that is under way, its answer to come: of what is in flight, or of what
    /// was dropped meanwhile.
    pub sending: Option<u64>,
    /// True if the hub may have accepted what is in flight, and its answer was lost.
    pub in_doubt: bool,
    /// True if the answer to come is to a submission as the hub was reached before.
    pub is_answer_old: bool,
    /// Acceptances of the hub when it last refused what is in flight; nothing after a restart.
    pub acceptances: Option<u64>,
    /// True if the hub accepted others while what is in flight failed, which therefore is at fault itself.
    pub is_at_fault: bool,
    /// The refused size that was heeded when what is in flight was cut. It cannot be cut smaller for the same one.
    pub cut_for: Option<SizeLimit>,
    pub prepared: Prepared,
    /// The documents of the last accepted ping, until the topic was fetched or should have been (R25); after a restart all
    /// that the topic serves.
    pub unfetched: BTreeSet<Uri>,
}

/// The entries of the next notifications, kept from one to the next: for a hub that is due a hundred of them,
/// what is due is not computed a hundred times. Derived.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The revision of the documents: what was prepared at an earlier one is out of date.
    pub revision: u64,
    /// In the order in which they are announced.
    pub spoken: VecDeque<Spoken>,
    /// The earliest change that was not prepared.
    pub beyond: Option<Timestamp>,
}

/// A notification that is in flight no more, and was not accepted.
#[derive(Debug, Default)]
pub struct Withdrawn {
    /// The documents that it covered.
    pub covered: Vec<Uri>,
    /// Documents of which it is not known any more what the hub was told.
    pub doubtful: Vec<Uri>,
}

impl Prepared {
    /// Returns true if something was prepared since the source last settled.
    pub fn is_valid(&self, revision: u64) -> bool {
        self.revision == revision && !self.spoken.is_empty()
    }
}

impl Ledger {
    pub fn new(mode: Mode) -> Ledger {
        Ledger {
            mode,
            row: LedgerRow::default(),
            told: BTreeMap::new(),
            due: BTreeSet::new(),
            waiting: BTreeSet::new(),
            sending: None,
            in_doubt: false,
            is_answer_old: false,
            acceptances: None,
            is_at_fault: false,
            cut_for: None,
            prepared: Prepared::default(),
            unfetched: BTreeSet::new(),
        }
    }

    /// Takes a version of a document as told; nothing for one that ended.
    pub fn set_told(&mut self, uri: &Uri, told: Option<Told>) {
        match told {
            Some(told) => self.told.insert(uri.clone(), told),
            None => self.told.remove(uri),
        };
    }

    /// Puts a notification in flight, which heeds the size that the hub refused lately.
    pub fn launch(&mut self, flight: Flight, size: Option<SizeLimit>) {
        if let Some(still_due) = &mut self.row.still_due {
            for (uri, _) in &flight.covers {
                still_due.remove(uri);
            }
        }
        self.row.flight = Some(flight);
        self.cut_for = size;
        self.in_doubt = false;
        self.unfetched.clear();
        if let Some(ping) = &mut self.row.ping {
            ping.fetched = false;
        }
    }

    /// Notes whether the hub accepted others since the attempt before at what is in flight: what failed before, and fails
    /// still, is at fault itself.
    pub fn blame(&mut self, before: Option<&Attempt>, queue: &HubQueue) {
        let accepted_since = self
            .acceptances
            .is_some_and(|acceptances| queue.acceptances() > acceptances);
        self.is_at_fault = before.is_some() && (self.is_at_fault || accepted_since);
        self.acceptances = Some(queue.acceptances());
    }

    /// Returns true if what is in flight waits for the hub to take anything, and not for its own next attempt.
    pub fn waits_for_hub(&self) -> bool {
        let Some(flight) = &self.row.flight else {
            return false;
        };
        let last = self.row.last.as_ref().filter(|last| last.seq == flight.seq);
        self.sending.is_none() && last.is_none_or(|last| last.scope() == Some(RefusalScope::Hub))
    }

    /// Returns the most entries that the next notification may have: no more than `max`, and than the hub refused.
    pub fn entry_limit(&self, max: usize, size: Option<SizeLimit>) -> usize {
        let size = size.map(|size| size.entries);
        let limits = self.row.limit.into_iter().chain(size);
        limits.fold(max, usize::min)
    }

    /// Returns half the number of entries of what is in flight, which is too large, and no more than `limit`; nothing if it
    /// cannot be made smaller.
    pub fn half(&self, limit: usize) -> Option<usize> {
        let flight = self.row.flight.as_ref()?;
        let entries = flight.entries;
        // One document may have two entries, which no limit parts.
        let is_logged = flight.part.is_some();
        let is_divisible = entries > 2 || (entries == 2 && (limit > 1 || is_logged));
        is_divisible.then(|| limit.min(entries / 2))
    }

    /// Returns true if what is in flight was never sent, and has a size that the hub refused since it was cut.
    pub fn is_too_large(&self, size: SizeLimit) -> bool {
        let flight = self.row.flight.as_ref();
        let is_new_limit = !self.in_doubt && self.cut_for != Some(size);
        flight.filter(|_| is_new_limit).is_some_and(|flight| {
            let is_unsent = flight.attempts == 0 && flight.covers.len() > 1;
            is_unsent && (flight.entries > size.entries || flight.body.len() > size.bytes)
        })
    }

    /// Takes what is in flight as told. Returns the documents; nothing if there was nothing in flight (R22).
    pub fn acknowledge(&mut self, now: Timestamp) -> Option<Vec<Uri>> {
        let flight = self.row.flight.take()?;
        self.row.limit = None;
        self.row.accepted = Some(now);
        self.is_answer_old = false;
        match self.mode {
            Mode::Ping => self.row.ping = Some(Ping::accepted(self.row.ping, now)),
            // Of a hub that is pinged, what it fetches counts.
            _ => self.row.until = flight.until,
        }
        let covers: BTreeMap<Uri, Option<Told>> = flight.covers.into_iter().collect();
        for (uri, told) in &covers {
            self.set_told(uri, *told);
            // R11: what changed since the account was closed is not due.
            if let Some(still_due) = &self.row.still_due
                && !still_due.contains(uri)
            {
                self.due.remove(uri);
            }
        }
        if self.awaits_fetch(now) {
            self.unfetched = covers.keys().cloned().collect();
        }
        Some(covers.into_keys().collect())
    }

    /// Returns true if the hub accepted a ping so shortly ago that it may still fetch the topic (R24).
    pub fn awaits_fetch(&self, now: Timestamp) -> bool {
        let ping = self.row.ping.filter(|ping| !ping.fetched);
        self.row.flight.is_none()
            && ping.is_some_and(|ping| later(ping.at, PING_FETCHED_WITHIN) > now)
    }

    /// Drops what the hub is owed, of which these versions count as told. Returns what was in flight.
    pub fn drop_due(&mut self, becomes: Vec<(Uri, Option<Told>)>) -> Option<Flight> {
        // R20: the next notification does not have what was dropped.
        self.row.until = None;
        self.row.limit = None;
        self.in_doubt = false;
        self.due.clear();
        self.prepared = Prepared::default();
        for (uri, told) in becomes {
            self.set_told(&uri, told);
        }
        self.row.flight.take()
    }

    /// R11: closes the account of a hub that left, or on a channel that retired: from now on only what is due now is
    /// announced, each change until the hub has accepted it.
    pub fn close(&mut self, catalog: &Catalog) {
        if self.row.still_due.is_some() {
            return;
        }
        let covers = self.row.flight.iter().flat_map(|flight| &flight.covers);
        let mut still_due = self.due.clone();
        for (uri, told) in covers {
            match *told == catalog.seen(uri) {
                true => still_due.remove(uri),
                // What follows it, or undoes it.
                false => still_due.insert(uri.clone()),
            };
        }
        self.row.still_due = Some(still_due);
        self.prepared = Prepared::default();
    }

    /// R11: returns true unless the hub left or the channel retired, which changes nothing for Source Descriptions (R10).
    pub fn is_open_for(&self, record: &Record) -> bool {
        let is_description = self.row.left.is_none() && record.is_source_description();
        self.row.still_due.is_none() || is_description
    }

    /// Returns true if the account is closed and a change of a document was due then, and still is.
    pub fn is_still_due(&self, uri: &Uri) -> bool {
        let still_due = self.row.still_due.as_ref();
        still_due.is_some_and(|still_due| still_due.contains(uri) || self.due.contains(uri))
    }

    /// Notes that no change of a document is due, unless one is in flight that is to be undone. Returns true if it was due
    /// when the account was closed.
    pub fn is_done_with(&mut self, uri: &Uri) -> bool {
        let is_flying = self.is_in_flight(uri);
        let still_due = self.row.still_due.as_mut();
        still_due.is_some_and(|still_due| !is_flying && still_due.remove(uri))
    }

    fn is_in_flight(&self, uri: &Uri) -> bool {
        let mut covers = self.row.flight.iter().flat_map(|flight| &flight.covers);
        covers.any(|(covered, _)| covered == uri)
    }

    /// Returns true if the hub has left, and was told of all that was due then.
    pub fn has_ended(&self) -> bool {
        let is_told = self.row.still_due.as_ref().is_none_or(BTreeSet::is_empty);
        let has_log = self.row.position.last.is_some() && !self.row.position.has_ended();
        self.row.left.is_some() && self.row.flight.is_none() && is_told && !has_log
    }

    /// Returns the time of the earliest change that may have to be announced later (R20).
    pub fn waiting_since(&self, catalog: &Catalog) -> Option<Timestamp> {
        let waiting = self.waiting.iter().filter_map(|uri| {
            let record = catalog.get(uri)?;
            let is_changed = self.told.get(uri).copied() != Some(Told::from(record.version));
            let changed = is_changed.then_some(record.changed);
            let missing = match record.presence {
                Presence::Missing { since, .. } => Some(since),
                Presence::Present | Presence::Gone { .. } => None,
            };
            changed.into_iter().chain(missing).min()
        });
        waiting.min()
    }

    /// Returns true if a change of a document is due, or in flight.
    pub fn owes(&self, uri: &Uri) -> bool {
        self.due.contains(uri) || self.is_in_flight(uri)
    }

    /// Withdraws what is in flight. Where the hub may have taken it, it is not known any more what the hub
    /// knows of the documents. A document that it was never told of counts as not told, unless it `is_away`: its end is to
    /// be told then.
    pub fn withdraw(&mut self, is_away: impl Fn(&Uri) -> bool) -> Withdrawn {
        let flight = self.row.flight.take();
        if self.in_doubt {
            // R20: the hub may have been told of a later time.
            self.row.until = None;
        }
        let mut withdrawn = Withdrawn::default();
        for (uri, covered) in flight.into_iter().flat_map(|flight| flight.covers) {
            let told = self.told.get(&uri).copied().filter(|_| self.in_doubt);
            let covered = covered.filter(|_| self.in_doubt && is_away(&uri));
            if let Some(told) = told.or(covered) {
                let unclear = Told {
                    fingerprint: None,
                    ..told
                };
                self.told.insert(uri.clone(), unclear);
                withdrawn.doubtful.push(uri.clone());
            }
            withdrawn.covered.push(uri);
        }
        if let Some(still_due) = &mut self.row.still_due {
            still_due.extend(withdrawn.covered.iter().cloned());
        }
        withdrawn
    }

    /// Returns the documents with a change that is due or in flight, each once.
    pub fn owed(&self) -> impl Iterator<Item = &Uri> {
        let covers = self.row.flight.iter().flat_map(|flight| &flight.covers);
        let flying = covers.map(|(uri, _)| uri);
        self.due
            .iter()
            .chain(flying.filter(|uri| !self.due.contains(*uri)))
    }

    /// Returns the earliest time at which the next notification may be cut; nothing while one is in flight (R22,
    /// R24), or on its way although it was dropped.
    pub fn free_from(&self) -> Option<Timestamp> {
        if self.row.flight.is_some() || self.sending.is_some() {
            return None;
        }
        Some(match (self.mode, self.row.ping) {
            (Mode::Ping, Some(ping)) if ping.fetched => later(ping.at, PING_APART),
            (Mode::Ping, Some(ping)) => later(ping.at, PING_FETCHED_WITHIN),
            _ => Timestamp::MIN,
        })
    }
}
