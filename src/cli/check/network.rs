//! Requests to topics and hubs at their public addresses, as hubs and Destinations make them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use messaging::frame::Frame;
use messaging::session::Session;
use messaging::settings::BrokerSettings;
use resourcesync::uri::Hub;
use url::Url;
use websub::probe::TopicReplies;
use websub::probe::http as probe;
use websub::publisher::settings::PublishSettings;

use crate::cli::block_on;
use crate::cli::check::CheckSection;
use crate::cli::one_shot_scan::OneShotScan;
use crate::config::Config;
use crate::diagnostics::{Diagnostic, clock, hub, origin, topic};
use crate::report;
use crate::report::status::ChannelView;
use announce::plan::PublishMode;
use announce::state::open::is_in_use;

/// Timeout for all topics together.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the sections about hubs, topics, brokers and clocks. `unverified` are problems of the hubs' configuration.
pub(super) fn sections(
    config: &Config,
    scan: &OneShotScan,
    hubs: Vec<PublishSettings>,
    brokers: Vec<BrokerSettings>,
    unverified: Vec<Diagnostic>,
) -> anyhow::Result<[CheckSection; 4]> {
    let (plan, reader) = (&scan.engine.plan, &scan.engine.reader(scan.now));
    let mut channels = report::channels::with_served_topics(reader)?;
    channels.retain(|channel| channel.retired.is_none());
    let mounts = plan.sources.iter().flat_map(|source| &source.mounts);
    let mounts: Vec<_> = mounts.map(|mount| &mount.prefix).collect();
    let topics = channels.iter().map(|channel| &channel.topic);
    let mut of_topics = topic::reachability(topics, &plan.hubs, &mounts);

    let (is_running, note) = check_running(&config.state_dir);
    of_topics.extend(note);
    let is_public_url_known = config.server.known_public_url().is_some();
    let is_known = |url: &str| is_public_url_known || !url.starts_with(plan.public_url.as_str());
    let mut expected: Vec<&ChannelView> = Vec::new();
    if is_running {
        expected.extend(&channels);
        expected.retain(|channel| is_known(channel.topic.as_str()));
        if expected.len() < channels.len() {
            of_topics.push(Diagnostic::note(
                "server.listen takes any free port, so topics below it were not checked",
                "set a port, or public_url",
            ));
        }
    }
    let mut plans = plan.hubs.iter();
    let embedded = plans
        .find(|plan| plan.mode == PublishMode::Embedded)
        .map(|plan| plan.hub.clone())
        .filter(|hub| is_running && is_known(hub.as_str()));
    let agreements = if is_running {
        acceptance_problems(&expected, &hubs)?
    } else {
        Vec::new()
    };
    let topics = expected.iter().map(|topic| topic.topic.clone()).collect();
    let (replies, heads, get, of_brokers) = block_on(async {
        tokio::join!(
            probe::topics(topics, PATIENCE),
            probe::hubs(hubs.clone()),
            async {
                match &embedded {
                    Some(hub) => probe::get_hub(hub).await.map(Some),
                    None => Ok(None),
                }
            },
            probe_brokers(brokers)
        )
    })?;
    let prepared = "cannot prepare requests";
    let replies = replies.context(prepared)?;
    let topics: Vec<_> = expected.into_iter().zip(replies).collect();
    let answered = hubs.into_iter().zip(heads);
    let probes = answered.map(|(settings, head)| hub::HubProbe {
        accepts: has_accepted_all(&channels, &settings.hub),
        hub: settings.hub,
        publish_url: settings.publish_url,
        head,
    });
    let probes: Vec<hub::HubProbe> = probes.collect();

    of_topics.extend(topic::diagnostics(&topics));
    // Where hubs may redirect to.
    let configured = probes.iter().flat_map(|probe| {
        let advertised = Url::parse(probe.hub.as_str()).ok();
        advertised.into_iter().chain([probe.publish_url.clone()])
    });
    let configured: Vec<Url> = configured.collect();
    let mut of_hubs = unverified;
    let judged = probes.iter();
    of_hubs.extend(judged.filter_map(|probe| hub::diagnose_probe(probe, &configured)));
    // The delivery of the last notifications, by the saved state.
    for summary in report::outline(reader)?.hubs() {
        let troubles = summary.troubles.iter();
        of_hubs.extend(troubles.map(|trouble| hub::delivery_trouble(summary.hub, trouble)));
    }
    of_hubs.extend(agreements);
    if let Some((hub, get)) = embedded.zip(get.context(prepared)?) {
        of_hubs.extend(hub::embedded(&hub, &get, "public_url"));
    }
    Ok([
        ("hubs", of_hubs),
        ("topics", of_topics),
        ("brokers", of_brokers),
        ("clock", clock_findings(&topics, &probes)),
    ])
}

/// Finds out if hubs that are `rsnotify hub` would accept the notifications of these topics.
fn acceptance_problems(
    expected: &[&ChannelView],
    hubs: &[PublishSettings],
) -> anyhow::Result<Vec<Diagnostic>> {
    let advertises =
        |channel: &ChannelView, hub| topic::hubs_to_advertise(channel).any(|one| one == hub);
    let is_advertised = |hub| expected.iter().any(|channel| advertises(channel, hub));
    let asked = hubs.iter().map(|settings| {
        let hub = &settings.hub;
        let is_advertised = is_advertised(hub);
        // Topics of muted sets, which may be meant for another hub, tell if this one knows the token, and no more.
        let is_asked = |channel: &&&ChannelView| match topic::hubs_to_advertise(channel).next() {
            None => !is_advertised,
            Some(_) => advertises(channel, hub),
        };
        let asked = expected.iter().filter(is_asked);
        let topics = asked.map(|topic| topic.topic.clone()).collect();
        (settings.clone(), topics)
    });
    let answers = block_on(probe::topic_refusals(asked.collect()))?;
    let answers = hubs.iter().zip(answers).filter_map(|(settings, answer)| {
        let probe::PublicationCheckReply { status, reason } = answer?;
        let is_certain = status == 401 || is_advertised(&settings.hub);
        is_certain.then(|| hub::report_expected_refusal(&settings.hub, status, &reason))
    });
    Ok(answers.collect())
}

/// Returns true if a daemon is running, so that topics should be served, as far as this user can see.
pub(super) fn check_running(state_dir: &Path) -> (bool, Option<Diagnostic>) {
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

/// Returns true if the hub accepted its last notification on every channel.
fn has_accepted_all(channels: &[ChannelView], hub: &Hub) -> bool {
    let views = || {
        let views = channels.iter().flat_map(|channel| &channel.hubs);
        views.filter(|view| view.hub == *hub)
    };
    views().any(|view| view.accepted.is_some()) && views().all(|view| view.attempts == 0)
}

/// Connects to each broker, and ends the connection.
async fn probe_brokers(brokers: Vec<BrokerSettings>) -> Vec<Diagnostic> {
    let tasks = brokers.into_iter().map(|settings| {
        tokio::spawn(async move {
            let answer = match Session::open(&settings, None).await {
                Ok(session) => {
                    let server = session.server.clone();
                    session.writer.finish(&Frame::new("DISCONNECT")).await;
                    Ok(server)
                }
                Err(error) => Err(error),
            };
            hub::broker(&settings.name, &settings.address.to_string(), &answer)
        })
    });
    let mut probed = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        probed.extend(task.await);
    }
    probed
}

/// Compares the clocks of all that answered with ours.
fn clock_findings(
    topics: &[(&ChannelView, Option<TopicReplies>)],
    hubs: &[hub::HubProbe],
) -> Vec<Diagnostic> {
    let of_topics = topics.iter().flat_map(|(expected, replies)| {
        let replies = replies.iter();
        let answered = replies.flat_map(|replies| [Some(&replies.head), replies.get.as_ref()]);
        let peer = origin(expected.topic.as_str());
        answered
            .flatten()
            .map(move |answered| (peer.clone(), answered))
    });
    let of_hubs = hubs
        .iter()
        .map(|asked| (origin(asked.hub.as_str()), &asked.head));
    let offsets: Vec<_> = of_topics
        .chain(of_hubs)
        .filter_map(|(peer, answered)| Some((peer, clock::offset(answered.as_ref().ok()?)?)))
        .collect();
    let offsets = offsets.iter().map(|(peer, ahead)| (peer.as_str(), *ahead));
    clock::diagnostics(offsets, Timestamp::now())
}
