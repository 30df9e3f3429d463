//! The most that the hub takes, and what is said to whoever asks for more.

use std::time::Duration;

/// As many may come at once, and be under way.
const REQUESTS_PER_MINUTE: u32 = 300;

/// The most that the hub takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From each address, and for callbacks on each host.
    pub requests_per_minute: u32,
    /// Under way at a time; as many more in all for subscriptions that there are.
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

impl Limits {
    /// Another pace. What may come at once may be under way at once too.
    pub fn set_requests_per_minute(&mut self, requests: u32) {
        self.requests_per_minute = requests;
        self.verifications.per_host = requests;
        self.verifications.per_address = requests;
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            requests_per_minute: REQUESTS_PER_MINUTE,
            verifications: Most {
                in_all: 10_000,
                per_host: REQUESTS_PER_MINUTE,
                per_address: REQUESTS_PER_MINUTE,
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
