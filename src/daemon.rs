//! Joins the parts: binds, starts, and stops them. The only loop is in `event_loop`.

mod descriptors;
mod difference;
mod event_loop;
mod failpoints;
mod listen;
pub mod log;
mod reload;
mod service_manager;
pub mod settings;
mod signals;
mod socket_activation;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::admin::{Admin, Readiness};
use crate::announce::event::Event;
use crate::config::Config;
use crate::config::error::{ConfigError, Place, Problem};
use crate::control;
use crate::daemon::event_loop::reload::LoadedEngine;
use crate::daemon::event_loop::{Ended, EventLoop, Input};
use crate::daemon::failpoints::{Failpoint, Failpoints};
use crate::daemon::listen::{ServedListener, bind, until_dropped};
use crate::daemon::signals::Signals;
use crate::hub::HubRecord;
use crate::report::status::ConfigurationStatus;
use crate::resourcesync::uri::Uri;
use crate::store::Store;
use crate::websub::hub::{Conduct, EmbeddedHub, HubError, Restored};
use crate::websub::publish::Publisher;
use crate::websub::topics::Topics;

pub use crate::daemon::event_loop::commands::{ask_subscriptions, execute, no_embedded_hub};

/// Answers that are at hand when the daemon stops are given, however long it waited for others.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// What runs beside the loop, and the loop.
struct Daemon {
    runtime: Runtime,
    config: Config,
    public_url: Uri,
    inputs: Sender<Input>,
    event_loop: EventLoop,
    topics: Topics,
    publisher: Arc<Publisher>,
    readiness: Readiness,
    /// Once there was one it stays, even while the configuration has none: what it has begun ends.
    hub: Option<EmbeddedHub>,
    /// The one that takes subscriptions.
    open_hub: watch::Sender<Option<EmbeddedHub>>,
    public: ServedListener,
    admin: ServedListener,
    control: Option<(control::Socket, watch::Sender<()>)>,
    served: Vec<JoinHandle<()>>,
}

/// Runs until SIGTERM or SIGINT. At SIGHUP the configuration that `reread` finds takes over, if it can. Everything that
/// can fail for want of permission or a free address does so before the first file is looked at.
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
        let began = (Timestamp::now(), Timestamp::now());
        descriptors::take_all_granted();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the network threads")?;
        let handle = runtime.handle().clone();
        let _context = handle.enter();
        // Before all that takes time, or is said: whoever knows of us may send us signals.
        let signals = Signals::take()?;
        let (inputs, received) = mpsc::channel();
        let publisher = Arc::new(Publisher::new(settings::publishers(&config)?)?);
        let store = Store::open(&config.state_dir)?;
        let given = socket_activation::take()?;
        let public = match given.public {
            Some(given) => given,
            None => runtime.block_on(bind(&config.server.listen, "public"))?,
        };
        public.tell();
        let admin = match given.admin {
            Some(given) => given,
            None => runtime.block_on(bind(&config.server.admin_listen, "admin"))?,
        };
        admin.tell();
        let public_url = public_url(&config, public.tcp_address())?;
        let conduct = conduct(&config, &public_url)?;

        let LoadedEngine {
            engine,
            effects,
            others,
        } = LoadedEngine::new(&store, config.plan(&public_url))?;
        let topics = Topics::new({
            let inputs = inputs.clone();
            move |topic| {
                // A stopped loop no longer cares.
                let _ = inputs.send(Input::Event(Event::Fetched(topic)));
            }
        });
        let readiness = Readiness::new();
        let mut event_loop = EventLoop::new(
            engine,
            store,
            topics.clone(),
            Arc::clone(&publisher),
            inputs.clone(),
            handle.clone(),
            readiness.clone(),
        );
        event_loop.submit_on(submitting()?);
        event_loop.began_at(began.0, began.1);
        event_loop.set_configuration(loaded(&config));
        event_loop.perform_first(effects);
        let restored = event_loop.saved_subscriptions(conduct.is_some())?;
        let hub = conduct.map(|conduct| {
            let failpoints = event_loop.failpoints();
            start_hub(
                conduct,
                restored,
                topics.clone(),
                inputs.clone(),
                failpoints,
            )
        });
        event_loop.set_hub(hub.clone(), hub.is_some());
        let (open_hub, opened) = watch::channel(hub.clone());
        let (public, public_served) = public.serve_public(topics.clone(), opened);
        let (admin, admin_served) = admin.serve_admin(admin_pages(&config, &readiness, &inputs));
        let mut served = vec![public_served, admin_served];
        let control = serve_commands(&config, &inputs, &mut served);
        event_loop.watch(&config, &others)?;
        tokio::spawn(signals.pass_on(inputs.clone()));
        let daemon = Daemon {
            inputs,
            event_loop,
            topics,
            publisher,
            readiness,
            hub,
            open_hub,
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

    /// Ends what is left by itself until `by`, and saves what it left.
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
        // First nobody may come any more, then what they left is saved.
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

/// A thread of its own that submits: among several, each would wake another for what it could do itself. It ends with
/// the process, because what is under way then is submitted again at the next start.
fn submitting() -> anyhow::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the thread that submits")?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("submitting".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .context("cannot start the thread that submits")?;
    Ok(handle)
}

fn start_hub(
    conduct: Conduct,
    restored: Restored,
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
    EmbeddedHub::start(conduct, restored, topics, records)
}

/// What the public listener is reached as. Of an address that was given, the configuration could not know.
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
        place: Place::Nowhere,
        key: "server.public_url".to_owned(),
        message,
        suggestion: None,
    };
    Err(ConfigError::Invalid {
        problems: vec![problem],
    })
}

fn conduct(config: &Config, public_url: &Uri) -> Result<Option<Conduct>, HubError> {
    let embedded = config.embedded_hub.as_ref();
    let settings = embedded
        .map(|embedded| settings::embedded_hub(embedded, public_url, config.file.is_some()));
    settings.map(Conduct::new).transpose()
}

/// A configuration that has just been taken.
fn loaded(config: &Config) -> ConfigurationStatus {
    ConfigurationStatus {
        loaded: Timestamp::now(),
        refused: None,
        in_force: config.in_force(),
    }
}

fn admin_pages(config: &Config, readiness: &Readiness, inputs: &Sender<Input>) -> Admin {
    let inputs = inputs.clone();
    Admin::new(
        readiness.clone(),
        settings::hosts(config),
        move |detail, answer| {
            let _ = inputs.send(Input::Ask(detail, answer));
        },
    )
}

/// Takes commands until what this returns is dropped.
fn serve_commands(
    config: &Config,
    inputs: &Sender<Input>,
    served: &mut Vec<JoinHandle<()>>,
) -> Option<(control::Socket, watch::Sender<()>)> {
    match control::Server::bind(&config.state_dir) {
        Ok((server, socket)) => {
            let inputs = inputs.clone();
            let order = move |request, reply| {
                // A loop that has stopped answers by dropping the reply.
                let _ = inputs.send(Input::Command(request, reply));
            };
            let (open, ended) = until_dropped();
            served.push(tokio::spawn(server.serve(order, ended)));
            Some((socket, open))
        }
        Err(error) => {
            let directory = config.state_dir.display();
            warn!(%error, "cannot accept commands such as `rsnotify accept` in {directory}: {error}");
            None
        }
    }
}
