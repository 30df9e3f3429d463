//! The front of a daemon: its listeners while they are served, and the tasks that serve them.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use crate::admin::{Admin, Readiness};
use crate::config::server::ServerSettings;
use crate::control::{self, ControlSocket};
use crate::daemon::event_loop::Input;
use crate::daemon::listen::{ServedListener, until_dropped};

/// Minimum time that listeners get to send the answers that are ready when the daemon stops.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The listeners, served until this is dropped.
pub struct Front {
    pub public: ServedListener,
    pub admin: ServedListener,
    /// The socket of commands, and the handle that keeps it open.
    pub control: Option<(ControlSocket, watch::Sender<()>)>,
    pub tasks: JoinSet<()>,
}

impl Front {
    /// Takes no more clients. Returns a wait until `by`, and a moment at least, for answers to clients that have come before.
    pub fn close(self, by: Instant) -> impl Future<Output = ()> {
        let mut tasks = self.tasks;
        drop((self.public, self.admin, self.control));
        async move {
            let left = by.saturating_duration_since(Instant::now());
            let all = async { while tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(left.max(LAST_MOMENT), all).await;
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

/// Serves commands until the return value is dropped.
pub fn serve_commands<I: Send + 'static>(
    state_dir: &Path,
    inputs: &Sender<Input<I>>,
    tasks: &mut JoinSet<()>,
) -> Option<(ControlSocket, watch::Sender<()>)> {
    match control::bind(state_dir) {
        Ok((listener, socket)) => {
            let inputs = inputs.clone();
            let command = move |request, reply| {
                // A loop that has stopped answers by dropping the reply.
                let _ = inputs.send(Input::Command(request, reply));
            };
            let (open, ended) = until_dropped();
            tasks.spawn(control::serve(listener, command, ended));
            Some((socket, open))
        }
        Err(error) => {
            let directory = state_dir.display();
            warn!(%error, "cannot accept commands such as `rsnotify accept` in {directory}: {error}");
            None
        }
    }
}
