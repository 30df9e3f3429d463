//! The state file belongs to its user only, and is monitored for deletion, replacement and truncation.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use announce::state::open::{StateFile, StateFileError, open_to_read};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{contents, is_empty, open, write};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A state with something in it, below a directory that exists.
fn filled() -> (TempDir, StateFile, Connection) {
    let above = TempDir::new().unwrap();
    let (file, connection) = crate::filled(&above.path().join("state"));
    (above, file, connection)
}

#[test]
fn directory_lock_and_file_are_their_users_alone() {
    let above = TempDir::new().unwrap();
    let directory = above.path().join("above/state");
    let held = open(&directory);
    assert_eq!(mode(&directory), 0o700);
    assert_ne!(mode(&above.path().join("above")), 0o700);
    for name in ["lock", "state.sqlite"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
    drop(held);

    // One that is there stays as it is.
    fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    drop(open(&directory));
    assert_eq!(mode(&directory), 0o750);
}

#[test]
fn a_state_file_of_zero_bytes_is_no_first_start() {
    let (above, file, connection) = filled();
    drop((connection, file));
    let directory = above.path().join("state");
    File::create(directory.join("state.sqlite")).unwrap();
    for error in [
        StateFile::open(&directory).unwrap_err(),
        open_to_read(&directory).unwrap_err(),
    ] {
        assert!(matches!(error, StateFileError::Empty { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("restore a backup, or move the file away"),
            "{said}"
        );
    }
    assert_eq!(
        fs::metadata(directory.join("state.sqlite")).unwrap().len(),
        0
    );
    fs::remove_file(directory.join("state.sqlite")).unwrap();
    assert!(is_empty(&open(&directory).1));
}

#[test]
fn a_first_start_that_crashed_is_a_first_start() {
    let above = TempDir::new().unwrap();
    for name in [
        "state.sqlite.new",
        "state.sqlite.new-journal",
        "state.sqlite-wal",
    ] {
        fs::write(above.path().join(name), "").unwrap();
    }
    assert!(is_empty(&open(above.path()).1));
    assert!(!above.path().join("state.sqlite.new").exists());
}

/// Asserts that nothing is written until the state file is back: it is checked before each step.
#[track_caller]
fn is_unusable(
    file: &mut StateFile,
    connection: &Connection,
    is_expected: impl Fn(&StateFileError) -> bool,
) {
    for error in [
        file.check(connection).unwrap_err(),
        file.probe(connection).unwrap_err(),
    ] {
        assert!(is_expected(&error), "{error}");
    }
}

#[test]
fn a_state_that_is_moved_away_is_noticed_until_it_is_back() {
    let (above, mut file, mut connection) = filled();
    let (here, there) = (above.path().join("state"), above.path().join("there"));
    fs::rename(&here, &there).unwrap();
    is_unusable(&mut file, &connection, |error| {
        matches!(error, StateFileError::Gone { .. })
    });
    fs::rename(&there, &here).unwrap();
    file.probe(&connection).unwrap();
    write(&connection, 2).unwrap();
    assert!(!file.restore_if_deleted(&mut connection).unwrap());
}

#[test]
fn a_state_that_is_deleted_can_be_written_anew() {
    let (above, mut file, mut connection) = filled();
    let directory = above.path().join("state");
    let saved = contents(&connection);
    fs::remove_dir_all(&directory).unwrap();
    is_unusable(&mut file, &connection, |error| {
        matches!(error, StateFileError::Gone { .. })
    });
    assert!(file.restore_if_deleted(&mut connection).unwrap());
    file.probe(&connection).unwrap();
    assert_eq!(contents(&connection), saved);
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("state.sqlite")), 0o600);
    let second = StateFile::open(&directory);
    assert!(matches!(second, Err(StateFileError::InUse { .. })));
    drop((connection, file));
    assert_eq!(contents(&open(&directory).1), saved);
}

#[test]
fn another_state_in_its_place_is_noticed_and_left_alone() {
    let (above, mut file, mut connection) = filled();
    let directory = above.path().join("state");
    fs::remove_dir_all(&directory).unwrap();
    let (mut other, empty) = open(&directory);
    is_unusable(&mut file, &connection, |error| {
        matches!(error, StateFileError::Replaced { .. })
    });
    assert!(!file.restore_if_deleted(&mut connection).unwrap());
    drop((connection, file));
    other.probe(&empty).unwrap();
    assert!(is_empty(&empty));
}

#[test]
fn a_state_file_that_is_cut_is_noticed_and_not_filled_again() {
    for length in [0, 4_096] {
        let (above, mut file, mut connection) = filled();
        let path = above.path().join("state/state.sqlite");
        let cut = File::options().write(true).open(&path).unwrap();
        cut.set_len(length).unwrap();
        is_unusable(&mut file, &connection, |error| {
            matches!(error, StateFileError::Cut { .. })
        });
        assert!(!file.restore_if_deleted(&mut connection).unwrap());
        drop((connection, file));
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }
}

/// Has a state file that was some megabytes larger, with the pages that became free.
fn with_free_pages() -> (TempDir, StateFile, Connection) {
    let (above, file, connection) = filled();
    let fill = "INSERT INTO other_file WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number \
                WHERE n < 80000) SELECT 2, CAST(printf('d/%0200d.xml', n) AS BLOB), 1, 2, 3, 4, 5 FROM number";
    connection.execute_batch(fill).unwrap();
    let empty = "DELETE FROM other_file WHERE mount = 2";
    connection.execute_batch(empty).unwrap();
    (above, file, connection)
}

#[test]
fn an_operators_vacuum_is_no_damage() {
    let (above, mut file, connection) = with_free_pages();
    let path = above.path().join("state/state.sqlite");
    let size = || fs::metadata(&path).unwrap().len();
    let saved = contents(&connection);
    file.check(&connection).unwrap();
    let before = size();
    let operator = Connection::open(&path).unwrap();
    let vacuum = "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);";
    operator.execute_batch(vacuum).unwrap();
    drop(operator);
    let after = size();
    assert!(after < before / 2, "{before} {after}");
    for _ in 0..2 {
        file.check(&connection).unwrap();
        file.probe(&connection).unwrap();
    }
    assert_eq!(contents(&connection), saved);
    write(&connection, 2).unwrap();
    // It may be cut nevertheless.
    let cut = File::options().write(true).open(&path).unwrap();
    cut.set_len(after - 4_096).unwrap();
    is_unusable(&mut file, &connection, |error| {
        matches!(error, StateFileError::Cut { .. })
    });
}

#[test]
fn pages_that_became_free_are_given_back_a_few_at_a_time() {
    let (above, mut file, connection) = with_free_pages();
    let path = above.path().join("state/state.sqlite");
    let log = above.path().join("state/state.sqlite-wal");
    let size = || fs::metadata(&path).unwrap().len();
    let saved = contents(&connection);
    let before = size();
    assert!(fs::metadata(&log).unwrap().len() > before / 2);
    let steps = std::iter::from_fn(|| file.shrink(&connection)?.then_some(())).count();
    assert!(steps > 2, "{steps}");
    assert!(size() < before / 2, "{before} {}", size());
    file.check(&connection).unwrap();
    assert_eq!(contents(&connection), saved);
    write(&connection, 2).unwrap();
    let logged = fs::metadata(&log).unwrap().len();
    assert!(logged <= 4 << 20, "{logged}");
    file.check(&connection).unwrap();
}

#[test]
fn a_write_ahead_log_that_is_deleted_is_noticed() {
    let (above, mut file, mut connection) = filled();
    let saved = contents(&connection);
    file.check(&connection).unwrap();
    fs::remove_file(above.path().join("state/state.sqlite-wal")).unwrap();
    is_unusable(&mut file, &connection, |error| {
        matches!(error, StateFileError::Gone { .. })
    });
    assert!(!file.restore_if_deleted(&mut connection).unwrap());
    // Closing the file saves what was in it.
    drop((connection, file));
    assert_eq!(contents(&open(&above.path().join("state")).1), saved);
}
