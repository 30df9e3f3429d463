//! Hints from Linux's inotify. The observer reads the events itself while it waits for hints, so that no thread is woken
//! in between. While it is busy, a thread of their own reads them: the kernel's queue holds 16,384, and a burst fills it
//! in milliseconds.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::tree::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::tree::file_status;
use crate::tree::pending_hints::{LockedHints, NameHint, PendingHints};
use crate::tree::watches::{WatchDepth, WatchId};

/// Room for some ten thousand events.
const BUFFER: usize = 512 * 1024;

#[derive(Debug)]
pub struct Inotify {
    pub queue: Arc<InotifyQueue>,
    /// An eventfd that is written when hints come from elsewhere while the observer waits for events.
    bell: Arc<OwnedFd>,
    reader: Option<JoinHandle<()>>,
}

/// The kernel's queue.
#[derive(Debug)]
pub struct InotifyQueue {
    inotify: OwnedFd,
    /// Room for events.
    buffer: Mutex<Vec<MaybeUninit<u8>>>,
    hints: Arc<PendingHints>,
    /// True if the thread is to read instead of the observer; it is parked otherwise.
    is_read_by_thread: AtomicBool,
    /// An eventfd that is written to end the thread.
    stop: OwnedFd,
}

impl Inotify {
    pub fn start(hints: &Arc<PendingHints>) -> io::Result<Inotify> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(rustix::event::eventfd(0, flags)?);
        let queue = Arc::new(InotifyQueue {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            buffer: Mutex::new(vec![MaybeUninit::uninit(); BUFFER]),
            hints: Arc::clone(hints),
            is_read_by_thread: AtomicBool::new(false),
            stop: rustix::event::eventfd(0, flags)?,
        });
        let reader = {
            let queue = Arc::clone(&queue);
            let read = move || loop {
                if !queue.is_read_by_thread.load(Ordering::Relaxed) {
                    thread::park();
                } else if wait_for_either(&queue.inotify, &queue.stop, None) != Ok(false)
                    || !queue.read()
                {
                    return;
                }
            };
            thread::Builder::new().name("inotify".into()).spawn(read)?
        };
        let _ = hints.bell.set(Arc::clone(&bell));
        Ok(Inotify {
            queue,
            bell,
            reader: Some(reader),
        })
    }

    /// Reads events until there is a hint worth waking for, or until `deadline`. Without one the observer is busy, and the
    /// thread reads on.
    pub fn wait_for_hints(&self, deadline: Option<Instant>) {
        self.let_thread_read(deadline.is_none());
        let hints = &self.queue.hints;
        while self.queue.read() {
            let left = deadline.and_then(|at| at.checked_duration_since(Instant::now()));
            let Some(left) = left else { return };
            {
                let mut pending = lock(&hints.pending);
                if pending.is_news {
                    return;
                }
                pending.is_awaited = true;
            }
            let waited = wait_for_either(&self.queue.inotify, &self.bell, Some(left));
            lock(&hints.pending).is_awaited = false;
            match waited {
                Ok(false) => {}
                Ok(true) => drop(rustix::io::read(&self.bell, &mut [0; 8])),
                Err(error) => {
                    return hints.add_and_wake(|batch| batch.ended = Some(error.to_string()));
                }
            }
        }
    }

    fn let_thread_read(&self, is_to_read: bool) {
        let is_read_by_thread = &self.queue.is_read_by_thread;
        let was_reading = is_read_by_thread.swap(is_to_read, Ordering::Relaxed);
        if let Some(reader) = self.reader.as_ref().filter(|_| is_to_read && !was_reading) {
            reader.thread().unpark();
        }
    }

    /// Watches a directory for these events; `adds` to those that it was watched for before, or replaces them.
    pub fn watch(
        &self,
        path: &Path,
        follow: bool,
        events: WatchDepth,
        adds: bool,
    ) -> io::Result<WatchId> {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        if events == WatchDepth::NamesAndContent {
            // Never OPEN or ACCESS: on a web server they mean one event per request.
            flags |= WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY | WatchFlags::ATTRIB;
        }
        flags.set(WatchFlags::DONT_FOLLOW, !follow);
        flags.set(WatchFlags::MASK_ADD, adds);
        let key = inotify::add_watch(&self.queue.inotify, path, flags)?;
        Ok(WatchId(key))
    }

    pub fn remove(&self, key: WatchId) {
        // It fails if the directory is gone, and its watch with it.
        let _ = inotify::remove_watch(&self.queue.inotify, key.0);
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        // Eight bytes fit into an eventfd, and a panic of the reader has been printed already.
        let _ = rustix::io::write(&self.queue.stop, &1u64.to_ne_bytes());
        self.let_thread_read(true);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl InotifyQueue {
    /// Reads all events that the kernel has. Returns false if there will be no more.
    pub fn read(&self) -> bool {
        let mut buffer = lock(&self.buffer);
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let mut failed = None;
            self.hints.merge(|pending| {
                let mut is_more = true;
                while is_more {
                    match reader.next() {
                        Ok(event) => merge(pending, &event),
                        Err(error) => failed = Some(error),
                    }
                    is_more = !reader.is_buffer_empty();
                }
            });
            match failed {
                None | Some(Errno::INTR) => {}
                Some(Errno::WOULDBLOCK) => return true,
                Some(error) => {
                    let reason = file_status::reason(error);
                    self.hints.add_and_wake(|batch| batch.ended = Some(reason));
                    return false;
                }
            }
        }
    }
}

/// Waits until one of two descriptors can be read, or for no longer than `left`. Returns true if the other can.
fn wait_for_either(one: &OwnedFd, other: &OwnedFd, left: Option<Duration>) -> Result<bool, Errno> {
    let mut both = [
        PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN),
    ];
    // A time that is too long for the kernel's clock is for ever.
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match rustix::event::poll(&mut both, left.as_ref()) {
        Ok(_) => Ok(!both[1].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

fn merge(pending: &mut LockedHints, event: &inotify::Event<'_>) {
    let (key, happened) = (WatchId(event.wd()), event.events());
    if happened.contains(ReadFlags::QUEUE_OVERFLOW) {
        return pending.add_overflow();
    }
    let Some(name) = event.file_name() else {
        return pending.add_self_event(key, happened.contains(ReadFlags::ATTRIB));
    };
    let is_directory = happened.contains(ReadFlags::ISDIR);
    for (flag, event) in [
        (ReadFlags::CREATE, NameHint::RENAMED),
        (ReadFlags::MOVED_TO, NameHint::MOVED_IN),
        (ReadFlags::DELETE, NameHint::RENAMED),
        (ReadFlags::MOVED_FROM, NameHint::RENAMED),
        (ReadFlags::MODIFY, NameHint::WRITTEN),
        (ReadFlags::CLOSE_WRITE, NameHint::CLOSED),
        (ReadFlags::ATTRIB, NameHint::TOUCHED),
    ] {
        if happened.contains(flag) {
            pending.add_name(key, name.to_bytes(), event, is_directory);
        }
    }
}
