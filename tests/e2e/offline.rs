//! Copies of the state.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::daemon::{Setup, assert_contains, output};

#[test]
fn a_backup_is_taken_of_a_daemon_that_runs_and_one_that_does_not_and_restores_the_state() {
    let (site, hub, setup) = Setup::announcing("");
    let to = |name: &str| setup.state.path().join(name);
    let back_up = |name: &str| output(setup.command("backup").arg(to(name)));
    let (code, _, said) = back_up("none");
    assert_eq!(code, Some(1));
    assert_contains(&said, "there is no state in ");
    let daemon = setup.start();
    let (code, said, _) = back_up("running");
    assert_eq!(code, Some(0));
    assert!(said.starts_with("copied the state in "), "{said}");
    let mode = fs::metadata(to("running")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, _, said) = back_up("running");
    assert_eq!(code, Some(1));
    assert_contains(&said, "cannot write the backup ");
    assert_contains(&said, "File exists");
    site.write_list("a", "changelist", "2");
    let told = ["updated changelist a/changelist.xml"];
    hub.assert_told(told);
    assert!(daemon.stop().success());
    assert_eq!(back_up("stopped").0, Some(0));
    // With the state of before the change, it is announced again; with that of after it, it is not.
    for (name, is_told) in [("running", true), ("stopped", false)] {
        fs::copy(to(name), to("state/state.sqlite")).unwrap();
        let daemon = setup.start();
        if is_told {
            hub.assert_told(told);
        }
        assert!(daemon.stop().success());
    }
    assert!(hub.heard().is_empty());
}
