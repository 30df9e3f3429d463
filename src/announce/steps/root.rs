//! The root of one mount: which directory it is, and whether it is there (R13, R15).

use std::collections::BTreeSet;

use resourcesync::uri::Uri;

use crate::announce::observation::Identity;

/// The root of one mount.
///
/// Once one held documents, another directory in its place is taken for the mount only if it holds something.
#[derive(Debug, Clone)]
pub struct MountRoot {
    /// The root that held documents, once one did; until then the last one that was found.
    pub identity: Option<Identity>,
    pub held_document: bool,
    state: RootState,
}

#[derive(Debug, Clone)]
enum RootState {
    /// Neither found nor lost since the start.
    Unknown,
    /// The root with the known identity is there. It is ready once it was swept to its end, or taken for the mount in place
    /// of the one that held documents.
    Known { is_ready: bool },
    /// Another directory is there than the one that held documents.
    Doubtful {
        found: Identity,
        /// Documents that were not found below it.
        unfound: BTreeSet<Uri>,
        /// The reason why the mount is absent, once a sweep met nothing below it.
        rejected: Option<String>,
    },
    /// It is not there, or could not be swept to the end.
    Lost { reason: Option<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountState {
    /// Neither found nor lost since the start.
    Unknown,
    Sweeping,
    Ready,
    Absent,
}

/// A root that is taken for the mount, because it holds something.
#[derive(Debug, PartialEq, Eq)]
pub struct AcceptedRoot {
    /// Documents that were not found below it.
    pub unfound: BTreeSet<Uri>,
    /// True if the mount was absent until now.
    pub was_absent: bool,
}

impl MountRoot {
    /// Takes up what is stored of a root.
    pub fn new(identity: Option<Identity>, held_document: bool) -> MountRoot {
        MountRoot {
            identity,
            held_document,
            state: RootState::Unknown,
        }
    }

    pub fn state(&self) -> MountState {
        match &self.state {
            RootState::Unknown => MountState::Unknown,
            RootState::Known { is_ready: false } | RootState::Doubtful { rejected: None, .. } => {
                MountState::Sweeping
            }
            RootState::Known { is_ready: true } => MountState::Ready,
            RootState::Doubtful {
                rejected: Some(_), ..
            }
            | RootState::Lost { .. } => MountState::Absent,
        }
    }

    /// Returns why the mount is absent, if it is.
    pub fn reason(&self) -> Option<&str> {
        match &self.state {
            RootState::Doubtful { rejected, .. } => rejected.as_deref(),
            RootState::Lost { reason } => reason.as_deref(),
            RootState::Unknown | RootState::Known { .. } => None,
        }
    }

    /// Returns true if a directory is there in its place, but is empty, so that the mount is absent.
    pub fn is_empty(&self) -> bool {
        matches!(
            self.state,
            RootState::Doubtful {
                rejected: Some(_),
                ..
            }
        )
    }

    /// Takes a directory that was found. Returns true if it is another tree: another directory than before, of which none
    /// held documents (R13).
    pub fn find(&mut self, found: Identity) -> bool {
        let is_other = self.identity != Some(found);
        if is_other && self.held_document {
            self.state = RootState::Doubtful {
                found,
                unfound: BTreeSet::new(),
                rejected: None,
            };
            return false;
        }
        self.identity = Some(found);
        self.state = RootState::Known { is_ready: false };
        is_other
    }

    /// Counts the mount as absent, because the directory in its place is empty. Returns false if it is absent already.
    pub fn reject(&mut self, reason: &str) -> bool {
        let RootState::Doubtful {
            unfound, rejected, ..
        } = &mut self.state
        else {
            return false;
        };
        unfound.clear();
        let is_news = rejected.is_none();
        rejected.get_or_insert_with(|| reason.to_owned());
        is_news
    }

    /// Accepts the directory in its place as the root of the mount, if that was in doubt.
    pub fn accept(&mut self) -> Option<AcceptedRoot> {
        let RootState::Doubtful {
            found,
            unfound,
            rejected,
        } = &mut self.state
        else {
            return None;
        };
        let accepted = AcceptedRoot {
            unfound: std::mem::take(unfound),
            was_absent: rejected.is_some(),
        };
        self.identity = Some(*found);
        self.state = RootState::Known { is_ready: true };
        Some(accepted)
    }

    /// Notes that what is there was swept to the end. Returns false if that is not the mount: it is lost, or another
    /// directory that was not accepted.
    pub fn end_sweep(&mut self) -> bool {
        match self.state {
            RootState::Unknown | RootState::Known { .. } => {
                self.state = RootState::Known { is_ready: true };
                true
            }
            RootState::Doubtful { .. } | RootState::Lost { .. } => false,
        }
    }

    /// Notes that it is not there, or could not be swept to the end.
    pub fn leave(&mut self) {
        let reason = match &mut self.state {
            RootState::Doubtful { rejected, .. } => rejected.take(),
            RootState::Lost { reason } => reason.take(),
            RootState::Unknown | RootState::Known { .. } => None,
        };
        self.state = RootState::Lost { reason };
    }

    /// Notes why it is not there.
    pub fn lose(&mut self, reason: String) {
        self.state = RootState::Lost {
            reason: Some(reason),
        };
    }

    /// Returns true if another directory is there than the one that held documents.
    pub fn is_doubtful(&self) -> bool {
        matches!(self.state, RootState::Doubtful { .. })
    }

    /// Notes whether a document was found, at the last look, below a directory that may be the wrong one. Returns false if
    /// it is the right one.
    pub fn note_look(&mut self, uri: &Uri, is_found: bool) -> bool {
        let RootState::Doubtful { unfound, .. } = &mut self.state else {
            return false;
        };
        if is_found {
            unfound.remove(uri);
        } else {
            unfound.insert(uri.clone());
        }
        true
    }
}
