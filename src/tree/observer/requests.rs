//! Requests for a report on a path, whatever is known of it: each is answered.

use std::time::Instant;

use crate::announce::observation::{DocumentPath, Incomplete, Look};
use crate::tree::directories::join;
use crate::tree::file_status::{self, FileKind};
use crate::tree::model::FileId;
use crate::tree::mount::UnmetFile;
use crate::tree::observer::Observer;
use crate::tree::pending_hints::Hint;

impl Observer<'_> {
    /// Answers from a fresh look. A file that exists and has not been met yet is left to the next sweep, unless
    /// `is_last` says that this has been tried. Nothing is reported of a path that is no candidate: it is not missing.
    pub fn answer_request(&mut self, path: DocumentPath, is_last: bool) {
        let Some(at) = self.mounts.iter().position(|it| it.id == path.mount) else {
            return;
        };
        let mount = &mut self.mounts[at];
        if !self
            .settings
            .candidates
            .accepts(&mount.published, &path.below)
        {
            return;
        }
        if mount.found.is_none() {
            if mount.is_swapping(Instant::now()) {
                mount.requested.insert(path);
                return;
            }
            let reason = mount.absence.reason.clone();
            return self.report_denied(path, reason);
        }
        if let Some(id) = self.file_at(at, &path.below) {
            if let Some(file) = self.model.file_mut(id) {
                file.request();
            }
            return self.queue.push_file(id);
        }
        match file_status::follow(&join(&self.mounts[at].directory, &path.below)) {
            Ok(_) if !is_last => {
                self.mounts[at].requested.insert(path);
                if self.mounts[at].sweep.is_none() {
                    self.mounts[at].begin_sweep();
                }
            }
            Err(error) if !file_status::is_absence(error) => {
                self.report_denied(path, file_status::reason(error));
            }
            // The sweep did not reach it, as behind a link that is not followed.
            Ok(status) if status.kind == FileKind::File => {
                self.report_denied(path, "it lies behind a link that is not followed".into());
            }
            // It is gone, or no file.
            Ok(_) | Err(_) => {
                let unmet = self.mounts[at].unmet.remove(&*path.below);
                let unmet = unmet.unwrap_or(UnmetFile::new(None));
                self.reports.observe_missing(path, unmet);
            }
        }
    }

    pub fn report_denied(&mut self, path: DocumentPath, reason: String) {
        let reason = Incomplete::Denied(reason);
        self.reports.observe(path, Look::Incomplete(reason));
    }

    /// Returns the candidate at a path, looked up by name if it is not known yet.
    fn file_at(&mut self, at: usize, below: &[u8]) -> Option<FileId> {
        let mut directory = self.mounts[at].root;
        let mut names = below.split(|&byte| byte == b'/');
        let last = names.next_back()?;
        for name in names {
            directory = self.model.entry(directory, name)?.directory()?;
        }
        self.check_name(directory, last, Hint::UNCLEAR);
        self.model.entry(directory, last)?.file()
    }
}
