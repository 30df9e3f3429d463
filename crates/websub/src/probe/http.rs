//! Requests to topics and hubs for `check`: by `HEAD` and `GET`, which change nothing, without following redirections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{AGE, CONTENT_ENCODING, CONTENT_TYPE, DATE, LINK, LOCATION};
use jiff::Timestamp;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use resourcesync::uri::{Hub, Topic};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::headers::{FORM_TYPE, Links, encode_form};
use crate::http::client;
use crate::http::failure::{cause, in_technical_words};
use crate::hub::publication::CHECK_MODE;
use crate::probe::{BodyKind, FailureCause, ProbeError, ProbeReply, ProbeResult, TopicReplies};
use crate::publisher::settings::{PublishSettings, PublishSettingsError, mask};
use crate::secret::Mask;

/// Maximum topics requested at the same time.
const TOPICS_AT_ONCE: usize = 16;
/// Timeout of an answer, including its body.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Topics in one question to a hub, and bytes of it, of which a hub reads 16 KiB.
const TOPICS_IN_A_FORM: usize = 20;
const FORM_BYTES: usize = 12 * 1024;
/// Maximum bytes of a reason.
const REASON_BYTES: usize = 1_000;
/// Maximum timeout of a hub, whatever its configuration.
const HUB_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the answers of topics, in their order; none for those not requested within `patience`.
///
/// # Errors
///
/// If the HTTP client cannot be built.
pub async fn topics(
    topics: Vec<Topic>,
    patience: Duration,
) -> reqwest::Result<Vec<Option<TopicReplies>>> {
    let client = plain_client()?;
    let slots = Arc::new(Semaphore::new(TOPICS_AT_ONCE));
    let until = Instant::now() + patience;
    let probes = topics.into_iter().map(|topic| {
        let (client, slots) = (client.clone(), Arc::clone(&slots));
        async move {
            // It is never closed.
            let _slot = slots.acquire().await;
            if Instant::now() >= until {
                return None;
            }
            let ask = async |method| {
                probe(client.request(method, topic.as_str()), &Mask::default()).await
            };
            let head = ask(Method::HEAD).await;
            let get = match head {
                Ok(_) => Some(ask(Method::GET).await),
                Err(_) => None,
            };
            Some(TopicReplies { head, get })
        }
    });
    Ok(all_at_once(probes).await)
}

/// Returns the answers of hubs to a `HEAD` where notifications would be sent, with the configured headers, credentials and
/// certificates. Nothing is published.
pub async fn hubs(hubs: Vec<PublishSettings>) -> Vec<ProbeResult> {
    let hubs = hubs.into_iter();
    all_at_once(hubs.map(|settings| async move { Ok(head_hub(settings).await?.1) })).await
}

/// Returns the client of a hub, and its answer to a `HEAD`.
async fn head_hub(mut settings: PublishSettings) -> Result<(Client, ProbeReply), ProbeError> {
    settings.timeout = settings.timeout.min(HUB_TIMEOUT);
    let client = settings.client().map_err(|error| match error {
        PublishSettingsError::Client { source, .. } => failure(source, &Mask::default()),
        error => ProbeError {
            cause: FailureCause::Unknown,
            message: error.to_string(),
        },
    })?;
    let head = client.head(settings.publish_url.clone());
    let reply = probe(head, &mask([&settings])).await?;
    Ok((client, reply))
}

/// Returns the answers in the order of what was asked.
async fn all_at_once<T: Send + 'static>(
    probes: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut running = JoinSet::new();
    for (at, probe) in probes.enumerate() {
        running.spawn(async move { (at, probe.await) });
    }
    let mut answers = running.join_all().await;
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the answer of a hub to a plain `GET`.
///
/// # Errors
///
/// If the HTTP client cannot be built.
pub async fn get_hub(hub: &Hub) -> reqwest::Result<ProbeResult> {
    let request = plain_client()?.get(hub.as_str());
    Ok(probe(request, &Mask::default()).await)
}

/// Answer of a hub to the question if it would accept publications of topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationCheckReply {
    /// HTTP status.
    pub status: u16,
    /// The first bytes of the body, which is a sentence; secrets are masked.
    pub reason: String,
}

/// Asks hubs that are `rsnotify hub`, which name themselves as a hub in the answer to a `HEAD`, if they would accept
/// publications of these topics, with the configured credentials. Nothing is published. Returns the first answer that
/// is no acceptance; nothing of another hub, or of one that cannot be reached.
pub async fn topic_refusals(
    hubs: Vec<(PublishSettings, Vec<Topic>)>,
) -> Vec<Option<PublicationCheckReply>> {
    let hubs = hubs.into_iter();
    all_at_once(hubs.map(|(settings, topics)| topic_check_reply(settings, topics))).await
}

async fn topic_check_reply(
    settings: PublishSettings,
    topics: Vec<Topic>,
) -> Option<PublicationCheckReply> {
    let (client, greeting) = head_hub(settings.clone()).await.ok()?;
    let names_itself = |hub: &String| *hub == settings.hub.as_str();
    if greeting.status != 405 || !greeting.links.hubs.iter().any(names_itself) {
        return None;
    }
    for form in acceptance_forms(&topics) {
        let post = client
            .post(settings.publish_url.clone())
            .header(CONTENT_TYPE, FORM_TYPE)
            .body(form);
        let mut response = post.send().await.ok()?;
        let status = response.status();
        // The hub has not looked at the topics.
        if status == StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        if !status.is_success() {
            let (body, _) = client::beginning(&mut response, REASON_BYTES).await;
            let reason = mask([&settings]).hide(String::from_utf8_lossy(&body).trim());
            let status = status.as_u16();
            return Some(PublicationCheckReply { status, reason });
        }
    }
    None
}

/// Returns the questions to a hub if it would accept publications of topics.
fn acceptance_forms(topics: &[Topic]) -> Vec<String> {
    let mode = encode_form(&[("hub.mode", CHECK_MODE)]);
    let (mut forms, mut count) = (Vec::<String>::new(), 0);
    for topic in topics {
        let parameter = encode_form(&[("hub.topic", topic.as_str())]);
        match forms.last_mut() {
            Some(form) if count < TOPICS_IN_A_FORM && form.len() + parameter.len() < FORM_BYTES => {
                *form += "&";
                *form += &parameter;
                count += 1;
            }
            _ => {
                forms.push(format!("{mode}&{parameter}"));
                count = 1;
            }
        }
    }
    forms
}

fn plain_client() -> reqwest::Result<Client> {
    client::build_or_plain_http(|| client::builder(TIMEOUT))
}

async fn probe(request: RequestBuilder, mask: &Mask) -> ProbeResult {
    let failed = |error| failure(error, mask);
    let mut response = request.send().await.map_err(failed)?;
    let at = Timestamp::now();
    let (body, broke_off) = client::beginning(&mut response, BodyKind::MAX_READ).await;
    if let Some(error) = broke_off {
        return Err(failed(error));
    }
    let header = |name| {
        let values = client::header_values(response.headers(), name);
        (!values.is_empty()).then(|| mask.hide(&values.join(", ")))
    };
    Ok(ProbeReply {
        status: response.status().as_u16(),
        location: header(LOCATION),
        content_type: header(CONTENT_TYPE),
        content_encoding: header(CONTENT_ENCODING),
        date: header(DATE),
        age: header(AGE),
        links: Links::parse(client::header_values(response.headers(), LINK)),
        body: BodyKind::read(&body),
        at,
    })
}

/// Returns the failure of a request, without the secrets of `mask`.
fn failure(error: reqwest::Error, mask: &Mask) -> ProbeError {
    ProbeError {
        cause: cause(&error),
        message: mask.hide(&in_technical_words(error)),
    }
}

#[cfg(test)]
mod tests {
    use crate::hub::publication::{HubFormRequest, form_request};

    use super::*;

    #[test]
    fn topics_are_asked_about_in_forms_that_a_hub_reads() {
        for (count, length, want) in [(0, 1, 0), (20, 1, 1), (21, 1, 2), (20, 1_500, 3)] {
            let topics: Vec<Topic> = (0..count)
                .map(|number| Topic::new(format!("https://e.org/{number}/{}", "x".repeat(length))))
                .collect();
            let forms = acceptance_forms(&topics);
            assert_eq!(forms.len(), want, "{count} topics");
            let mut named = Vec::new();
            for form in &forms {
                assert!(form.len() <= FORM_BYTES, "{}", form.len());
                match form_request(form.as_bytes()) {
                    Ok(HubFormRequest::Publish {
                        topics,
                        is_check: true,
                    }) => named.extend(topics),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(named, topics);
        }
    }
}
