//! What is missing, as an operator wants to know before saying that it is deleted: by directory (R15).

use std::collections::BTreeMap;

use crate::announce::engine::Engine;
use crate::announce::engine::source::MountState;
use crate::announce::observation::MountId;
use crate::announce::state::{Presence, Record};
use crate::report::status::{MissingDirectory, MissingView};

/// So many directories are told of in the status; of others, how many they are.
const MOST_DIRECTORIES: usize = 10;

impl Engine {
    /// What [`Event::Accept`](crate::announce::event::Event::Accept) would accept of a source, named as it is there.
    pub fn acceptable_view(&self, source: usize) -> MissingView {
        let state = &self.sources[source];
        let mounts = state.mounts.values();
        let absent = mounts.filter(|mount| mount.status == MountState::Absent);
        let directories = self.by_directory(source, |record| {
            record.is_missing() && !state.is_absent(record.path.mount)
        });
        MissingView {
            source: self.plan.sources[source].name.clone(),
            documents: directories.iter().map(|own| own.missing).sum(),
            directories,
            absent: absent
                .map(|mount| mount.row.directory.to_string_lossy().into_owned())
                .collect(),
        }
    }

    /// The first directories of [`Engine::suspended_directories`], and how many more there are.
    pub(super) fn first_suspended(&self, source: usize) -> (Vec<MissingDirectory>, usize) {
        let mut directories = self.suspended_directories(source);
        let more = directories.len().saturating_sub(MOST_DIRECTORIES);
        directories.truncate(MOST_DIRECTORIES);
        (directories, more)
    }

    /// Where documents are missing and not yet accepted, if that suspends deletions.
    pub fn suspended_directories(&self, source: usize) -> Vec<MissingDirectory> {
        if !self.sources[source].suspended {
            return Vec::new();
        }
        self.by_directory(source, |record| {
            matches!(
                record.presence,
                Presence::Missing {
                    approved: false,
                    ..
                }
            )
        })
    }

    /// The directories that documents are missing in, those with most first.
    fn by_directory(
        &self,
        source: usize,
        is_missing: impl Fn(&Record) -> bool,
    ) -> Vec<MissingDirectory> {
        let state = &self.sources[source];
        let mut counts: BTreeMap<(MountId, &[u8]), (usize, usize)> = BTreeMap::new();
        for (_, record) in state.catalog.iter().filter(|(_, own)| !own.is_gone()) {
            let below = &record.path.below;
            let end = below.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            let count = counts
                .entry((record.path.mount, &below[..end]))
                .or_default();
            count.0 += usize::from(is_missing(record));
            count.1 += 1;
        }
        let found = counts.into_iter().filter(|(_, (missing, _))| *missing > 0);
        let mut directories: Vec<MissingDirectory> = found
            .map(|((mount, below), (missing, of))| {
                let mount = state.mounts.get(&mount);
                let root = mount.map(|mount| mount.row.directory.to_string_lossy());
                let mut directory = root.unwrap_or_default().into_owned();
                if !below.is_empty() {
                    if !directory.ends_with('/') {
                        directory.push('/');
                    }
                    directory.push_str(&String::from_utf8_lossy(below));
                }
                MissingDirectory {
                    directory,
                    missing,
                    of,
                }
            })
            .collect();
        // Stable: else in order of their names.
        directories.sort_by_key(|own| std::cmp::Reverse(own.missing));
        directories
    }
}
