//! Signals: SIGTERM and SIGINT stop the daemon, SIGHUP reloads the configuration.

use std::sync::mpsc::Sender;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::daemon::event_loop::Input;

/// Signals that are handled as long as this exists; unhandled, each would end the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to handle signals.
    pub fn take() -> anyhow::Result<Signals> {
        let take = |kind, name| signal(kind).with_context(|| format!("cannot wait for {name}"));
        Ok(Signals {
            terminate: take(SignalKind::terminate(), "SIGTERM")?,
            interrupt: take(SignalKind::interrupt(), "SIGINT")?,
            hangup: take(SignalKind::hangup(), "SIGHUP")?,
        })
    }

    /// Forwards each signal to the loop, as the input that it stands for.
    pub async fn forward<I>(mut self, inputs: Sender<Input<I>>) {
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
