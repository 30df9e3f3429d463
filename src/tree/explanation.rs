//! Explanations of why there is no document at a path, whatever the globs include.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::announce::candidates::Exclusion;
use crate::announce::observation::{DocumentPath, Incomplete, Look, NoDocument};
use crate::tree::TreeSettings;
use crate::tree::directories::join;
use crate::tree::file_status::{self, FileKind};
use crate::tree::read_file::read;

/// Explains why there is no document at a path. Returns nothing if there is one, or if the mount is not there.
pub fn explain(settings: &TreeSettings, path: &DocumentPath) -> Option<NoDocument> {
    let mount = settings.mounts.iter().find(|plan| plan.id == path.mount)?;
    let file = join(&mount.directory, &path.below);
    match file_status::follow(&file) {
        Err(error) if file_status::is_absence(error) => {
            file_status::follow(&mount.directory).ok()?;
            return Some(other_case(&file).map_or(NoDocument::Nothing, NoDocument::OtherCase));
        }
        Err(error) => return Some(NoDocument::Denied(file_status::reason(error))),
        Ok(status) if status.kind != FileKind::File => return Some(NoDocument::NotAFile),
        Ok(_) => {}
    }
    if let Some(exclusion) = settings
        .candidates
        .exclusion(&mount.published(), &path.below)
    {
        let look = matches!(exclusion, Exclusion::NotIncluded(_))
            .then(|| read(&file, &settings.recent_keys).0);
        return Some(match look {
            // No glob would make a document of it.
            Some(Look::Other { reason, .. }) => NoDocument::Other(reason),
            _ => NoDocument::Excluded(exclusion),
        });
    }
    match read(&file, &settings.recent_keys).0 {
        Look::Missing => Some(NoDocument::Nothing),
        Look::Document { .. } => None,
        Look::Other { reason, .. } => Some(NoDocument::Other(reason)),
        Look::Incomplete(Incomplete::Denied(reason)) => Some(NoDocument::Denied(reason)),
        Look::Incomplete(reason) => Some(NoDocument::Broken(reason.to_string())),
    }
}

/// Returns the file beside an absent one whose name differs only in the case of letters. Only the usual spellings are
/// tried, because a directory may hold a hundred thousand names.
fn other_case(absent: &Path) -> Option<String> {
    let name = absent.file_name()?.as_bytes();
    let dot = name.iter().rposition(|&byte| byte == b'.');
    let (stem, extension) = name.split_at(dot.unwrap_or(name.len()));
    let names = [
        [stem, &extension.to_ascii_uppercase()].concat(),
        [stem, &extension.to_ascii_lowercase()].concat(),
        name.to_ascii_lowercase(),
        name.to_ascii_uppercase(),
    ];
    let mut others = names.iter().filter(|other| *other != name);
    let found = others.find(|other| {
        file_status::follow(&absent.with_file_name(OsStr::from_bytes(other))).is_ok()
    })?;
    Some(String::from_utf8_lossy(found).into_owned())
}
