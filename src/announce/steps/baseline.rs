//! The baseline of one mount: what is there before anybody looked counts as told (R13).

use jiff::Timestamp;
use resourcesync::fingerprint::Fingerprint;
use resourcesync::uri::Uri;

use crate::announce::candidates::{Candidates, PublishedPath};
use crate::announce::steps::documents::Sighting;
use crate::announce::steps::mounts::MountRow;

/// Complete sweeps of one mount, and the files that were read first in the one under way.
#[derive(Debug, Clone)]
pub struct Baseline {
    is_complete: bool,
    /// The start of the last complete sweep.
    swept: Option<Timestamp>,
    /// The candidates of that sweep, if they were stored.
    candidates: Option<SweptCandidates>,
    first_looks: FirstLooks,
}

/// The candidates of the last complete sweep.
#[derive(Debug, Clone)]
struct SweptCandidates {
    candidates: Candidates,
    /// False if the configuration has others. Until the mount was swept, what else there is counts as known.
    are_configured: bool,
}

/// The documents that are read for the first time while a mount is swept.
#[derive(Debug, Clone)]
struct FirstLooks {
    /// A time before the sweep under way, or the next one, begins. By the file system's clock if the mount was just
    /// found.
    started: Timestamp,
    /// Documents that changed since `started` by the clock of the files.
    fresh: Vec<(Uri, Fingerprint)>,
    /// True if some file is from the future, so that the clock of the files is not ours.
    has_other_clock: bool,
}

/// A complete sweep that has ended.
#[derive(Debug)]
pub struct EndedSweep {
    /// True if the baseline of the mount is complete with it.
    pub is_first: bool,
    /// Documents whose first version counts as told after all: where the file system's clock is not ours, nothing tells
    /// that a file changed while its mount was swept.
    pub unclear: Vec<(Uri, Fingerprint)>,
}

impl Baseline {
    /// Begins without any sweep.
    pub fn new(wall: Timestamp) -> Baseline {
        Baseline {
            is_complete: false,
            swept: None,
            candidates: None,
            first_looks: FirstLooks::since(wall),
        }
    }

    /// Takes up what is stored of it, under a configuration that may have other candidates.
    pub fn restored(row: &MountRow, configured: &Candidates, wall: Timestamp) -> Baseline {
        let candidates = row.candidates.as_ref().map(|swept| SweptCandidates {
            candidates: swept.clone(),
            are_configured: swept == configured,
        });
        Baseline {
            is_complete: row.baselined,
            swept: row.swept,
            candidates,
            ..Baseline::new(wall)
        }
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the start of the last complete sweep.
    pub fn swept(&self) -> Option<Timestamp> {
        self.swept
    }

    /// Returns the candidates of the last complete sweep.
    pub fn candidates(&self) -> Option<&Candidates> {
        let swept = self.candidates.as_ref()?;
        Some(&swept.candidates)
    }

    /// Returns true if `below` was never looked at in a mount with this prefix: what lies there was there before, as far as
    /// anybody knows.
    pub fn is_new_ground(&self, prefix: &Uri, below: &[u8]) -> bool {
        let was_looked_at = |swept: &SweptCandidates| {
            swept.are_configured || swept.candidates.accepts(&PublishedPath::of(prefix), below)
        };
        !self.is_complete || !self.candidates.as_ref().is_none_or(was_looked_at)
    }

    /// Returns true if the last complete sweep had the candidates that are configured.
    pub fn is_as_configured(&self) -> bool {
        let swept = self.candidates.as_ref();
        self.is_complete && swept.is_some_and(|swept| swept.are_configured)
    }

    /// Begins anew, because another tree was found.
    pub fn begin_anew(&mut self) {
        self.is_complete = false;
    }

    /// Begins a sweep of a root that was found.
    pub fn begin_sweep(&mut self, started: Timestamp) {
        self.first_looks = FirstLooks::since(started);
    }

    /// Gives up a sweep.
    pub fn leave_sweep(&mut self) {
        self.first_looks.fresh.clear();
    }

    /// Returns true if the content of a document that is read for the first time counts as told: not if it could not be read
    /// before, or changed while the mount was swept.
    pub fn first_look(&mut self, uri: &Uri, sighting: &Sighting, predates: bool) -> bool {
        let Sighting {
            parsed, stat, at, ..
        } = sighting;
        // A file from the future was stamped by another clock than ours, which says nothing about the sweep.
        let is_fresh = self.first_looks.started <= stat.changed && stat.changed <= *at;
        self.first_looks.has_other_clock |= stat.changed > *at;
        if !predates && is_fresh {
            let fresh = (uri.clone(), parsed.fingerprint);
            self.first_looks.fresh.push(fresh);
        }
        !predates && !is_fresh
    }

    /// Ends a complete sweep of these candidates.
    pub fn end_sweep(&mut self, candidates: &Candidates, wall: Timestamp) -> EndedSweep {
        // No later sweep begins earlier, and not every one says when.
        self.swept = Some(std::mem::replace(&mut self.first_looks.started, wall));
        self.candidates = Some(SweptCandidates {
            candidates: candidates.clone(),
            are_configured: true,
        });
        EndedSweep {
            is_first: !std::mem::replace(&mut self.is_complete, true),
            unclear: self.first_looks.take_unclear(),
        }
    }
}

impl FirstLooks {
    fn since(started: Timestamp) -> FirstLooks {
        FirstLooks {
            started,
            fresh: Vec::new(),
            has_other_clock: false,
        }
    }

    fn take_unclear(&mut self) -> Vec<(Uri, Fingerprint)> {
        let fresh = std::mem::take(&mut self.fresh);
        match std::mem::take(&mut self.has_other_clock) {
            true => fresh,
            false => Vec::new(),
        }
    }
}
