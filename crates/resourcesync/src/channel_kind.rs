//! The kinds of notification channels of a set: what changed in its documents, or in its resources.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a channel, and of the notifications on it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// Changes of capability documents (Framework Notification 1.0.1).
    #[default]
    Framework,
    /// Changes of resources (Change Notification 1.0.1).
    Change,
}

impl ChannelKind {
    /// Both kinds.
    pub const ALL: [ChannelKind; 2] = [ChannelKind::Framework, ChannelKind::Change];

    /// Returns the value of `capability` in its notifications, and in the entry of a Capability List that advertises it.
    pub fn capability(self) -> &'static str {
        match self {
            ChannelKind::Framework => "framework-notification",
            ChannelKind::Change => "change-notification",
        }
    }

    /// Returns the kind with this `capability`.
    pub fn of_capability(capability: &str) -> Option<ChannelKind> {
        let mut kinds = ChannelKind::ALL.into_iter();
        kinds.find(|kind| kind.capability() == capability)
    }

    /// Returns `framework` or `change`, as configuration, logs and reports have it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChannelKind::Framework => "framework",
            ChannelKind::Change => "change",
        }
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
