//! The state directory, looked at without touching it: owner, permissions and free space.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, StatVfsMountFlags};

use crate::diagnostics::machine::StateDirectory;

/// Inspects `directory` as this user.
pub fn inspect_directory(directory: &Path) -> StateDirectory {
    let metadata = match std::fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return nearest(directory)
                .unwrap_or_else(|| StateDirectory::Unreadable(error.to_string()));
        }
        Err(error) => return StateDirectory::Unreadable(error.to_string()),
    };
    let volume = match rustix::fs::statvfs(directory) {
        Ok(volume) => volume,
        Err(error) => return StateDirectory::Unreadable(std::io::Error::from(error).to_string()),
    };
    let access = Access::WRITE_OK | Access::EXEC_OK;
    StateDirectory::There {
        owner: metadata.uid(),
        is_directory: metadata.is_dir(),
        may_write: rustix::fs::access(directory, access).is_ok()
            && !volume.f_flag.contains(StatVfsMountFlags::RDONLY),
        free_bytes: volume.f_bavail.saturating_mul(volume.f_frsize),
        free_files: (volume.f_files > 0).then_some(volume.f_favail),
    }
}

/// Returns the nearest existing directory above.
fn nearest(directory: &Path) -> Option<StateDirectory> {
    directory.ancestors().skip(1).find_map(|above| {
        let metadata = std::fs::metadata(above).ok()?;
        Some(StateDirectory::Absent {
            above: above.to_owned(),
            owner: metadata.uid(),
        })
    })
}
