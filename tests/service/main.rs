//! The units as systemd reads them. `tests/service/run` boots a Debian that uses them.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const SERVICE: &str = "rsnotify.service";
const SOCKET: &str = "rsnotify.socket";

fn unit(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Units as they are where rsnotify is installed: with a program to start.
fn installed() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in [SERVICE, SOCKET] {
        let unit = unit(name).replace("/usr/bin/rsnotify", env!("CARGO_BIN_EXE_rsnotify"));
        fs::write(folder.path().join(name), unit).unwrap();
    }
    folder
}

/// What `systemd-analyze` says, and whether it is content. Where there is none, the test is skipped, visibly;
/// but not where nothing may be skipped.
fn analyzed(arguments: &[&str], units: &[&str]) -> Option<(bool, String)> {
    let folder = installed();
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).env("SYSTEMD_COLORS", "0");
    command.args(units.iter().map(|name| folder.path().join(name)));
    let Ok(output) = command.output() else {
        let is_optional = std::env::var_os("CI").is_none();
        assert!(is_optional, "there is no systemd-analyze");
        // Not `eprintln!`, which the test runner keeps to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no systemd-analyze");
        return None;
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Some((output.status.success(), said))
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let verified = analyzed(&["verify", "--man=no"], &[SERVICE, SOCKET]);
    assert_eq!(
        verified.unwrap_or((true, String::new())),
        (true, String::new())
    );
}

#[test]
fn the_service_is_exposed_to_little() {
    // In tenths.
    let arguments = ["security", "--offline=true", "--no-pager", "--threshold=15"];
    if let Some((is_safe, said)) = analyzed(&arguments, &[SERVICE]) {
        let overall = said.lines().find(|line| line.contains("Overall"));
        assert!(is_safe, "{said}");
        assert!(overall.is_some(), "{said}");
    }
}

#[test]
fn the_socket_takes_the_place_of_what_the_service_listens_on_by_itself() {
    let socket = unit(SOCKET);
    for line in ["ListenStream=127.0.0.1:8400", "FileDescriptorName=public"] {
        assert!(socket.lines().any(|own| own == line), "{line}");
    }
}
