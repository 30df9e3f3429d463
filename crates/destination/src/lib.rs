//! A Destination: subscribes to topics, or reads from a message broker, and prints each notification or runs a command for
//! it. It is made of the public parts of [`resourcesync`], [`websub`] and [`messaging`].
//!
//! [`listen`] is all of it. A channel has a `keeper`, which subscribes and renews, and a `receiver`, which hands over in
//! order, and first what was missed: `memory` says what that is, and `change_lists` reads it.
//!
//! ```no_run
//! use destination::{LEASE, ListenTo, OutputOptions, SubscribeOptions};
//!
//! # async fn listen() -> Result<(), Box<dyn std::error::Error>> {
//! let origin = ListenTo::Topics(SubscribeOptions {
//!     urls: vec!["https://example.org/capabilitylist.xml".to_owned()],
//!     lease: LEASE,
//!     ..SubscribeOptions::default()
//! });
//! let failed = destination::listen(origin, OutputOptions::default()).await?;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

mod broker;
mod change_lists;
mod channels;
mod command;
mod failure;
mod keeper;
mod memory;
mod notification;
mod receiver;
mod reporter;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use messaging::session::MessageSelection;
use messaging::settings::BrokerSettings;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Topic};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use url::Url;
use websub::http::lock;
use websub::subscriber::{CallbackKey, HttpSubscriber};

use crate::channels::{ListenedChannel, NewChannelWatcher, channels};
use crate::command::{KILL_AFTER, STOP_GRACE};
use crate::failure::Failure;
pub use crate::failure::FailureKind;
use crate::keeper::{FirstRequestFailure, SubscriptionKeeper};
use crate::memory::{KeySet, Memory};
use crate::receiver::{CatchUpRetry, TopicReceiver, initial_memory};
use crate::reporter::{OutputText, Reporter};
use crate::state::{ListenState, SavedSubscription};

/// Lease to request, unless another is wanted.
pub const LEASE: Duration = Duration::from_secs(60 * 60);
/// Time between two looks for channels that are advertised since.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);
/// Time until documents are read again of which some cannot be read. It doubles each time.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Minimum time between them, however often the documents that advertise channels change.
const MIN_LOOK: Duration = Duration::from_secs(2);
const ALMOST_A_SECOND: Duration = Duration::from_millis(999);
/// Time to end what is under way.
const STOP_TIMEOUT: Duration = STOP_GRACE
    .saturating_add(KILL_AFTER.saturating_mul(2))
    .saturating_add(Duration::from_secs(1));
/// Time to print what waits when it stops.
const STOP_PRINTING_AFTER: Duration = Duration::from_secs(1);
/// Timeout for the last answers to hubs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The channels to subscribe to, and how.
#[derive(Debug, Clone, Default)]
pub struct SubscribeOptions {
    /// Topics, or Capability Lists and Source Descriptions, which stand for their channels.
    pub urls: Vec<String>,
    /// The kind of channels to take from a Capability List or Source Description; none for both.
    pub kind: Option<ChannelKind>,
    /// The callback URL for the hub to call; none for the address itself.
    pub callback: Option<Url>,
    /// The address to receive notifications at; none for a port of loopback.
    pub callback_listen: Option<SocketAddr>,
    /// The hub to subscribe at; none for the one that the topic names.
    pub hub: Option<Hub>,
    /// The file that makes a restart the same subscriber.
    pub state: Option<PathBuf>,
    /// The lease to request, such as [`LEASE`].
    pub lease: Duration,
}

/// Form in which notifications are handed over: printed as lines of text, unless something else is named.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// True to print a line of JSON for each notification and event.
    pub json: bool,
    /// True to print notifications as received.
    pub xml: bool,
    /// The command to run instead.
    pub exec: Option<ExecOptions>,
}

/// A command that takes notifications, as lines of JSON.
#[derive(Debug, Clone)]
pub struct ExecOptions {
    /// The line that the shell runs.
    pub line: String,
    /// True to run it once for all notifications of a topic that are waiting.
    pub is_batch: bool,
    /// The time after which a run is ended, and counts as failed.
    pub timeout: Duration,
}

/// Where notifications come from.
#[derive(Debug, Clone)]
pub enum ListenTo {
    /// The hubs of topics.
    Topics(SubscribeOptions),
    /// A message broker.
    Broker(BrokerSettings, MessageSelection),
}

/// Hands notifications over until a signal comes or the output is closed. Returns the kind of the failure that ended it,
/// which was reported.
///
/// # Errors
///
/// If the thread that prints cannot be started.
pub async fn listen(
    origin: ListenTo,
    output: OutputOptions,
) -> anyhow::Result<Option<FailureKind>> {
    let reporter = Reporter::start(output.json).context("cannot start the thread that prints")?;
    let ended = match origin {
        ListenTo::Topics(options) => listen_to_topics(options, output, &reporter).await,
        ListenTo::Broker(settings, wanted) => {
            broker::run(settings, wanted, &output, &reporter).await
        }
    };
    let failed = ended.err().map(|failure| {
        reporter.print_later(OutputText::Message(failure.reason));
        failure.kind
    });
    reporter.finish().await;
    Ok(failed)
}

async fn listen_to_topics(
    options: SubscribeOptions,
    output: OutputOptions,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let stop = stop_signals().context("cannot wait for signals")?;
    let state = ListenState::load(options.state.as_deref())?;
    let (channels, unusable) = wanted_channels(&options, &state, reporter).await?;
    let destination = bind(&options, &state).await?;
    save_subscriptions(&state, &channels, destination.address.port()).await?;

    let (first, mut firsts) = mpsc::unbounded_channel();
    let listening = Arc::new(ListenContext {
        options,
        output,
        reporter: reporter.clone(),
        state,
        destination,
        first,
        look: Notify::new(),
        stop: stop.subscribe(),
    });
    let destination = &listening.destination;
    let mut watched = NewChannelWatcher::new(&listening, &channels, unusable);
    let mut receivers = JoinSet::new();
    let mut keepers = Vec::new();
    for channel in channels.into_values() {
        keepers.extend(listening.open_callback(channel, false, &mut receivers));
    }
    // All callbacks are known by now.
    destination.serve();
    let mut undecided = PendingFirstRequests {
        left: keepers.len(),
        ..PendingFirstRequests::default()
    };
    let mut subscriptions = JoinSet::new();
    for keeper in keepers {
        subscriptions.spawn(keeper.run());
    }
    let outcome = loop {
        tokio::select! {
            () = wait_for_stop(&listening.stop) => break Ok(()),
            Some(first) = firsts.recv() => {
                if let Some(failure) = undecided.add_outcome(first, reporter) {
                    break Err(failure);
                }
            }
            Some(ended) = receivers.join_next() => match ended.context("a task ended")? {
                // Its subscription was given up.
                Ok(()) => {}
                ended => break ignore_broken_pipe(ended),
            },
            () = listening.look.notified() => watched.look_soon(),
            found = watched.find_new() => {
                for channel in found {
                    undecided.left += 1;
                    if let Some(keeper) = listening.open_callback(channel, true, &mut receivers) {
                        subscriptions.spawn(keeper.run());
                    }
                }
            }
        }
    };
    // After a failure, no signal has stopped the others.
    stop.send_modify(|stops| *stops = (*stops).max(1));
    let finish = async {
        let ended = async {
            while subscriptions.join_next().await.is_some() {}
            while receivers.join_next().await.is_some() {}
        };
        // Longer than a command may take, but not than Change Lists may that are being read.
        let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
        receivers.shutdown().await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, destination.close()).await;
    };
    tokio::select! {
        () = finish => {}
        () = wait_for_second_signal(&listening.stop) => {}
    }
    outcome
}

/// The parts that all subscriptions share.
#[derive(Debug)]
struct ListenContext {
    options: SubscribeOptions,
    output: OutputOptions,
    reporter: Reporter,
    state: ListenState,
    destination: HttpSubscriber,
    /// Receives the outcome of each first request.
    first: mpsc::UnboundedSender<Result<(), FirstRequestFailure>>,
    /// Notified when a document that advertises channels has changed.
    look: Notify,
    /// Number of signals; with the first one, nothing more is to be handed over.
    stop: watch::Receiver<u32>,
}

impl ListenContext {
    /// Returns true if notifications that are waiting are handed over together.
    fn is_batch(&self) -> bool {
        let exec = self.output.exec.as_ref();
        exec.is_some_and(|command| command.is_batch)
    }

    /// Opens the callback of a channel whose subscription is saved, and receives what comes there. Returns the keeper,
    /// which is to be run.
    fn open_callback(
        self: &Arc<Self>,
        channel: ListenedChannel,
        is_found_later: bool,
        receivers: &mut JoinSet<io::Result<()>>,
    ) -> Option<SubscriptionKeeper> {
        let saved = lock(&self.state.saved);
        let saved = saved.subscriptions.get(&channel.topic)?;
        let key = CallbackKey {
            id: saved.callback.clone(),
            secret: saved.secret.clone(),
        };
        let (subscription, received) = self.destination.open_callback(&key, &channel.topic);
        let check = Arc::new(Notify::new());
        let receiver = TopicReceiver {
            listening: Arc::clone(self),
            topic: channel.topic.clone(),
            received,
            check: Arc::clone(&check),
            heard: KeySet::default(),
            retry: CatchUpRetry::default(),
        };
        receivers.spawn(receiver.run());
        Some(SubscriptionKeeper {
            listening: Arc::clone(self),
            subscription,
            topic: channel.topic,
            hub: channel.hub,
            check,
            is_verified: saved.is_verified,
            is_found_later,
            lease: None,
            attempts: 0,
        })
    }
}

/// Finds the channels of all URLs, and the URLs of documents and topics that are reported as unusable, to be read again
/// later. Channels that cannot be read now and were known before stay as they were.
async fn wanted_channels(
    options: &SubscribeOptions,
    state: &ListenState,
    reporter: &Reporter,
) -> Result<(BTreeMap<Topic, ListenedChannel>, BTreeSet<String>), Failure> {
    let saved = lock(&state.saved).clone();
    let (mut wanted, mut all_unusable) = (BTreeMap::new(), BTreeSet::new());
    for asked in &options.urls {
        let of_asked = saved.subscriptions.iter().filter(|(_, saved)| {
            saved.is_verified && saved.asked == *asked && saved.is_wanted(options.kind)
        });
        let mut known: Vec<ListenedChannel> = of_asked
            .map(|(topic, saved)| saved.channel(topic, options.hub.as_ref()))
            .collect();
        let (found, unusable) = match channels(asked, options).await {
            Ok(found) => {
                let is_unusable = |url: &str| found.unusable.iter().any(|(one, _)| one == url);
                known.retain(|known| {
                    let list = known.capability_list.as_deref();
                    let is_unread = list.is_none_or(|list| !found.lists.contains(list));
                    !found.unusable.is_empty() && (is_unread || is_unusable(known.topic.as_str()))
                });
                (found.channels, found.unusable)
            }
            Err(failure) if known.is_empty() => return Err(failure),
            Err(failure) => (Vec::new(), vec![(asked.clone(), failure)]),
        };
        // A topic that was given itself is requested all the same, and not looked for again.
        let is_topic = found.is_empty() && known.iter().all(|known| known.kind.is_none());
        let wait = (!is_topic).then(|| wait_after(1).as_secs());
        for (url, failure) in unusable {
            reporter.no_channel(&url, &failure.reason, wait);
            all_unusable.insert(url);
        }
        for channel in found.into_iter().chain(known) {
            wanted.entry(channel.topic.clone()).or_insert(channel);
        }
    }
    Ok((wanted, all_unusable))
}

/// Returns the wait before documents are read again of which some could not be read, several times in a row.
fn wait_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    let wait = READ_AGAIN_AFTER.saturating_mul(doubled);
    wait.min(LOOK_AGAIN_AFTER)
}

/// Binds the callback server, at the same port as before.
async fn bind(options: &SubscribeOptions, state: &ListenState) -> Result<HttpSubscriber, Failure> {
    let port = lock(&state.saved).port;
    let on_loopback = || (Ipv4Addr::LOCALHOST, port.unwrap_or_default()).into();
    let address = options.callback_listen.unwrap_or_else(on_loopback);
    let bound = HttpSubscriber::bind(address, options.callback.clone()).await;
    if options.callback_listen.is_some() || port.is_none() {
        return Ok(bound?);
    }
    Ok(bound.context(
        "the port in the state file is in use: does another listen use that file? If not, name a port with \
         --callback-listen",
    )?)
}

/// Saves callback and secret of each subscription before a hub hears of them, and where each channel was found this time.
async fn save_subscriptions(
    state: &ListenState,
    wanted: &BTreeMap<Topic, ListenedChannel>,
    port: u16,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    let saved = lock(&state.saved).clone();
    for (topic, channel) in wanted {
        let subscription = if let Some(earlier) = saved.subscriptions.get(topic) {
            earlier.clone().with_channel(channel)
        } else {
            let memory = match saved.memory_of_moved(channel, wanted) {
                Some(memory) => memory,
                None if state.path.is_some() => initial_memory(channel).await,
                None => Memory::default(),
            };
            SavedSubscription::new(channel, memory)
        };
        all.push((topic.clone(), subscription));
    }
    state.add(port, all)
}

/// The subscriptions whose first request is not answered yet.
#[derive(Default)]
struct PendingFirstRequests {
    left: usize,
    has_success: bool,
    /// Failures that are not reported yet: if all fail, none is retried.
    failures: Vec<FirstRequestFailure>,
}

impl PendingFirstRequests {
    /// Notes the outcome of a first request. Returns the first failure once all have failed.
    fn add_outcome(
        &mut self,
        first: Result<(), FirstRequestFailure>,
        reporter: &Reporter,
    ) -> Option<Failure> {
        self.left = self.left.saturating_sub(1);
        match first {
            Ok(()) => self.has_success = true,
            Err(failure) => self.failures.push(failure),
        }
        let report = |failed: &FirstRequestFailure, retry_seconds| {
            let (topic, reason) = (failed.topic.as_str(), &failed.failure.reason);
            reporter.not_subscribed(topic, reason, None, retry_seconds);
        };
        if self.has_success {
            for failed in self.failures.drain(..) {
                let left = |at: Instant| at.saturating_duration_since(Instant::now());
                let left = failed.retry_at.map(left);
                // Rounded up, so that it is no sooner than stated.
                report(&failed, left.map(|left| (left + ALMOST_A_SECOND).as_secs()));
            }
            return None;
        }
        if self.left > 0 || self.failures.is_empty() {
            return None;
        }
        // As text, the first one is reported as the reason for the end.
        let reported_later = usize::from(!reporter.is_json);
        for failed in self.failures.iter().skip(reported_later) {
            report(failed, None);
        }
        Some(self.failures.swap_remove(0).failure)
    }
}

/// Counts a closed output as a regular end, like a signal.
fn ignore_broken_pipe(ended: io::Result<()>) -> Result<(), Failure> {
    match ended {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot print").into())
        }
        _ => Ok(()),
    }
}

/// Counts the signals that stop it, from now on: SIGTERM, SIGINT and SIGHUP.
fn stop_signals() -> io::Result<watch::Sender<u32>> {
    let (stop, _) = watch::channel(0);
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let (mut signals, stop) = (signal(kind)?, stop.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                stop.send_modify(|stops| *stops += 1);
            }
        });
    }
    Ok(stop)
}

/// Waits until it is to stop.
async fn wait_for_stop(stop: &watch::Receiver<u32>) {
    // An error means that the sender has ended, and so has everything else.
    let _ = stop.clone().wait_for(|stops| *stops > 0).await;
}

/// Waits for a second signal. It does not wait for a command that is running: dropped, it is killed.
async fn wait_for_second_signal(stop: &watch::Receiver<u32>) {
    let _ = stop.clone().wait_for(|stops| *stops > 1).await;
}

#[cfg(test)]
mod tests {
    use super::{
        Duration, Failure, FailureKind, FirstRequestFailure, PendingFirstRequests, Reporter, Topic,
        stop_signals, wait_after, wait_for_stop,
    };

    fn failed(kind: FailureKind) -> Result<(), FirstRequestFailure> {
        let reason = "no".to_owned();
        Err(FirstRequestFailure {
            topic: Topic::new("https://e.org/t"),
            failure: Failure { reason, kind },
            retry_at: None,
        })
    }

    #[test]
    fn it_ends_only_if_every_first_request_fails() {
        let reporter = Reporter::start(false).unwrap();
        let decided = |outcomes: Vec<Result<(), FirstRequestFailure>>| {
            let mut undecided = PendingFirstRequests {
                left: 2,
                ..PendingFirstRequests::default()
            };
            let decisions = outcomes.into_iter();
            let decisions = decisions.map(|outcome| undecided.add_outcome(outcome, &reporter));
            Vec::from_iter(decisions.map(|failure| failure.map(|failure| failure.kind)))
        };
        let refused = || failed(FailureKind::Refused);
        let both = vec![refused(), failed(FailureKind::Temporary)];
        assert_eq!(decided(both), [None, Some(FailureKind::Refused)]);
        // A later success may come after a denial, for example.
        assert_eq!(decided(vec![refused(), Ok(()), Ok(())]), [None; 3]);
    }

    #[test]
    fn documents_that_cannot_be_read_are_read_again_less_and_less_often() {
        let waits = [1, 2, 3, 4, 5, u32::MAX].map(|failures| wait_after(failures).as_secs());
        assert_eq!(waits, [60, 120, 240, 480, 600, 600]);
    }

    #[tokio::test]
    async fn a_closed_terminal_ends_it_like_ctrl_c() {
        let stop = stop_signals().unwrap().subscribe();
        let process = rustix::process::getpid();
        rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
        let stopped = tokio::time::timeout(Duration::from_secs(10), wait_for_stop(&stop));
        assert_eq!(stopped.await, Ok(()));
    }
}
