//! The daemon: binds the listeners, starts the parts and joins them; the only loop is in `event_loop`.

pub mod change_reader;
mod descriptors;
mod difference;
mod event_loop;
mod failpoints;
pub mod hub_daemon;
mod hub_loop;
mod listen;
pub mod log;
mod reload;
mod service_manager;
pub mod settings;
mod signals;
mod socket_activation;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::admin::{Admin, Readiness};
use crate::announce::event::Event;
use crate::broker::client::Brokers;
use crate::config::Config;
use crate::config::error::{ConfigError, Location, Problem};
use crate::control::{self, ControlReply, ControlRequest};
use crate::daemon::event_loop::reload::{LoadedEngine, saved_subscriptions};
use crate::daemon::event_loop::{Ended, EventLoop, Input, Parts};
use crate::daemon::failpoints::{Failpoint, Failpoints};
use crate::daemon::listen::{ServedListener, bind, until_dropped};
use crate::daemon::signals::Signals;
use crate::hub::{HubRecord, SavedHub};
use crate::report::status::ConfigurationStatus;
use crate::resourcesync::uri::Uri;
use crate::store::Store;
use crate::websub::hub::hub_topics::HubTopics;
use crate::websub::hub::{EmbeddedHub, HubError, PreparedHub};
use crate::websub::publish::Publisher;
use crate::websub::topics::Topics;

pub use crate::daemon::event_loop::commands::{ask_subscriptions, execute, no_embedded_hub};
pub use crate::daemon::event_loop::logged_bodies::reduced;

/// Minimum time that listeners get to send the answers that are ready when the daemon stops.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The event loop, and what runs beside it.
struct Daemon {
    runtime: Runtime,
    config: Config,
    public_url: Uri,
    inputs: Sender<Input>,
    event_loop: EventLoop,
    topics: Topics,
    publisher: Arc<Publisher>,
    brokers: Arc<Brokers>,
    submission_runtime: Handle,
    readiness: Readiness,
    /// The embedded hub, if there ever was one: once it is removed from the configuration, it finishes what it has
    /// begun.
    hub: Option<EmbeddedHub>,
    /// The embedded hub while it takes subscriptions.
    open_hub: watch::Sender<Option<EmbeddedHub>>,
    failpoints: Failpoints,
    public: ServedListener,
    admin: ServedListener,
    control: Option<(control::ControlSocket, watch::Sender<()>)>,
    served: Vec<JoinHandle<()>>,
}

/// Runs until SIGTERM or SIGINT. At SIGHUP the configuration that `reread` returns takes effect, if it can. Everything
/// that can fail for want of permission or a free address does so before the first file is read.
pub fn run(config: Config, reread: impl Fn() -> Result<Config, ConfigError>) -> anyhow::Result<()> {
    let (mut daemon, received) = Daemon::start(config)?;
    loop {
        let grace = daemon.config.server.shutdown_grace;
        match daemon.event_loop.run(&received, grace) {
            Ended::Reload => daemon.reload(&reread),
            Ended::Stopped { by } => return daemon.stop(&received, by),
        }
    }
}

impl Daemon {
    fn start(config: Config) -> anyhow::Result<(Daemon, Receiver<Input>)> {
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
        let publisher = Arc::new(Publisher::new(settings::publishers(&config)?)?);
        let submission_runtime = submission_runtime()?;
        let brokers = settings::brokers(&config)?;
        let brokers = Arc::new(Brokers::new(brokers, &submission_runtime));
        let store = Store::open(&config.state_dir)?;
        store.refuse_of_hub()?;
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
        let public_url = public_url(&config, public.tcp_address())?;
        let prepared_hub = prepared_hub(&config, &public_url)?;

        let failpoints = Failpoints::from_environment();
        let topics = Topics::new({
            let inputs = inputs.clone();
            move |topic| {
                // A stopped loop ignores it.
                let _ = inputs.send(Input::Event(Event::Fetched(topic)));
            }
        });
        let readiness = Readiness::new();
        let saved = saved_subscriptions(&store, prepared_hub.is_some())?;
        let parts = Parts {
            config: &config,
            loaded: LoadedEngine::new(&store, config.plan(&public_url))?,
            store,
            topics: topics.clone(),
            publisher: Arc::clone(&publisher),
            brokers: Arc::clone(&brokers),
            submission_runtime: submission_runtime.clone(),
            runtime: handle.clone(),
            inputs: inputs.clone(),
            readiness: readiness.clone(),
            configuration: loaded(config.effective()),
            failpoints: failpoints.clone(),
            began,
        };
        let mut hub = None;
        let event_loop = EventLoop::new(parts, || {
            let start = |prepared_hub| {
                let (topics, inputs) = (topics.clone(), inputs.clone());
                start_hub(prepared_hub, saved, topics, inputs, failpoints.clone())
            };
            hub = prepared_hub.map(start);
            hub.clone()
        })?;
        let (open_hub, opened) = watch::channel(hub.clone());
        let (public, public_served) = public.serve_public(topics.clone(), opened);
        let (admin, admin_served) = admin.serve_admin(admin_pages(&config, &readiness, &inputs));
        let mut served = vec![public_served, admin_served];
        let control = serve_commands(&config.state_dir, &inputs, Input::Command, &mut served);
        tokio::spawn(signals.forward(inputs.clone(), || Input::Stop, || Input::Reload));
        let daemon = Daemon {
            inputs,
            event_loop,
            topics,
            publisher,
            brokers,
            submission_runtime,
            readiness,
            hub,
            open_hub,
            failpoints,
            public,
            public_url,
            admin,
            control,
            served,
            config,
            runtime,
        };
        Ok((daemon, received))
    }

    /// Waits until `by` for remaining work to end by itself, and saves its results.
    fn stop(self, received: &Receiver<Input>, by: Instant) -> anyhow::Result<()> {
        let Daemon {
            runtime,
            mut event_loop,
            public,
            admin,
            control,
            served,
            ..
        } = self;
        // The listeners end first, so that the effects of their last requests can be saved.
        drop((public, admin, control));
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
            anyhow::bail!(
                "stopped with unsaved changes, which are detected again at the next start: {trouble}"
            );
        }
        info!("stopped; everything is saved");
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

fn start_hub(
    prepared_hub: PreparedHub,
    saved: SavedHub,
    topics: Topics,
    inputs: Sender<Input>,
    failpoints: Failpoints,
) -> EmbeddedHub {
    let records = move |changed: Vec<HubRecord>| {
        for record in &changed {
            if matches!(record, HubRecord::Progressed(..)) {
                failpoints.pass(Failpoint::Relayed);
            }
        }
        let _ = inputs.send(Input::HubRecords(changed));
    };
    EmbeddedHub::start(prepared_hub, saved, HubTopics::Served(topics), records)
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
    let problem = Problem {
        place: Location::Nowhere,
        key: "server.public_url".to_owned(),
        message,
        suggestion: None,
    };
    Err(ConfigError::Invalid {
        problems: vec![problem],
    })
}

fn prepared_hub(config: &Config, public_url: &Uri) -> Result<Option<PreparedHub>, HubError> {
    let embedded = config.embedded_hub.as_ref();
    let settings = embedded
        .map(|embedded| settings::embedded_hub(embedded, public_url, config.file.is_some()));
    settings.map(PreparedHub::new).transpose()
}

/// Returns the status of a configuration that has just been loaded.
fn loaded(effective: String) -> ConfigurationStatus {
    ConfigurationStatus {
        loaded: Timestamp::now(),
        refused: None,
        in_force: effective,
    }
}

fn admin_pages(config: &Config, readiness: &Readiness, inputs: &Sender<Input>) -> Admin {
    let inputs = inputs.clone();
    Admin::new(
        readiness.clone(),
        settings::hosts(&config.server),
        move |detail, answer| {
            let _ = inputs.send(Input::Ask(detail, answer));
        },
    )
}

/// Serves commands until the return value is dropped.
fn serve_commands<I: Send + 'static>(
    state_dir: &Path,
    inputs: &Sender<I>,
    input: fn(ControlRequest, oneshot::Sender<ControlReply>) -> I,
    served: &mut Vec<JoinHandle<()>>,
) -> Option<(control::ControlSocket, watch::Sender<()>)> {
    match control::ControlServer::bind(state_dir) {
        Ok((server, socket)) => {
            let inputs = inputs.clone();
            let command = move |request, reply| {
                // A loop that has stopped answers by dropping the reply.
                let _ = inputs.send(input(request, reply));
            };
            let (open, ended) = until_dropped();
            served.push(tokio::spawn(server.serve(command, ended)));
            Some((socket, open))
        }
        Err(error) => {
            let directory = state_dir.display();
            warn!(%error, "cannot accept commands such as `rsnotify accept` in {directory}: {error}");
            None
        }
    }
}
