//! The position of `resend`, in a file from which it continues after a kill.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cli::resend::resources::{ListVersion, SetList, SetLists};
use announce::state::open::create_directory;

const VERSION: u32 = 1;

/// The options that make a run the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendRequest {
    pub broker: String,
    pub destination: String,
    pub under: Option<String>,
}

/// The first resource that is not known to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendPosition {
    /// Start of the run, the default until it begins. Ids of messages depend on it, so that another run is no repeat.
    pub began: Timestamp,
    /// Number of resources in a transaction. Ids of messages depend on it.
    pub batch: usize,
    /// Number of transactions so far.
    pub transactions: u64,
    /// Number of resources so far.
    pub sent: u64,
    /// Source, set and list that are being sent; those before it are done.
    list: Option<(String, String, String)>,
    version: Option<ListVersion>,
    /// Position of the next resource in the list.
    pub next: u32,
}

/// The file of a position.
#[derive(Debug, Serialize, Deserialize)]
pub struct PositionFile {
    #[serde(skip)]
    path: PathBuf,
    version: u32,
    request: ResendRequest,
    pub position: ResendPosition,
}

impl ResendPosition {
    /// Returns true if a list is done.
    pub fn is_list_done(&self, set: &SetLists, list: &SetList) -> bool {
        self.list.as_ref().is_some_and(|sent| {
            let key = key(set, list);
            *sent > key || (*sent == key && self.next == u32::MAX)
        })
    }

    /// Begins a version of a list, or goes on with it. Returns the position of the next resource.
    pub fn start_in(&mut self, set: &SetLists, list: &SetList, version: &ListVersion) -> u32 {
        let key = key(set, list);
        let is_same = self.list.as_ref() == Some(&key) && self.version.as_ref() == Some(version);
        if !is_same {
            self.list = Some(key);
            self.version = Some(version.clone());
            self.next = 0;
        }
        self.next
    }
}

fn key(set: &SetLists, list: &SetList) -> (String, String, String) {
    (
        set.source.clone(),
        set.set.as_str().to_owned(),
        list.uri.as_str().to_owned(),
    )
}

impl PositionFile {
    /// Opens a file, with the position in it if there is one of the same request, or else with the first one.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is of another request, which is not done.
    pub fn open(
        path: PathBuf,
        request: ResendRequest,
        batch: usize,
    ) -> anyhow::Result<PositionFile> {
        let shown = path.display().to_string();
        let cannot_read = || format!("cannot read {shown}");
        let saved: Option<PositionFile> = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            text => {
                let text = text.with_context(cannot_read)?;
                Some(serde_json::from_slice(&text).with_context(cannot_read)?)
            }
        };
        let new = PositionFile {
            path,
            version: VERSION,
            request,
            position: ResendPosition {
                batch,
                ..ResendPosition::default()
            },
        };
        let Some(saved) = saved else {
            return Ok(new);
        };
        ensure!(
            saved.version == VERSION,
            "{shown} was written by another version of rsnotify"
        );
        if saved.request == new.request {
            let position = saved.position;
            return Ok(PositionFile { position, ..new });
        }
        // Of another run, the broker has taken nothing.
        ensure!(
            saved.position.transactions == 0,
            "{shown} is of a run to {} that did not end: run that again, remove the file, or name another with --state",
            saved.request.destination
        );
        Ok(new)
    }

    /// Writes the position before anything is sent, so that a run that is killed before the first receipt is gone on with,
    /// and not begun anew with other ids. A new run begins now: what is sent was read until then.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        if let Some(directory) = self.path.parent() {
            let created = create_directory(directory);
            created.with_context(|| format!("cannot create {}", directory.display()))?;
        }
        if self.position.began == Timestamp::default() {
            self.position.began = Timestamp::now();
        }
        self.save()
    }

    /// Replaces the file. A kill leaves the old one or the new one.
    pub fn save(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec(self)?;
        let new = self.path.with_added_extension("new");
        let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        replaced.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Removes the file of a run that is done.
    pub fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}
