//! Watches of whichever backend there is: which directory, link or mount each stands for, what is watched, and what is done
//! about what cannot be; limits of the system on watches, and how an operator raises them.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::tree::lock;

use crate::tree::file::TrackedFile;
use crate::tree::file_status::ALL_WRITE_HERE;
use crate::tree::model::{DirectorySlot, FileSlot};
use crate::tree::notify::NotifyCrateBackend;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::{DirectoryHints, HintBatch, NameHint, PendingHints};
use crate::tree::{TreeError, TreeNotice, TreeSettings, WatchMode};

#[cfg(target_os = "linux")]
use crate::tree::inotify::Inotify;

/// One watch of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchId(pub i32);

/// The watch of one name: that of the directory which has it, and the name there.
pub type NameWatch = (WatchId, Box<[u8]>);

/// Reason why a name in a watched directory matters, though the directory may not be part of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameWatchReason {
    /// A link to a file ends there.
    Link(FileSlot),
    /// The root of this mount has that name.
    Mount(usize),
}

/// Events that a directory is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchDepth {
    /// Names that come and go: enough to notice a root that is replaced. A busy log beside it wakes nobody.
    Names,
    NamesAndContent,
}

/// The meaning of a watch. A directory that is reached by several paths has one watch.
#[derive(Debug, Default)]
pub struct WatchPurpose {
    pub directories: Vec<DirectorySlot>,
    pub named: HashMap<Box<[u8]>, Vec<NameWatchReason>>,
    /// Events that the backend was asked for; more than are needed, if some were given up.
    asked: Option<WatchDepth>,
}

impl WatchPurpose {
    /// Returns the hints about the names that matter for themselves. An event about the directory itself, or too many to
    /// tell apart, may concern each of them.
    pub fn hints_of_names(&self, hints: &DirectoryHints) -> Vec<(NameWatchReason, NameHint)> {
        let lost = (hints.itself || hints.everything).then_some(&NameHint::RENAMED);
        let hinted = self.named.iter().filter_map(|(name, all)| {
            let hint = *hints.names.get(name).or(lost)?;
            Some(all.iter().map(move |named| (*named, hint)))
        });
        hinted.flatten().collect()
    }

    fn events(&self) -> WatchDepth {
        let is_link = |named: &NameWatchReason| matches!(named, NameWatchReason::Link(_));
        if self.directories.is_empty() && !self.named.values().flatten().any(is_link) {
            WatchDepth::Names
        } else {
            WatchDepth::NamesAndContent
        }
    }
}

#[derive(Debug)]
pub struct Watches {
    backend: Backend,
    pub hints: Arc<PendingHints>,
    /// True if it was reported that no more directories can be watched.
    pub is_exhaustion_reported: bool,
}

#[derive(Debug)]
enum Backend {
    None,
    #[cfg(target_os = "linux")]
    Inotify(Inotify),
    Notify(NotifyCrateBackend),
}

impl Watches {
    pub fn none() -> Watches {
        Watches {
            backend: Backend::None,
            hints: Arc::default(),
            is_exhaustion_reported: false,
        }
    }

    /// Starts the backend that the settings ask for. `Auto` does without one rather than fail.
    pub fn start(settings: &TreeSettings, hints: &Arc<PendingHints>) -> Result<Watches, TreeError> {
        let failed = |backend, source| Err(TreeError::Backend { backend, source });
        let backend = match settings.watch {
            WatchMode::Poll => Backend::None,
            #[cfg(target_os = "linux")]
            WatchMode::Auto | WatchMode::Inotify => match Inotify::start(hints) {
                Ok(inotify) => Backend::Inotify(inotify),
                Err(source) if settings.watch == WatchMode::Inotify => {
                    return failed("inotify", source.into());
                }
                Err(_) => Backend::None,
            },
            #[cfg(not(target_os = "linux"))]
            WatchMode::Inotify => return failed("inotify", "this system has none".into()),
            _ => match NotifyCrateBackend::start(hints) {
                Ok(notify) => Backend::Notify(notify),
                Err(source) => return failed("notify", source.into()),
            },
        };
        Ok(Watches {
            backend,
            hints: Arc::clone(hints),
            ..Watches::none()
        })
    }

    /// Returns the backend's name, if there is one.
    pub fn backend_name(&self) -> Option<&'static str> {
        match self.backend {
            Backend::None => None,
            #[cfg(target_os = "linux")]
            Backend::Inotify(_) => Some("inotify"),
            Backend::Notify(_) => Some("notify"),
        }
    }

    /// Takes hints, waiting for some until `deadline`. Without one, the observer is busy: another thread reads the kernel's
    /// events; otherwise only the observer is woken.
    pub fn take(&self, deadline: Option<Instant>) -> HintBatch {
        match &self.backend {
            #[cfg(target_os = "linux")]
            Backend::Inotify(inotify) => {
                inotify.wait_for_hints(deadline);
                self.hints.take(None)
            }
            Backend::None | Backend::Notify(_) => self.hints.take(deadline),
        }
    }

    /// Has the hints tell all events that there are until now.
    pub fn read_events(&self) {
        #[cfg(target_os = "linux")]
        if let Backend::Inotify(inotify) = &self.backend {
            inotify.queue.read();
        }
    }

    /// Gives the backend up: nothing is watched from here on.
    pub fn drop_backend(&mut self) {
        self.backend = Backend::None;
        lock(&self.hints.pending).watched.clear();
    }

    /// Watches a directory of the tree. Repeated, it restores a watch that was lost.
    pub fn add(&mut self, path: &Path, follow: bool, id: DirectorySlot) -> io::Result<WatchId> {
        let key = self.add_to_backend(path, follow, WatchDepth::NamesAndContent)?;
        let mut pending = lock(&self.hints.pending);
        let watched = pending.watched.entry(key).or_default();
        watched.asked = Some(WatchDepth::NamesAndContent);
        if !watched.directories.contains(&id) {
            watched.directories.push(id);
        }
        Ok(key)
    }

    /// Watches a path by its name in the directory above it, which need not be part of the tree. Returns nothing where
    /// that fails: what is watched so is checked each second too.
    pub fn add_name(&mut self, path: &Path, named: NameWatchReason) -> Option<NameWatch> {
        let (directory, name) = (path.parent()?, path.file_name()?.as_bytes());
        let events = match named {
            NameWatchReason::Link(_) => WatchDepth::NamesAndContent,
            NameWatchReason::Mount(_) => WatchDepth::Names,
        };
        let key = self.add_to_backend(directory, true, events).ok()?;
        let asks_too_much = {
            let mut pending = lock(&self.hints.pending);
            let watched = pending.watched.entry(key).or_default();
            watched.asked = watched.asked.max(Some(events));
            let all = watched.named.entry(name.into()).or_default();
            if !all.contains(&named) {
                all.push(named);
            }
            watched.asked > Some(watched.events())
        };
        if asks_too_much {
            self.reduce_events(key, directory);
        }
        Some((key, name.into()))
    }

    pub fn remove(&mut self, key: WatchId, directory: DirectorySlot) {
        self.remove_purpose(key, |watched| {
            watched.directories.retain(|it| *it != directory);
        });
    }

    pub fn remove_name(&mut self, (key, name): &NameWatch, named: NameWatchReason) {
        self.remove_purpose(*key, |watched| {
            if let Some(all) = watched.named.get_mut(name) {
                all.retain(|it| *it != named);
                if all.is_empty() {
                    watched.named.remove(name);
                }
            }
        });
    }

    /// Takes a meaning from a watch, and gives up a watch without any.
    fn remove_purpose(&mut self, key: WatchId, forget: impl FnOnce(&mut WatchPurpose)) {
        {
            let all = &mut lock(&self.hints.pending).watched;
            let Some(watched) = all.get_mut(&key) else {
                return;
            };
            forget(watched);
            if !(watched.directories.is_empty() && watched.named.is_empty()) {
                return;
            }
            all.remove(&key);
        }
        match &mut self.backend {
            Backend::None => {}
            #[cfg(target_os = "linux")]
            Backend::Inotify(inotify) => inotify.remove(key),
            Backend::Notify(notify) => notify.remove(key),
        }
    }

    /// Gives up the events of a watch that are no longer needed.
    fn reduce_events(&mut self, key: WatchId, path: &Path) {
        let reduced = match &mut self.backend {
            #[cfg(target_os = "linux")]
            Backend::Inotify(inotify) => inotify.watch(path, true, WatchDepth::Names, false).ok(),
            // The `notify` crate has no selection of events.
            Backend::None | Backend::Notify(_) => Some(key),
        };
        // Where another directory has come in its place, the next check of the mount detects it.
        if reduced == Some(key) {
            let all = &mut lock(&self.hints.pending).watched;
            all.entry(key)
                .and_modify(|it| it.asked = Some(WatchDepth::Names));
        }
    }

    /// Has the backend watch a directory. The error is of the kind `StorageFull` if the system allows no more watches.
    fn add_to_backend(
        &mut self,
        path: &Path,
        follow: bool,
        events: WatchDepth,
    ) -> io::Result<WatchId> {
        match &mut self.backend {
            Backend::None => Err(ErrorKind::Unsupported.into()),
            #[cfg(target_os = "linux")]
            Backend::Inotify(inotify) => inotify.watch(path, follow, events, true),
            Backend::Notify(notify) => notify.add(path),
        }
    }
}

impl Observer<'_> {
    /// Returns true if the kernel can be asked to report the changes of the mount at this position, and may be.
    pub fn mount_gives_hints(&self, at: usize) -> bool {
        self.settings.watch.trusts(self.mounts[at].file_system)
            && self.watches.backend_name().is_some()
    }

    /// Decides whether a mount that was found is watched or polled, and reports that.
    pub fn choose_watch_or_poll(&mut self, at: usize) {
        let gives_hints = self.mount_gives_hints(at);
        let mount = &mut self.mounts[at];
        mount.is_polled = !gives_hints;
        let directory = mount.directory.clone();
        let backend = self.watches.backend_name();
        self.reports.notice(match backend.filter(|_| gives_hints) {
            Some(backend) => TreeNotice::Watching { directory, backend },
            None => TreeNotice::Polling {
                directory,
                reason: match self.settings.watch {
                    WatchMode::Poll => "the configuration says so".into(),
                    _ if backend.is_none() => "nothing can be watched".into(),
                    _ => format!("its file system is not known to be local{ALL_WRITE_HERE}"),
                },
                interval: self.settings.poll_interval,
            },
        });
    }

    /// Watches a directory. Repeated, it restores a watch that was lost.
    pub fn watch(&mut self, id: DirectorySlot, path: &Path, at: usize) {
        let gives_hints = self.mount_gives_hints(at);
        let Some(directory) = self.model.directory(id).filter(|_| gives_hints) else {
            return;
        };
        let (is_link, before) = (directory.is_link, directory.watch);
        let (mount, interval) = (&mut self.mounts[at], self.settings.poll_interval);
        let is_auto = self.settings.watch == WatchMode::Auto;
        let news = if is_auto && self.model.is_on_remote_device(id) {
            mount.mark_polled().then(|| TreeNotice::Polling {
                directory: mount.directory.clone(),
                reason: format!(
                    "{} lies on a file system that is not known to be local{ALL_WRITE_HERE}",
                    path.display()
                ),
                interval,
            })
        } else {
            match self.watches.add(path, is_link, id) {
                Ok(key) if before == Some(key) => return,
                Ok(key) => {
                    self.unwatch(id);
                    // Events that closed files may have come before.
                    self.model.forget_writers_in(id);
                    if let Some(directory) = self.model.directory_mut(id) {
                        directory.watch = Some(key);
                    }
                    return;
                }
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    mount.lack_watch();
                    let is_news = !self.watches.is_exhaustion_reported;
                    self.watches.is_exhaustion_reported = true;
                    let limit = is_news.then(SystemLimit::watches);
                    limit.map(|limit| TreeNotice::WatchesRanOut { limit, interval })
                }
                // Removed since it was opened: an event of its parent reports that.
                Err(error) if error.kind() == ErrorKind::NotFound => return,
                Err(error) if mount.lack_watch() => Some(TreeNotice::Unwatchable {
                    directory: path.to_owned(),
                    reason: error.to_string(),
                }),
                Err(_) => return,
            }
        };
        if let Some(notice) = news {
            self.reports.notice(notice);
        }
        self.sweep_soon(at);
    }

    pub fn unwatch(&mut self, id: DirectorySlot) {
        if let Some(directory) = self.model.directory_mut(id)
            && let Some(key) = directory.watch.take()
        {
            self.watches.remove(key, id);
        }
    }

    /// Returns true if an event that nobody took yet says that a file is being written: then a read of it before that does not
    /// count, whatever the file's times are.
    pub fn is_written_again(&self, file: &TrackedFile) -> bool {
        let watch = if let Some(target) = &file.link {
            target.watch.as_ref().map(|(key, name)| (*key, &**name))
        } else {
            let directory = self.model.directory(file.directory);
            directory.and_then(|directory| Some((directory.watch?, &*file.name)))
        };
        watch.is_some_and(|(key, name)| {
            let directories = &lock(&self.watches.hints.pending).batch.directories;
            let hint = directories.get(&key).and_then(|it| it.names.get(name));
            hint.is_some_and(|hint| hint.is_complete == Some(false))
        })
    }

    /// Brings the next sweep forward, because a directory found between two sweeps gives no hints, or another one is denied no
    /// more.
    pub fn sweep_soon(&mut self, at: usize) {
        self.mounts[at].sweep_by(Instant::now() + self.settings.poll_interval);
    }
}

/// A sysctl that limits something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemLimit {
    pub sysctl: &'static str,
    /// Its value, as far as that can be read.
    pub allowed: Option<u64>,
}

impl SystemLimit {
    /// Returns the limit of directories that a user may watch.
    pub fn watches() -> SystemLimit {
        SystemLimit::tighter("fs.inotify.max_user_watches", "user.max_inotify_watches")
    }

    /// Returns the limit of trees that a user may watch.
    pub fn instances() -> SystemLimit {
        SystemLimit::tighter(
            "fs.inotify.max_user_instances",
            "user.max_inotify_instances",
        )
    }

    /// Returns the limit of events of a tree that are kept until they are read.
    pub fn events() -> SystemLimit {
        SystemLimit::read("fs.inotify.max_queued_events")
    }

    /// Returns the lower of two limits: a container may have one besides that of the whole system.
    fn tighter(of_system: &'static str, of_namespace: &'static str) -> SystemLimit {
        let [of_system, of_namespace] = [of_system, of_namespace].map(SystemLimit::read);
        match (of_system.allowed, of_namespace.allowed) {
            (Some(system), Some(namespace)) if namespace < system => of_namespace,
            (None, Some(_)) => of_namespace,
            _ => of_system,
        }
    }

    /// Reads a sysctl.
    fn read(sysctl: &'static str) -> SystemLimit {
        let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        let text = std::fs::read_to_string(path).ok();
        SystemLimit {
            sysctl,
            allowed: text.and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Returns the value to set: twice as much, and no less than a large site needs.
    fn recommended(self) -> u64 {
        let large = match self.sysctl {
            "fs.inotify.max_user_instances" | "user.max_inotify_instances" => 1_024,
            "fs.inotify.max_queued_events" => 16_384,
            _ => 524_288,
        };
        self.allowed.unwrap_or(0).saturating_mul(2).max(large)
    }
}

impl fmt::Display for SystemLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sysctl = self.sysctl;
        let number = self.allowed.map(|allowed| allowed.to_string());
        let hidden = "used up, and hidden, as by ProcSubset=pid in a unit";
        let allowed = number.as_deref().unwrap_or(hidden);
        let enough = self.recommended();
        write!(
            f,
            "the sysctl {sysctl} is {allowed}; raise it, as by `sysctl -w {sysctl}={enough}`"
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::pending_hints::{DirectoryHints, NameHint};
    use crate::tree::watches::{NameWatchReason, SystemLimit, WatchPurpose};

    #[test]
    fn a_name_that_matters_is_doubted_with_its_directory() {
        let (root, link) = (NameWatchReason::Mount(0), NameWatchReason::Mount(1));
        let mut watched = WatchPurpose::default();
        watched.named.insert(b"root".as_slice().into(), vec![root]);
        watched.named.insert(b"link".as_slice().into(), vec![link]);
        let mut hints = DirectoryHints::default();
        assert_eq!(watched.hints_of_names(&hints), []);
        hints
            .names
            .insert(b"root".as_slice().into(), NameHint::UNCLEAR);
        assert_eq!(watched.hints_of_names(&hints), [(root, NameHint::UNCLEAR)]);
        hints.itself = true;
        let mut all = watched.hints_of_names(&hints);
        all.sort_by_key(|(named, _)| *named == link);
        assert_eq!(all, [(root, NameHint::UNCLEAR), (link, NameHint::RENAMED)]);
    }

    #[test]
    fn a_limit_says_what_to_set() {
        let limit = |sysctl, allowed| SystemLimit { sysctl, allowed }.to_string();
        assert_eq!(
            limit("fs.inotify.max_user_watches", Some(8_192)),
            "the sysctl fs.inotify.max_user_watches is 8192; raise it, as by \
             `sysctl -w fs.inotify.max_user_watches=524288`"
        );
        assert_eq!(
            limit("fs.inotify.max_user_watches", Some(600_000)),
            "the sysctl fs.inotify.max_user_watches is 600000; raise it, as by \
             `sysctl -w fs.inotify.max_user_watches=1200000`"
        );
        assert_eq!(
            limit("fs.inotify.max_user_instances", None),
            "the sysctl fs.inotify.max_user_instances is used up, and hidden, as by ProcSubset=pid in a unit; \
             raise it, as by `sysctl -w fs.inotify.max_user_instances=1024`"
        );
    }
}
