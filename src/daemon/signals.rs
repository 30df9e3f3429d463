//! What signals mean: to end, or to look at what is configured.

use std::sync::mpsc::Sender;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::daemon::event_loop::Input;

/// Taken from here on: before, each would end the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub fn take() -> anyhow::Result<Signals> {
        let take = |kind, name| signal(kind).with_context(|| format!("cannot wait for {name}"));
        Ok(Signals {
            terminate: take(SignalKind::terminate(), "SIGTERM")?,
            interrupt: take(SignalKind::interrupt(), "SIGINT")?,
            hangup: take(SignalKind::hangup(), "SIGHUP")?,
        })
    }

    /// Tells the loop of each.
    pub async fn pass_on(mut self, inputs: Sender<Input>) {
        loop {
            let input = tokio::select! {
                _ = self.terminate.recv() => Input::Stop,
                _ = self.interrupt.recv() => Input::Stop,
                _ = self.hangup.recv() => Input::Reload,
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    }
}
