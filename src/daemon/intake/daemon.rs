//! `rsnotify hub` started and reloaded: the parts are made from the configuration, and changed when it changes.

use std::sync::Arc;

use anyhow::Context;
use websub::http::Clock;
use websub::http::server::ServerLimits;
use websub::hub::http::fetches::Fetches;
use websub::hub::http::public::serve_hub;
use websub::hub::http::settings::PreparedHub;
use websub::hub::http::topic_client::TopicClient;
use websub::hub::publication::http::{IntakeSettings, PublicHub};
use websub::hub::published_topics::PublishedTopics;
use websub::hub::published_topics::directory::{HubTopics, TopicDirectory};
use websub::retry::end_of;

use crate::config::hub_config::HubConfig;
use crate::config::publisher;
use crate::daemon::event_loop::{EventLoop, Input};
use crate::daemon::intake::{HubParts, Intake, PublisherInput, end_foreign_topics};
use crate::daemon::process::Process;
use crate::daemon::{Daemon, configuration_status};
use crate::state::hub;
use crate::state::open::StateFile;
use crate::state::{Db, last_time_saved};

impl Daemon<Intake, HubConfig> {
    /// Starts everything.
    pub fn relaying(config: HubConfig) -> anyhow::Result<Daemon<Intake, HubConfig>> {
        let mut process = Process::begin()?;
        let handle = process.runtime.handle().clone();
        let _context = handle.enter();
        let (file, connection) = StateFile::open(&config.state_dir)?;
        file.claim(&connection, true)?;
        let load_error = |error| file.load_error(error);
        let (public, admin) = process.listeners(&config.server)?;

        let published = hub::load_published_topics(Db(&connection)).map_err(load_error)?;
        let topics = PublishedTopics::restore(published);
        let publishers = publisher::plan(&config.publishers);
        let client = TopicClient::new().context("cannot build the HTTP client for topics")?;
        client.set_publishers(&publishers);
        let directory = Arc::new(TopicDirectory::new(topics, publishers));
        let client = Arc::new(client);
        let settings = PreparedHub::new(config.hub.settings(config.hub.url.clone()))?;
        let saved = hub::load_from(&file.path).map_err(load_error)?;
        let clock = Clock::start(last_time_saved(&connection).map_err(load_error)?);
        let mut parts: HubParts = process.loop_parts(file, clock);
        let topics = HubTopics::Published(Arc::clone(&directory));
        let subscribers = parts.start_hub(settings, saved, topics);
        parts.hub.link(Some(subscribers.clone()));
        let accept_inputs = parts.inputs.clone();
        let hub = PublicHub::new(
            subscribers,
            intake_settings(&config),
            Arc::clone(&directory),
            Arc::clone(&client),
            move |request, reply| {
                // A stopped loop answers by dropping the reply.
                let input = PublisherInput::Accept(request, reply);
                let _ = accept_inputs.send(Input::Work(input));
            },
        );
        let fetched = parts.inputs.clone();
        let fetches = Fetches::new(client, Arc::clone(&directory), clock, move |outcome| {
            let input = PublisherInput::Fetched(Box::new(outcome));
            let _ = fetched.send(Input::Work(input));
        });
        end_foreign_topics(&hub, &directory);
        // Fetches of an earlier run that did not succeed are begun with the first step.
        let published = directory.read();
        let pinged = published.topics().values();
        let pinged = pinged.filter(|published| published.pinged.is_some());
        let pings = pinged.map(|published| {
            let publisher = Arc::from(published.publisher.as_str());
            (published.topic.clone(), publisher)
        });
        let pings = pings.collect();
        drop(published);
        let topic_ttl = config.hub.topic_ttl.0;
        let intake = Intake {
            connection,
            hub: hub.clone(),
            directory,
            fetches: Arc::new(fetches),
            topic_ttl,
            forget_at: end_of(clock.began, topic_ttl, clock.began),
            replies: Vec::new(),
            accepted: Vec::new(),
            pings,
        };
        let event_loop = EventLoop::new(intake, parts, configuration_status(&config));
        let public = public.serve(&mut process.tasks, |listener, ended| {
            serve_hub(listener, hub, ServerLimits::default(), ended)
        });
        Ok(process.into_daemon(event_loop, config, public, admin))
    }

    /// Puts another configuration into effect.
    pub fn apply_hub_config(&mut self, config: &HubConfig) -> anyhow::Result<()> {
        let settings = PreparedHub::new(config.hub.settings(config.hub.url.clone()))?;
        // Nothing fails from here on.
        let intake = &mut self.event_loop.role;
        let publishers = publisher::plan(&config.publishers);
        intake.hub.embedded.apply(settings);
        intake.hub.apply(intake_settings(config), publishers);
        intake.topic_ttl = config.hub.topic_ttl.0;
        end_foreign_topics(&intake.hub, &intake.directory);
        Ok(())
    }
}

fn intake_settings(config: &HubConfig) -> IntakeSettings {
    IntakeSettings {
        hub: config.hub.url.clone(),
        max_body: config.hub.max_body.0 as usize,
        publications_per_minute: (config.hub.max_publications_per_minute)
            .unwrap_or(config.hub.max_requests_per_minute),
    }
}
