//! The control protocol between commands and a running daemon: one JSON object per line, over a Unix socket in the state
//! directory.
//!
//! A connection carries one request and one reply. Only users who may write the state may connect. Slow clients delay nothing.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use websub::hub::subscriptions::view::{SubscriptionList, SubscriptionView};

use crate::report::Versioned;
use crate::report::outbox::{AccountName, AccountView};
use crate::report::status::{AcceptableDeletions, ChannelView, Status};

/// A request of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Accept the missing documents of a source as deleted (R15).
    Accept { source: String },
    /// List the missing documents that could be accepted, by directory.
    Missing { source: String },
    /// The daemon status.
    Status,
    /// The state of each hub on each channel.
    Outbox,
    /// Everything due to one hub on one channel.
    Show {
        account: AccountName,
        /// Include the payload of the notification in flight.
        payload: bool,
    },
    /// Retry now: one hub on one channel, or all.
    Retry { only: Option<AccountName> },
    /// Count everything due to a hub on a channel as told (R23).
    Drop { account: AccountName },
    /// An action on the embedded hub's subscriptions.
    Subscriptions(SubscriptionsAction),
    /// The URI that the public listener is reached as.
    PublicUrl,
    /// Put the configuration as it is now into effect, or keep the previous one.
    Reload,
}

/// An action on subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum SubscriptionsAction {
    /// List all.
    List,
    /// Show one.
    Show(SubscriptionName),
    /// End one and notify its subscriber.
    Remove(SubscriptionName),
}

/// The name of a subscription in commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionName {
    /// The digest of its callback, as the log and the list show it
    #[arg(value_name = "CALLBACK_DIGEST")]
    pub callback: String,

    /// The topic, if that callback subscribes to several
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
}

/// The reply to a request, sent after its changes are saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlReply {
    /// Numbers of documents and of resources accepted as deleted.
    Accepted {
        source: String,
        documents: usize,
        #[serde(default, skip_serializing_if = "is_zero")]
        resources: usize,
    },
    Missing(AcceptableDeletions),
    Status(Box<Status>),
    Outbox(Vec<ChannelView>),
    Account(Box<AccountView>),
    /// Number of notifications retried.
    Retried {
        notifications: usize,
    },
    /// Number of changes that count as told.
    Dropped {
        changes: usize,
    },
    Subscriptions(SubscriptionList),
    Subscription(Box<SubscriptionView>),
    /// The subscription that was ended.
    Removed(Box<SubscriptionView>),
    /// The URI that the public listener is reached as.
    PublicUrl(String),
    /// What the reloaded configuration changes, in words.
    Reloaded {
        changes: String,
    },
    Error(String),
}

impl ControlRequest {
    /// Returns true if it is executed by a step of the engine.
    pub fn is_action(&self) -> bool {
        use ControlRequest::{Accept, Drop, Retry};
        matches!(self, Accept { .. } | Retry { .. } | Drop { .. })
    }

    /// Returns true if it changes nothing.
    pub fn is_query(&self) -> bool {
        use ControlRequest::{Reload, Subscriptions};
        let is_change = matches!(self, Reload | Subscriptions(SubscriptionsAction::Remove(_)));
        !is_change && !self.is_action()
    }
}

impl ControlReply {
    /// Returns true if it reports a change.
    pub fn is_change(&self) -> bool {
        use ControlReply::{Accepted, Dropped, Removed, Retried};
        matches!(
            self,
            Accepted { .. } | Retried { .. } | Dropped { .. } | Removed(_)
        )
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The protocol version in each request and reply.
const VERSION: u64 = 1;
const SOCKET: &str = "control.sock";
/// The maximum length of a socket address that all known systems accept.
const MAX_ADDRESS_BYTES: usize = 100;

fn to_line<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let version = VERSION;
    let mut line = serde_json::to_vec(&Versioned { version, message })?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a message, or returns what is wrong with it.
fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    let malformed = |error: serde_json::Error| format!("malformed message: {error}");
    let mut message: Map<String, Value> = serde_json::from_slice(line).map_err(malformed)?;
    let version = message.remove("version").unwrap_or_default();
    if version != VERSION {
        return Err(format!(
            "unsupported protocol version {version}; this is version {VERSION}"
        ));
    }
    serde_json::from_value(Value::Object(message)).map_err(malformed)
}

/// Calls a function with a path of the socket that is short enough, on Linux however long the directory's path is.
fn with_short_path<T>(directory: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = directory.join(SOCKET);
    if path.as_os_str().len() <= MAX_ADDRESS_BYTES || !cfg!(target_os = "linux") {
        return act(&path);
    }
    let opened = File::open(directory)?;
    let mut path = PathBuf::from("/proc/self/fd");
    path.push(opened.as_raw_fd().to_string());
    act(&path.join(SOCKET))
}

/// The timeout of a reply. The daemon replies between two steps of its loop; one that just started first loads its state.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a reply. A thousand channels with two hubs each take 18 MiB if all their texts have full length.
const MAX_REPLY_BYTES: u64 = 128 << 20;

/// An error without a reply.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "another rsnotify uses the state directory but does not listen at {path}: it may be starting or stopping; \
         retry in a moment"
    )]
    NotListening { path: PathBuf },
    #[error("cannot connect to the daemon at {path}")]
    Connect { path: PathBuf, source: io::Error },
    #[error(
        "lost the connection to the daemon at {path}; its log shows if the command was executed"
    )]
    Talk { path: PathBuf, source: io::Error },
    #[error("the daemon stopped before it replied; retry")]
    Ended,
    #[error("this version does not understand the reply of the daemon: {0}")]
    Foreign(String),
}

/// Sends a request to the daemon that uses `state_dir`.
pub fn ask(state_dir: &Path, request: &ControlRequest) -> Result<ControlReply, ClientError> {
    let path = state_dir.join(SOCKET);
    let stream = match with_short_path(state_dir, |path| net::UnixStream::connect(path)) {
        Ok(stream) => stream,
        Err(source) => {
            return Err(match source.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    ClientError::NotListening { path }
                }
                _ => ClientError::Connect { path, source },
            });
        }
    };
    let line = exchange(stream, request).map_err(|source| ClientError::Talk { path, source })?;
    if !line.ends_with(b"\n") {
        return Err(ClientError::Ended);
    }
    from_line(&line).map_err(ClientError::Foreign)
}

fn exchange(mut stream: net::UnixStream, request: &ControlRequest) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(&to_line(request)?)?;
    let mut line = Vec::new();
    io::BufReader::new(stream.take(MAX_REPLY_BYTES)).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// The private directory of the socket until it has its mode.
const PRIVATE: &str = ".control";
/// The maximum size of a request.
const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// Maximum connections; others wait.
const CONNECTIONS: usize = 32;
/// The timeout for receiving a request, and for sending a reply: programs send one line at once.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout for the loop's reply.
const LOOP_TIMEOUT: Duration = Duration::from_secs(50);

/// The file of a Unix socket, removed when this is dropped. That of the control socket is dropped before the lock of the state
/// directory, so that it is never the next daemon's.
#[derive(Debug)]
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If this fails, the next start replaces it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Binds the socket. The caller holds the lock of the state directory, so an existing socket is left over from a process that
/// died. The new one gets its mode in a private directory before it is renamed.
pub fn bind(state_dir: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let private = state_dir.join(PRIVATE);
    match fs::remove_dir_all(&private) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(&private)?,
    }
    let listener = with_short_path(&private, |path| UnixListener::bind(path))?;
    let path = state_dir.join(SOCKET);
    fs::set_permissions(private.join(SOCKET), Permissions::from_mode(0o600))?;
    fs::rename(private.join(SOCKET), &path)?;
    fs::remove_dir(&private)?;
    Ok((listener, SocketFile(path)))
}

/// Passes each request on with a sender for its reply, until `shutdown`.
pub async fn serve(
    listener: UnixListener,
    ask: impl Fn(ControlRequest, oneshot::Sender<ControlReply>) + Clone + Send + Sync + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let accept = async {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let ask = ask.clone();
                    tokio::spawn(async move {
                        serve_client(stream, ask).await;
                        drop(slot);
                    });
                }
                // Out of descriptors, for example, which passes.
                Err(_) => sleep(TIMEOUT).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = shutdown => {}
    }
}

async fn serve_client(
    mut stream: UnixStream,
    ask: impl Fn(ControlRequest, oneshot::Sender<ControlReply>),
) {
    let answer = match timeout(TIMEOUT, read_request(&mut stream)).await {
        Ok(Ok(Some(request))) => {
            let (sender, answer) = oneshot::channel();
            ask(request, sender);
            match timeout(LOOP_TIMEOUT, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => ControlReply::Error("rsnotify is stopping; retry".to_owned()),
                Err(_) => ControlReply::Error(
                    "rsnotify is busy; its log shows if the command was executed".to_owned(),
                ),
            }
        }
        Ok(Ok(None)) => return,
        Ok(Err(refusal)) => ControlReply::Error(refusal),
        Err(_) => ControlReply::Error(format!("no request received within {TIMEOUT:?}")),
    };
    if let Ok(line) = to_line(&answer) {
        // The client may have gone, or may not read.
        let _ = timeout(TIMEOUT, stream.write_all(&line)).await;
    }
}

/// Reads the request, if the client sends one.
async fn read_request(stream: &mut UnixStream) -> Result<Option<ControlRequest>, String> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream.take(MAX_REQUEST_BYTES));
    match reader.read_until(b'\n', &mut line).await {
        Ok(0) => Ok(None),
        Ok(_) if line.len() as u64 == MAX_REQUEST_BYTES => {
            Err("the request is too long".to_owned())
        }
        Ok(_) => from_line(&line).map(Some),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
