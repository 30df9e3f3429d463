//! The daemons `rsnotify run` and `rsnotify hub`: raise the limits, handle signals, bind the listeners, start the parts and join them with the event loop.
//!
//! Both are a `Daemon`: what they share is here and in `event_loop`, what differs in `announcer` (engine,
//! trees, submissions) and `intake` (publications, fetches).

mod announcer;
pub mod change_reader;
mod event_loop;
mod failpoints;
mod intake;
mod listen;
pub mod log;
mod service_manager;

use std::iter;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use announce::state::open::StateFile;
use anyhow::Context;
use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};
use websub::http::Clock;

use crate::admin::{AdminPages, Readiness};
use crate::config::ReloadableConfig;
use crate::config::file::Checked;
use crate::config::server::{LogLevel, ServerSettings};
use crate::control::{self, ControlReply, ControlRequest, SocketFile};
use crate::daemon::event_loop::hub_link::EmbeddedHubLink;
use crate::daemon::event_loop::state_saver::StateFileKeeper;
use crate::daemon::event_loop::{DaemonRole, EventLoop, Input, LoopParts};
use crate::daemon::failpoints::FailpointTrigger;
use crate::daemon::listen::{
    BoundListener, ListenerRole, RunningListener, bind, passed_listeners, until_dropped,
};
use crate::daemon::log::error_chain;
use crate::report::figures::DaemonCounts;
use crate::report::status::{ConfigurationStatus, RefusedConfiguration};

pub use crate::daemon::event_loop::commands;
pub use crate::daemon::intake::NO_SOURCES;

/// Minimum time that listeners get to send the answers that are ready when the daemon stops.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// An event loop, and what runs beside it.
pub(crate) struct Daemon<R: DaemonRole> {
    runtime: Runtime,
    config: R::Config,
    event_loop: EventLoop<R>,
    received: Receiver<Input<R::Input>>,
    // The listeners are served until these are dropped.
    public: RunningListener,
    admin: RunningListener,
    /// The socket of commands, and the handle that keeps it open.
    control: Option<(SocketFile, watch::Sender<()>)>,
    /// The tasks that serve them.
    tasks: JoinSet<()>,
}

impl<R: DaemonRole> Daemon<R> {
    /// Runs until SIGTERM or SIGINT. At SIGHUP the configuration that `reread` returns takes effect, if it can; `set_level`
    /// changes the level of the log.
    pub fn run(
        mut self,
        reread: impl Fn() -> Checked<R::Config>,
        set_level: fn(LogLevel),
    ) -> anyhow::Result<()> {
        loop {
            match self.event_loop.run(&self.received) {
                ControlFlow::Continue(replies) => {
                    let reply = self.reload(reread(), set_level);
                    for asked in replies {
                        // The client may have disconnected.
                        let _ = asked.send(reply.clone());
                    }
                }
                ControlFlow::Break(by) => return self.stop(by),
            }
        }
    }

    /// Puts the configuration into effect as it was read again, or keeps the previous one if that fails.
    fn reload(&mut self, reread: Checked<R::Config>, set_level: fn(LogLevel)) -> ControlReply {
        let (.., log) = self.config.shared_parts();
        let before = log.level;
        let read = reread.map_err(anyhow::Error::from);
        let changed = read.and_then(|config| self.change_configuration(config));
        self.event_loop.service_manager.mark_outdated();
        match changed {
            Ok(changes) => {
                let (.., log) = self.config.shared_parts();
                // Readers of the log at either level see that it changed.
                set_level(log.level.max(before));
                info!(changes, "reloaded the configuration: {changes}");
                set_level(log.level);
                ControlReply::Reloaded { changes }
            }
            Err(error) => {
                let error = error_chain(error.as_ref());
                error!(
                    error,
                    "configuration not reloaded, keeping the previous one: {error}"
                );
                self.event_loop.configuration.refused = Some(RefusedConfiguration {
                    at: Timestamp::now(),
                    error: error.clone(),
                });
                ControlReply::Error(error)
            }
        }
    }

    /// Puts another configuration into effect. Returns what that changes, in words.
    fn change_configuration(&mut self, config: R::Config) -> anyhow::Result<String> {
        self.config.verify_change(&config)?;
        let handle = self.runtime.handle().clone();
        let _context = handle.enter();
        R::apply_config(self, &config)?;
        self.event_loop.configuration = configuration_status(&config);
        let mut changes = self.config.changes_in_words(&config);
        if changes.is_empty() {
            changes.push("nothing changed".to_owned());
        }
        changes.extend(config.unreadable_directories());
        self.config = config;
        Ok(changes.join("; "))
    }

    /// Waits until `by` for remaining work to end by itself, and saves its results.
    fn stop(self, by: Instant) -> anyhow::Result<()> {
        let (mut event_loop, mut tasks) = (self.event_loop, self.tasks);
        // The listeners end first, so that the effects of their last requests can be saved.
        drop((self.public, self.admin, self.control));
        event_loop.role.note_loop_end();
        self.runtime.block_on(async {
            let left = by.saturating_duration_since(Instant::now());
            let answered = async { while tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(left.max(LAST_MOMENT), answered).await;
        });
        if let Some(hub) = &event_loop.parts.hub.linked {
            hub.save_unverified();
        }
        let finished = event_loop.save_remaining(&self.received);
        drop(event_loop);
        self.runtime.shutdown_background();
        if let Err(trouble) = finished {
            let unsaved = R::UNSAVED_CHANGES;
            anyhow::bail!("stopped with unsaved changes{unsaved}: {trouble}");
        }
        info!("stopped; everything is saved");
        Ok(())
    }
}

/// Returns the status of a configuration that has just been loaded.
fn configuration_status(config: &impl ReloadableConfig) -> ConfigurationStatus {
    ConfigurationStatus {
        loaded: Timestamp::now(),
        refused: None,
        effective: config.effective_toml(&|_| None),
    }
}

/// A process that is to become a daemon: signals are handled, and inputs of its event loop are kept.
struct StartingDaemon<I> {
    began: Timestamp,
    runtime: Runtime,
    signals: [Signal; 3],
    inputs: Sender<Input<I>>,
    received: Receiver<Input<I>>,
    tasks: JoinSet<()>,
}

impl<I: Send + 'static> StartingDaemon<I> {
    /// Raises the limit of open files, and begins to handle signals.
    fn begin() -> anyhow::Result<StartingDaemon<I>> {
        let began = Timestamp::now();
        raise_descriptor_limit();
        let runtime = Runtime::new().context("cannot start the network threads")?;
        let context = runtime.enter();
        // Before anything that takes time or is logged: signals may come as soon as the process is known, and unhandled, each
        // would end it.
        let handle = |kind, name| signal(kind).with_context(|| format!("cannot wait for {name}"));
        let signals = [
            handle(SignalKind::terminate(), "SIGTERM")?,
            handle(SignalKind::interrupt(), "SIGINT")?,
            handle(SignalKind::hangup(), "SIGHUP")?,
        ];
        drop(context);
        let (inputs, received) = mpsc::channel();
        Ok(StartingDaemon {
            began,
            runtime,
            signals,
            inputs,
            received,
            tasks: JoinSet::new(),
        })
    }

    /// Binds the public listener and that of the admin pages, unless the service manager has passed them.
    fn listeners(&self, server: &ServerSettings) -> anyhow::Result<(BoundListener, BoundListener)> {
        let [public, admin] = passed_listeners()?;
        let bound = |activated: Option<BoundListener>, address, role| {
            let new = || self.runtime.block_on(bind(address, role));
            let listener = activated.map_or_else(new, Ok)?;
            listener.log_address();
            anyhow::Ok(listener)
        };
        let public = bound(public, &server.listen.0, ListenerRole::Public)?;
        let admin = bound(admin, &server.admin_listen.0, ListenerRole::Admin)?;
        Ok((public, admin))
    }

    /// Returns the parts of the event loop. Must be called within a tokio runtime.
    fn loop_parts(&self, file: StateFile, clock: Clock) -> LoopParts<I> {
        LoopParts {
            clock,
            saver: StateFileKeeper::new(file),
            hub: EmbeddedHubLink::default(),
            counts: DaemonCounts {
                began: self.began,
                ..DaemonCounts::default()
            },
            failpoints: FailpointTrigger::from_environment(),
            inputs: self.inputs.clone(),
            runtime: self.runtime.handle().clone(),
            stop_by: None,
        }
    }

    /// Serves the admin pages and commands, and forwards signals. Must be called within a tokio runtime.
    fn start<R: DaemonRole<Input = I>>(
        self,
        event_loop: EventLoop<R>,
        config: R::Config,
        public: RunningListener,
        admin: BoundListener,
    ) -> Daemon<R> {
        let (mut tasks, inputs) = (self.tasks, self.inputs);
        let (state_dir, server, _) = config.shared_parts();
        let pages = admin_pages(server, &event_loop.readiness, &inputs);
        let admin = admin.serve_admin(&mut tasks, pages);
        let control = control::bind(state_dir).map(|(listener, socket)| {
            let inputs = inputs.clone();
            let command = move |request, reply| {
                // A loop that has stopped answers by dropping the reply.
                let _ = inputs.send(Input::Command(request, reply));
            };
            let (open, ended) = until_dropped();
            tasks.spawn(control::serve(listener, command, ended));
            (socket, open)
        });
        if let Err(error) = &control {
            let directory = state_dir.display();
            warn!(%error, "cannot accept commands such as `rsnotify accept` in {directory}: {error}");
        }
        let [mut terminate, mut interrupt, mut hangup] = self.signals;
        tokio::spawn(async move {
            loop {
                let input = tokio::select! {
                    _ = terminate.recv() => Input::Stop,
                    _ = interrupt.recv() => Input::Stop,
                    _ = hangup.recv() => Input::Command(ControlRequest::Reload, oneshot::channel().0),
                };
                if inputs.send(input).is_err() {
                    return;
                }
            }
        });
        Daemon {
            runtime: self.runtime,
            config,
            event_loop,
            received: self.received,
            public,
            admin,
            control: control.ok(),
            tasks,
        }
    }
}

/// Returns the admin pages, which ask the event loop for the status.
fn admin_pages<I: Send + 'static>(
    server: &ServerSettings,
    readiness: &Readiness,
    inputs: &Sender<Input<I>>,
) -> AdminPages {
    let inputs = inputs.clone();
    let ask = move |detail, answer| {
        let _ = inputs.send(Input::Ask(detail, answer));
    };
    // The names under which the listener may be addressed: a guard against DNS rebinding.
    let ip = server.admin_listen.0.tcp().map(|tcp| tcp.ip().to_string());
    let hosts = iter::once("localhost".to_owned()).chain(ip).collect();
    AdminPages::new(readiness.clone(), hosts, ask)
}

/// Raises the limit of open files and connections: the soft one to the hard one: the soft limit is only for programs
/// that call `select`.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let shown = |limit: Option<u64>| limit.map_or("any number of".to_owned(), |n| n.to_string());
    let (before, granted) = (shown(current), shown(maximum));
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => info!(
            before,
            granted, "{granted} files may be open instead of {before}"
        ),
        Err(error) => warn!(
            %error,
            "cannot raise the limit of open files from {before} to {granted}: {error}; \
             this may be too low for many connections, see LimitNOFILE of systemd or `ulimit -n`"
        ),
    }
}
