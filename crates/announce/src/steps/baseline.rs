//! The baseline of one mount: what is there before anybody looked counts as told (R13).

use jiff::Timestamp;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::Uri;

use crate::candidates::{CandidateGlobs, MountUrlPath};
use crate::steps::documents::ReadDocument;

/// Complete sweeps of one mount, and the documents that were read first in the one under way.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    pub is_complete: bool,
    /// The start of the last complete sweep.
    pub swept: Option<Timestamp>,
    /// The candidates of that sweep, if they were stored. What is added to them later was there before, as far as anybody
    /// knows (R13).
    pub candidates: Option<SweepScope>,
    /// A time before the sweep under way, or the next one, begins. By the file system's clock if the mount was just
    /// found.
    pub started: Timestamp,
    /// Documents that changed since `started` by the clock of the files; nothing after the sweep of a root that was found.
    pub fresh: Option<Vec<(Uri, Fingerprint)>>,
    /// True if some file is from the future, so that the clock of the files is not ours.
    pub has_other_clock: bool,
}

/// The part of a mount that its last complete sweep looked at.
#[derive(Debug, Clone)]
pub struct SweepScope {
    pub candidates: CandidateGlobs,
    /// The prefixes of others inside, below which it saw nothing.
    pub inside: Vec<Uri>,
    /// False if the configuration has other candidates, or prefixes inside. Until the mount was swept, what else there is
    /// counts as known.
    pub are_configured: bool,
    /// The directories that could not be read so far.
    pub unread: Vec<Uri>,
}

impl Baseline {
    /// Returns true if `below` was never looked at in a mount with this prefix: what lies there was there before, as far as
    /// anybody knows.
    pub fn is_new_ground(&self, prefix: &Uri, below: &[u8]) -> bool {
        let is_new = |swept: &SweepScope| {
            let uri = Uri::below(prefix, below);
            let is_below = |uris: &[Uri]| uris.iter().any(|it| uri.is_below(it));
            let is_candidate = || swept.candidates.accepts(&MountUrlPath::of(prefix), below);
            is_below(&swept.unread)
                || !swept.are_configured && (is_below(&swept.inside) || !is_candidate())
        };
        !self.is_complete || self.candidates.as_ref().is_some_and(is_new)
    }

    /// Returns true if the last complete sweep had the candidates that are configured.
    pub fn is_swept_as_configured(&self) -> bool {
        let swept = self.candidates.as_ref();
        self.is_complete && swept.is_some_and(|swept| swept.are_configured)
    }

    /// Begins a sweep of a root that was found.
    pub fn begin_sweep(&mut self, started: Timestamp) {
        (self.started, self.fresh) = (started, Some(Vec::new()));
        self.has_other_clock = false;
    }

    /// Takes a document that is read for the first time. Returns whether its content counts as told (R13): not if it changed
    /// while the mount was swept.
    pub fn first_look(&mut self, read: &ReadDocument) -> bool {
        let (changed, at) = (read.stat.changed, read.at);
        // A file from the future was stamped by another clock than ours, which says nothing about the sweep.
        let is_fresh = self.started <= changed && changed <= at;
        self.has_other_clock |= changed > at;
        let Some(fresh) = self.fresh.as_mut().filter(|_| is_fresh) else {
            return true;
        };
        fresh.push((read.known.uri.clone(), read.parsed.fingerprint));
        false
    }

    /// Ends a complete sweep, with the directories that could not be read. What lies below one that never could, under
    /// this configuration, belongs to the baseline once it can (R13). Returns the documents whose first version counts
    /// as told after all: where the file system's clock is not ours, nothing tells that a file changed while its mount
    /// was swept.
    pub fn end_sweep(&mut self, mut swept: SweepScope, at: Timestamp) -> Vec<(Uri, Fingerprint)> {
        let before = self.candidates.take();
        if let Some(before) = before.filter(|it| self.is_complete && it.are_configured) {
            let was_unread =
                |directory: &Uri| before.unread.iter().any(|it| directory.is_below(it));
            swept.unread.retain(was_unread);
        }
        self.candidates = Some(swept);
        // No later sweep begins earlier, and not every one says when.
        self.swept = Some(std::mem::replace(&mut self.started, at));
        let fresh = self.fresh.take().unwrap_or_default();
        self.is_complete = true;
        if std::mem::take(&mut self.has_other_clock) {
            fresh
        } else {
            Vec::new()
        }
    }
}
