//! What one turn wants written, and done once it is.

use crate::announce::delivery::Submission;
use crate::announce::event::Effect;
use crate::announce::state::Save;
use crate::hub::{HubRecord, Relay};

/// It is taken whole when it is saved.
#[derive(Default)]
pub struct Unsaved {
    pub save: Save,
    pub records: Vec<HubRecord>,
    pub owed: Vec<Relay>,
    /// What the embedded hub accepts by owing it to its subscribers.
    pub relayed: Vec<Submission>,
    pub then: Vec<Effect>,
}

impl Unsaved {
    pub fn must_be_written(&self) -> bool {
        !(self.save.is_empty() && self.records.is_empty() && self.owed.is_empty())
    }
}
