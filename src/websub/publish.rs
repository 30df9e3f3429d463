//! Submits notifications to hubs (R23, R24), each hub with its own connections, credentials and patience,
//! so that none can delay another.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::header::LOCATION;
use reqwest::{Client, Response};
use tokio::sync::Semaphore;
use url::Url;

use crate::announce::delivery::redirect::{Hop, next_hop, same_address};
use crate::announce::delivery::secret::Mask;
use crate::announce::delivery::{Answer, Request, Submission, request};
use crate::announce::histogram::Histogram;
use crate::resourcesync::uri::Hub;
use crate::websub::client;

pub(super) mod settings;

pub use settings::{Credentials, Header, HubSettings, Proxy, PublisherError};

/// How many requests one hub is sent at a time.
const CONCURRENT_REQUESTS: usize = 64;

/// Sends submissions. Cheap to share behind an `Arc`.
pub struct Publisher {
    lines: HashMap<Hub, Line>,
    /// The addresses of all hubs: where a redirection may lead.
    configured: Vec<Url>,
    /// Hides the secrets of all hubs: a redirection may make one repeat another's.
    mask: Mask,
}

/// The line to one hub.
struct Line {
    hub: Hub,
    publish_url: Url,
    client: Client,
    permits: Semaphore,
    /// Whether the last request was answered, so that a connection may be open.
    is_open: AtomicBool,
    /// How long submissions took, redirections included.
    took: Mutex<Histogram>,
}

impl Publisher {
    pub fn new(hubs: Vec<HubSettings>) -> Result<Publisher, PublisherError> {
        let mask = settings::mask(&hubs);
        let mut configured = Vec::new();
        let mut lines = HashMap::new();
        for settings in hubs {
            configured.push(settings.publish_url.clone());
            configured.extend(Url::parse(settings.hub.as_str()));
            lines.insert(settings.hub.clone(), Line::new(settings)?);
        }
        Ok(Publisher {
            lines,
            configured,
            mask,
        })
    }

    /// Sends one submission and follows it through permitted redirections. Waits while its hub has as many
    /// requests as it may have.
    pub async fn submit(&self, submission: &Submission) -> Answer {
        let Some(line) = self.lines.get(&submission.hub) else {
            return Answer::Failed(format!("{} is not configured", submission.hub));
        };
        let Ok(_permit) = line.permits.acquire().await else {
            return Answer::Failed("the publisher has ended".to_owned());
        };
        let began = Instant::now();
        let answer = self.follow(line, submission).await;
        line.took().observe(began.elapsed());
        answer
    }

    async fn follow(&self, mut line: &Line, submission: &Submission) -> Answer {
        let request = request(submission, line.publish_url.as_str());
        let mut url = match Url::parse(&request.url) {
            Ok(url) => url,
            Err(error) => return Answer::Failed(format!("{}: {error}", request.url)),
        };
        for hops in 0.. {
            let answered = line.send(&request, &url).await;
            let hop = match &answered {
                Ok(response) => next_hop(
                    response.status().as_u16(),
                    location(response).as_deref(),
                    &url,
                    hops,
                    &self.configured,
                ),
                Err(_) => Hop::Stop,
            };
            match hop {
                Hop::Stop => return client::answer(answered, &self.mask).await,
                Hop::Follow(next) => {
                    line = self.line_to(&next).unwrap_or(line);
                    url = next;
                }
            }
        }
        unreachable!("redirections are bounded")
    }

    /// How long each hub took to answer, or not to.
    pub fn took(&self) -> BTreeMap<Hub, Histogram> {
        let lines = self.lines.iter();
        lines
            .map(|(hub, line)| (hub.clone(), line.took().clone()))
            .collect()
    }

    /// The line of the hub that lives at `url`: it, not the one that redirected, gets its credentials.
    fn line_to(&self, url: &Url) -> Option<&Line> {
        self.lines.values().find(|line| {
            same_address(&line.publish_url, url)
                || Url::parse(line.hub.as_str()).is_ok_and(|hub| same_address(&hub, url))
        })
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("hubs", &self.lines.keys())
            .finish_non_exhaustive()
    }
}

impl Line {
    fn new(settings: HubSettings) -> Result<Line, PublisherError> {
        Ok(Line {
            client: settings.client()?,
            hub: settings.hub,
            publish_url: settings.publish_url,
            permits: Semaphore::new(CONCURRENT_REQUESTS),
            is_open: AtomicBool::new(false),
            took: Mutex::default(),
        })
    }

    /// Sends a request; once more, at once, where the hub may have closed an open connection just as this was
    /// written to it. Whether it read the first is not known: a notification arrives at least once.
    async fn send(&self, request: &Request, url: &Url) -> reqwest::Result<Response> {
        let mut answered = self.post(request, url).await;
        let broke_off = |error: &reqwest::Error| !error.is_timeout() && !error.is_connect();
        if answered.as_ref().is_err_and(broke_off) && self.is_open.load(Ordering::Relaxed) {
            answered = self.post(request, url).await;
        }
        self.is_open.store(answered.is_ok(), Ordering::Relaxed);
        answered
    }

    fn took(&self) -> MutexGuard<'_, Histogram> {
        self.took.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn post(&self, request: &Request, url: &Url) -> reqwest::Result<Response> {
        let mut post = self.client.post(url.clone());
        for (name, value) in &request.headers {
            // A link may hold raw non-ASCII bytes, which a header may too.
            post = post.header(*name, value.as_bytes());
        }
        post.body(client::body(&request.body)).send().await
    }
}

fn location(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?;
    location.to_str().ok().map(str::to_owned)
}
