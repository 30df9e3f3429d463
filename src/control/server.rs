//! The server of the control socket, which only its owner can reach. Slow clients delay nothing.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::control::{ControlReply, ControlRequest, SOCKET, from_line, reach, to_line};

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

/// The socket file, removed when dropped. It is dropped before the lock of the state directory, so that it is never the next
/// daemon's.
#[derive(Debug)]
pub struct ControlSocketFile {
    path: PathBuf,
}

impl Drop for ControlSocketFile {
    fn drop(&mut self) {
        // If this fails, the next start replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Binds the socket. The caller holds the lock of the state directory, so an existing socket is left over from a process that
/// died. The new one gets its mode in a private directory before it is renamed.
pub fn bind(state_dir: &Path) -> io::Result<(UnixListener, ControlSocketFile)> {
    let private = state_dir.join(PRIVATE);
    match fs::remove_dir_all(&private) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => DirBuilder::new().mode(0o700).create(&private)?,
    }
    let listener = reach(&private, |path| UnixListener::bind(path))?;
    let path = state_dir.join(SOCKET);
    fs::set_permissions(private.join(SOCKET), Permissions::from_mode(0o600))?;
    fs::rename(private.join(SOCKET), &path)?;
    fs::remove_dir(&private)?;
    Ok((listener, ControlSocketFile { path }))
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
                        converse(stream, ask).await;
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

async fn converse(
    mut stream: UnixStream,
    ask: impl Fn(ControlRequest, oneshot::Sender<ControlReply>),
) {
    let answer = match timeout(TIMEOUT, request(&mut stream)).await {
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
async fn request(stream: &mut UnixStream) -> Result<Option<ControlRequest>, String> {
    let mut line = Vec::new();
    let read = BufReader::new(stream.take(MAX_REQUEST_BYTES))
        .read_until(b'\n', &mut line)
        .await;
    match read {
        Ok(0) => Ok(None),
        Ok(_) if line.len() as u64 == MAX_REQUEST_BYTES => {
            Err("the request is too long".to_owned())
        }
        Ok(_) => from_line(&line).map(Some),
        Err(error) => Err(error.to_string()),
    }
}
