//! Requests to topics and hubs at their public addresses, as hubs and Destinations make them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use messaging::frame::Frame;
use messaging::refusal::BrokerError;
use messaging::session::Session;
use messaging::settings::BrokerSettings;
use resourcesync::uri::Hub;
use url::Url;
use websub::probe::ProbeResult;
use websub::probe::TopicReplies;
use websub::probe::http as probe;
use websub::publisher::settings::PublishSettings;

use crate::cli::block_on;
use crate::cli::check::CheckSection;
use crate::cli::one_shot_scan::OneShotScan;
use crate::config::Config;
use crate::diagnostics::topic::{self, ExpectedTopic};
use crate::diagnostics::{Diagnostic, clock, hub, origin};
use crate::report;
use crate::report::status::ChannelView;
use announce::plan::PublishMode;
use announce::state::{self, open::is_in_use};

/// Timeout for all topics together.
const PATIENCE: Duration = Duration::from_secs(120);

/// Replies of topics and hubs.
struct ProbeReplies {
    topics: Vec<(ExpectedTopic, Option<TopicReplies>)>,
    hubs: Vec<hub::HubProbe>,
    brokers: Vec<Diagnostic>,
    embedded: Option<(Hub, ProbeResult)>,
}

/// Returns the sections about hubs, topics, brokers and clocks. `unverified` are problems of the hubs' configuration.
pub(super) fn sections(
    config: &Config,
    scan: &OneShotScan,
    hubs: Vec<PublishSettings>,
    brokers: Vec<BrokerSettings>,
    unverified: Vec<Diagnostic>,
) -> anyhow::Result<[CheckSection; 4]> {
    let (plan, reader) = (&scan.engine.plan, &scan.reader());
    let mut channels = report::channels::with_topics(reader)?;
    channels.retain(|channel| channel.retired.is_none());
    let mounts = plan.sources.iter().flat_map(|source| &source.mounts);
    let mounts: Vec<_> = mounts.map(|mount| &mount.prefix).collect();
    let topics = channels.iter().map(|channel| &channel.topic);
    let mut of_topics = topic::reachability(topics, &plan.hubs, &mounts);

    let (is_running, note) = is_running(&config.state_dir);
    of_topics.extend(note);
    let is_public_url_known = config.server.known_public_url().is_some();
    let is_known = |url: &str| is_public_url_known || !url.starts_with(plan.public_url.as_str());
    let mut expected: Vec<ExpectedTopic> = Vec::new();
    if is_running {
        let known = channels
            .iter()
            .filter(|channel| is_known(channel.topic.as_str()));
        expected.extend(known.map(topic_of));
        if expected.len() < channels.len() {
            of_topics.push(Diagnostic::note(
                "server.listen takes any free port, so topics below it were not checked",
                "set a port, or public_url",
            ));
        }
    }
    let embedded = plan
        .hubs
        .iter()
        .find(|hub| hub.mode == PublishMode::Embedded);
    let embedded = embedded.map(|embedded| embedded.hub.clone());
    let embedded = embedded.filter(|hub| is_running && is_known(hub.as_str()));
    let agreements = if is_running {
        acceptance_problems(&expected, &hubs)?
    } else {
        Vec::new()
    };
    let answers = ask(expected, hubs, brokers, embedded, &channels)?;

    of_topics.extend(topic::diagnostics(&answers.topics));
    let configured: Vec<Url> = answers.hubs.iter().flat_map(addresses).collect();
    let mut of_hubs = unverified;
    let judged = answers.hubs.iter();
    of_hubs.extend(judged.filter_map(|asked| hub::diagnostic(asked, &configured)));
    of_hubs.extend(delivery_problems(scan)?);
    of_hubs.extend(agreements);
    let judged = answers.embedded.iter();
    of_hubs.extend(judged.filter_map(|(hub, get)| hub::embedded(hub, get, "public_url")));
    let of_clocks = clocks(&answers);
    Ok([
        CheckSection::new("hubs", of_hubs),
        CheckSection::new("topics", of_topics),
        CheckSection::new("brokers", answers.brokers),
        CheckSection::new("clock", of_clocks),
    ])
}

/// Finds out if hubs that are `rsnotify hub` would accept the notifications of these topics.
fn acceptance_problems(
    expected: &[ExpectedTopic],
    hubs: &[PublishSettings],
) -> anyhow::Result<Vec<Diagnostic>> {
    let is_advertised = |hub: &Hub| expected.iter().any(|topic| topic.hubs.contains(hub));
    let asked = hubs.iter().map(|settings| {
        let hub = &settings.hub;
        let is_advertised = is_advertised(hub);
        // Topics of muted sets, which may be meant for another hub, tell if this one knows the token, and no more.
        let is_asked = |topic: &&ExpectedTopic| match &topic.hubs[..] {
            [] => !is_advertised,
            hubs => hubs.contains(hub),
        };
        let topics = expected.iter().filter(is_asked);
        let topics = topics.map(|topic| topic.topic.clone()).collect();
        (settings.clone(), topics)
    });
    let answers = block_on(probe::topic_check_replies(asked.collect()))?;
    let answers = hubs.iter().zip(answers).filter_map(|(settings, answer)| {
        let probe::TopicCheckReply { status, reason } = answer?;
        let is_certain = status == 401 || is_advertised(&settings.hub);
        is_certain.then(|| hub::expected_refusal(&settings.hub, status, &reason))
    });
    Ok(answers.collect())
}

/// Returns true if a daemon is running, so that topics should be served, as far as this user can see.
pub(super) fn is_running(state_dir: &Path) -> (bool, Option<Diagnostic>) {
    match is_in_use(state_dir) {
        Ok(true) => (true, None),
        Ok(false) => {
            let message = format!(
                "rsnotify is not running with {}, so topics were not checked",
                state_dir.display()
            );
            let remedy =
                "start it, and check again; if it runs with another state_dir, give that one";
            (false, Some(Diagnostic::note(message, remedy)))
        }
        Err(error) => {
            let message = format!("cannot find out if rsnotify is running: {error}");
            let remedy = "if it is not, no topic answers; run check as its user";
            (true, Some(Diagnostic::note(message, remedy)))
        }
    }
}

fn topic_of(channel: &ChannelView) -> ExpectedTopic {
    ExpectedTopic {
        topic: channel.topic.clone(),
        hubs: {
            let hubs = channel
                .hubs
                .iter()
                .filter(|hub| hub.mode != PublishMode::Broker);
            hubs.map(|hub| hub.hub.clone()).collect()
        },
        capability_list: channel.set.clone(),
    }
}

/// Returns the addresses of a hub, where others may redirect to.
fn addresses(asked: &hub::HubProbe) -> impl Iterator<Item = Url> {
    let advertised = Url::parse(asked.hub.as_str()).ok();
    advertised.into_iter().chain([asked.publish_url.clone()])
}

/// Returns true if the hub accepted its last notification on every channel.
fn has_accepted_all(channels: &[ChannelView], hub: &Hub) -> bool {
    let views = || {
        let views = channels.iter().flat_map(|channel| &channel.hubs);
        views.filter(|view| view.hub == *hub)
    };
    views().any(|view| view.accepted.is_some()) && views().all(|view| view.attempts == 0)
}

fn ask(
    expected: Vec<ExpectedTopic>,
    hubs: Vec<PublishSettings>,
    brokers: Vec<BrokerSettings>,
    embedded: Option<Hub>,
    channels: &[ChannelView],
) -> anyhow::Result<ProbeReplies> {
    let topics = expected
        .iter()
        .map(|expected| expected.topic.clone())
        .collect();
    let (replies, heads, get, brokers) = block_on(async {
        tokio::join!(
            probe::topics(topics, PATIENCE),
            probe::hubs(hubs.clone()),
            async {
                match &embedded {
                    Some(hub) => probe::get_hub(hub).await.map(Some),
                    None => Ok(None),
                }
            },
            probed(brokers)
        )
    })?;
    let asked = hubs
        .into_iter()
        .zip(heads)
        .map(|(settings, head)| hub::HubProbe {
            accepts: has_accepted_all(channels, &settings.hub),
            hub: settings.hub,
            publish_url: settings.publish_url,
            head,
        });
    let prepared = "cannot prepare requests";
    Ok(ProbeReplies {
        topics: expected
            .into_iter()
            .zip(replies.context(prepared)?)
            .collect(),
        hubs: asked.collect(),
        brokers,
        embedded: embedded.zip(get.context(prepared)?),
    })
}

/// Connects to each broker, and ends the connection.
async fn probed(brokers: Vec<BrokerSettings>) -> Vec<Diagnostic> {
    let tasks = brokers.into_iter().map(|settings| {
        tokio::spawn(async move {
            let (name, address) = (&settings.name, settings.address.to_string());
            match Session::open(&settings, None).await {
                Ok(session) => {
                    let server = session.server.clone();
                    session.writer.finish(&Frame::new("DISCONNECT")).await;
                    hub::broker(name, &address, Ok(server.as_deref()))
                }
                Err(BrokerError::Refused { refusal, text }) => {
                    hub::broker(name, &address, Err((Some(refusal), &text)))
                }
                Err(error) => hub::broker(name, &address, Err((None, &error.to_string()))),
            }
        })
    });
    let mut probed = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        probed.extend(task.await);
    }
    probed
}

/// Diagnoses the delivery of the last notifications, by the saved state.
fn delivery_problems(scan: &OneShotScan) -> state::Result<Vec<Diagnostic>> {
    let status = report::outline(&scan.reader())?;
    let hubs = status.hubs();
    let troubles = hubs.iter().flat_map(|summary| {
        let troubles = summary.troubles.iter();
        troubles.map(move |trouble| hub::delivery_trouble(summary.hub, trouble))
    });
    Ok(troubles.collect())
}

/// Compares the clocks of all that answered with ours.
fn clocks(answers: &ProbeReplies) -> Vec<Diagnostic> {
    let of_topics = answers.topics.iter().flat_map(|(expected, replies)| {
        let replies = replies.iter();
        let answered = replies.flat_map(|replies| [Some(&replies.head), replies.get.as_ref()]);
        let peer = origin(expected.topic.as_str());
        answered
            .flatten()
            .map(move |answered| (peer.clone(), answered))
    });
    let of_hubs = answers.hubs.iter();
    let of_hubs = of_hubs.map(|asked| (origin(asked.hub.as_str()), &asked.head));
    let offsets: Vec<_> = of_topics
        .chain(of_hubs)
        .filter_map(|(peer, answered)| Some((peer, clock::offset(answered.as_ref().ok()?)?)))
        .collect();
    let offsets = offsets.iter().map(|(peer, ahead)| (peer.as_str(), *ahead));
    clock::diagnostics(offsets, Timestamp::now())
}
