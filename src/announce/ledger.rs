//! What one hub was told on one channel, and what it is due: seen less told (R22).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::announce::delivery::hub_queue::SizeLimit;
use crate::announce::notification::Spoken;
use crate::announce::plan::Mode;
use crate::announce::state::{LedgerRow, Told};
use crate::announce::time::later;
use crate::resourcesync::uri::Uri;

/// Two pings of one topic are at least so far apart (R24).
pub const PING_APART: Duration = Duration::from_secs(2);
/// A topic that is not fetched so long after an accepted ping is reported (R24, R26).
pub const PING_FETCHED_WITHIN: Duration = Duration::from_secs(60);

/// One hub's account on one channel.
#[derive(Debug)]
pub struct Ledger {
    pub mode: Mode,
    pub row: LedgerRow,
    pub told: BTreeMap<Uri, Told>,
    /// The documents of which there is something to say; derived.
    pub due: BTreeSet<Uri>,
    /// Documents of which there may be something to say later: held, or missing (R15, R17); derived.
    pub waiting: BTreeSet<Uri>,
    /// The number of the submission that is under way, its answer to come: of what is in flight, or of what
    /// was dropped meanwhile.
    pub sending: Option<u64>,
    /// Whether the hub may have taken what is in flight, and nobody heard of it.
    pub in_doubt: bool,
    /// Whether the answer to come is to a submission as the hub was reached before.
    pub is_answer_old: bool,
    /// Acceptances of the hub when it last refused what is in flight; nothing after a restart.
    pub acceptances: Option<u64>,
    /// Whether the hub accepted others while what is in flight failed, which therefore is at fault itself.
    pub is_at_fault: bool,
    /// The refused size that was heeded when what is in flight was cut. It cannot be cut smaller for the same one.
    pub cut_for: Option<SizeLimit>,
    pub prepared: Prepared,
}

/// The beginning of what is to be said next, kept from one notification to the next: a hub that is due a
/// hundred of them is not asked about everything a hundred times. Derived.
#[derive(Debug, Default)]
pub struct Prepared {
    /// How often the source had settled: what was prepared before it did again is out of date.
    pub settled: u64,
    /// In the order in which it is said.
    pub spoken: VecDeque<Spoken>,
    /// The earliest change that was not prepared.
    pub beyond: Option<Timestamp>,
}

/// The changes that a hub still hears of on a channel (R11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    All,
    /// The channel retired: what was due then, and Source Descriptions.
    LastWordsAndDescriptions,
    /// The hub is advertised no more: what it was due then.
    LastWords,
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
        }
    }

    /// Whether something about a document is to be said, or on its way.
    pub fn owes(&self, uri: &Uri) -> bool {
        let covers = self.row.flight.iter().flat_map(|flight| &flight.covers);
        self.due.contains(uri) || covers.map(|(covered, _)| covered).any(|own| own == uri)
    }

    /// Takes back what is in flight. Where the hub may have taken it, it is not known any more what the hub
    /// knows of the documents; they are returned.
    pub fn withdraw(&mut self) -> Vec<Uri> {
        let flight = self.row.flight.take();
        if self.in_doubt {
            // R20: the hub may have heard of a later time.
            self.row.until = None;
        }
        let covers = flight.into_iter().flat_map(|flight| flight.covers);
        let mut doubtful = Vec::new();
        for (uri, _) in covers.filter(|_| self.in_doubt) {
            if let Some(told) = self.told.get_mut(&uri) {
                told.fingerprint = None;
                doubtful.push(uri);
            }
        }
        doubtful
    }

    /// The documents of which there is something to say, with what is in flight about those of which there
    /// is nothing more.
    pub fn owed(&self) -> impl Iterator<Item = &Uri> {
        let covers = self.row.flight.iter().flat_map(|flight| &flight.covers);
        let flying = covers.map(|(uri, _)| uri);
        self.due
            .iter()
            .chain(flying.filter(|uri| !self.due.contains(*uri)))
    }

    /// What the hub still hears of: all that changes, unless it or the channel ended (R11).
    pub fn hearing(&self, is_live: bool) -> Hearing {
        match &self.row.left {
            Some(_) => Hearing::LastWords,
            None if is_live => Hearing::All,
            None => Hearing::LastWordsAndDescriptions,
        }
    }

    /// The earliest time at which the next notification may be cut; nothing while one is in flight (R22,
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
