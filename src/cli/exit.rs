//! Exit codes.

use std::process::ExitCode;

/// The result of a command. The argument parser itself exits with 2 for wrong usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Fine = 0,
    /// Something was found, or failed.
    Failure = 1,
    /// The command line lacks something.
    Usage = 2,
    /// A hub refuses a subscription request, or a broker a message.
    Refused = 69,
    /// A hub, topic or broker fails in a way that may pass.
    Temporary = 75,
    /// A hub does not verify a subscription.
    NotVerified = 76,
    /// A hub denies a subscription.
    Denied = 77,
    /// The configuration is wrong. No other error has this code, and a service manager need not try again.
    Configuration = 78,
}

impl Exit {
    /// Returns the code, from 69 on as `sysexits.h` has them.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
