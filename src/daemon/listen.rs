//! Binds what the configuration says to listen on.

use std::fs::Permissions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Context;
use tokio::net::{TcpListener, UnixListener};
use tracing::info;

use crate::admin::{self, Admin};
use crate::config::address::Address;
use crate::websub::server::Listener;

/// How many clients may have come and not been met yet. At the usual 128, a burst of them waits a second for
/// TCP to try again, or is turned away at a Unix socket. The system may allow fewer.
const BACKLOG: i32 = 4_096;

/// Binds one listener, and says where.
pub async fn bind(address: &Address, name: &str) -> anyhow::Result<Listener> {
    let listener = match address {
        Address::Tcp(tcp) => {
            let listener = TcpListener::bind(tcp).await.with_context(|| {
                format!("cannot listen on {tcp} ({name}); is another program there?")
            })?;
            widen(&listener);
            Listener::Tcp(listener)
        }
        Address::Unix(path) => {
            remove_stale_socket(path);
            let listener = UnixListener::bind(path)
                .with_context(|| format!("cannot listen on unix:{} ({name})", path.display()))?;
            widen(&listener);
            if name == "public" {
                // The web server in front is another user. Its directory may still keep others out.
                std::fs::set_permissions(path, Permissions::from_mode(0o666))
                    .with_context(|| format!("cannot open unix:{} to all", path.display()))?;
            }
            Listener::Unix(listener)
        }
    };
    let bound = match listener.tcp_address() {
        Some(bound) => bound.to_string(),
        None => address.to_string(),
    };
    info!(listener = name, address = %bound, "listening");
    Ok(listener)
}

fn widen(listener: impl AsFd) {
    // Listening again sets the backlog anew. A failure leaves the usual one.
    let _ = rustix::net::listen(listener, BACKLOG);
}

/// A socket that nobody answers is left from a process that died.
fn remove_stale_socket(path: &Path) {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && refused {
        // If it stays, binding says so.
        let _ = std::fs::remove_file(path);
    }
}

/// Leaves no socket behind.
pub fn remove_socket(address: &Address) {
    if let Address::Unix(path) = address {
        // The next start removes it if this does not.
        let _ = std::fs::remove_file(path);
    }
}

/// Serves the admin pages until `shutdown`.
pub async fn serve_admin(
    listener: Listener,
    admin: Admin,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let service = admin::router(admin);
    let ended = match listener {
        Listener::Tcp(listener) => {
            axum::serve(listener, service)
                .with_graceful_shutdown(shutdown)
                .await
        }
        Listener::Unix(listener) => {
            axum::serve(listener, service)
                .with_graceful_shutdown(shutdown)
                .await
        }
    };
    if let Err(error) = ended {
        tracing::error!(%error, "the admin listener ended");
    }
}
