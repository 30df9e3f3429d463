//! Findings are reported in a few lines, whatever their number, with what is muted by them (R8).

use std::collections::BTreeSet;

use announce::event::Fact;
use announce::finding::{AcknowledgedPattern, Finding};
use announce::plan::Plan;
use rsnotify::report;
use rsnotify::report::documents::DocumentState;
use rsnotify::report::status::alerts::Health;

use rstest::rstest;

use crate::world::{
    Doc, SET_A, World, capability_list, change_list, excluding, list, mount, plan, uri,
};

/// More than a list that is gone through at once has.
const MANY: usize = 20_000;

/// The findings that the operator was told of, and how many more of which kind.
fn told(world: &mut World) -> (Vec<Finding>, Vec<(&'static str, usize)>) {
    let (mut found, mut more) = (Vec::new(), Vec::new());
    for fact in world.facts() {
        match fact {
            Fact::Found(finding) => found.push(finding),
            Fact::FoundMore { kind, count, .. } => more.push((kind, count)),
            _ => {}
        }
    }
    (found, more)
}

/// Returns the number of all findings, those that are only counted included.
fn counted(world: &World) -> usize {
    world.findings().iter().map(Finding::finding_count).sum()
}

/// A Capability List that names many documents, of which there is none.
fn promising(count: usize) -> Doc {
    let names: Vec<String> = (0..count)
        .map(|number| format!("/a/part-{number:06}.xml"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    capability_list("/a", &["resourcelist", "changelist"]).lists(&names)
}

/// A tree whose documents name each other below another prefix than that of the mount.
fn misnamed(world: &mut World, sets: usize) {
    let elsewhere = |doc: Doc| {
        let text = doc.render();
        text.replace("https://example.org/", "https://repo.example.org/")
    };
    for set in 0..sets {
        let set = format!("/s{set}");
        for capability in ["resourcelist", "changelist"] {
            let doc = list(capability).of(&set);
            let name = format!("{set}/{capability}.xml");
            world.write_text(&name, elsewhere(doc).as_bytes());
        }
        let doc = capability_list(&set, &["resourcelist", "changelist"]);
        let name = format!("{set}/capabilitylist.xml");
        world.write_text(&name, elsewhere(doc).as_bytes());
    }
}

#[test]
fn many_findings_of_one_kind_are_three_examples_and_a_number() {
    let mut world = World::with_two_sets(plan());
    for number in 0..120 {
        world.write(&format!("/orphan-{number}.xml"), list("changelist"));
    }
    world.wait(20);
    let (found, more) = told(&mut world);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|finding| finding.kind() == "unrouted"));
    assert_eq!(more, [("unrouted", 117)]);
    assert_eq!(world.findings().len(), 120);
    let shown = report::status(&world.engine().reader(world.now)).unwrap();
    assert_eq!((shown.findings.len(), shown.more_findings), (100, 20));
    assert!(shown.alerts()[0].what.starts_with("120 problems"));
    let groups = &shown.finding_groups;
    assert_eq!((groups.len(), groups[0].count), (1, 120));
    assert_eq!((groups[0].examples.len(), groups[0].more()), (3, 117));
}

#[test]
fn findings_that_trickle_in_are_summed_up_once_a_minute() {
    let mut world = World::with_two_sets(plan());
    for number in 0..180 {
        world.write(&format!("/orphan-{number}.xml"), list("changelist"));
        world.wait(1);
    }
    world.wait(200);
    let (found, more) = told(&mut world);
    let counted: usize = more.iter().map(|(_, count)| count).sum();
    assert_eq!(found.len() + counted, 180);
    assert!(found.len() + more.len() <= 20, "{found:?} {more:?}");
}

#[test]
fn a_list_that_names_many_absent_documents_is_a_few_findings() {
    let mut world = World::with_two_sets(plan());
    world.write(SET_A, promising(MANY)).wait(20);
    let (found, more) = told(&mut world);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(more, [("no_file", MANY - 3)]);
    assert!(world.findings().len() <= 110);
    assert_eq!(counted(&world), MANY);

    // Some of them come, one after the other.
    for part in 0..5 {
        let doc = list("changelist").of("/a");
        world.write(&format!("/a/part-{part:06}.xml"), doc).wait(3);
    }
    world.wait(100);
    assert_eq!(counted(&world), MANY - 5);
    assert_eq!(told(&mut world), (Vec::new(), Vec::new()));
}

#[test]
fn each_absent_document_is_found_where_that_is_asked_for() {
    let mut world = World::with_two_sets(plan());
    world.find_each();
    world.write(SET_A, promising(1_500)).wait(20);
    assert_eq!(world.findings().len(), 1_500);
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
    let (found, more) = told(&mut world);
    assert_eq!(more, []);
    assert_eq!(world.findings(), found);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, [CAUSE]);
    let muted: Vec<_> = report::findings::muted_sets(&world.engine().reader(world.now)).unwrap();
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
fn a_wrong_url_of_one_mount_hides_no_finding_about_another() {
    let mut plan = plan();
    let other = mount("/srv/b", "https://example.org/b/");
    plan.sources[0].mounts.push(other);
    let mut world = World::new(plan);
    misnamed(&mut world, 3);
    world.write("/b/orphan.xml", list("changelist"));
    world.start().wait(100);
    let (found, _) = told(&mut world);
    let told: BTreeSet<&str> = found.iter().map(Finding::kind).collect();
    let found = world.findings();
    let found: BTreeSet<&str> = found.iter().map(Finding::kind).collect();
    assert_eq!(found, BTreeSet::from(["unrouted", "wrong_url"]));
    assert_eq!(told, found);
    // The cause comes first.
    let groups = report::findings::groups(&world.engine().reader(world.now)).unwrap();
    let kinds: Vec<&str> = groups.iter().map(|group| group.kind.as_str()).collect();
    assert_eq!(kinds, ["wrong_url", "unrouted"]);
}

#[test]
fn a_set_that_is_named_otherwise_beside_others_makes_no_url_wrong() {
    let mut world = World::with_two_sets(plan());
    misnamed(&mut world, 1);
    world.wait(100);
    let (found, _) = told(&mut world);
    assert!(!found.is_empty());
    assert!(
        found.iter().all(|finding| finding.kind() != "wrong_url"),
        "{found:?}"
    );
}

#[test]
fn what_is_acknowledged_colours_nothing_and_is_counted_apart() {
    let acknowledging = |texts: &[&str]| {
        let mut plan: Plan = plan();
        let acknowledged = texts
            .iter()
            .map(|text| AcknowledgedPattern::parse(text).unwrap());
        plan.sources[0].acknowledged = acknowledged.collect();
        let mut world = World::with_two_sets(plan);
        world.write("/orphan.xml", list("changelist"));
        world.write("/old/orphan.xml", list("changelist")).wait(100);
        world
    };
    let mut world = acknowledging(&["unrouted"]);
    assert_eq!(told(&mut world).0, []);
    assert_eq!(world.findings().len(), 2);
    let status = report::status(&world.engine().reader(world.now)).unwrap();
    assert_eq!((status.health(), status.findings.len()), (Health::Fine, 0));
    let group = &status.finding_groups[0];
    assert!(group.acknowledged && group.count == 2);
    for (text, left) in [
        ("https://example.org/old/orphan.xml", 1),
        ("https://example.org/*", 0),
        ("unrouted https://example.org/old/*", 1),
        ("no_file https://example.org/*", 2),
    ] {
        let mut world = acknowledging(&[text]);
        assert_eq!(told(&mut world).0.len(), left, "{text}");
    }
    for text in ["", "unruoted", "unrouted no_file", "https://a/ https://b/"] {
        assert!(AcknowledgedPattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_document_that_no_configured_hub_is_told_of_is_unrouted() {
    let mut world = World::new(plan());
    world.write_set("/a", &["resourcelist"]);
    let bare = || list("capabilitylist").lists(&["/a/resourcelist.xml"]);
    let foreign = bare().channel(
        "https://example.org/a/framework/",
        &["https://foreign.example/"],
    );
    world.write(SET_A, foreign).start().wait(100);
    for name in ["/a/resourcelist.xml", SET_A] {
        let state = world.state_of(name);
        assert_eq!(state, Some(DocumentState::Unrouted), "{name}");
    }
    let mut plan = plan();
    plan.sources[0].unadvertised_channels = false;
    let mut world = World::new(plan);
    world.write_set("/a", &["resourcelist"]);
    world.write(SET_A, bare()).start().wait(100);
    for name in ["/a/resourcelist.xml", SET_A] {
        let state = world.state_of(name);
        assert_eq!(state, Some(DocumentState::Unrouted), "{name}");
    }
    let status = report::outline(&world.engine().reader(world.now)).unwrap();
    let mut states = status.figures.holdings["main"].documents.keys();
    assert!(states.all(|(_, state)| *state != DocumentState::Announced));
}

#[test]
fn a_document_in_another_namespace_than_the_right_one_is_found() {
    let mut world = World::with_two_sets(plan());
    for (name, namespace) in [
        ("/a/sitemap.xml", "http://www.sitemaps.org/"),
        ("/a/terms.xml", "http://www.openarchives.org/"),
    ] {
        let text = list("changelist").of("/a").render();
        let text = text.replace(namespace, &namespace.replace("http:", "https:"));
        world.write_text(name, text.as_bytes());
    }
    world.wait(100);
    let found = world.findings();
    let found = found
        .iter()
        .filter(|finding| finding.kind() == "foreign_namespace");
    assert_eq!(found.count(), 2);
}

/// R8: each is told once, although each version of the file has another number, line or text.
#[rstest]
#[case("too_large", |version| {
    let entries = (0..50_000 + version).map(|at| format!("<url><loc>https://example.org/r/{at}</loc></url>"));
    resource_list(&entries.collect::<String>())
})]
#[case("relative_loc", |version| {
    let entry = format!("<url><loc>r/{version}</loc></url></urlset>");
    list("capabilitylist").render().replace("</urlset>", &entry)
})]
#[case("untellable_entries", |version| {
    let entries: Vec<String> = (0..=version).map(|at| format!("x r{at} 0{at}:00")).collect();
    change_list(SET_A, &entries)
})]
#[case("ahead", |version| {
    let entries: Vec<String> = (0..=version).map(|at| format!("u r{at} 2027-01-01T00:00:0{at}Z")).collect();
    change_list(SET_A, &entries)
})]
#[case("back_dated", |version| {
    let entries: Vec<String> = (0..=version).map(|at| format!("u r{at} 2026-01-0{}T00:00:00Z", at + 1)).collect();
    change_list(SET_A, &entries)
})]
fn a_finding_with_a_number_is_told_once(#[case] kind: &str, #[case] version: fn(usize) -> String) {
    let mut world = World::with_two_sets(plan());
    world.write(
        SET_A,
        capability_list("/a", &["resourcelist", "changelist"]).change_channel("/a/change/", &[]),
    );
    world.wait(60);
    told(&mut world);
    let mut found = Vec::new();
    for number in 1..5 {
        world.write_text("/a/more.xml", version(number).as_bytes());
        world.wait(100);
        let (each, more) = told(&mut world);
        assert!(more.is_empty(), "{more:?}");
        found.extend(each.into_iter().filter(|finding| finding.kind() == kind));
        let said = world.findings();
        assert_eq!(
            said.iter().filter(|finding| finding.kind() == kind).count(),
            1,
            "{said:?}"
        );
        assert_eq!(found.len(), 1, "version {number}: {found:?}");
        if let Finding::Ahead { list, count } | Finding::BackDated { list, count } = &found[0] {
            assert_eq!((list, *count), (&uri("/a/more.xml"), 2));
        }
        assert!(
            number == 1 || !said.contains(&found[0]),
            "what is shown is of the present version"
        );
    }
    world.plan.sources[0].candidates = excluding(&["a/more.xml"]);
    world.reload().wait(100);
    let said = world.findings();
    assert!(said.iter().all(|it| it.kind() != kind), "{said:?}");
}

fn resource_list(entries: &str) -> String {
    let doc = list("resourcelist").of("/a").render();
    doc.replacen("</urlset>", &format!("{entries}</urlset>"), 1)
}
