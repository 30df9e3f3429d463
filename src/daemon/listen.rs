//! Binds what the configuration says to listen on, and serves it until it is to end.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response, StatusCode};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;

use crate::admin::{self, Admin};
use crate::config::address::Address;
use crate::websub::hub::EmbeddedHub;
use crate::websub::public::serve_public;
use crate::websub::server::{self, Limits, Listener, text};
use crate::websub::topics::Topics;

/// How many clients may have come and not been met yet. At the usual 128, a burst of them waits a second for
/// TCP to try again, or is turned away at a Unix socket. The system may allow fewer.
const BACKLOG: i32 = 4_096;

/// Probes, Prometheus and a person or two.
const ADMIN_CONNECTIONS: usize = 64;

/// A listener that is bound, and that nobody serves yet.
pub struct BoundListener {
    name: &'static str,
    /// As configured; nothing for one that was given.
    address: Option<Address>,
    listener: Listener,
    file: Option<SocketFile>,
}

/// A listener that is served; it ends when this is dropped.
pub struct ServedListener {
    address: Option<Address>,
    /// As bound.
    pub tcp: Option<SocketAddr>,
    _file: Option<SocketFile>,
    _open: watch::Sender<()>,
}

/// The name of a Unix socket, which goes with whoever bound it.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The next start removes it if this does not.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds one listener.
pub async fn bind(address: &Address, name: &'static str) -> anyhow::Result<BoundListener> {
    let (listener, file) = match address {
        Address::Tcp(tcp) => {
            let listener = TcpListener::bind(tcp).await.with_context(|| {
                format!("cannot listen on {tcp} ({name}); is another program there?")
            })?;
            widen(&listener);
            (Listener::Tcp(listener), None)
        }
        Address::Unix(path) => {
            remove_stale_socket(path);
            let listener = UnixListener::bind(path)
                .with_context(|| format!("cannot listen on unix:{} ({name})", path.display()))?;
            let file = SocketFile(path.clone());
            widen(&listener);
            if name == "public" {
                // The web server in front is another user. Its directory may still keep others out.
                std::fs::set_permissions(path, Permissions::from_mode(0o666))
                    .with_context(|| format!("cannot open unix:{} to all", path.display()))?;
            }
            (Listener::Unix(listener), Some(file))
        }
    };
    Ok(BoundListener {
        name,
        address: Some(address.clone()),
        listener,
        file,
    })
}

impl ServedListener {
    /// Whether somebody else has bound it.
    pub fn was_given(&self) -> bool {
        self.address.is_none()
    }

    /// Whether it is where it was to be. One that was given is, whatever the configuration says.
    pub fn is_at(&self, address: &Address) -> bool {
        self.address.as_ref().is_none_or(|own| own == address)
    }
}

impl BoundListener {
    /// A listener that somebody else has bound, and whose name is his.
    pub fn given(name: &'static str, listener: Listener) -> BoundListener {
        BoundListener {
            name,
            address: None,
            listener,
            file: None,
        }
    }

    /// The address, once bound to a free port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listener.tcp_address()
    }

    /// Says where it listens.
    pub fn tell(&self) {
        let address = match &self.listener {
            Listener::Tcp(tcp) => tcp.local_addr().map(Address::Tcp),
            Listener::Unix(unix) => unix.local_addr().map(|address| {
                Address::Unix(
                    address
                        .as_pathname()
                        .map(Path::to_owned)
                        .unwrap_or_default(),
                )
            }),
        };
        let address = address.map_or_else(|error| error.to_string(), |it| it.to_string());
        match self.address {
            Some(_) => info!(listener = self.name, address, "listening"),
            None => info!(
                listener = self.name,
                address, "listening on the socket passed by the service manager"
            ),
        }
    }

    /// Serves topics and the hub; within a tokio runtime.
    pub fn serve_public(
        self,
        topics: Topics,
        hub: watch::Receiver<Option<EmbeddedHub>>,
    ) -> (ServedListener, JoinHandle<()>) {
        self.serve(|listener, ended| serve_public(listener, topics, hub, Limits::default(), ended))
    }

    /// Serves the admin pages; within a tokio runtime.
    pub fn serve_admin(self, admin: Admin) -> (ServedListener, JoinHandle<()>) {
        self.serve(|listener, ended| serve_admin(listener, admin, ended))
    }

    fn serve<S>(self, server: impl FnOnce(Listener, Ended) -> S) -> (ServedListener, JoinHandle<()>)
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let (open, ended) = until_dropped();
        let front = ServedListener {
            tcp: self.tcp_address(),
            address: self.address,
            _file: self.file,
            _open: open,
        };
        (front, tokio::spawn(server(self.listener, ended)))
    }
}

/// Ready when something is dropped.
type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something to drop, and what is ready then.
pub fn until_dropped() -> (watch::Sender<()>, Ended) {
    let (open, mut opened) = watch::channel(());
    let ended = async move {
        // Nothing is ever sent.
        let _ = opened.changed().await;
    };
    (open, Box::pin(ended))
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

/// The admin pages, under the same discipline as topics: nobody holds a connection for nothing.
async fn serve_admin(listener: Listener, admin: Admin, shutdown: Ended) {
    let pages = TowerToHyperService::new(admin::router(admin));
    let handler = move |request: Request<Incoming>| {
        let answer = pages.call(request);
        async move {
            let Ok(answer) = answer.await;
            let (head, body) = answer.into_parts();
            match body.collect().await {
                Ok(body) => Response::from_parts(head, Full::new(body.to_bytes())),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
    };
    let spare = server::spare(getrlimit(Resource::Nofile).current);
    let limits = Limits {
        connections: (spare / 8).clamp(1, ADMIN_CONNECTIONS),
        ..Limits::default()
    };
    server::serve(listener, limits, shutdown, handler).await;
}
