//! What commands ask of a running daemon: one JSON object per line, over a socket in the state directory.
//!
//! A connection carries one request and one answer. Only who may write the state may connect.

mod client;
mod server;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hub::audience::view::{SubscriptionList, SubscriptionView};
use crate::report::status::account::AccountView;
use crate::report::status::{ChannelView, MissingView, Status};

pub use crate::control::client::{ClientError, ask};
pub use crate::control::server::{Server, Socket};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The documents of a source that are missing now are deleted (R15).
    Accept { source: String },
    /// What would be accepted as deleted, by directory.
    Missing { source: String },
    /// How everything stands.
    Status,
    /// How every hub stands on every channel.
    Outbox,
    /// All that one hub is due on one channel.
    Show {
        account: AccountName,
        /// Whether the payload of the notification in flight is wanted too.
        payload: bool,
    },
    /// What waits for its next try is tried now: of one hub on one channel, or of all.
    Retry { only: Option<AccountName> },
    /// What a hub is due on a channel counts as told (R23).
    Drop { account: AccountName },
    /// Something about the embedded hub's subscriptions.
    Subscriptions(About),
    /// The URI that the public listener is reached as.
    PublicUrl,
}

/// What is asked about subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum About {
    /// Which there are.
    List,
    /// All there is to know of one.
    Show(SubscriptionName),
    /// One ends, and its subscriber is told so.
    Remove(SubscriptionName),
}

/// A subscription, as an operator names it: by its callback's digest, and by its topic where there are several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionName {
    pub callback: String,
    pub topic: Option<String>,
}

/// A hub on a channel, as an operator names them: the channel by its topic or its Capability List.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountName {
    pub channel: String,
    pub hub: String,
}

/// What is answered, once it is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// So many documents of the source are accepted as deleted.
    Accepted {
        source: String,
        documents: usize,
    },
    Missing(MissingView),
    Status(Box<Status>),
    Outbox(Vec<ChannelView>),
    Account(Box<AccountView>),
    /// So many notifications are tried now.
    Retried {
        notifications: usize,
    },
    /// So many changes count as told.
    Dropped {
        changes: usize,
    },
    Subscriptions(SubscriptionList),
    Subscription(Box<SubscriptionView>),
    /// It has ended.
    Removed(Box<SubscriptionView>),
    /// The URI that the public listener is reached as.
    PublicUrl(String),
    Error(String),
}

impl Request {
    /// Whether it only asks how things are.
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            Request::Missing { .. }
                | Request::Status
                | Request::Outbox
                | Request::PublicUrl
                | Request::Show { .. }
                | Request::Subscriptions(About::List | About::Show(_))
        )
    }
}

impl Answer {
    /// Whether it says that something was done.
    pub fn is_deed(&self) -> bool {
        matches!(
            self,
            Answer::Accepted { .. }
                | Answer::Retried { .. }
                | Answer::Dropped { .. }
                | Answer::Removed(_)
        )
    }
}

/// The version of the protocol, in each request and answer.
const VERSION: u64 = 1;
const SOCKET: &str = "control.sock";
/// The system takes no longer address for a socket, on any system that we know.
const LONGEST_ADDRESS: usize = 100;

#[derive(Debug, Serialize)]
struct Versioned<'a, T> {
    version: u64,
    #[serde(flatten)]
    message: &'a T,
}

/// Why a line says nothing to us.
#[derive(Debug, thiserror::Error)]
enum Malformed {
    #[error("this is not understood: {0}")]
    Json(#[from] serde_json::Error),
    #[error("version {0} is not spoken here, only version {VERSION}")]
    Version(Value),
}

fn to_line<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let version = VERSION;
    let mut line = serde_json::to_vec(&Versioned { version, message })?;
    line.push(b'\n');
    Ok(line)
}

fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, Malformed> {
    let mut message: Map<String, Value> = serde_json::from_slice(line)?;
    let version = message.remove("version").unwrap_or_default();
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    Ok(serde_json::from_value(Value::Object(message))?)
}

/// Reaches a socket however long the path of its directory is, where the system has a way to.
fn reach<T>(directory: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = directory.join(SOCKET);
    if path.as_os_str().len() <= LONGEST_ADDRESS || !cfg!(target_os = "linux") {
        return act(&path);
    }
    let opened = File::open(directory)?;
    let mut path = PathBuf::from("/proc/self/fd");
    path.push(opened.as_raw_fd().to_string());
    act(&path.join(SOCKET))
}

#[cfg(test)]
mod tests;
