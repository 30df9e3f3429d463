//! Hints from the `notify` crate, for systems without inotify: one watch per directory, never recursive,
//! since the crate loses what is created in directories while it learns of them.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::tree::lock;
use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::tree::pending_hints::{LockedHints, NameHint, PendingHints};
use crate::tree::watches::WatchId;

/// True if the system says when a file that was written is closed.
const SAYS_CLOSED: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The watches by their paths, which events have.
type Keys = HashMap<PathBuf, WatchId>;

#[derive(Debug)]
pub struct NotifyCrateBackend {
    watcher: RecommendedWatcher,
    keys: Arc<Mutex<Keys>>,
    paths: HashMap<WatchId, PathBuf>,
    next: i32,
}

impl NotifyCrateBackend {
    pub fn start(hints: &Arc<PendingHints>) -> Result<NotifyCrateBackend, notify::Error> {
        let keys = Arc::<Mutex<Keys>>::default();
        let (hints, known) = (Arc::clone(hints), Arc::clone(&keys));
        let read = move |event| merge(event, &hints, &known);
        Ok(NotifyCrateBackend {
            watcher: notify::recommended_watcher(read)?,
            keys,
            paths: HashMap::new(),
            next: 0,
        })
    }

    pub fn add(&mut self, path: &Path) -> io::Result<WatchId> {
        let key = *lock(&self.keys).entry(path.to_owned()).or_insert_with(|| {
            self.next += 1;
            WatchId(self.next)
        });
        self.paths.insert(key, path.to_owned());
        let Err(error) = self.watcher.watch(path, RecursiveMode::NonRecursive) else {
            return Ok(key);
        };
        lock(&self.keys).remove(path);
        self.paths.remove(&key);
        Err(match error.kind {
            notify::ErrorKind::MaxFilesWatch => io::ErrorKind::StorageFull.into(),
            notify::ErrorKind::Io(error) => error,
            _ => io::Error::other(error),
        })
    }

    pub fn remove(&mut self, key: WatchId) {
        if let Some(path) = self.paths.remove(&key) {
            // It fails if the directory is gone, and its watch with it.
            let _ = self.watcher.unwatch(&path);
            lock(&self.keys).remove(&path);
        }
    }
}

fn merge(event: notify::Result<notify::Event>, hints: &PendingHints, keys: &Mutex<Keys>) {
    let Ok(event) = event else {
        // The error does not say which events were lost.
        hints.merge(LockedHints::add_overflow);
        return;
    };
    if event.need_rescan() {
        hints.merge(LockedHints::add_overflow);
    }
    // Whether a watched directory itself was touched, moved, or is gone.
    let mut is_about_itself = !SAYS_CLOSED;
    let happened = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => NameHint::CLOSED,
        EventKind::Access(_) => return,
        _ if !SAYS_CLOSED => NameHint::UNCLEAR,
        EventKind::Create(_) => NameHint::RENAMED,
        EventKind::Modify(ModifyKind::Name(RenameMode::To)) => NameHint::MOVED_IN,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
            is_about_itself = true;
            NameHint::RENAMED
        }
        // It repeats the two above.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return,
        EventKind::Modify(ModifyKind::Data(_)) => NameHint::WRITTEN,
        EventKind::Modify(ModifyKind::Metadata(_)) => {
            is_about_itself = true;
            NameHint::TOUCHED
        }
        EventKind::Modify(_) | EventKind::Any | EventKind::Other => NameHint::UNCLEAR,
    };
    let keys = lock(keys);
    hints.merge(|pending| {
        for path in &event.paths {
            if let Some(key) = keys.get(path)
                && is_about_itself
            {
                pending.add_self_event(*key, happened.touched);
            }
            if let (Some(parent), Some(name)) = (path.parent(), path.file_name())
                && let Some(key) = keys.get(parent)
            {
                // The crate does not always say whether it is a directory.
                pending.add_name(*key, name.as_bytes(), happened, true);
            }
        }
    });
}
