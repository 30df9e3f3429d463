//! `examples/cron`: what a cron job publishes is announced, and no Capability List without its channels.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::support::daemon::{Setup, finish};
use crate::support::documents::{Site, URL};
use crate::support::hub::FakeHub;
use crate::support::needs;
use crate::support::python::python;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cron/publish");

/// Runs the script once, as cron does.
fn publish(site: &Site, setup: &Setup, staging: &Path, python: &Path) -> String {
    let rsnotify = Path::new(env!("CARGO_BIN_EXE_rsnotify"));
    let paths = [rsnotify, python].map(|program| program.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap();
    let paths = paths.into_iter().chain(std::env::split_paths(&path));
    let mut script = Command::new("sh");
    script
        .arg(SCRIPT)
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("URL", URL)
        .env("WWW", site.root.path())
        .env("SET", "a")
        .env("STAGING", staging)
        .env("CONFIG", setup.file())
        .env("STATE_DIRECTORY", setup.state.path().join("state"));
    String::from_utf8(finish(&mut script).stdout).unwrap()
}

#[test]
fn a_cron_job_publishes_no_half_step() {
    let (Some(python), Some(_)) = (python(), needs::program("rsync")) else {
        return;
    };
    let site = Site::empty();
    let resource = |name: &str, content: &str| {
        fs::write(site.path(&format!("a/files/{name}.txt")), content).unwrap();
    };
    fs::create_dir_all(site.path("a/files")).unwrap();
    resource("1", "one");
    let staging = tempfile::tempdir().unwrap();
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    publish(&site, &setup, staging.path(), python);
    let list = site.path("a/capabilitylist.xml");
    let first = fs::read_to_string(&list).unwrap();
    assert!(first.contains("topics/main/a/capabilitylist/"), "{first}");
    let place = || {
        let list = fs::metadata(&list).unwrap();
        (list.ino(), list.ctime(), list.ctime_nsec())
    };
    let placed = place();

    let unchanged = publish(&site, &setup, staging.path(), python);
    assert!(
        unchanged.contains("written: it advertises its channel now"),
        "{unchanged}"
    );
    resource("1", "another");
    resource("2", "two");
    publish(&site, &setup, staging.path(), python);
    let heard = hub.changes_until(&[
        "updated changelist a/changelist.xml",
        "updated resourcelist a/resourcelist.xml",
    ]);
    assert!(
        !heard
            .iter()
            .any(|change| change.contains("updated capabilitylist")),
        "{heard:?}"
    );
    assert_eq!(place(), placed, "it was written anew");
    let changes = fs::read_to_string(site.path("a/changelist.xml")).unwrap();
    for change in ["updated", "created"] {
        assert!(changes.contains(change), "{changes}");
    }
    assert!(daemon.stop().success());
}
