//! Properties of a file system: all its changes pass through this kernel or not, and its times are sharp or not.

use std::path::Path;

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
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 13)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_local_is() {
        for path in ["/proc", "/sys", "/not/there"] {
            assert!(!file_system(Path::new(path)).is_local, "{path}");
        }
    }
}
