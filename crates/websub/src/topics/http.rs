//! Topics, served from memory (contract, "Topics"): a request never waits for the engine or the disk, so a hub that
//! fetches before it answers us cannot deadlock.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, RwLock};

use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, LINK};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, header::HeaderValue};
use resourcesync::payload::PAYLOAD_TYPE;
use resourcesync::uri::Topic;

use crate::counts::RequestCounts;
use crate::headers::link_header;
use crate::http::client::header_text;
use crate::http::server::{FullResponse, not_allowed, text};
use crate::http::{BoxedFn, lock, read, write};
use crate::topics::{NO_SUCH_TOPIC, TopicPage, normalized};

/// The topics served.
#[derive(Debug)]
pub struct Topics {
    pages: RwLock<Pages>,
    fetched: BoxedFn<dyn Fn(Topic) + Send + Sync>,
    requests: Mutex<RequestCounts>,
}

/// Pages by request target, byte for byte. Several share a target only on different hosts.
type Pages = HashMap<Box<str>, Vec<Arc<HttpTopicPage>>>;

/// The page of a topic, with what is computed once.
#[derive(Debug)]
struct HttpTopicPage {
    page: TopicPage,
    host: Box<str>,
    etag: HeaderValue,
}

impl Topics {
    /// Returns an empty set. `fetched` is called for each `GET` of a page with `report_fetches`; it must not block.
    pub fn new(fetched: impl Fn(Topic) + Send + Sync + 'static) -> Arc<Topics> {
        Arc::new(Topics {
            pages: RwLock::default(),
            fetched: BoxedFn(Box::new(fetched)),
            requests: Mutex::default(),
        })
    }

    /// Serves a page, replacing an earlier one of its topic.
    pub fn serve_page(&self, page: TopicPage) {
        let (host, target) = host_and_target(page.topic.as_str());
        let mut hash = blake3::Hasher::new();
        hash.update(links(&page).as_bytes());
        hash.update(&[0]).update(&page.body);
        let etag = format!("\"{}\"", &hash.finalize().to_hex()[..32]);
        let served = Arc::new(HttpTopicPage {
            etag: HeaderValue::from_maybe_shared(Bytes::from(etag))
                .expect("hexadecimal digits and quotes may stand in a header"),
            host: host.into(),
            page,
        });
        let mut pages = write(&self.pages);
        let same_target = pages.entry(target.into()).or_default();
        same_target.retain(|other| other.page.topic != served.page.topic);
        same_target.push(served);
    }

    /// Returns the topics served.
    pub fn served(&self) -> BTreeSet<Topic> {
        let pages = read(&self.pages);
        let topics = pages.values().flatten();
        topics.map(|served| served.page.topic.clone()).collect()
    }

    /// Stops serving a topic: it answers 404.
    pub fn withdraw(&self, topic: &Topic) {
        let (_, target) = host_and_target(topic.as_str());
        let mut pages = write(&self.pages);
        if let Some(same_target) = pages.get_mut(&*target) {
            same_target.retain(|other| other.page.topic != *topic);
            if same_target.is_empty() {
                pages.remove(&*target);
            }
        }
    }

    /// Finds the topic that a subscriber named: compared byte for byte, else in normal form.
    pub fn find(&self, name: &str) -> Option<Topic> {
        let (pages, wanted) = (read(&self.pages), normalized(name));
        let mut same_target = pages.get(&*host_and_target(name).1).into_iter().flatten();
        let mut all = pages.values().flatten();
        same_target
            .find(|served| served.page.topic.as_str() == name)
            .or_else(|| all.find(|served| normalized(served.page.topic.as_str()) == wanted))
            .map(|served| served.page.topic.clone())
    }

    /// Answers a request for any path.
    pub fn answer<B>(&self, request: &Request<B>) -> FullResponse {
        let reply = self.reply(request);
        lock(&self.requests).count(reply.status().as_u16());
        reply
    }

    /// Returns the number of requests by answer.
    pub fn request_counts(&self) -> RequestCounts {
        *lock(&self.requests)
    }

    fn reply<B>(&self, request: &Request<B>) -> FullResponse {
        let Some(served) = self.find_page(request) else {
            return text(StatusCode::NOT_FOUND, NO_SUCH_TOPIC);
        };
        let is_get = *request.method() == Method::GET;
        if !is_get && *request.method() != Method::HEAD {
            return not_allowed("GET, HEAD", "a topic is only read: GET or HEAD\n");
        }
        if is_get && served.page.report_fetches {
            (self.fetched.0)(served.page.topic.clone());
        }
        served.reply(request.headers())
    }

    fn find_page<B>(&self, request: &Request<B>) -> Option<Arc<HttpTopicPage>> {
        let target = request.uri().path_and_query()?.as_str();
        let pages = read(&self.pages);
        match pages.get(target)?.as_slice() {
            [only] => Some(Arc::clone(only)),
            several => {
                let host = match request.uri().authority() {
                    Some(authority) => authority.as_str(),
                    None => header_text(request.headers(), HOST)?,
                };
                // A proxy may leave out the default port.
                let bare = |text: &str| {
                    let text = text.to_ascii_lowercase();
                    let shorter = text.strip_suffix(":80").or(text.strip_suffix(":443"));
                    shorter.unwrap_or(&text).to_owned()
                };
                let mut several = several.iter();
                several
                    .find(|served| bare(&served.host) == bare(host))
                    .map(Arc::clone)
            }
        }
    }
}

impl HttpTopicPage {
    fn reply(&self, asked: &HeaderMap) -> FullResponse {
        let is_known = asked
            .get_all(IF_NONE_MATCH)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(|tag| tag.trim_ascii())
            .any(|tag| tag == b"*" || self.etag == tag.strip_prefix(b"W/").unwrap_or(tag));
        let mut reply = Response::new(if is_known {
            Bytes::new().into()
        } else {
            Bytes::from_owner(Arc::clone(&self.page.body)).into()
        });
        let links = HeaderValue::from_maybe_shared(Bytes::from(links(&self.page)));
        let headers = reply.headers_mut();
        headers.insert(LINK, links.expect("a link header holds clean URIs only"));
        headers.insert(ETAG, self.etag.clone());
        if is_known {
            *reply.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(PAYLOAD_TYPE));
            headers.insert(CONTENT_LENGTH, self.page.body.len().into());
        }
        reply
    }
}

fn links(page: &TopicPage) -> String {
    link_header(&page.topic, &page.hubs, Some(&page.capability_list))
}

/// Returns the `Host` header and the request target of a request for `uri`.
pub(crate) fn host_and_target(uri: &str) -> (String, String) {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let rest = rest.split('#').next().unwrap_or(rest);
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let root = if target.starts_with('/') { "" } else { "/" };
    (host.to_owned(), format!("{root}{target}"))
}
