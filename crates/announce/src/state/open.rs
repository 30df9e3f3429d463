//! The state file, opened: created if it is missing, locked against a second daemon, checked while it is open, and shrunk.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::state::{Db, Result, StatementError};

/// The schema of a new state file.
const SCHEMA: &str = include_str!("schema.sql");
/// The version of [`SCHEMA`], and the only one that is read.
const SCHEMA_VERSION: i64 = 1;
/// Tables that the first files of this version lack, created where they are missing; who does not know them ignores them.
const ADDED: &str = "CREATE TABLE IF NOT EXISTS last_day (
  id INTEGER PRIMARY KEY CHECK (id = 1), intervals TEXT NOT NULL) STRICT; -- what the status shows of it, as JSON";
/// The number that marks a database as a state file: "rsn1".
const APPLICATION_ID: i64 = 0x7273_6e31;

const DATABASE: &str = "state.sqlite";
/// The name of a new state file until it is complete.
const NEW_DATABASE: &str = "state.sqlite.new";
/// Suffixes of the files that SQLite keeps beside its database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Free pages that the file keeps, for what is saved next: 4 MiB.
const KEPT_PAGES: i64 = 1_024;
/// Free pages that are given back at once: 1 MiB.
const PAGES_AT_ONCE: i64 = 256;
/// Statements that a connection keeps prepared: those of a step, and more.
const PREPARED_STATEMENTS: usize = 256;

/// The lock against a second instance. It is private, so that other users cannot hold it.
const LOCK: &str = "lock";
/// The time to wait for the lock. Commands that only test for a daemon hold it for much less.
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// The state file and its write-ahead log as a daemon has them open, beside the connection that writes them.
#[derive(Debug)]
pub struct StateFile {
    /// The file in the file system.
    pub path: PathBuf,
    identity: FileIdentity,
    /// The open file, to read its header. Must outlive the connection: SQLite's locks end when any descriptor of the file
    /// is closed.
    file: File,
    /// The last known size. It may shrink, by a vacuum.
    size: u64,
    log: PathBuf,
    /// Known after the first write.
    log_identity: Option<FileIdentity>,
    /// True while a commit waits for the disk.
    are_commits_synced: bool,
    /// Held while this value lives.
    lock: File,
}

/// Device and inode.
type FileIdentity = (u64, u64);

/// An error of the state file, with its path.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error("cannot create the state directory {0}; set state_dir to one that can be written")]
    Directory(PathBuf, #[source] std::io::Error),
    #[error("cannot create the state file {0}; is the disk full, or read-only?")]
    Create(PathBuf, #[source] std::io::Error),
    #[error("cannot write the backup {0}")]
    Backup(PathBuf, #[source] std::io::Error),
    #[error("cannot open the lock file {0}")]
    Lock(PathBuf, #[source] std::io::Error),
    #[error(
        "the state file {0} is that of `rsnotify {1}`: `rsnotify {2}` needs a state_dir of its own"
    )]
    OfOther(PathBuf, &'static str, &'static str),
    #[error("another rsnotify uses the state directory {0}; stop it, or set another state_dir")]
    InUse(PathBuf),
    #[error("cannot read the state file {0}; run this as the user who runs rsnotify")]
    Denied(PathBuf, #[source] std::io::Error),
    #[error(
        "cannot open the state file {0}; if it is damaged, move it away: a new baseline is taken then"
    )]
    Open(PathBuf, #[source] rusqlite::Error),
    #[error(
        "the state file {0} has schema {1}, and this rsnotify reads only schema {SCHEMA_VERSION}; use the rsnotify that \
         wrote it, or move the file away: everything that exists counts as known then"
    )]
    OtherSchema(PathBuf, i64),
    #[error(
        "the state file {0} was not written by this rsnotify, but by another program or by a version that was never \
         released; move it away: everything that exists counts as known then"
    )]
    Foreign(PathBuf),
    #[error(
        "cannot read the state file {0}; if it is damaged, move it away: a new baseline is taken then"
    )]
    Load(PathBuf, #[source] rusqlite::Error),
    #[error(
        "the state file {0} has zero bytes, so what was there is lost; restore a backup, or move the file away to begin \
         anew: a new baseline is taken then"
    )]
    Empty(PathBuf),
    #[error(
        "the state file {0} is gone: it was deleted or moved while rsnotify runs; move it back, or restart rsnotify, \
         which writes it anew when it stops"
    )]
    Gone(PathBuf),
    #[error(
        "the state file {0} was replaced while rsnotify runs, so what is saved is lost; put the first one back, or \
         restart rsnotify with the one that is there"
    )]
    Replaced(PathBuf),
    #[error(
        "the state file {0} was cut to {1} bytes while rsnotify runs; stop rsnotify, and restore a backup"
    )]
    Cut(PathBuf, u64),
    #[error("cannot write the state file {0}; is the disk full, or read-only?")]
    Save(PathBuf, #[source] rusqlite::Error),
}

impl StateFile {
    /// Opens the state file in `directory` for writing, creates both if missing, and takes the lock.
    pub fn open(directory: &Path) -> Result<(StateFile, Connection), StateFileError> {
        let lock = take_lock(directory)?;
        if !exists(&directory.join(DATABASE))? {
            create(directory, |new| create_tables(&Connection::open(new)?))?;
        }
        StateFile::open_locked(directory, lock)
    }

    fn open_locked(
        directory: &Path,
        lock: File,
    ) -> Result<(StateFile, Connection), StateFileError> {
        let path = directory.join(DATABASE);
        let open_error = |source| StateFileError::Open(path.clone(), source);
        let mut connection = Connection::open(&path).map_err(open_error)?;
        check_schema(&connection, &path)?;
        // Fails on a file system without modes.
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(0o600));
        set_pragmas(&mut connection).map_err(open_error)?;
        let metadata = metadata_of(&path)?;
        let file = StateFile {
            identity: identity(&metadata),
            file: File::open(&path)
                .map_err(|source| StateFileError::Denied(path.clone(), source))?,
            size: metadata.len(),
            log: beside(&path, "-wal"),
            log_identity: None,
            are_commits_synced: true,
            lock,
            path,
        };
        Ok((file, connection))
    }

    /// Checks that the open file is still the state file, and complete. Costs two `stat` calls.
    pub fn check(&mut self, connection: &Connection) -> Result<(), StateFileError> {
        let metadata = metadata_of(&self.path)?;
        if identity(&metadata) != self.identity {
            return Err(StateFileError::Replaced(self.path.clone()));
        }
        let is_smaller = metadata.len() < self.size;
        if is_smaller && !size_by_header(&self.file).is_ok_and(|stated| stated <= metadata.len()) {
            // A checkpoint on closing would extend the truncated file with partial data.
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            return Err(StateFileError::Cut(self.path.clone(), metadata.len()));
        }
        self.size = metadata.len();
        match (self.log_identity, std::fs::metadata(&self.log)) {
            (None, Ok(log)) => self.log_identity = Some(identity(&log)),
            (Some(known), Ok(log)) if known == identity(&log) => {}
            (Some(_), Ok(_)) => return Err(StateFileError::Replaced(self.log.clone())),
            (Some(_), Err(error)) if error.kind() == ErrorKind::NotFound => {
                return Err(StateFileError::Gone(self.log.clone()));
            }
            // There is none yet; or it cannot be read, and then writing fails as well.
            (_, Err(_)) => {}
        }
        Ok(())
    }

    /// Sets whether commits wait for the disk. A write-ahead log is consistent either way: after a power failure the state is
    /// as it was before those that did not wait.
    pub fn sync_commits(
        &mut self,
        connection: &Connection,
        are_synced: bool,
    ) -> Result<(), StateFileError> {
        if self.are_commits_synced != are_synced {
            let synchronous = if are_synced { "FULL" } else { "NORMAL" };
            connection
                .pragma_update(None, "synchronous", synchronous)
                .map_err(|source| self.save_error(StatementError(source)))?;
            self.are_commits_synced = are_synced;
        }
        Ok(())
    }

    /// Checks that the state file can be written, by writing a value that it has already, with a sync: of all that was
    /// committed before too. An empty transaction would only test the lock.
    pub fn probe(&mut self, connection: &Connection) -> Result<(), StateFileError> {
        self.check(connection)?;
        self.sync_commits(connection, true)?;
        connection
            .pragma_update(None, "user_version", SCHEMA_VERSION)
            .map_err(|source| self.save_error(StatementError(source)))
    }

    /// Returns the error of a failed step, which names the file.
    pub fn save_error(&self, StatementError(source): StatementError) -> StateFileError {
        StateFileError::Save(self.path.clone(), source)
    }

    /// Returns the error of a failed query, which names the file.
    pub fn load_error(&self, StatementError(source): StatementError) -> StateFileError {
        StateFileError::Load(self.path.clone(), source)
    }

    /// Gives pages that became free back to the file system, a few at a time. Returns true if there are more; nothing after an
    /// error, which the next save has too.
    pub fn shrink(&mut self, connection: &Connection) -> Option<bool> {
        let free = connection.pragma_query_value(None, "freelist_count", |row| row.get(0));
        let free: i64 = free.ok()?;
        if free <= KEPT_PAGES {
            return Some(false);
        }
        self.sync_commits(connection, false).ok()?;
        // It gives back one page for each row.
        let pages = format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})");
        let mut statement = connection.prepare_cached(&pages).ok()?;
        let mut rows = statement.query([]).ok()?;
        while rows.next().ok()?.is_some() {}
        let is_more = free - PAGES_AT_ONCE > KEPT_PAGES;
        if !is_more {
            // Only a checkpoint makes the file smaller.
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            connection.query_row(checkpoint, [], |_| Ok(())).ok()?;
        }
        Some(is_more)
    }

    /// Recreates the state file if it was deleted, from the one that is still open. Returns true if it was.
    pub fn restore_if_deleted(
        &mut self,
        connection: &mut Connection,
    ) -> Result<bool, StateFileError> {
        match self.check(connection) {
            Err(StateFileError::Gone(path)) if path == self.path => {}
            _ => return Ok(false),
        }
        let directory = self.path.parent().unwrap_or(Path::new("")).to_owned();
        // It may have been deleted with the directory.
        let _ = self.lock.unlock();
        let lock = take_lock(&directory)?;
        create(&directory, |new| copy_into(connection, new))?;
        let (file, reopened) = StateFile::open_locked(&directory, lock)?;
        *connection = reopened;
        *self = file;
        Ok(true)
    }

    /// Marks the state as that of `rsnotify hub`, if that is what asks; refuses it to `rsnotify run`.
    ///
    /// # Errors
    /// It is that of the other daemon, or cannot be written.
    pub fn claim_kind(&self, connection: &Connection, is_hub: bool) -> Result<(), StateFileError> {
        let db = Db(connection);
        let exists = |query| db.exists(query, ()).map_err(|error| self.load_error(error));
        let of_run =
            "SELECT 1 FROM source UNION ALL SELECT 1 FROM hub UNION ALL SELECT 1 FROM subscription";
        let of_other = |owner, other| StateFileError::OfOther(self.path.clone(), owner, other);
        match (is_hub, exists("SELECT 1 FROM daemon")?) {
            (true, true) | (false, false) => Ok(()),
            (false, true) => Err(of_other("hub", "run")),
            (true, false) if exists(of_run)? => Err(of_other("run", "hub")),
            (true, false) => db
                .run("INSERT INTO daemon VALUES ('hub')", ())
                .map_err(|error| self.save_error(error)),
        }
    }
}

/// Opens the state file in `directory` for reading, while a daemon may be writing. Returns none if there is no file yet.
pub fn open_to_read(directory: &Path) -> Result<Option<Connection>, StateFileError> {
    let path = state_file(directory);
    if !exists(&path)? {
        return Ok(None);
    }
    // SQLite would not report the reason.
    if rustix::fs::access(&path, Access::READ_OK) == Err(Errno::ACCESS) {
        return Err(StateFileError::Denied(path, Errno::ACCESS.into()));
    }
    let open_error = |source| StateFileError::Open(path.clone(), source);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(sqlite_uri(&path), flags).map_err(open_error)?;
    check_schema(&connection, &path)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    Ok(Some(connection))
}

/// Writes a copy of the state in `directory` to a new file that is private to its user, while a daemon may be writing.
/// Returns false if there is no state yet.
pub fn back_up(directory: &Path, to: &Path) -> Result<bool, StateFileError> {
    let Some(connection) = open_to_read(directory)? else {
        return Ok(false);
    };
    let failed = |source| StateFileError::Backup(to.to_owned(), source);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(to).map_err(failed)?;
    let copied = copy_into(&connection, to).map_err(std::io::Error::other);
    if let Err(error) = copied.and_then(|()| file.sync_all()) {
        // Half a copy restores nothing.
        let _ = std::fs::remove_file(to);
        return Err(failed(error));
    }
    Ok(true)
}

/// Copies a state to a file that is empty, or not there.
fn copy_into(connection: &Connection, to: &Path) -> rusqlite::Result<()> {
    let name = ToSqlOutput::Borrowed(ValueRef::Text(to.as_os_str().as_bytes()));
    connection.execute("VACUUM INTO ?1", [name]).map(drop)
}

/// Returns a copy in memory of the state in `directory`, for a look at what would come of it. It has no notifications of the
/// hub. Returns none if there is no file yet.
pub fn copy_to_memory(directory: &Path) -> Result<Option<Connection>, StateFileError> {
    // The schema is checked where it can be read only.
    if open_to_read(directory)?.is_none() {
        return Ok(None);
    }
    let path = state_file(directory);
    let copy = || {
        let mut connection = Connection::open_in_memory()?;
        create_tables(&connection)?;
        connection.execute_batch(ADDED)?;
        connection.execute("ATTACH ?1 AS file", [sqlite_uri(&path)])?;
        let tables = {
            let mut names = connection.prepare(
                "SELECT name FROM file.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
                 AND name NOT LIKE 'relay%' AND name IN (SELECT name FROM main.sqlite_schema)",
            )?;
            let names = names.query_map([], |row| row.get(0))?;
            names.collect::<rusqlite::Result<Vec<String>>>()?
        };
        connection.execute_batch("BEGIN")?;
        for name in tables {
            connection.execute_batch(&format!(
                "INSERT INTO main.{name} SELECT * FROM file.{name}"
            ))?;
        }
        connection.execute_batch(
            "DELETE FROM main.sqlite_sequence; INSERT INTO main.sqlite_sequence SELECT * FROM file.sqlite_sequence; \
             COMMIT; DETACH file",
        )?;
        set_pragmas(&mut connection)?;
        Ok(connection)
    };
    let copied = copy().map(Some);
    copied.map_err(|source| StateFileError::Load(path, source))
}

/// Returns a new state in memory.
pub fn in_memory() -> Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    create_tables(&connection)?;
    set_pragmas(&mut connection)?;
    Ok(connection)
}

/// Returns the path of the state file in a directory.
pub fn state_file(directory: &Path) -> PathBuf {
    directory.join(DATABASE)
}

/// Opens a state file that is known to be one, for reading.
pub fn read_only(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(path, flags)?)
}

/// Returns true if there is a file; it is not empty then.
fn exists(path: &Path) -> Result<bool, StateFileError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() == 0 => Err(StateFileError::Empty(path.to_owned())),
        Err(error) => Ok(error.kind() != ErrorKind::NotFound),
        Ok(_) => Ok(true),
    }
}

fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    // Pages that become free are given back while nothing waits.
    connection.execute_batch(&format!(
        "BEGIN; PRAGMA auto_vacuum = INCREMENTAL; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; \
         PRAGMA application_id = {APPLICATION_ID}; COMMIT;"
    ))
}

/// Prepares a connection for steps. WAL with a sync at each commit: durable before anything is sent. What a large step
/// left of the log beyond 4 MiB is given back. Temporary data, such as the statement journal of deleting a large channel,
/// is in memory: a container may have no directory for temporary files. The page cache grows to 4 MB at most: the system
/// has the rest of the file in its own.
fn set_pragmas(connection: &mut Connection) -> rusqlite::Result<()> {
    // One that reads first would fail at once, and not wait, if an operator's command holds the file just then.
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    // Otherwise most statements with a partial index are prepared anew at each execution, because their plan could depend
    // on the values.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA journal_size_limit = 4194304; PRAGMA synchronous = FULL; \
         PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4000;",
    )?;
    connection.execute_batch(ADDED)
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
) -> Result<(), StateFileError> {
    let (path, new) = (directory.join(DATABASE), directory.join(NEW_DATABASE));
    let failed = |source: std::io::Error| StateFileError::Create(path.clone(), source);
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
    write(&new).map_err(|source| StateFileError::Open(path.clone(), source))?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(&new, &path).map_err(failed)?;
    let directory = File::open(directory).map_err(failed)?;
    directory.sync_all().map_err(failed)
}

/// Returns the URI under which SQLite reads the file. Without a write-ahead log it is complete in itself and opened as
/// immutable: then SQLite creates no files beside it, which a read-only directory would not allow.
fn sqlite_uri(path: &Path) -> String {
    let name = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    let parameters = if beside(path, "-wal").exists() {
        "?mode=ro"
    } else {
        "?immutable=1"
    };
    format!("file:{name}{parameters}")
}

/// Refuses a file with another schema.
fn check_schema(connection: &Connection, path: &Path) -> Result<(), StateFileError> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let read = |name| read(name).map_err(|source| StateFileError::Open(path.to_owned(), source));
    match (read("application_id")?, read("user_version")?) {
        (APPLICATION_ID, SCHEMA_VERSION) => Ok(()),
        (APPLICATION_ID, found) => Err(StateFileError::OtherSchema(path.to_owned(), found)),
        _ => Err(StateFileError::Foreign(path.to_owned())),
    }
}

/// Returns what tells a file from all others.
fn identity(metadata: &Metadata) -> FileIdentity {
    (metadata.dev(), metadata.ino())
}

/// Returns the size of a database by its header (SQLite's file format, section 1.3), which a vacuum reduces before the file
/// is truncated.
fn size_by_header(file: &File) -> std::io::Result<u64> {
    let (mut page_size, mut pages) = ([0; 2], [0; 4]);
    file.read_exact_at(&mut page_size, 16)?;
    file.read_exact_at(&mut pages, 28)?;
    let page_size = match u16::from_be_bytes(page_size) {
        1 => 65_536,
        size => u64::from(size),
    };
    Ok(page_size * u64::from(u32::from_be_bytes(pages)))
}

/// Returns the metadata of the file at `path`, which must exist.
fn metadata_of(path: &Path) -> Result<Metadata, StateFileError> {
    std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => StateFileError::Gone(path.to_owned()),
        _ => StateFileError::Denied(path.to_owned(), error),
    })
}

/// Returns the path of a file that SQLite keeps beside its database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

// The lock against a second instance.

/// Takes the lock of the state directory, which is created if missing; held while the file is open.
fn take_lock(directory: &Path) -> Result<File, StateFileError> {
    create_directory(directory)
        .map_err(|source| StateFileError::Directory(directory.to_owned(), source))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match try_lock(directory) {
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
fn try_lock(directory: &Path) -> std::io::Result<Option<File>> {
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
