//! The HTTP server of both listeners, over TCP or a Unix socket, with limits and timeouts against slow and idle clients. When
//! its connection slots are full, a new connection closes the one that has been idle longest, but none within its grace
//! period.

use std::collections::BTreeMap;
use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, Sleep};

use crate::http::lock;

/// File descriptors reserved for the state file, watches, listeners and files being read.
const RESERVED_DESCRIPTORS: u64 = 32;
/// Maximum connections, however many descriptors there are.
const MAX_CONNECTIONS: usize = 16_384;

/// The time, from connecting, that a client has for its first request if the server stops meanwhile.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of a request's header; at least 8 KiB.
const HEADER_BYTES: usize = 16 * 1024;

/// Maximum bytes, and time, for draining a connection after the last answer.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A response whose body is in memory.
pub type FullResponse = Response<Full<Bytes>>;

/// The address of the client, as a request extension. None through a Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub Option<IpAddr>);

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Returns the local address of a TCP listener.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn ClientStream>, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Only latency depends on it.
                let _ = stream.set_nodelay(true);
                Ok((Box::new(stream), Some(peer.ip())))
            }
            Listener::Unix(listener) => Ok((Box::new(listener.accept().await?.0), None)),
        }
    }
}

/// A connection of either kind of listener.
trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ClientStream for S {}

/// Limits on connections and requests.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Maximum connections. A new one beyond it closes the one that has been idle longest.
    pub connections: usize,
    /// Timeout for receiving a request's header, and for idle connections.
    pub header_timeout: Duration,
    /// Timeout for sending a whole answer.
    pub answer_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections: max_connections(getrlimit(Resource::Nofile).current),
            header_timeout: Duration::from_secs(15),
            answer_timeout: Duration::from_secs(60),
        }
    }
}

/// Serves until `shutdown`, then finishes requests under way, and those of clients that have just connected: nobody who was
/// accepted is turned away without an answer. The caller limits that wait.
pub async fn serve<H, F>(
    listener: Listener,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = FullResponse> + Send + 'static,
{
    let slots = ConnectionSlots::new(limits.connections);
    // Each connection holds a receiver until it has ended.
    let (stop, stopping) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    let with_peer = |peer| {
        let handler = handler.clone();
        move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            handler(request)
        }
    };
    loop {
        // Only the wait for a client is given up: one that was accepted gets its slot, and its answer.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (handler, stopping) = (with_peer(peer), stopping.clone());
                connection(
                    stream,
                    &limits,
                    handler,
                    stopping,
                    slots.wait_for_slot().await,
                );
            }
            Err(error) => match error.kind() {
                // A client that closed before it was accepted is no reason to wait.
                ConnectionAborted | ConnectionRefused | ConnectionReset => {}
                // Descriptors have run out.
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
    drop((listener, stopping));
    let _ = stop.send(());
    stop.closed().await;
}

/// Reads a request's body up to a size and within a time; else returns the error to answer.
///
/// # Errors
///
/// The status and text of the answer: the body is too large, too slow, or broken off.
pub async fn small_body(
    body: impl Body<Data = Bytes, Error = hyper::Error>,
    max: usize,
    timeout: Duration,
) -> Result<Bytes, (StatusCode, &'static str)> {
    match tokio::time::timeout(timeout, Limited::new(body, max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body broke off\n")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long\n")),
    }
}

/// Returns a plain-text response.
pub fn text(status: StatusCode, words: impl Into<Bytes>) -> FullResponse {
    let mut reply = Response::new(Full::new(words.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    reply
}

/// Returns the answer to another method than those of `allow`.
pub fn not_allowed(allow: &'static str, words: &'static str) -> FullResponse {
    let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, words);
    let allow = HeaderValue::from_static(allow);
    reply.headers_mut().insert(ALLOW, allow);
    reply
}

fn connection<H, F>(
    stream: Box<dyn ClientStream>,
    limits: &ServerLimits,
    handler: H,
    mut stopping: watch::Receiver<()>,
    (slot, mut must_close): (ConnectionSlot, oneshot::Receiver<()>),
) where
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = FullResponse> + Send + 'static,
{
    let first_request_until = Instant::now() + FIRST_REQUEST_TIMEOUT;
    let received = Arc::new(Notify::new());
    let stream = TimedStream {
        stream,
        received: Arc::clone(&received),
        slot,
        timeout: limits.answer_timeout,
        write_timeout: None,
        drain: None,
    };
    let service = service_fn(move |request| {
        let reply = handler(request);
        async move { Ok::<FullResponse, std::convert::Infallible>(reply.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_header_size(HEADER_BYTES)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let mut stop = pin!(async move {
            let _ = stopping.changed().await;
            // hyper closes at once what has sent nothing yet.
            let _ = tokio::time::timeout_at(first_request_until, received.notified()).await;
            stopping
        });
        let mut stopped = None;
        loop {
            // Errors are the client's. It is polled first, so that a request that was received is answered.
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                _ = &mut must_close => return,
                stopping = stop.as_mut(), if stopped.is_none() => {
                    stopped = Some(stopping);
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    });
}

/// Returns the maximum of connections for a limit on file descriptors. Half of the spare ones are left for reading the tree
/// and for our own requests.
pub fn max_connections(descriptors: Option<u64>) -> usize {
    let half = spare_descriptors(descriptors) / 2;
    half.clamp(1, MAX_CONNECTIONS)
}

/// Returns the number of descriptors beyond the reserved ones.
pub fn spare_descriptors(descriptors: Option<u64>) -> usize {
    descriptors.map_or(usize::MAX, |descriptors| {
        usize::try_from(descriptors.saturating_sub(RESERVED_DESCRIPTORS)).unwrap_or(usize::MAX)
    })
}

/// A stream that fails if the client does not read an answer within the timeout, which runs from the first blocked write to
/// the next flush: hyper flushes after it has written a whole answer. A client that reads keeps its slot.
struct TimedStream {
    stream: Box<dyn ClientStream>,
    /// Notified of all that the client sends.
    received: Arc<Notify>,
    slot: ConnectionSlot,
    timeout: Duration,
    /// Timer that runs from the first blocked write.
    write_timeout: Option<Pin<Box<Sleep>>>,
    /// Set after the last answer while the client's remaining input is read: closing with unread input would reset the
    /// connection and could discard the answer.
    drain: Option<LingerLimits>,
}

/// The limits of draining a connection.
struct LingerLimits {
    bytes: usize,
    until: Pin<Box<Sleep>>,
}

impl TimedStream {
    /// Returns the outcome of a write, or an error if it has been blocked for too long.
    fn bounded_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.slot.mark_read();
            return written;
        }
        let timeout = self.timeout;
        let expired = self
            .write_timeout
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(expired.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > filled {
            self.received.notify_one();
        }
        read
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.bounded_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.write_timeout = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        let drain = match &mut stream.drain {
            Some(drain) => drain,
            drain @ None => {
                ready!(Pin::new(&mut stream.stream).poll_shutdown(context))?;
                drain.insert(LingerLimits {
                    bytes: DRAIN_BYTES,
                    until: Box::pin(tokio::time::sleep(DRAIN_TIMEOUT)),
                })
            }
        };
        let mut scratch = [0; 4_096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut stream.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    drain.bytes = drain.bytes.saturating_sub(buffer.filled().len());
                    if drain.bytes == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                // The client has closed it too, or broken it off.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return drain.until.as_mut().poll(context).map(Ok),
            }
        }
    }
}

/// The time that a new client has for its first request. Until it is over, further clients wait in order.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum connections being closed before new ones wait.
const MAX_CLOSING: usize = 64;

/// The slots of a listener.
#[derive(Debug)]
struct ConnectionSlots {
    capacity: usize,
    taken: Mutex<OpenConnections>,
    /// Notified whenever a slot is released.
    freed: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// Connections by a number that is renewed with each use, so the first has been idle longest.
    by_number: BTreeMap<u64, OpenConnection>,
    /// Connections that must close and still have a slot.
    closing: usize,
    last: u64,
}

#[derive(Debug)]
struct OpenConnection {
    /// The time of connecting, until the first answer.
    connected_at: Option<Instant>,
    /// Dropped to close the connection.
    keep_open: Sender<()>,
}

/// The slot of one connection, released when dropped.
#[derive(Debug)]
struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    number: u64,
}

impl ConnectionSlots {
    fn new(capacity: usize) -> Arc<ConnectionSlots> {
        Arc::new(ConnectionSlots {
            capacity,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Waits for a slot. Returns it with a receiver that resolves when the connection must close. When full, closes the
    /// connection whose last request is longest ago: one that waits for its client, or, where answers wait too as those
    /// of callbacks do, the request that has waited longest, whose sender tries again.
    async fn wait_for_slot(self: &Arc<ConnectionSlots>) -> (ConnectionSlot, Receiver<()>) {
        loop {
            let freed = self.freed.notified();
            match self.try_take(Instant::now()) {
                Ok(taken) => return taken,
                // By then the grace period has ended, or a slot was released.
                Err(wait) => {
                    let _ = tokio::time::timeout(wait, freed).await;
                }
            }
        }
    }

    /// Returns a slot, or the time to wait before the next attempt unless one is released.
    fn try_take(
        self: &Arc<ConnectionSlots>,
        now: Instant,
    ) -> Result<(ConnectionSlot, Receiver<()>), Duration> {
        let mut taken = lock(&self.taken);
        // A connection being closed keeps its descriptor for a moment.
        if taken.closing > (self.capacity / 16).min(MAX_CLOSING) {
            return Err(GRACE);
        }
        if taken.by_number.len() >= self.capacity
            && let Some(longest) = taken.by_number.first_entry()
        {
            let connected_at = longest.get().connected_at;
            let age = connected_at.map(|connected_at| now.duration_since(connected_at));
            if let Some(age) = age
                && age < GRACE
            {
                return Err(GRACE - age);
            }
            longest.remove();
            taken.closing += 1;
        }
        let (keep_open, must_close) = channel();
        let number = taken.add(OpenConnection {
            connected_at: Some(now),
            keep_open,
        });
        let slot = ConnectionSlot {
            slots: Arc::clone(self),
            number,
        };
        Ok((slot, must_close))
    }
}

impl OpenConnections {
    fn add(&mut self, connected: OpenConnection) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, connected);
        self.last
    }
}

impl ConnectionSlot {
    /// Marks the connection as used, because the client has read of an answer. Sending does not count, or a byte now
    /// and then would keep a slot.
    fn mark_read(&mut self) {
        let mut taken = lock(&self.slots.taken);
        if let Some(OpenConnection { keep_open, .. }) = taken.by_number.remove(&self.number) {
            self.number = taken.add(OpenConnection {
                connected_at: None,
                keep_open,
            });
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = lock(&self.slots.taken);
        if taken.by_number.remove(&self.number).is_none() {
            taken.closing -= 1;
        }
        drop(taken);
        self.slots.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::sync::oneshot::error::TryRecvError::Closed;

    use super::*;

    #[rstest]
    #[case(Some(1_024), 496)]
    #[case(Some(64), 16)]
    #[case(Some(1_048_576), 16_384)]
    #[case(Some(1), 1)]
    #[case(None, 16_384)]
    fn connections_leave_descriptors_for_everything_else(
        #[case] descriptors: Option<u64>,
        #[case] want: usize,
    ) {
        assert_eq!(max_connections(descriptors), want);
    }

    type Taken = (ConnectionSlot, Receiver<()>);

    /// Takes a slot and closes the connections that must close for it.
    fn take(
        slots: &Arc<ConnectionSlots>,
        others: &mut Vec<Option<Taken>>,
        now: Instant,
    ) -> Vec<usize> {
        let taken = slots.try_take(now).unwrap();
        let must_close =
            |(_, leave): &mut Taken| leave.try_recv().is_err_and(|error| error == Closed);
        let mut left = Vec::new();
        for (position, other) in others.iter_mut().enumerate() {
            if other.as_mut().is_some_and(must_close) {
                *other = None;
                left.push(position);
            }
        }
        others.push(Some(taken));
        left
    }

    fn slot(taken: &mut [Option<Taken>], number: usize) -> &mut ConnectionSlot {
        &mut taken[number].as_mut().unwrap().0
    }

    #[test]
    fn the_longest_idle_connection_closes_when_all_slots_are_taken() {
        let (slots, now) = (ConnectionSlots::new(3), Instant::now());
        let mut taken = Vec::new();
        for _ in 0..3 {
            assert!(take(&slots, &mut taken, now).is_empty());
        }
        slot(&mut taken, 0).mark_read();
        assert_eq!(take(&slots, &mut taken, now + GRACE), [1]);
        assert_eq!(take(&slots, &mut taken, now + GRACE), [2]);
    }

    #[test]
    fn a_new_connection_has_a_grace_period() {
        let (slots, now) = (ConnectionSlots::new(2), Instant::now());
        let mut taken = Vec::new();
        let late = now + GRACE / 2;
        take(&slots, &mut taken, now);
        take(&slots, &mut taken, late);
        assert_eq!(slots.try_take(late).unwrap_err(), GRACE / 2);
        // It has asked, and had its answer; then the other one is next.
        slot(&mut taken, 0).mark_read();
        assert_eq!(slots.try_take(now + GRACE).unwrap_err(), GRACE / 2);
        assert_eq!(take(&slots, &mut taken, late + GRACE), [1]);
        // After its first answer it has no grace period.
        slot(&mut taken, 2).mark_read();
        assert_eq!(take(&slots, &mut taken, late + GRACE), [0]);
    }

    #[test]
    fn a_released_slot_is_free() {
        let (slots, now) = (ConnectionSlots::new(2), Instant::now());
        let mut taken = Vec::new();
        take(&slots, &mut taken, now);
        for _ in 0..3 {
            drop(slots.try_take(now));
        }
        assert!(take(&slots, &mut taken, now).is_empty());
        assert_eq!(lock(&slots.taken).by_number.len(), 2);
    }

    #[test]
    fn a_connection_that_must_close_cannot_stay_by_reading() {
        let (slots, now) = (ConnectionSlots::new(1), Instant::now());
        let (mut first, _) = slots.try_take(now).unwrap();
        let second = slots.try_take(now + GRACE).unwrap();
        first.mark_read();
        let late = now + GRACE * 2;
        assert!(slots.try_take(late).is_err(), "the first has not left yet");
        drop(first);
        assert_eq!(lock(&slots.taken).by_number.len(), 1);
        drop(second);
        assert_eq!(lock(&slots.taken).by_number.len(), 0);
    }
}
