//! A file replaced as a whole: its readers see the old content or the new one.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// An error that leaves the file as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    #[error("it has changed meanwhile; run this again")]
    Changed,
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, io::Error),
    #[error("cannot give {0} its owner and mode: {1}; run this as its owner, or as root")]
    Owner(PathBuf, io::Error),
    #[error("cannot put {0} in its place: {1}")]
    Rename(PathBuf, io::Error),
}

/// Replaces the content `before` of a file by `after`, and keeps owner and mode. The path leads through no link.
pub fn replace(path: &Path, before: &[u8], after: &[u8]) -> Result<(), ReplaceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden files are not published as documents, and another run has another name.
    let new = path.with_file_name(format!(".{name}.{}", Uuid::new_v4().simple()));
    let model = fs::metadata(path).map_err(|_| ReplaceError::Changed)?;
    create(&new, after, &model, model.mode() & 0o7777)?;
    // Last, since generators know nothing of us.
    let replaced = match fs::read(path) {
        Ok(content) if content == before => {
            fs::rename(&new, path).map_err(|error| ReplaceError::Rename(new.clone(), error))
        }
        _ => Err(ReplaceError::Changed),
    };
    replaced.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Writes a new file with the owner of another one and a mode of its own.
pub fn create(
    path: &Path,
    content: &[u8],
    model: &Metadata,
    mode: u32,
) -> Result<(), ReplaceError> {
    let failed = |error| ReplaceError::Write(path.to_owned(), error);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    let written = file.write_all(content).map_err(failed);
    let written = written.and_then(|()| {
        own(&file, model, mode).map_err(|error| ReplaceError::Owner(path.to_owned(), error))
    });
    let written = written.and_then(|()| file.sync_all().map_err(failed));
    written.inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

fn own(file: &File, model: &Metadata, mode: u32) -> io::Result<()> {
    let present = file.metadata()?;
    if (present.uid(), present.gid()) != (model.uid(), model.gid()) {
        fchown(file, Some(model.uid()), Some(model.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::{ReplaceError, replace};

    #[test]
    fn a_replaced_file_keeps_its_owner_and_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.xml");
        fs::write(&path, "1").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        }
        let before = fs::metadata(&path).unwrap();
        replace(&path, b"1", b"2").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        let kept = |metadata: &fs::Metadata| (metadata.mode(), metadata.uid(), metadata.gid());
        assert_eq!(kept(&after), kept(&before));
        assert_ne!(after.ino(), before.ino(), "it is another file");
    }

    #[test]
    fn a_file_that_has_changed_meanwhile_stays_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.xml");
        fs::write(&path, "newer").unwrap();
        let refused = replace(&path, b"1", b"2");
        assert!(matches!(refused, Err(ReplaceError::Changed)), "{refused:?}");
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
