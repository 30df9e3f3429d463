//! One step: its moment, the rows it changes, and the effects it has.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::retention::end_of;

use crate::announce::changes::log::LogPart;
use crate::announce::changes::round::TakeRequest;
use crate::announce::delivery::Submission;
use crate::announce::engine::timers::Timer;
use crate::announce::event::{Fact, Now};
use crate::announce::ids::ChannelId;
use crate::announce::observation::DocumentPath;
use crate::announce::state::Save;
use crate::announce::time::later;

/// The collector of one step. The parts of the engine write to it, and nothing reads it before the step ends.
#[derive(Debug)]
pub struct Step {
    now: Now,
    /// The start of the run: that of the first engine in it.
    pub began: Timestamp,
    collected: Collected,
    timers: Vec<(Timestamp, Timer)>,
}

/// The rows that a step changed, and its effects. A `usize` is the position of a source in the plan.
#[derive(Debug, Default)]
pub struct Collected {
    pub documents: BTreeSet<(usize, Uri)>,
    pub troubles: BTreeSet<(usize, Uri)>,
    pub channels: BTreeSet<ChannelId>,
    pub ledgers: BTreeSet<(ChannelId, Hub)>,
    pub told: BTreeSet<(ChannelId, Hub, Uri)>,
    /// Rows that are saved as they are here; all others as they are when the step ends.
    pub rows: Save,
    pub serve: BTreeSet<ChannelId>,
    pub withdraw: BTreeSet<Topic>,
    /// With the part of the log that is submitted, on a change channel.
    pub submit: Vec<(Submission, Option<LogPart>)>,
    pub take: Vec<TakeRequest>,
    pub look: BTreeSet<DocumentPath>,
    pub explain: BTreeSet<DocumentPath>,
    pub facts: Vec<Fact>,
}

impl Step {
    pub fn new(now: Now) -> Step {
        Step {
            now,
            began: now.now,
            collected: Collected::default(),
            timers: Vec::new(),
        }
    }

    /// Begins the next step.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
    }

    /// Returns the moment of the step by the clock that nobody sets.
    pub fn now(&self) -> Timestamp {
        self.now.now
    }

    /// Returns the moment of the step by the wall clock.
    pub fn wall(&self) -> Timestamp {
        self.now.wall
    }

    /// Returns when something ends that `lasts` for a while, and not in the first hour of a run: see [`end_of`].
    pub fn end_of(&self, since: Timestamp, lasts: Duration) -> Timestamp {
        end_of(later(since, lasts), lasts, self.began)
    }

    // Rows to save, as they are when the step ends.

    pub fn save_document(&mut self, source: usize, uri: Uri) {
        self.collected.documents.insert((source, uri));
    }

    pub fn save_documents(&mut self, source: usize, uris: impl Iterator<Item = Uri>) {
        let mut documents = uris.map(|uri| (source, uri)).collect();
        self.collected.documents.append(&mut documents);
    }

    pub fn save_trouble(&mut self, source: usize, uri: Uri) {
        self.collected.troubles.insert((source, uri));
    }

    pub fn save_channel(&mut self, id: ChannelId) {
        self.collected.channels.insert(id);
    }

    pub fn save_ledger(&mut self, id: ChannelId, hub: Hub) {
        self.collected.ledgers.insert((id, hub));
    }

    /// Deletes the account of a hub. Later saves of it in this step are those of a new account.
    pub fn end_account(&mut self, id: ChannelId, hub: Hub) {
        let account = (id, hub.clone());
        self.collected.rows.ended_accounts.insert(account);
        self.save_ledger(id, hub);
    }

    /// Saves what a hub was told of a document.
    pub fn save_told(&mut self, id: ChannelId, hub: Hub, uri: Uri) {
        self.collected.told.insert((id, hub, uri));
    }

    /// Returns the rows that are saved as they are here.
    pub fn rows(&mut self) -> &mut Save {
        &mut self.collected.rows
    }

    // Effects.

    /// Saves a channel, and serves its topic.
    pub fn serve(&mut self, id: ChannelId) {
        self.save_channel(id);
        self.serve_restored(id);
    }

    /// Serves the topic of a channel as it was saved.
    pub fn serve_restored(&mut self, id: ChannelId) {
        self.collected.serve.insert(id);
    }

    pub fn withdraw(&mut self, topic: Topic) {
        self.collected.withdraw.insert(topic);
    }

    pub fn submit(&mut self, submission: Submission, part: Option<LogPart>) {
        self.collected.submit.push((submission, part));
    }

    /// Requests a reading of Change Lists.
    pub fn take_changes(&mut self, request: TakeRequest) {
        self.collected.take.push(request);
    }

    pub fn look_at(&mut self, path: DocumentPath) {
        self.collected.look.insert(path);
    }

    pub fn explain(&mut self, path: DocumentPath) {
        self.collected.explain.insert(path);
    }

    pub fn tell(&mut self, fact: Fact) {
        self.collected.facts.push(fact);
    }

    // Timers.

    pub fn wake_at(&mut self, at: Timestamp, timer: Timer) {
        self.timers.push((at, timer));
    }

    pub fn wake_after(&mut self, wait: Duration, timer: Timer) {
        self.timers.push((later(self.now(), wait), timer));
    }

    /// Returns the timers that were set since the last call.
    pub fn take_timers(&mut self) -> std::vec::Drain<'_, (Timestamp, Timer)> {
        self.timers.drain(..)
    }

    /// Ends the step: returns what it collected, and forgets it.
    pub fn take(&mut self) -> Collected {
        std::mem::take(&mut self.collected)
    }
}
