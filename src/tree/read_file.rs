//! Reading one file once: the read counts only if it was complete (R3). Where there is no document, whatever the globs
//! include, it is explained why. One version of a Change List is read a second time: its keys, and then some of its entries (C6,
//! C8), or all of them. The keys of the lists that were read last are kept, so that no list is read once for its fingerprint and
//! again for its keys.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::tree::lock;
use announce::candidates::Exclusion;
use announce::observation::{DocumentPath, Found, Incomplete, Stat, WhyAbsent};
use resourcesync::capability::Capability;
use resourcesync::change::Change;
use resourcesync::change_list::{
    ChangeListError, EntryPlace, ListedChanges, changes_at_places, each_entry, read_changes,
    read_changes_at, read_keys,
};
use resourcesync::document::DeclaredSpan;
use resourcesync::gzip::{parse_gzip, unpacked};
use resourcesync::parse::{ReadError, parse_with_keys};
use resourcesync::resource_list::{ListedResources, read_resource_entries, read_resources};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::tree::TreeSettings;
use crate::tree::file_status::{self, FileStatus};
use crate::tree::model::join;

/// Entries that are kept at most, of 48 bytes each. A list of which none are kept is read again.
const MAX_KEPT: usize = 1 << 16;

/// Keys of Change Lists that were read with their documents, until they are compared: by version of the file, in the order in
/// which they were read. There are none before somebody has asked for any: where no channel tells changes of resources, nobody
/// does.
#[derive(Debug, Clone, Default)]
pub struct ListKeyCache(Arc<Mutex<Option<RecentLists>>>);

type RecentLists = VecDeque<(FileStatus, ListedChanges)>;

impl ListKeyCache {
    /// Keeps the keys of a version of a file, and as many of others, the latest first, as there is room for.
    pub fn keep(&self, version: FileStatus, listed: ListedChanges) {
        let mut kept = lock(&self.0);
        let lists = kept.get_or_insert_default();
        lists.retain(|(other, _)| other.identity != version.identity);
        lists.push_back((version, listed));
        let mut count: usize = lists.iter().map(|(_, listed)| listed.entries.len()).sum();
        while count > MAX_KEPT
            && let Some((_, oldest)) = lists.pop_front()
        {
            count -= oldest.entries.len();
        }
    }

    /// Takes the keys of a version of a file, if they are kept.
    pub fn take(&self, version: &FileStatus) -> Option<ListedChanges> {
        let mut kept = lock(&self.0);
        let lists = kept.get_or_insert_default();
        let at = lists.iter().position(|(of, _)| of == version)?;
        lists.remove(at).map(|(_, listed)| listed)
    }
}

/// Returns all bytes of the file at `path`, read with the same care as documents: anything but a regular file is not
/// even opened, which may disturb others.
pub fn content(path: &Path) -> io::Result<Vec<u8>> {
    if file_status::of_path(path)?.kind != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads the file at `path`, and keeps its keys if it is a Change List and they are wanted. The caller has checked that it
/// is a regular file: opening anything else may disturb others. Returns the status of the file too, if it could be read to
/// an end.
pub fn read(path: &Path, recent_keys: &ListKeyCache) -> (Found, Option<FileStatus>) {
    try_read(path, recent_keys).unwrap_or_else(|error| {
        let look = if file_status::is_absence(error) {
            Found::Missing
        } else {
            Found::Incomplete(Incomplete::Denied(file_status::reason(error)))
        };
        (look, None)
    })
}

fn try_read(path: &Path, recent_keys: &ListKeyCache) -> Result<(Found, Option<FileStatus>), Errno> {
    let file = open(path)?;
    let before = file_status::of_open_file(&file)?;
    if before.kind != FileType::RegularFile {
        return Ok((Found::Incomplete(Incomplete::NotAFile), Some(before)));
    }
    let are_wanted = lock(&recent_keys.0).is_some();
    let parse = |reader: &mut dyn Read| parse_with_keys(reader, are_wanted);
    let content = if has_gz_suffix(path) {
        parse_gzip(&file, parse)
    } else {
        parse(&mut &file)
    };
    let after = file_status::of_path(path)?;
    Ok(match content {
        _ if before != after => (Found::Incomplete(Incomplete::BeingWritten), None),
        Ok((content, keys)) => {
            if let Some(keys) = keys {
                recent_keys.keep(after, keys);
            }
            let stat = after.stat;
            let look = match content {
                Ok(parsed) => Found::Document {
                    parsed: parsed.into(),
                    stat,
                },
                Err(reason) => Found::Other { reason, stat },
            };
            (look, Some(after))
        }
        Err(ReadError::Malformed(malformed)) => (Found::Incomplete(malformed.into()), Some(after)),
        Err(ReadError::Io(error)) => (
            Found::Incomplete(Incomplete::Denied(error.to_string())),
            None,
        ),
    })
}

/// Explains why there is no document at a path. Returns nothing if there is one, or if the mount is not there.
pub fn explain(settings: &TreeSettings, path: &DocumentPath) -> Option<WhyAbsent> {
    let mount = settings.mounts.iter().find(|plan| plan.id == path.mount)?;
    let file = join(&mount.directory, &path.below);
    match file_status::of_path(&file) {
        Err(error) if file_status::is_absence(error) => {
            file_status::of_path(&mount.directory).ok()?;
            return Some(other_case(&file).map_or(WhyAbsent::Nothing, WhyAbsent::OtherCase));
        }
        Err(error) => return Some(WhyAbsent::Denied(file_status::reason(error))),
        Ok(status) if status.kind != FileType::RegularFile => return Some(WhyAbsent::NotAFile),
        Ok(_) => {}
    }
    let excluded = settings
        .candidates
        .exclusion(&mount.url_path(), &path.below);
    if let Some(exclusion @ (Exclusion::Hidden | Exclusion::Excluded(_))) = excluded {
        return Some(WhyAbsent::Excluded(exclusion));
    }
    Some(match (read(&file, &settings.recent_keys).0, excluded) {
        // No glob would make a document of it.
        (Found::Other { reason, .. }, _) => WhyAbsent::Other(reason),
        (_, Some(exclusion)) => WhyAbsent::Excluded(exclusion),
        (Found::Missing, None) => WhyAbsent::Nothing,
        (Found::Document { .. }, None) => return None,
        (Found::Incomplete(Incomplete::Denied(reason)), None) => WhyAbsent::Denied(reason),
        (Found::Incomplete(reason), None) => WhyAbsent::Broken(reason.to_string()),
    })
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
        file_status::of_path(&absent.with_file_name(OsStr::from_bytes(other))).is_ok()
    })?;
    Some(String::from_utf8_lossy(found).into_owned())
}

/// Returns true if the file at `path` is read as gzip.
fn has_gz_suffix(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b".gz")
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

/// An open Change List or Resource List, in the version that was asked for.
#[derive(Debug)]
pub struct ListFile {
    file: File,
    opened: FileStatus,
    is_packed: bool,
}

/// The reason why a version of a list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ListFileError {
    /// It is not there any more, or changes while it is read.
    #[error("it is another version now")]
    Stale,
    #[error("cannot read on")]
    Io(#[from] io::Error),
}

/// The outcome of reading a list, or a part of it.
type ListResult<T> = Result<T, ListFileError>;

impl ListFile {
    /// Opens the version of the file at `path` that is there now, and returns it with its stat data.
    pub fn open_latest(path: &Path) -> ListResult<(ListFile, Stat)> {
        let status = file_status::of_path(path).map_err(io::Error::from)?;
        Ok((ListFile::open(path, status.stat)?, status.stat))
    }

    /// Opens the file at `path`, if it still has this stat data.
    pub fn open(path: &Path, stat: Stat) -> ListResult<ListFile> {
        let is_version =
            |status: &FileStatus| status.kind == FileType::RegularFile && status.stat == stat;
        let failed = |error: Errno| match error {
            Errno::NOENT => ListFileError::Stale,
            error => ListFileError::Io(error.into()),
        };
        // Anything but a regular file is not even opened, which may disturb others.
        if !is_version(&file_status::of_path(path).map_err(failed)?) {
            return Err(ListFileError::Stale);
        }
        let file = open(path).map_err(failed)?;
        let opened = file_status::of_open_file(&file).map_err(io::Error::from)?;
        if !is_version(&opened) {
            return Err(ListFileError::Stale);
        }
        Ok(ListFile {
            file,
            opened,
            is_packed: has_gz_suffix(path),
        })
    }

    /// Returns the keys of its entries, and takes those that were kept when it was read as a document.
    pub fn take_keys(&mut self, recent: &ListKeyCache) -> ListResult<ListedChanges> {
        let kept = recent.take(&self.opened);
        let read = |reader: &mut dyn Read| read_keys(reader);
        kept.map_or_else(|| self.read_version(FileStatus::eq, read), Ok)
    }

    /// Returns the entries at these places, which ascend. `span` is that of all its entries.
    pub fn read_at(&mut self, span: &Range<u64>, places: &[EntryPlace]) -> ListResult<Vec<Change>> {
        if !self.is_packed
            && let Some(changes) = read_changes_at(&self.file, span, places)
            && file_status::of_open_file(&self.file).map_err(io::Error::from)? == self.opened
        {
            return Ok(changes);
        }
        let positions: Vec<u32> = places.iter().map(|place| place.position).collect();
        let read = |reader: &mut dyn Read| read_changes(reader, &positions);
        let changes = self.read_version(FileStatus::eq, read)?;
        changes_at_places(changes, places).ok_or(ListFileError::Stale)
    }

    /// Returns the resources of a Resource List.
    pub fn resources(&mut self) -> ListResult<ListedResources> {
        self.read_version(FileStatus::eq, |reader| read_resources(reader))
    }

    /// Returns the entries of a Resource List at these positions, which ascend.
    pub fn resource_entries(&mut self, positions: &[u32]) -> ListResult<Vec<Change>> {
        let read = |reader: &mut dyn Read| read_resource_entries(reader, positions);
        let changes = self.read_version(FileStatus::eq, read)?;
        let all = Some(changes).filter(|changes| changes.len() == positions.len());
        all.ok_or(ListFileError::Stale)
    }

    /// Hands over the entries of a Change List or a Resource List with their positions, one after the other. Returns the
    /// times that it declares.
    pub fn each_entry(
        &mut self,
        capability: Capability,
        take: impl FnMut(u32, Change),
    ) -> ListResult<DeclaredSpan> {
        // A file that was replaced by renaming is still the version that it was.
        let content = |status: &FileStatus| (status.stat.size, status.stat.modified);
        self.read_version(
            |before, after| content(before) == content(after),
            |reader| each_entry(reader, capability, take),
        )
    }

    /// Reads all of it. The result counts if it is the same version after that.
    fn read_version<T>(
        &mut self,
        is_same: impl FnOnce(&FileStatus, &FileStatus) -> bool,
        read: impl FnOnce(&mut dyn Read) -> Result<T, ChangeListError>,
    ) -> ListResult<T> {
        self.file.seek(SeekFrom::Start(0))?;
        let result = if self.is_packed {
            read(&mut unpacked(&self.file))
        } else {
            read(&mut &self.file)
        };
        let after = file_status::of_open_file(&self.file).map_err(io::Error::from)?;
        match result {
            Ok(result) if is_same(&self.opened, &after) => Ok(result),
            // A file that was complete a moment ago and is not any more is being written.
            _ => Err(ListFileError::Stale),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use jiff::Timestamp;
    use resourcesync::change_list::{ListedChanges, read_keys};
    use rstest::rstest;

    use super::{ListKeyCache, MAX_KEPT, read};
    use rustix::fs::FileType;

    use crate::tree::file_status::FileStatus;
    use announce::observation::{FileId, Stat};

    fn version(inode: u64, size: u64) -> FileStatus {
        FileStatus {
            kind: FileType::RegularFile,
            identity: FileId { device: 1, inode },
            stat: Stat {
                size,
                modified: Timestamp::UNIX_EPOCH,
                changed: Timestamp::UNIX_EPOCH,
                inode,
            },
            has_other_names: false,
        }
    }

    const LIST: &str = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
        xmlns:rs='http://www.openarchives.org/rs/terms/'><rs:md capability='changelist'/>\
        <url><loc>https://e.org/</loc><rs:md change='updated'/></url></urlset>";

    fn listed(count: usize) -> ListedChanges {
        let mut listed = read_keys(LIST.as_bytes()).unwrap();
        listed.entries = vec![listed.entries[0]; count];
        listed
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[rstest]
    #[case::plain("list.xml", LIST.into())]
    #[case::packed("list.xml.gz", packed(LIST))]
    fn a_list_that_is_read_as_a_document_leaves_its_keys_once_they_are_wanted(
        #[case] name: &str,
        #[case] content: Vec<u8>,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        let keys = ListKeyCache::default();
        let version = || read(&path, &keys).1.unwrap();
        assert_eq!(keys.take(&version()), None);
        assert_eq!(keys.take(&version()), Some(listed(1)));
    }

    #[test]
    fn keys_are_taken_once_and_of_their_version_only() {
        let keys = ListKeyCache::default();
        keys.keep(version(1, 10), listed(3));
        assert_eq!(keys.take(&version(1, 11)), None);
        assert_eq!(keys.take(&version(1, 10)), Some(listed(3)));
        assert_eq!(keys.take(&version(1, 10)), None);
        // Of a file, one version is kept.
        keys.keep(version(1, 10), listed(3));
        keys.keep(version(1, 11), listed(4));
        assert_eq!(keys.take(&version(1, 10)), None);
        assert_eq!(keys.take(&version(1, 11)), Some(listed(4)));
    }

    #[test]
    fn the_oldest_make_room() {
        let keys = ListKeyCache::default();
        for (inode, count) in [(1, MAX_KEPT / 2), (2, MAX_KEPT / 2), (3, 1)] {
            keys.keep(version(inode, 10), listed(count));
        }
        let is_kept = |inode| keys.take(&version(inode, 10)).is_some();
        assert_eq!([1, 2, 3].map(is_kept), [false, true, true]);
    }

    #[test]
    fn nothing_is_wanted_before_somebody_asked() {
        let keys = ListKeyCache::default();
        assert!(keys.0.lock().unwrap().is_none());
        assert_eq!(keys.take(&version(1, 10)), None);
        assert!(keys.clone().0.lock().unwrap().is_some());
    }
}
