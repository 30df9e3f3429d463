//! Changes published while the daemon runs.

use crate::support::daemon::Setup;

#[test]
fn a_capability_list_and_a_source_description_are_announced_when_deleted_too() {
    let (site, hub, _setup, _daemon) = Setup::start_announcing("");
    site.write_capability_list("a", &["resourcelist"]);
    hub.assert_told(["updated capabilitylist a/capabilitylist.xml"]);
    site.write_description(&["a", "b"]);
    hub.assert_told(["updated description .well-known/resourcesync"]);
    site.remove(".well-known/resourcesync");
    hub.assert_told(["deleted description .well-known/resourcesync"]);
    site.write_description(&["a"]);
    hub.assert_told(["created description .well-known/resourcesync"]);
    site.remove("a/capabilitylist.xml");
    hub.assert_told(["deleted capabilitylist a/capabilitylist.xml"]);
}
