//! Content of notifications: a typical one byte for byte, `up`, and the order of entries (R19, R20).

use insta::assert_snapshot;
use rstest::rstest;

use crate::world::{HUB, SET_A, World, plan, uri};

const CHANGES: &str = "/a/changelist.xml";
const DESCRIPTION: &str = "/.well-known/resourcesync";

#[test]
fn an_updated_change_list() {
    let mut world = World::with_two_sets(plan());
    world.update(CHANGES).wait(10);
    let heard = world.heard_by(HUB);
    assert_eq!(heard.len(), 1);
    assert_snapshot!(heard[0].text(), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
      <rs:ln rel="up" href="https://example.org/a/capabilitylist.xml"/>
      <rs:md capability="framework-notification" until="2026-11-20T12:01:52.000Z"/>
      <url>
        <loc>https://example.org/a/changelist.xml</loc>
        <rs:md change="updated" datetime="2026-11-20T12:01:50.000Z" capability="changelist"/>
      </url>
    </urlset>
    "#);
}

#[rstest]
#[case::documents_of_the_set(&["/a/resourcelist.xml", CHANGES], Some(SET_A))]
#[case::its_capability_list(&[SET_A], Some(DESCRIPTION))]
#[case::both(&["/a/resourcelist.xml", SET_A, CHANGES], None)]
#[case::the_source_description(&[DESCRIPTION], None)]
#[case::that_and_a_document(&[DESCRIPTION, CHANGES], None)]
fn entries_are_in_order_of_time_and_up_leads_to_what_is_above_all(
    #[case] names: &[&str],
    #[case] up: Option<&str>,
) {
    let mut world = World::with_two_sets(plan());
    for name in names {
        world.update(name).wait(1);
    }
    world.wait(10);
    let mut heard = world.heard_by(HUB);
    heard.retain(|heard| heard.topic == "/a/framework/");
    let payload = &heard[0].payload;
    assert_eq!(payload.up, up.map(uri));
    let entries = payload.entries.iter().map(|entry| entry.uri.clone());
    assert!(entries.eq(names.iter().map(|name| uri(name))));
    assert!(
        payload
            .entries
            .iter()
            .all(|entry| entry.datetime < payload.until)
    );
}
