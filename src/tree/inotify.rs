//! Hints from Linux's inotify. One thread does nothing but read events into the hint set: the kernel's queue
//! holds 16,384 of them, and a burst fills it in milliseconds.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use inotify::{EventMask, WatchDescriptor, WatchMask};
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::announce::candidates::Candidates;
use crate::tree::hints::{Happened, Hints, Merging};
use crate::tree::watches::{Events, Key};

/// Room for some ten thousand events.
const BUFFER: usize = 512 * 1024;

#[derive(Debug)]
pub(super) struct Inotify {
    watches: inotify::Watches,
    descriptors: HashMap<Key, WatchDescriptor>,
    stop: Arc<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

impl Inotify {
    pub(super) fn start(hints: &Arc<Hints>, names: &Arc<Candidates>) -> io::Result<Inotify> {
        let inotify = inotify::Inotify::init()?;
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?);
        let watches = inotify.watches();
        let reader = {
            let (hints, names, stop) = (Arc::clone(hints), Arc::clone(names), Arc::clone(&stop));
            std::thread::Builder::new()
                .name("inotify".into())
                .spawn(move || {
                    if let Err(error) = read(inotify, &hints, &names, &stop) {
                        hints.end(error.to_string());
                    }
                })?
        };
        Ok(Inotify {
            watches,
            descriptors: HashMap::new(),
            stop,
            reader: Some(reader),
        })
    }

    /// Watches a directory for this at least, whatever it was watched for before.
    pub(super) fn add(&mut self, path: &Path, follow: bool, events: Events) -> io::Result<Key> {
        self.watch(path, follow, mask(events) | WatchMask::MASK_ADD)
    }

    /// Watches a directory for names that come and go, and no more.
    pub(super) fn reduce(&mut self, path: &Path) -> io::Result<Key> {
        self.watch(path, true, mask(Events::Names))
    }

    fn watch(&mut self, path: &Path, follow: bool, mut mask: WatchMask) -> io::Result<Key> {
        if !follow {
            mask |= WatchMask::DONT_FOLLOW;
        }
        let descriptor = self.watches.add(path, mask)?;
        let key = key_of(&descriptor);
        self.descriptors.insert(key, descriptor);
        Ok(key)
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(descriptor) = self.descriptors.remove(&key) {
            // It fails if the directory is gone, and its watch with it.
            let _ = self.watches.remove(descriptor);
        }
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        // Eight bytes fit into an eventfd, and a panic of the reader has been printed already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn mask(events: Events) -> WatchMask {
    let names = WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
        | WatchMask::EXCL_UNLINK;
    match events {
        Events::Names => names,
        // Never OPEN or ACCESS: on a web server they mean one event per request.
        Events::NamesAndContent => {
            names | WatchMask::CLOSE_WRITE | WatchMask::MODIFY | WatchMask::ATTRIB
        }
    }
}

fn key_of(descriptor: &WatchDescriptor) -> Key {
    Key(u64::from(
        descriptor.get_watch_descriptor_id().unsigned_abs(),
    ))
}

fn read(
    mut inotify: inotify::Inotify,
    hints: &Hints,
    names: &Candidates,
    stop: &OwnedFd,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match inotify.read_events(&mut buffer) {
            Ok(events) => hints.merge(|merging| {
                for event in events {
                    merge(merging, names, &event);
                }
            }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut ready = [
                    PollFd::from_borrowed_fd(inotify.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
                ];
                match rustix::event::poll(&mut ready, None) {
                    Ok(_) if !ready[1].revents().is_empty() => return Ok(()),
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn merge(merging: &mut Merging<'_>, names: &Candidates, event: &inotify::Event<&std::ffi::OsStr>) {
    if event.mask.contains(EventMask::Q_OVERFLOW) {
        merging.overflow();
        return;
    }
    let key = key_of(&event.wd);
    let Some(name) = event.name else {
        let is_touched = event.mask.contains(EventMask::ATTRIB);
        let happened = if is_touched {
            Happened::Touched
        } else {
            Happened::Gone
        };
        return merging.itself(key, happened);
    };
    let is_directory = event.mask.contains(EventMask::ISDIR);
    let happened = [
        (EventMask::CREATE, Happened::Created),
        (EventMask::MOVED_TO, Happened::MovedIn),
        (EventMask::DELETE, Happened::Gone),
        (EventMask::MOVED_FROM, Happened::Gone),
        (EventMask::MODIFY, Happened::Written),
        (EventMask::CLOSE_WRITE, Happened::Closed),
        (EventMask::ATTRIB, Happened::Touched),
    ];
    for (mask, happened) in happened {
        if event.mask.contains(mask) {
            merging.name(names, key, name.as_bytes(), happened, is_directory);
        }
    }
}
