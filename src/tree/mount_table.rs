//! The kernel's table of mounts: it tells when something was mounted or unmounted, of which no event tells in a tree, and
//! where. Systems other than Linux have none: there, sweeps find what was mounted.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

const TABLE: &str = "/proc/self/mountinfo";

/// Opens the table; there is none without `/proc`.
pub fn open() -> Option<File> {
    File::open(TABLE).ok()
}

/// Reads the table if something was mounted or unmounted anywhere since it was read last.
pub fn read_if_changed(table: &File) -> Option<Vec<u8>> {
    let mut polled = [PollFd::new(table, PollFlags::PRI)];
    let changed = poll(&mut polled, Some(&Timespec::default())).ok()?;
    (changed > 0).then(|| fs::read(TABLE).unwrap_or_default())
}

/// Returns the paths from a directory to the mount points below it.
pub fn points_below(table: &[u8], directory: &Path) -> Vec<Vec<u8>> {
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
    use super::mount_point;

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
