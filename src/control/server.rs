//! Takes requests from a socket that only its owner can reach, and lets nobody hold anything up.

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

use crate::control::{Answer, Request, SOCKET, from_line, reach, to_line};

/// Where the socket lies until it has its mode.
const PRIVATE: &str = ".control";
/// No request is longer.
const LONGEST_REQUEST: u64 = 64 << 10;
/// So many may talk to us at once; others wait.
const CONNECTIONS: usize = 32;
/// A request is one line of a program: it comes at once, and its answer is read at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// The loop answers between two turns.
const LOOP_PATIENCE: Duration = Duration::from_secs(50);

/// The socket of a daemon that holds the lock of its state directory.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
}

/// The name of the socket: dropped before the lock is, it goes with its daemon and never with the next one.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The next start replaces it if it stays.
        let _ = fs::remove_file(&self.path);
    }
}

impl Server {
    /// Binds the socket. Whoever calls this holds the lock of the state directory: what lies there is left
    /// from a process that died. The socket gets its mode where nobody else can reach it, and its name then.
    pub fn bind(state_dir: &Path) -> io::Result<(Server, Socket)> {
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
        Ok((Server { listener }, Socket { path }))
    }

    /// Hands each request on with where to answer it, until `shutdown`.
    pub async fn serve(
        self,
        ask: impl Fn(Request, oneshot::Sender<Answer>) + Clone + Send + Sync + 'static,
        shutdown: impl Future<Output = ()>,
    ) {
        tokio::select! {
            () = self.accept(ask) => {}
            () = shutdown => {}
        }
    }

    async fn accept(
        self,
        ask: impl Fn(Request, oneshot::Sender<Answer>) + Clone + Send + Sync + 'static,
    ) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let ask = ask.clone();
                    tokio::spawn(async move {
                        converse(stream, ask).await;
                        drop(place);
                    });
                }
                // There are no descriptors left, for example: nothing that lasts.
                Err(_) => sleep(PATIENCE).await,
            }
        }
    }
}

async fn converse(mut stream: UnixStream, ask: impl Fn(Request, oneshot::Sender<Answer>)) {
    let answer = match timeout(PATIENCE, request(&mut stream)).await {
        Ok(Ok(Some(request))) => {
            let (sender, answer) = oneshot::channel();
            ask(request, sender);
            match timeout(LOOP_PATIENCE, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Answer::Error("rsnotify is stopping; ask again".to_owned()),
                Err(_) => {
                    Answer::Error("rsnotify is busy; its log says what came of it".to_owned())
                }
            }
        }
        Ok(Ok(None)) => return,
        Ok(Err(refusal)) => Answer::Error(refusal),
        Err(_) => Answer::Error(format!("no request came within {PATIENCE:?}")),
    };
    if let Ok(line) = to_line(&answer) {
        // Whoever asked may have gone, or may not read.
        let _ = timeout(PATIENCE, stream.write_all(&line)).await;
    }
}

/// The request that a client sends, if it sends anything.
async fn request(stream: &mut UnixStream) -> Result<Option<Request>, String> {
    let mut line = Vec::new();
    let read = BufReader::new(stream.take(LONGEST_REQUEST))
        .read_until(b'\n', &mut line)
        .await;
    match read {
        Ok(0) => Ok(None),
        Ok(_) if line.len() as u64 == LONGEST_REQUEST => Err("the request is too long".to_owned()),
        Ok(_) => from_line(&line)
            .map(Some)
            .map_err(|malformed| malformed.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
