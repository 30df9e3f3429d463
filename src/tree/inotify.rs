//! Hints from Linux's inotify. The observer reads the events itself while it waits for hints, so that no thread is woken
//! in between. While it is busy, a thread of their own reads them: the kernel's queue holds 16,384, and a burst fills it
//! in milliseconds.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inotify::{EventMask, WatchDescriptor, WatchMask};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::announce::candidates::Candidates;
use crate::tree::pending_hints::{NameEvent, PendingBatch, PendingHints};
use crate::tree::watches::{WatchKey, WatchedEvents};

/// Room for some ten thousand events.
const BUFFER: usize = 512 * 1024;

#[derive(Debug)]
pub struct Inotify {
    watches: inotify::Watches,
    descriptors: HashMap<WatchKey, WatchDescriptor>,
    pub queue: Arc<InotifyQueue>,
    /// An eventfd that is written when hints come from elsewhere while the observer waits for events.
    bell: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    stand_in: Arc<StandIn>,
    reader: Option<JoinHandle<()>>,
}

/// The kernel's queue.
#[derive(Debug)]
pub struct InotifyQueue {
    /// A descriptor to poll while another thread reads.
    ready: OwnedFd,
    /// The kernel's side, and room for events.
    reading: Mutex<(inotify::Inotify, Vec<u8>)>,
    hints: Arc<PendingHints>,
    candidates: Arc<Candidates>,
}

/// Signal to the thread to read instead of the observer.
#[derive(Debug, Default)]
struct StandIn {
    state: Mutex<StandInState>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum StandInState {
    #[default]
    Idle,
    Reading,
    Stopped,
}

impl Inotify {
    pub fn start(hints: &Arc<PendingHints>, candidates: &Arc<Candidates>) -> io::Result<Inotify> {
        let inotify = inotify::Inotify::init()?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Arc::new(rustix::event::eventfd(0, flags)?);
        let bell = Arc::new(rustix::event::eventfd(0, flags)?);
        let watches = inotify.watches();
        let queue = Arc::new(InotifyQueue {
            ready: inotify.as_fd().try_clone_to_owned()?,
            reading: Mutex::new((inotify, vec![0; BUFFER])),
            hints: Arc::clone(hints),
            candidates: Arc::clone(candidates),
        });
        let stand_in = Arc::new(StandIn::default());
        let reader = {
            let (queue, stand_in, stop) =
                (Arc::clone(&queue), Arc::clone(&stand_in), Arc::clone(&stop));
            std::thread::Builder::new()
                .name("inotify".into())
                .spawn(move || {
                    while stand_in.await_work() {
                        if !queue.read() || wait(&queue.ready, &stop, None).is_err() {
                            return;
                        }
                    }
                })?
        };
        hints.set_bell(Arc::clone(&bell));
        Ok(Inotify {
            watches,
            descriptors: HashMap::new(),
            queue,
            bell,
            stop,
            stand_in,
            reader: Some(reader),
        })
    }

    /// Reads events until there is a hint worth waking for, or until `deadline`. Without one the observer is busy, and the
    /// thread reads on.
    pub fn wait(&self, deadline: Option<Instant>) {
        self.stand_in.set(match deadline {
            None => StandInState::Reading,
            Some(_) => StandInState::Idle,
        });
        let hints = &self.queue.hints;
        while self.queue.read() {
            let left = deadline.and_then(|at| at.checked_duration_since(Instant::now()));
            let Some(left) = left else { return };
            if !hints.begin_waiting() {
                return;
            }
            let waited = wait(&self.queue.ready, &self.bell, Some(left));
            hints.end_waiting();
            match waited {
                Ok(false) => {}
                Ok(true) => drop(rustix::io::read(&self.bell, &mut [0; 8])),
                Err(error) => return hints.ask(|batch| batch.ended = Some(error.to_string())),
            }
        }
    }

    /// Watches a directory for these events; `adds` to those that it was watched for before, or replaces them.
    pub fn watch(
        &mut self,
        path: &Path,
        follow: bool,
        events: WatchedEvents,
        adds: bool,
    ) -> io::Result<WatchKey> {
        let mut mask = mask(events);
        mask.set(WatchMask::DONT_FOLLOW, !follow);
        mask.set(WatchMask::MASK_ADD, adds);
        let descriptor = self.watches.add(path, mask)?;
        let key = key_of(&descriptor);
        self.descriptors.insert(key, descriptor);
        Ok(key)
    }

    pub fn remove(&mut self, key: WatchKey) {
        if let Some(descriptor) = self.descriptors.remove(&key) {
            // It fails if the directory is gone, and its watch with it.
            let _ = self.watches.remove(descriptor);
        }
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        self.stand_in.set(StandInState::Stopped);
        // Eight bytes fit into an eventfd, and a panic of the reader has been printed already.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn mask(events: WatchedEvents) -> WatchMask {
    let names = WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
        | WatchMask::EXCL_UNLINK;
    match events {
        WatchedEvents::Names => names,
        // Never OPEN or ACCESS: on a web server they mean one event per request.
        WatchedEvents::NamesAndContent => {
            names | WatchMask::CLOSE_WRITE | WatchMask::MODIFY | WatchMask::ATTRIB
        }
    }
}

fn key_of(descriptor: &WatchDescriptor) -> WatchKey {
    WatchKey(u64::from(
        descriptor.get_watch_descriptor_id().unsigned_abs(),
    ))
}

impl InotifyQueue {
    /// Reads all events that the kernel has. Returns false if there will be no more.
    pub fn read(&self) -> bool {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (inotify, buffer) = &mut *reading;
        loop {
            match inotify.read_events(buffer) {
                Ok(events) => self.hints.merge(|pending| {
                    for event in events {
                        merge(pending, &self.candidates, &event);
                    }
                }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.hints
                        .ask(|batch| batch.ended = Some(error.to_string()));
                    return false;
                }
            }
        }
    }
}

impl StandIn {
    fn set(&self, wanted: StandInState) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state != wanted {
            *state = wanted;
            self.changed.notify_one();
        }
    }

    /// Waits until the thread is to read. Returns false once it is to end.
    fn await_work(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |state: &mut StandInState| *state == StandInState::Idle;
        let state = self.changed.wait_while(state, is_idle);
        *state.unwrap_or_else(PoisonError::into_inner) == StandInState::Reading
    }
}

/// Waits until one of two descriptors can be read, or for no longer than `left`. Returns true if the other can.
fn wait(ready: &OwnedFd, other: &OwnedFd, left: Option<Duration>) -> Result<bool, Errno> {
    let mut both = [
        PollFd::from_borrowed_fd(ready.as_fd(), PollFlags::IN),
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

fn merge(
    pending: &mut PendingBatch,
    candidates: &Candidates,
    event: &inotify::Event<&std::ffi::OsStr>,
) {
    if event.mask.contains(EventMask::Q_OVERFLOW) {
        pending.overflow();
        return;
    }
    let key = key_of(&event.wd);
    let Some(name) = event.name else {
        let is_touched = event.mask.contains(EventMask::ATTRIB);
        let happened = if is_touched {
            NameEvent::Touched
        } else {
            NameEvent::Gone
        };
        return pending.itself(key, happened);
    };
    let is_directory = event.mask.contains(EventMask::ISDIR);
    let happened = [
        (EventMask::CREATE, NameEvent::Created),
        (EventMask::MOVED_TO, NameEvent::MovedIn),
        (EventMask::DELETE, NameEvent::Gone),
        (EventMask::MOVED_FROM, NameEvent::Gone),
        (EventMask::MODIFY, NameEvent::Written),
        (EventMask::CLOSE_WRITE, NameEvent::Closed),
        (EventMask::ATTRIB, NameEvent::Touched),
    ];
    for (mask, happened) in happened {
        if event.mask.contains(mask) {
            pending.name(candidates, key, name.as_bytes(), happened, is_directory);
        }
    }
}
