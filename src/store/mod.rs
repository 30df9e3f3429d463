//! The state file: one SQLite database with documents seen, changes told to each hub, and notifications in flight.
//!
//! Every [`Store::save`] is one transaction, durable when it returns. A lock file keeps a second instance away.

mod changes;
mod directory;
mod hub;
mod integrity;
mod load;
mod lock;
mod row;
mod save;

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::Access;
use rustix::io::Errno;

/// The open state file of one daemon.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// The file as it was opened for writing.
    opened: Option<OpenedFile>,
    /// True while a commit waits for the disk.
    are_commits_synced: bool,
    /// The lock file, held while this store may write.
    _lock: Option<File>,
}

/// An error of the state file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot create the state directory {path}; set state_dir to one that can be written")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot create the state file {path}; is the disk full, or read-only?")]
    Create {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot open the lock file {path}")]
    Lock {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "the state file {path} is that of `rsnotify run`: `rsnotify hub` needs a state_dir of its own"
    )]
    OfRun { path: PathBuf },
    #[error(
        "the state file {path} is that of `rsnotify hub`: `rsnotify run` needs a state_dir of its own"
    )]
    OfHub { path: PathBuf },
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
        "the state file {path} has schema {found}, and this rsnotify reads only schema {SCHEMA_VERSION}; use the rsnotify that \
         wrote it, or move the file away: everything that exists counts as known then"
    )]
    OtherSchema { path: PathBuf, found: i64 },
    #[error(
        "cannot read the state file {path}; if it is damaged, move it away: a new baseline is taken then"
    )]
    Load {
        path: PathBuf,
        source: rusqlite::Error,
    },
    #[error(
        "the state file {path} has zero bytes, so what was there is lost; restore a backup, or move the file away to begin \
         anew: a new baseline is taken then"
    )]
    Empty { path: PathBuf },
    #[error(
        "the state file {path} is gone: it was deleted or moved while rsnotify runs; move it back, or restart rsnotify, \
         which writes it anew when it stops"
    )]
    Gone { path: PathBuf },
    #[error(
        "the state file {path} was replaced while rsnotify runs, so what is saved is lost; put the first one back, or \
         restart rsnotify with the one that is there"
    )]
    Replaced { path: PathBuf },
    #[error(
        "the state file {path} was cut to {size} bytes while rsnotify runs; stop rsnotify, and restore a backup"
    )]
    Cut { path: PathBuf, size: u64 },
    #[error("cannot write the state file {path}; is the disk full, or read-only?")]
    Save {
        path: PathBuf,
        source: rusqlite::Error,
    },
}

use crate::store::integrity::{OpenedFile, beside};

pub use crate::store::changes::{KeyReader, TakenRows};
pub use crate::store::directory::inspect_directory;
pub use crate::store::hub::RelayConnection;
pub use crate::store::lock::is_in_use;

/// The schema of a new state file.
const SCHEMA: &str = include_str!("schema.sql");
/// The version that [`SCHEMA`] sets, and the only one that is read.
const SCHEMA_VERSION: i64 = 1;

const DATABASE: &str = "state.sqlite";
/// The name of a new state file until it is complete.
const NEW_DATABASE: &str = "state.sqlite.new";
/// Suffixes of the files that SQLite keeps beside its database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

impl Store {
    /// Opens the state file in `directory` for writing, creates both if missing, and takes the lock.
    pub fn open(directory: &Path) -> Result<Store, StoreError> {
        create_directory(directory).map_err(|source| StoreError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        let lock = lock::take(directory)?;
        let path = directory.join(DATABASE);
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() == 0 => return Err(StoreError::Empty { path }),
            Err(error) if error.kind() == ErrorKind::NotFound => create(directory, |new| {
                Connection::open(new)?.execute_batch(&format!("BEGIN; {SCHEMA} COMMIT;"))
            })?,
            _ => {}
        }
        let (connection, opened) = open_to_write(&path)?;
        Ok(Store {
            connection,
            path,
            opened: Some(opened),
            are_commits_synced: true,
            _lock: Some(lock),
        })
    }

    /// Opens the state file in `directory` for reading, while a daemon may be writing. Returns none if there is no file yet.
    pub fn open_to_read(directory: &Path) -> Result<Option<Store>, StoreError> {
        let path = directory.join(DATABASE);
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() == 0 => return Err(StoreError::Empty { path }),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        // SQLite would not report the reason.
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
        check_schema(&connection, &path)?;
        Ok(Some(Store {
            connection,
            path,
            opened: None,
            are_commits_synced: true,
            _lock: None,
        }))
    }

    /// Checks that the open file is still the state file. Costs two `stat` calls.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let checked = self.opened.as_mut().map_or(Ok(()), OpenedFile::check);
        if let Err(StoreError::Cut { .. }) = checked {
            // A checkpoint on closing would extend the truncated file with partial data.
            let _ = self
                .connection
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        checked
    }

    /// Recreates the state file if it was deleted, from the one that is still open. Returns true if it was.
    pub fn recreate(&mut self) -> Result<bool, StoreError> {
        match self.check() {
            Err(StoreError::Gone { path }) if path == self.path => {}
            _ => return Ok(false),
        }
        let directory = self.path.parent().unwrap_or(Path::new("")).to_owned();
        create_directory(&directory).map_err(|source| StoreError::Directory {
            path: directory.clone(),
            source,
        })?;
        // The old lock was deleted with the directory.
        self._lock = None;
        let lock = lock::take(&directory)?;
        create(&directory, |new| {
            let name = ToSqlOutput::Borrowed(ValueRef::Text(new.as_os_str().as_bytes()));
            let copied = self.connection.execute("VACUUM INTO ?1", [name]);
            copied.map(|_| ())
        })?;
        let (connection, opened) = open_to_write(&self.path)?;
        self.connection = connection;
        self.are_commits_synced = true;
        self.opened = Some(opened);
        self._lock = Some(lock);
        Ok(true)
    }
}

/// Creates the state directory, private to its user; its parents with the usual mode.
pub fn create_directory(directory: &Path) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        std::fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        created => created,
    }
}

/// Creates a state file under another name and renames it, so that it is never empty or incomplete.
fn create(
    directory: &Path,
    write: impl FnOnce(&Path) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let (path, new) = (directory.join(DATABASE), directory.join(NEW_DATABASE));
    let failed = |source: std::io::Error| StoreError::Create {
        path: path.clone(),
        source,
    };
    // Left by a crash, or belonging to a deleted file.
    let companions = [&path, &new].map(|file| COMPANIONS.map(|ending| beside(file, ending)));
    for leftover in companions.as_flattened().iter().chain([&new]) {
        match std::fs::remove_file(leftover) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    // It contains subscribers' secrets.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(&new).map_err(failed)?;
    write(&new).map_err(|source| StoreError::Open {
        path: path.clone(),
        source,
    })?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&new, &path).map_err(failed)?;
    let directory = File::open(directory).map_err(failed)?;
    directory.sync_all().map_err(failed)
}

/// Opens an existing state file.
fn open_to_write(path: &Path) -> Result<(Connection, OpenedFile), StoreError> {
    let open_error = |source| StoreError::Open {
        path: path.to_owned(),
        source,
    };
    let connection = Connection::open(path).map_err(open_error)?;
    check_schema(&connection, path)?;
    // Fails on a file system without modes.
    let _ = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    // WAL with a sync at each commit: durable before anything is sent. Temporary data, such as the statement journal of
    // deleting a large channel, is in memory: a container may have no directory for temporary files. The page cache grows
    // to 16 MB at most.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
             PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16000;",
        )
        .map_err(open_error)?;
    connection.set_prepared_statement_cache_capacity(64);
    let opened = OpenedFile::at(path)?;
    Ok((connection, opened))
}

/// Returns the URI under which SQLite reads the file. Without a write-ahead log it is complete in itself and opened as
/// immutable: then SQLite creates no files beside it, which a read-only directory would not allow.
fn uri(path: &Path) -> String {
    let name = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    let parameters = match beside(path, "-wal").exists() {
        true => "",
        false => "?immutable=1",
    };
    format!("file:{name}{parameters}")
}

/// Refuses a file with another schema.
fn check_schema(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|source| StoreError::Open {
            path: path.to_owned(),
            source,
        })?;
    if found != SCHEMA_VERSION {
        return Err(StoreError::OtherSchema {
            path: path.to_owned(),
            found,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Store;

    #[test]
    fn temporary_files_are_not_needed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let temp_store = store
            .connection
            .pragma_query_value(None, "temp_store", |row| row.get::<_, i64>(0));
        let in_memory = 2;
        assert_eq!(temp_store, Ok(in_memory));
    }
}
