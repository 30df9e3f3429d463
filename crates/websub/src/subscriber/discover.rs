//! Discovery: the hubs and the topic that a topic URI advertises (WebSub section 4).

use std::time::Duration;

use hyper::header::{HeaderMap, LINK};
use reqwest::redirect::Policy;
use reqwest::{Client, Method};
use resourcesync::uri::{Hub, Topic, Uri};
use url::Url;

use crate::headers::Links;
use crate::http::client;
use crate::http::failure::describe;
use crate::subscriber::retrieve::RetrieveError;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The links of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// The topic to subscribe to: the `self` link, or else the URI itself.
    pub self_uri: Topic,
    /// The hubs of its `Link` header, possibly none.
    pub hubs: Vec<Hub>,
    /// Target of `rel="resourcesync"`: the Capability List of the set (Framework Notification 1.0.1 section 4).
    pub capability_list: Option<Uri>,
}

/// Reads the links of a topic with `HEAD`, or with `GET` if that names no hub.
///
/// # Errors
///
/// If it is no URL, or there is no answer, or an error.
pub async fn discover(topic: &Topic) -> Result<Discovery, RetrieveError> {
    let url = || topic.to_string();
    let asked =
        Url::parse(topic.as_str()).map_err(|source| RetrieveError::Url { url: url(), source })?;
    let failed = |error| RetrieveError::Request {
        url: url(),
        reason: describe(error),
    };
    let make = || client::builder(TIMEOUT).redirect(Policy::limited(5));
    let client: Client = client::build_or_plain_http(make).map_err(failed)?;
    let ask = async |method| {
        let answered = client.request(method, asked.clone()).send().await;
        let response = answered.map_err(failed)?;
        match response.status() {
            status if status.is_success() => Ok(read(topic, response.url(), response.headers())),
            status => Err(RetrieveError::Status {
                url: url(),
                status,
                retry_after: None,
            }),
        }
    };
    match ask(Method::HEAD).await {
        Ok(discovery) if !discovery.hubs.is_empty() => Ok(discovery),
        Err(error @ RetrieveError::Request { .. }) => Err(error),
        by_head => ask(Method::GET)
            .await
            .or_else(|error| by_head.map_err(|_| error)),
    }
}

fn read(topic: &Topic, base: &Url, headers: &HeaderMap) -> Discovery {
    let links = Links::parse(client::header_values(headers, LINK));
    // An absolute URI is kept byte for byte: hubs compare it so.
    let absolute = |target: &String| match Url::parse(target) {
        Ok(_) => target.clone(),
        Err(_) => base.join(target).map_or(target.clone(), String::from),
    };
    Discovery {
        self_uri: links
            .self_links
            .first()
            .map_or_else(|| topic.clone(), |target| Topic::new(absolute(target))),
        hubs: links
            .hubs
            .iter()
            .map(|hub| Hub::new(absolute(hub)))
            .collect(),
        capability_list: links
            .capability_lists
            .iter()
            .find_map(|list| Uri::parse(&absolute(list)).ok()),
    }
}
