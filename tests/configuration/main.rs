//! The configuration as operators use it: file, flags, reference page, and messages of the commands.

#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod generated;
mod precedence;
mod reference;
mod schema;
mod snippet;
mod tiers;

use std::fs;
use std::path::Path;
use std::process::Command;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository.
fn text(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The example file, with the keys in its comments; mounts have their short form there.
fn example_in_full() -> String {
    let is_key = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') && !rest.starts_with("mount")
    };
    let lines: Vec<String> = text("config.example.toml")
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if is_key(rest) => rest.to_owned(),
            _ => line.to_owned(),
        })
        .collect();
    lines.join("\n")
}

/// The real binary, in an environment that says nothing.
fn rsnotify(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    command.args(arguments).env_clear();
    command
}

/// Runs a command to its end: its exit code, and its output as text.
fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let [printed, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), printed, errors)
}
