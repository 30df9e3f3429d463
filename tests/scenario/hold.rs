//! Documents that are held until they are listed (R17).

use announce::event::Fact;
use rsnotify::report::documents::DocumentState;

use crate::world::{
    HUB, Reply, SET_A, World, advertise, all_deletions, capability_list, index, list, plan,
};

const NEW: &str = "/a/changelist-2.xml";

fn new_list() -> crate::world::Doc {
    list("changelist").of("/a")
}

fn holds_expired(world: &mut World) -> usize {
    let facts = world.facts();
    let expired = |fact: &&Fact| matches!(fact, Fact::HoldExpired { .. });
    facts.iter().filter(expired).count()
}

#[test]
fn a_created_document_waits_for_its_capability_list() {
    let mut world = World::with_two_sets(plan());
    world.write(NEW, new_list()).expect_nothing(50);
    assert_eq!(world.state_of(NEW), Some(DocumentState::Held));
    let capabilities = ["resourcelist", "changelist", "changelist-2"];
    world.write(SET_A, capability_list("/a", &capabilities));
    let created = "c changelist /a/changelist-2.xml";
    world.expect(5, [created, "u /a/capabilitylist.xml"]);
    world.wait(100);
    assert_eq!(holds_expired(&mut world), 0);
}

#[test]
fn a_hold_outlives_a_crash_and_expires_once_with_a_warning() {
    let mut world = World::with_two_sets(plan());
    world.write(NEW, new_list()).wait(40);
    world.crash_and_start().expect_nothing(15);
    world.expect(10, [format!("c changelist {NEW}")]);
    world.update(NEW).expect(5, [format!("u changelist {NEW}")]);
    assert_eq!(holds_expired(&mut world), 1);
}

#[test]
fn a_deleted_document_is_not_reported_as_announced_anyway() {
    let mut world = World::with_two_sets(plan());
    world.write(NEW, new_list()).wait(10);
    world.delete(NEW).wait(200);
    assert_eq!(holds_expired(&mut world), 0);
    world.write(NEW, new_list());
    world.expect(65, [format!("c changelist {NEW}")]);
    assert_eq!(holds_expired(&mut world), 1);
    world.delete(NEW).expect_nothing(400);
}

#[test]
fn a_held_document_delays_nobody() {
    let mut world = World::with_two_sets(plan());
    world.write(NEW, new_list()).update("/a/changelist.xml");
    world.expect(3, ["u /a/changelist.xml"]);
}

#[test]
fn a_created_document_waits_for_its_archive_which_alone_is_announced() {
    let mut world = World::with_two_sets(plan());
    world.write(NEW, new_list()).expect_nothing(20);
    let archive = list("changelist-archive").of("/a").lists(&[NEW]);
    world.write("/a/archive.xml", archive);
    world.expect(100, ["c changelist-archive /a/archive.xml"]);
    assert_eq!(world.state_of(NEW), Some(DocumentState::Archived));
}

#[test]
fn a_created_component_waits_for_its_index() {
    let mut world = World::with_two_sets(plan());
    // It is below another.
    world.write("/a/top.xml", index("changelist").lists(&["/a/i.xml"]));
    world.write(NEW, new_list().index("/a/i.xml"));
    world.expect_nothing(20);
    world.write("/a/i.xml", index("changelist").lists(&[NEW]));
    world.expect(5, [format!("c changelist {NEW}")]);
}

#[test]
fn an_updated_component_waits_only_for_an_index_that_is_new_to_it() {
    let mut world = World::with_two_sets(plan());
    world.write(SET_A, advertise("/a/framework/", &[])).wait(5);
    world.news();
    // It is listed by nobody, and waits for nobody.
    world.update("/a/changelist.xml");
    world.expect(5, ["u /a/changelist.xml"]);

    // py-resourcesync rewrites its components two or three times before it writes their index.
    world.write("/a/changelist.xml", new_list().index("/a/i.xml").version(5));
    world.wait(10);
    world.write("/a/changelist.xml", new_list().index("/a/i.xml").version(6));
    world.expect_nothing(10);
    let doc = index("changelist").lists(&["/a/changelist.xml"]);
    world.write("/a/i.xml", doc);
    world.expect(5, ["u /a/changelist.xml"]);
}

#[test]
fn a_document_without_a_capability_list_in_the_tree_waits_for_nobody() {
    let mut plan = plan();
    plan.channels.push(crate::channels::configured(
        "/generated/capabilitylist",
        "/topic/",
    ));
    let mut world = World::with_two_sets(plan);
    world.write("/g.xml", list("changelist").up("/generated/capabilitylist"));
    world.expect(3, ["c changelist /g.xml"]);
}

#[test]
fn what_returns_before_its_deletion_is_accepted_is_held_from_then_on() {
    let mut world = World::with_two_sets(all_deletions());
    world.write_capability_list("/a", &["changelist"]).wait(10);
    world.news();
    world.script(HUB, Reply::Status(503));
    world.delete("/a/resourcelist.xml").wait(400);
    world.write_list("/a/resourcelist.xml", "resourcelist");
    world.wait(100).script(HUB, Reply::Accept);
    world.expect(2_000, ["d /a/resourcelist.xml", "c /a/resourcelist.xml"]);
}
