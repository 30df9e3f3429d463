//! The event loop of `rsnotify hub`: takes publications and records, saves them together, and only then answers and
//! delivers. Many publications that wait are one transaction.

use std::mem;
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use crate::admin::Readiness;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::event_loop::Ended;
use crate::daemon::event_loop::commands::{CommandReply, ask_hub};
use crate::daemon::event_loop::state_saver::StateSaver;
use crate::daemon::event_loop::status_reporter::StatusReporter;
use crate::daemon::failpoints::{Failpoint, Failpoints};
use crate::hub::HubRecord;
use crate::hub::publication::PublicationRefusal;
use crate::hub::published_topics::{MAX_TOPICS, Publication, Published};
use crate::hub::publisher_counts::{PublisherView, views};
use crate::report;
use crate::report::figures::Counts;
use crate::report::status::{ConfigurationStatus, RefusedConfiguration, Status};
use crate::report::summary::Doing;
use crate::resourcesync::uri::Topic;
use crate::store::Store;
use crate::websub::hub::fetches::{FetchOutcome, Fetches};
use crate::websub::hub::hub_topics::TopicDirectory;
use crate::websub::hub::intake::{AcceptedRequest, PublicHub};

/// Maximum inputs that are taken into one step, and so into one transaction.
const MAX_INPUTS: usize = 4_096;
/// Time between two searches for topics to forget.
const FORGET_INTERVAL: Duration = Duration::from_secs(600);

/// The answer to a publication or a ping.
pub type PublicationReply = oneshot::Sender<Result<(), PublicationRefusal>>;

/// Inputs of the loop.
pub enum HubInput {
    /// A publication or pings, answered once they are saved.
    Accept(AcceptedRequest, PublicationReply),
    Fetched(Box<FetchOutcome>),
    /// Changes that the hub wants saved, all of them or none.
    Records(Vec<HubRecord>),
    /// A request for the status, as by the admin pages.
    Ask(oneshot::Sender<Status>),
    /// A request by a command.
    Command(ControlRequest, oneshot::Sender<ControlReply>),
    /// The reply to a command that the hub has executed; its records came before this.
    CommandDone(CommandReply),
    /// The hub has ended the deliveries that it had begun.
    Drained,
    Reload,
    Stop,
}

/// The parts that the loop is built from.
pub struct HubParts {
    pub store: Store,
    pub hub: PublicHub,
    pub directory: Arc<TopicDirectory>,
    pub fetches: Arc<Fetches>,
    pub topic_ttl: Duration,
    pub runtime: Handle,
    pub inputs: Sender<HubInput>,
    pub readiness: Readiness,
    pub configuration: ConfigurationStatus,
    pub failpoints: Failpoints,
    /// Start of the process.
    pub began: Timestamp,
}

/// The hub and the parts that act for it.
pub struct HubLoop {
    saver: StateSaver,
    hub: PublicHub,
    directory: Arc<TopicDirectory>,
    fetches: Arc<Fetches>,
    topic_ttl: Duration,
    forget_at: Instant,
    reporter: StatusReporter,
    /// Publications and pings of this step, which are answered once it is saved.
    accepted: Vec<AcceptedNow>,
    /// Pings that are fetched once they are saved.
    pings: Vec<(Topic, Arc<str>)>,
    replies: Vec<CommandReply>,
    counts: Counts,
    failpoints: Failpoints,
    inputs: Sender<HubInput>,
    runtime: Handle,
    is_draining: bool,
    /// Once it was told to stop: the end of the wait for work that is under way.
    stop_by: Option<Instant>,
}

/// A request that is answered once it is saved.
struct AcceptedNow {
    /// Nothing for what was fetched.
    reply: Option<PublicationReply>,
    publisher: Arc<str>,
    kind: AcceptedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AcceptedKind {
    New,
    Repeat,
    /// Counted when its fetch has succeeded.
    Ping,
}

impl HubLoop {
    /// Joins the parts. Fetches of an earlier run that did not succeed are begun with the first step.
    pub fn new(parts: HubParts) -> HubLoop {
        let HubParts {
            store,
            hub,
            directory,
            fetches,
            topic_ttl,
            runtime,
            inputs,
            readiness,
            configuration,
            failpoints,
            began,
        } = parts;
        let published = directory.read();
        let pings = published.pinged().map(|published| {
            let publisher = Arc::from(published.publisher.as_str());
            (published.topic.clone(), publisher)
        });
        let pings = pings.collect();
        drop(published);
        end_foreign_topics(&hub, &directory);
        HubLoop {
            saver: StateSaver::new(store),
            hub,
            directory,
            fetches,
            topic_ttl,
            forget_at: Instant::now(),
            reporter: StatusReporter::new(readiness, configuration),
            accepted: Vec::new(),
            pings,
            replies: Vec::new(),
            counts: Counts {
                began,
                ..Counts::default()
            },
            failpoints,
            inputs,
            runtime,
            is_draining: false,
            stop_by: None,
        }
    }

    /// Runs until the configuration is to be reloaded, or until it was told to stop: then it waits up to `grace` for
    /// answers of subscribers, and delivers nothing more.
    pub fn run(&mut self, received: &Receiver<HubInput>, grace: Duration) -> Ended {
        loop {
            let first = match received.recv_timeout(self.time_to_wait()) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ended::Stopped { by: Instant::now() };
                }
            };
            let is_ping_due = self.reporter.is_ping_due();
            let mut is_reload_wanted = false;
            for input in first
                .into_iter()
                .chain(received.try_iter().take(MAX_INPUTS))
            {
                match input {
                    HubInput::Stop => self.stop(grace),
                    HubInput::Reload => is_reload_wanted = true,
                    input => self.input(input),
                }
            }
            self.forget_topics();
            let is_saved = self.commit(is_ping_due);
            self.send_replies();
            self.report_health(is_saved);
            if is_ping_due {
                self.reporter.ping();
            }
            match self.stop_by {
                Some(by) if !self.is_draining || Instant::now() >= by => {
                    if self.is_draining {
                        warn!(
                            "shutdown timeout: subscribers did not answer in time; unanswered deliveries are retried at \
                             the next start"
                        );
                    }
                    return Ended::Stopped { by };
                }
                None if is_reload_wanted => return Ended::Reload,
                _ => {}
            }
        }
    }

    /// Saves inputs that came after the last step, once all senders are gone.
    pub fn finish(&mut self, received: &Receiver<HubInput>) -> Result<(), String> {
        for input in received.try_iter() {
            self.input(input);
        }
        self.saver.restore_file();
        // If saving failed before, it is retried now.
        let must_answer = self.saver.forget_trouble();
        self.commit(must_answer);
        self.send_replies();
        match self.saver.trouble() {
            None => Ok(()),
            Some(trouble) => Err(trouble.to_owned()),
        }
    }

    /// Takes note of a configuration that was loaded.
    pub fn configuration_loaded(&mut self, configuration: ConfigurationStatus, ttl: Duration) {
        self.topic_ttl = ttl;
        end_foreign_topics(&self.hub, &self.directory);
        self.reporter.loaded(configuration);
    }

    /// Takes note of a configuration that was refused.
    pub fn configuration_refused(&mut self, refused: RefusedConfiguration) {
        self.reporter.refused(refused);
    }

    fn time_to_wait(&self) -> Duration {
        let wakes = [self.reporter.wake(), self.stop_by, Some(self.forget_at)];
        let wakes = wakes.into_iter().flatten();
        let wake = wakes.fold(self.saver.wake(), Instant::min);
        wake.saturating_duration_since(Instant::now())
    }

    fn input(&mut self, input: HubInput) {
        match input {
            HubInput::Accept(request, reply) => self.accept(request, reply),
            HubInput::Fetched(outcome) => self.fetched(*outcome),
            HubInput::Records(records) => self.saver.unsaved().records.extend(records),
            // The client may have disconnected, before or during the answer.
            HubInput::Ask(answer) if answer.is_closed() => {}
            HubInput::Ask(answer) => {
                let _ = answer.send(self.status());
            }
            HubInput::Command(request, reply) => self.command(request, reply),
            HubInput::CommandDone(reply) => self.replies.push(reply),
            HubInput::Drained => self.is_draining = false,
            // The loop has taken note of it, or has ended.
            HubInput::Reload | HubInput::Stop => {}
        }
    }

    fn accept(&mut self, request: AcceptedRequest, reply: PublicationReply) {
        // While nothing can be saved, nothing is queued.
        if self.saver.trouble().is_some() || self.stop_by.is_some() {
            let _ = reply.send(Err(PublicationRefusal::Unsaved));
            return;
        }
        let (topics, publisher) = match &request {
            AcceptedRequest::Publication(publication) => {
                (slice::from_ref(&publication.topic), &publication.publisher)
            }
            AcceptedRequest::Pings { topics, publisher } => (&topics[..], publisher),
        };
        let directory = self.directory.read();
        let room = directory.verify_room(publisher, topics, MAX_TOPICS);
        drop(directory);
        if let Err(refusal) = room {
            let _ = reply.send(Err(refusal));
            return;
        }
        match request {
            AcceptedRequest::Publication(publication) => self.publish(publication, Some(reply)),
            AcceptedRequest::Pings { topics, publisher } => {
                let now = Timestamp::now();
                for topic in topics {
                    let saved = self.directory.write().ping(&topic, &publisher, now);
                    let record = HubRecord::Published(Box::new(saved));
                    self.saver.unsaved().records.push(record);
                    self.pings.push((topic, Arc::clone(&publisher)));
                }
                self.accepted.push(AcceptedNow {
                    reply: Some(reply),
                    publisher,
                    kind: AcceptedKind::Ping,
                });
            }
        }
    }

    /// Takes a publication: what it makes the hub owe is saved with the digest of its body.
    fn publish(&mut self, publication: Publication, reply: Option<PublicationReply>) {
        let now = Timestamp::now();
        let published = self.directory.write().publish(&publication, now);
        let unsaved = self.saver.unsaved();
        let Publication {
            topic,
            publisher,
            body,
            ..
        } = publication;
        let kind = match published {
            Published::New { seq, saved } => {
                unsaved.records.push(HubRecord::Published(Box::new(saved)));
                let owed = self.hub.hub.relay_to(&topic, seq, &body);
                unsaved.owed.extend(owed);
                debug!(%topic, %publisher, seq, "accepted notification {seq} of {topic} from {publisher}");
                AcceptedKind::New
            }
            Published::Repeat(saved) => {
                let saved = saved.map(|saved| HubRecord::Published(Box::new(saved)));
                unsaved.records.extend(saved);
                debug!(%topic, %publisher, "accepted a repeat on {topic} from {publisher}, which is not relayed");
                AcceptedKind::Repeat
            }
        };
        self.accepted.push(AcceptedNow {
            reply,
            publisher,
            kind,
        });
    }

    fn fetched(&mut self, outcome: FetchOutcome) {
        match outcome {
            // It was fetched before a reload.
            FetchOutcome::Fetched(Publication {
                topic, publisher, ..
            }) if !self.directory.may_publish(&publisher, &topic) => {
                self.withdraw(&topic, &publisher);
            }
            FetchOutcome::Fetched(publication) => self.publish(publication, None),
            FetchOutcome::Withdrawn { topic, publisher } => self.withdraw(&topic, &publisher),
            FetchOutcome::Unchanged {
                topic,
                publisher,
                began,
            } => {
                self.settle(&topic, began);
                self.accepted.push(AcceptedNow {
                    reply: None,
                    publisher,
                    kind: AcceptedKind::Repeat,
                });
            }
            FetchOutcome::Failed {
                topic,
                publisher,
                reason,
                began,
                is_first,
                is_last,
            } => {
                if is_last {
                    warn!(%topic, %publisher, "giving up on fetching {topic} after a ping of {publisher}: {reason}");
                    self.settle(&topic, began);
                } else if is_first {
                    warn!(%topic, %publisher, "cannot fetch {topic} after a ping of {publisher}, will retry: {reason}");
                }
                let now = Timestamp::now();
                self.hub
                    .count(&publisher, |counts| counts.failed_fetch(reason, now));
            }
        }
    }

    fn withdraw(&mut self, topic: &Topic, publisher: &str) {
        info!(%topic, %publisher, "dropped a ping of {publisher}, which may not publish {topic} any more");
        self.settle(topic, Timestamp::now());
    }

    fn settle(&mut self, topic: &Topic, began: Timestamp) {
        if let Some(saved) = self.directory.write().settle(topic, began) {
            let record = HubRecord::Published(Box::new(saved));
            self.saver.unsaved().records.push(record);
        }
    }

    /// Forgets topics (S3), at intervals.
    fn forget_topics(&mut self) {
        if Instant::now() < self.forget_at {
            return;
        }
        self.forget_at = Instant::now() + FORGET_INTERVAL;
        let hub = &self.hub.hub;
        let has_subscribers =
            |topic: &Topic| hub.inspect(|subscriptions| subscriptions.has_topic(topic));
        let mut topics = self.directory.write();
        let forgotten = topics.forget(self.topic_ttl, Timestamp::now(), has_subscribers);
        drop(topics);
        for topic in forgotten {
            info!(%topic, "forgot {topic}: nobody has published it for long, and nobody subscribes");
            let record = HubRecord::Forgotten(topic);
            self.saver.unsaved().records.push(record);
        }
    }

    /// Saves the changes of this step, answers publications, and delivers. Returns false while the state cannot be saved.
    fn commit(&mut self, must_answer: bool) -> bool {
        let saved = self
            .saver
            .save(must_answer, &self.failpoints, &mut self.counts);
        let accepted = mem::take(&mut self.accepted);
        let Some(saved) = saved else {
            // The changes are saved later; a publication that is sent again is answered then.
            for reply in accepted.into_iter().filter_map(|accepted| accepted.reply) {
                let _ = reply.send(Err(PublicationRefusal::Unsaved));
            }
            return false;
        };
        for AcceptedNow {
            reply,
            publisher,
            kind,
        } in accepted
        {
            if kind != AcceptedKind::Ping {
                let is_repeat = kind == AcceptedKind::Repeat;
                self.hub
                    .count(&publisher, |counts| counts.accepted(is_repeat));
            }
            if let Some(reply) = reply {
                // The client may have disconnected.
                let _ = reply.send(Ok(()));
            }
        }
        if !saved.owed.is_empty() {
            self.hub.hub.dispatch(saved.owed);
            self.failpoints.pass(Failpoint::Dispatched);
        }
        if self.stop_by.is_none() {
            let max = self.hub.settings().max_body;
            let _context = self.runtime.enter();
            for (topic, publisher) in self.pings.drain(..) {
                self.fetches.begin(topic, publisher, max);
            }
        }
        true
    }

    fn command(&mut self, request: ControlRequest, reply: oneshot::Sender<ControlReply>) {
        let answer = match request {
            ControlRequest::Subscriptions(about) => {
                let answer = ask_hub(&self.hub.hub, about, Timestamp::now());
                // The records of the hub wait before it in the queue, and so are saved before it is answered.
                let done = CommandReply::new(reply, answer);
                let _ = self.inputs.send(HubInput::CommandDone(done));
                return;
            }
            ControlRequest::Status => ControlReply::Status(Box::new(self.status())),
            _ => no_sources(),
        };
        self.replies.push(CommandReply::new(reply, answer));
    }

    /// Answers commands. None is reported as done while a crash could undo it.
    fn send_replies(&mut self) {
        for reply in self.replies.drain(..) {
            reply.send(self.saver.trouble());
        }
    }

    fn status(&self) -> Status {
        let mut status = report::of_hub(Timestamp::now());
        status.unsaved = self.saver.trouble().map(str::to_owned);
        status.embedded_hub = Some(self.hub.hub.status(status.at));
        status.publishers = self.publishers();
        status.configuration = Some(self.reporter.configuration().clone());
        let totals = report::totals(&self.counts, 0, status.embedded_hub.as_ref());
        status.last_day = self.reporter.last_day(status.at, totals);
        status.figures.counts = self.counts.clone();
        status
    }

    fn publishers(&self) -> Vec<PublisherView> {
        let publishers = self.directory.publishers();
        let counted = publishers
            .iter()
            .map(|publisher| (publisher, self.hub.counts(&publisher.name)));
        views(counted, &self.directory.read())
    }

    fn report_health(&mut self, is_saved: bool) {
        if self.reporter.stepped(is_saved, true, true) {
            self.failpoints.ready();
        }
        if self.stop_by.is_some() {
            return;
        }
        let HubLoop {
            saver,
            hub,
            reporter,
            counts,
            ..
        } = self;
        reporter.note_totals(|| {
            let status = hub.hub.status(Timestamp::now());
            report::totals(counts, 0, Some(&status))
        });
        reporter.report_activity(|configuration| match saver.trouble() {
            Some(trouble) => Doing::Waiting {
                trouble: trouble.to_owned(),
            },
            None => {
                let status = hub.hub.status(Timestamp::now());
                let refused = configuration.refused.as_ref();
                Doing::Relaying {
                    subscriptions: status.subscriptions,
                    owed: status.owed,
                    refused: refused.map(|refused| refused.error.clone()),
                }
            }
        });
    }

    /// Begins to shut down: begins no deliveries. A second call ends the wait.
    fn stop(&mut self, grace: Duration) {
        if self.stop_by.is_some() {
            self.stop_by = Some(Instant::now());
            return;
        }
        info!("stopping");
        self.reporter.stopping();
        self.stop_by = Some(Instant::now() + grace);
        self.is_draining = true;
        self.hub.stop();
        let (hub, inputs) = (self.hub.hub.clone(), self.inputs.clone());
        self.runtime.spawn(async move {
            hub.drain().await;
            let _ = inputs.send(HubInput::Drained);
        });
    }
}

/// Ends the subscriptions to topics that no publisher may publish any more.
fn end_foreign_topics(hub: &PublicHub, directory: &TopicDirectory) {
    let publishers = directory.publishers();
    let is_foreign = |topic: &&Topic| publishers.of_topic(topic).is_none();
    let foreign: Vec<Topic> = hub.hub.inspect(|subscriptions| {
        let foreign = subscriptions.topics().filter(is_foreign);
        foreign.cloned().collect()
    });
    for topic in foreign {
        hub.hub.end_topic(&topic);
    }
}

/// Returns the answer to a command about sources or hubs, where there are none.
pub fn no_sources() -> ControlReply {
    let words = "this is `rsnotify hub`, which has no sources and no outbox: `rsnotify status` and `rsnotify \
                 subscriptions` tell of it";
    ControlReply::Error(words.to_owned())
}
