//! A client of brokers: sends notifications, one transaction each, with a receipt for each `SEND` and for the `COMMIT`
//! (F2).
//!
//! Each broker has one connection, which stays open between notifications. Transactions are pipelined on it: their
//! receipts are told apart by number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resourcesync::uri::Hub;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use websub::answer::Answer;
use websub::counts::DurationHistogram;

use crate::frame::Frame;
use crate::message::{BrokerNotification, resourcesync_message};
use crate::objects::atom_messages;
use crate::refusal::BrokerFailure;
use crate::session::Session;
use crate::settings::BrokerSettings;

/// Waits between attempts to reach a broker, or to hand its message over, in seconds.
pub const WAITS: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// Maximum transactions in flight on a connection (F7).
const IN_FLIGHT: usize = 8;

/// The brokers that notifications are sent to. Cheap to share behind an `Arc`.
#[derive(Debug, Default)]
pub struct Brokers {
    brokers: Mutex<HashMap<Hub, Arc<RunningBroker>>>,
}

/// One broker, with the task that has its connection.
#[derive(Debug)]
struct RunningBroker {
    settings: Arc<BrokerSettings>,
    requests: UnboundedSender<SendRequest>,
    /// Durations of submissions.
    durations: Mutex<DurationHistogram>,
}

/// A notification to be sent.
#[derive(Debug)]
struct SendRequest {
    /// The `SEND` frames, without transaction and receipt; none where only a connection is wanted.
    sends: Vec<Frame>,
    answer: oneshot::Sender<Result<(), BrokerFailure>>,
}

impl Brokers {
    /// Starts a task for each broker on `runtime`. They connect when there is something to send, or when asked to.
    pub fn new(settings: Vec<BrokerSettings>, runtime: &Handle) -> Brokers {
        let brokers = Brokers::default();
        brokers.reconfigure(settings, runtime);
        brokers
    }

    /// Replaces the brokers. One whose settings stay the same keeps its connection; of others, what is under way finishes
    /// on the connection that it began on.
    pub fn reconfigure(&self, settings: Vec<BrokerSettings>, runtime: &Handle) {
        let mut current = lock(&self.brokers);
        let mut before = std::mem::take(&mut *current);
        for settings in settings {
            let name = settings.name.clone();
            let broker = match before.remove(&name) {
                Some(broker) if *broker.settings == settings => broker,
                before => {
                    let durations = before.map(|broker| lock(&broker.durations).clone());
                    let settings = Arc::new(settings);
                    let (requests, received) = unbounded_channel();
                    runtime.spawn(run_task(Arc::clone(&settings), received));
                    Arc::new(RunningBroker {
                        settings,
                        requests,
                        durations: Mutex::new(durations.unwrap_or_default()),
                    })
                }
            };
            current.insert(name, broker);
        }
    }

    /// Sends one notification to a broker, and waits for all its receipts.
    pub async fn submit(&self, name: &Hub, notification: &BrokerNotification<'_>) -> Answer {
        let Some(broker) = lock(&self.brokers).get(name).cloned() else {
            return Answer::Failed(format!("{name} is not configured"));
        };
        let began = Instant::now();
        let frames = message_frames(notification, &broker.settings);
        let sent = broker.send_and_wait(frames).await;
        lock(&broker.durations).observe(began.elapsed());
        sent.map_or_else(BrokerFailure::into_answer, |()| Answer::Receipts)
    }

    /// Connects to a broker, unless there is a connection.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached, or refuses the connection.
    pub async fn connect(&self, name: &Hub) -> Result<(), BrokerFailure> {
        let Some(broker) = lock(&self.brokers).get(name).cloned() else {
            return Ok(());
        };
        broker.send_and_wait(Vec::new()).await
    }

    /// Returns the durations of the submissions to each broker.
    pub fn submit_durations(&self) -> BTreeMap<Hub, DurationHistogram> {
        let brokers = lock(&self.brokers);
        let durations = brokers
            .iter()
            .map(|(name, broker)| (name.clone(), lock(&broker.durations).clone()));
        durations.collect()
    }
}

/// Locks a mutex, whatever became of a thread that held it: no invariant spans a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunningBroker {
    async fn send_and_wait(&self, sends: Vec<Frame>) -> Result<(), BrokerFailure> {
        let (answer, answered) = oneshot::channel();
        // If the task has ended, it drops the request, and with it the sender of the answer.
        let _ = self.requests.send(SendRequest { sends, answer });
        let ended = |_| BrokerFailure::Failed("the daemon stops".to_owned());
        answered.await.map_err(ended)?
    }
}

/// Connects whenever there is something to send, until all senders are gone.
async fn run_task(settings: Arc<BrokerSettings>, mut requests: UnboundedReceiver<SendRequest>) {
    while let Some(first) = requests.recv().await {
        match Session::open(&settings, None).await {
            Ok(session) => {
                let connection = BrokerConnection::new(session, &settings);
                connection.run(first, &mut requests).await;
            }
            Err(error) => {
                // Notifications that arrived meanwhile would fail in the same way.
                let waiting = std::iter::from_fn(|| requests.try_recv().ok());
                for request in std::iter::once(first).chain(waiting) {
                    let _ = request.answer.send(Err(error.clone()));
                }
            }
        }
    }
}

/// An open connection with the transactions whose receipts are pending.
struct BrokerConnection<'a> {
    session: Session,
    settings: &'a BrokerSettings,
    /// In the order in which they were sent.
    pending: BTreeMap<u64, PendingTransaction>,
    /// Number of the next transaction.
    next: u64,
    /// The time since which the first pending transaction got no receipt, and nothing of it or before it was written.
    silent_since: Instant,
}

/// A transaction that was sent.
struct PendingTransaction {
    /// The pending receipts; the last one is that of the `COMMIT`.
    receipts: BTreeSet<usize>,
    answer: oneshot::Sender<Result<(), BrokerFailure>>,
}

impl<'a> BrokerConnection<'a> {
    fn new(session: Session, settings: &'a BrokerSettings) -> BrokerConnection<'a> {
        BrokerConnection {
            session,
            settings,
            pending: BTreeMap::new(),
            next: 1,
            silent_since: Instant::now(),
        }
    }

    /// Sends notifications until the connection fails, or until all senders are gone and everything was answered.
    async fn run(mut self, first: SendRequest, requests: &mut UnboundedReceiver<SendRequest>) {
        self.send(first);
        let mut is_open = true;
        let error = loop {
            if !is_open && self.pending.is_empty() {
                self.session.writer.finish(&Frame::new("DISCONNECT")).await;
                return;
            }
            let deadline = self.silent_since + self.settings.timeout;
            let has_room = self.pending.len() < IN_FLIGHT;
            tokio::select! {
                request = requests.recv(), if is_open && has_room => match request {
                    Some(request) => self.send(request),
                    None => is_open = false,
                },
                frame = self.session.reader.frame() => match frame {
                    Ok(frame) => if let Err(error) = self.received(&frame) {
                        break error;
                    },
                    Err(error) => break error,
                },
                Ok(()) = self.session.writer.written.changed() => {
                    let written = *self.session.writer.written.borrow();
                    // Each transaction is written at once, so that they are counted alike.
                    if self.pending.keys().next().is_some_and(|oldest| written <= *oldest) {
                        self.silent_since = Instant::now();
                    }
                },
                () = sleep_until(deadline), if !self.pending.is_empty() => break BrokerFailure::NoReceipt,
            }
        };
        for pending in self.pending.into_values() {
            let _ = pending.answer.send(Err(error.clone()));
        }
    }

    fn send(&mut self, request: SendRequest) {
        if request.sends.is_empty() {
            let _ = request.answer.send(Ok(()));
            return;
        }
        let number = self.next;
        self.next += 1;
        let transaction = number.to_string();
        let mut bytes = Frame::new("BEGIN")
            .with("transaction", &transaction)
            .encode();
        let commit = request.sends.len();
        for (position, send) in request.sends.into_iter().enumerate() {
            let send = send
                .with("transaction", &transaction)
                .with("receipt", receipt(number, position));
            bytes.extend_from_slice(&send.encode());
        }
        let frame = Frame::new("COMMIT")
            .with("transaction", &transaction)
            .with("receipt", receipt(number, commit));
        bytes.extend_from_slice(&frame.encode());
        self.session.writer.write(bytes);
        if self.pending.is_empty() {
            self.silent_since = Instant::now();
        }
        let pending = PendingTransaction {
            receipts: (0..=commit).collect(),
            answer: request.answer,
        };
        self.pending.insert(number, pending);
    }

    /// Handles a frame from the broker. Returns the error that ends the connection for the remaining transactions.
    fn received(&mut self, frame: &Frame) -> Result<(), BrokerFailure> {
        let id = frame.header("receipt-id").and_then(parse_receipt);
        let oldest = self.pending.keys().next().copied();
        match frame.command.as_str() {
            "RECEIPT" => {
                if let Some((number, position)) = id
                    && let Some(pending) = self.pending.get_mut(&number)
                {
                    // A receipt for a later one does not show that this one will get its own.
                    if pending.receipts.remove(&position) && oldest == Some(number) {
                        self.silent_since = Instant::now();
                    }
                    if pending.receipts.is_empty()
                        && let Some(pending) = self.pending.remove(&number)
                    {
                        let _ = pending.answer.send(Ok(()));
                    }
                }
                Ok(())
            }
            "ERROR" => {
                let error = BrokerFailure::from_frame(frame, &self.session.mask);
                // It may be about one of several. The others say nothing about it, and are sent again.
                let blamed = match id {
                    Some((number, _)) => self.pending.remove(&number),
                    None if self.pending.len() == 1 => self.pending.pop_first().map(|(_, one)| one),
                    None => None,
                };
                match blamed {
                    Some(pending) => {
                        let outcome = if is_duplicate(frame) {
                            Ok(())
                        } else {
                            Err(error)
                        };
                        let _ = pending.answer.send(outcome);
                        Err(BrokerFailure::Closed)
                    }
                    None => Err(BrokerFailure::Failed(error.to_string())),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Returns true if an `ERROR` says that the messages were taken before, in a transaction whose receipts were lost: Artemis
/// ends a transaction with a message whose id it knows. All of it was committed then.
fn is_duplicate(error: &Frame) -> bool {
    let says_so = |text: &str| text.contains("Duplicate message detected");
    error.header("message").is_some_and(says_so) || says_so(&String::from_utf8_lossy(&error.body))
}

fn receipt(number: u64, position: usize) -> String {
    format!("{number}-{position}")
}

fn parse_receipt(id: &str) -> Option<(u64, usize)> {
    let (number, position) = id.split_once('-')?;
    Some((number.parse().ok()?, position.parse().ok()?))
}

/// Returns the `SEND` frames of a notification, in the order in which they are sent, but for their transaction and receipts.
/// A header of a message counts before a configured one.
pub fn message_frames(
    notification: &BrokerNotification<'_>,
    settings: &BrokerSettings,
) -> Vec<Frame> {
    let form = settings.form.as_ref();
    let feeds = form.and_then(|form| atom_messages(notification, form));
    // A notification that yields no feeds was saved while the broker had other settings.
    let mut frames = feeds.unwrap_or_else(|| vec![resourcesync_message(notification)]);
    let destination = settings.destination_of(notification.source);
    for frame in &mut frames {
        let header = ("destination".to_owned(), destination.clone());
        frame.headers.insert(0, header);
        for header in &settings.headers {
            if frame.header(&header.name).is_none() {
                let value = header.value.reveal().to_owned();
                frame.headers.push((header.name.clone(), value));
            }
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::sleep;

    use super::*;
    use crate::frame::Decoder;

    /// The other end of a connection.
    struct Broker {
        stream: TcpStream,
        decoder: Decoder,
    }

    impl Broker {
        /// Accepts a connection, and answers its `CONNECT`.
        async fn accept(listener: TcpListener) -> Broker {
            let (stream, _) = listener.accept().await.unwrap();
            let decoder = Decoder::default();
            let mut broker = Broker { stream, decoder };
            broker.frame().await;
            let connected = Frame::new("CONNECTED").with("version", "1.2");
            broker.write(&connected).await;
            broker
        }

        async fn frame(&mut self) -> Frame {
            loop {
                if let Some(frame) = self.decoder.frame().unwrap() {
                    return frame;
                }
                let mut chunk = [0; 1024];
                let length = self.stream.read(&mut chunk).await.unwrap();
                assert!(length > 0, "the connection ended");
                self.decoder.push(&chunk[..length]);
            }
        }

        async fn write(&mut self, frame: &Frame) {
            self.stream.write_all(&frame.encode()).await.unwrap();
        }

        async fn receipt(&mut self, id: &str) {
            self.write(&Frame::new("RECEIPT").with("receipt-id", id))
                .await;
        }

        /// Reads until the `COMMIT` of a transaction. Returns the ids of its receipts.
        async fn transaction(&mut self) -> Vec<String> {
            let mut receipts = Vec::new();
            loop {
                let frame = self.frame().await;
                receipts.extend(frame.header("receipt").map(str::to_owned));
                if frame.command == "COMMIT" {
                    return receipts;
                }
            }
        }
    }

    /// Returns both ends of a connection with this timeout.
    async fn connected(timeout: Duration) -> (Session, BrokerSettings, Broker) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = BrokerSettings::on_port(listener.local_addr().unwrap().port());
        settings.timeout = timeout;
        let (session, broker) =
            tokio::join!(Session::open(&settings, None), Broker::accept(listener));
        (session.unwrap(), settings, broker)
    }

    /// Returns a request of so many messages, and its answer.
    fn request(
        messages: usize,
        body: Vec<u8>,
    ) -> (SendRequest, oneshot::Receiver<Result<(), BrokerFailure>>) {
        let (sender, answer) = oneshot::channel();
        let send = Frame {
            body,
            ..Frame::new("SEND")
        };
        let request = SendRequest {
            sends: vec![send; messages],
            answer: sender,
        };
        (request, answer)
    }

    #[tokio::test]
    async fn slow_receipts_of_the_oldest_transaction_are_awaited_and_silence_is_not() {
        let timeout = Duration::from_millis(1_500);
        let (session, settings, mut broker) = connected(timeout).await;
        let (first, answer) = request(6, Vec::new());
        let (second, failure) = request(6, Vec::new());
        let (requests, mut received) = unbounded_channel();
        requests.send(second).ok().unwrap();
        let later = requests;
        let broker = async move {
            let slow = broker.transaction().await;
            let mut silent = broker.transaction().await;
            let last = silent.pop().unwrap();
            for id in slow {
                sleep(timeout / 4).await;
                broker.receipt(&id).await;
            }
            // Neither heart-beats nor other frames are progress, nor is what is written after it.
            loop {
                broker.stream.write_all(b"\n").await.unwrap();
                broker.receipt(&last).await;
                later.send(request(1, Vec::new()).0).ok().unwrap();
                for id in broker.transaction().await {
                    broker.receipt(&id).await;
                }
                sleep(timeout / 4).await;
            }
        };
        let connection = BrokerConnection::new(session, &settings);
        tokio::select! {
            () = connection.run(first, &mut received) => {}
            () = broker => {}
            () = sleep(timeout * 20) => panic!("silence is awaited"),
        }
        assert_eq!(answer.await.unwrap(), Ok(()));
        assert_eq!(failure.await.unwrap(), Err(BrokerFailure::NoReceipt));
    }

    #[tokio::test]
    async fn a_broker_that_reads_slowly_is_awaited() {
        let (session, settings, mut broker) = connected(Duration::from_secs(5)).await;
        // What the kernel holds at the end is read in a tenth of that, and all of it takes longer.
        let (request, answer) = request(1, vec![b'a'; 48 << 20]);
        let (requests, mut received) = unbounded_channel();
        drop(requests);
        let broker = async move {
            let mut chunk = vec![0; 256 << 10];
            let mut ends = 0;
            while ends < 3 {
                let length = broker.stream.read(&mut chunk).await.unwrap();
                ends += chunk[..length].iter().filter(|byte| **byte == 0).count();
                sleep(Duration::from_millis(30)).await;
            }
            for id in ["1-0", "1-1"] {
                broker.receipt(id).await;
            }
            std::future::pending::<()>().await;
        };
        let connection = BrokerConnection::new(session, &settings);
        tokio::select! {
            () = connection.run(request, &mut received) => {}
            () = broker => {}
        }
        assert_eq!(answer.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn few_transactions_are_in_flight_on_a_connection() {
        let (session, settings, mut broker) = connected(Duration::from_secs(60)).await;
        let (requests, mut received) = unbounded_channel();
        for _ in 0..20 {
            requests.send(request(1, Vec::new()).0).ok().unwrap();
        }
        let first = received.recv().await.unwrap();
        let connection = BrokerConnection::new(session, &settings);
        tokio::select! {
            () = connection.run(first, &mut received) => panic!("the connection ended"),
            () = async { for _ in 0..8 { broker.transaction().await; } } => {}
        }
        assert_eq!(received.len(), 12);
    }
}
