//! Metrics of a tree: documents and findings by kind.

use resourcesync::capability::Capability;
use rsnotify::report;
use rsnotify::report::documents::DocumentState;
use rsnotify::report::figures::SourceFigures;

use crate::world::{HUB, Reply, World, index, list, plan};

/// Returns the holdings of the only source, and the numbers of documents and missing ones in its status.
fn holdings(world: &World) -> (SourceFigures, usize, usize) {
    let mut status = report::status(&world.engine().reader(world.now)).unwrap();
    let holdings = status.figures.holdings.pop_first().unwrap().1;
    let source = &status.sources[0];
    (holdings, source.documents, source.missing)
}

#[test]
fn each_document_counts_once_by_what_it_is_by_itself() {
    use Capability::{CapabilityList, ChangeList, ResourceDump, ResourceList, SourceDescription};
    use DocumentState::{Announced, Broken, Held, Missing, Silent, Unrouted};
    let mut world = World::with_two_sets(plan());
    world.write("/orphan.xml", list("changelist"));
    world.write("/a/index.xml", index("resourcedump").of("/a"));
    world.write_list("/a/new.xml", "changelist");
    world.delete("/b/resourcelist.xml");
    world.break_off("/b/changelist.xml").wait(20);
    let (found, documents, missing) = holdings(&world);
    let kinds = [
        ((SourceDescription, Announced), 1),
        ((CapabilityList, Announced), 2),
        ((ResourceList, Announced), 1),
        ((ResourceList, Missing), 1),
        ((ResourceDump, Silent), 1),
        ((ChangeList, Announced), 1),
        ((ChangeList, Held), 1),
        ((ChangeList, Broken), 1),
        ((ChangeList, Unrouted), 1),
    ];
    let there = found.documents.iter().filter(|(_, many)| **many > 0);
    let there: Vec<_> = there.map(|(kind, many)| (*kind, *many)).collect();
    let mut kinds = kinds.to_vec();
    kinds.sort();
    assert_eq!(there, kinds);
    assert_eq!((documents, missing), (10, 1));
    assert!(found.broken_since.is_some());
    assert_eq!(
        found.findings.get("unrouted"),
        Some(&1),
        "{:?}",
        found.findings
    );
}

#[test]
fn a_document_that_is_gone_or_mended_counts_no_more() {
    let mut world = World::with_two_sets(plan());
    let before = holdings(&world).0;
    world.delete("/b/resourcelist.xml");
    world.break_off("/b/changelist.xml").wait(20);
    assert_ne!(holdings(&world).0.documents, before.documents);
    let mended = list("changelist").of("/b");
    world.write("/b/changelist.xml", mended).wait(1_000);
    let (after, documents, missing) = holdings(&world);
    assert_eq!((documents, missing), (6, 0));
    assert_eq!(after.broken_since, None);
    let broken = after
        .documents
        .keys()
        .any(|(_, state)| *state == DocumentState::Broken);
    assert!(!broken, "{:?}", after.documents);
}

#[test]
fn the_outline_is_the_status_without_its_lists() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(403));
    world.write("/orphan.xml", list("changelist"));
    world.write_list("/a/new.xml", "changelist");
    world.break_off("/b/changelist.xml");
    world.update("/a/changelist.xml").wait(30);
    let mut status = report::status(&world.engine().reader(world.now)).unwrap();
    for list in [
        status.broken.len(),
        status.findings.len(),
        status.finding_groups.len(),
        status.notifications.len(),
        status.channels[0].pending.len(),
        status.channels[0].held.len(),
    ] {
        assert_ne!(list, 0, "{status:#?}");
    }
    status.broken.clear();
    status.findings.clear();
    status.finding_groups.clear();
    status.notifications.clear();
    for channel in &mut status.channels {
        channel.pending.clear();
        channel.held.clear();
    }
    assert_eq!(
        report::outline(&world.engine().reader(world.now)).unwrap(),
        status
    );
}
