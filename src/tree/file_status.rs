//! Status of files: kind, identity and stat data.

use std::os::fd::AsFd;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use announce::observation::{Identity, Stat};

/// Status of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    pub kind: FileKind,
    pub identity: Identity,
    pub stat: Stat,
    /// True if there is another name for it, by a hard link.
    pub has_other_names: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A FIFO, socket or device. It is never opened, since that alone can disturb others.
    Special,
}

/// Returns the status of a path, links followed.
pub fn follow(path: &Path) -> Result<FileStatus, Errno> {
    rustix::fs::stat(path).map(FileStatus::from)
}

/// Returns true if this is what a path leads to now.
pub fn is_at(path: &Path, identity: Identity) -> bool {
    follow(path).is_ok_and(|status| status.identity == identity)
}

/// Returns the status of a path; of a link, its own.
pub fn not_follow(path: &Path) -> Result<FileStatus, Errno> {
    rustix::fs::lstat(path).map(FileStatus::from)
}

/// Returns the status of a name in an open directory; of a link, its own.
pub fn within(directory: impl AsFd, name: &[u8]) -> Result<FileStatus, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(FileStatus::from)
}

/// Returns the status of a name in an open directory, links followed.
pub fn follow_within(directory: impl AsFd, name: &[u8]) -> Result<FileStatus, Errno> {
    rustix::fs::statat(directory, name, AtFlags::empty()).map(FileStatus::from)
}

/// Returns the status of an open file.
pub fn of(file: impl AsFd) -> Result<FileStatus, Errno> {
    rustix::fs::fstat(file).map(FileStatus::from)
}

/// Returns true if something is mounted at a name in an open directory, or at the directory if the name is empty, as far as
/// the kernel tells.
#[cfg(target_os = "linux")]
pub fn is_mount_point(directory: impl AsFd, name: &[u8]) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags};
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Returns true if something is mounted there: elsewhere than on Linux only its device tells.
#[cfg(not(target_os = "linux"))]
pub fn is_mount_point(_: impl AsFd, _: &[u8]) -> bool {
    false
}

/// Returns true if an error means that nothing has this name, rather than that it cannot be known.
pub fn is_absence(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Returns the system's words for an error.
pub fn reason(error: Errno) -> String {
    std::io::Error::from(error).to_string()
}

impl From<rustix::fs::Stat> for FileStatus {
    fn from(stat: rustix::fs::Stat) -> FileStatus {
        let kind = FileKind::from(FileType::from_raw_mode(stat.st_mode));
        FileStatus {
            kind,
            has_other_names: kind == FileKind::File && stat.st_nlink > 1,
            identity: Identity {
                device: unsigned(stat.st_dev),
                inode: unsigned(stat.st_ino),
            },
            stat: Stat {
                size: unsigned(stat.st_size),
                modified: timestamp(unix(stat.st_mtime), unix(stat.st_mtime_nsec)),
                changed: timestamp(unix(stat.st_ctime), unix(stat.st_ctime_nsec)),
                inode: unsigned(stat.st_ino),
            },
        }
    }
}

impl From<FileType> for FileKind {
    fn from(file_type: FileType) -> FileKind {
        match file_type {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Special,
        }
    }
}

// The types of these fields differ between systems.
fn unsigned(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

fn unix(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(0)
}

/// Returns a timestamp; some file systems hold times that no calendar does.
fn timestamp(seconds: i64, nanoseconds: i64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    Timestamp::new(seconds, nanoseconds).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
