//! Limits and permissions of the machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use rusqlite::Connection;
use rustix::process::geteuid;

use crate::support::daemon::{Setup, assert_contains, count_of, started_by};
use crate::support::documents::Site;
use crate::support::hub::FakeHub;
use crate::support::needs;

use super::{CHANNEL, check, check_by};

/// Root reads everything, unless it gives that up.
const POWERLESS: [&str; 6] = [
    "setpriv",
    // A container may have given it to us.
    "--inh-caps",
    "-dac_override,-dac_read_search",
    "--bounding-set",
    "-dac_override,-dac_read_search",
    "--",
];

/// `check` as run by another program, such as one that takes powers away; nothing where the system does not
/// allow that.
fn check_under(setup: &Setup, program: &[&str]) -> Option<Command> {
    let under = |more: &[&str]| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(more);
        command
    };
    let tried = under(&["true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        needs::skip(
            &format!("this system does not allow `{}`", program.join(" ")),
            "util-linux",
        );
        return None;
    }
    let mut check = setup.command("check");
    check.arg("--json");
    Some(started_by(under(&[]), &check))
}

#[test]
fn what_may_not_be_read_is_named_with_what_to_do() {
    let (site, hub) = (Site::new(), FakeHub::start());
    site.add_set("b");
    let setup = Setup::new(&site, &[hub.url()], CHANNEL);
    for closed in ["a/changelist.xml", "b"] {
        fs::set_permissions(site.path(closed), Permissions::from_mode(0o000)).unwrap();
    }
    let less = if geteuid().is_root() {
        &POWERLESS[..]
    } else {
        &["env"]
    };
    let Some(mut command) = check_under(&setup, less) else {
        return;
    };
    let checked = check_by(&mut command);
    fs::set_permissions(site.path("b"), Permissions::from_mode(0o755)).unwrap();
    let directory = format!("cannot read the directory {}", site.path("b").display());
    assert_contains(&checked.findings[0], &directory);
    let file = "a/changelist.xml: it cannot be read: ";
    assert_eq!(
        count_of(&checked.findings, file),
        1,
        "{:#?}",
        checked.findings
    );
    assert_eq!(checked.code, Some(1));
    checked.noted("2 files and directories of the tree may not be read by ");
}

#[test]
fn more_directories_than_may_be_watched_are_found_with_the_sysctl() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let hub = hub.table("") + CHANNEL;
    let setup = Setup::with_source(&site, "watch = \"inotify\"", &hub);
    let few = "echo 2 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    let under = ["unshare", "--map-root-user", "sh", "-c", few, "sh"];
    let Some(mut command) = check_under(&setup, &under) else {
        return;
    };
    check_by(&mut command).found(&[
        "3 directories have to be watched, and the limit is 2: the sysctl user.max_inotify_watches is 2; raise it, as by \
         `sysctl -w user.max_inotify_watches=524288`",
    ]);
    // By polling none are watched.
    let polled = Setup::with_source(&site, "watch = \"poll\"", &hub);
    check_by(&mut check_under(&polled, &under).unwrap()).is_fine();
}

#[test]
fn a_disk_that_is_full_is_found() {
    let (_site, _hub, setup) = Setup::announcing(CHANNEL);
    let state = setup.state.path().join("state");
    fs::create_dir(&state).unwrap();
    let small = format!(
        "mount -t tmpfs -o size=4m none '{}' && exec \"$@\"",
        state.display()
    );
    let under = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &small,
        "sh",
    ];
    let Some(mut command) = check_under(&setup, &under) else {
        return;
    };
    check_by(&mut command).found(&["there is room for 4 MiB on the disk of "]);
}

#[test]
fn a_state_that_cannot_be_used_is_one_finding_among_others() {
    let (site, _hub, setup) = Setup::announcing(CHANNEL);
    assert!(setup.start().stop().success());
    check(&setup).is_fine();
    site.write("a/broken.xml", "<urlset");
    let path = setup.state.path().join("state/state.sqlite");
    let state = Connection::open(&path).unwrap();
    state.pragma_update(None, "user_version", 1_000).unwrap();
    drop(state);
    check(&setup).found(&["a/broken.xml: ", "has schema 1000"]);
    fs::write(&path, vec![b'x'; 50_000]).unwrap();
    check(&setup).found(&["a/broken.xml: ", "cannot open the state file"]);
}

#[test]
fn whose_state_directory_it_is_matters() {
    if !geteuid().is_root() {
        needs::skip("only root can give files away", "");
        return;
    }
    let (_site, _hub, setup) = Setup::announcing(CHANNEL);
    let state = setup.state.path().join("state");
    fs::create_dir(&state).unwrap();
    check(&setup).is_fine();
    chown(&state, Some(12_345), None).unwrap();
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("check runs as root, and ");
    checked.noted("is user 12345's");

    // A state that this user may not even read is no fault of the state.
    chown(&state, Some(0), None).unwrap();
    assert!(setup.start().stop().success());
    let file = state.join("state.sqlite");
    chown(&file, Some(12_345), None).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    if let Some(mut command) = check_under(&setup, &POWERLESS) {
        let checked = check_by(&mut command);
        checked.is_fine();
        checked.noted("state.sqlite; run this as the user who runs rsnotify: Permission denied");

        // Nor may it see whether there is a daemon, so the topic is tried: it has a name that nobody knows.
        fs::set_permissions(state.join("lock"), Permissions::from_mode(0o600)).unwrap();
        chown(state.join("lock"), Some(12_345), None).unwrap();
        let checked = check_by(&mut check_under(&setup, &POWERLESS).unwrap());
        checked.found(&["https://source.example/a/framework/: no answer to HEAD"]);
        checked.noted("cannot find out if rsnotify is running: Permission denied");
    }
}
