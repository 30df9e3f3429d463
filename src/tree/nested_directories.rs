//! Directories below a root where another file system begins: it is mounted there, or a link leads to it. Files below
//! one that is gone may only be away (R15), so it is reported before the files that are missing with it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tree::TreeReport;
use crate::tree::directories::join;
use crate::tree::file_status;
use crate::tree::model::{DirectoryId, Model};
use crate::tree::observer::Observer;
use crate::tree::work_queue::Depth;
use announce::event::Event;
use announce::observation::{Identity, MountId, NestedFileSystem};

const TABLE: &str = "/proc/self/mountinfo";

/// Delay of the sweep after a file system came or went, so that several cause one sweep.
const SWEEP_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct NestedMountPoints {
    directories: BTreeMap<DirectoryId, Nested>,
    /// Positions of mounts of which the last report may be outdated, and whether one is to be sent even if it is the same.
    outdated: BTreeMap<usize, bool>,
    /// The last reports, by the position of their mount.
    reported: BTreeMap<usize, Vec<NestedFileSystem>>,
    /// The kernel's table of mounts: it tells when something was mounted or unmounted, of which no event tells in a tree,
    /// and where. There is none without `/proc`, as on systems other than Linux: there, sweeps find what was mounted.
    mount_table: Option<File>,
}

/// A directory where another file system begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Nested {
    /// Position of its mount.
    mount: usize,
    identity: Identity,
    is_link: bool,
}

impl NestedMountPoints {
    pub fn new() -> NestedMountPoints {
        NestedMountPoints {
            directories: BTreeMap::new(),
            outdated: BTreeMap::new(),
            reported: BTreeMap::new(),
            mount_table: File::open(TABLE).ok(),
        }
    }

    /// Takes note of whether another file system begins at a directory that is about to be listed.
    pub fn note(&mut self, id: DirectoryId, model: &Model) {
        let Some(directory) = model.directory(id) else {
            return;
        };
        let parent = directory.parent.and_then(|id| model.directory(id));
        let (Some(parent), Some(identity)) = (parent, directory.identity) else {
            return;
        };
        let above = parent.identity;
        let is_other = above.is_some_and(|it| it.device != identity.device);
        if !is_other && !directory.is_mount_point {
            return self.remove(id);
        }
        let nested = Nested {
            mount: directory.mount,
            identity,
            is_link: directory.is_link,
        };
        if self.directories.insert(id, nested) != Some(nested) {
            self.outdated.entry(nested.mount).or_default();
        }
    }

    /// Takes note that a directory is gone, or lies in the file system of the one above it.
    pub fn remove(&mut self, id: DirectoryId) {
        if let Some(nested) = self.directories.remove(&id) {
            self.outdated.entry(nested.mount).or_default();
        }
    }

    /// Has all of a mount reported, even if there are none.
    pub fn announce(&mut self, mount: usize) {
        self.outdated.insert(mount, true);
    }

    /// Takes the position of a mount of which the last report is outdated, with the file systems below its root, and whether
    /// its first sweep ends with the report. While it is swept for the first time, nobody knows all.
    fn pop_report(
        &mut self,
        model: &Model,
        was_swept: impl Fn(usize) -> bool,
    ) -> Option<(usize, Vec<NestedFileSystem>, bool)> {
        let is_due = |mount: &usize, ends_sweep: &mut bool| *ends_sweep || was_swept(*mount);
        while let Some((mount, ends_sweep)) = self.outdated.extract_if(.., is_due).next() {
            let of_mount = self.directories.iter();
            let of_mount = of_mount.filter(|(_, nested)| nested.mount == mount);
            let found = of_mount.map(|(id, nested)| NestedFileSystem {
                below: model.below(*id).into(),
                device: nested.identity.device,
                is_link: nested.is_link,
            });
            let mut found: Vec<NestedFileSystem> = found.collect();
            found.sort_by(|one, other| one.below.cmp(&other.below));
            let before = self.reported.insert(mount, found.clone());
            if ends_sweep || before.unwrap_or_default() != found {
                return Some((mount, found, ends_sweep));
            }
        }
        None
    }
}

impl Observer<'_> {
    /// Rechecks the file systems above what seems to be missing: one may be gone although its directory was not listed
    /// since.
    pub fn recheck_nested(&mut self) {
        if self.nested.directories.is_empty() {
            return;
        }
        let mut above: HashSet<(MountId, &[u8])> = HashSet::new();
        for path in self.reports.missing.keys() {
            let ends = (0..path.below.len()).filter(|&end| path.below[end] == b'/');
            above.extend(ends.map(|end| (path.mount, &path.below[..end])));
        }
        if above.is_empty() {
            return;
        }
        let is_gone = |id: DirectoryId, nested: &Nested| {
            let mount = &self.mounts[nested.mount];
            let below = self.model.below(id);
            above.contains(&(mount.id, &*below))
                && !file_status::is_at(&join(&mount.directory, &below), nested.identity)
        };
        let nested = self.nested.directories.iter();
        let gone = nested.filter(|(id, nested)| is_gone(**id, nested));
        let gone: Vec<DirectoryId> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.nested.remove(id);
            self.queue.push_directory(id, Depth::Subtree);
        }
    }

    /// Lists each directory again that something was mounted at or unmounted from: no event tells of that.
    pub fn recheck_mount_table(&mut self) {
        let Some(table) = self.nested.mount_table.as_ref().and_then(read_if_changed) else {
            return;
        };
        let mut points: BTreeSet<DirectoryId> = self.nested.directories.keys().copied().collect();
        for mount in &self.mounts {
            let below = points_below(&table, &mount.directory);
            let found = below.iter().filter_map(|it| self.model.at(mount.root, it));
            points.extend(found);
        }
        for id in points {
            if let Some(directory) = self.model.directory(id)
                && let Some(identity) = directory.identity
                && let mount = &self.mounts[directory.mount]
                && mount.found.is_some()
                && !file_status::is_at(&join(&mount.directory, &self.model.below(id)), identity)
            {
                self.queue.push_directory(id, Depth::Subtree);
            }
        }
    }

    /// Reports the file systems below each root, where the last report is outdated.
    pub fn report_nested(&mut self) {
        let (nested, model, mounts) = (&mut self.nested, &self.model, &mut self.mounts);
        while let Some((at, found, ends_sweep)) =
            nested.pop_report(model, |at| mounts[at].was_swept())
        {
            if !ends_sweep {
                // Missing files are judged once everything was looked at.
                mounts[at].sweep_by(Instant::now() + SWEEP_DELAY);
            }
            let (mount, file_systems) = (mounts[at].id, found);
            let event = Event::Nested {
                mount,
                file_systems,
            };
            self.reports.send(TreeReport::Event(event));
        }
    }
}

/// Reads the table if something was mounted or unmounted anywhere since it was read last.
fn read_if_changed(table: &File) -> Option<Vec<u8>> {
    let mut polled = [PollFd::new(table, PollFlags::PRI)];
    let changed = poll(&mut polled, Some(&Timespec::default())).ok()?;
    (changed > 0).then(|| fs::read(TABLE).unwrap_or_default())
}

/// Returns the paths from a directory to the mount points below it.
fn points_below(table: &[u8], directory: &Path) -> Vec<Vec<u8>> {
    let Ok(root) = fs::canonicalize(directory) else {
        return Vec::new();
    };
    let mut prefix = root.as_os_str().as_bytes().to_vec();
    if prefix.last() != Some(&b'/') {
        prefix.push(b'/');
    }
    let points = table.split(|&byte| byte == b'\n').filter_map(mount_point);
    let below = points.filter_map(|point| Some(point.strip_prefix(&*prefix)?.to_vec()));
    below.collect()
}

/// Returns the mount point in a line: the fifth field, in which some bytes are written in octal.
fn mount_point(line: &[u8]) -> Option<Vec<u8>> {
    let field = line.split(|&byte| byte == b' ').nth(4)?;
    let mut point = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        point.push(escaped.unwrap_or(byte));
        rest = match escaped {
            Some(_) => &after[3..],
            None => after,
        };
    }
    Some(point)
}

#[cfg(test)]
mod tests {
    use crate::tree::model::{DirectoryId, Model};
    use crate::tree::nested_directories::{NestedMountPoints, mount_point};
    use announce::observation::{Identity, NestedFileSystem};

    /// A root and a directory in it, on these devices.
    fn tree(device: u64, below: u64) -> (Model, DirectoryId) {
        let mut model = Model::default();
        let root = model.add_root(0);
        let inner = model.add_below(root, b"inner").unwrap();
        for (id, device) in [(root, device), (inner, below)] {
            let identity = Some(Identity { device, inode: 1 });
            model.directory_mut(id).unwrap().identity = identity;
        }
        (model, inner)
    }

    fn inner(device: u64) -> NestedFileSystem {
        NestedFileSystem {
            below: b"inner".as_slice().into(),
            device,
            is_link: false,
        }
    }

    #[test]
    fn another_device_or_a_mount_point_begins_a_file_system() {
        for (device, is_mount_point, want) in [
            (1, false, Vec::new()),
            (1, true, vec![inner(1)]),
            (2, false, vec![inner(2)]),
        ] {
            let (mut model, id) = tree(1, device);
            model.directory_mut(id).unwrap().is_mount_point = is_mount_point;
            let mut nested = NestedMountPoints::new();
            nested.note(id, &model);
            nested.announce(0);
            assert_eq!(nested.pop_report(&model, |_| true), Some((0, want, true)));
        }
    }

    #[test]
    fn nothing_is_reported_before_the_end_of_the_first_sweep() {
        let (model, id) = tree(1, 2);
        let mut nested = NestedMountPoints::new();
        nested.note(id, &model);
        assert_eq!(nested.pop_report(&model, |_| false), None);
        nested.announce(0);
        let want = Some((0, vec![inner(2)], true));
        assert_eq!(nested.pop_report(&model, |_| false), want);
    }

    #[test]
    fn a_report_is_sent_again_only_if_it_differs() {
        let (model, id) = tree(1, 2);
        let mut nested = NestedMountPoints::new();
        nested.note(id, &model);
        let reported = |nested: &mut NestedMountPoints| nested.pop_report(&model, |_| true);
        assert_eq!(reported(&mut nested), Some((0, vec![inner(2)], false)));
        nested.remove(id);
        nested.note(id, &model);
        assert_eq!(reported(&mut nested), None);
        nested.remove(id);
        assert_eq!(reported(&mut nested), Some((0, Vec::new(), false)));
    }

    #[test]
    fn a_line_names_its_mount_point() {
        for (point, wanted) in [
            ("/srv/two\\040words", "/srv/two words"),
            ("/srv/a\\134b\\0", "/srv/a\\b\\0"),
        ] {
            let line = format!("36 35 98:0 /r {point} rw,noatime master:1 - ext4 /dev/root rw");
            assert_eq!(mount_point(line.as_bytes()), Some(wanted.into()));
        }
        assert_eq!(mount_point(b""), None);
    }
}
