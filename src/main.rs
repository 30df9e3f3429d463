//! Arguments become a command, a command an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    rsnotify::cli::main().into()
}
