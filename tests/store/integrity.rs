//! The state file belongs to its user only, and is monitored for deletion, replacement and truncation.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rsnotify::announce::state::Save;
use rsnotify::store::{Store, StoreError};
use tempfile::TempDir;

use crate::{everything, path, stat, time};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A state with something in it, below a directory that exists.
fn filled() -> (TempDir, Store) {
    let above = TempDir::new().unwrap();
    let mut store = Store::open(&above.path().join("state")).unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    (above, store)
}

#[test]
fn directory_lock_and_file_are_their_users_alone() {
    let above = TempDir::new().unwrap();
    let directory = above.path().join("above/state");
    let store = Store::open(&directory).unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_ne!(mode(&above.path().join("above")), 0o700);
    for name in ["lock", "state.sqlite"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
    drop(store);

    // One that is there stays as it is.
    fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    drop(Store::open(&directory).unwrap());
    assert_eq!(mode(&directory), 0o750);
}

#[test]
fn a_state_file_of_zero_bytes_is_no_first_start() {
    let (above, store) = filled();
    drop(store);
    let directory = above.path().join("state");
    File::create(directory.join("state.sqlite")).unwrap();
    for error in [
        Store::open(&directory).unwrap_err(),
        Store::open_to_read(&directory).unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Empty { .. }), "{error}");
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
    let store = Store::open(&directory).unwrap();
    assert!(store.load().unwrap().documents.is_empty());
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
    let store = Store::open(above.path()).unwrap();
    assert!(store.load().unwrap().documents.is_empty());
    assert!(!above.path().join("state.sqlite.new").exists());
}

/// Asserts that saving fails until the state file is back.
#[track_caller]
fn is_unusable(store: &mut Store, is_expected: impl Fn(&StoreError) -> bool) {
    for error in [
        store.check().unwrap_err(),
        store.probe().unwrap_err(),
        store.save(&everything(), &[], &[]).unwrap_err(),
    ] {
        assert!(is_expected(&error), "{error}");
    }
}

#[test]
fn a_state_that_is_moved_away_is_noticed_until_it_is_back() {
    let (above, mut store) = filled();
    let (here, there) = (above.path().join("state"), above.path().join("there"));
    fs::rename(&here, &there).unwrap();
    is_unusable(&mut store, |error| matches!(error, StoreError::Gone { .. }));
    fs::rename(&there, &here).unwrap();
    store.probe().unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    assert!(!store.recreate().unwrap());
}

#[test]
fn a_state_that_is_deleted_can_be_written_anew() {
    let (above, mut store) = filled();
    let directory = above.path().join("state");
    let saved = store.load().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    is_unusable(&mut store, |error| matches!(error, StoreError::Gone { .. }));
    assert!(store.recreate().unwrap());
    store.probe().unwrap();
    assert_eq!(store.load().unwrap(), saved);
    assert_eq!(mode(&directory), 0o700);
    let second = Store::open(&directory);
    assert!(matches!(second, Err(StoreError::InUse { .. })));
    drop(store);
    assert_eq!(Store::open(&directory).unwrap().load().unwrap(), saved);
}

#[test]
fn another_state_in_its_place_is_noticed_and_left_alone() {
    let (above, mut store) = filled();
    let directory = above.path().join("state");
    fs::remove_dir_all(&directory).unwrap();
    let mut other = Store::open(&directory).unwrap();
    is_unusable(&mut store, |error| {
        matches!(error, StoreError::Replaced { .. })
    });
    assert!(!store.recreate().unwrap());
    drop(store);
    other.probe().unwrap();
    assert!(other.load().unwrap().documents.is_empty());
}

#[test]
fn a_state_file_that_is_cut_is_noticed_and_not_filled_again() {
    for length in [0, 4_096] {
        let (above, mut store) = filled();
        let path = above.path().join("state/state.sqlite");
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        is_unusable(&mut store, |error| matches!(error, StoreError::Cut { .. }));
        assert!(!store.recreate().unwrap());
        drop(store);
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }
}

/// Has a state file that was some megabytes larger, with the pages that became free.
fn with_free_pages() -> (TempDir, Store) {
    let (above, mut store) = filled();
    let other_file = (stat(), time(9));
    let files = (0..80_000).map(|number| path(format!("d/{number}.xml").as_bytes()));
    let files: Vec<_> = files.collect();
    for row in [Some(other_file), None] {
        let rows = files.iter().map(|file| (file.clone(), row));
        let save = Save {
            other_files: rows.collect(),
            ..Save::default()
        };
        store.save(&save, &[], &[]).unwrap();
    }
    (above, store)
}

#[test]
fn an_operators_vacuum_is_no_damage() {
    let (above, mut store) = with_free_pages();
    let file = above.path().join("state/state.sqlite");
    let size = || fs::metadata(&file).unwrap().len();
    let saved = store.load().unwrap();
    store.check().unwrap();
    let before = size();
    let operator = rusqlite::Connection::open(&file).unwrap();
    let vacuum = "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);";
    operator.execute_batch(vacuum).unwrap();
    drop(operator);
    let after = size();
    assert!(after < before / 2, "{before} {after}");
    for _ in 0..2 {
        store.check().unwrap();
        store.probe().unwrap();
        store.save(&everything(), &[], &[]).unwrap();
    }
    assert_eq!(store.load().unwrap(), saved);
    // It may be cut nevertheless.
    let cut = File::options().write(true).open(&file).unwrap();
    cut.set_len(after - 4_096).unwrap();
    is_unusable(&mut store, |error| matches!(error, StoreError::Cut { .. }));
}

#[test]
fn pages_that_became_free_are_given_back_a_few_at_a_time() {
    let (above, mut store) = with_free_pages();
    let file = above.path().join("state/state.sqlite");
    let size = || fs::metadata(&file).unwrap().len();
    let saved = store.load().unwrap();
    let before = size();
    let steps = std::iter::from_fn(|| store.shrink().then_some(())).count();
    assert!(steps > 2, "{steps}");
    assert!(size() < before / 2, "{before} {}", size());
    store.check().unwrap();
    store.save(&everything(), &[], &[]).unwrap();
    assert_eq!(store.load().unwrap(), saved);
}

#[test]
fn a_write_ahead_log_that_is_deleted_is_noticed() {
    let (above, mut store) = filled();
    let saved = store.load().unwrap();
    store.check().unwrap();
    fs::remove_file(above.path().join("state/state.sqlite-wal")).unwrap();
    is_unusable(&mut store, |error| matches!(error, StoreError::Gone { .. }));
    assert!(!store.recreate().unwrap());
    // Closing the file saves what was in it.
    drop(store);
    let again = Store::open(&above.path().join("state")).unwrap();
    assert_eq!(again.load().unwrap(), saved);
}
