//! Reads one file once, and believes it only if it was complete (R3).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::announce::observation::Incomplete;
use crate::resourcesync::document::Content;
use crate::resourcesync::gzip::parse_gzip;
use crate::resourcesync::parse::{ReadError, parse};
use crate::tree::stat::{self, Kind, Status};

/// What a read came to.
#[derive(Debug)]
pub(super) enum Reading {
    Whole(Content, Status),
    /// With what the file was, if it could be read to an end.
    Incomplete(Incomplete, Option<Status>),
    Gone,
}

/// All bytes of the file at `path`. Anything but a regular file is not even opened, which may disturb others.
pub(super) fn content(path: &Path) -> io::Result<Vec<u8>> {
    if stat::follow(path)?.kind != Kind::File {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads the file at `path`. It was a regular file a moment ago: the caller has looked, because opening
/// anything else may disturb others.
pub(super) fn read(path: &Path) -> Reading {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if stat::is_absence(error) => return Reading::Gone,
        Err(error) => return denied(error),
    };
    let before = match stat::of(&file) {
        Ok(status) if status.kind == Kind::File => status,
        Ok(status) => return Reading::Incomplete(Incomplete::NotAFile, Some(status)),
        Err(error) => return denied(error),
    };
    let is_packed = path.as_os_str().as_bytes().ends_with(b".gz");
    let content = if is_packed {
        parse_gzip(&file)
    } else {
        parse(&file)
    };
    let after = match stat::of(&file) {
        Ok(status) => status,
        Err(error) => return denied(error),
    };
    let is_still_there = match stat::follow(path) {
        Ok(status) => status.identity == before.identity,
        Err(error) if stat::is_absence(error) => return Reading::Gone,
        Err(error) => return denied(error),
    };
    match content {
        _ if before != after || !is_still_there => {
            Reading::Incomplete(Incomplete::BeingWritten, None)
        }
        Ok(content) => Reading::Whole(content, after),
        Err(ReadError::Malformed(malformed)) => {
            Reading::Incomplete(Incomplete::Malformed(malformed), Some(after))
        }
        Err(ReadError::Io(error)) => {
            Reading::Incomplete(Incomplete::Denied(error.to_string()), None)
        }
    }
}

fn denied(error: Errno) -> Reading {
    Reading::Incomplete(Incomplete::Denied(stat::reason(error)), None)
}

fn open(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        // Only a file's owner may read it without leaving a trace.
        Err(Errno::PERM) => {}
        opened => return opened.map(File::from),
    }
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}
