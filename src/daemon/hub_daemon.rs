//! `rsnotify hub`: binds the listeners, starts the hub and joins it with its event loop.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use anyhow::{Context, bail};
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::admin::{Admin, Readiness};
use crate::config::error::ConfigError;
use crate::config::hub_config::HubConfig;
use crate::config::publisher;
use crate::control;
use crate::daemon::difference::hub_difference;
use crate::daemon::event_loop::Ended;
use crate::daemon::failpoints::{Failpoint, Failpoints};
use crate::daemon::hub_loop::{HubInput, HubLoop, HubParts};
use crate::daemon::listen::{ServedListener, bind};
use crate::daemon::log::error_chain;
use crate::daemon::signals::Signals;
use crate::daemon::{
    LAST_MOMENT, descriptors, loaded, serve_commands, settings, socket_activation,
};
use crate::hub::published_topics::PublishedTopics;
use crate::hub::{HubRecord, SavedHub};
use crate::report::status::RefusedConfiguration;
use crate::store::Store;
use crate::websub::hub::fetches::Fetches;
use crate::websub::hub::hub_topics::{HubTopics, TopicDirectory};
use crate::websub::hub::intake::{IntakeSettings, PublicHub};
use crate::websub::hub::topic_client::TopicClient;
use crate::websub::hub::{EmbeddedHub, PreparedHub};

pub use crate::daemon::hub_loop::no_sources;

/// The event loop, and what runs beside it.
struct HubDaemon {
    runtime: Runtime,
    config: HubConfig,
    event_loop: HubLoop,
    hub: PublicHub,
    public: ServedListener,
    admin: ServedListener,
    control: Option<(control::ControlSocket, watch::Sender<()>)>,
    served: Vec<JoinHandle<()>>,
}

/// Runs until SIGTERM or SIGINT. At SIGHUP the configuration that `reread` returns takes effect, if it can.
pub fn run(
    config: HubConfig,
    reread: impl Fn() -> Result<HubConfig, ConfigError>,
) -> anyhow::Result<()> {
    let (mut daemon, received) = HubDaemon::start(config)?;
    loop {
        let grace = daemon.config.server.shutdown_grace;
        match daemon.event_loop.run(&received, grace) {
            Ended::Reload => daemon.reload(&reread),
            Ended::Stopped { by } => return daemon.stop(&received, by),
        }
    }
}

impl HubDaemon {
    fn start(config: HubConfig) -> anyhow::Result<(HubDaemon, Receiver<HubInput>)> {
        let began = Timestamp::now();
        descriptors::raise_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the network threads")?;
        let handle = runtime.handle().clone();
        let _context = handle.enter();
        // Before anything that takes time or is logged: signals may come as soon as the process is known.
        let signals = Signals::take()?;
        let (inputs, received) = mpsc::channel();
        let mut store = Store::open(&config.state_dir)?;
        store.claim_for_hub()?;
        let activated = socket_activation::take()?;
        let public = match activated.public {
            Some(public) => public,
            None => runtime.block_on(bind(&config.server.listen, "public"))?,
        };
        public.log_address();
        let admin = match activated.admin {
            Some(admin) => admin,
            None => runtime.block_on(bind(&config.server.admin_listen, "admin"))?,
        };
        admin.log_address();

        let failpoints = Failpoints::from_environment();
        let topics = PublishedTopics::restore(store.load_published_topics()?);
        let publishers = publisher::plan(&config.publishers);
        let directory = Arc::new(TopicDirectory::new(topics, publishers));
        let client = TopicClient::new().context("cannot build the HTTP client for topics")?;
        let client = Arc::new(client);
        let prepared = PreparedHub::new(settings::own_hub(&config.hub))?;
        let subscribers = start_hub(
            prepared,
            store.load_hub()?,
            Arc::clone(&directory),
            &inputs,
            failpoints.clone(),
        );
        let accept_inputs = inputs.clone();
        let hub = PublicHub::new(
            subscribers,
            intake(&config),
            Arc::clone(&directory),
            Arc::clone(&client),
            move |request, reply| {
                // A stopped loop answers by dropping the reply.
                let _ = accept_inputs.send(HubInput::Accept(request, reply));
            },
        );
        let fetched = inputs.clone();
        let fetches = Fetches::new(client, Arc::clone(&directory), move |outcome| {
            let _ = fetched.send(HubInput::Fetched(Box::new(outcome)));
        });
        let readiness = Readiness::new();
        let event_loop = HubLoop::new(HubParts {
            store,
            hub: hub.clone(),
            directory,
            fetches: Arc::new(fetches),
            topic_ttl: config.hub.topic_ttl,
            runtime: handle.clone(),
            inputs: inputs.clone(),
            readiness: readiness.clone(),
            configuration: loaded(config.effective()),
            failpoints,
            began,
        });
        let (public, public_served) = public.serve_hub(hub.clone());
        let pages = admin_pages(&config, readiness, inputs.clone());
        let (admin, admin_served) = admin.serve_admin(pages);
        let mut served = vec![public_served, admin_served];
        let control = serve_commands(&config.state_dir, &inputs, HubInput::Command, &mut served);
        tokio::spawn(signals.forward(inputs, || HubInput::Stop, || HubInput::Reload));
        let daemon = HubDaemon {
            runtime,
            config,
            event_loop,
            hub,
            public,
            admin,
            control,
            served,
        };
        Ok((daemon, received))
    }

    /// Reloads the configuration, or keeps the previous one if that fails.
    fn reload(&mut self, reread: impl Fn() -> Result<HubConfig, ConfigError>) {
        match self.change_configuration(reread) {
            Ok(changes) => info!(changes, "reloaded the configuration: {changes}"),
            Err(error) => {
                let error = error_chain(error.as_ref());
                error!(
                    error,
                    "configuration not reloaded, keeping the previous one: {error}"
                );
                let at = Timestamp::now();
                let refused = RefusedConfiguration { at, error };
                self.event_loop.configuration_refused(refused);
            }
        }
    }

    fn change_configuration(
        &mut self,
        reread: impl Fn() -> Result<HubConfig, ConfigError>,
    ) -> anyhow::Result<String> {
        let config = reread()?;
        let (old, new) = (&self.config.server, &config.server);
        for (key, is_same) in [
            ("state_dir", self.config.state_dir == config.state_dir),
            ("server.listen", old.listen == new.listen),
            ("server.admin_listen", old.admin_listen == new.admin_listen),
        ] {
            if !is_same {
                bail!("{key} has changed: restart rsnotify for that");
            }
        }
        let _context = self.runtime.enter();
        let prepared = PreparedHub::new(settings::own_hub(&config.hub))?;
        // Nothing fails from here on.
        self.hub.hub.apply(prepared);
        let publishers = publisher::plan(&config.publishers);
        self.hub.apply(intake(&config), publishers);
        self.event_loop
            .configuration_loaded(loaded(config.effective()), config.hub.topic_ttl);
        let changes = hub_difference(&self.config, &config);
        self.config = config;
        Ok(changes)
    }

    /// Waits until `by` for remaining work to end by itself, and saves its results.
    fn stop(self, received: &Receiver<HubInput>, by: Instant) -> anyhow::Result<()> {
        let HubDaemon {
            runtime,
            mut event_loop,
            hub,
            public,
            admin,
            control,
            served,
            ..
        } = self;
        // The listeners end first, so that the effects of their last requests can be saved.
        drop((public, admin, control));
        hub.end();
        let left = by.saturating_duration_since(Instant::now());
        runtime.block_on(async {
            let all = async {
                for task in served {
                    let _ = task.await;
                }
            };
            let _ = tokio::time::timeout(left.max(LAST_MOMENT), all).await;
        });
        let finished = event_loop.finish(received);
        drop(event_loop);
        runtime.shutdown_background();
        if let Err(trouble) = finished {
            bail!(
                "stopped with unsaved changes; deliveries may be repeated at the next start: {trouble}"
            );
        }
        info!("stopped; everything is saved");
        Ok(())
    }
}

fn start_hub(
    prepared: PreparedHub,
    saved: SavedHub,
    directory: Arc<TopicDirectory>,
    inputs: &Sender<HubInput>,
    failpoints: Failpoints,
) -> EmbeddedHub {
    let inputs = inputs.clone();
    let records = move |changed: Vec<HubRecord>| {
        for record in &changed {
            if matches!(record, HubRecord::Progressed(..)) {
                failpoints.pass(Failpoint::Relayed);
            }
        }
        let _ = inputs.send(HubInput::Records(changed));
    };
    EmbeddedHub::start(prepared, saved, HubTopics::Published(directory), records)
}

fn intake(config: &HubConfig) -> IntakeSettings {
    IntakeSettings {
        hub: config.hub.url.clone(),
        max_body: config.hub.max_body,
        publications_per_minute: config.hub.max_publications_per_minute,
    }
}

fn admin_pages(config: &HubConfig, readiness: Readiness, inputs: Sender<HubInput>) -> Admin {
    let hosts = settings::hosts(&config.server);
    Admin::new(readiness, hosts, move |_, answer| {
        let _ = inputs.send(HubInput::Ask(answer));
    })
}
