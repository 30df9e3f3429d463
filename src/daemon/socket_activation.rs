//! Socket activation: listeners that the service manager has opened, so that clients may connect before the daemon has
//! started.

use std::os::fd::AsFd;

use anyhow::{Context, bail, ensure};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use websub::http::server::Listener;

use crate::daemon::listen::{BoundListener, ListenerRole};

/// Takes the public listener and that of the admin pages, if they were passed, once, and out of the environment: so
/// before any thread may read that, but within a tokio runtime. A socket named `admin` is for the admin pages, any
/// other for topics: a socket unit that names nothing passes its own name.
pub fn take() -> anyhow::Result<[Option<BoundListener>; 2]> {
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
        let listener = listener(&mut sockets, index).with_context(|| {
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

fn listener(sockets: &mut ListenFd, index: usize) -> anyhow::Result<Listener> {
    if let Ok(Some(tcp)) = sockets.take_tcp_listener(index) {
        ensure_listening(&tcp)?;
        tcp.set_nonblocking(true)?;
        return Ok(Listener::Tcp(tcp.try_into()?));
    }
    let unix = sockets.take_unix_listener(index);
    let unix = unix
        .ok()
        .flatten()
        .context("it is neither TCP nor a Unix stream")?;
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
