//! Submissions of notifications to hubs (R23, R24), each with its own connections, credentials and timeout, so that
//! none delays another; and requests as they would be sent, for `dry-run`, with secrets masked.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hyper::body::Bytes;
use hyper::header::LOCATION;
use reqwest::{Client, Response};
use resourcesync::uri::Hub;
use tokio::sync::Semaphore;
use url::{Position, Url};

use crate::answer::Answer;
use crate::counts::DurationHistogram;
use crate::http::client::USER_AGENT;
use crate::http::{Replaceable, client, lock};
use crate::publisher::HubRequest;
use crate::publisher::settings::{
    self, HubCredentials, PublishSettings, PublishSettingsError, mask,
};
use crate::publisher::verdict::{next_hop, same_except_query};
use crate::secret::{MASKED, Mask};

/// Maximum requests under way to one hub.
const CONCURRENT_REQUESTS: usize = 64;

/// A client that sends submissions. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Submitter(Replaceable<HubClients>);

/// The clients of all hubs.
#[derive(Debug)]
pub struct HubClients {
    clients: HashMap<Hub, HubClient>,
    /// The URLs of all hubs, to which a redirection may lead.
    configured: Vec<Url>,
    /// Masks the secrets of all hubs: after a redirection one may repeat another's.
    mask: Mask,
}

/// The client of one hub.
#[derive(Debug)]
struct HubClient {
    publish_url: Url,
    client: Client,
    /// The credentials that its requests have, in words.
    credentials: Option<&'static str>,
    /// Kept across reloads.
    permits: Arc<Semaphore>,
    /// Durations of submissions, including redirections; kept across reloads.
    durations: Arc<Mutex<DurationHistogram>>,
    /// True if the last request was answered, so that a connection may be open.
    is_open: AtomicBool,
}

impl Submitter {
    /// Builds the clients of some hubs.
    ///
    /// # Errors
    ///
    /// If the settings of one cannot be used.
    pub fn new(hubs: Vec<PublishSettings>) -> Result<Submitter, PublishSettingsError> {
        Ok(Submitter(Replaceable::new(HubClients::new(hubs)?)))
    }

    /// Replaces the clients. A request under way finishes with its client, and still counts towards the maximum of its hub.
    pub fn replace_clients(&self, mut clients: HubClients) {
        let current = self.0.get();
        for (hub, client) in &mut clients.clients {
            if let Some(before) = current.clients.get(hub) {
                client.permits = Arc::clone(&before.permits);
                client.durations = Arc::clone(&before.durations);
            }
        }
        self.0.replace(clients);
    }

    /// Sends one notification, following permitted redirections. Waits while its hub has the maximum of requests under way.
    pub async fn submit(&self, request: &HubRequest) -> Answer {
        let hub = &request.hub;
        let unknown = || Answer::Failed(format!("{hub} is not configured"));
        let permits = |client: &HubClient| Arc::clone(&client.permits);
        let Some(permits) = self.0.get().clients.get(hub).map(permits) else {
            return unknown();
        };
        let Ok(_permit) = permits.acquire().await else {
            return Answer::Failed("the publisher has ended".to_owned());
        };
        // A reload may have replaced them meanwhile.
        let hubs = self.0.get();
        let Some(mut client) = hubs.clients.get(hub) else {
            return unknown();
        };
        let url = request.url(&client.publish_url);
        let mut url = match Url::parse(&url) {
            Ok(url) => url,
            Err(error) => return Answer::Failed(format!("{url}: {error}")),
        };
        let (durations, began, mut hops) = (&client.durations, Instant::now(), 0);
        let answered = loop {
            let answered = client.send(request, &url).await;
            let next = answered.as_ref().ok().and_then(|response| {
                let location = client::header_text(response.headers(), LOCATION);
                let status = response.status().as_u16();
                next_hop(status, location, &url, hops, &hubs.configured)
            });
            let Some(next) = next else { break answered };
            client = hubs.client_for(&next).unwrap_or(client);
            (url, hops) = (next, hops + 1);
        };
        let mut answer = client::answer(answered, &hubs.mask).await;
        if let Answer::Status { credentials, .. } = &mut answer {
            *credentials = client.credentials;
        }
        lock(durations).observe(began.elapsed());
        answer
    }

    /// Returns the durations of the submissions to each hub.
    pub fn durations(&self) -> BTreeMap<Hub, DurationHistogram> {
        let clients = self.0.get();
        let durations =
            |(hub, client): (&Hub, &HubClient)| (hub.clone(), lock(&client.durations).clone());
        clients.clients.iter().map(durations).collect()
    }
}

impl HubClients {
    /// Builds the clients of some hubs.
    ///
    /// # Errors
    ///
    /// If the settings of one cannot be used.
    pub fn new(hubs: Vec<PublishSettings>) -> Result<HubClients, PublishSettingsError> {
        let mask = settings::mask(&hubs);
        let mut configured = Vec::new();
        let mut clients = HashMap::new();
        for settings in hubs {
            configured.push(settings.publish_url.clone());
            configured.extend(Url::parse(settings.hub.as_str()));
            let client = HubClient {
                client: settings.client()?,
                credentials: settings.credentials.as_ref().map(HubCredentials::in_words),
                publish_url: settings.publish_url,
                permits: Arc::new(Semaphore::new(CONCURRENT_REQUESTS)),
                durations: Arc::default(),
                is_open: AtomicBool::new(false),
            };
            clients.insert(settings.hub, client);
        }
        Ok(HubClients {
            clients,
            configured,
            mask,
        })
    }

    /// Returns the client of the hub at `url`, so that it gets its own credentials and not those of the hub that redirected.
    fn client_for(&self, url: &Url) -> Option<&HubClient> {
        let is_there = |(hub, client): &(&Hub, &HubClient)| {
            same_except_query(&client.publish_url, url)
                || Url::parse(hub.as_str()).is_ok_and(|hub| same_except_query(&hub, url))
        };
        self.clients.iter().find(is_there).map(|(_, client)| client)
    }
}

impl HubClient {
    /// Sends a request; and again, at once, if the hub may have closed an open connection while the request was written.
    /// It may have received the first one: delivery is at least once.
    async fn send(&self, request: &HubRequest, url: &Url) -> reqwest::Result<Response> {
        let post = || {
            let mut post = self.client.post(url.clone());
            for (name, value) in &request.headers {
                // A link may contain raw non-ASCII bytes, which are valid in a header.
                post = post.header(*name, value.as_bytes());
            }
            post.body(Bytes::from_owner(Arc::clone(&request.body)))
                .send()
        };
        let mut answered = post().await;
        let broke_off = |error: &reqwest::Error| !error.is_timeout() && !error.is_connect();
        if answered.as_ref().is_err_and(broke_off) && self.is_open.load(Ordering::Relaxed) {
            answered = post().await;
        }
        self.is_open.store(answered.is_ok(), Ordering::Relaxed);
        answered
    }
}

/// Returns a `POST` request as text, with the headers common to all our requests and those of a hub's settings, whose
/// secrets are masked. HTTP gives the order of headers no meaning.
pub fn preview(
    url: &str,
    headers: Vec<(&'static str, String)>,
    body: &[u8],
    settings: Option<&PublishSettings>,
) -> String {
    let (mut url, parsed) = (url.to_owned(), Url::parse(url));
    let mut lines = String::new();
    let mut add = |name: &str, value: &str| lines.extend([name, ": ", value, "\n"]);
    if let Ok(parsed) = parsed {
        add("Host", &parsed[Position::BeforeHost..Position::AfterPort]);
        url = parsed.into();
    }
    add("User-Agent", USER_AGENT);
    add("Accept", "*/*");
    for (name, value) in headers {
        add(name, &value);
    }
    add("Content-Length", &body.len().to_string());
    if let Some(settings) = settings {
        url = mask([settings]).hide(&url);
        for header in &settings.headers {
            let public = header.is_public.then(|| header.value.reveal());
            add(header.name.as_str(), public.unwrap_or(MASKED));
        }
        if let Some(credentials) = &settings.credentials {
            let scheme = match credentials {
                HubCredentials::Bearer(_) => "Bearer",
                HubCredentials::Basic { .. } => "Basic",
            };
            add("Authorization", &format!("{scheme} {MASKED}"));
        }
    }
    let body = String::from_utf8_lossy(body);
    format!("POST {url}\n{lines}\n{}\n", body.trim_end())
}
