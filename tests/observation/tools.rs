//! Programs that publish, run as operators run them.

use std::path::Path;
use std::process::Command;

/// Runs a line of shell in the first of `directories`, which it knows as `$1`, `$2` and so on. A tool that is
/// missing fails the story: callers ask `needs` first for what not every machine has.
#[track_caller]
pub fn run(line: &str, directories: &[&Path]) {
    let mut shell = Command::new("sh");
    // Without separators a directory is one word, whatever its name.
    shell
        .args(["-e", "-c", &format!("IFS=; {line}"), "sh"])
        .args(directories);
    shell.current_dir(directories[0]);
    // No settings of the user who runs this.
    shell.env("GIT_CONFIG_GLOBAL", "/dev/null");
    shell.env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{role}_NAME"), "nobody");
        shell.env(format!("GIT_{role}_EMAIL"), "nobody@source.example");
    }
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}
