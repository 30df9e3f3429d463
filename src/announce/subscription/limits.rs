//! The most that the hub takes, and what is said to whoever asks for more.

use std::time::Duration;

/// The most that the hub takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From each address, and for callbacks on each host.
    pub requests_per_minute: u32,
    pub verifications: Most,
    pub subscriptions: Most,
}

/// The most of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    pub in_all: u32,
    pub per_host: u32,
    pub per_address: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            requests_per_minute: 300,
            verifications: Most {
                in_all: 1_000,
                per_host: 30,
                per_address: 30,
            },
            subscriptions: Most {
                in_all: 100_000,
                per_host: 1_000,
                per_address: 1_000,
            },
        }
    }
}

/// A request that exceeds a limit. The text is for the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many {} {}", .what.words(), .of.words())]
pub struct Excess {
    pub what: What,
    pub of: Whose,
    /// When it may be worth another try.
    pub retry_after: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Requests,
    Verifications,
    Subscriptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Everyone,
    Host,
    Requester,
}

impl What {
    fn words(self) -> &'static str {
        match self {
            What::Requests => "requests",
            What::Verifications => "verifications under way",
            What::Subscriptions => "subscriptions",
        }
    }
}

impl Whose {
    fn words(self) -> &'static str {
        match self {
            Whose::Everyone => "in all",
            Whose::Host => "for callbacks on this host",
            Whose::Requester => "from your address",
        }
    }
}

impl Excess {
    /// The HTTP status to answer with.
    pub fn status(&self) -> u16 {
        match self.of {
            Whose::Everyone => 503,
            Whose::Host | Whose::Requester => 429,
        }
    }
}
