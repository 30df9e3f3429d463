//! The lock against a second instance. Its file is private, so that other users cannot hold it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk, geteuid};

use crate::store::{DATABASE, StoreError};

const LOCK: &str = "lock";
/// The name of a private lock file that replaces one that others may hold.
const NEW_LOCK: &str = "lock.new";
/// The time to wait for the lock. Commands that only test for a daemon hold it for much less.
const WAIT: Duration = Duration::from_millis(100);

/// Takes the lock of the state directory, held while the file is open.
pub fn take(directory: &Path) -> Result<File, StoreError> {
    let until = Instant::now() + WAIT;
    loop {
        match attempt(directory) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            Ok(None) => {
                return Err(StoreError::InUse {
                    path: directory.to_owned(),
                });
            }
            Err(source) => {
                return Err(StoreError::Lock {
                    path: directory.join(LOCK),
                    source,
                });
            }
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
        Err(TryLockError::WouldBlock) => Ok(is_private(&file, directory)? || is_open(directory)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Tries to take the lock. Returns none while it is held elsewhere.
fn attempt(directory: &Path) -> std::io::Result<Option<File>> {
    let path = directory.join(LOCK);
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => match create(&path, directory)? {
            Some(file) => file,
            None => return Ok(None),
        },
        Err(error) => return Err(error),
    };
    let is_locked = try_lock(&file)?;
    if is_private(&file, directory)? {
        return Ok((is_locked && is_at(&file, &path)).then_some(file));
    }
    // The file of an earlier version, which anyone may open and lock. A running daemon also has the state file open.
    if !is_locked && is_open(directory) {
        return Ok(None);
    }
    replace(directory)
}

/// Replaces a lock file that others may hold by a private one.
fn replace(directory: &Path) -> std::io::Result<Option<File>> {
    let (path, new_path) = (directory.join(LOCK), directory.join(NEW_LOCK));
    let Some(new) = create(&new_path, directory)? else {
        // Another process is doing the same, or crashed while doing it.
        let Ok(other) = File::open(&new_path) else {
            return Ok(None);
        };
        if try_lock(&other)? {
            std::fs::remove_file(&new_path)?;
        }
        return Ok(None);
    };
    if !try_lock(&new)? || !is_at(&new, &new_path) {
        return Ok(None);
    }
    // Another process may have been faster.
    let current = File::open(&path);
    if current.is_ok_and(|current| is_private(&current, directory).unwrap_or_default()) {
        std::fs::remove_file(&new_path)?;
        return Ok(None);
    }
    std::fs::rename(&new_path, &path)?;
    Ok(Some(new))
}

/// Creates a private file. Returns none if it exists.
fn create(path: &Path, directory: &Path) -> std::io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(error),
    };
    // A command that root runs must not keep the daemon's user out.
    let owner = std::fs::metadata(directory)?.uid();
    if geteuid().is_root() && owner != 0 {
        fchown(&file, Some(owner), None)?;
    }
    Ok(Some(file))
}

fn try_lock(file: &File) -> std::io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns true if no other user may open a file, and it belongs to us, to root, or to the owner of the directory.
fn is_private(file: &File, directory: &Path) -> std::io::Result<bool> {
    let metadata = file.metadata()?;
    let owners = [geteuid().as_raw(), 0, std::fs::metadata(directory)?.uid()];
    Ok(metadata.mode() & 0o077 == 0 && owners.contains(&metadata.uid()))
}

/// Returns true if a path names an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

/// Returns true if another process has the state file open: SQLite holds a lock on it meanwhile.
fn is_open(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(DATABASE)) else {
        return false;
    };
    let whole = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    matches!(fcntl_getlk(&file, &whole), Ok(Some(_)))
}
