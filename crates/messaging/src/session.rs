//! One connection to a broker: `CONNECT`, heart-beats both ways, reading and writing frames; and messages of destinations,
//! each acknowledged by itself, once it was handed over.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use websub::secret::Mask;

use crate::frame::{Decoder, Frame};
use crate::refusal::BrokerFailure;
use crate::settings::{BrokerSettings, connector};

/// Bytes that are read or written at once.
const CHUNK: usize = 16 << 10;
/// Heart-beats that may be missing (F7).
const MISSING_BEATS: u32 = 2;

/// An open connection.
#[derive(Debug)]
pub struct Session {
    /// Frames of the broker.
    pub reader: FrameReader,
    /// Frames to the broker.
    pub writer: FrameWriter,
    /// Name and version of the broker, if it states them.
    pub server: Option<String>,
    /// Masks secrets in texts of the broker.
    pub mask: Mask,
}

/// A reader of frames, which notices a silent broker.
#[derive(Debug)]
pub struct FrameReader {
    half: ReadHalf<Box<dyn Stream>>,
    /// The socket below the stream.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux can acknowledge at once")
    )]
    socket: Option<OwnedFd>,
    decoder: Decoder,
    /// The silence that ends the connection; nothing if the broker sends no heart-beats.
    patience: Option<Duration>,
}

/// A queue of frames to the task that writes them. The task ends with this.
#[derive(Debug)]
pub struct FrameWriter {
    frames: UnboundedSender<Vec<u8>>,
    /// Which of the queued bytes a part was written of last, counted from 1.
    pub written: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

/// TCP, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin + Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + Debug> Stream for T {}

impl Session {
    /// Connects, within the timeout of the settings; as a durable subscriber of this name, if one is given.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached, or refuses the connection.
    pub async fn open(
        settings: &BrokerSettings,
        durable: Option<&str>,
    ) -> Result<Session, BrokerFailure> {
        let deadline = Instant::now() + settings.timeout;
        let address = (settings.address.host.as_str(), settings.address.port);
        let addresses = timeout_at(deadline, tokio::net::lookup_host(address))
            .await
            .map_err(|_| BrokerFailure::Timeout)?
            .map_err(|error| BrokerFailure::Resolve(error.to_string()))?;
        first_connected(&addresses.collect::<Vec<_>>(), deadline, settings, durable).await
    }
}

/// Connects to the first address that answers. Each gets an equal share of the time that is left, so that one that drops
/// packets leaves time for the next (F7). A refusal is an answer.
async fn first_connected(
    addresses: &[SocketAddr],
    deadline: Instant,
    settings: &BrokerSettings,
    durable: Option<&str>,
) -> Result<Session, BrokerFailure> {
    let mut failure = BrokerFailure::Resolve("it has no address".to_owned());
    for (left, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        failure = match timeout(share, connected(*address, settings, durable)).await {
            Ok(Err(error @ (BrokerFailure::Refused { .. } | BrokerFailure::Version(_)))) => {
                return Err(error);
            }
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(error)) => error,
            Err(_) => BrokerFailure::Timeout,
        };
    }
    Err(failure)
}

async fn connected(
    address: SocketAddr,
    settings: &BrokerSettings,
    durable: Option<&str>,
) -> Result<Session, BrokerFailure> {
    let (stream, socket) = stream(address, settings).await?;
    let (reading, mut writing) = tokio::io::split(stream);
    let mut reader = FrameReader {
        half: reading,
        socket,
        decoder: Decoder::default(),
        patience: None,
    };
    let beat = settings.heart_beat.as_millis();
    let mut connect = Frame::new("CONNECT")
        .with("accept-version", "1.2")
        .with("host", &settings.vhost)
        .with("heart-beat", format!("{beat},{beat}"));
    if let Some((username, password)) = &settings.login {
        connect = connect
            .with("login", username)
            .with("passcode", password.reveal());
    }
    if let Some(name) = durable {
        connect = connect.with("client-id", name);
    }
    writing.write_all(&connect.encode()).await?;
    writing.flush().await?;
    let mask = settings.secret_mask();
    let connected = reader.frame().await?;
    match connected.command.as_str() {
        "CONNECTED" => {}
        "ERROR" => return Err(BrokerFailure::from_frame(&connected, &mask)),
        other => return Err(BrokerFailure::Failed(format!("{other} before CONNECTED"))),
    }
    let version = connected.header("version").unwrap_or("1.0");
    if version != "1.2" {
        return Err(BrokerFailure::Version(version.to_owned()));
    }
    let (frames, received) = unbounded_channel();
    let (progress, written) = watch::channel(0);
    let (theirs, ours) = heart_beat_times(connected.header("heart-beat"), settings.heart_beat);
    reader.patience = theirs.map(|between| between * MISSING_BEATS);
    Ok(Session {
        reader,
        writer: FrameWriter {
            frames,
            written,
            task: tokio::spawn(write_frames(writing, received, ours, progress)),
        },
        server: connected.header("server").map(str::to_owned),
        mask,
    })
}

async fn stream(
    address: SocketAddr,
    settings: &BrokerSettings,
) -> Result<(Box<dyn Stream>, Option<OwnedFd>), BrokerFailure> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| BrokerFailure::Connect(error.to_string()))?;
    // Each receipt is awaited, so delaying a write to combine it with more data gains nothing.
    let _ = stream.set_nodelay(true);
    let socket = stream.as_fd().try_clone_to_owned().ok();
    if !settings.address.is_tls {
        return Ok((Box::new(stream), socket));
    }
    let connector = connector(settings).map_err(BrokerFailure::Tls)?;
    let name = ServerName::try_from(settings.address.host.clone())
        .map_err(|error| BrokerFailure::Tls(error.to_string()))?;
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| BrokerFailure::Tls(error.to_string()))?;
    Ok((Box::new(stream), socket))
}

/// Returns the times between heart-beats of the broker and of ours, from its header and ours.
fn heart_beat_times(said: Option<&str>, offered: Duration) -> (Option<Duration>, Option<Duration>) {
    let (sends, wants) = said
        .and_then(|said| said.split_once(','))
        .unwrap_or_default();
    let agreed = |millis: &str| {
        let millis: u64 = millis.trim().parse().unwrap_or(0);
        (millis > 0).then(|| Duration::from_millis(millis).max(offered))
    };
    (agreed(sends), agreed(wants))
}

impl FrameReader {
    /// Returns the next frame. Safe to be cancelled.
    ///
    /// # Errors
    ///
    /// If the connection ends, if the received bytes are no frame, or if the broker is silent.
    pub async fn frame(&mut self) -> Result<Frame, BrokerFailure> {
        loop {
            if let Some(frame) = self.decoder.frame()? {
                return Ok(frame);
            }
            // ActiveMQ sends the receipt of a `COMMIT` only when that of the `SEND` before it is acknowledged, which the
            // system would do 40 ms later. It is only a hint.
            #[cfg(target_os = "linux")]
            if let Some(socket) = &self.socket {
                let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
            }
            let mut chunk = [0; CHUNK];
            let read = self.half.read(&mut chunk);
            // Without heart-beats, it may be silent for as long as the program runs.
            let read = timeout(self.patience.unwrap_or(Duration::MAX), read).await;
            match read.map_err(|_| BrokerFailure::Silent)?? {
                0 => return Err(BrokerFailure::Closed),
                length => self.decoder.push(&chunk[..length]),
            }
        }
    }
}

impl FrameWriter {
    /// Has bytes of frames written. If the connection has failed, the reader reports it.
    pub fn write(&self, frames: Vec<u8>) {
        let _ = self.frames.send(frames);
    }

    /// Writes a last frame, and waits until everything is written.
    pub async fn finish(mut self, last: &Frame) {
        self.write(last.encode());
        // The task ends once it has written all.
        let (closed, _) = unbounded_channel();
        self.frames = closed;
        let _ = (&mut self.task).await;
    }
}

impl Drop for FrameWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Writes queued frames, and a heart-beat in time while there are none.
async fn write_frames(
    mut half: WriteHalf<Box<dyn Stream>>,
    mut frames: UnboundedReceiver<Vec<u8>>,
    beats: Option<Duration>,
    progress: watch::Sender<u64>,
) {
    let mut number = 0;
    'connection: loop {
        // Halfway, so that none is late.
        let beat = sleep(beats.map_or(Duration::MAX, |between| between / 2));
        let (bytes, is_beat) = tokio::select! {
            frame = frames.recv() => match frame {
                Some(bytes) => {
                    number += 1;
                    (bytes, false)
                }
                None => break,
            },
            () = beat => (b"\n".to_vec(), true),
        };
        for part in bytes.chunks(CHUNK) {
            if half.write_all(part).await.is_err() || half.flush().await.is_err() {
                break 'connection;
            }
            if !is_beat {
                progress.send_replace(number);
            }
        }
    }
    let _ = half.shutdown().await;
}

/// The selection of messages to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSelection {
    /// At least one.
    pub destinations: Vec<String>,
    /// A JMS selector over the properties of messages, where the broker has selectors.
    pub selector: Option<String>,
    /// The name of a durable subscription: the broker keeps messages for it while nobody reads them.
    pub durable: Option<String>,
    /// True if damaged messages are left at the broker.
    pub leaves_damaged: bool,
}

/// Subscriptions on a connection of their own.
#[derive(Debug)]
pub struct MessageReceiver {
    session: Session,
    /// Messages that arrived and were not returned yet, such as those before the receipts of all subscriptions.
    first: VecDeque<Frame>,
    leaves_damaged: bool,
}

impl MessageReceiver {
    /// Connects and subscribes.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached, or refuses the connection or a subscription.
    pub async fn open(
        settings: &BrokerSettings,
        wanted: &MessageSelection,
    ) -> Result<MessageReceiver, BrokerFailure> {
        let session = Session::open(settings, wanted.durable.as_deref()).await?;
        let mut subscription = MessageReceiver {
            session,
            first: VecDeque::new(),
            leaves_damaged: wanted.leaves_damaged,
        };
        let ids = wanted.subscription_ids();
        for (id, destination) in ids.iter().zip(&wanted.destinations) {
            let subscribe = wanted.subscribe_frame(id, destination).encode();
            subscription.session.writer.write(subscribe);
        }
        let mut awaited: BTreeSet<String> = ids.into_iter().collect();
        let subscribed = async {
            while !awaited.is_empty() {
                if let Some(id) = subscription.receive_frame().await? {
                    awaited.remove(&id);
                }
            }
            Ok(subscription)
        };
        let subscribed = timeout(settings.timeout, subscribed).await;
        subscribed.map_err(|_| BrokerFailure::NoReceipt)?
    }

    /// Returns the next message. Safe to be cancelled.
    ///
    /// # Errors
    ///
    /// If the connection ends.
    pub async fn message(&mut self) -> Result<Frame, BrokerFailure> {
        loop {
            if let Some(first) = self.first.pop_front() {
                return Ok(first);
            }
            self.receive_frame().await?;
        }
    }

    /// Reads a frame, and keeps it if it is a message. Returns the id of a receipt. Safe to be cancelled.
    async fn receive_frame(&mut self) -> Result<Option<String>, BrokerFailure> {
        let frame = self.session.reader.frame().await?;
        match frame.command.as_str() {
            "RECEIPT" => return Ok(frame.header("receipt-id").map(str::to_owned)),
            "MESSAGE" => self.first.push_back(frame),
            "ERROR" => return Err(BrokerFailure::from_frame(&frame, &self.session.mask)),
            _ => {}
        }
        Ok(None)
    }

    /// Tells the broker that a message was handed over, or that it is damaged, which another attempt does not change.
    pub fn acknowledge(&self, message: &Frame) {
        if message.damage.is_some() && self.leaves_damaged {
            return;
        }
        if let Some(id) = message.header("ack") {
            let ack = Frame::new("ACK").with("id", id);
            self.session.writer.write(ack.encode());
        }
    }

    /// Ends the connection, once all acknowledgements are written.
    pub async fn close(self) {
        self.session.writer.finish(&Frame::new("DISCONNECT")).await;
    }
}

impl MessageSelection {
    /// Returns the ids of the subscriptions, which depend on name and destination alone: a durable subscription is known by
    /// its id.
    fn subscription_ids(&self) -> Vec<String> {
        let name = self.durable.as_deref().unwrap_or("rsnotify");
        let destinations = self.destinations.iter();
        let ids = destinations.map(|destination| format!("{name} {destination}"));
        ids.collect()
    }

    fn subscribe_frame(&self, id: &str, destination: &str) -> Frame {
        let mut frame = Frame::new("SUBSCRIBE")
            .with("id", id)
            .with("destination", destination)
            .with("ack", "client-individual")
            .with("receipt", id);
        if let Some(selector) = &self.selector {
            frame = frame.with("selector", selector);
        }
        if self.durable.is_some() {
            // As ActiveMQ, Artemis and RabbitMQ want it; each ignores what the others do.
            frame = frame
                .with("activemq.subscriptionName", id)
                .with("durable-subscription-name", id)
                .with("durable", "true")
                .with("auto-delete", "false");
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::net::TcpListener;

    use super::*;

    /// Longest wait for an event.
    const DEADLINE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn heart_beats_go_both_ways_and_two_missing_ones_end_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = BrokerSettings::on_port(listener.local_addr().unwrap().port());
        settings.heart_beat = Duration::from_millis(50);
        let broker = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            while stream.read_u8().await.unwrap() != 0 {}
            let connected = Frame::new("CONNECTED")
                .with("version", "1.2")
                .with("heart-beat", "50,50");
            stream.write_all(&connected.encode()).await.unwrap();
            let beat = stream.read_u8().await.unwrap();
            (beat, stream)
        });
        let mut session = Session::open(&settings, None).await.unwrap();
        let silent = timeout(DEADLINE, session.reader.frame()).await.unwrap();
        assert_eq!(silent, Err(BrokerFailure::Silent));
        let (beat, _open) = timeout(DEADLINE, broker).await.unwrap().unwrap();
        assert_eq!(beat, b'\n');
    }

    #[tokio::test]
    async fn each_address_of_a_broker_gets_a_share_of_the_time() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.local_addr(), broker.local_addr()].map(Result::unwrap);
        let answering = tokio::spawn(async move {
            let (mut stream, _) = broker.accept().await.unwrap();
            while stream.read_u8().await.unwrap() != 0 {}
            let connected = Frame::new("CONNECTED").with("version", "1.2");
            stream.write_all(&connected.encode()).await.unwrap();
            stream
        });
        let deadline = Instant::now() + Duration::from_secs(4);
        let settings = BrokerSettings::on_port(addresses[1].port());
        let opened = first_connected(&addresses, deadline, &settings, None).await;
        assert!(opened.is_ok() && Instant::now() < deadline, "{opened:?}");
        drop(answering);
    }

    #[rstest]
    #[case("CONNECTED\nversion:1.1\n\n\0", "it speaks STOMP 1.1, and not 1.2")]
    #[case("ERROR\nmessage:no such user\n\n\0", "no such user")]
    #[case("HTTP/1.1 400 Bad Request\r\n\r\n", "it does not answer in STOMP 1.2")]
    #[case("", "it ended the connection")]
    #[tokio::test]
    async fn what_answers_otherwise_is_told(#[case] answer: &'static str, #[case] want: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = BrokerSettings::on_port(listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            while stream.read_u8().await.unwrap() != 0 {}
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let error = Session::open(&settings, None)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(want), "{error}");
    }

    #[rstest]
    #[case(None, None, None)]
    #[case(Some("0,0"), None, None)]
    #[case(Some("1000,30000"), Some(10), Some(30))]
    #[case(Some("20000, 0"), Some(20), None)]
    #[case(Some("nonsense"), None, None)]
    fn the_slower_side_decides_about_heart_beats(
        #[case] said: Option<&str>,
        #[case] theirs: Option<u64>,
        #[case] ours: Option<u64>,
    ) {
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let agreed = heart_beat_times(said, Duration::from_secs(10));
        assert_eq!(agreed, (seconds(theirs), seconds(ours)));
    }

    #[test]
    fn a_durable_subscription_has_the_same_id_each_time() {
        let mut wanted = MessageSelection {
            destinations: vec!["/topic/a".to_owned()],
            selector: Some("kind = 'change'".to_owned()),
            durable: Some("archive".to_owned()),
            leaves_damaged: false,
        };
        let frame = wanted.subscribe_frame(&wanted.subscription_ids()[0], "/topic/a");
        for (name, value) in [
            ("id", "archive /topic/a"),
            ("activemq.subscriptionName", "archive /topic/a"),
            ("ack", "client-individual"),
            ("selector", "kind = 'change'"),
        ] {
            assert_eq!(frame.header(name), Some(value));
        }
        wanted.destinations.push("/topic/b".to_owned());
        assert_eq!(
            wanted.subscription_ids(),
            ["archive /topic/a", "archive /topic/b"]
        );
    }
}
