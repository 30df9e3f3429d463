//! One SQLite file: what was seen, what each hub was told, what is in flight.
//!
//! Every [`Store::save`] is one transaction, durable when it returns. A lock file beside the database keeps
//! a second instance away.

mod hub;
mod intact;
mod load;
mod lock;
mod place;
mod row;
mod save;
mod schema;

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

/// The state of one daemon.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// What was opened to be written.
    opened: Option<Opened>,
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

use crate::store::intact::{Opened, beside};

pub use crate::store::lock::is_in_use;
pub use crate::store::place::place;

const DATABASE: &str = "state.sqlite";
/// What becomes the state file once it is whole.
const NEW_DATABASE: &str = "state.sqlite.new";
/// What SQLite may have beside its file.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

impl Store {
    /// Opens the state in `directory`, creating both where they are not, and keeps others out.
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
                schema::migrate(&mut Connection::open(new)?, 0)
            })?,
            _ => {}
        }
        let (connection, opened) = open_to_write(&path)?;
        Ok(Store {
            connection,
            path,
            opened: Some(opened),
            _lock: Some(lock),
        })
    }

    /// Opens the state in `directory` for reading, beside a daemon that may be writing; nothing if there is
    /// none yet.
    pub fn open_to_read(directory: &Path) -> Result<Option<Store>, StoreError> {
        let path = directory.join(DATABASE);
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() == 0 => return Err(StoreError::Empty { path }),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            _ => {}
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
            opened: None,
            _lock: None,
        }))
    }

    /// Whether the file that is open is still the state file. Costs two questions to the file system.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let checked = self.opened.as_mut().map_or(Ok(()), Opened::check);
        if let Err(StoreError::Cut { .. }) = checked {
            // Closing the file would fill what is missing with what is not the state.
            let _ = self
                .connection
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        checked
    }

    /// Writes the state file anew if it is gone, from the one that is still open. Tells whether that was needed.
    pub fn put_back(&mut self) -> Result<bool, StoreError> {
        match self.check() {
            Err(StoreError::Gone { path }) if path == self.path => {}
            _ => return Ok(false),
        }
        let directory = self.path.parent().unwrap_or(Path::new("")).to_owned();
        create_directory(&directory).map_err(|source| StoreError::Directory {
            path: directory.clone(),
            source,
        })?;
        // The old one went with the directory.
        self._lock = None;
        let lock = lock::take(&directory)?;
        create(&directory, |new| {
            let name = ToSqlOutput::Borrowed(ValueRef::Text(new.as_os_str().as_bytes()));
            let copied = self.connection.execute("VACUUM INTO ?1", [name]);
            copied.map(|_| ())
        })?;
        let (connection, opened) = open_to_write(&self.path)?;
        self.connection = connection;
        self.opened = Some(opened);
        self._lock = Some(lock);
        Ok(true)
    }
}

/// Creates the directory of a state, for its user alone; directories above it as usual.
fn create_directory(directory: &Path) -> std::io::Result<()> {
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

/// Creates a state file that is whole from its first moment: one of zero bytes was never left by us.
fn create(
    directory: &Path,
    write: impl FnOnce(&Path) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let (path, new) = (directory.join(DATABASE), directory.join(NEW_DATABASE));
    let failed = |source: std::io::Error| StoreError::Create {
        path: path.clone(),
        source,
    };
    // What a crash left, and what belonged to a file that was deleted.
    let companions = [&path, &new].map(|file| COMPANIONS.map(|ending| beside(file, ending)));
    for left in companions.as_flattened().iter().chain([&new]) {
        match std::fs::remove_file(left) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    // Subscribers' secrets lie in it.
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

/// Opens a state file that is there, in the form of this version.
fn open_to_write(path: &Path) -> Result<(Connection, Opened), StoreError> {
    let open_error = |source| StoreError::Open {
        path: path.to_owned(),
        source,
    };
    let mut connection = Connection::open(path).map_err(open_error)?;
    // On a file system without modes there is nothing to keep.
    let _ = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    // Durable before anything is sent: WAL with a sync at each commit. What a statement needs to undo itself, such
    // as one that forgets a large channel, lies in memory: a container has no place for temporary files.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
             PRAGMA temp_store = MEMORY;",
        )
        .map_err(open_error)?;
    connection.set_prepared_statement_cache_capacity(64);
    let version = user_version(&connection, path)?;
    schema::migrate(&mut connection, version).map_err(open_error)?;
    let opened = Opened::at(path)?;
    Ok((connection, opened))
}

/// The file as SQLite is to read it. Where nobody has it open, all of it is in this one file: SQLite need not
/// leave others beside it, which it could not do in a directory that may only be read.
fn uri(path: &Path) -> String {
    let name = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    let parameters = match beside(path, "-wal").exists() {
        true => "",
        false => "?immutable=1",
    };
    format!("file:{name}{parameters}")
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
