//! Listeners that the service manager has opened for us (socket activation): clients may have come before we did.

use std::os::fd::AsFd;

use anyhow::{Context, bail, ensure};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use crate::daemon::listen::BoundListener;
use crate::websub::server::Listener;

/// What was given for each of the two.
#[derive(Default)]
pub struct ActivatedSockets {
    pub public: Option<BoundListener>,
    pub admin: Option<BoundListener>,
}

/// Takes what was given, once, and out of the environment: so before any thread has something to do that reads it, but
/// within a tokio runtime. What is named `admin` is for that, any other for topics: a socket unit that names nothing
/// lends its own name.
pub fn take() -> anyhow::Result<ActivatedSockets> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut sockets = ListenFd::from_env();
    let mut given = ActivatedSockets::default();
    for index in 0..sockets.len() {
        let (name, own) = match names.next() {
            Some("admin") => ("admin", &mut given.admin),
            _ => ("public", &mut given.public),
        };
        let listener = listener(&mut sockets, index).with_context(|| {
            format!("cannot use the socket passed by the service manager ({name})")
        })?;
        if own.replace(BoundListener::given(name, listener)).is_some() {
            bail!(
                "more than one socket was given ({name}): give one, and name another one \"admin\" (FileDescriptorName= \
                 of its socket unit)"
            );
        }
    }
    Ok(given)
}

fn listener(sockets: &mut ListenFd, index: usize) -> anyhow::Result<Listener> {
    if let Ok(Some(tcp)) = sockets.take_tcp_listener(index) {
        is_listening(&tcp)?;
        tcp.set_nonblocking(true)?;
        return Ok(Listener::Tcp(tcp.try_into()?));
    }
    let unix = sockets.take_unix_listener(index);
    let unix = unix
        .ok()
        .flatten()
        .context("it is neither TCP nor a Unix stream")?;
    is_listening(&unix)?;
    unix.set_nonblocking(true)?;
    Ok(Listener::Unix(unix.try_into()?))
}

fn is_listening(socket: impl AsFd) -> anyhow::Result<()> {
    ensure!(
        socket_acceptconn(socket)?,
        "it does not accept connections; a systemd socket unit needs Accept=no"
    );
    Ok(())
}
