//! `rsnotify run` started and reloaded: the parts are made from the configuration, and changed when it changes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use jiff::Timestamp;
use messaging::client::Brokers;
use resourcesync::uri::{Hub, Uri};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::warn;
use url::Url;
use websub::http::Clock;
use websub::hub::SavedHub;
use websub::hub::http::{EmbeddedHubSettings, HubSetup, HubStartError};
use websub::hub::published_topics::http::HubTopics;
use websub::publisher::http::{HubClients, Submitter};
use websub::topics::http::Topics;

use crate::config::Config;
use crate::config::file::ConfigError;
use crate::config::text::Address;
use crate::daemon::announcer::hubs::Submissions;
use crate::daemon::announcer::watched_trees::{WatchedTrees, covers_plan};
use crate::daemon::announcer::{Announcer, AnnouncerInput, RunParts, read_clocks};
use crate::daemon::change_reader::ChangeReader;
use crate::daemon::event_loop::{DaemonRole, EventLoop, Input};
use crate::daemon::failpoints::Failpoint;
use crate::daemon::listen::{BoundListener, ListenerRole, RunningListener, bind};
use crate::daemon::{Daemon, StartingDaemon, admin_pages, configuration_status};
use announce::event::Event;
use announce::plan::{MountPlan, Plan};
use announce::state::open::StateFile;
use announce::state::{self, last_time_saved};
use announce::steps::engine::Engine;

impl Daemon<Announcer> {
    /// Starts everything. All that can fail for want of permission or a free address does so before the first file is
    /// read.
    pub fn start_announcer(config: Config) -> anyhow::Result<Daemon<Announcer>> {
        let mut process = StartingDaemon::begin()?;
        let handle = process.runtime.handle().clone();
        let _context = handle.enter();
        let hubs = config.publish_settings()?;
        let submitter = Arc::new(Submitter::new(hubs.clone())?);
        let submission_runtime = submission_runtime()?;
        let brokers = config.broker_settings()?;
        let brokers = Arc::new(Brokers::new(brokers, &submission_runtime));
        let (file, connection) = StateFile::open(&config.state_dir)?;
        file.claim_kind(&connection, false)?;
        let (public, admin) = process.listeners(&config.server)?;
        let public_url = public_url(&config, public.listener.tcp_address())?;
        let prepared_hub = prepared_hub(&config, &public_url)?;

        let load_error = |error| file.load_error(error);
        let saved = saved_subscriptions(&file, prepared_hub.is_some()).map_err(load_error)?;
        let clock = Clock::start(last_time_saved(&connection).map_err(load_error)?);
        let plan = config.plan(&public_url);
        let (engine, effects) = Engine::start(connection, plan, read_clocks(clock))
            .map_err(|error| file.save_error(error))?;
        let parts: RunParts = process.loop_parts(file, clock);
        let inputs = parts.inputs.clone();
        let topics = Topics::new(move |topic| {
            // A stopped loop ignores it.
            let event = Event::Fetched(topic);
            let _ = inputs.send(Input::Work(AnnouncerInput::Event(event)));
        });
        let submissions = Submissions {
            submitter,
            brokers,
            runtime: submission_runtime,
            under_way: BTreeSet::new(),
            unreached: Arc::default(),
            probes: JoinSet::new(),
        };
        let (inputs, failpoints) = (parts.inputs.clone(), parts.failpoints.clone());
        let taken = move |request, outcome, took| {
            failpoints.pass(Failpoint::Taken);
            // If the loop has stopped, the next start reads again.
            let input = AnnouncerInput::Read(request, outcome, took);
            let _ = inputs.send(Input::Work(input));
        };
        let announcer = Announcer {
            engine,
            trees: WatchedTrees::new(parts.inputs.clone(), parts.counts.began),
            topics: topics.clone(),
            unclaimed: BTreeSet::new(),
            submissions,
            change_reader: ChangeReader::start(taken),
            has_learned: false,
            inputs: Vec::new(),
            effects,
            commanded: None,
        };
        let mut event_loop = EventLoop::new(announcer, parts, configuration_status(&config));
        let EventLoop { role, parts, .. } = &mut event_loop;
        let Announcer { trees, engine, .. } = &mut *role;
        let started = trees.start_generation(&config, &engine.plan, engine.db());
        // No step yet: topics are served as they were saved. What it submits to the embedded hub, that must take once it is
        // there: its deliveries contain the links of the topics, and it must exist before a report of a tree is taken.
        role.perform_effects(parts);
        parts.change_hub(prepared_hub, saved, HubTopics::Served(topics.clone()));
        role.trees.current = Some(started?);
        role.submissions.probe(hubs);
        let public = public.serve_public(&mut process.tasks, topics, parts.hub.open.subscribe());
        Ok(process.start(event_loop, config, public, admin))
    }

    /// Puts another configuration into effect.
    pub fn apply_config(&mut self, config: &Config) -> anyhow::Result<()> {
        let hubs = config.publish_settings()?;
        let clients = HubClients::new(hubs.clone())?;
        let brokers = config.broker_settings()?;
        let (public, admin) = (&self.public, &self.admin);
        let new_public =
            self.bind_if_moved(public, &config.server.listen.0, ListenerRole::Public)?;
        let new_admin =
            self.bind_if_moved(admin, &config.server.admin_listen.0, ListenerRole::Admin)?;
        let tcp = match &new_public {
            Some(elsewhere) => elsewhere.listener.tcp_address(),
            None => public.tcp,
        };
        let public_url = public_url(config, tcp)?;
        let prepared_hub = prepared_hub(config, &public_url)?;
        let is_first_hub = prepared_hub.is_some() && self.event_loop.parts.hub.linked.is_none();
        let saved = saved_subscriptions(&self.event_loop.parts.saver.file, is_first_hub)?;
        let plan = config.plan(&public_url);
        let old_url = &self.event_loop.role.engine.plan.public_url;
        let is_other_plan =
            plan != self.config.plan(old_url) || config.sources != self.config.sources;

        if is_other_plan {
            self.event_loop.change_plan(config, plan)?;
        }

        // Nothing fails from here on.
        let EventLoop { role, parts, .. } = &mut self.event_loop;
        role.submissions.submitter.replace_clients(clients);
        let runtime = &role.submissions.runtime;
        role.submissions.brokers.reconfigure(brokers, runtime);
        role.submissions.probe(hubs);
        for hub in changed_hubs(&self.config, config) {
            role.keep(Event::HubChanged(hub), false);
        }
        // R23. The engine of another plan retries by itself.
        if !is_other_plan {
            role.keep(Event::Retry { only: None }, false);
        }
        let topics = role.topics.clone();
        parts.change_hub(prepared_hub, saved, HubTopics::Served(topics.clone()));
        if let Some(elsewhere) = new_public {
            elsewhere.log_address();
            let (tasks, hub) = (&mut self.tasks, parts.hub.open.subscribe());
            self.public = elsewhere.serve_public(tasks, topics, hub);
        }
        if let Some(elsewhere) = new_admin {
            elsewhere.log_address();
            let pages = admin_pages(
                &config.server,
                &self.event_loop.readiness,
                &self.event_loop.parts.inputs,
            );
            self.admin = elsewhere.serve_admin(&mut self.tasks, pages);
        }
        self.warn_of_ignored_addresses(config);
        Ok(())
    }

    /// Binds a listener whose address has changed to the new one.
    fn bind_if_moved(
        &self,
        served: &RunningListener,
        address: &Address,
        role: ListenerRole,
    ) -> anyhow::Result<Option<BoundListener>> {
        // A listener that the service manager passed is always right.
        let is_elsewhere = |bound: &Address| bound != address;
        let is_elsewhere = served.address.as_ref().is_some_and(is_elsewhere);
        let binding = is_elsewhere.then(|| self.runtime.block_on(bind(address, role)));
        binding.transpose()
    }

    fn warn_of_ignored_addresses(&self, config: &Config) {
        let (old, new) = (&self.config.server, &config.server);
        if self.public.address.is_none() && old.listen != new.listen {
            warn!(
                "server.listen is ignored: the socket passed by the service manager stays in use"
            );
        }
        if self.admin.address.is_none() && old.admin_listen != new.admin_listen {
            warn!(
                "server.admin_listen is ignored: the socket passed by the service manager stays in use"
            );
        }
    }
}

impl EventLoop<Announcer> {
    /// Puts another plan into effect. Whatever fails, fails before anything is given up. Submissions that are under way
    /// stay so, and topics are served throughout.
    fn change_plan(&mut self, config: &Config, plan: Plan) -> anyhow::Result<()> {
        let began = Timestamp::now();
        if !self.save_and_perform()
            && let Some(trouble) = &self.parts.saver.trouble
        {
            bail!("the plan cannot change while the state is not saved: {trouble}");
        }
        let announcer = &mut self.role;
        let was_settled = announcer.trees.was_settled || announcer.has_swept_all();
        let Announcer { engine, trees, .. } = announcer;
        let before = engine.plan.clone();
        let now = read_clocks(self.parts.clock);
        let (next, effects) = engine.change_plan(plan, now, |db, plan| -> anyhow::Result<_> {
            trees.start_generation(config, plan, db)
        })?;
        // Mounts that the plan does not have are counted no more.
        let (counts, sources) = (&mut self.parts.counts, &announcer.engine.plan.sources);
        let hints = announcer.trees.hint_counts(&before, &counts.hints);
        counts.hints.extend(hints);
        counts.mounts.retain(|(source, directory), _| {
            let is_same = |mount: &MountPlan| mount.directory.to_string_lossy() == *directory;
            let mut sources = sources.iter().filter(|plan| plan.name == *source);
            sources.any(|source| source.mounts.iter().any(is_same))
        });
        let is_covered = covers_plan(&before, &announcer.engine.plan);
        let was_settled = was_settled && announcer.has_learned && is_covered;
        announcer.has_learned = was_settled;
        announcer.trees.replace(next, began, was_settled);
        announcer.unclaimed = announcer.topics.served();
        announcer.effects.extend(effects);
        Ok(())
    }
}

/// Returns the runtime of a thread for submissions: on the threads that serve, each submission would wake another. It
/// ends with the process, because submissions that are under way then are repeated at the next start.
fn submission_runtime() -> anyhow::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the submission thread")?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("submitting".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("cannot start the submission thread")?;
    Ok(handle)
}

/// Returns the URL of the public listener. The configuration cannot know the address of one that the service manager
/// passed.
fn public_url(config: &Config, bound: Option<SocketAddr>) -> Result<Uri, ConfigError> {
    let message = match (&config.server.public_url, bound) {
        (Some(url), _) => return Ok(url.clone()),
        (None, Some(address)) if !address.ip().is_unspecified() => {
            return Ok(config.server.public_url_at(address));
        }
        (None, Some(address)) => format!("nobody can reach {address} under that name: set it"),
        (None, None) => "a Unix socket says nothing about how it is reached: set it".to_owned(),
    };
    Err(ConfigError::Invalid(format!(
        "server.public_url: {message}"
    )))
}

/// Loads what an embedded hub starts with, if one `is_wanted`.
fn saved_subscriptions(file: &StateFile, is_wanted: bool) -> state::Result<SavedHub> {
    let saved = is_wanted.then(|| state::hub::load_from(&file.path));
    Ok(saved.transpose()?.unwrap_or_default())
}

fn prepared_hub(config: &Config, public_url: &Uri) -> Result<Option<HubSetup>, HubStartError> {
    let embedded = config.embedded_hub.as_ref();
    let settings = embedded.map(|embedded| {
        // Without a file, requests must name a host of ours: a browser on this machine may be led to it.
        let url = Url::parse(public_url.as_str()).ok();
        let host = url.and_then(|url| url.host_str().map(str::to_owned));
        EmbeddedHubSettings {
            own_hosts: config.file.is_none().then(|| host.into_iter().collect()),
            ..embedded.settings(embedded.hub_uri(public_url))
        }
    });
    settings.map(HubSetup::new).transpose()
}

/// Returns the hubs and brokers whose addresses or credentials change.
fn changed_hubs(before: &Config, after: &Config) -> Vec<Hub> {
    let hubs = after.hubs.iter().filter(|hub| {
        let mut before = before.hubs.iter();
        before.any(|before| before.hub == hub.hub && before != *hub)
    });
    let brokers = after.brokers.iter().filter(|broker| {
        let mut before = before.brokers.iter();
        before.any(|before| before.name == broker.name && before != *broker)
    });
    let brokers = brokers.map(|broker| broker.name.clone());
    hubs.map(|hub| hub.hub.clone()).chain(brokers).collect()
}
