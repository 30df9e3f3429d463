//! The control protocol between commands and a running daemon: one JSON object per line, over a Unix socket in the state
//! directory.
//!
//! A connection carries one request and one reply. Only users who may write the state may connect.

mod client;
mod server;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use websub::hub::subscriptions::view::{SubscriptionList, SubscriptionView};

use crate::report::Versioned;
use crate::report::outbox::{AccountName, AccountView};
use crate::report::status::{ChannelView, MissingView, Status};

pub use crate::control::client::ask;
pub use crate::control::server::{ControlSocketFile, bind, serve};

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
    Missing(MissingView),
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
        matches!(
            self,
            ControlRequest::Accept { .. }
                | ControlRequest::Retry { .. }
                | ControlRequest::Drop { .. }
        )
    }

    /// Returns true if it changes nothing.
    pub fn is_query(&self) -> bool {
        let is_remove = matches!(
            self,
            ControlRequest::Subscriptions(SubscriptionsAction::Remove(_))
        );
        !self.is_action() && !is_remove && *self != ControlRequest::Reload
    }
}

impl ControlReply {
    /// Returns true if it reports a change.
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            ControlReply::Accepted { .. }
                | ControlReply::Retried { .. }
                | ControlReply::Dropped { .. }
                | ControlReply::Removed(_)
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
fn reach<T>(directory: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = directory.join(SOCKET);
    if path.as_os_str().len() <= MAX_ADDRESS_BYTES || !cfg!(target_os = "linux") {
        return act(&path);
    }
    let opened = File::open(directory)?;
    let mut path = PathBuf::from("/proc/self/fd");
    path.push(opened.as_raw_fd().to_string());
    act(&path.join(SOCKET))
}

#[cfg(test)]
mod tests;
