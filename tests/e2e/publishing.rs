//! Changes published while the daemon runs.

use crate::support::daemon::{Setup, TOPICS, body_of};
use crate::support::documents::{self, Site, archive, list};
use crate::support::hub::FakeHub;

fn started(site: &Site) -> (FakeHub, Setup, crate::support::daemon::Daemon) {
    let hub = FakeHub::start();
    let setup = Setup::new(site, &[hub.url()], "");
    let daemon = setup.start();
    (hub, setup, daemon)
}

#[test]
fn a_capability_list_and_a_source_description_are_announced_when_deleted_too() {
    let site = Site::new();
    let (hub, _setup, _daemon) = started(&site);

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

#[test]
fn the_request_is_what_framework_notification_section_4_1_asks_for() {
    let site = Site::new();
    let (hub, _setup, daemon) = started(&site);
    site.write_list("a", "changelist", "2");
    let request = hub.notification();
    let topic = format!("{TOPICS}topics/main/a/capabilitylist/");
    assert_eq!(request.target, "/publish");
    assert_eq!(request.headers["content-type"], "application/xml");
    assert_eq!(
        request.headers["content-length"],
        request.body.len().to_string()
    );
    assert_eq!(
        request.headers["link"],
        format!(
            "<{topic}>; rel=\"self\", <{}>; rel=\"hub\", \
             <https://source.example/a/capabilitylist.xml>; rel=\"resourcesync\"",
            hub.url()
        )
    );
    let body = body_of(daemon.get("/topics/main/a/capabilitylist/"));
    assert_eq!(body.as_bytes(), request.body);
}

#[test]
fn a_component_is_found_by_a_uri_that_should_have_been_escaped() {
    let site = Site::new();
    let (hub, _setup, _daemon) = started(&site);
    let component = "a/lists/[1]{2}.xml";
    site.write(component, &list("a", "changelist", "1"));
    let index = documents::index("a", "changelist", &[component.to_owned()]);
    site.write("a/lists.xml", &index);
    // Listed nowhere, it would be held.
    hub.assert_told(["created changelist a/lists/%5B1%5D%7B2%7D.xml"]);
}

#[test]
fn an_archived_document_is_not_announced_and_its_archive_is() {
    let site = Site::new();
    site.write("a/old.xml", &list("a", "changelist", "old"));
    site.write(
        "a/changelist-archive.xml",
        &archive("a", "changelist-archive", &["a/old.xml".to_owned()]),
    );
    let (hub, setup, _daemon) = started(&site);
    assert_eq!(setup.state_of("a/old.xml"), "archived");
    site.write("a/old.xml", &list("a", "changelist", "older"));
    site.write(
        "a/changelist-archive.xml",
        &archive(
            "a",
            "changelist-archive",
            &["a/old.xml".to_owned(), "a/x.xml".to_owned()],
        ),
    );
    hub.assert_told(["updated changelist-archive a/changelist-archive.xml"]);
}
