//! `listen`: subscribe to a topic and print what arrives.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use crate::cli::exit::Exit;
use crate::cli::options::ListenOptions;
use crate::cli::output::{Output, say};
use crate::daemon::log::error_chain;
use crate::hub::request::Rejection;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::{Document, Form};
use crate::resourcesync::payload::Payload;
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::discover::{discover, document};
use crate::websub::subscribe::{Destination, Received, SubscribeError};

/// A lease is renewed when this part of it is over.
const RENEWAL: f64 = 0.8;
/// Lease if the hub does not state one.
const UNTOLD_LEASE: Duration = Duration::from_secs(600);
/// Beyond this, what a hub says is no time any more.
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Between two requests to a hub, however short its leases, and after one that failed.
const REST: Duration = Duration::from_secs(30);

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
        (Some(hub), Some(_)) => Hub::new(hub.as_str()),
        (None, Some(hub)) => hub,
        (hub, None) => match (hub, document(&asked).await) {
            (Some(_), Some(list)) if !list.channels.is_empty() => {
                return Err(no_hub(&topic, Some(list)));
            }
            (Some(hub), _) => Hub::new(hub.as_str()),
            (None, document) => return Err(no_hub(&topic, document)),
        },
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
    let (destination, received) = Destination::bind(address, callback).await?;
    let subscribe = async || destination.subscribe(&hub, &topic, lease, None).await;
    let granted = subscribe().await.map_err(with_remedy)?;
    let lease = Lease::new(granted, Instant::now());
    let stopped = stopped()?;
    eprintln!("listening to {topic} by {hub}; Ctrl-C ends it");
    let print = |notification: &Received| print(notification, options.xml);
    let outcome = tokio::select! {
        printed = print_all(received, print) => printed.context("cannot print"),
        error = keep(lease, subscribe) => Err(error).context("the lease is over"),
        () = stopped => Ok(()),
    };
    // The lease ends by itself if the hub does not answer.
    let farewell = destination.unsubscribe(&hub, &topic);
    let _ = tokio::time::timeout(Duration::from_secs(3), farewell).await;
    outcome.map(|()| Exit::Fine)
}

/// Says what a URI that names no hub is instead of a topic.
fn no_hub(topic: &Topic, document: Option<Document>) -> anyhow::Error {
    let Some(document) = document else {
        return anyhow!("{topic} names no hub to subscribe at; name one with --hub");
    };
    let is_list = document.capability == Capability::CapabilityList && document.form == Form::List;
    match document.channels.as_slice() {
        [] if is_list => anyhow!(
            "{topic} is a Capability List, and no topic; it advertises none, so ask its Source for the topic"
        ),
        [] => anyhow!(
            "{topic} is a {}, and no topic; the Capability List that it belongs to advertises the topic",
            document.capability
        ),
        [advertised, ..] => anyhow!(
            "{topic} is a Capability List, and no topic; it advertises the topic {0}: rsnotify listen {0}",
            advertised.topic
        ),
    }
}

/// A hub's rejection, with what its operator has to allow if it is one of ours.
fn with_remedy(error: SubscribeError) -> anyhow::Error {
    let is_about_callback = match &error {
        SubscribeError::Refused { excerpt, .. } => [Rejection::Port, Rejection::Address]
            .iter()
            .any(|rejection| excerpt.contains(&rejection.to_string())),
        _ => false,
    };
    match is_about_callback {
        true => anyhow!(
            "{error}; for subscribers on its own host or network, [embedded_hub] of its configuration needs both \
             callback_ports and allow_callback_networks, such as callback_ports = [\"80\", \"443\", \"1024-65535\"] \
             and allow_callback_networks = [\"127.0.0.0/8\", \"::1\"]",
            error = error.to_string().trim_end()
        ),
        false => error.into(),
    }
}

/// The lease of a subscription, and the time of the next renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    renew_at: Instant,
    ends_at: Instant,
}

impl Lease {
    fn new(granted: Option<Duration>, now: Instant) -> Lease {
        let lasts = granted.unwrap_or(UNTOLD_LEASE).min(LONGEST_LEASE);
        Lease {
            renew_at: now + lasts.mul_f64(RENEWAL).max(REST),
            ends_at: now + lasts,
        }
    }

    /// After a renewal that failed: the same lease, as long as it lasts.
    fn tried(self, now: Instant) -> Option<Lease> {
        (now < self.ends_at).then(|| Lease {
            renew_at: (now + REST).min(self.ends_at),
            ..self
        })
    }
}

/// Renews the lease again and again. Ends when it is over, with why it could not be renewed.
async fn keep(
    mut lease: Lease,
    renew: impl AsyncFn() -> Result<Option<Duration>, SubscribeError>,
) -> SubscribeError {
    loop {
        tokio::time::sleep_until(lease.renew_at).await;
        let renewed = renew().await;
        let now = Instant::now();
        lease = match renewed {
            Ok(granted) => Lease::new(granted, now),
            Err(error) => match lease.tried(now) {
                Some(lease) => {
                    say(format_args!(
                        "cannot renew the lease yet: {}",
                        error_chain(&error)
                    ));
                    lease
                }
                None => return error,
            },
        };
    }
}

/// Prints what arrives, until the output is closed.
async fn print_all(
    mut received: mpsc::Receiver<Received>,
    print: impl Fn(&Received) -> io::Result<()>,
) -> io::Result<()> {
    while let Some(notification) = received.recv().await {
        match print(&notification) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            printed => printed?,
        }
    }
    Ok(())
}

/// Waits for a signal to stop. Signals count from the call on.
fn stopped() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// One line per change, or the payload as it came.
fn print(notification: &Received, xml: bool) -> io::Result<()> {
    let mut out = Output::new();
    if xml {
        out.foreign(&notification.body)?;
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
        Err(error) => say(format_args!(
            "what arrived for {} is no notification: {error}",
            notification.topic
        )),
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::resourcesync::document::Content;
    use crate::resourcesync::parse::parse;

    use rstest::rstest;

    use super::*;

    fn refused() -> SubscribeError {
        SubscribeError::Refused {
            hub: Hub::new("https://hub.org/"),
            status: 503,
            excerpt: String::new(),
        }
    }

    fn in_millis(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    #[test]
    fn a_refused_callback_is_reported_with_both_keys_that_allow_it() {
        for rejection in [Rejection::Port, Rejection::Address] {
            let told = with_remedy(SubscribeError::Refused {
                hub: Hub::new("https://hub.org/"),
                status: 403,
                excerpt: format!("{rejection} "),
            });
            let told = told.to_string();
            for words in [
                "callback_ports = [",
                "allow_callback_networks = [",
                &rejection.to_string(),
            ] {
                assert!(told.contains(words), "{told}");
            }
        }
        let told = with_remedy(refused()).to_string();
        assert!(!told.contains("callback_ports"), "{told}");
    }

    #[test]
    fn what_is_no_topic_is_called_what_it_is() {
        let topic = Topic::new("https://e.org/cl.xml");
        let list = |entries: &str| {
            let text = format!(
                "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                 xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
                 <rs:md capability=\"capabilitylist\"/>{entries}</urlset>"
            );
            match parse(text.as_bytes()).unwrap() {
                Content::Document(parsed) => Some(parsed.document),
                Content::Other(other) => panic!("{other}"),
            }
        };
        let advertised = "<url><loc>https://e.org/topic</loc><rs:md capability=\"framework-notification\"/>\
                          <rs:ln rel=\"hub\" href=\"https://hub.org/\"/></url>";
        for (document, want) in [
            (None, "names no hub to subscribe at"),
            (
                list(""),
                "is a Capability List, and no topic; it advertises none",
            ),
            (
                list(advertised),
                "advertises the topic https://e.org/topic: rsnotify listen",
            ),
        ] {
            let told = no_hub(&topic, document).to_string();
            assert!(told.contains(want), "{told}");
        }
    }

    #[rstest]
    #[case(Some(0), 30)]
    #[case(Some(20), 30)]
    #[case(Some(1_000), 800)]
    #[case(None, 480)]
    #[case(Some(u64::MAX), 25_228_800)]
    fn a_lease_is_renewed_before_it_ends_but_not_at_once(
        #[case] granted: Option<u64>,
        #[case] want: u64,
    ) {
        let now = Instant::now();
        let lease = Lease::new(granted.map(Duration::from_secs), now);
        assert_eq!(lease.renew_at - now, Duration::from_secs(want));
    }

    #[test]
    fn a_failed_renewal_is_tried_again_until_the_lease_is_over() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let lease = Lease::new(Some(Duration::from_secs(100)), now);
        let tried = lease.tried(after(60)).unwrap();
        assert_eq!((tried.renew_at, tried.ends_at), (after(90), after(100)));
        let tried = lease.tried(after(90)).unwrap();
        assert_eq!(tried.renew_at, after(100));
        assert_eq!(tried.tried(after(100)), None);
    }

    #[tokio::test]
    async fn one_failed_renewal_does_not_end_it_while_the_lease_lasts() {
        let lease = Lease {
            renew_at: in_millis(10),
            ends_at: in_millis(200),
        };
        let asked = Cell::new(0);
        let renew = async || {
            asked.set(asked.get() + 1);
            Err(refused())
        };
        let kept = tokio::time::timeout(Duration::from_secs(10), keep(lease, renew));
        assert!(kept.await.is_ok(), "it ends with the lease");
        assert_eq!(asked.get(), 2);
    }

    #[tokio::test]
    async fn a_busy_topic_does_not_put_off_the_renewal() {
        let lease = Lease {
            renew_at: in_millis(50),
            ends_at: in_millis(50),
        };
        let (sender, received) = mpsc::channel(1);
        let busy = async {
            loop {
                let notification = Received {
                    topic: Topic::new("https://e.org/t"),
                    self_uri: None,
                    content_type: None,
                    body: Vec::new().into(),
                };
                sender.send(notification).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let happened = async {
            tokio::select! {
                _ = print_all(received, |_| Ok(())) => false,
                _ = keep(lease, async || Err(refused())) => true,
                () = busy => false,
            }
        };
        let renewed = tokio::time::timeout(Duration::from_secs(10), happened);
        assert_eq!(renewed.await, Ok(true));
    }

    #[tokio::test]
    async fn a_closed_terminal_ends_it_as_a_person_does() {
        let stopped = stopped().unwrap();
        let process = rustix::process::getpid();
        rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
        let stopped = tokio::time::timeout(Duration::from_secs(10), stopped);
        assert_eq!(stopped.await, Ok(()));
    }
}
