//! Exit codes.

use std::process::ExitCode;

/// The result of a command. The argument parser itself exits with 2 for wrong usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Fine,
    /// Something was found, or failed.
    Failure,
    /// The command line lacks something.
    Usage,
    /// A hub refuses a subscription request, or a broker a message.
    Refused,
    /// A hub, topic or broker fails in a way that may pass.
    Temporary,
    /// A hub does not verify a subscription.
    NotVerified,
    /// A hub denies a subscription.
    Denied,
    /// The configuration is wrong. No other error has this code, and a service manager need not try again.
    Configuration,
}

impl Exit {
    /// Returns the code, from 69 on as `sysexits.h` has them.
    pub fn code(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Refused => 69,
            Exit::Temporary => 75,
            Exit::NotVerified => 76,
            Exit::Denied => 77,
            Exit::Configuration => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
