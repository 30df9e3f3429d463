//! The progress of sweeping a large tree is shown on a terminal, and nowhere else.

use std::fs::{self, hard_link};
use std::process::{Command, Stdio};

use crate::support::daemon::Setup;
use crate::support::documents::Site;
use crate::support::needs;

/// More than a sweep can read before it has to say that it goes on.
const FILES: usize = 30_000;

/// Names of one file that is no document, so that only the looking takes time.
fn fill(site: &Site) {
    site.write("many/0.xml", "<nothing/>");
    let first = site.path("many/0.xml");
    for number in 1..FILES {
        hard_link(&first, site.path(&format!("many/{number}.xml"))).unwrap();
    }
}

/// Returns the standard error of `scan` on a terminal; `None` where there is no `script`.
fn shown(setup: &Setup) -> Option<String> {
    let script = needs::program("script")?;
    let binary = env!("CARGO_BIN_EXE_rsnotify");
    let answer = setup.state.path().join("answer");
    let line = format!(
        "{binary} scan --config {} >{}",
        setup.file().display(),
        answer.display()
    );
    let mut script = Command::new(script);
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.env("STATE_DIRECTORY", setup.state.path().join("state"));
    script.env("TERM", "xterm").stdin(Stdio::null());
    let output = script.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(is_plain(&fs::read_to_string(answer).unwrap()));
    Some(shown)
}

/// Returns true if a text consists of plain lines.
fn is_plain(text: &str) -> bool {
    text.contains("changelist") && !text.chars().any(|c| c.is_control() && c != '\n')
}

#[test]
fn a_terminal_shows_how_far_a_sweep_has_come_and_a_pipe_nothing_of_it() {
    let site = Site::new();
    let setup = Setup::with_source(&site, "", "");
    fill(&site);

    let output = setup.command("scan").output().unwrap();
    assert!(is_plain(&String::from_utf8(output.stdout).unwrap()));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");

    let Some(first) = shown(&setup) else { return };
    // A few documents lie beside them, listed before or after.
    assert!(first.contains(" of 30,00"), "{first:?}");
    assert!(first.contains(" files found so far"), "{first:?}");
    let wiped = "\r\u{1b}[2K";
    assert!(first.ends_with(wiped), "{first:?}");

    assert!(setup.start().stop().success());
    let second = shown(&setup).unwrap();
    assert!(second.contains(" of about 30,00"), "{second:?}");
    assert!(second.contains("[=") || second.contains("[>"), "{second:?}");
    assert!(second.ends_with(wiped), "{second:?}");
}
