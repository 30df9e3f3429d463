//! One SQLite file: what was seen, what each hub was told, what is in flight.
//!
//! Every [`Store::save`] is one transaction, durable when it returns. A lock file beside the database keeps
//! a second instance away.

mod hub;
mod load;
mod place;
mod row;
mod save;
mod schema;

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::Access;
use rustix::io::Errno;

/// The state of one daemon.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// Held for as long as this store writes.
    _lock: Option<File>,
}

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot create the state directory {path}; set state_dir to one that can be written")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot open the lock file {path}")]
    Lock {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("another rsnotify uses the state directory {path}; stop it, or set another state_dir")]
    InUse { path: PathBuf },
    #[error("cannot read the state file {path}; run this as the user who runs rsnotify")]
    Denied {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "cannot open the state file {path}; if it is damaged, move it away: a new baseline is taken then"
    )]
    Open {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error(
        "the state file {path} was written by a newer rsnotify (schema {found}, this one knows {known}); \
         upgrade rsnotify, or move the file away: a new baseline is taken then"
    )]
    FromTheFuture {
        path: PathBuf,
        found: usize,
        known: usize,
    },
    #[error(
        "cannot read the state file {path}; if it is damaged, move it away: a new baseline is taken then"
    )]
    Load {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error("cannot write the state file {path}; is the disk full, or read-only?")]
    Save {
        path: PathBuf,
        source: rusqlite::Error,
    },
}

pub use crate::store::place::place;

const DATABASE: &str = "state.sqlite";
const LOCK: &str = "lock";
/// Whoever only looks whether there is a daemon holds the lock for much less than this.
const GLANCE: Duration = Duration::from_millis(100);

impl Store {
    /// Opens the state in `directory`, creating both where they are not, and keeps others out.
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        std::fs::create_dir_all(directory).map_err(|source| StoreError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        let lock = lock(directory)?;
        let path = directory.join(DATABASE);
        let open_error = |source| StoreError::Open {
            path: path.clone(),
            source,
        };
        let mut connection = Connection::open(&path).map_err(open_error)?;
        // Subscribers' secrets lie in it. On a file system without modes there is nothing to keep.
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(0o600));
        // Durable before anything is sent: WAL with a sync at each commit. What a statement needs to undo itself, such
        // as one that forgets a large channel, lies in memory: a container has no place for temporary files.
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
                 PRAGMA temp_store = MEMORY;",
            )
            .map_err(open_error)?;
        connection.set_prepared_statement_cache_capacity(64);
        let version = user_version(&connection, &path)?;
        schema::migrate(&mut connection, version).map_err(open_error)?;
        Ok(Store {
            connection,
            path,
            _lock: Some(lock),
        })
    }

    /// Opens the state in `directory` for reading, beside a daemon that may be writing; nothing if there is
    /// none yet.
    pub fn open_to_read(directory: &Path) -> Result<Option<Store>, StoreError> {
        let path = directory.join(DATABASE);
        if !path.exists() {
            return Ok(None);
        }
        // SQLite would not say why.
        if let Err(Errno::ACCESS) = rustix::fs::access(&path, Access::READ_OK) {
            let source = Errno::ACCESS.into();
            return Err(StoreError::Denied { path, source });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let connection =
            Connection::open_with_flags(uri(&path), flags).map_err(|source| StoreError::Open {
                path: path.clone(),
                source,
            })?;
        if user_version(&connection, &path)? == 0 {
            return Ok(None);
        }
        Ok(Some(Store {
            connection,
            path,
            _lock: None,
        }))
    }
}

/// Whether a daemon holds the state in `directory`. The lock is held for a glance, which keeps nobody out.
pub fn is_in_use(directory: &Path) -> std::io::Result<bool> {
    let file = match File::open(directory.join(LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The file as SQLite is to read it. Where nobody has it open, all of it is in this one file: SQLite need not
/// leave others beside it, which it could not do in a directory that may only be read.
fn uri(path: &Path) -> String {
    let name = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let parameters = match Path::new(&log).exists() {
        true => "",
        false => "?immutable=1",
    };
    format!("file:{name}{parameters}")
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join(LOCK);
    let lock_error = |source| StoreError::Lock {
        path: path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(lock_error)?;
    let until = Instant::now() + GLANCE;
    let mut tried = file.try_lock();
    while matches!(tried, Err(TryLockError::WouldBlock)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        tried = file.try_lock();
    }
    match tried {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(lock_error(source)),
    }
}

fn user_version(connection: &Connection, path: &Path) -> Result<usize, StoreError> {
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|source| StoreError::Open {
            path: path.to_owned(),
            source,
        })?;
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    if found > schema::VERSION {
        return Err(StoreError::FromTheFuture {
            path: path.to_owned(),
            found,
            known: schema::VERSION,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::Store;

    #[test]
    fn temporary_files_are_not_needed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let place = store
            .connection
            .pragma_query_value(None, "temp_store", |row| row.get::<_, i64>(0));
        let in_memory = 2;
        assert_eq!(place, Ok(in_memory));
    }
}
