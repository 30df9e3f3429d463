//! The client of the control socket: sends a request to the running daemon and waits for the reply.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control::{ControlReply, ControlRequest, SOCKET, from_line, reach, to_line};

/// The timeout of a reply. The daemon replies between two steps of its loop; one that just started first loads its state.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a reply. A thousand channels with two hubs each take 18 MiB if all their texts have full length.
pub(super) const MAX_REPLY_BYTES: u64 = 128 << 20;

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
    let stream = match reach(state_dir, |path| UnixStream::connect(path)) {
        Ok(stream) => stream,
        Err(source) => {
            let not_listening = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
            return Err(if not_listening.contains(&source.kind()) {
                ClientError::NotListening { path }
            } else {
                ClientError::Connect { path, source }
            });
        }
    };
    let line = exchange(stream, request).map_err(|source| ClientError::Talk { path, source })?;
    if !line.ends_with(b"\n") {
        return Err(ClientError::Ended);
    }
    from_line(&line).map_err(ClientError::Foreign)
}

fn exchange(mut stream: UnixStream, request: &ControlRequest) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&to_line(request)?)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_REPLY_BYTES)).read_until(b'\n', &mut line)?;
    Ok(line)
}
