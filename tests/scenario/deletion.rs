//! Deletions: when they count (R15).

use announce::event::{Fact, SuspendedDeletions};
use announce::plan::MassDeletionLimit;
use rsnotify::report::documents::DocumentState;

use crate::acceptance::{delete_most, large, write_again};
use crate::world::{NOTHING, SET_A, SET_B, World, altered, capability_list, list, plan, told};

fn set_a() -> crate::world::Doc {
    capability_list("/a", &["resourcelist", "changelist"])
}

#[test]
fn what_is_recreated_within_the_grace_was_never_deleted() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(200);
    assert_eq!(world.state_of(SET_A), Some(DocumentState::Missing));
    world.write(SET_A, set_a()).expect_nothing(1_000);
    world.delete(SET_A).wait(200);
    world.write(SET_A, set_a().version(1));
    world.expect(1_000, ["u /a/capabilitylist.xml"]);
}

#[test]
fn nothing_is_announced_of_a_document_while_it_is_missing() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(1);
    world.delete("/a/changelist.xml").wait(100);
    world.crash_and_start().expect_nothing(100);
    world.write("/a/changelist.xml", list("changelist").of("/a").version(1));
    world.expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn while_a_capability_list_is_missing_its_set_goes_on() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(10).update("/a/changelist.xml");
    world.expect(10, ["u /a/changelist.xml"]);
    world.crash_and_start().wait(1).update("/a/changelist.xml");
    world.expect(10, ["u /a/changelist.xml"]);
}

fn is_suspended(world: &mut World) -> bool {
    let facts = world.facts();
    let suspended = |fact: &Fact| {
        matches!(
            fact,
            Fact::Suspended(SuspendedDeletions {
                missing: 22,
                of: 42,
                ..
            })
        )
    };
    facts.iter().filter(|fact| suspended(fact)).count() == 1
}

#[test]
fn a_mass_deletion_is_suspended_and_nothing_else_is() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10_000);
    assert!(is_suspended(&mut world));
    assert_eq!(world.news(), NOTHING);
    world.update("/a/39.xml");
    world.expect(10, ["u changelist /a/39.xml"]);
    world.crash_and_start().expect_nothing(10_000);
    world.accept_deletions();
    world.crash_and_start();
    world.expect(100, ["d /a/capabilitylist.xml"]);
}

#[test]
fn a_mass_deletion_is_believed_where_none_is_suspended() {
    let mut world = large();
    world.crash();
    world.plan.sources[0].mass_deletion = MassDeletionLimit::Never;
    world.start().wait(10);
    delete_most(&mut world);
    world.expect(10_000, ["d /a/capabilitylist.xml"]);
    // All Capability Lists of a mount are suspended, however few they are.
    let plan = altered(plan(), |plan| {
        plan.sources[0].mass_deletion = MassDeletionLimit::Never
    });
    let mut world = World::with_two_sets(plan);
    world.delete(SET_A).delete(SET_B);
    world.expect(
        1_000,
        ["d /a/capabilitylist.xml", "d /b/capabilitylist.xml"],
    );
}

#[test]
fn deletions_count_again_once_enough_documents_return() {
    let mut world = large();
    delete_most(&mut world);
    world.wait(10_000);
    write_again(&mut world, 0..22);
    assert!(told!(world, Fact::Resumed { .. }));
    world.expect(100, ["d /a/capabilitylist.xml"]);
}

#[test]
fn a_set_that_comes_just_after_its_source_description_went_is_told_of_what_is_there() {
    const DESCRIPTION: &str = "/.well-known/resourcesync";
    let mut world = World::new(plan());
    world.write(DESCRIPTION, list("description"));
    world.write("/a/changelist.xml", list("changelist"));
    world.write("/a/resourcelist.xml", list("resourcelist"));
    world.wait(10).start().wait(10);
    world.delete(DESCRIPTION).wait(300);
    assert!(!world.remembers(DESCRIPTION), "nobody is told of its end");
    world.write(SET_A, set_a());
    let created = ["changelist", "resourcelist", "capabilitylist"];
    world.expect(10, created.map(|name| format!("c /a/{name}.xml")));
}

#[test]
fn what_is_missing_when_its_set_ends_was_never_created() {
    let mut plan = plan();
    plan.window.quiet = std::time::Duration::ZERO;
    let mut world = World::with_two_sets(plan);
    for name in ["changelist", "resourcelist"] {
        world.write(&format!("/n/{name}.xml"), list(name).of("/n"));
    }
    world.wait(10).delete("/n/changelist.xml").wait(1);
    world.write_capability_list("/n", &["resourcelist", "changelist"]);
    world.wait(10);
    assert_eq!(world.news().len(), 2, "the other ones");
    world.unmount(0).delete("/n/capabilitylist.xml");
    world.remount(0, 2).wait(10_000);
    let news = world.news();
    assert_eq!(news, ["d /n/capabilitylist.xml"]);
}
