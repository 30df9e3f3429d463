//! Directories below a root where another file system begins: it is mounted there, or a link leads to it. Files below
//! one that is gone may only be away (R15), so it is reported before the files that are missing with it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tree::TreeReport;
use crate::tree::model::DirectorySlot;
use crate::tree::observer::Observer;
use crate::tree::sweep::Depth;
use announce::event::Event;
use announce::observation::{MountId, NestedFileSystem};

/// The kernel's table of mounts: it tells when something was mounted or unmounted, of which no event tells in a tree, and
/// where. There is none without `/proc`, as on systems other than Linux: there, sweeps find what was mounted.
pub const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// Delay of the sweep after a file system came or went, so that several cause one sweep.
const SWEEP_DELAY: Duration = Duration::from_secs(1);

/// The directories of a mount where another file system begins.
#[derive(Debug, Default)]
pub struct NestedDirectories {
    known: BTreeMap<DirectorySlot, NestedFileSystem>,
    /// Those that went since the last report.
    gone: Vec<NestedFileSystem>,
    /// True if the last report may be outdated.
    is_outdated: bool,
    /// True if the next report ends the first sweep of the mount: it is sent even if it is the same.
    pub ends_sweep: bool,
    reported: Vec<NestedFileSystem>,
}

impl NestedDirectories {
    /// Takes note of the file system that begins at a directory. There is none where the directory is gone, or lies in the
    /// file system of the one above it.
    pub fn set_nested(&mut self, id: DirectorySlot, begins: Option<NestedFileSystem>) {
        let before = match &begins {
            Some(nested) => self.known.insert(id, nested.clone()),
            None => self.known.remove(&id),
        };
        self.is_outdated |= before != begins;
        let is_there = |it: &NestedFileSystem| begins.is_some_and(|now| now.device == it.device);
        if let Some(mut gone) = before.filter(|it| !is_there(it)) {
            gone.is_gone = true;
            self.gone.push(gone);
        }
    }

    /// Takes what is to be reported, and whether the first sweep ends with it. Before that end, nobody knows all.
    fn take_report(&mut self, was_swept: bool) -> Option<(Vec<NestedFileSystem>, bool)> {
        let ends_sweep = mem::take(&mut self.ends_sweep);
        let is_due = ends_sweep || was_swept && self.is_outdated;
        if !is_due {
            return None;
        }
        self.is_outdated = false;
        let mut found: Vec<NestedFileSystem> = self.known.values().cloned().collect();
        found.sort_by(|one, other| one.below.cmp(&other.below));
        let before = mem::replace(&mut self.reported, found.clone());
        let is_news = ends_sweep || before != found;
        found.append(&mut self.gone);
        is_news.then_some((found, ends_sweep))
    }
}

impl Observer<'_> {
    /// Rechecks the file systems above what seems to be missing: one may be gone although its directory was not listed
    /// since.
    pub fn recheck_above_missing(&mut self) {
        let mut mounts = self.mounts.iter();
        if mounts.all(|mount| mount.nested.known.is_empty()) {
            return;
        }
        let mut above: HashSet<(MountId, &[u8])> = HashSet::new();
        for path in self.reports.missing.keys() {
            let ends = (0..path.below.len()).filter(|&end| path.below[end] == b'/');
            above.extend(ends.map(|end| (path.mount, &path.below[..end])));
        }
        let nested = self.mounts.iter().enumerate().flat_map(|(at, mount)| {
            let nested = mount.nested.known.iter();
            nested.map(move |(id, nested)| (at, *id, (mount.id, &*nested.below)))
        });
        let gone = nested.filter(|(_, id, place)| above.contains(place) && self.is_replaced(*id));
        let gone: Vec<_> = gone.map(|(at, id, _)| (at, id)).collect();
        for (at, id) in gone {
            self.mounts[at].nested.set_nested(id, None);
            self.queue.push_directory(id, Depth::Subtree);
        }
    }

    /// Lists each directory again that something was mounted at or unmounted from: no event tells of that.
    pub fn recheck_mount_table(&mut self) {
        let Some(table) = self.mount_table.as_ref().and_then(read_if_changed) else {
            return;
        };
        let mut points = BTreeSet::new();
        for mount in self.mounts.iter().filter(|mount| mount.found.is_some()) {
            let below = points_below(&table, &mount.directory);
            points.extend(below.iter().filter_map(|it| self.model.at(mount.root, it)));
            points.extend(mount.nested.known.keys());
        }
        for id in points {
            if self.is_replaced(id) {
                self.queue.push_directory(id, Depth::Subtree);
            }
        }
    }

    /// Reports the file systems below each root, where the last report is outdated.
    pub fn report_nested(&mut self) {
        for mount in &mut self.mounts {
            let Some((nested, ends_sweep)) = mount.nested.take_report(mount.was_swept) else {
                continue;
            };
            if !ends_sweep {
                // Missing files are judged once everything was looked at.
                mount.sweep_by(Instant::now() + SWEEP_DELAY);
            }
            let mount = mount.id;
            let event = Event::Nested { mount, nested };
            self.reports.send(TreeReport::Event(event));
        }
    }
}

/// Reads the table if something was mounted or unmounted anywhere since it was read last.
fn read_if_changed(table: &File) -> Option<Vec<u8>> {
    let mut polled = [PollFd::new(table, PollFlags::PRI)];
    let changed = poll(&mut polled, Some(&Timespec::default())).ok()?;
    (changed > 0).then(|| fs::read(MOUNT_TABLE).unwrap_or_default())
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
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let octal = digits.and_then(|digits| std::str::from_utf8(digits).ok());
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
    use crate::tree::model::{DirectorySlot, Model};
    use crate::tree::nested_directories::{NestedDirectories, mount_point};
    use announce::observation::{FileId, NestedFileSystem};

    /// A root and a directory in it, on these devices.
    fn tree(device: u64, below: u64) -> (Model, DirectorySlot) {
        let mut model = Model::default();
        let root = model.add_root(0);
        let inner = model.add_below(root, b"inner").unwrap();
        for (id, device) in [(root, device), (inner, below)] {
            let identity = Some(FileId { device, inode: 1 });
            model.directory_mut(id).unwrap().identity = identity;
        }
        (model, inner)
    }

    fn inner(device: u64) -> NestedFileSystem {
        NestedFileSystem {
            below: b"inner".as_slice().into(),
            device,
            is_link: false,
            is_gone: false,
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
            assert_eq!(Vec::from_iter(model.nested_at(id)), want);
        }
    }

    #[test]
    fn nothing_is_reported_before_the_end_of_the_first_sweep() {
        let (model, id) = tree(1, 2);
        let mut nested = NestedDirectories::default();
        nested.set_nested(id, model.nested_at(id));
        assert_eq!(nested.take_report(false), None);
        nested.ends_sweep = true;
        assert_eq!(nested.take_report(false), Some((vec![inner(2)], true)));
        nested.ends_sweep = true;
        assert_eq!(nested.take_report(true), Some((vec![inner(2)], true)));
    }

    #[test]
    fn what_went_during_the_first_sweep_is_reported_at_its_end() {
        let (model, id) = tree(1, 2);
        let mut nested = NestedDirectories::default();
        nested.set_nested(id, model.nested_at(id));
        nested.set_nested(id, None);
        nested.ends_sweep = true;
        let (told, ends_sweep) = nested.take_report(false).unwrap();
        assert!(ends_sweep && matches!(&*told, [it] if it.is_gone));
        assert_eq!(nested.take_report(true), None);
    }

    #[test]
    fn a_report_is_sent_again_only_if_it_differs() {
        let (model, id) = tree(1, 2);
        let mut nested = NestedDirectories::default();
        nested.set_nested(id, model.nested_at(id));
        assert_eq!(nested.take_report(true), Some((vec![inner(2)], false)));
        nested.set_nested(id, None);
        nested.set_nested(id, model.nested_at(id));
        assert_eq!(nested.take_report(true), None);
        nested.set_nested(id, None);
        let (told, _) = nested.take_report(true).unwrap();
        assert!(matches!(&*told, [it] if it.is_gone));
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
