//! Names of channels, accounts and submissions, in a file of their own because all others use them.

use resourcesync::uri::Hub;

use crate::state::HubId;

/// A channel, as the state file numbers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// An account, by its channel and its hub or broker.
pub type AccountId = (ChannelId, HubId);

/// The channel, hub and sequence number of a submission: unique among all that are under way at the same time.
pub type SubmissionId = (ChannelId, Hub, u64);
