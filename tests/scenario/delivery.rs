//! Answers that are no acceptance: a denial, and 413 to what cannot be halved (R23).

use announce::event::Fact;

use crate::world::{HUB, Reply, World, all_deletions, plan};

#[test]
fn a_denial_is_not_an_acceptance() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Deny);
    world.update("/a/changelist.xml").wait(10);
    world.script(HUB, Reply::Accept).expect_nothing(800);
    world.expect(200, ["u /a/changelist.xml"]);
}

#[test]
fn a_document_that_ended_and_began_is_too_large_without_haste() {
    let mut world = World::with_two_sets(all_deletions());
    world.script(HUB, Reply::AtMost(1));
    world.write_list("/a/changelist.xml", "resourcedump");
    world.wait(400);
    assert_eq!(world.attempts_at(HUB).len(), 2, "two changes, halved once");
    assert!(matches!(
        world.facts().last(),
        Some(Fact::Refused {
            needs_operator: true,
            ..
        })
    ));
    world.script(HUB, Reply::Accept);
    let want = ["d /a/changelist.xml", "c resourcedump /a/changelist.xml"];
    world.expect(1_000, want);
}

#[test]
fn a_single_change_that_is_too_large_needs_an_operator() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::AtMost(0));
    world.update("/a/changelist.xml").wait(10);
    assert!(matches!(
        world.facts()[..],
        [
            Fact::Cut { .. },
            Fact::Refused {
                needs_operator: true,
                ..
            }
        ]
    ));
    world.script(HUB, Reply::Accept);
    world.expect(1_000, ["u /a/changelist.xml"]);
}
