//! `health`: checks the health of the running daemon, for a supervisor that restarts it.
//!
//! A container image without a shell has no other means to check. So this needs no published tree, no state directory
//! and no secret, only the address of the admin listener.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use resourcesync::escape::excerpt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::cli::options::HealthOptions;
use crate::cli::output::print;
use crate::cli::{Exit, block_on};
use crate::config::environment::ProcessEnvironment;
use crate::config::text::Address;
use resourcesync::datetime::format_duration;

/// Maximum size of an answer; that of rsnotify is one short line.
const LONGEST_ANSWER: usize = 4 * 1024;

pub fn health(file: Option<&Path>, options: &HealthOptions) -> anyhow::Result<Exit> {
    let mut overrides = options.tree.overrides();
    let listen = &options.admin_listen;
    overrides.daemon.admin_listen.clone_from(listen);
    let address = ProcessEnvironment::of_this_process().admin_address(file, &overrides)?;
    if matches!(address, Address::Tcp(tcp) if tcp.port() == 0) {
        bail!(
            "the admin listener takes any free port, and only the daemon's log says which: give it one in \
             server.admin_listen"
        );
    }
    let address = reachable_address(&address);
    let page = if options.ready { "/readyz" } else { "/healthz" };
    let patience = format_duration(options.timeout);
    let answered = block_on(async { timeout(options.timeout, get_page(&address, page)).await })?;
    let Ok(answered) = answered else {
        bail!("no answer from {address} to {page} within {patience}");
    };
    let answer = answered.with_context(|| format!("cannot ask {address} for {page}"))?;
    let (head, body) = answer.into_parts();
    let body = String::from_utf8_lossy(&body);
    // The server need not be rsnotify.
    let line = body.lines().next().unwrap_or_default();
    let line = excerpt(line, LONGEST_ANSWER);
    if head.status != StatusCode::OK {
        bail!("{address} answers {page} with {}: {line}", head.status);
    }
    print(|out| writeln!(out, "{line}"))
}

/// Returns the address at which this machine reaches a listener.
pub fn reachable_address(address: &Address) -> Address {
    let unspecified = match address {
        Address::Tcp(tcp) if tcp.ip().is_unspecified() => tcp,
        _ => return address.clone(),
    };
    let ip = match unspecified.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    Address::Tcp(SocketAddr::new(ip, unspecified.port()))
}

async fn get_page(address: &Address, page: &str) -> anyhow::Result<Response<Bytes>> {
    match address {
        Address::Tcp(tcp) => http_get(TcpStream::connect(tcp).await?, &tcp.to_string(), page).await,
        Address::Unix(path) => http_get(UnixStream::connect(path).await?, "localhost", page).await,
    }
}

/// Sends one request on a new connection, without a proxy, whatever the environment says.
async fn http_get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    page: &str,
) -> anyhow::Result<Response<Bytes>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(page)
        .header(HOST, host)
        .body(Empty::<Bytes>::new())?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let read = Limited::new(body, LONGEST_ANSWER).collect().await;
    let body = read.map_err(|error| anyhow::anyhow!(error))?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::text::TextValue;

    #[test]
    fn a_listener_for_everybody_is_asked_on_this_machine() {
        for (listens, reached_at) in [
            ("0.0.0.0:8401", "127.0.0.1:8401"),
            ("[::]:8401", "[::1]:8401"),
            ("10.0.0.7:8401", "10.0.0.7:8401"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            let address = Address::read(listens).unwrap();
            assert_eq!(reachable_address(&address).to_string(), reached_at);
        }
    }
}
