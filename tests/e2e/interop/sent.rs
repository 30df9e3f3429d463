//! Payloads that the daemon really sends and serves, read by the reference library and validated.

use std::collections::BTreeSet;
use std::time::Instant;

use resourcesync::payload::Payload;
use resourcesync::uri::Uri;

use crate::interop::readers::{assert_read_as_meant, assert_valid};
use crate::support::DEADLINE;
use crate::support::daemon::Setup;
use crate::support::documents::{Site, URL, archive, capability_list, component, index, list};
use crate::support::hub::FakeHub;

/// More than one notification may hold (R21).
const MANY: usize = 1_200;

/// Names that only a file system loves.
const ODD_NAMES: [&str; 4] = [
    "a/b\u{fc}cher & 'lists' [1].xml",
    "a/100%.xml",
    "a/\"<list>\" {2}?#;.xml",
    "a/tab\tline\nend\u{1}.xml",
];

/// Writes documents of every kind, and says which of them are to be heard of when they are written anew.
fn write(site: &Site, version: &str) -> Vec<String> {
    let many = (0..MANY).map(|number| format!("a/{number}.xml"));
    let mut heard: Vec<String> = many.chain(ODD_NAMES.map(str::to_owned)).collect();
    for name in &heard {
        site.write(name, &list("a", "changedump", version));
    }
    // Its index is not there, and is named by what is no URI.
    let index_uri = "a/lists [1].xml?set[]=\u{fc}&amp;{2}";
    let members = |names: &[&str]| names.iter().map(|name| format!("a/{name}.xml")).collect();
    let members: [Vec<String>; 2] = [members(&["part-1", "part-2"]), members(&["old", version])];
    for (name, content) in [
        ("dump", list("a", "resourcedump", version)),
        ("lost", component("a", "changelist", index_uri, version)),
        ("archive", archive("a", "changelist-archive", &members[1])),
        (
            "capabilitylist",
            capability_list("a", &["resourcelist", version]),
        ),
    ] {
        let name = format!("a/{name}.xml");
        site.write(&name, &content);
        heard.push(name);
    }
    // Of its parts, one is announced, and the index is not.
    for part in &members[0] {
        site.write(
            part,
            &component("a", "resourcelist", "a/parts.xml", version),
        );
    }
    site.write("a/parts.xml", &index("a", "resourcelist", &members[0]));
    heard
}

#[test]
fn what_the_daemon_sends_and_serves_is_read_as_meant_and_valid() {
    let site = Site::new();
    site.add_set("b");
    site.write_description(&["a", "b"]);
    write(&site, "changelist");
    let hub = FakeHub::start();
    let pinged = FakeHub::start();
    let ping = format!("[[hub]]\nurl = \"{}\"\nmode = \"ping\"\n", pinged.url());
    let setup = Setup::new(&site, &[hub.url()], &ping);
    let daemon = setup.start();
    let served = |set: &str| {
        let (_, body) = daemon.get(&format!("/topics/main/{set}/capabilitylist/"));
        body.into_bytes()
    };
    let mut bodies = vec![served("a"), served("b")];

    let mut wanted = write(&site, "changedump");
    site.write_description(&["a"]);
    site.remove("b/capabilitylist.xml");
    wanted.extend(["b/capabilitylist.xml", ".well-known/resourcesync"].map(str::to_owned));
    let root = Uri::parse(URL).unwrap();
    let uris = wanted.iter().map(|name| Uri::below(&root, name.as_bytes()));
    let mut left: BTreeSet<Uri> = uris.collect();
    let deadline = Instant::now() + DEADLINE;
    while !left.is_empty() {
        assert!(Instant::now() < deadline, "nothing was said of {left:?}");
        let body = hub.notification().body;
        for entry in Payload::parse(&body).unwrap().entries {
            left.remove(&entry.uri);
        }
        bodies.push(body);
    }
    pinged.notification();
    bodies.extend([served("a"), served("b")]);

    let payloads: Vec<_> = bodies
        .into_iter()
        .map(|body| (Payload::parse(&body).unwrap(), body))
        .collect();
    assert_read_as_meant(&payloads);
    assert_valid(&payloads);
}
