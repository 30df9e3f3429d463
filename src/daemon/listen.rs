//! Listeners: bound as the configuration says, or passed by the service manager, and served until they are dropped.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use hyper::Request;
use hyper::body::Incoming;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;
use websub::http::server::{self, Listener, ServerLimits};
use websub::hub::http::EmbeddedHub;
use websub::hub::request::http::serve_public;
use websub::topics::http::Topics;

use crate::admin::AdminPages;
use crate::config::text::Address;
use crate::control::SocketFile;

/// Backlog of clients that wait to be accepted. With the usual 128, a burst of them waits a second for TCP to retry, or
/// is rejected at a Unix socket. The system may allow fewer.
const BACKLOG: i32 = 4_096;

/// Maximum connections to the admin pages: probes, Prometheus and an operator or two.
const ADMIN_CONNECTIONS: usize = 64;

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerRole {
    /// Topics and the embedded hub.
    Public,
    /// The admin pages.
    Admin,
}

impl ListenerRole {
    /// Returns the role as logs and errors name it.
    pub fn name(self) -> &'static str {
        match self {
            ListenerRole::Public => "public",
            ListenerRole::Admin => "admin",
        }
    }
}

/// A listener that is bound and not served yet.
pub struct BoundListener {
    pub role: ListenerRole,
    /// Address as configured; nothing if the service manager passed the socket.
    pub address: Option<Address>,
    pub listener: Listener,
    /// The socket's file; nothing if it is the service manager's own.
    pub file: Option<SocketFile>,
}

/// A listener of the daemon, which is served until this is dropped.
pub struct RunningListener {
    /// Address as configured; nothing if the service manager passed the socket.
    pub address: Option<Address>,
    /// Address that it is bound to.
    pub tcp: Option<SocketAddr>,
    _file: Option<SocketFile>,
    _open: watch::Sender<()>,
}

/// Binds a listener.
pub async fn bind(address: &Address, role: ListenerRole) -> anyhow::Result<BoundListener> {
    let name = role.name();
    let (listener, file) = match address {
        Address::Tcp(tcp) => {
            let listener = TcpListener::bind(tcp).await.with_context(|| {
                format!("cannot listen on {tcp} ({name}); is another program there?")
            })?;
            widen_backlog(&listener);
            (Listener::Tcp(listener), None)
        }
        Address::Unix(path) => {
            remove_stale_socket(path);
            let listener = UnixListener::bind(path)
                .with_context(|| format!("cannot listen on unix:{} ({name})", path.display()))?;
            let file = SocketFile(path.clone());
            widen_backlog(&listener);
            if role == ListenerRole::Public {
                // The web server in front is another user. Its directory may still keep others out.
                std::fs::set_permissions(path, Permissions::from_mode(0o666))
                    .with_context(|| format!("cannot open unix:{} to all", path.display()))?;
            }
            (Listener::Unix(listener), Some(file))
        }
    };
    Ok(BoundListener {
        role,
        address: Some(address.clone()),
        listener,
        file,
    })
}

impl BoundListener {
    /// Logs where it listens.
    pub fn log_address(&self) {
        let bound = match &self.listener {
            Listener::Tcp(tcp) => tcp.local_addr().map(Address::Tcp),
            Listener::Unix(unix) => unix.local_addr().map(|address| {
                let path = address.as_pathname().map(Path::to_owned);
                Address::Unix(path.unwrap_or_default())
            }),
        };
        let address = bound.map_or_else(|error| error.to_string(), |it| it.to_string());
        let listener = self.role.name();
        if self.address.is_some() {
            info!(listener, address, "listening");
        } else {
            info!(
                listener,
                address, "listening on the socket passed by the service manager"
            )
        }
    }

    /// Serves topics and the embedded hub, as a task. Must be called within a tokio runtime.
    pub fn serve_public(
        self,
        tasks: &mut JoinSet<()>,
        topics: Arc<Topics>,
        hub: watch::Receiver<Option<Arc<EmbeddedHub>>>,
    ) -> RunningListener {
        self.serve(tasks, |listener, ended| {
            serve_public(listener, topics, hub, ServerLimits::default(), ended)
        })
    }

    /// Serves the admin pages, as a task, with the same limits on idle connections as topics. Must be called within a tokio
    /// runtime.
    pub fn serve_admin(self, tasks: &mut JoinSet<()>, admin: AdminPages) -> RunningListener {
        let spare = server::spare_descriptors(getrlimit(Resource::Nofile).current);
        let limits = ServerLimits {
            connections: (spare / 8).clamp(1, ADMIN_CONNECTIONS),
            ..ServerLimits::default()
        };
        let handler = move |request: Request<Incoming>| {
            let admin = admin.clone();
            async move { admin.answer(&request).await }
        };
        self.serve(tasks, |listener, ended| {
            server::serve(listener, limits, ended, handler)
        })
    }

    /// Serves what `server` does, as a task. Must be called within a tokio runtime.
    pub fn serve<S>(
        self,
        tasks: &mut JoinSet<()>,
        server: impl FnOnce(Listener, HandleDropped) -> S,
    ) -> RunningListener
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let (open, ended) = until_dropped();
        let tcp = self.listener.tcp_address();
        tasks.spawn(server(self.listener, ended));
        RunningListener {
            tcp,
            address: self.address,
            _file: self.file,
            _open: open,
        }
    }
}

/// A future that is ready when the other end of [`until_dropped`] is dropped.
type HandleDropped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns a handle, and a future that is ready when the handle is dropped.
pub fn until_dropped() -> (watch::Sender<()>, HandleDropped) {
    let (open, mut opened) = watch::channel(());
    let ended = async move {
        // Nothing is ever sent.
        let _ = opened.changed().await;
    };
    (open, Box::pin(ended))
}

/// Takes the public listener and that of the admin pages, if they were passed, once, and out of the environment: so
/// before any thread may read that, but within a tokio runtime. A socket named `admin` is for the admin pages, any
/// other for topics: a socket unit that names nothing passes its own name.
pub fn passed_listeners() -> anyhow::Result<[Option<BoundListener>; 2]> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut sockets = ListenFd::from_env();
    let (mut public, mut admin) = (None, None);
    for index in 0..sockets.len() {
        let (role, slot) = match names.next() {
            Some("admin") => (ListenerRole::Admin, &mut admin),
            _ => (ListenerRole::Public, &mut public),
        };
        let name = role.name();
        let listener = passed_listener(&mut sockets, index).with_context(|| {
            format!("cannot use the socket passed by the service manager ({name})")
        })?;
        let bound = BoundListener {
            role,
            address: None,
            listener,
            file: None,
        };
        if slot.replace(bound).is_some() {
            bail!(
                "the service manager passed more than one socket ({name}): pass one, and name another one \"admin\" \
                 (FileDescriptorName= of its socket unit)"
            );
        }
    }
    Ok([public, admin])
}

fn passed_listener(sockets: &mut ListenFd, index: usize) -> anyhow::Result<Listener> {
    if let Ok(Some(tcp)) = sockets.take_tcp_listener(index) {
        ensure_listening(&tcp)?;
        tcp.set_nonblocking(true)?;
        return Ok(Listener::Tcp(tcp.try_into()?));
    }
    let taken = sockets.take_unix_listener(index).ok().flatten();
    let unix = taken.context("it is neither TCP nor a Unix stream")?;
    ensure_listening(&unix)?;
    unix.set_nonblocking(true)?;
    Ok(Listener::Unix(unix.try_into()?))
}

fn ensure_listening(socket: impl AsFd) -> anyhow::Result<()> {
    ensure!(
        socket_acceptconn(socket)?,
        "it does not accept connections; a systemd socket unit needs Accept=no"
    );
    Ok(())
}

fn widen_backlog(listener: impl AsFd) {
    // Listening again sets the backlog anew. A failure leaves the usual one.
    let _ = rustix::net::listen(listener, BACKLOG);
}

/// Removes a socket that nobody answers: a process that died left it.
fn remove_stale_socket(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let refused = UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && refused {
        // If it stays, binding reports it.
        let _ = std::fs::remove_file(path);
    }
}
