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

pub use crate::control::client::{ClientError, ask};
pub use crate::control::server::{Server, Socket};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The documents of a source that are missing now are deleted (R15).
    Accept { source: String },
}

/// What is answered, once it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// So many documents of the source are accepted as deleted.
    Accepted {
        source: String,
        documents: usize,
    },
    Error(String),
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
mod tests {
    use super::*;

    fn accept() -> Request {
        Request::Accept {
            source: "main".to_owned(),
        }
    }

    #[test]
    fn the_protocol_reads_as_it_is_documented() {
        let accepted = Answer::Accepted {
            source: "main".to_owned(),
            documents: 24,
        };
        let error = Answer::Error("no".to_owned());
        let line = |line: io::Result<Vec<u8>>| String::from_utf8(line.unwrap()).unwrap();
        assert_eq!(
            line(to_line(&accept())),
            "{\"version\":1,\"command\":\"accept\",\"source\":\"main\"}\n"
        );
        assert_eq!(
            line(to_line(&accepted)),
            "{\"version\":1,\"accepted\":{\"source\":\"main\",\"documents\":24}}\n"
        );
        assert_eq!(line(to_line(&error)), "{\"version\":1,\"error\":\"no\"}\n");
        for answer in [accepted, error] {
            let read: Answer = from_line(&to_line(&answer).unwrap()).unwrap();
            assert_eq!(read, answer);
        }
        let read: Request = from_line(&to_line(&accept()).unwrap()).unwrap();
        assert_eq!(read, accept());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "",
            "accept main",
            "[]",
            "\u{0}",
            "{}",
            "{\"command\":\"accept\",\"source\":\"main\"}",
            "{\"version\":2,\"command\":\"accept\",\"source\":\"main\"}",
            "{\"version\":\"1\",\"command\":\"accept\",\"source\":\"main\"}",
            "{\"version\":1,\"command\":\"forget\",\"source\":\"main\"}",
            "{\"version\":1,\"command\":\"accept\"}",
            "{\"version\":1,\"command\":\"accept\",\"source\":1}",
            "{\"version\":1,\"command\":\"accept\",\"source\":\"main\",\"force\":true}",
            "{\"version\":1,\"command\":\"accept\",\"source\":\"main\"} {}",
        ] {
            let read: Result<Request, Malformed> = from_line(line.as_bytes());
            assert!(read.is_err(), "{line}");
        }
    }
}
