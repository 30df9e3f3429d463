//! Routing of documents to channels (R1, R5, R7, R10).

use announce::event::Fact;
use announce::finding::Finding;
use rsnotify::report::documents::DocumentState;

use crate::world::{
    Doc, HUB, SET_A, SET_B, World, capability_list, index, list, mount, other_source, plan,
    two_sources, uri,
};

#[test]
fn a_document_is_announced_on_the_channel_of_its_set_only() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml");
    world.update("/b/resourcelist.xml").wait(10);
    world.update(SET_B).wait(10);
    let news = world.news_by_topic();
    assert_eq!(news["/a/framework/"], ["u /a/changelist.xml"]);
    let of_b = ["u /b/resourcelist.xml", "u /b/capabilitylist.xml"];
    assert_eq!(news["/b/framework/"], of_b);
    assert_eq!(news.len(), 2);
}

#[test]
fn a_source_description_is_announced_on_every_channel_of_its_source() {
    let mut world = World::new(two_sources("https://other.example.org/"));
    world.write_set("/a", &["resourcelist"]);
    world.write_set("/b", &["resourcelist"]);
    world.write("/.well-known/resourcesync", list("description"));
    let doc = list("capabilitylist");
    world.write("https://other.example.org/capabilitylist.xml", doc);
    world.wait(10).start().wait(10);
    // A retired channel hears of it too.
    world.delete(SET_B).wait(1_000).news();
    world.update("/.well-known/resourcesync").wait(10);
    let news = world.news_by_topic();
    let update = ["u description /.well-known/resourcesync"];
    assert_eq!(news["/a/framework/"], update);
    assert_eq!(news["/b/framework/"], update);
    assert_eq!(news.len(), 2);
}

#[test]
fn a_new_set_is_told_of_a_source_description_that_is_seen_before_it() {
    let mut world = World::with_two_sets(plan());
    world.update("/.well-known/resourcesync").wait(1);
    world.write_set("/c", &["resourcelist"]).wait(100);
    let news = world.news_by_topic();
    let updated = "u description /.well-known/resourcesync";
    assert_eq!(news["/a/framework/"], [updated]);
    assert!(news["/c/framework/"].contains(&updated.to_owned()));
    // What was said long before a set began is not said to it.
    world.write_set("/d", &["resourcelist"]).wait(100);
    let news = world.news_by_topic();
    assert!(!news["/d/framework/"].contains(&updated.to_owned()));
    assert_eq!(news.len(), 1);
}

#[test]
fn a_document_belongs_to_the_set_that_lists_it_and_to_the_one_it_names() {
    let mut world = World::with_two_sets(plan());
    world.write("/shared.xml", list("changelist").of("/b"));
    world.write("/i.xml", index("changelist").lists(&["/shared.xml"]));
    let set = capability_list("/a", &["resourcelist", "changelist"]);
    world.write(SET_A, set.lists(&["/i.xml"])).wait(100).news();
    world.update("/shared.xml").wait(10);
    let news = world.news_by_topic();
    assert_eq!(news["/a/framework/"], ["u changelist /shared.xml"]);
    assert_eq!(news["/b/framework/"], ["u changelist /shared.xml"]);
}

#[test]
fn joining_a_set_is_created_there_and_leaving_is_not_announced() {
    let mut world = World::with_two_sets(plan());
    world.write("/a/changelist.xml", list("changelist").of("/b"));
    let set = capability_list("/b", &["resourcelist", "changelist"]);
    world.write(SET_B, set.lists(&["/a/changelist.xml"]));
    world.write_capability_list("/a", &["resourcelist"]);
    world.wait(10);
    let news = world.news_by_topic();
    assert_eq!(news["/a/framework/"], ["u /a/capabilitylist.xml"]);
    let want = ["c /a/changelist.xml", "u /b/capabilitylist.xml"];
    assert_eq!(news["/b/framework/"], want);
    world.delete("/a/changelist.xml").expect_nothing(1_000);
    assert!(!world.remembers("/a/changelist.xml"));
}

#[test]
fn an_orphan_is_unrouted_and_found() {
    let mut world = World::with_two_sets(plan());
    world.write("/orphan.xml", list("changelist"));
    world.expect_nothing(100);
    assert_eq!(world.state_of("/orphan.xml"), Some(DocumentState::Unrouted));
    let facts = world.facts();
    assert!(
        matches!(&facts[..], [Fact::Found(Finding::Unrouted { .. })]),
        "{facts:?}"
    );
    world.write("/orphan.xml", list("changelist").of("/a"));
    world.expect(100, ["c changelist /orphan.xml"]);
    assert_eq!(world.findings(), []);
}

/// Returns the index of the first entry that was told.
fn index_of(world: &mut World) -> Option<String> {
    let heard = world.heard_by(HUB);
    let index = heard[0].payload.entries[0].index.clone();
    index.map(|uri| uri.to_string())
}

#[test]
fn the_index_that_lists_a_component_is_its_index() {
    let mut world = World::with_two_sets(plan());
    // By its own link alone.
    let doc = list("changelist").of("/a").index("/a/elsewhere.xml");
    world.write("/a/changelist.xml", doc).wait(100);
    let elsewhere = "https://example.org/a/elsewhere.xml";
    assert_eq!(index_of(&mut world).as_deref(), Some(elsewhere));
    // Of several that list it: the one that it names, else the first by URI.
    for name in ["/a/z.xml", "/a/y.xml"] {
        world.write(name, index("changelist").lists(&["/a/changelist.xml"]));
    }
    for (named, want) in [("/a/z.xml", "z.xml"), ("/a/elsewhere.xml", "y.xml")] {
        let doc = list("changelist").of("/a").index(named);
        world.write("/a/changelist.xml", doc).wait(100);
        let want = format!("https://example.org/a/{want}");
        assert_eq!(index_of(&mut world), Some(want));
    }
    // A link to a document that is no index counts for nothing.
    world.delete("/a/z.xml").delete("/a/y.xml");
    world.write_list("/a/elsewhere.xml", "changelist");
    world.wait(1_000).news();
    world.update("/a/changelist.xml").wait(100);
    assert_eq!(index_of(&mut world), None);
}

/// A world whose Resource List is an index of two lists. They name it, or are named by it only.
fn world_with_an_index(names_it: bool) -> (World, [(&'static str, Doc); 2]) {
    let mut world = World::with_two_sets(plan());
    let part = list("resourcelist").of("/a");
    let part = if names_it { part.index(INDEX) } else { part };
    let parts = ["/a/resourcelist_0000.xml", "/a/resourcelist_0001.xml"];
    for name in parts {
        world.write(name, part.clone());
    }
    world.write(INDEX, index("resourcelist").lists(&parts));
    world.delete("/a/resourcelist.xml");
    let names = ["resourcelist-index", "changelist"];
    world.write(SET_A, capability_list("/a", &names));
    world.wait(1_000).news();
    (world, parts.map(|name| (name, part.clone())))
}

const INDEX: &str = "/a/resourcelist-index.xml";

#[test]
fn a_generator_that_shrinks_its_index_to_one_list_has_no_index_any_more() {
    // As py-resourcesync does it: the first list goes on, or has another name, without an index.
    for name in ["/a/resourcelist_0000.xml", "/a/resourcelist.xml"] {
        for waits in [false, true] {
            let (mut world, parts) = world_with_an_index(true);
            let list = list("resourcelist").version(7).of("/a");
            for gone in parts.iter().map(|(part, _)| *part).chain([INDEX]) {
                world.delete(gone);
            }
            if waits {
                world.wait(1_000);
            }
            world.write(name, list);
            let stem = name.trim_start_matches("/a/").trim_end_matches(".xml");
            let names = [stem, "changelist"];
            world.write(SET_A, capability_list("/a", &names));
            world.wait(1_000);
            let heard = world.heard_by(HUB);
            let mut entries = heard.iter().flat_map(|heard| &heard.payload.entries);
            let entry = entries.find(|entry| entry.uri.as_str().ends_with(name));
            assert_eq!(entry.unwrap().index, None, "{name} {waits}");
        }
    }
}

#[test]
fn an_index_that_is_gone_is_the_index_only_of_what_still_names_it() {
    for names_it in [false, true] {
        for is_down in [false, true] {
            let (mut world, [(name, part), _]) = world_with_an_index(names_it);
            if is_down {
                world.crash().delete(INDEX).start();
            } else {
                world.delete(INDEX);
            }
            let site = "https://example.org";
            let want = names_it.then(|| format!("{site}{INDEX}"));
            // Within the grace, after it, and after a restart.
            for version in 1..=3 {
                world.write(name, part.clone().version(version)).wait(100);
                let index = index_of(&mut world);
                assert_eq!(index, want, "{names_it} {is_down} {version}");
                world.wait(1_000);
                if version == 2 {
                    world.crash_and_start().wait(100);
                }
            }
        }
    }
}

#[test]
fn an_index_that_is_missing_for_a_moment_keeps_its_components_in_their_set() {
    let (mut world, parts) = world_with_an_index(false);
    let (name, _) = parts[0];
    // Only the index says that it is of the set.
    world.write(name, list("resourcelist").version(1));
    world.expect(100, [format!("u resourcelist {name}")]);
    world.delete(INDEX).wait(10);
    let parts = parts.map(|(name, _)| name);
    let lists_both = index("resourcelist").lists(&parts);
    world.write(INDEX, lists_both.version(1));
    world.expect_nothing(100).update(name).wait(100);
    assert!(index_of(&mut world).unwrap().ends_with(INDEX));
}

#[test]
fn sources_mounts_and_aliases_find_each_other() {
    let mut plan = plan();
    let mut data = mount("/srv/data", "https://data.example.org/");
    data.aliases = vec![uri("http://data.example.org/")];
    plan.sources[0].mounts.push(data);
    let other = other_source(&plan, "https://other.example.org/");
    plan.sources.push(other);
    let mut world = World::new(plan);
    world.write_set("/a", &["resourcelist"]);
    world.write(
        SET_A,
        capability_list("/a", &["resourcelist"]).lists(&["http://data.example.org/c.xml"]),
    );
    world.write("https://data.example.org/c.xml", list("changelist"));
    world.write(
        "https://other.example.org/capabilitylist.xml",
        list("capabilitylist").lists(&["https://other.example.org/c.xml"]),
    );
    world.write("https://other.example.org/c.xml", list("changelist"));
    world.wait(10).start().wait(10);
    world.update("https://data.example.org/c.xml");
    world.update("https://other.example.org/c.xml").wait(10);
    let news = world.news_by_topic();
    let want = ["u changelist https://data.example.org/c.xml"];
    assert_eq!(news["/a/framework/"], want);
    assert_eq!(
        news["/topics/other/capabilitylist/"],
        ["u changelist https://other.example.org/c.xml"]
    );
}

#[test]
fn an_index_that_no_longer_lists_a_component_is_its_index_only_if_that_names_it() {
    for names_it in [false, true] {
        let (mut world, parts) = world_with_an_index(names_it);
        let [(first, part), (second, _)] = parts;
        world.write(INDEX, index("resourcelist").lists(&[second]).version(1));
        world.write(first, part.version(1)).wait(100);
        let want = names_it.then(|| format!("https://example.org{INDEX}"));
        assert_eq!(index_of(&mut world), want);
    }
}

#[test]
fn an_entry_without_a_file_is_found_until_the_file_comes() {
    let mut world = World::with_two_sets(plan());
    world.write_capability_list("/a", &["resourcelist", "changelist", "changedump"]);
    world.wait(100);
    assert_eq!(world.findings().len(), 1);
    world.write_list("/a/changedump.xml", "changedump");
    world.wait(100);
    assert_eq!(world.findings(), []);
    world.delete("/a/changedump.xml").wait(1_000);
    assert_eq!(world.findings().len(), 1);
}
