//! Retrieval of the documents that a Destination follows: Capability Lists, Change Lists, the content of a topic; and the
//! hubs and the topic that a topic URI advertises (WebSub section 4).

use std::io::Read;
use std::time::Duration;

use hyper::header::{HeaderMap, LINK};
use jiff::Timestamp;
use reqwest::header::{ACCEPT_ENCODING, RETRY_AFTER};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Method, StatusCode};
use resourcesync::gzip::{MAGIC, unpacked};
use resourcesync::uri::{Hub, Topic, Uri};
use url::{Origin, Url};

use crate::answer::is_temporary;
use crate::headers::Links;
use crate::http::client;
use crate::http::failure::describe;
use crate::retry::parse_retry_after;

const TIMEOUT: Duration = Duration::from_secs(60);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a document: that of a list (core 1.1 section 6), and some more.
const DOCUMENT_BYTES: usize = 64 << 20;
const MAX_REDIRECTIONS: usize = 5;
/// Maximum number of nested compressions: a list may be a compressed file, which a server compresses once more.
const MAX_COMPRESSIONS: usize = 2;

/// An error of discovery, or of retrieving a document.
#[derive(Debug, thiserror::Error)]
pub enum RetrieveError {
    /// The text is no URL.
    #[error("{url} is no URL")]
    Url {
        /// The text.
        url: String,
        /// Cause.
        source: url::ParseError,
    },
    /// The HTTP client cannot be built.
    #[error("cannot prepare requests")]
    Client(#[from] reqwest::Error),
    /// There is no answer, or only part of it.
    #[error("cannot read {url}: {reason}")]
    Request {
        /// The URL.
        url: String,
        /// The error in words.
        reason: String,
    },
    /// The answer is an error.
    #[error("{url} answers {status}")]
    Status {
        /// The URL.
        url: String,
        /// HTTP status.
        status: StatusCode,
        /// The wait that the server asks for.
        retry_after: Option<Duration>,
    },
    /// It cannot be unpacked.
    #[error("cannot unpack {url}")]
    Unpack {
        /// The URL.
        url: String,
        /// Cause.
        source: std::io::Error,
    },
    /// It is larger than any document.
    #[error("{0} is larger than {DOCUMENT_BYTES} bytes")]
    TooLarge(String),
    /// Its origin is not allowed.
    #[error("{0} is at another server than the topic and its Capability List")]
    OtherOrigin(String),
}

impl RetrieveError {
    /// Returns true if the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            // It may be read while it is written.
            RetrieveError::Request { .. } | RetrieveError::Unpack { .. } => true,
            RetrieveError::Status { status, .. } => is_temporary(status.as_u16()),
            _ => false,
        }
    }

    /// Returns true if the document is missing or broken, as it may be while it is written again.
    pub fn may_reappear(&self) -> bool {
        match self {
            RetrieveError::Status { status, .. } => {
                matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE)
            }
            RetrieveError::Unpack { .. } => true,
            _ => false,
        }
    }

    /// Returns the wait before the next request that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            RetrieveError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The origins to which requests may go: those of the URLs that are trusted.
#[derive(Debug, Clone)]
pub struct AllowedOrigins(Option<Vec<Origin>>);

impl AllowedOrigins {
    /// Returns the rule that permits each origin.
    pub fn any() -> AllowedOrigins {
        AllowedOrigins(None)
    }

    /// Returns the rule that permits the origins of these URLs.
    pub fn of<'a>(urls: impl IntoIterator<Item = &'a str>) -> AllowedOrigins {
        let urls = urls.into_iter().filter_map(|url| Url::parse(url).ok());
        AllowedOrigins(Some(urls.map(|url| url.origin()).collect()))
    }

    fn permits(&self, url: &Url) -> bool {
        self.0
            .as_ref()
            .is_none_or(|origins| origins.contains(&url.origin()))
    }
}

/// Retrieves documents from permitted origins.
#[derive(Debug)]
pub struct Retriever {
    client: Client,
    origins: AllowedOrigins,
}

impl Retriever {
    /// Builds the client of a Destination.
    ///
    /// # Errors
    ///
    /// If the HTTP client cannot be built.
    pub fn new(origins: AllowedOrigins) -> Result<Retriever, RetrieveError> {
        let make = || {
            let permitted = origins.clone();
            let policy = Policy::custom(move |attempt: Attempt<'_>| {
                let is_permitted = permitted.permits(attempt.url());
                if is_permitted && attempt.previous().len() <= MAX_REDIRECTIONS {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            });
            client::builder(TIMEOUT).redirect(policy)
        };
        Ok(Retriever {
            client: client::build_or_plain_http(make)?,
            origins,
        })
    }

    /// Retrieves a document whole, unpacked if it is compressed with gzip.
    ///
    /// # Errors
    ///
    /// If its origin is not permitted, there is no answer, or an error, or it is larger than any document.
    pub async fn get(&self, url: &str) -> Result<Vec<u8>, RetrieveError> {
        let parsed = Url::parse(url).map_err(|source| RetrieveError::Url {
            url: url.to_owned(),
            source,
        })?;
        let url = || url.to_owned();
        if !self.origins.permits(&parsed) {
            return Err(RetrieveError::OtherOrigin(url()));
        }
        let failed = |error| RetrieveError::Request {
            url: url(),
            reason: describe(error),
        };
        let request = self.client.get(parsed).header(ACCEPT_ENCODING, "gzip");
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            let said = client::header_text(response.headers(), RETRY_AFTER);
            return Err(RetrieveError::Status {
                url: url(),
                status,
                retry_after: said.and_then(|said| parse_retry_after(said, Timestamp::now())),
            });
        }
        let mut body = match client::beginning(&mut response, DOCUMENT_BYTES).await {
            (_, Some(error)) => return Err(failed(error)),
            (body, None) => body,
        };
        for _ in 0..MAX_COMPRESSIONS {
            if !body.starts_with(&MAGIC) || body.len() >= DOCUMENT_BYTES {
                break;
            }
            let mut plain = Vec::new();
            unpacked(&body[..])
                .take(DOCUMENT_BYTES as u64)
                .read_to_end(&mut plain)
                .map_err(|source| RetrieveError::Unpack { url: url(), source })?;
            body = plain;
        }
        if body.len() < DOCUMENT_BYTES {
            Ok(body)
        } else {
            Err(RetrieveError::TooLarge(url()))
        }
    }
}

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
    let make = || client::builder(DISCOVERY_TIMEOUT).redirect(Policy::limited(5));
    let client: Client = client::build_or_plain_http(make).map_err(failed)?;
    let ask = async |method| {
        let answered = client.request(method, asked.clone()).send().await;
        let response = answered.map_err(failed)?;
        match response.status() {
            status if status.is_success() => {
                Ok(read_links(topic, response.url(), response.headers()))
            }
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

fn read_links(topic: &Topic, base: &Url, headers: &HeaderMap) -> Discovery {
    let links = Links::parse(client::header_values(headers, LINK));
    // An absolute URI is kept byte for byte: hubs compare it so.
    let absolute = |target: &String| match Url::parse(target) {
        Ok(_) => target.clone(),
        Err(_) => base.join(target).map_or(target.clone(), String::from),
    };
    let self_uri = links.self_links.first().map(absolute).map(Topic::new);
    let mut lists = links.capability_lists.iter().map(absolute);
    Discovery {
        self_uri: self_uri.unwrap_or_else(|| topic.clone()),
        hubs: links.hubs.iter().map(absolute).map(Hub::new).collect(),
        capability_list: lists.find_map(|list| Uri::parse(&list).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::{AllowedOrigins, Url};

    #[test]
    fn only_trusted_origins_are_asked() {
        let origins = AllowedOrigins::of(["https://e.org/a", "http://e.org:8080/", "no URL"]);
        for (url, want) in [
            ("https://e.org/other", true),
            ("https://e.org:443/", true),
            ("http://e.org:8080/x", true),
            ("http://e.org/", false),
            ("https://www.e.org/", false),
            ("file:///etc/passwd", false),
        ] {
            let url = Url::parse(url).unwrap();
            assert_eq!(origins.permits(&url), want, "{url}");
            assert!(AllowedOrigins::any().permits(&url));
        }
    }
}
