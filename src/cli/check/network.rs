//! Looks at topics and hubs as others do: from outside, by their addresses.

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use url::Url;

use crate::announce::plan::Mode;
use crate::cli::check::Section;
use crate::cli::survey::Survey;
use crate::config::Config;
use crate::diagnostics::topic::{self, Served, Wanted};
use crate::diagnostics::{Answered, Remark, clock, hub, origin};
use crate::report::status::ChannelView;
use crate::resourcesync::uri::Hub;
use crate::store;
use crate::websub::inspect;
use crate::websub::publish::HubSettings;

/// How long all topics together may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was answered.
struct Answers {
    topics: Vec<(Wanted, Option<Served>)>,
    hubs: Vec<hub::Asked>,
    embedded: Option<(Hub, Answered)>,
}

/// `unverified` is what is wrong with the hubs by configuration alone.
pub(super) fn sections(
    config: &Config,
    survey: &Survey,
    hubs: Vec<HubSettings>,
    unverified: Vec<Remark>,
) -> anyhow::Result<[Section; 3]> {
    let plan = survey.engine.plan();
    let mut channels = survey.engine.channels();
    channels.retain(|channel| channel.retired.is_none());
    let embedded = plan.hubs.iter().find(|hub| hub.mode == Mode::Embedded);
    let embedded = embedded.map(|embedded| embedded.hub.clone());

    let mounts = plan.sources.iter().flat_map(|source| &source.mounts);
    let mounts: Vec<_> = mounts.map(|mount| &mount.prefix).collect();
    let topics = channels.iter().map(|channel| &channel.topic);
    let mut of_topics = topic::reach(topics, &plan.hubs, &mounts);

    let (is_running, note) = is_running(config);
    of_topics.extend(note);
    let unknown = match config.server.known_public_url() {
        Some(_) => None,
        None => Some(plan.public_url.as_str()),
    };
    let is_known = |url: &str| !unknown.is_some_and(|unknown| url.starts_with(unknown));
    let mut wanted: Vec<Wanted> = Vec::new();
    if is_running {
        let known = channels.iter().filter(|own| is_known(own.topic.as_str()));
        wanted.extend(known.map(topic_of));
        if wanted.len() < channels.len() {
            of_topics.push(Remark::note(
                "server.listen takes any free port, so topics below it were not tried",
                "set a port, or public_url",
            ));
        }
    }
    let embedded = embedded.filter(|hub| is_running && is_known(hub.as_str()));
    let answers = ask(wanted, hubs, embedded, &channels)?;

    of_topics.extend(topic::remarks(&answers.topics));
    let configured: Vec<Url> = answers.hubs.iter().flat_map(addresses).collect();
    let mut of_hubs = unverified;
    of_hubs.extend(told(survey));
    let judged = answers.hubs.iter();
    of_hubs.extend(judged.filter_map(|asked| hub::remark(asked, &configured)));
    let judged = answers.embedded.iter();
    of_hubs.extend(judged.filter_map(|(hub, get)| hub::embedded(hub, get)));
    Ok([
        Section::new("topics", of_topics),
        Section::new("hubs", of_hubs),
        Section::new("clock", clocks(&answers)),
    ])
}

/// Whether topics can be expected to be served, as far as this user can see.
fn is_running(config: &Config) -> (bool, Option<Remark>) {
    match store::is_in_use(&config.state_dir) {
        Ok(true) => (true, None),
        Ok(false) => {
            let seen = format!(
                "rsnotify is not running with {}, so topics were not tried",
                config.state_dir.display()
            );
            let remedy =
                "start it, and check again; if it runs with another state_dir, give that one";
            (false, Some(Remark::note(seen, remedy)))
        }
        Err(error) => {
            let seen = format!("whether rsnotify is running cannot be seen: {error}");
            let remedy = "if it is not, no topic answers; run check as its user";
            (true, Some(Remark::note(seen, remedy)))
        }
    }
}

fn topic_of(channel: &ChannelView) -> Wanted {
    Wanted {
        topic: channel.topic.clone(),
        hubs: channel.hubs.iter().map(|own| own.hub.clone()).collect(),
        capability_list: channel.set.clone(),
    }
}

/// The addresses of a hub, where others may redirect to.
fn addresses(asked: &hub::Asked) -> impl Iterator<Item = Url> {
    let advertised = Url::parse(asked.hub.as_str()).ok();
    advertised.into_iter().chain([asked.publish_url.clone()])
}

/// Whether the last that a hub was told of any channel was accepted.
fn accepts(channels: &[ChannelView], hub: &Hub) -> bool {
    let views = || {
        let views = channels.iter().flat_map(|channel| &channel.hubs);
        views.filter(|view| view.hub == *hub)
    };
    views().any(|view| view.accepted.is_some()) && views().all(|view| view.attempts == 0)
}

fn ask(
    wanted: Vec<Wanted>,
    hubs: Vec<HubSettings>,
    embedded: Option<Hub>,
    channels: &[ChannelView],
) -> anyhow::Result<Answers> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the network")?;
    let topics = wanted.iter().map(|wanted| wanted.topic.clone()).collect();
    let (served, heads, get) = runtime.block_on(async {
        tokio::join!(
            inspect::topics(topics, PATIENCE),
            inspect::hubs(hubs.clone()),
            async {
                match &embedded {
                    Some(hub) => inspect::hub_in_public(hub).await.map(Some),
                    None => Ok(None),
                }
            }
        )
    });
    // A name server that never answers is not waited for.
    runtime.shutdown_background();
    let asked = hubs
        .into_iter()
        .zip(heads)
        .map(|(settings, head)| hub::Asked {
            accepts: accepts(channels, &settings.hub),
            hub: settings.hub,
            publish_url: settings.publish_url,
            head,
        });
    let prepared = "cannot prepare requests";
    Ok(Answers {
        topics: wanted.into_iter().zip(served.context(prepared)?).collect(),
        hubs: asked.collect(),
        embedded: embedded.zip(get.context(prepared)?),
    })
}

/// What became of the last notifications, as the state has it.
fn told(survey: &Survey) -> Vec<Remark> {
    let status = survey.engine.outline(Timestamp::now());
    let hubs = status.hubs();
    let troubles = hubs.iter().flat_map(|summary| {
        let troubles = summary.troubles.iter();
        troubles.map(move |trouble| hub::told(summary.hub, trouble))
    });
    troubles.collect()
}

/// The clocks of all who answered, beside ours.
fn clocks(answers: &Answers) -> Vec<Remark> {
    let of_topics = answers.topics.iter().flat_map(|(wanted, served)| {
        let served = served.iter();
        let answered = served.flat_map(|served| [Some(&served.head), served.get.as_ref()]);
        let peer = origin(wanted.topic.as_str());
        answered
            .flatten()
            .map(move |answered| (peer.clone(), answered))
    });
    let of_hubs = answers.hubs.iter();
    let of_hubs = of_hubs.map(|asked| (origin(asked.hub.as_str()), &asked.head));
    let readings: Vec<_> = of_topics
        .chain(of_hubs)
        .filter_map(|(peer, answered)| Some((peer, clock::ahead(answered.as_ref().ok()?)?)))
        .collect();
    let readings = readings.iter().map(|(peer, ahead)| (peer.as_str(), *ahead));
    clock::remarks(readings, Timestamp::now())
}
