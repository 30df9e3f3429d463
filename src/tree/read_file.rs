//! Reading one file once: the read counts only if it was complete (R3).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use resourcesync::document::Content;
use resourcesync::gzip::parse_gzip;
use resourcesync::parse::{ReadError, parse, parse_with_keys};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::announce::observation::{Incomplete, Look};
use crate::tree::file_status::{self, FileKind, FileStatus};
use crate::tree::recent_keys::RecentKeys;

/// Returns all bytes of the file at `path`, read with the same care as documents: anything but a regular file is not even opened, which
/// may disturb others.
pub fn content(path: &Path) -> io::Result<Vec<u8>> {
    if file_status::follow(path)?.kind != FileKind::File {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads the file at `path`, and keeps its keys if it is a Change List and they are wanted. The caller has checked that it
/// is a regular file: opening anything else may disturb others. Returns the status of the file too, if it could be read to
/// an end.
pub(super) fn read(path: &Path, recent_keys: &RecentKeys) -> (Look, Option<FileStatus>) {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if file_status::is_absence(error) => return (Look::Missing, None),
        Err(error) => return denied(error),
    };
    let before = match file_status::of(&file) {
        Ok(status) if status.kind == FileKind::File => status,
        Ok(status) => return (Look::Incomplete(Incomplete::NotAFile), Some(status)),
        Err(error) => return denied(error),
    };
    let are_wanted = recent_keys.are_wanted();
    let parse = |reader: &mut dyn Read| {
        if are_wanted {
            parse_with_keys(reader)
        } else {
            Ok((parse(reader)?, None))
        }
    };
    let content = if is_packed(path) {
        parse_gzip(&file, parse)
    } else {
        parse(&mut &file)
    };
    let after = match file_status::of(&file) {
        Ok(status) => status,
        Err(error) => return denied(error),
    };
    let is_still_there = match file_status::follow(path) {
        Ok(status) => status.identity == before.identity,
        Err(error) if file_status::is_absence(error) => return (Look::Missing, None),
        Err(error) => return denied(error),
    };
    match content {
        _ if before != after || !is_still_there => {
            (Look::Incomplete(Incomplete::BeingWritten), None)
        }
        Ok((content, keys)) => {
            if let Some(keys) = keys {
                recent_keys.keep(after, keys);
            }
            let stat = after.stat;
            let look = match content {
                Content::Document(parsed) => Look::Document {
                    parsed: parsed.into(),
                    stat,
                },
                Content::Other(reason) => Look::Other { reason, stat },
            };
            (look, Some(after))
        }
        Err(ReadError::Malformed(malformed)) => (Look::Incomplete(malformed.into()), Some(after)),
        Err(ReadError::Io(error)) => (
            Look::Incomplete(Incomplete::Denied(error.to_string())),
            None,
        ),
    }
}

/// Returns true if the file at `path` is read as gzip.
pub(super) fn is_packed(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b".gz")
}

fn denied(error: Errno) -> (Look, Option<FileStatus>) {
    let reason = Incomplete::Denied(file_status::reason(error));
    (Look::Incomplete(reason), None)
}

pub(super) fn open(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        // Only a file's owner may read it without leaving a trace.
        Err(Errno::PERM) => {}
        opened => return opened.map(File::from),
    }
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}
