//! Typical notifications, byte for byte.

use insta::assert_snapshot;

use crate::world::{HUB, SET_A, World, capability_list, index, list, plan};

fn only(world: &mut World) -> String {
    let heard = world.heard_by(HUB);
    let [heard] = &heard[..] else {
        panic!("{heard:?}")
    };
    heard.text().to_owned()
}

#[test]
fn an_updated_change_list() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10);
    assert_snapshot!(only(&mut world), @r#"
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

#[test]
fn a_new_component_of_an_index() {
    let mut world = World::with_two_sets(plan());
    let part = "/a/resourcelist-1.xml";
    let doc = list("resourcelist").index("/a/resourcelist-index.xml");
    world.write(part, doc);
    let index = index("resourcelist").of("/a").lists(&[part]);
    world.write("/a/resourcelist-index.xml", index).wait(10);
    assert_snapshot!(only(&mut world), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
      <rs:ln rel="up" href="https://example.org/a/capabilitylist.xml"/>
      <rs:md capability="framework-notification" until="2026-11-20T12:01:52.000Z"/>
      <url>
        <loc>https://example.org/a/resourcelist-1.xml</loc>
        <rs:md change="created" datetime="2026-11-20T12:01:50.000Z" capability="resourcelist"/>
        <rs:ln rel="index" href="https://example.org/a/resourcelist-index.xml"/>
      </url>
    </urlset>
    "#);
}

#[test]
fn several_changes_of_a_set_and_of_its_capability_list() {
    let mut world = World::with_two_sets(plan());
    world.write_list("/a/resourcedump.xml", "resourcedump");
    world.wait(1);
    world.update("/a/changelist.xml");
    let capabilities = ["resourcelist", "changelist", "resourcedump"];
    world.write(SET_A, capability_list("/a", &capabilities));
    world.wait(10);
    assert_snapshot!(only(&mut world), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
      <rs:md capability="framework-notification" until="2026-11-20T12:01:53.000Z"/>
      <url>
        <loc>https://example.org/a/resourcedump.xml</loc>
        <rs:md change="created" datetime="2026-11-20T12:01:50.000Z" capability="resourcedump"/>
      </url>
      <url>
        <loc>https://example.org/a/capabilitylist.xml</loc>
        <rs:md change="updated" datetime="2026-11-20T12:01:51.000Z" capability="capabilitylist"/>
      </url>
      <url>
        <loc>https://example.org/a/changelist.xml</loc>
        <rs:md change="updated" datetime="2026-11-20T12:01:51.000Z" capability="changelist"/>
      </url>
    </urlset>
    "#);
}

#[test]
fn a_deleted_capability_list() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(1_000);
    assert_snapshot!(only(&mut world), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
      <rs:ln rel="up" href="https://example.org/.well-known/resourcesync"/>
      <rs:md capability="framework-notification" until="2026-11-20T12:06:52.000Z"/>
      <url>
        <loc>https://example.org/a/capabilitylist.xml</loc>
        <rs:md change="deleted" datetime="2026-11-20T12:01:50.000Z" capability="capabilitylist"/>
      </url>
    </urlset>
    "#);
}

#[test]
fn an_updated_source_description() {
    let mut world = World::with_two_sets(plan());
    world.describe(&[SET_A]).wait(10);
    let heard = world.heard_by(HUB);
    let bodies: Vec<&str> = heard.iter().map(|heard| heard.text()).collect();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0], bodies[1]);
    assert_snapshot!(bodies[0], @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
      <rs:md capability="framework-notification" until="2026-11-20T12:01:52.000Z"/>
      <url>
        <loc>https://example.org/.well-known/resourcesync</loc>
        <rs:md change="updated" datetime="2026-11-20T12:01:50.000Z" capability="description"/>
      </url>
    </urlset>
    "#);
}
