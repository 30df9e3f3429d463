//! A file replaced as a whole: its readers see the old content or the new one.

use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use anyhow::{Context, anyhow};
use uuid::Uuid;

/// Replaces the content `before` of a file by `after`, and keeps owner and mode. The path leads through no link.
///
/// # Errors
///
/// If it has changed meanwhile, or cannot be replaced. The file is left as it was.
pub fn replace(path: &Path, before: &[u8], after: &[u8]) -> anyhow::Result<()> {
    let changed = "it has changed meanwhile; run this again";
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden files are not published as documents, and another run has another name.
    let new = path.with_file_name(format!(".{name}.{}", Uuid::new_v4().simple()));
    let model = fs::metadata(path).map_err(|_| anyhow!(changed))?;
    create_like(&new, after, &model, model.mode() & 0o7777)?;
    // Last, since generators know nothing of us.
    let replaced = match fs::read(path) {
        Ok(content) if content == before => fs::rename(&new, path)
            .with_context(|| format!("cannot put {} in its place", new.display())),
        _ => Err(anyhow!(changed)),
    };
    replaced.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Writes a new file with the owner of another one and a mode of its own.
pub fn create_like(path: &Path, content: &[u8], model: &Metadata, mode: u32) -> anyhow::Result<()> {
    let shown = path.display();
    let failed = || format!("cannot write {shown}");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).with_context(failed)?;
    let written = file.write_all(content).with_context(failed);
    let copy_owner = || -> io::Result<()> {
        let present = file.metadata()?;
        if (present.uid(), present.gid()) != (model.uid(), model.gid()) {
            fchown(&file, Some(model.uid()), Some(model.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(mode))
    };
    let not_given = |error: io::Error| {
        anyhow!(
            "cannot give {shown} its owner and mode: {error}; run this as its owner, or as root"
        )
    };
    let written = written
        .and_then(|()| copy_owner().map_err(not_given))
        .and_then(|()| file.sync_all().with_context(failed));
    written.inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::replace;

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
        let refused = replace(&path, b"1", b"2").unwrap_err().to_string();
        assert_eq!(refused, "it has changed meanwhile; run this again");
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
