//! Notifications read from the state file when they are delivered: shared by the deliveries of the same notification, and
//! in memory only while one of them needs them.

use std::collections::HashMap;
use std::collections::btree_map::BTreeMap;
use std::io;
use std::ops::Bound::{Excluded, Unbounded};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};

use hmac::Mac;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use resourcesync::uri::Topic;
use sha2::Sha256;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::http::{BoxedFn, lock};
use crate::hub::delivery::{mac, signed};
use crate::hub::{PART_BYTES, Relay, RelayId, StoredRelay};
use crate::secret::Secret;

/// Topics whose notifications are remembered before those without deliveries are forgotten.
const MAX_TOPICS: usize = 256;

type ReadNext = dyn Fn(&Topic, RelayId) -> Result<Option<StoredRelay>, String> + Send + Sync;
type ReadPart = dyn Fn(RelayId, u64) -> Result<Option<Vec<u8>>, String> + Send + Sync;

/// The notifications of the state file. Both functions may block, and may be called at the same time.
#[derive(Debug)]
pub struct RelayStore {
    /// Reads the notification that follows one of the same topic.
    pub next: BoxedFn<ReadNext>,
    /// Reads part of a body, by its number: each has [`PART_BYTES`], the last one may have fewer.
    pub part: BoxedFn<ReadPart>,
}

/// Reads notifications, each once for all its deliveries at the same time.
#[derive(Debug)]
pub struct RelayReader {
    file: Arc<RelayStore>,
    loaded: Mutex<HashMap<Topic, BTreeMap<RelayId, Weak<LoadedRelay>>>>,
    /// Held while a notification is read.
    reading: tokio::sync::Mutex<()>,
}

/// A notification that is being delivered; parts of a long body are read while they are sent.
#[derive(Debug)]
pub struct LoadedRelay {
    /// The notification without the rest of its body.
    pub stored: StoredRelay,
    file: Arc<RelayStore>,
    /// The parts that are being sent, but for the first.
    parts: Mutex<HashMap<u64, Weak<[u8]>>>,
}

impl RelayStore {
    /// Reads notifications from memory, for a hub without a state file. The caller puts them there before it dispatches
    /// them, and removes those that [`HubRecord::Ended`](crate::hub::HubRecord::Ended) names.
    pub fn in_memory(relays: &Arc<Mutex<BTreeMap<RelayId, Relay>>>) -> RelayStore {
        let (relays, bodies) = (Arc::clone(relays), Arc::clone(relays));
        RelayStore {
            next: BoxedFn(Box::new(move |topic, heard| {
                let relays = lock(&relays);
                let mut of_topic = relays.values().filter(|relay| relay.topic == *topic);
                let previous = of_topic.clone().rfind(|relay| relay.id <= heard);
                let next = of_topic.find(|relay| relay.id > heard);
                Ok(next.map(|relay| StoredRelay {
                    id: relay.id,
                    previous: previous.map_or(RelayId(0), |relay| relay.id),
                    seq: relay.seq,
                    headers: relay.headers.clone(),
                    size: relay.body.len() as u64,
                    beginning: part(&relay.body, 0).unwrap_or_default().into(),
                }))
            })),
            part: BoxedFn(Box::new(move |id, number| {
                let relays = lock(&bodies);
                let body = relays.get(&id).map(|relay| &relay.body);
                Ok(body.and_then(|body| part(body, number).map(<[u8]>::to_vec)))
            })),
        }
    }
}

/// Returns part of a body by its number.
fn part(body: &[u8], number: u64) -> Option<&[u8]> {
    body.chunks(PART_BYTES).nth(number.try_into().ok()?)
}

impl RelayReader {
    /// Returns a reader that has read nothing yet.
    pub fn new(file: RelayStore) -> RelayReader {
        RelayReader {
            file: Arc::new(file),
            loaded: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the notification that follows one of the same topic.
    ///
    /// # Errors
    /// The state file cannot be read, or has no such notification.
    pub async fn next(&self, topic: &Topic, heard: RelayId) -> Result<Arc<LoadedRelay>, String> {
        if let Some(loaded) = self.loaded(topic, heard) {
            return Ok(loaded);
        }
        let _reading = self.reading.lock().await;
        if let Some(loaded) = self.loaded(topic, heard) {
            return Ok(loaded);
        }
        let (file, of_topic) = (Arc::clone(&self.file), topic.clone());
        let stored = spawn_blocking(move || (file.next)(&of_topic, heard)).await;
        let stored = stored.map_err(|error| error.to_string())??;
        let stored = stored.ok_or("the state file does not have it")?;
        let id = stored.id;
        let loaded = Arc::new(LoadedRelay {
            stored,
            file: Arc::clone(&self.file),
            parts: Mutex::default(),
        });
        let mut all = lock(&self.loaded);
        if all.len() >= MAX_TOPICS {
            all.retain(|_, relays| relays.values().any(|relay| relay.strong_count() > 0));
        }
        let of_topic = all.entry(topic.clone()).or_default();
        of_topic.retain(|_, relay| relay.strong_count() > 0);
        of_topic.insert(id, Arc::downgrade(&loaded));
        Ok(loaded)
    }

    fn loaded(&self, topic: &Topic, heard: RelayId) -> Option<Arc<LoadedRelay>> {
        let all = lock(&self.loaded);
        let mut after = all.get(topic)?.range((Excluded(heard), Unbounded));
        let loaded = after.find_map(|(_, relay)| relay.upgrade())?;
        (loaded.stored.previous <= heard).then_some(loaded)
    }
}

impl LoadedRelay {
    /// Returns the value of `X-Hub-Signature` for its body.
    ///
    /// # Errors
    ///
    /// If the body cannot be read; the reason in words.
    pub async fn signature(self: &Arc<Self>, secret: &Secret) -> Result<String, String> {
        let mut mac = mac::<Sha256>(secret);
        mac.update(&self.stored.beginning);
        for number in 1..self.parts_count() {
            let relay = Arc::clone(self);
            let part = spawn_blocking(move || relay.part(number)).await;
            mac.update(&part.map_err(|error| error.to_string())??);
        }
        Ok(signed(mac))
    }

    /// Returns its body as that of a request, which reports how far it was taken.
    pub fn body(self: &Arc<Self>, progress: watch::Sender<SendProgress>) -> reqwest::Body {
        if self.parts_count() <= 1 {
            progress.send_replace(SendProgress::Complete);
            return Bytes::from_owner(Arc::clone(&self.stored.beginning)).into();
        }
        reqwest::Body::wrap(RelayBody {
            relay: Arc::clone(self),
            next: 0,
            reading: None,
            progress,
        })
    }

    fn parts_count(&self) -> u64 {
        self.stored.size.div_ceil(PART_BYTES as u64)
    }

    /// Reads a part, unless another delivery is sending it. Blocks.
    fn part(&self, number: u64) -> Result<Arc<[u8]>, String> {
        if let Some(part) = lock(&self.parts).get(&number).and_then(Weak::upgrade) {
            return Ok(part);
        }
        let read = (self.file.part)(self.stored.id, number)?;
        let part: Arc<[u8]> = read.ok_or("the state file lacks part of it")?.into();
        lock(&self.parts).insert(number, Arc::downgrade(&part));
        Ok(part)
    }
}

/// The part of a body that the connection has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendProgress {
    /// So many parts of it.
    Parts(u64),
    /// All of it.
    Complete,
    /// The rest cannot be read.
    Unreadable(String),
}

/// A body that is read part by part, as the connection takes it.
struct RelayBody {
    relay: Arc<LoadedRelay>,
    /// The number of the part that is read next.
    next: u64,
    reading: Option<JoinHandle<Result<Arc<[u8]>, String>>>,
    progress: watch::Sender<SendProgress>,
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if this.is_end_stream() {
            return Poll::Ready(None);
        }
        let part = if this.next == 0 {
            Ok(Arc::clone(&this.relay.stored.beginning))
        } else {
            let (relay, number) = (&this.relay, this.next);
            let reading = this.reading.get_or_insert_with(|| {
                let relay = Arc::clone(relay);
                spawn_blocking(move || relay.part(number))
            });
            let read = ready!(Pin::new(reading).poll(context));
            this.reading = None;
            read.unwrap_or_else(|error| Err(error.to_string()))
        };
        this.next += 1;
        this.progress.send_replace(match &part {
            Err(error) => SendProgress::Unreadable(error.clone()),
            Ok(_) if this.is_end_stream() => SendProgress::Complete,
            Ok(_) => SendProgress::Parts(this.next),
        });
        let frame = part.map(|part| Frame::data(Bytes::from_owner(part)));
        Poll::Ready(Some(frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.next >= self.relay.parts_count()
    }

    fn size_hint(&self) -> SizeHint {
        let taken = self.next * PART_BYTES as u64;
        SizeHint::with_exact(self.relay.stored.size.saturating_sub(taken))
    }
}
