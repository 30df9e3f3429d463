//! A message broker that can refuse, hang and die at any place of a transaction, over TCP or TLS.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use messaging::frame::{Decoder, Frame};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::DEADLINE;

/// The behaviour of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Take,
    /// Answers `CONNECT` with an `ERROR` of this message.
    RefuseLogin(&'static str),
    /// Answers each `SEND` with an `ERROR` of this message.
    RefuseMessage(&'static str),
    /// Takes everything, and sends no receipt.
    SendNoReceipts,
    /// Ends the connection at this place, once.
    DieAt(Place),
}

/// A place in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Begun,
    Sent,
    /// Before the transaction counts.
    Commit,
    /// After that, and before any receipt.
    Committed,
    /// After the receipts of the messages, and before that of the `COMMIT`.
    Confirmed,
}

#[derive(Default)]
struct State {
    manner: Option<Manner>,
    /// The frames that opened connections.
    connects: Vec<Frame>,
    /// What was committed, in order.
    messages: Vec<Frame>,
    /// True if a transaction with a message that was committed before is refused, as by Artemis.
    refuses_repeats: bool,
    /// Number of transactions that were.
    refused_repeats: usize,
    /// The positions of messages that a subscriber has acknowledged.
    acknowledged: BTreeSet<usize>,
    /// The selector of the last subscription.
    selector: Option<String>,
}

impl State {
    /// Returns true, once, if the broker dies at this place.
    fn dies(&mut self, place: Place) -> bool {
        let dies = |manner: &mut Manner| *manner == Manner::DieAt(place);
        self.manner.take_if(dies).is_some()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A broker on loopback.
pub struct FakeBroker {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl FakeBroker {
    pub fn start() -> FakeBroker {
        FakeBroker::start_with(None)
    }

    /// Starts a broker that speaks TLS only.
    pub fn start_with(tls: Option<Arc<ServerConfig>>) -> FakeBroker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, tls) = (Arc::clone(&served), tls.clone());
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_millis(5)))
                    .unwrap();
                std::thread::spawn(move || match tls {
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        serve(StreamOwned::new(connection, stream), &shared);
                    }
                    None => serve(stream, &shared),
                });
            }
        });
        FakeBroker { address, shared }
    }

    pub fn behave(&self, manner: Manner) {
        self.shared.state.lock().unwrap().manner = Some(manner);
    }

    /// Has a message for subscribers that another program sent.
    pub fn offer(&self, message: Frame) {
        self.shared.state.lock().unwrap().messages.push(message);
    }

    /// From now on refuses transactions with messages that it has, as Artemis does.
    pub fn refuse_repeats(&self) {
        self.shared.state.lock().unwrap().refuses_repeats = true;
    }

    pub fn refused_repeats(&self) -> usize {
        self.shared.state.lock().unwrap().refused_repeats
    }

    /// Waits until so many messages were committed, and returns all.
    #[track_caller]
    pub fn messages(&self, count: usize) -> Vec<Frame> {
        self.await_state(|state| state.messages.len() >= count);
        self.shared.state.lock().unwrap().messages.clone()
    }

    /// Waits until a subscriber has acknowledged so many messages.
    #[track_caller]
    pub fn await_acknowledged(&self, count: usize) {
        self.await_state(|state| state.acknowledged.len() >= count);
    }

    /// Returns the selector of the last subscription.
    pub fn selector(&self) -> Option<String> {
        self.shared.state.lock().unwrap().selector.clone()
    }

    pub fn acknowledged(&self) -> usize {
        self.shared.state.lock().unwrap().acknowledged.len()
    }

    /// Waits until so many connections were opened, and returns the frames that did.
    #[track_caller]
    pub fn connects(&self, count: usize) -> Vec<Frame> {
        self.await_state(|state| state.connects.len() >= count);
        self.shared.state.lock().unwrap().connects.clone()
    }

    #[track_caller]
    fn await_state(&self, is_wanted: impl Fn(&State) -> bool) {
        let state = self.shared.state.lock().unwrap();
        let wait = self
            .shared
            .changed
            .wait_timeout_while(state, DEADLINE, |state| !is_wanted(state));
        let (state, waited) = wait.unwrap();
        assert!(
            !waited.timed_out(),
            "only {} messages came",
            state.messages.len()
        );
    }
}

/// A connection.
struct Connection<S> {
    stream: S,
    decoder: Decoder,
    transactions: BTreeMap<String, Vec<Frame>>,
    /// The id of the subscription, if there is one, and how many messages it was sent.
    subscription: Option<(String, usize)>,
}

fn serve<S: Read + Write>(stream: S, shared: &Shared) {
    let mut connection = Connection {
        stream,
        decoder: Decoder::default(),
        transactions: BTreeMap::new(),
        subscription: None,
    };
    let mut beat = Instant::now();
    let mut chunk = [0; 64 << 10];
    loop {
        while let Some(frame) = connection.decoder.frame().unwrap() {
            if !connection.take(&frame, shared) {
                return;
            }
        }
        connection.pass_on(shared);
        if beat.elapsed() > Duration::from_secs(2) && !connection.write(b"\n") {
            return;
        }
        match connection.stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => connection.decoder.push(&chunk[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
        if beat.elapsed() > Duration::from_secs(2) {
            beat = Instant::now();
        }
    }
}

impl<S: Read + Write> Connection<S> {
    /// Takes a frame. Returns false if the connection ends.
    fn take(&mut self, frame: &Frame, shared: &Shared) -> bool {
        let mut state = shared.state.lock().unwrap();
        let manner = state.manner.unwrap_or(Manner::Take);
        let transaction = frame.header("transaction").unwrap_or_default().to_owned();
        let id = frame.header("id").unwrap_or_default();
        match frame.command.as_str() {
            "CONNECT" => {
                state.connects.push(frame.clone());
                shared.changed.notify_all();
                if let Manner::RefuseLogin(message) = manner {
                    self.send(&Frame::new("ERROR").with("message", message));
                    return false;
                }
                let connected = Frame::new("CONNECTED")
                    .with("version", "1.2")
                    .with("server", "fake/1")
                    .with("heart-beat", "10000,10000");
                return self.send(&connected);
            }
            "BEGIN" => {
                self.transactions.insert(transaction, Vec::new());
                if state.dies(Place::Begun) {
                    return false;
                }
            }
            "SEND" => {
                if let Manner::RefuseMessage(message) = manner {
                    let error = Frame::new("ERROR").with("message", message);
                    let error = error.with("receipt-id", frame.header("receipt").unwrap());
                    self.send(&error);
                    return false;
                }
                self.transactions
                    .get_mut(&transaction)
                    .unwrap()
                    .push(frame.clone());
                if state.dies(Place::Sent) {
                    return false;
                }
            }
            "COMMIT" => {
                let messages = self.transactions.remove(&transaction).unwrap();
                if state.dies(Place::Commit) {
                    return false;
                }
                let id = |message: &Frame| message.header("_AMQ_DUPL_ID").map(str::to_owned);
                let is_known = |message: &Frame| {
                    let mut known = state.messages.iter();
                    id(message).is_some() && known.any(|one| id(one) == id(message))
                };
                if state.refuses_repeats && messages.iter().any(is_known) {
                    state.refused_repeats += 1;
                    let reason =
                        "AMQ229102: Duplicate message detected - message will not be routed";
                    let error = Frame::new("ERROR").with("message", reason);
                    self.send(&error.with("receipt-id", frame.header("receipt").unwrap()));
                    return false;
                }
                let receipts: Vec<String> = messages
                    .iter()
                    .chain([frame])
                    .map(|frame| frame.header("receipt").unwrap().to_owned())
                    .collect();
                state.messages.extend(messages);
                shared.changed.notify_all();
                if state.dies(Place::Committed) {
                    return false;
                }
                let (last, others) = receipts.split_last().unwrap();
                if manner == Manner::SendNoReceipts {
                    return true;
                }
                for receipt in others {
                    self.send(&Frame::new("RECEIPT").with("receipt-id", receipt));
                }
                if state.dies(Place::Confirmed) {
                    return false;
                }
                return self.send(&Frame::new("RECEIPT").with("receipt-id", last));
            }
            "SUBSCRIBE" => {
                self.subscription = Some((id.to_owned(), 0));
                state.selector = frame.header("selector").map(str::to_owned);
                let receipt = frame.header("receipt").unwrap();
                return self.send(&Frame::new("RECEIPT").with("receipt-id", receipt));
            }
            "ACK" => {
                state.acknowledged.insert(id.parse().unwrap());
                shared.changed.notify_all();
            }
            _ => return false,
        }
        true
    }

    /// Sends a subscriber what it has not acknowledged.
    fn pass_on(&mut self, shared: &Shared) {
        let Some((id, sent)) = self.subscription.clone() else {
            return;
        };
        let state = shared.state.lock().unwrap();
        let all = state.messages.iter().enumerate().skip(sent);
        let owed: Vec<(usize, Frame)> = all
            .filter(|(position, _)| !state.acknowledged.contains(position))
            .map(|(position, message)| (position, message.clone()))
            .collect();
        self.subscription = Some((id.clone(), state.messages.len()));
        drop(state);
        for (position, mut message) in owed {
            message.command = "MESSAGE".to_owned();
            let of_sender = ["transaction", "receipt", "persistent", "amq-msg-type"];
            message
                .headers
                .retain(|(name, _)| !of_sender.contains(&name.as_str()));
            let message = message
                .with("message-id", position.to_string())
                .with("subscription", &id)
                .with("ack", position.to_string());
            self.send(&message);
        }
    }

    fn send(&mut self, frame: &Frame) -> bool {
        self.write(&frame.encode())
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        let written = self.stream.write_all(bytes);
        written.and_then(|()| self.stream.flush()).is_ok()
    }
}
