//! Arguments become a command, a command an exit code.

use std::process::ExitCode;

/// The allocator of musl, which static binaries have, takes a lock and a system call where others take neither.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(rsnotify::cli::main().code())
}
