//! Asks a running daemon, for a command that waits for the answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control::{Answer, Malformed, Request, SOCKET, from_line, reach, to_line};

/// The daemon answers between two turns of its loop; one that just started first loads its state.
const PATIENCE: Duration = Duration::from_secs(60);
/// No answer is longer: a thousand channels with two hubs take 18 MiB where every hub says all that is kept of it, and
/// much waits on each channel.
pub(super) const LONGEST_ANSWER: u64 = 128 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "another rsnotify uses the state directory, and nobody listens at {path}: it may just be starting or \
         stopping; try again in a moment"
    )]
    Nobody { path: PathBuf },
    #[error("cannot connect to the daemon at {path}")]
    Connect { path: PathBuf, source: io::Error },
    #[error("cannot talk to the daemon at {path}; whether it did what was asked, its log says")]
    Talk { path: PathBuf, source: io::Error },
    #[error("the daemon ended before it answered; try again")]
    Ended,
    #[error("the daemon answers in a way that this version does not understand: {0}")]
    Foreign(String),
}

/// Asks the daemon that works in `state_dir`.
pub fn ask(state_dir: &Path, request: &Request) -> Result<Answer, ClientError> {
    let path = state_dir.join(SOCKET);
    let stream = match reach(state_dir, |path| UnixStream::connect(path)) {
        Ok(stream) => stream,
        Err(source) => {
            let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
            return Err(match nobody.contains(&source.kind()) {
                true => ClientError::Nobody { path },
                false => ClientError::Connect { path, source },
            });
        }
    };
    let line = exchange(stream, request).map_err(|source| ClientError::Talk { path, source })?;
    if !line.ends_with(b"\n") {
        return Err(ClientError::Ended);
    }
    from_line(&line).map_err(|malformed: Malformed| ClientError::Foreign(malformed.to_string()))
}

fn exchange(mut stream: UnixStream, request: &Request) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&to_line(request)?)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_until(b'\n', &mut line)?;
    Ok(line)
}
