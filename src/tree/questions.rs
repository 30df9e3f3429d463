//! Somebody wants to know about a path, whatever we believe of it: each question gets an answer.

use crate::announce::observation::{DocumentPath, Incomplete, Look};
use crate::tree::file_status::{self, FileKind};
use crate::tree::model::{Entry, FileId, join};
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;

impl Observer<'_> {
    /// Answers from a fresh look. What exists and has not been met yet is answered by the next sweep, unless
    /// `is_last` says that this has been tried. Of what is no candidate nothing is said: it is not missing.
    pub(super) fn ask(&mut self, path: DocumentPath, is_last: bool) {
        let Some(at) = self.mounts.iter().position(|it| it.id == path.mount) else {
            return;
        };
        if !self.names.accepts(&self.mounts[at].published, &path.below) {
            return;
        }
        if self.mounts[at].identity.is_none() && self.mounts[at].is_brief() {
            self.mounts[at].asked.insert(path);
            return;
        }
        if self.mounts[at].identity.is_none() {
            let reason = self.mounts[at].lost.clone().unwrap_or_default();
            return self.observe(path, Look::Incomplete(Incomplete::Denied(reason)));
        }
        if let Some(id) = self.file_at(at, &path.below) {
            if let Some(file) = self.model.file_mut(id) {
                (file.is_asked, file.must_read) = (true, true);
            }
            return self.queue_file(id);
        }
        match file_status::follow(&join(&self.mounts[at].directory, &path.below)) {
            Ok(_) if !is_last => {
                self.mounts[at].asked.insert(path);
                if self.mounts[at].sweep.is_none() {
                    self.start_sweep(at);
                }
            }
            Err(error) if !file_status::is_absence(error) => {
                let reason = Incomplete::Denied(file_status::reason(error));
                self.observe(path, Look::Incomplete(reason));
            }
            // The sweep did not reach it, as behind a link that is not followed.
            Ok(status) if status.kind == FileKind::File => {
                let reason = Incomplete::Denied("no way that is followed leads to it".into());
                self.observe(path, Look::Incomplete(reason));
            }
            // Gone, or no file.
            Ok(_) | Err(_) => {
                let unmet = self.mounts[at].known.remove(&*path.below);
                self.observe_missing(path, unmet.unwrap_or(UnmetFile::UNREAD));
            }
        }
    }

    /// The candidate at a path, looked up by name if it is not known yet.
    fn file_at(&mut self, at: usize, below: &[u8]) -> Option<FileId> {
        let mut directory = self.mounts[at].root;
        let mut names = below.split(|&byte| byte == b'/');
        let last = names.next_back()?;
        for name in names {
            match self.model.entry(directory, name)? {
                Entry::Directory(id) => directory = id,
                Entry::File(_) | Entry::Dangling | Entry::Refused => return None,
            }
        }
        let unclear = Hint {
            unclear: true,
            ..Hint::default()
        };
        self.examine(directory, last, unclear);
        match self.model.entry(directory, last)? {
            Entry::File(id) => Some(id),
            Entry::Directory(_) | Entry::Dangling | Entry::Refused => None,
        }
    }
}
