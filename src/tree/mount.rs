//! Is the tree there, is it the same tree as before, and what does its file system promise?

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jiff::Timestamp;

use crate::announce::observation::{DocumentPath, Identity, MountId, Stat};
use crate::tree::looker::Looker;
use crate::tree::model::{DirectoryId, FileId, Queued};
use crate::tree::stat::{self, Kind};
use crate::tree::watches::{Key, Named};
use crate::tree::{Notice, Report, WatchMode};

/// A mount of the settings, and what is going on there.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) id: MountId,
    pub(super) directory: PathBuf,
    pub(super) root: DirectoryId,
    /// The root while it is present.
    pub(super) identity: Option<Identity>,
    /// What was said when it was lost.
    pub(super) lost: Option<String>,
    pub(super) file_system: FileSystem,
    /// The watch of the directory that holds the root, with the root's name there.
    pub(super) parent_watch: Option<(Key, Box<[u8]>)>,
    /// Some directory of it gives no hints, so that it is swept at the shorter interval.
    pub(super) is_polled: bool,
    /// A directory of it could not be watched in the sweep that goes on.
    pub(super) has_unwatched: bool,
    pub(super) sweep: Option<Sweep>,
    /// Whether it was swept to its end since it was found.
    pub(super) was_swept: bool,
    pub(super) next_sweep: Instant,
    /// Files read by an earlier run, or lost with the mount, that have not been met yet.
    pub(super) known: HashMap<Box<[u8]>, Ghost>,
    /// Paths asked for that a sweep may still meet.
    pub(super) asked: HashSet<DocumentPath>,
}

/// A file that was there once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ghost {
    /// Its stat data and when it was read, if it could be read.
    pub(super) read: Option<(Stat, Timestamp)>,
    pub(super) is_told_denied: bool,
}

/// A sweep that goes on.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Directories to be listed.
    pub(super) directories: VecDeque<DirectoryId>,
    /// Files to be read before the sweep is done.
    pub(super) files: VecDeque<FileId>,
    /// Files that changed too shortly before to be read yet, and when they may be: the first sweep of a
    /// mount waits for them, so that a tree that was just written has a whole baseline (R13).
    pub(super) unsettled: VecDeque<(FileId, Instant)>,
    pub(super) met: u64,
    pub(super) started: Instant,
    pub(super) told: Instant,
}

/// What decides how a tree is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FileSystem {
    /// All its changes pass through this kernel, so that it can tell of them.
    pub(super) is_local: bool,
    /// A file that was looked at gets another `ctime` with the next change, however soon.
    pub(super) has_sharp_times: bool,
}

/// What the file system at this path promises. What is not known promises nothing.
#[cfg(target_os = "linux")]
pub(super) fn file_system(path: &Path) -> FileSystem {
    const EXT: u32 = 0xEF53;
    const XFS: u32 = 0x5846_5342;
    const BTRFS: u32 = 0x9123_683E;
    const TMPFS: u32 = 0x0102_1994;
    const LOCAL: [u32; 17] = [
        EXT,
        XFS,
        BTRFS,
        TMPFS,
        0x794C_7630, // overlayfs
        0x8584_58F6, // ramfs
        0xF2F5_2010, // f2fs
        0x2FC1_2FC1, // zfs
        0xCA45_1A4E, // bcachefs
        0x5265_4973, // reiserfs
        0x3153_464A, // jfs
        0x3434,      // nilfs
        0x4D44,      // vfat
        0x2011_BAB0, // exfat
        0x7366_746E, // ntfs3
        0xE0F5_E1E2, // erofs
        0x7371_7368, // squashfs
    ];
    let Ok(found) = rustix::fs::statfs(path) else {
        return FileSystem::default();
    };
    // The field is signed on some systems, and the number 32 bits wide on all.
    let Ok(magic) = u32::try_from(found.f_type as u64 & 0xFFFF_FFFF) else {
        return FileSystem::default();
    };
    FileSystem {
        is_local: LOCAL.contains(&magic),
        has_sharp_times: [EXT, XFS, BTRFS, TMPFS].contains(&magic) && has_multigrain_timestamps(),
    }
}

/// Elsewhere `notify` knows best.
#[cfg(not(target_os = "linux"))]
pub(super) fn file_system(_: &Path) -> FileSystem {
    FileSystem {
        is_local: true,
        has_sharp_times: false,
    }
}

/// Since Linux 6.13 a change after a `stat` gets a `ctime` of its own.
#[cfg(target_os = "linux")]
fn has_multigrain_timestamps() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 13)
}

/// Now, on the clock that `ctime` is taken from: it lags behind the exact one by up to a tick.
pub(super) fn coarse_now() -> Timestamp {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(clock);
    i32::try_from(now.tv_nsec)
        .ok()
        .and_then(|nanoseconds| Timestamp::new(now.tv_sec, nanoseconds).ok())
        .unwrap_or_else(Timestamp::now)
}

impl Mount {
    pub(super) fn new(
        id: MountId,
        directory: PathBuf,
        root: DirectoryId,
        known: HashMap<Box<[u8]>, Ghost>,
    ) -> Mount {
        Mount {
            id,
            directory,
            root,
            identity: None,
            lost: None,
            file_system: FileSystem::default(),
            parent_watch: None,
            is_polled: true,
            has_unwatched: false,
            sweep: None,
            was_swept: false,
            next_sweep: Instant::now(),
            known,
            asked: HashSet::new(),
        }
    }

    pub(super) fn path(&self, below: &[u8]) -> DocumentPath {
        DocumentPath {
            mount: self.id,
            below: below.into(),
        }
    }
}

impl Looker<'_> {
    pub(super) fn check_mounts(&mut self) {
        for at in 0..self.mounts.len() {
            self.check_mount(at);
        }
    }

    /// Looks whether a mount is there, and is what it was.
    pub(super) fn check_mount(&mut self, at: usize) {
        self.watch_parent(at);
        match stat::follow(&self.mounts[at].directory) {
            Ok(status) if status.kind != Kind::Directory => {
                self.lose_mount(at, "it is not a directory".into());
            }
            Ok(status) if self.mounts[at].identity == Some(status.identity) => {}
            Ok(status) => {
                if self.mounts[at].identity.is_some() {
                    self.lose_mount(at, "another directory took its place".into());
                }
                // While it cannot be listed, it is not there.
                match std::fs::read_dir(&self.mounts[at].directory) {
                    Ok(_) => self.find_mount(at, status.identity),
                    Err(error) => self.lose_mount(at, error.to_string()),
                }
            }
            Err(error) => self.lose_mount(at, stat::reason(error)),
        }
    }

    /// As [`Looker::check_mount`], after an event that may have ended the watch of its root.
    pub(super) fn check_mount_again(&mut self, at: usize) {
        self.check_mount(at);
        self.queue_directory(self.mounts[at].root, Queued::WithAllBeneath);
    }

    pub(super) fn lose_mount(&mut self, at: usize, reason: String) {
        let mount = &mut self.mounts[at];
        let was_there = mount.identity.take().is_some();
        let is_told = mount
            .lost
            .replace(reason.clone())
            .is_some_and(|told| told == reason);
        if was_there {
            self.end_sweep(at, false);
            for id in self.model.beneath(self.mounts[at].root) {
                self.unwatch(id);
                self.denied.remove(&id);
            }
        }
        if was_there || !is_told {
            let mount = self.mounts[at].id;
            self.send(Report::MountLost { mount, reason });
        }
    }

    fn find_mount(&mut self, at: usize, identity: Identity) {
        let started = coarse_now();
        let mount = &mut self.mounts[at];
        mount.identity = Some(identity);
        mount.lost = None;
        mount.was_swept = false;
        mount.file_system = file_system(&mount.directory);
        let (id, directory) = (mount.id, mount.directory.clone());
        self.send(Report::MountFound {
            mount: id,
            identity,
            started,
        });
        let hints = self.gives_hints(at);
        self.mounts[at].is_polled = !hints;
        match self.watches.backend().filter(|_| hints) {
            Some(backend) => self.notice(Notice::Watching { directory, backend }),
            None => {
                let reason = match self.settings.watch {
                    WatchMode::Poll => "the configuration says so",
                    _ if self.watches.backend().is_none() => "nothing can be watched",
                    _ => "its file system is not known to be local",
                };
                self.notice(Notice::Polling {
                    directory,
                    reason: reason.into(),
                    interval: self.settings.poll_interval,
                });
            }
        }
        self.start_sweep(at);
    }

    /// Watches the directory that holds a mount's root, to notice at once when another takes its place.
    fn watch_parent(&mut self, at: usize) {
        let mount = &self.mounts[at];
        let (Some(parent), Some(name)) = (mount.directory.parent(), mount.directory.file_name())
        else {
            return;
        };
        if self.settings.watch == WatchMode::Poll || self.watches.backend().is_none() {
            return;
        }
        // Where this fails, the look each second remains.
        let name: Box<[u8]> = name.as_bytes().into();
        let found = self.watches.add_name(parent, &name, Named::Mount(at)).ok();
        let before = self.mounts[at].parent_watch.take();
        if let Some((key, name)) = before.filter(|(key, _)| Some(*key) != found) {
            self.watches.remove_name(key, &name, Named::Mount(at));
        }
        self.mounts[at].parent_watch = found.map(|key| (key, name));
    }
}

impl Sweep {
    /// When it can go on; at once, unless all that is left is to wait.
    pub(super) fn goes_on_at(&self) -> Option<Instant> {
        if self.files.is_empty() && self.directories.is_empty() {
            self.unsettled.front().map(|(_, at)| *at)
        } else {
            None
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.goes_on_at().is_none_or(|at| at <= Instant::now())
    }
}
