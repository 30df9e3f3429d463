//! The lock against a second instance. Its file is private, so that other users cannot hold it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::state::open::{StateFileError, identity};

const LOCK: &str = "lock";
/// The time to wait for the lock. Commands that only test for a daemon hold it for much less.
const WAIT: Duration = Duration::from_millis(100);

/// Takes the lock of the state directory, held while the file is open.
pub fn take(directory: &Path) -> Result<File, StateFileError> {
    let until = Instant::now() + WAIT;
    loop {
        match attempt(directory) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            Ok(None) => return Err(StateFileError::InUse(directory.to_owned())),
            Err(source) => return Err(StateFileError::Lock(directory.join(LOCK), source)),
        }
    }
}

/// Returns true if a daemon uses the state directory. Tests the lock for a moment, which keeps no other out.
pub fn is_in_use(directory: &Path) -> std::io::Result<bool> {
    let file = match File::open(directory.join(LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Tries to take the lock. Returns none while it is held elsewhere.
fn attempt(directory: &Path) -> std::io::Result<Option<File>> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(&path)?;
    // A command that root runs must not keep the daemon's user out.
    let owner = std::fs::metadata(directory)?.uid();
    if geteuid().is_root() && owner != 0 && file.metadata()?.uid() == 0 {
        fchown(&file, Some(owner), None)?;
    }
    match file.try_lock() {
        // It may have been deleted meanwhile.
        Ok(()) => {
            let named = std::fs::metadata(&path).ok().as_ref().map(identity);
            Ok((named == Some(identity(&file.metadata()?))).then_some(file))
        }
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
