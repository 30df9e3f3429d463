//! A process before it is a daemon: its limits, its signals, its listeners.

use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::Context;
use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::{info, warn};
use websub::http::clock::Clock;

use crate::admin::Readiness;
use crate::config::reload::DaemonConfig;
use crate::config::server::ServerSettings;
use crate::daemon::event_loop::{EventLoop, Input, LoopParts, Role};
use crate::daemon::failpoints::Failpoints;
use crate::daemon::front::{self, Front};
use crate::daemon::listen::{BoundListener, ListenerRole, ServedListener, bind};
use crate::daemon::{Daemon, socket_activation};
use crate::state::open::StateFile;

/// A process that is to become a daemon: signals are handled, and inputs of its event loop are kept.
pub struct Process<I> {
    began: Timestamp,
    pub runtime: Runtime,
    signals: Signals,
    inputs: Sender<Input<I>>,
    received: Receiver<Input<I>>,
    pub readiness: Readiness,
}

impl<I: Send + 'static> Process<I> {
    /// Raises the limit of open files, and begins to handle signals.
    pub fn begin() -> anyhow::Result<Process<I>> {
        let began = Timestamp::now();
        raise_descriptor_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the network threads")?;
        let handle = runtime.handle().clone();
        let _context = handle.enter();
        // Before anything that takes time or is logged: signals may come as soon as the process is known.
        let signals = Signals::take()?;
        let (inputs, received) = mpsc::channel();
        Ok(Process {
            began,
            runtime,
            signals,
            inputs,
            received,
            readiness: Readiness::default(),
        })
    }

    /// Binds the public listener and that of the admin pages, unless the service manager has passed them.
    pub fn listeners(
        &self,
        server: &ServerSettings,
    ) -> anyhow::Result<(BoundListener, BoundListener)> {
        let activated = socket_activation::take()?;
        let bound = |activated: Option<BoundListener>, address, role| {
            let listener = match activated {
                Some(listener) => listener,
                None => self.runtime.block_on(bind(address, role))?,
            };
            listener.log_address();
            anyhow::Ok(listener)
        };
        let public = bound(activated.public, &server.listen, ListenerRole::Public)?;
        let admin = bound(activated.admin, &server.admin_listen, ListenerRole::Admin)?;
        Ok((public, admin))
    }

    /// Returns the parts of the event loop. Must be called within a tokio runtime.
    pub fn loop_parts(&self, file: StateFile, clock: Clock) -> LoopParts<I> {
        let failpoints = Failpoints::from_environment();
        LoopParts::new(file, clock, self.inputs.clone(), failpoints, self.began)
    }

    /// Serves the admin pages and commands, and forwards signals. Must be called within a tokio runtime.
    pub fn into_daemon<R: Role<Input = I>, C: DaemonConfig>(
        self,
        event_loop: EventLoop<R>,
        config: C,
        public: (ServedListener, JoinHandle<()>),
        admin: BoundListener,
    ) -> Daemon<R, C> {
        let pages = front::admin_pages(config.server(), &self.readiness, &self.inputs);
        let admin = admin.serve_admin(pages);
        let front = Front::new(public, admin, config.state_dir(), &self.inputs);
        tokio::spawn(self.signals.forward(self.inputs));
        Daemon {
            runtime: self.runtime,
            config,
            event_loop,
            received: self.received,
            readiness: self.readiness,
            front,
        }
    }
}

/// Signals that are handled as long as this exists; unhandled, each would end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to handle signals.
    fn take() -> anyhow::Result<Signals> {
        let take = |kind, name| signal(kind).with_context(|| format!("cannot wait for {name}"));
        Ok(Signals {
            terminate: take(SignalKind::terminate(), "SIGTERM")?,
            interrupt: take(SignalKind::interrupt(), "SIGINT")?,
            hangup: take(SignalKind::hangup(), "SIGHUP")?,
        })
    }

    /// Forwards each signal to the loop, as the input that it stands for.
    async fn forward<I>(mut self, inputs: Sender<Input<I>>) {
        loop {
            let input = tokio::select! {
                _ = self.terminate.recv() => Input::Stop,
                _ = self.interrupt.recv() => Input::Stop,
                _ = self.hangup.recv() => Input::Reload(None),
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    }
}

/// Raises the limit of open files and connections: the soft one to the hard one: the soft limit is only for programs that call `select`.
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
