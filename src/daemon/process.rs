//! A process before it is a daemon: its limits, its signals, its listeners.

use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::Context;
use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{info, warn};
use websub::http::Clock;

use crate::admin::{Admin, Readiness};
use crate::config::reload::DaemonConfig;
use crate::config::server::ServerSettings;
use crate::control::{self, ControlRequest};
use crate::daemon::Daemon;
use crate::daemon::event_loop::hub_link::HubLink;
use crate::daemon::event_loop::state_saver::StateSaver;
use crate::daemon::event_loop::{DaemonRole, EventLoop, Input, LoopParts};
use crate::daemon::failpoints::Failpoints;
use crate::daemon::listen::{
    BoundListener, ListenerRole, ServedListener, bind, passed_listeners, until_dropped,
};
use crate::report::figures::DaemonCounts;
use announce::state::open::StateFile;

/// A process that is to become a daemon: signals are handled, and inputs of its event loop are kept.
pub struct StartingDaemon<I> {
    began: Timestamp,
    pub runtime: Runtime,
    signals: [Signal; 3],
    inputs: Sender<Input<I>>,
    received: Receiver<Input<I>>,
    pub tasks: JoinSet<()>,
}

impl<I: Send + 'static> StartingDaemon<I> {
    /// Raises the limit of open files, and begins to handle signals.
    pub fn begin() -> anyhow::Result<StartingDaemon<I>> {
        let began = Timestamp::now();
        raise_descriptor_limit();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the network threads")?;
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
    pub fn listeners(
        &self,
        server: &ServerSettings,
    ) -> anyhow::Result<(BoundListener, BoundListener)> {
        let [public, admin] = passed_listeners()?;
        let bound = |activated: Option<BoundListener>, address, role| {
            let listener = match activated {
                Some(listener) => listener,
                None => self.runtime.block_on(bind(address, role))?,
            };
            listener.log_address();
            anyhow::Ok(listener)
        };
        let public = bound(public, &server.listen, ListenerRole::Public)?;
        let admin = bound(admin, &server.admin_listen, ListenerRole::Admin)?;
        Ok((public, admin))
    }

    /// Returns the parts of the event loop. Must be called within a tokio runtime.
    pub fn loop_parts(&self, file: StateFile, clock: Clock) -> LoopParts<I> {
        let failpoints = Failpoints::from_environment();
        LoopParts {
            clock,
            saver: StateSaver::new(file),
            hub: HubLink::default(),
            counts: DaemonCounts {
                began: self.began,
                ..DaemonCounts::default()
            },
            failpoints,
            inputs: self.inputs.clone(),
            runtime: self.runtime.handle().clone(),
            stop_by: None,
        }
    }

    /// Serves the admin pages and commands, and forwards signals. Must be called within a tokio runtime.
    pub fn into_daemon<R: DaemonRole<Input = I>>(
        self,
        event_loop: EventLoop<R>,
        config: R::Config,
        public: ServedListener,
        admin: BoundListener,
    ) -> Daemon<R> {
        let (mut tasks, inputs) = (self.tasks, self.inputs);
        let (state_dir, server, _) = config.shared();
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
pub fn admin_pages<I: Send + 'static>(
    server: &ServerSettings,
    readiness: &Readiness,
    inputs: &Sender<Input<I>>,
) -> Admin {
    let inputs = inputs.clone();
    let ask = move |detail, answer| {
        let _ = inputs.send(Input::Ask(detail, answer));
    };
    Admin::new(readiness.clone(), server.admin_hosts(), ask)
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
