//! Prints answers; whoever closes the pipe has seen enough.

use std::io::{self, StdoutLock, Write};

/// Writes to standard output.
pub fn print(write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
