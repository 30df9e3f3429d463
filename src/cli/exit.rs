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
    /// The configuration is wrong; nothing else answers so, and a service manager need not try again.
    Configuration,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Configuration => 78,
        })
    }
}
