//! Status of files: kind, identity and stat data; properties of file systems: all their changes pass through this kernel or
//! not, and their times are sharp or not.

use std::os::fd::AsFd;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use rustix::path::Arg;

use announce::observation::{FileId, Stat};

/// Status of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStatus {
    /// A FIFO, a socket or a device is never opened, since that alone can disturb others.
    pub kind: FileType,
    pub identity: FileId,
    pub stat: Stat,
    /// True if there is another name for it, by a hard link.
    pub has_other_names: bool,
}

/// Returns the status of a path, links followed.
pub fn of_path(path: &Path) -> Result<FileStatus, Errno> {
    rustix::fs::stat(path).map(FileStatus::from)
}

/// Returns true if this is what a path leads to now.
pub fn has_identity(path: &Path, identity: FileId) -> bool {
    of_path(path).is_ok_and(|status| status.identity == identity)
}

/// Returns the status of a name in an open directory, or of a path in `CWD`; of a link its own, unless it is followed.
pub fn of_name_in(directory: impl AsFd, name: impl Arg, follow: bool) -> Result<FileStatus, Errno> {
    let mut flags = AtFlags::empty();
    flags.set(AtFlags::SYMLINK_NOFOLLOW, !follow);
    rustix::fs::statat(directory, name, flags).map(FileStatus::from)
}

/// Returns the status of an open file.
pub fn of_open_file(file: impl AsFd) -> Result<FileStatus, Errno> {
    rustix::fs::fstat(file).map(FileStatus::from)
}

/// Returns true if something is mounted at a name in an open directory, or at the directory if the name is empty, as far as
/// the kernel tells.
#[cfg(target_os = "linux")]
pub fn is_mount_point(directory: impl AsFd, name: impl Arg) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags};
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(directory, name, flags, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Returns true if something is mounted there: elsewhere than on Linux only its device tells.
#[cfg(not(target_os = "linux"))]
pub fn is_mount_point(_: impl AsFd, _: impl Arg) -> bool {
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
        let kind = FileType::from_raw_mode(stat.st_mode);
        FileStatus {
            kind,
            has_other_names: kind == FileType::RegularFile && stat.st_nlink > 1,
            identity: FileId {
                device: to_u64(stat.st_dev),
                inode: to_u64(stat.st_ino),
            },
            stat: Stat {
                size: to_u64(stat.st_size),
                modified: timestamp(stat.st_mtime, stat.st_mtime_nsec),
                changed: timestamp(stat.st_ctime, stat.st_ctime_nsec),
                inode: to_u64(stat.st_ino),
            },
        }
    }
}

// The types of these fields differ between systems.
fn to_u64(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

/// Returns a timestamp; some file systems hold times that no calendar does.
fn timestamp(seconds: impl TryInto<i64>, nanoseconds: impl TryInto<i32>) -> Timestamp {
    let seconds = seconds.try_into().unwrap_or(0);
    let nanoseconds = nanoseconds.try_into().unwrap_or(0);
    Timestamp::new(seconds, nanoseconds).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// Advice for an operator who knows that the file system is local.
pub const ALL_WRITE_HERE: &str =
    "; set watch = \"inotify\" if all that writes there runs on this machine";

/// Properties that decide how a tree is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileSystemTraits {
    /// True if all its changes pass through this kernel, so that it can tell of them.
    pub is_local: bool,
    /// True if a file that was looked at gets another `ctime` with the next change, however soon.
    pub has_sharp_times: bool,
}

/// Returns the properties of the file system at this path. An unknown one is taken for remote.
#[cfg(target_os = "linux")]
pub fn file_system(path: &Path) -> FileSystemTraits {
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
        return FileSystemTraits::default();
    };
    // The field is signed on some systems, and the number 32 bits wide on all.
    let Ok(magic) = u32::try_from(found.f_type as u64 & 0xFFFF_FFFF) else {
        return FileSystemTraits::default();
    };
    FileSystemTraits {
        is_local: LOCAL.contains(&magic),
        has_sharp_times: [EXT, XFS, BTRFS, TMPFS].contains(&magic) && has_multigrain_timestamps(),
    }
}

/// Returns the properties of the file system at this path. Other systems than Linux leave it to `notify`.
#[cfg(not(target_os = "linux"))]
pub fn file_system(_: &Path) -> FileSystemTraits {
    FileSystemTraits {
        is_local: true,
        has_sharp_times: false,
    }
}

/// Returns true since Linux 6.13: a change after a `stat` gets a `ctime` of its own.
#[cfg(target_os = "linux")]
fn has_multigrain_timestamps() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let parts = release.split(|c: char| !c.is_ascii_digit());
    let mut numbers = parts.map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 13)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::Path;

    use super::file_system;

    #[test]
    fn only_what_is_known_to_be_local_is() {
        for path in ["/proc", "/sys", "/not/there"] {
            assert!(!file_system(Path::new(path)).is_local, "{path}");
        }
    }
}
