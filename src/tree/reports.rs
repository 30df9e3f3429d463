//! Reports about a tree: observations are collected, and sent before any other report but notices.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;

use crate::tree::file_status;
use crate::tree::mount::{TreeMount, UnmetFile};
use crate::tree::{TreeNotice, TreeReport};
use announce::event::Event;
use announce::observation::{DocumentPath, Look, NoDocument, Observation};

/// Maximum observations in one report.
const BATCH: usize = 512;

pub struct ReportSender<'a> {
    receiver: Box<dyn FnMut(TreeReport) -> ControlFlow<()> + 'a>,
    /// True once the receiver wants no more.
    pub is_stopped: bool,
    observations: Vec<Observation>,
    pub explained: Vec<(DocumentPath, NoDocument)>,
    /// The files that `observations` call missing, in case their mount is.
    pub missing: HashMap<DocumentPath, UnmetFile>,
}

impl<'a> ReportSender<'a> {
    pub fn new(receiver: impl FnMut(TreeReport) -> ControlFlow<()> + 'a) -> ReportSender<'a> {
        ReportSender {
            receiver: Box::new(receiver),
            is_stopped: false,
            observations: Vec::new(),
            explained: Vec::new(),
            missing: HashMap::new(),
        }
    }

    /// Returns true if there is enough to send.
    pub fn is_full(&self) -> bool {
        self.observations.len().max(self.explained.len()) >= BATCH
    }

    pub fn observe(&mut self, path: DocumentPath, look: Look) {
        self.missing.remove(&path);
        self.observations.push(Observation {
            path,
            at: Timestamp::now(),
            look,
        });
    }

    pub fn observe_missing(&mut self, path: DocumentPath, unmet: UnmetFile) {
        self.observe(path.clone(), Look::Missing);
        self.missing.insert(path, unmet);
    }

    /// Withdraws what was observed to be missing from mounts that are not there (R15): their files are unmet again.
    /// Returns true if there is such a mount.
    pub fn withdraw_missing(&mut self, mounts: &mut [TreeMount]) -> bool {
        let missing = std::mem::take(&mut self.missing);
        let mut is_mount_missing = false;
        for mount in mounts.iter_mut() {
            let in_mount = |path: &DocumentPath| path.mount == mount.id;
            let is_at = |root| file_status::is_at(&mount.directory, root);
            if !missing.keys().any(in_mount) || mount.identity().is_some_and(is_at) {
                continue;
            }
            for (path, unmet) in missing.iter().filter(|(path, _)| path.mount == mount.id) {
                mount.unmet.insert(Arc::clone(&path.below), *unmet);
            }
            self.observations
                .retain(|it| it.path.mount != mount.id || it.look != Look::Missing);
            is_mount_missing = true;
        }
        is_mount_missing
    }

    /// Sends what was collected.
    pub fn flush(&mut self) {
        if !self.explained.is_empty() {
            let explained = std::mem::take(&mut self.explained);
            self.send(TreeReport::Event(Event::Explained(explained)));
        }
        let mut batch = std::mem::take(&mut self.observations);
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(BATCH));
            let observed = Event::Observed(std::mem::replace(&mut batch, rest));
            self.send(TreeReport::Event(observed));
        }
    }

    /// Sends a notice at once: it says nothing about documents, so that it need not follow what was collected before.
    pub fn notice(&mut self, notice: TreeNotice) {
        self.send(TreeReport::Notice(notice));
    }

    /// Sends a report, without what was collected before.
    pub fn send(&mut self, report: TreeReport) {
        if !self.is_stopped && (self.receiver)(report).is_break() {
            self.is_stopped = true;
        }
    }
}
