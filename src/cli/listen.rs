//! `listen`: subscribe to a topic and print what arrives.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use url::Url;

use crate::cli::options::{Exit, ListenOptions};
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::discover::discover;
use crate::websub::subscribe::{Received, Subscriber};

/// A lease is renewed when this part of it is over.
const RENEWAL: f64 = 0.8;
/// Where the hub does not say how long a lease lasts.
const UNTOLD_LEASE: Duration = Duration::from_secs(600);

pub fn listen(options: &ListenOptions) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the network threads")?;
    runtime.block_on(subscribed(options))
}

async fn subscribed(options: &ListenOptions) -> anyhow::Result<Exit> {
    let asked = Topic::new(options.topic.as_str());
    let discovery = discover(&asked).await?;
    let topic = discovery.self_uri;
    let hub = match (&options.hub, discovery.hubs.into_iter().next()) {
        (Some(hub), _) => Hub::new(hub.as_str()),
        (None, Some(hub)) => hub,
        (None, None) => anyhow::bail!("{topic} names no hub to subscribe at; name one with --hub"),
    };
    let address: SocketAddr = match &options.callback_listen {
        Some(address) => address.parse().with_context(|| {
            format!("--callback-listen {address}: not an address such as 127.0.0.1:8500")
        })?,
        None => (Ipv4Addr::LOCALHOST, 0).into(),
    };
    let callback = match &options.callback {
        Some(callback) => Some(
            Url::parse(callback).with_context(|| format!("--callback {callback}: not a URL"))?,
        ),
        None => None,
    };
    let lease = options
        .lease
        .map(|seconds| Duration::from_secs(seconds.get()));
    let (subscriber, received) = Subscriber::bind(address, callback).await?;
    let granted = subscriber.subscribe(&hub, &topic, lease, None).await?;
    eprintln!("listening to {topic} by {hub}; Ctrl-C ends it");
    let printed = print_all(options, &subscriber, &hub, &topic, lease, granted, received).await;
    // The lease ends by itself if the hub does not answer.
    let farewell = subscriber.unsubscribe(&hub, &topic);
    let _ = tokio::time::timeout(Duration::from_secs(3), farewell).await;
    printed.map(|()| Exit::Fine)
}

async fn print_all(
    options: &ListenOptions,
    subscriber: &Subscriber,
    hub: &Hub,
    topic: &Topic,
    lease: Option<Duration>,
    mut granted: Option<Duration>,
    mut received: mpsc::Receiver<Received>,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        let renewal = granted.unwrap_or(UNTOLD_LEASE).mul_f64(RENEWAL);
        tokio::select! {
            notification = received.recv() => match notification {
                Some(notification) => {
                    let printed = print(&notification, options.xml);
                    match printed {
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                        printed => printed?,
                    }
                }
                None => return Ok(()),
            },
            () = tokio::time::sleep(renewal) => {
                granted = subscriber.subscribe(hub, topic, lease, None).await?;
            }
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// One line per change, or the payload as it came.
fn print(notification: &Received, xml: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if xml {
        out.write_all(&notification.body)?;
        return writeln!(out);
    }
    match Payload::parse(&notification.body) {
        Ok(payload) => {
            for entry in &payload.entries {
                let datetime = entry
                    .datetime
                    .map(|at| format!("{at:.3}"))
                    .unwrap_or_default();
                write!(
                    out,
                    "{datetime}  {:<7}  {:<16}  {}",
                    entry.change, entry.capability, entry.uri
                )?;
                match &entry.index {
                    Some(index) => writeln!(out, "  (index {index})")?,
                    None => writeln!(out)?,
                }
            }
        }
        Err(error) => eprintln!(
            "rsnotify: what arrived for {} is no notification: {error}",
            notification.topic
        ),
    }
    out.flush()
}
