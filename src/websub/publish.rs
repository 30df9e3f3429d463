//! Submits notifications to hubs (R23, R24), each hub with its own connections, credentials and patience,
//! so that none can delay another.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use hyper::header::LOCATION;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, Identity, RequestBuilder, Response};
use tokio::sync::Semaphore;
use url::Url;

use crate::announce::delivery::redirect::{Hop, next_hop, same_address};
use crate::announce::delivery::secret::Secret;
use crate::announce::delivery::{Answer, Request, Submission, request};
use crate::resourcesync::uri::Hub;
use crate::websub::client;

/// How many requests one hub is sent at a time.
const CONCURRENT_REQUESTS: usize = 64;

/// How a hub is reached and convinced.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// As advertised.
    pub hub: Hub,
    /// Where to `POST`.
    pub publish_url: Url,
    /// For each request, from connecting to the end of the answer.
    pub timeout: Duration,
    pub headers: Vec<(HeaderName, Secret)>,
    pub credentials: Option<Credentials>,
    /// Certificates to trust besides the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Our certificate and its key.
    pub identity_pem: Option<Secret>,
    /// Believe whoever answers. For trials.
    pub danger_accept_invalid_certs: bool,
}

/// What a hub knows us by.
#[derive(Debug, Clone)]
pub enum Credentials {
    Bearer(Secret),
    Basic { username: String, password: Secret },
}

impl HubSettings {
    /// A hub that asks for nothing; submissions go to where it is advertised.
    pub fn new(hub: Hub) -> Result<HubSettings, PublisherError> {
        let publish_url = Url::parse(hub.as_str()).map_err(|source| PublisherError::Url {
            hub: hub.clone(),
            source,
        })?;
        Ok(HubSettings {
            hub,
            publish_url,
            timeout: Duration::from_secs(30),
            headers: Vec::new(),
            credentials: None,
            ca_pem: None,
            identity_pem: None,
            danger_accept_invalid_certs: false,
        })
    }

    /// Whether requests can be made so, as far as that is written here: whatever certificates the machine
    /// has.
    pub fn check(&self) -> Result<(), PublisherError> {
        let strict = builder(self)?
            .tls_certs_only([])
            .tls_danger_accept_invalid_certs(false);
        match strict.build() {
            Ok(_) => Ok(()),
            Err(source) => Err(PublisherError::Certificates {
                hub: self.hub.clone(),
                source,
            }),
        }
    }
}

/// Why there can be no publisher with such settings.
#[derive(Debug, thiserror::Error)]
pub enum PublisherError {
    #[error("the address of hub {hub} is no URL")]
    Url { hub: Hub, source: url::ParseError },
    #[error("the header {name} for hub {hub} has an impossible name or value")]
    Header { hub: Hub, name: String },
    #[error("cannot use the certificates or the key for hub {hub}")]
    Certificates { hub: Hub, source: reqwest::Error },
    #[error("cannot prepare requests to hub {hub}")]
    Client { hub: Hub, source: reqwest::Error },
}

/// Sends submissions. Cheap to share behind an `Arc`.
pub struct Publisher {
    lines: HashMap<Hub, Line>,
    /// The addresses of all hubs: where a redirection may lead.
    configured: Vec<Url>,
}

/// The line to one hub.
struct Line {
    settings: HubSettings,
    client: Client,
    permits: Semaphore,
}

impl Publisher {
    pub fn new(hubs: Vec<HubSettings>) -> Result<Publisher, PublisherError> {
        let mut configured = Vec::new();
        let mut lines = HashMap::new();
        for settings in hubs {
            configured.push(settings.publish_url.clone());
            configured.extend(Url::parse(settings.hub.as_str()));
            lines.insert(settings.hub.clone(), Line::new(settings)?);
        }
        Ok(Publisher { lines, configured })
    }

    /// Sends one submission and follows it through permitted redirections. Waits while its hub has as many
    /// requests as it may have.
    pub async fn submit(&self, submission: &Submission) -> Answer {
        let Some(mut line) = self.lines.get(&submission.hub) else {
            return Answer::Failed(format!("{} is not configured", submission.hub));
        };
        let Ok(_permit) = line.permits.acquire().await else {
            return Answer::Failed("the publisher has ended".to_owned());
        };
        let request = request(submission, line.settings.publish_url.as_str());
        let mut url = match Url::parse(&request.url) {
            Ok(url) => url,
            Err(error) => return Answer::Failed(format!("{}: {error}", request.url)),
        };
        for hops in 0.. {
            let answered = line.send(&request, url.clone()).await;
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
                Hop::Stop => return client::answer(answered).await,
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
            same_address(&line.settings.publish_url, url)
                || Url::parse(line.settings.hub.as_str()).is_ok_and(|hub| same_address(&hub, url))
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
        let client = client(&settings)?;
        Ok(Line {
            settings,
            client,
            permits: Semaphore::new(CONCURRENT_REQUESTS),
        })
    }

    async fn send(&self, request: &Request, url: Url) -> reqwest::Result<Response> {
        let mut post = self.client.post(url);
        for (name, value) in &request.headers {
            // A link may hold raw non-ASCII bytes, which a header may too.
            post = post.header(*name, value.as_bytes());
        }
        post = with_credentials(post, &self.settings);
        post.body(client::body(&request.body)).send().await
    }
}

/// Adds what the hub knows us by.
pub(super) fn with_credentials(request: RequestBuilder, settings: &HubSettings) -> RequestBuilder {
    match &settings.credentials {
        Some(Credentials::Bearer(token)) => request.bearer_auth(token.reveal()),
        Some(Credentials::Basic { username, password }) => {
            request.basic_auth(username, Some(password.reveal()))
        }
        None => request,
    }
}

/// What requests to a hub are made with.
pub(super) fn client(settings: &HubSettings) -> Result<Client, PublisherError> {
    let failed = |source| PublisherError::Client {
        hub: settings.hub.clone(),
        source,
    };
    let builder = builder(settings)?;
    if is_http(&settings.publish_url) {
        // Without the system's certificates, what is sent there can still be sent.
        let again = self::builder(settings)?.tls_certs_only([]);
        return builder.build().or_else(|_| again.build()).map_err(failed);
    }
    builder.build().map_err(failed)
}

fn builder(settings: &HubSettings) -> Result<ClientBuilder, PublisherError> {
    let failed = |source| PublisherError::Certificates {
        hub: settings.hub.clone(),
        source,
    };
    let mut builder = client::builder()
        .timeout(settings.timeout)
        .tls_danger_accept_invalid_certs(settings.danger_accept_invalid_certs)
        .default_headers(headers(settings)?);
    if is_plain(settings) {
        builder = builder.tls_certs_only([]);
    }
    if let Some(pem) = &settings.ca_pem {
        builder = builder.tls_certs_merge(Certificate::from_pem_bundle(pem).map_err(failed)?);
    }
    if let Some(pem) = &settings.identity_pem {
        builder = builder.identity(Identity::from_pem(pem.reveal().as_bytes()).map_err(failed)?);
    }
    Ok(builder)
}

/// Whether nothing is ever sent to this hub by TLS: a redirection may lead to the advertised address (R23).
fn is_plain(settings: &HubSettings) -> bool {
    let advertised = Url::parse(settings.hub.as_str());
    is_http(&settings.publish_url) && advertised.is_ok_and(|advertised| is_http(&advertised))
}

fn is_http(url: &Url) -> bool {
    url.scheme() == "http"
}

fn headers(settings: &HubSettings) -> Result<HeaderMap, PublisherError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let mut value = HeaderValue::from_bytes(value.reveal().as_bytes()).map_err(|_| {
            PublisherError::Header {
                hub: settings.hub.clone(),
                name: name.to_string(),
            }
        })?;
        value.set_sensitive(true);
        headers.append(name.clone(), value);
    }
    Ok(headers)
}

fn location(response: &Response) -> Option<String> {
    let location = response.headers().get(LOCATION)?;
    location.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://hub.org/", "http://hub.org/in", true)]
    #[case("https://hub.org/", "http://hub.org/in", false)]
    #[case("http://hub.org/", "https://hub.org/in", false)]
    #[case("https://hub.org/", "https://hub.org/in", false)]
    fn only_a_hub_that_never_speaks_tls_does_without_certificates(
        #[case] advertised: &str,
        #[case] publish_url: &str,
        #[case] want: bool,
    ) {
        let mut settings = HubSettings::new(Hub::new(advertised)).unwrap();
        settings.publish_url = publish_url.parse().unwrap();
        assert_eq!(is_plain(&settings), want);
    }

    #[test]
    fn invalid_certificates_are_accepted_only_where_it_was_asked_for() {
        for asked in [false, true] {
            let mut settings = HubSettings::new(Hub::new("https://hub.org/")).unwrap();
            settings.danger_accept_invalid_certs = asked;
            let shown = format!("{:?}", builder(&settings).unwrap());
            assert_eq!(
                shown.contains("tls_danger_accept_invalid_certs: true"),
                asked,
                "{shown}"
            );
        }
    }
}
