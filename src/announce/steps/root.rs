//! The root of one mount: which directory it is, and whether it is there (R13, R15).

use std::collections::BTreeSet;

use resourcesync::uri::Uri;

use crate::announce::observation::Identity;

/// The root of one mount.
///
/// Once one held documents, another directory in its place is taken for the mount only if it holds something.
#[derive(Debug, Clone, Default)]
pub struct MountRoot {
    /// The root that held documents, once one did; until then the last one that was found.
    pub identity: Option<Identity>,
    pub held_document: bool,
    pub state: MountState,
    /// Another directory that is there than the one that held documents, with the documents that were not found below it.
    pub doubt: Option<(Identity, BTreeSet<Uri>)>,
    /// The reason why the mount is absent.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MountState {
    /// Neither found nor lost since the start.
    #[default]
    Unknown,
    Sweeping,
    Ready,
    /// It is not there, could not be swept to the end, or is an empty directory where another one held documents.
    Absent,
}

impl MountRoot {
    /// Returns true if a directory is there in its place, but is empty, so that the mount is absent.
    pub fn is_empty(&self) -> bool {
        self.doubt.is_some() && self.state == MountState::Absent
    }

    /// Takes a directory that was found. Returns true if it is another tree: another directory than before, of which none
    /// held documents (R13).
    pub fn find(&mut self, found: Identity) -> bool {
        let is_other = self.identity != Some(found);
        let is_doubtful = is_other && self.held_document;
        self.doubt = is_doubtful.then(|| (found, BTreeSet::new()));
        (self.state, self.reason) = (MountState::Sweeping, None);
        if !is_doubtful {
            self.identity = Some(found);
        }
        is_other && !is_doubtful
    }

    /// Counts the mount as absent, because the directory in its place is empty. Returns false if it is absent already.
    pub fn reject(&mut self, reason: &str) -> bool {
        let Some((_, unfound)) = &mut self.doubt else {
            return false;
        };
        unfound.clear();
        let is_news = self.state != MountState::Absent;
        self.state = MountState::Absent;
        self.reason.get_or_insert_with(|| reason.to_owned());
        is_news
    }

    /// Accepts the directory in its place as the root of the mount, if that was in doubt. Returns the documents that were not
    /// found below it, and whether the mount was absent until now.
    pub fn accept(&mut self) -> Option<(BTreeSet<Uri>, bool)> {
        let (found, unfound) = self.doubt.take()?;
        let was_absent = self.state == MountState::Absent;
        self.identity = Some(found);
        (self.state, self.reason) = (MountState::Ready, None);
        Some((unfound, was_absent))
    }

    /// Notes that what is there was swept to the end. Returns false if that is not the mount: it is lost, or another
    /// directory that was not accepted.
    pub fn end_sweep(&mut self) -> bool {
        let is_mount = self.doubt.is_none() && self.state != MountState::Absent;
        if is_mount {
            self.state = MountState::Ready;
        }
        is_mount
    }

    /// Notes that it is not there, or could not be swept to the end.
    pub fn leave(&mut self) {
        (self.state, self.doubt) = (MountState::Absent, None);
    }

    /// Notes whether a document was found, at the last look, below a directory that may be the wrong one. Returns false if
    /// it is the right one.
    pub fn note_look(&mut self, uri: &Uri, is_found: bool) -> bool {
        let Some((_, unfound)) = &mut self.doubt else {
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
