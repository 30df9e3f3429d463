//! The work of `rsnotify hub`: publications and pings of many Sources, each answered once it is saved, and the fetches
//! that pings ask for. It is started and reloaded here: the parts are made from the configuration, and changed with it.

use std::slice;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use resourcesync::uri::Topic;
use rusqlite::Connection;
use tracing::{debug, info, warn};
use websub::http::server::ServerLimits;
use websub::http::{BoxedFn, Clock, Replaceable, read, write};
use websub::hub::http::HubSetup;
use websub::hub::publication::http::{
    AcceptedRequest, PublicHub, PublicHubLimits, PublicationReply, ShutdownStage,
};
use websub::hub::publication::{PublicationRefusal, Publisher, views};
use websub::hub::published_topics::http::{
    AttemptPosition, FetchOutcome, FetchReport, Fetches, HubTopics, TopicClient, TopicRegistry,
};
use websub::hub::published_topics::{MAX_TOPICS, NewOrRepeat, Publication, PublishedTopics};
use websub::hub::request::http::serve_public_hub;
use websub::hub::{HubRecord, Relay, RelayId};
use websub::retry::end_after_restart;

use crate::config::hub_config::HubConfig;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::event_loop::{DaemonRole, EventLoop, Input, LoopParts, SweepReadiness};
use crate::daemon::{Daemon, StartingDaemon, configuration_status};
use crate::report;
use crate::report::status::{Detail, Status};
use crate::report::summary::public_hub_line;
use announce::state::open::{StateFile, StateFileError};
use announce::state::{self, Db, hub, last_time_saved};
use announce::time::later;

/// Time between two searches for topics to forget.
const FORGET_INTERVAL: Duration = Duration::from_secs(600);

/// The answer to a command about sources or hubs, where there are none.
pub const NO_SOURCES: &str = "this is `rsnotify hub`, which has no sources and no outbox: `rsnotify status` and \
                              `rsnotify subscriptions` tell of it";

/// Inputs of `rsnotify hub` alone.
pub enum PublicHubInput {
    /// A publication or pings, answered once they are saved.
    Accept(AcceptedRequest, PublicationReply),
    Fetched(Box<FetchReport>),
}

/// The parts of the loop of `rsnotify hub`.
pub type HubParts = LoopParts<PublicHubInput>;

/// The role of `rsnotify hub`: takes in publications of many Sources, and saves and relays those of a step.
pub struct PublicHubRole {
    connection: Connection,
    hub: Arc<PublicHub>,
    directory: Arc<TopicRegistry>,
    fetches: Arc<Fetches>,
    topic_ttl: Duration,
    /// The time to search for topics to forget.
    forget_at: Timestamp,
    /// Replies to the publications and pings of this step, sent once it is saved.
    replies: Vec<PublicationReply>,
    /// Publishers of what was published or fetched in this step, each with whether it was a repeat. A ping counts when its
    /// fetch has succeeded.
    accepted: Vec<(Arc<str>, bool)>,
    /// Pings that are fetched once they are saved.
    pings: Vec<(Topic, Arc<str>)>,
}

impl PublicHubRole {
    fn accept(&mut self, request: AcceptedRequest, reply: PublicationReply, parts: &mut HubParts) {
        // While nothing can be saved, nothing is queued.
        if parts.saver.trouble.is_some() || parts.stop_by.is_some() {
            let _ = reply.send(Err(PublicationRefusal::Unsaved));
            return;
        }
        let (topics, publisher) = match &request {
            AcceptedRequest::Publication(publication) => {
                (slice::from_ref(&publication.topic), &publication.publisher)
            }
            AcceptedRequest::Pings { topics, publisher } => (&topics[..], publisher),
        };
        let room = read(&self.directory.topics).check_quota(publisher, topics, MAX_TOPICS);
        if let Err(refusal) = room {
            let _ = reply.send(Err(refusal));
            return;
        }
        match request {
            AcceptedRequest::Publication(publication) => self.publish(publication, parts),
            AcceptedRequest::Pings { topics, publisher } => {
                let now = parts.clock.now();
                for topic in topics {
                    let saved = write(&self.directory.topics).take_ping(&topic, &publisher, now);
                    let record = HubRecord::Published(Box::new(saved));
                    parts.saver.unsaved.records.push(record);
                    self.pings.push((topic, Arc::clone(&publisher)));
                }
            }
        }
        self.replies.push(reply);
    }

    /// Takes a publication: what it makes the hub owe is saved with the digest of its body.
    fn publish(&mut self, publication: Publication, parts: &mut HubParts) {
        let now = parts.clock.now();
        let published = write(&self.directory.topics).publish(&publication, now);
        let unsaved = &mut parts.saver.unsaved;
        let (topic, publisher) = (publication.topic, publication.publisher);
        let is_repeat = match published {
            NewOrRepeat::New(saved) => {
                let seq = saved.seq;
                unsaved.records.push(HubRecord::Published(Box::new(saved)));
                let owed = self.hub.embedded.number_new_relay(Relay {
                    id: RelayId::default(),
                    topic: topic.clone(),
                    seq,
                    body: publication.body,
                    headers: publication.headers,
                });
                unsaved.owed.extend(owed);
                debug!(%topic, %publisher, seq, "accepted notification {seq} of {topic} from {publisher}");
                false
            }
            NewOrRepeat::Repeat(saved) => {
                let saved = saved.map(|saved| HubRecord::Published(Box::new(saved)));
                unsaved.records.extend(saved);
                debug!(%topic, %publisher, "accepted a repeat on {topic} from {publisher}, which is not relayed");
                true
            }
        };
        self.accepted.push((publisher, is_repeat));
    }

    fn handle_fetch(&mut self, report: FetchReport, parts: &mut HubParts) {
        let (topic, publisher, began) = (report.topic, report.publisher, report.began);
        match report.outcome {
            // It was fetched before a reload.
            FetchOutcome::Fetched(_) if !self.directory.may_publish(&publisher, &topic) => {
                self.drop_ping(&topic, &publisher, parts);
            }
            FetchOutcome::Fetched(publication) => self.publish(publication, parts),
            FetchOutcome::Withdrawn => self.drop_ping(&topic, &publisher, parts),
            FetchOutcome::Unchanged => {
                self.end_ping(&topic, began, parts);
                self.accepted.push((publisher, true));
            }
            FetchOutcome::Failed(attempt, reason) => {
                match attempt {
                    AttemptPosition::First => {
                        warn!(%topic, %publisher, "cannot fetch {topic} after a ping of {publisher}, will retry: {reason}");
                    }
                    AttemptPosition::Again => {}
                    AttemptPosition::Last => {
                        warn!(%topic, %publisher, "giving up on fetching {topic} after a ping of {publisher}: {reason}");
                        self.end_ping(&topic, began, parts);
                    }
                }
                let now = parts.clock.now();
                self.hub
                    .update_counts(&publisher, |counts| counts.count_failed_fetch(reason, now));
            }
        }
    }

    fn drop_ping(&self, topic: &Topic, publisher: &str, parts: &mut HubParts) {
        info!(%topic, %publisher, "dropped a ping of {publisher}, which may not publish {topic} any more");
        self.end_ping(topic, parts.clock.now(), parts);
    }

    /// Takes note that a ping needs no fetch any more.
    fn end_ping(&self, topic: &Topic, began: Timestamp, parts: &mut HubParts) {
        let saved = write(&self.directory.topics).end_ping(topic, began);
        let record = saved.map(|saved| HubRecord::Published(Box::new(saved)));
        parts.saver.unsaved.records.extend(record);
    }

    /// Forgets topics (S3), at intervals.
    fn forget_topics(&mut self, parts: &mut HubParts) {
        let now = parts.clock.now();
        if now < self.forget_at {
            return;
        }
        self.forget_at = later(now, FORGET_INTERVAL);
        let hub = &self.hub.embedded;
        let has_subscribers =
            |topic: &Topic| hub.with_subscriptions(|all| !all.of_topic(topic).is_empty());
        let mut topics = write(&self.directory.topics);
        let forgotten = topics.forget_unused(self.topic_ttl, now, has_subscribers);
        drop(topics);
        for topic in forgotten {
            info!(%topic, "forgot {topic}: nobody has published it for long, and nobody subscribes");
            let record = HubRecord::Forgotten(topic);
            parts.saver.unsaved.records.push(record);
        }
    }
}

impl DaemonRole for PublicHubRole {
    type Input = PublicHubInput;
    type Config = HubConfig;

    const UNSAVED_CHANGES: &'static str = "; deliveries may be repeated at the next start";

    fn apply_config(daemon: &mut Daemon<PublicHubRole>, config: &HubConfig) -> anyhow::Result<()> {
        let settings = HubSetup::new(config.hub.settings(config.hub.url.clone()))?;
        // Nothing fails from here on.
        let intake = &mut daemon.event_loop.role;
        let publishers = config.publisher_plan();
        intake.hub.embedded.apply_settings(settings);
        intake
            .hub
            .apply_settings(public_hub_settings(config), publishers);
        intake.topic_ttl = config.hub.topic_ttl.0;
        end_foreign_subscriptions(&intake.hub, &intake.directory);
        Ok(())
    }

    fn take_input(&mut self, input: PublicHubInput, parts: &mut HubParts) {
        match input {
            PublicHubInput::Accept(request, reply) => self.accept(request, reply, parts),
            PublicHubInput::Fetched(report) => self.handle_fetch(*report, parts),
        }
    }

    /// Returns true if somebody waits for an answer, which follows the commit.
    fn has_inputs(&self) -> bool {
        !(self.replies.is_empty() && self.accepted.is_empty() && self.pings.is_empty())
    }

    fn wake_time(&self) -> Option<Timestamp> {
        Some(self.forget_at)
    }

    fn commit_step(&mut self, parts: &mut HubParts, _: bool) -> Result<(), StateFileError> {
        self.forget_topics(parts);
        let (saver, failpoints) = (&mut parts.saver, &parts.failpoints);
        saver.file.sync_commits(&self.connection, true)?;
        let changes = &saver.unsaved;
        let now = parts.clock.now();
        let mut write = || {
            let transaction = self.connection.transaction()?;
            let db = Db(&transaction);
            changes.write(db)?;
            state::save_time(db, now, Timestamp::now())?;
            failpoints.pass_step(false, &[], &[], &changes.records);
            Ok(transaction.commit()?)
        };
        write().map_err(|error| saver.file.save_error(error))?;
        failpoints.pass_step(true, &[], &[], &changes.records);
        Ok(())
    }

    fn perform_effects(&mut self, parts: &mut HubParts) {
        for (publisher, is_repeat) in self.accepted.drain(..) {
            self.hub
                .update_counts(&publisher, |counts| counts.count_accepted(is_repeat));
        }
        for reply in self.replies.drain(..) {
            // The client may have disconnected.
            let _ = reply.send(Ok(()));
        }
        if parts.stop_by.is_some() {
            // They are saved, and fetched at the next start.
            self.pings.clear();
        }
        let max = self.hub.settings.get().max_body;
        let _context = parts.runtime.enter();
        for (topic, publisher) in self.pings.drain(..) {
            self.fetches.begin(topic, publisher, max);
        }
    }

    /// Keeps the changes, which are saved later, and refuses their publications; one that is sent again is answered
    /// once they are saved.
    fn note_unsaved(&mut self) {
        self.accepted.clear();
        for reply in self.replies.drain(..) {
            let _ = reply.send(Err(PublicationRefusal::Unsaved));
        }
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn answer(&mut self, _: ControlRequest, _: Timestamp) -> ControlReply {
        ControlReply::Error(NO_SOURCES.to_owned())
    }

    fn status(&self, _: Detail, now: Timestamp, _: &HubParts) -> state::Result<Status> {
        let publishers = self.directory.publishers.get();
        let counts = |publisher: &Publisher| self.hub.counts(&publisher.name);
        let counted = publishers.0.iter().map(|one| (one, counts(one)));
        Ok(Status {
            publishers: views(counted, &read(&self.directory.topics)),
            unknown_tokens: self.hub.unknown_tokens(),
            ..report::empty_status(now)
        })
    }

    fn end_step(&mut self) -> SweepReadiness {
        SweepReadiness::Complete
    }

    fn activity(&self, refused: Option<&str>, parts: &HubParts) -> String {
        let status = self.hub.embedded.status(parts.clock.now());
        public_hub_line(status.subscriptions, status.owed, refused)
    }

    fn stop(&mut self) {
        self.hub.stage.send_replace(ShutdownStage::Stopping);
    }

    fn note_loop_end(&mut self) {
        self.hub.stage.send_replace(ShutdownStage::Ended);
    }
}

impl Daemon<PublicHubRole> {
    /// Starts everything.
    pub fn start_public_hub(config: HubConfig) -> anyhow::Result<Daemon<PublicHubRole>> {
        let mut process = StartingDaemon::begin()?;
        let handle = process.runtime.handle().clone();
        let _context = handle.enter();
        let (file, connection) = StateFile::open(&config.state_dir)?;
        file.claim_kind(&connection, true)?;
        let load_error = |error| file.load_error(error);
        let (public, admin) = process.listeners(&config.server)?;

        let published = hub::load_published_topics(Db(&connection)).map_err(load_error)?;
        let topics = PublishedTopics::restore(published);
        let publishers = config.publisher_plan();
        let directory = Arc::new(TopicRegistry {
            topics: RwLock::new(topics),
            publishers: Replaceable::new(publishers),
        });
        let client = TopicClient::new(Arc::clone(&directory));
        let client = Arc::new(client.context("cannot build the HTTP client for topics")?);
        let settings = HubSetup::new(config.hub.settings(config.hub.url.clone()))?;
        let saved = hub::load_from(&file.path).map_err(load_error)?;
        let clock = Clock::start(last_time_saved(&connection).map_err(load_error)?);
        let mut parts: HubParts = process.loop_parts(file, clock);
        let topics = HubTopics::Published(Arc::clone(&directory));
        let subscribers = parts.start_hub(settings, saved, topics);
        parts.hub.link(Some(subscribers.clone()));
        let accept_inputs = parts.inputs.clone();
        let hub = PublicHub::new(
            subscribers,
            public_hub_settings(&config),
            Arc::clone(&client),
            BoxedFn(Box::new(move |request, reply| {
                // A stopped loop answers by dropping the reply.
                let input = PublicHubInput::Accept(request, reply);
                let _ = accept_inputs.send(Input::Work(input));
            })),
        );
        let fetched = parts.inputs.clone();
        let fetches = Fetches::new(client, clock, move |outcome| {
            let input = PublicHubInput::Fetched(Box::new(outcome));
            let _ = fetched.send(Input::Work(input));
        });
        end_foreign_subscriptions(&hub, &directory);
        // Fetches of an earlier run that did not succeed are begun with the first step.
        let published = read(&directory.topics);
        let topics = published.topics().values();
        let pinged = topics.filter(|published| published.pinged.is_some());
        let pings = pinged.map(|published| {
            let publisher = Arc::from(published.publisher.as_str());
            (published.topic.clone(), publisher)
        });
        let pings = pings.collect();
        drop(published);
        let topic_ttl = config.hub.topic_ttl.0;
        let intake = PublicHubRole {
            connection,
            hub: hub.clone(),
            directory,
            fetches: Arc::new(fetches),
            topic_ttl,
            forget_at: end_after_restart(clock.began, topic_ttl, clock.began),
            replies: Vec::new(),
            accepted: Vec::new(),
            pings,
        };
        let event_loop = EventLoop::new(intake, parts, configuration_status(&config));
        let public = public.serve(&mut process.tasks, |listener, ended| {
            serve_public_hub(listener, hub, ServerLimits::default(), ended)
        });
        Ok(process.start(event_loop, config, public, admin))
    }
}

fn public_hub_settings(config: &HubConfig) -> PublicHubLimits {
    PublicHubLimits {
        max_body: config.hub.max_body.0 as usize,
        publications_per_minute: (config.hub.max_publications_per_minute)
            .unwrap_or(config.hub.max_requests_per_minute),
    }
}

/// Ends the subscriptions to topics that no publisher may publish any more.
fn end_foreign_subscriptions(hub: &PublicHub, directory: &TopicRegistry) {
    let publishers = directory.publishers.get();
    let is_foreign = |topic: &&Topic| publishers.of_topic(topic).is_none();
    let foreign: Vec<Topic> = hub.embedded.with_subscriptions(|subscriptions| {
        subscriptions.topics().filter(is_foreign).cloned().collect()
    });
    for topic in foreign {
        hub.embedded.end_topic(&topic);
    }
}
