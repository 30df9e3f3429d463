//! Asks topics and hubs what they answer, for `check`: by `HEAD` and `GET`, which change nothing, and without
//! following redirections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::header::{AGE, CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderName, LINK, LOCATION};
use jiff::Timestamp;
use reqwest::{Client, Method, RequestBuilder, Response};
use tokio::task::JoinSet;

use crate::announce::delivery::secret::Mask;
use crate::diagnostics::topic::TopicReplies;
use crate::diagnostics::{FailureCause, Links, ProbeError, ProbeReply, ProbeResult, ReplyBody};
use crate::resourcesync::uri::{Hub, Topic};
use crate::websub::client;
use crate::websub::failure::{cause, in_its_own_words};
use crate::websub::link::{links, targets};
use crate::websub::publish::settings::mask;
use crate::websub::publish::{HubSettings, PublisherError};

/// How many topics are asked at the same time.
const TOPICS_AT_ONCE: usize = 16;
/// How long one answer may take, body and all.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A hub may ask for more patience than this, but does not get it here.
const HUB_TIMEOUT: Duration = Duration::from_secs(30);

/// What topics answer, in their order; nothing for those whose turn did not come within `patience`.
pub async fn topics(
    topics: Vec<Topic>,
    patience: Duration,
) -> reqwest::Result<Vec<Option<TopicReplies>>> {
    let client = anybody()?;
    let mut served = vec![None; topics.len()];
    let topics: Arc<[Topic]> = topics.into();
    let next = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + patience;
    let mut askers = JoinSet::new();
    for _ in 0..TOPICS_AT_ONCE.min(topics.len()) {
        let (client, topics, next) = (client.clone(), Arc::clone(&topics), Arc::clone(&next));
        askers.spawn(async move {
            let mut answers = Vec::new();
            while Instant::now() < until {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(topic) = topics.get(at) else { break };
                answers.push((at, ask_topic(&client, topic).await));
            }
            answers
        });
    }
    for (at, answer) in askers.join_all().await.into_iter().flatten() {
        served[at] = Some(answer);
    }
    Ok(served)
}

/// What hubs answer where notifications would be sent, each asked as it would be told: what the operator
/// configured of headers, credentials and certificates is used, and nothing is told.
pub async fn hubs(hubs: Vec<HubSettings>) -> Vec<ProbeResult> {
    let mut answers = vec![Err(unknown(String::new())); hubs.len()];
    let mut asked = JoinSet::new();
    for (at, settings) in hubs.into_iter().enumerate() {
        let client = match settings.client() {
            Ok(client) => client,
            Err(error) => {
                answers[at] = Err(match error {
                    PublisherError::Client { source, .. } => failure(source, &Mask::default()),
                    error => unknown(error.to_string()),
                });
                continue;
            }
        };
        asked.spawn(async move {
            let head = client.head(settings.publish_url.clone());
            let head = head.timeout(settings.timeout.min(HUB_TIMEOUT));
            (at, ask(head, &mask([&settings])).await)
        });
    }
    for (at, answer) in asked.join_all().await {
        answers[at] = answer;
    }
    answers
}

/// What a hub answers to anybody who looks at it.
pub async fn hub_in_public(hub: &Hub) -> reqwest::Result<ProbeResult> {
    let request = anybody()?.get(hub.as_str());
    Ok(ask(request, &Mask::default()).await)
}

fn anybody() -> reqwest::Result<Client> {
    client::build_without_certificates(|| client::builder().timeout(TIMEOUT))
}

async fn ask_topic(client: &Client, topic: &Topic) -> TopicReplies {
    let ask = async |method| ask(client.request(method, topic.as_str()), &Mask::default()).await;
    let head = ask(Method::HEAD).await;
    let get = match head {
        Ok(_) => Some(ask(Method::GET).await),
        Err(_) => None,
    };
    TopicReplies { head, get }
}

async fn ask(request: RequestBuilder, mask: &Mask) -> ProbeResult {
    let failed = |error| failure(error, mask);
    let mut response = request.send().await.map_err(failed)?;
    let at = Timestamp::now();
    let (body, broke_off) = client::beginning(&mut response, ReplyBody::MAX_READ).await;
    if let Some(error) = broke_off {
        return Err(failed(error));
    }
    let header = |name| {
        let values = values(&response, name);
        (!values.is_empty()).then(|| mask.hide(&values.join(", ")))
    };
    let link_values = values(&response, LINK);
    let links = links(link_values.iter().map(String::as_str));
    let of = |relation| targets(&links, relation).map(str::to_owned).collect();
    Ok(ProbeReply {
        status: response.status().as_u16(),
        location: header(LOCATION),
        content_type: header(CONTENT_TYPE),
        content_encoding: header(CONTENT_ENCODING),
        date: header(DATE),
        age: header(AGE),
        links: Links {
            self_links: of("self"),
            hubs: of("hub"),
            capability_lists: of("resourcesync"),
        },
        body: ReplyBody::read(&body),
        at,
    })
}

/// Returns the failure of a request, without the secrets of `mask`.
fn failure(error: reqwest::Error, mask: &Mask) -> ProbeError {
    ProbeError {
        cause: cause(&error),
        message: mask.hide(&in_its_own_words(error)),
    }
}

fn unknown(message: String) -> ProbeError {
    ProbeError {
        cause: FailureCause::Unknown,
        message,
    }
}

fn values(response: &Response, name: HeaderName) -> Vec<String> {
    let values = response.headers().get_all(name).iter();
    values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}
