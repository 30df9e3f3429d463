//! Changes while no daemon runs.

use std::fs;

use crate::daemon::Setup;
use crate::documents::{Site, capability_list, list};
use crate::hub::FakeHub;

#[test]
fn changes_made_while_down_are_announced_at_the_next_start() {
    let site = Site::new();
    site.add_set("b");
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    assert!(setup.start().stop().success());

    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    site.write("a/changedump.xml", &list("a", "changedump", "1"));
    site.write(
        "a/capabilitylist.xml",
        &capability_list("a", &["resourcelist", "changelist", "changedump"]),
    );
    fs::remove_dir_all(site.path("b")).unwrap();

    let _daemon = setup.start();
    let heard = hub.changes_until(&[
        "updated changelist a/changelist.xml",
        "created changedump a/changedump.xml",
        "updated capabilitylist a/capabilitylist.xml",
        "deleted capabilitylist b/capabilitylist.xml",
    ]);
    assert_eq!(heard.len(), 4, "{heard:?}");
    // Nothing else is on its way.
    site.write("a/changelist.xml", &list("a", "changelist", "3"));
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist a/changelist.xml"]
    );
}

#[test]
fn a_restart_without_changes_is_silent() {
    let site = Site::new();
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    for _ in 0..3 {
        assert!(setup.start().stop().success());
    }
    let _daemon = setup.start();
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist a/changelist.xml"]
    );
}

#[test]
fn a_hub_added_between_runs_starts_at_now() {
    let site = Site::new();
    let first = FakeHub::start();
    let second = FakeHub::start();
    let mut setup = Setup::new(&site, &[first.url()], "");
    assert!(setup.start().stop().success());
    let both = Setup::new(&site, &[first.url(), second.url()], "");
    setup.config = both.config;
    let _daemon = setup.start();
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    for hub in [&first, &second] {
        assert_eq!(
            hub.notification().changes(),
            ["updated changelist a/changelist.xml"]
        );
    }
}

#[test]
fn a_second_daemon_on_the_same_state_says_so() {
    let site = Site::new();
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let _daemon = setup.start();
    let (code, _, stderr) = crate::daemon::output(&mut setup.command("run"));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("another rsnotify uses the state directory"),
        "{stderr}"
    );
}

#[test]
fn a_tree_that_is_missing_at_start_is_baselined_when_it_appears() {
    let site = Site::new();
    let parked = site.root.path().with_extension("parked");
    fs::rename(site.root.path(), &parked).unwrap();
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    fs::rename(&parked, site.root.path()).unwrap();
    daemon.await_log("baseline of main complete");
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist a/changelist.xml"]
    );
}

#[test]
fn a_tree_that_vanishes_is_no_deletion() {
    let site = Site::new();
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let daemon = setup.start();
    let parked = site.root.path().with_extension("parked");
    fs::rename(site.root.path(), &parked).unwrap();
    daemon.await_log("a mount of main is missing");
    fs::write(
        parked.join("a/changelist.xml"),
        list("a", "changelist", "2"),
    )
    .unwrap();
    fs::rename(&parked, site.root.path()).unwrap();
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist a/changelist.xml"]
    );
}

#[test]
fn a_document_that_is_excluded_is_forgotten_and_included_again_without_a_word() {
    let site = Site::new();
    site.add_set("b");
    let hub = FakeHub::start();
    let mut setup = Setup::new(&site, &[hub.url()], "");
    assert!(setup.start().stop().success());
    let grace = "deletion_grace = \"0s\"";
    let excluded = format!("{grace}\nexclude = [\"b/**\"]");
    setup.config = setup.config.replace(grace, &excluded);
    let daemon = setup.start();
    assert_eq!(setup.state_of("b/capabilitylist.xml"), "absent");
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist a/changelist.xml"]
    );
    assert!(daemon.stop().success());
    setup.config = setup.config.replace(&excluded, grace);
    site.write("a/changelist.xml", &list("a", "changelist", "3"));
    let _daemon = setup.start();
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist a/changelist.xml"]
    );
    site.write("b/changelist.xml", &list("b", "changelist", "2"));
    assert_eq!(
        hub.notification().changes(),
        ["updated changelist b/changelist.xml"]
    );
}

#[test]
fn a_deletion_survives_its_mount_going_away_for_a_while() {
    let site = Site::new();
    site.add_set("b");
    let hub = FakeHub::start();
    let grace = "deletion_grace = \"1s\"";
    let setup = Setup::with_source(&site, grace, &format!("[[hub]]\nurl = \"{}\"\n", hub.url()));
    let daemon = setup.start();
    site.remove("b/capabilitylist.xml");
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    hub.changes_until(&["updated changelist a/changelist.xml"]);
    let parked = site.root.path().with_extension("parked");
    fs::rename(site.root.path(), &parked).unwrap();
    daemon.await_log("a mount of main is missing");
    fs::rename(&parked, site.root.path()).unwrap();
    hub.changes_until(&["deleted capabilitylist b/capabilitylist.xml"]);
}
