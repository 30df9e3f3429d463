//! Arguments become a command, a command an exit code.

fn main() {}
