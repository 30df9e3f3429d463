//! Missing documents by directory, for an operator who is to decide whether they are deleted (R15).

use std::collections::BTreeMap;

use crate::announce::engine::Engine;
use crate::announce::engine::source::Source;
use crate::announce::engine::source::mounts::root::MountState;
use crate::announce::observation::MountId;
use crate::announce::state::Record;
use crate::report::status::{MissingDirectory, MissingView};

/// Directories that are reported; of others, their number.
const MAX_DIRECTORIES: usize = 10;

/// Returns what [`Event::Accept`](crate::announce::event::Event::Accept) would accept of the source at this position in
/// the plan.
pub fn acceptable(engine: &Engine, position: usize) -> MissingView {
    let source = &engine.sources()[position];
    let mounts = source.tree.mounts().iter().map(|(_, mount)| mount);
    let absent = mounts.filter(|mount| mount.root.state() == MountState::Absent);
    let directories = by_directory(source, |record| {
        record.is_missing() && !source.tree.mounts().is_absent(record.path.mount)
    });
    MissingView {
        source: engine.plan().sources[position].name.clone(),
        documents: directories.iter().map(|directory| directory.missing).sum(),
        directories,
        absent: absent
            .map(|mount| mount.directory.to_string_lossy().into_owned())
            .collect(),
    }
}

/// Returns the first directories of [`suspended`], and the number of the others.
pub fn first_suspended(engine: &Engine, position: usize) -> (Vec<MissingDirectory>, usize) {
    let mut directories = suspended(engine, position);
    let more = directories.len().saturating_sub(MAX_DIRECTORIES);
    directories.truncate(MAX_DIRECTORIES);
    (directories, more)
}

/// Returns the directories in which documents are missing and not yet accepted, if that suspends deletions.
pub fn suspended(engine: &Engine, position: usize) -> Vec<MissingDirectory> {
    let source = &engine.sources()[position];
    if !source.tree.deletions().are_suspended() {
        return Vec::new();
    }
    by_directory(source, |record| {
        record.is_missing() && source.tree.is_deletion_suspended(record)
    })
}

/// Returns the directories that documents are missing in, those with most first.
fn by_directory(source: &Source, is_missing: impl Fn(&Record) -> bool) -> Vec<MissingDirectory> {
    let mut counts: BTreeMap<(MountId, &[u8]), (usize, usize)> = BTreeMap::new();
    let records = source.catalog().iter().map(|(_, record)| record);
    for record in records.filter(|record| !record.is_gone()) {
        let below = &record.path.below;
        let end = below.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let key = (record.path.mount, &below[..end]);
        let count = counts.entry(key).or_default();
        count.0 += usize::from(is_missing(record));
        count.1 += 1;
    }
    let found = counts.into_iter().filter(|(_, (missing, _))| *missing > 0);
    let directories = found.map(|((mount, below), (missing, of))| MissingDirectory {
        directory: source
            .tree
            .mounts()
            .get(mount)
            .map_or_else(String::new, |mount| mount.text_of(below)),
        missing,
        of,
    });
    let mut directories: Vec<MissingDirectory> = directories.collect();
    // Stable: else in order of their names.
    directories.sort_by_key(|directory| std::cmp::Reverse(directory.missing));
    directories
}
