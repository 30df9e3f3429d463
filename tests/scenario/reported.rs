//! Reports of findings: by kind, in words, and what is muted by them (R8).

use announce::finding::AcknowledgedFindings;
use rsnotify::report;
use rsnotify::report::documents::DocumentState;
use rsnotify::report::status::alerts::Health;

use crate::findings::misnamed;
use crate::world::{SET_A, World, capability_list, list, plan, uri};

#[test]
fn many_findings_of_a_kind_are_a_group_with_three_examples() {
    let mut world = World::with_two_sets(plan());
    for number in 0..120 {
        world.write(&format!("/orphan-{number}.xml"), list("changelist"));
    }
    let groups = report::findings::groups(&world.engine().reader(world.now)).unwrap();
    assert_eq!((groups.len(), groups[0].count), (1, 120));
    assert_eq!((groups[0].examples.len(), groups[0].more()), (3, 117));
}

/// Returns a tree below the wrong URL, whose sets advertise topics below the right one.
fn with_topics_below_the_right_url(sets: usize) -> World {
    let mut plan = plan();
    plan.public_url = uri("https://topics.example.org/");
    let mut world = World::new(plan);
    misnamed(&mut world, sets);
    for set in 0..sets {
        let set = format!("/s{set}");
        let text = capability_list(&set, &["resourcelist", "changelist"]).render();
        let text = text.replace("https://example.org/", "https://repo.example.org/");
        world.write_text(&format!("{set}/capabilitylist.xml"), text.as_bytes());
    }
    world
}

#[test]
fn topics_below_the_right_url_are_no_cause_beside_a_wrong_url() {
    let mut world = with_topics_below_the_right_url(3);
    world.start().wait(100);
    const CAUSE: &str = "the Capability Lists here name documents below `https://repo.example.org/`, and the mount says \
         `https://example.org/`: is `url` wrong?";
    let found = report::findings::all(&world.engine().reader(world.now)).unwrap();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, [CAUSE]);
    let muted: Vec<_> = report::findings::muted(&world.engine().reader(world.now)).unwrap();
    assert_eq!(muted.len(), 3);
    for set in &muted {
        let want = ("wrong_url", CAUSE);
        assert_eq!((set.kind.as_str(), set.reason.as_str()), want);
        assert_eq!(set.remedy, "correct `url` of this mount");
    }
    let status = report::status(&world.engine().reader(world.now)).unwrap();
    let alerts = status.alerts();
    let about: Vec<&str> = alerts.iter().map(|alert| alert.what.as_str()).collect();
    let loud = format!(
        "NOTHING IS SENT of {} (and 2 other sets like it): {CAUSE}",
        muted[0].set
    );
    assert!(about.contains(&loud.as_str()), "{about:?}");
    assert!(
        !about.iter().any(|what| what.contains("topic")),
        "{about:?}"
    );
}

#[test]
fn muted_sets_beyond_those_that_are_listed_are_counted() {
    let mut world = with_topics_below_the_right_url(1_003);
    world.start();
    let status = report::outline(&world.engine().reader(world.now)).unwrap();
    assert_eq!((status.muted.len(), status.more_muted), (1_000, 3));
    assert_eq!(status.figures.holdings["main"].muted, 1_003);
    let alerts = status.alerts();
    let loud = alerts.iter().map(|alert| alert.what.as_str());
    let loud: Vec<&str> = loud.filter(|what| what.starts_with("NOTHING")).collect();
    assert!(loud[0].contains("(and 999 other sets like it)"), "{loud:?}");
    assert_eq!(loud[1..], ["NOTHING IS SENT of 3 more sets"]);
}

#[test]
fn findings_that_are_acknowledged_are_a_group_apart() {
    let mut plan = plan();
    let unrouted = AcknowledgedFindings::parse("unrouted").unwrap();
    plan.sources[0].acknowledged = vec![unrouted];
    let mut world = World::with_two_sets(plan);
    world.write("/orphan.xml", list("changelist"));
    world.write("/old/orphan.xml", list("changelist")).wait(100);
    let status = report::status(&world.engine().reader(world.now)).unwrap();
    assert_eq!((status.health(), status.findings.len()), (Health::Fine, 0));
    assert_eq!(status.finding_groups[0].count, 2);
    assert!(status.finding_groups[0].acknowledged);
}

#[test]
fn documents_of_sets_without_a_channel_do_not_count_as_announced() {
    let mut plan = plan();
    plan.sources[0].unadvertised_channels = false;
    let mut world = World::new(plan);
    world.write_set("/a", &["resourcelist"]);
    let bare = list("capabilitylist").lists(&["/a/resourcelist.xml"]);
    world.write(SET_A, bare);
    world.start().wait(100);
    let status = report::outline(&world.engine().reader(world.now)).unwrap();
    let holdings = &status.figures.holdings["main"];
    let announced = holdings.documents.iter();
    let mut announced = announced.filter(|((_, state), _)| *state == DocumentState::Announced);
    assert_eq!(announced.next(), None);
}
