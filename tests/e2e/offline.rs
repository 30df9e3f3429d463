//! Changes while no daemon runs.

use crate::support::daemon::Setup;
use crate::support::documents::{Site, list};
use crate::support::hub::FakeHub;

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
    let (code, _, stderr) = crate::support::daemon::output(&mut setup.command("run"));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("another rsnotify uses the state directory"),
        "{stderr}"
    );
}

#[test]
fn a_document_that_is_excluded_is_forgotten_and_included_again_unannounced() {
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
