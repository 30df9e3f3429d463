//! The keys of the Change Lists that were read last, so that no list is read once for its fingerprint and again for its keys
//! (C6).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resourcesync::change_list::ListedChanges;

use crate::tree::file_status::FileStatus;

/// Entries that are kept at most, of 48 bytes each. A list of which none are kept is read again.
const MAX_KEPT: usize = 1 << 17;

/// Keys that were read with their documents, until they are compared.
#[derive(Debug, Clone, Default)]
pub struct RecentKeys(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// True once somebody has asked for any: where no channel tells changes of resources, nobody does.
    is_wanted: bool,
    /// By version of the file, in the order in which they were read.
    lists: VecDeque<(FileStatus, ListedChanges)>,
}

impl RecentKeys {
    /// Returns true if keys are to be read with the documents from now on.
    pub(super) fn are_wanted(&self) -> bool {
        self.kept().is_wanted
    }

    /// Keeps the keys of a version of a file, and as many of others, the latest first, as there is room for.
    pub(super) fn keep(&self, version: FileStatus, listed: ListedChanges) {
        let mut kept = self.kept();
        let lists = &mut kept.lists;
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
    pub(super) fn take(&self, version: &FileStatus) -> Option<ListedChanges> {
        let mut kept = self.kept();
        kept.is_wanted = true;
        let at = kept.lists.iter().position(|(of, _)| of == version)?;
        kept.lists.remove(at).map(|(_, listed)| listed)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    use super::{MAX_KEPT, RecentKeys};
    use crate::announce::observation::{Identity, Stat};
    use crate::tree::file_status::{FileKind, FileStatus};
    use crate::tree::read_file::read;

    fn version(inode: u64, size: u64) -> FileStatus {
        FileStatus {
            kind: FileKind::File,
            identity: Identity { device: 1, inode },
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
        let keys = RecentKeys::default();
        let version = || read(&path, &keys).1.unwrap();
        assert_eq!(keys.take(&version()), None);
        assert_eq!(keys.take(&version()), Some(listed(1)));
    }

    #[test]
    fn keys_are_taken_once_and_of_their_version_only() {
        let keys = RecentKeys::default();
        keys.keep(version(1, 10), listed(3));
        assert_eq!(keys.take(&version(1, 11)), None);
        assert_eq!(keys.take(&version(1, 10)), Some(listed(3)));
        assert_eq!(keys.take(&version(1, 10)), None);
    }

    #[test]
    fn a_file_is_kept_in_one_version() {
        let keys = RecentKeys::default();
        keys.keep(version(1, 10), listed(3));
        keys.keep(version(1, 11), listed(4));
        assert_eq!(keys.take(&version(1, 10)), None);
        assert_eq!(keys.take(&version(1, 11)), Some(listed(4)));
    }

    #[test]
    fn the_oldest_make_room() {
        let keys = RecentKeys::default();
        keys.keep(version(1, 10), listed(MAX_KEPT / 2));
        keys.keep(version(2, 10), listed(MAX_KEPT / 2));
        keys.keep(version(3, 10), listed(1));
        assert_eq!(keys.take(&version(1, 10)), None);
        assert!(keys.take(&version(2, 10)).is_some());
        assert!(keys.take(&version(3, 10)).is_some());
    }

    #[test]
    fn nothing_is_wanted_before_somebody_asked() {
        let keys = RecentKeys::default();
        assert!(!keys.are_wanted());
        assert_eq!(keys.take(&version(1, 10)), None);
        assert!(keys.clone().are_wanted());
    }
}
