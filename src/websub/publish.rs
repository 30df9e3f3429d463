//! Submits notifications to hubs (R23, R24), each hub with its own connections, credentials and patience,
//! so that none can delay another.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use hyper::header::LOCATION;
use reqwest::{Client, Response};
use tokio::sync::Semaphore;
use url::Url;

use crate::announce::delivery::redirect::{Hop, next_hop, same_address};
use crate::announce::delivery::secret::Mask;
use crate::announce::delivery::{Answer, HubRequest, Submission, request};
use crate::report::histogram::Histogram;
use crate::resourcesync::uri::Hub;
use crate::websub::client;

pub(super) mod settings;

pub use settings::{Credentials, Header, HubSettings, Proxy, PublisherError};

/// How many requests one hub is sent at a time.
const CONCURRENT_REQUESTS: usize = 64;

/// Sends submissions. Cheap to share behind an `Arc`.
pub struct Publisher {
    lines: RwLock<Arc<Lines>>,
}

/// The lines to all hubs.
pub struct Lines {
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
    traffic: Arc<Traffic>,
    /// Whether the last request was answered, so that a connection may be open.
    is_open: AtomicBool,
}

/// What one hub is sent: it outlives a line.
struct Traffic {
    permits: Semaphore,
    /// How long submissions took, redirections included.
    took: Mutex<Histogram>,
}

impl Publisher {
    pub fn new(hubs: Vec<HubSettings>) -> Result<Publisher, PublisherError> {
        let lines = Lines::new(hubs)?;
        Ok(Publisher {
            lines: RwLock::new(Arc::new(lines)),
        })
    }

    /// Uses other lines from now on. A request that has begun ends on the line on which it began, and counts
    /// among those that its hub is sent at a time.
    pub fn change(&self, mut lines: Lines) {
        let mut own = self.lines.write().unwrap_or_else(PoisonError::into_inner);
        for (hub, line) in &mut lines.lines {
            if let Some(before) = own.lines.get(hub) {
                line.traffic = Arc::clone(&before.traffic);
            }
        }
        *own = Arc::new(lines);
    }

    fn lines(&self) -> Arc<Lines> {
        Arc::clone(&self.lines.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends one submission and follows it through permitted redirections. Waits while its hub has as many
    /// requests as it may have.
    pub async fn submit(&self, submission: &Submission) -> Answer {
        let hub = &submission.hub;
        let unknown = || Answer::Failed(format!("{hub} is not configured"));
        let Some(traffic) = self.lines().traffic(hub) else {
            return unknown();
        };
        let Ok(_permit) = traffic.permits.acquire().await else {
            return Answer::Failed("the publisher has ended".to_owned());
        };
        // Those of now: they may have changed meanwhile.
        let lines = self.lines();
        let Some(line) = lines.lines.get(hub) else {
            return unknown();
        };
        let began = Instant::now();
        let answer = lines.follow(line, submission).await;
        traffic.took().observe(began.elapsed());
        answer
    }

    /// How long each hub took to answer, or not to.
    pub fn took(&self) -> BTreeMap<Hub, Histogram> {
        let lines = self.lines();
        let took = |(hub, line): (&Hub, &Line)| (hub.clone(), line.traffic.took().clone());
        lines.lines.iter().map(took).collect()
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Publisher").field(&self.lines()).finish()
    }
}

impl Lines {
    pub fn new(hubs: Vec<HubSettings>) -> Result<Lines, PublisherError> {
        let mask = settings::mask(&hubs);
        let mut configured = Vec::new();
        let mut lines = HashMap::new();
        for settings in hubs {
            configured.push(settings.publish_url.clone());
            configured.extend(Url::parse(settings.hub.as_str()));
            lines.insert(settings.hub.clone(), Line::new(settings)?);
        }
        Ok(Lines {
            lines,
            configured,
            mask,
        })
    }

    /// What one hub is sent, and what is known of that, whatever its line.
    fn traffic(&self, hub: &Hub) -> Option<Arc<Traffic>> {
        self.lines.get(hub).map(|line| Arc::clone(&line.traffic))
    }

    async fn follow<'a>(&'a self, mut line: &'a Line, submission: &Submission) -> Answer {
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

    /// The line of the hub that lives at `url`: it, not the one that redirected, gets its credentials.
    fn line_to(&self, url: &Url) -> Option<&Line> {
        self.lines.values().find(|line| {
            same_address(&line.publish_url, url)
                || Url::parse(line.hub.as_str()).is_ok_and(|hub| same_address(&hub, url))
        })
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("hubs", &self.lines.keys())
            .finish_non_exhaustive()
    }
}

impl Traffic {
    fn took(&self) -> MutexGuard<'_, Histogram> {
        self.took.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn new(settings: HubSettings) -> Result<Line, PublisherError> {
        Ok(Line {
            client: settings.client()?,
            hub: settings.hub,
            publish_url: settings.publish_url,
            traffic: Arc::new(Traffic {
                permits: Semaphore::new(CONCURRENT_REQUESTS),
                took: Mutex::default(),
            }),
            is_open: AtomicBool::new(false),
        })
    }

    /// Sends a request; once more, at once, where the hub may have closed an open connection just as this was
    /// written to it. Whether it read the first is not known: a notification arrives at least once.
    async fn send(&self, request: &HubRequest, url: &Url) -> reqwest::Result<Response> {
        let mut answered = self.post(request, url).await;
        let broke_off = |error: &reqwest::Error| !error.is_timeout() && !error.is_connect();
        if answered.as_ref().is_err_and(broke_off) && self.is_open.load(Ordering::Relaxed) {
            answered = self.post(request, url).await;
        }
        self.is_open.store(answered.is_ok(), Ordering::Relaxed);
        answered
    }

    async fn post(&self, request: &HubRequest, url: &Url) -> reqwest::Result<Response> {
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
