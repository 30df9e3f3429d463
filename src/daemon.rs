//! The daemons `rsnotify run` and `rsnotify hub`: bind the listeners, start the parts and join them with the event loop.
//!
//! Both are a `Daemon`: what they share is here, in `process` and in `event_loop`, what differs in `announcer` (engine,
//! trees, submissions) and `intake` (publications, fetches).

mod announcer;
pub mod change_reader;
mod event_loop;
mod failpoints;
mod intake;
mod listen;
pub mod log;
mod process;
mod service_manager;

use std::ops::ControlFlow;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info};

use crate::config::Config;
use crate::config::file::ConfigError;
use crate::config::hub_config::HubConfig;
use crate::config::reload::DaemonConfig;
use crate::config::server::LogLevel;
use crate::control::{ControlReply, ControlSocketFile};
use crate::daemon::event_loop::{DaemonRole, EventLoop, Input};
use crate::daemon::listen::ServedListener;
use crate::daemon::log::error_chain;
use crate::report::status::{ConfigurationStatus, RefusedConfiguration};

pub use crate::daemon::event_loop::commands::{
    answer, ask_subscriptions, event_of, no_embedded_hub, outcome,
};
pub use crate::daemon::intake::no_sources;

/// Runs `rsnotify run` until SIGTERM or SIGINT. At SIGHUP the configuration that `reread` returns takes effect, if it can;
/// `set_level` changes the level of the log.
pub fn run(
    config: Config,
    reread: impl Fn() -> Result<Config, ConfigError>,
    set_level: fn(LogLevel),
) -> anyhow::Result<()> {
    Daemon::announcing(config)?.run(reread, set_level)
}

/// Runs `rsnotify hub`, as [`run`] does `rsnotify run`.
pub fn run_hub(
    config: HubConfig,
    reread: impl Fn() -> Result<HubConfig, ConfigError>,
    set_level: fn(LogLevel),
) -> anyhow::Result<()> {
    Daemon::relaying(config)?.run(reread, set_level)
}

/// Minimum time that listeners get to send the answers that are ready when the daemon stops.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// An event loop, and what runs beside it.
struct Daemon<R: DaemonRole> {
    runtime: Runtime,
    config: R::Config,
    event_loop: EventLoop<R>,
    received: Receiver<Input<R::Input>>,
    // The listeners are served until these are dropped.
    public: ServedListener,
    admin: ServedListener,
    /// The socket of commands, and the handle that keeps it open.
    control: Option<(ControlSocketFile, watch::Sender<()>)>,
    /// The tasks that serve them.
    tasks: JoinSet<()>,
}

impl<R: DaemonRole> Daemon<R> {
    /// Runs until it is told to stop.
    fn run(
        mut self,
        reread: impl Fn() -> Result<R::Config, ConfigError>,
        set_level: fn(LogLevel),
    ) -> anyhow::Result<()> {
        loop {
            match self.event_loop.run(&self.received) {
                ControlFlow::Continue(replies) => {
                    let reply = self.reload(&reread, set_level);
                    for asked in replies {
                        // The client may have disconnected.
                        let _ = asked.send(reply.clone());
                    }
                }
                ControlFlow::Break(by) => return self.stop(by),
            }
        }
    }

    /// Reloads the configuration, or keeps the previous one if that fails.
    fn reload(
        &mut self,
        reread: impl Fn() -> Result<R::Config, ConfigError>,
        set_level: fn(LogLevel),
    ) -> ControlReply {
        let before = log_level(&self.config);
        let changed = self.change_configuration(reread);
        self.event_loop.service_manager.status_may_differ();
        match changed {
            Ok(changes) => {
                let level = log_level(&self.config);
                // Readers of the log at either level see that it changed.
                set_level(level.max(before));
                info!(changes, "reloaded the configuration: {changes}");
                set_level(level);
                ControlReply::Reloaded { changes }
            }
            Err(error) => {
                let error = error_chain(error.as_ref());
                error!(
                    error,
                    "configuration not reloaded, keeping the previous one: {error}"
                );
                let at = Timestamp::now();
                let reply = ControlReply::Error(error.clone());
                let refused = RefusedConfiguration { at, error };
                self.event_loop.configuration.refused = Some(refused);
                reply
            }
        }
    }

    /// Puts another configuration into effect. Returns what that changes, in words.
    fn change_configuration(
        &mut self,
        reread: impl Fn() -> Result<R::Config, ConfigError>,
    ) -> anyhow::Result<String> {
        let config = reread()?;
        self.config.verify_change(&config)?;
        let handle = self.runtime.handle().clone();
        let _context = handle.enter();
        R::apply(self, &config)?;
        self.event_loop.configuration = configuration_status(&config);
        let mut changes = vec![self.config.difference(&config)];
        changes.extend(config.missing_directories());
        self.config = config;
        Ok(changes.join("; "))
    }

    /// Waits until `by` for remaining work to end by itself, and saves its results.
    fn stop(self, by: Instant) -> anyhow::Result<()> {
        let (mut event_loop, mut tasks) = (self.event_loop, self.tasks);
        // The listeners end first, so that the effects of their last requests can be saved.
        drop((self.public, self.admin, self.control));
        event_loop.role.end();
        self.runtime.block_on(async {
            let left = by.saturating_duration_since(Instant::now());
            let answered = async { while tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(left.max(LAST_MOMENT), answered).await;
        });
        if let Some(hub) = &event_loop.parts.hub.linked {
            hub.record_unverified();
        }
        let finished = event_loop.finish(&self.received);
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

fn log_level(config: &impl DaemonConfig) -> LogLevel {
    let (.., log) = config.shared();
    log.level
}

/// Returns the status of a configuration that has just been loaded.
fn configuration_status(config: &impl DaemonConfig) -> ConfigurationStatus {
    ConfigurationStatus {
        loaded: Timestamp::now(),
        refused: None,
        effective: config.effective(&|_| None),
    }
}
