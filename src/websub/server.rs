//! Accepts connections, over TCP or a Unix socket, and lets nobody hold them for nothing.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::websub::places::{Place, Places};

/// Descriptors of the daemon's own: the state, the watch, the listeners, what is being read.
const OWN: u64 = 32;
/// However many descriptors there are.
const MOST_CONNECTIONS: usize = 16_384;

/// What is read of a client to whom all was said, and for how long.
const DRAINED_BYTES: usize = 256 * 1024;
const DRAINED_FOR: Duration = Duration::from_millis(500);

/// What we answer: all of it at hand.
pub type Reply = Response<Full<Bytes>>;

/// Who is connected, as requests tell their handler. None through a Unix socket.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub Option<IpAddr>);

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// The address, once bound to a free port.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }
}

/// What a client may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Who comes when there are so many gets the place of whoever has been idle longest.
    pub connections: usize,
    /// For sending a request's header; also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// At least 8 KiB.
    pub header_bytes: usize,
    /// For sending a request's body.
    pub body_timeout: Duration,
    /// For taking an answer, all of it.
    pub answer_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: connections(getrlimit(Resource::Nofile).current),
            header_timeout: Duration::from_secs(15),
            header_bytes: 16 * 1024,
            body_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(60),
        }
    }
}

/// Serves until `shutdown`, then lets requests that have begun end. The caller bounds that wait.
pub async fn serve<H, F>(
    listener: Listener,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let places = Places::new(limits.connections);
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    let with_peer = |peer| {
        let handler = handler.clone();
        move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            handler(request)
        }
    };
    let accept_all = async {
        loop {
            let accepted = match &listener {
                Listener::Tcp(listener) => match listener.accept().await {
                    Ok((stream, peer)) => {
                        // A failure costs latency only.
                        let _ = stream.set_nodelay(true);
                        let (handler, watcher) = (with_peer(Some(peer.ip())), graceful.watcher());
                        connection(stream, &limits, handler, watcher, places.take().await);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Listener::Unix(listener) => match listener.accept().await {
                    Ok((stream, _)) => {
                        let (handler, watcher) = (with_peer(None), graceful.watcher());
                        connection(stream, &limits, handler, watcher, places.take().await);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = accepted {
                pause_after(&error).await;
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        () = &mut shutdown => {}
    }
    drop(listener);
    graceful.shutdown().await;
}

/// A request's body, if it is small and comes in time; else what to answer.
pub async fn small_body(
    body: Incoming,
    most: usize,
    timeout: Duration,
) -> Result<Bytes, (StatusCode, &'static str)> {
    match tokio::time::timeout(timeout, Limited::new(body, most).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body broke off\n")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long\n")),
    }
}

/// An answer in words.
pub fn text(status: StatusCode, words: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(words.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    reply
}

fn connection<H, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    limits: &Limits,
    handler: H,
    watcher: Watcher,
    (place, must_leave): (Place, oneshot::Receiver<()>),
) where
    H: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    let stream = Impatient {
        stream,
        place,
        patience: limits.answer_timeout,
        over: None,
        drain: None,
    };
    let service = service_fn(move |request| {
        let reply = handler(request);
        async move { Ok::<Reply, std::convert::Infallible>(reply.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes.max(8 * 1024))
        .serve_connection(TokioIo::new(stream), service);
    let connection = watcher.watch(connection);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            // What a client breaks off is its own affair. Polled first: a request that has come is answered.
            _ = connection => {}
            _ = must_leave => {}
        }
    });
}

/// How many connections may be open where a process may have so many descriptors. The others are for the state and
/// its listeners, for reading the tree, and for what we send ourselves.
pub fn connections(descriptors: Option<u64>) -> usize {
    let half = spare(descriptors) / 2;
    half.clamp(1, MOST_CONNECTIONS)
}

/// Descriptors beside those that the daemon needs for itself and for the tree.
pub fn spare(descriptors: Option<u64>) -> usize {
    descriptors.map_or(usize::MAX, |descriptors| {
        usize::try_from(descriptors.saturating_sub(OWN)).unwrap_or(usize::MAX)
    })
}

/// A stream that fails if the other side is too slow to take what is written until the next flush. That is
/// an answer: hyper flushes when it has written all it has, and our answers are whole. Who takes of it keeps its
/// place.
struct Impatient<S> {
    stream: S,
    place: Place,
    patience: Duration,
    /// Runs from the first write that had to wait.
    over: Option<Pin<Box<Sleep>>>,
    /// Once we have said all, until what the client still sends is read: to close earlier would take back the answer.
    drain: Option<Drain>,
}

/// What may still be read, and until when.
struct Drain {
    bytes: usize,
    until: Pin<Box<Sleep>>,
}

impl<S> Impatient<S> {
    /// The outcome of a write, unless it has to wait and that has been too long already.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.place.renew();
            return written;
        }
        let patience = self.patience;
        let over = self
            .over
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(over.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.over = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let own = &mut *self;
        let drain = match &mut own.drain {
            Some(drain) => drain,
            drain @ None => {
                ready!(Pin::new(&mut own.stream).poll_shutdown(context))?;
                drain.insert(Drain {
                    bytes: DRAINED_BYTES,
                    until: Box::pin(tokio::time::sleep(DRAINED_FOR)),
                })
            }
        };
        let mut scratch = [0; 4_096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut own.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    drain.bytes = drain.bytes.saturating_sub(buffer.filled().len());
                    if drain.bytes == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                // The client has closed it too, one way or another.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return drain.until.as_mut().poll(context).map(Ok),
            }
        }
    }
}

/// A connection that was gone before it was accepted is nothing; without descriptors we must wait for some.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

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
        assert_eq!(connections(descriptors), want);
    }
}
