//! One mount, with what this run knows of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::candidates::Candidates;
use crate::announce::engine::source::mounts::UnreadableSample;
use crate::announce::engine::source::mounts::baseline::{Baseline, EndedSweep};
use crate::announce::engine::source::mounts::nested::{DocumentsBelow, NestedFileSystems};
use crate::announce::engine::source::mounts::root::MountRoot;
use crate::announce::observation::Identity;
use crate::announce::plan::{MountPlan, SourcePlan};
use crate::announce::state::MountRow;

/// A mount, with what this run knows of it. Its root, baseline and file systems are stored in one row.
#[derive(Debug)]
pub struct KnownMount {
    pub directory: PathBuf,
    pub prefix: Uri,
    pub root: MountRoot,
    pub baseline: Baseline,
    pub nested: NestedFileSystems,
    pub unreadable: UnreadableSample,
}

impl KnownMount {
    /// Takes up a stored row, if there is one. Its directory may have been another one: R15: that is another root, which
    /// must hold something to be taken for the mount.
    pub fn new(
        plan: &MountPlan,
        source: &SourcePlan,
        row: Option<MountRow>,
        now: Timestamp,
    ) -> KnownMount {
        let (root, baseline, nested) = match row {
            None => (
                MountRoot::new(None, false),
                Baseline::new(now),
                NestedFileSystems::new(BTreeMap::new(), false),
            ),
            Some(row) => (
                MountRoot::new(row.identity, row.held_document),
                Baseline::restored(&row, &source.candidates, now),
                NestedFileSystems::new(row.nested, row.baselined),
            ),
        };
        KnownMount {
            directory: plan.directory.clone(),
            prefix: plan.prefix.clone(),
            root,
            baseline,
            nested,
            unreadable: UnreadableSample::default(),
        }
    }

    /// Returns what is stored of it.
    pub fn row(&self, source: &str) -> MountRow {
        MountRow {
            source: source.to_owned(),
            directory: self.directory.clone(),
            prefix: self.prefix.clone(),
            identity: self.root.identity(),
            baselined: self.baseline.is_complete(),
            held_document: self.root.held_document(),
            swept: self.baseline.swept(),
            candidates: self.baseline.candidates().cloned(),
            nested: self.nested.rows().clone(),
        }
    }

    /// Returns the directory of a file system that is known to be away from above a path (R15), as text.
    pub fn directory_away(&self, below: &[u8]) -> Option<String> {
        let top = self.nested.known_away(below)?;
        Some(self.text_of(top))
    }

    /// Returns the path of something below its root in the file system, as text.
    pub fn text_of(&self, below: &[u8]) -> String {
        let mut path = self.directory.to_string_lossy().into_owned();
        if !below.is_empty() {
            if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(&String::from_utf8_lossy(below));
        }
        path
    }

    /// Returns true if `below` was never looked at: what lies there was there before, as far as anybody knows (R13).
    pub fn is_new_ground(&self, below: &[u8]) -> bool {
        self.baseline.is_new_ground(&self.prefix, below)
    }

    /// Begins a sweep of a root that was found.
    pub fn find(&mut self, identity: Identity, started: Timestamp) {
        if self.root.find(identity) {
            self.baseline.begin_anew();
            self.nested.forget_rows();
        }
        self.baseline.begin_sweep(started);
    }

    /// Ends a complete sweep, after which these documents are known; nothing if what was swept is not the mount.
    pub fn end_sweep(
        &mut self,
        candidates: &Candidates,
        documents: &DocumentsBelow<'_>,
        now: Timestamp,
    ) -> Option<EndedSweep> {
        if !self.root.end_sweep() {
            return None;
        }
        self.nested.decide(documents);
        Some(self.baseline.end_sweep(candidates, now))
    }

    /// Notes that the root is not there, or could not be swept to the end.
    pub fn leave(&mut self) {
        self.root.leave();
        self.baseline.leave_sweep();
    }

    /// Takes the mount to be absent, because its root is empty. Returns the reason, unless it is absent already.
    pub fn reject_root(&mut self) -> Option<String> {
        let reason = format!(
            "{}: it is empty, and not the directory that held documents: is its file system mounted?",
            self.directory.display()
        );
        self.root.reject(&reason).then_some(reason)
    }
}
