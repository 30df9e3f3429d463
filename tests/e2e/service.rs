//! The units as systemd reads them. `tests/service/run` boots a Debian that uses them.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::needs::program;

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

/// Returns the result of `systemd-analyze` and its output; `None` where it is not installed.
fn analyzed(arguments: &[&str], units: &[&str]) -> Option<(bool, String)> {
    let analyze = program("systemd-analyze")?;
    let folder = installed();
    let mut command = Command::new(analyze);
    command.args(arguments).env("SYSTEMD_COLORS", "0");
    command.args(units.iter().map(|name| folder.path().join(name)));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Some((output.status.success(), said))
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    // It looks whether what a unit runs is there.
    let Some(_) = program("kill") else { return };
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
        assert!(socket.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn the_services_dump_no_core_and_have_a_limit_of_memory() {
    for name in [SERVICE, "rsnotify-hub.service"] {
        let service = unit(name);
        for line in ["LimitCORE=0", "MemoryMax=2G"] {
            assert!(service.lines().any(|found| found == line), "{name}: {line}");
        }
    }
}
