//! Changes of documents: which are announced, and with which change type (R2, R3, R4, R6, R8, R12, R14).

use announce::event::Fact;
use announce::finding::Finding;
use rsnotify::report::documents::DocumentState;
use rstest::rstest;

use crate::world::{
    Doc, NOTHING, SET_A, SET_B, World, all_deletions, capability_list, index, list, plan, told,
};

#[rstest]
fn a_document_of_a_set_is_created_and_then_updated_and_forgotten_when_it_is_deleted(
    #[values("changelist", "changedump-archive")] capability: &str,
) {
    let mut world = World::with_two_sets(plan());
    let name = format!("/a/{capability}-2.xml");
    let document = || list(capability).of("/a");
    let names = ["/a/resourcelist.xml", "/a/changelist.xml", &name];
    let capability_list = list("capabilitylist")
        .lists(&names)
        .channel("/a/framework/", &[]);
    world.write(SET_A, capability_list).wait(10).news();

    world.write(&name, document());
    world.expect(10, [format!("c {capability} {name}")]);
    world.write(&name, document().version(2));
    world.expect(10, [format!("u {capability} {name}")]);
    world.delete(&name).expect_nothing(1_000);
    assert!(!world.remembers(&name));
}

#[test]
fn a_document_that_is_replaced_at_once_is_counted_once() {
    let mut world = World::with_two_sets(plan());
    let docs = ["changedump", "resourcedump"].map(|capability| list(capability).of("/a"));
    world.write_both("/a/changelist-2.xml", docs);
}

#[test]
fn a_write_without_a_change_announces_nothing() {
    let mut world = World::with_two_sets(plan());
    world.touch("/a/changelist.xml").wait(10);
    world.update("/a/changelist.xml").wait(1);
    world.write_list("/a/changelist.xml", "changelist");
    world.expect_nothing(100);
}

#[test]
fn a_list_becomes_an_index_at_the_same_path_and_a_list_again() {
    let mut world = World::with_two_sets(plan());
    let name = "/a/resourcelist.xml";
    let part = "/a/resourcelist00000.xml";
    let component = || list("resourcelist").of("/a").index(name);
    world.write(part, component());
    world.write(name, index("resourcelist").of("/a").lists(&[part]));
    world.expect(100, [format!("c resourcelist {part}")]);

    // It shrinks again; the part stays behind and says nothing.
    world.write(name, list("resourcelist").of("/a"));
    world.expect(100, [format!("c {name}")]);
}

#[test]
fn a_document_that_becomes_another_ended_and_began() {
    let mut world = World::with_two_sets(plan());
    world.write_list("/a/resourcelist.xml", "changelist");
    world.expect(100, ["c changelist /a/resourcelist.xml"]);
    world.write(SET_B, list("changelist").of("/a"));
    world.expect_nothing(290); // it has the grace of a deletion
    world.wait(100);
    let news = world.news_by_topic();
    assert_eq!(news["/b/framework/"], ["d /b/capabilitylist.xml"]);
    let want = ["c changelist /b/capabilitylist.xml"];
    assert_eq!(news["/a/framework/"], want);
}

#[test]
fn a_broken_document_keeps_its_state_and_is_reported_once() {
    let mut world = World::with_two_sets(plan());
    world.break_off("/a/changelist.xml").wait(5);
    world.break_off("/a/changelist.xml").expect_nothing(1_000);
    let facts = world.facts();
    let is_right = matches!(&facts[..], [Fact::Broken { is_known: true, .. }]);
    assert!(is_right, "{facts:?}");
    world.write("/a/changelist.xml", list("changelist").of("/a").version(1));
    world.expect(10, ["u /a/changelist.xml"]);
    assert!(matches!(world.facts()[0], Fact::Mended { .. }));
}

#[test]
fn an_archived_document_is_routed_and_not_announced() {
    let mut world = World::with_two_sets(plan());
    let up = |doc: Doc| doc.of("/a");
    let archive = up(list("changelist-archive")).lists(&["/a/old.xml"]);
    world.write("/a/archive.xml", archive);
    world.write("/a/old.xml", up(list("changelist")));
    world.expect(100, ["c changelist-archive /a/archive.xml"]);
    world.update("/a/old.xml").expect_nothing(100);
    let state = world.state_of("/a/old.xml");
    assert_eq!(state, Some(DocumentState::Archived));
}

#[test]
fn a_broken_file_that_goes_while_nobody_looks_is_forgotten() {
    let mut world = World::new(plan());
    world.write_set("/a", &["changelist"]);
    world.break_off("/a/half.xml");
    world.break_off("/a/other.xml").wait(10);
    world.start().wait(100);
    assert_eq!(world.troubles(), 2);
    world.unseen().delete("/a/other.xml");
    world.sweep(0);
    assert_eq!(world.troubles(), 1);
    world.crash().delete("/a/half.xml").start();
    assert_eq!(world.troubles(), 0);
    assert_eq!(world.state_of("/a/half.xml"), None);
}

#[test]
fn a_file_that_becomes_another_document_and_is_whole_is_not_reported() {
    let mut world = World::with_two_sets(plan());
    world.break_off(SET_A).wait(5);
    world.write(SET_A, list("changelist").of("/b")).wait(100);
    assert!(!told!(world, Fact::Broken { .. }));
}

#[test]
fn a_broken_file_that_was_mended_while_it_was_down_is_not_reported() {
    let mut world = World::new(plan());
    world.write_set("/a", &["changelist"]);
    world.break_off("/a/half.xml").wait(10);
    world.start().wait(5).crash();
    world.write("/a/half.xml", list("changelist")).wait(1_000);
    world.start().wait(100);
    assert!(!told!(world, Fact::Broken { .. }));
}

#[test]
fn a_capability_that_is_never_announced_is_reported_once() {
    let mut world = World::with_two_sets(plan());
    for version in 0..3 {
        let foreign = list("framework-notification").version(version);
        world.write("/a/notification.xml", foreign).wait(100);
    }
    assert_eq!(world.news(), NOTHING);
    let facts = world.facts();
    let [Fact::Found(finding @ Finding::ForeignCapability { .. })] = &facts[..] else {
        panic!("{facts:?}");
    };
    assert_eq!(
        finding.to_string(),
        "https://example.org/a/notification.xml has the capability \"framework-notification\", which is none \
         that is announced"
    );
    assert!(world.findings().contains(finding));
    world.delete("/a/notification.xml").wait(100);
    assert_eq!(world.findings().len(), 0);
}

/// R14: the change list that it was ended, and the dump that it is began in another set.
#[test]
fn a_document_that_becomes_another_while_it_leaves_its_set_is_deleted_there() {
    let mut world = World::with_two_sets(all_deletions());
    world.write_list("/a/x.xml", "changelist").wait(100).news();
    world.write("/a/x.xml", list("resourcedump").of("/b"));
    world.expect_nothing(290).wait(110);
    let news = world.news_by_topic();
    assert_eq!(news["/a/framework/"], ["d changelist /a/x.xml"]);
    assert_eq!(news["/b/framework/"], ["c resourcedump /a/x.xml"]);
}

/// R8: what lies where a list names a document is said, told once, and again only if it is something else.
#[test]
fn what_lies_where_a_list_names_no_document_is_told() {
    let mut world = World::new(plan());
    world.write_set("/a", &["changelist"]);
    let plain = list("x")
        .render()
        .replace("<rs:md capability=\"x\"", "<rs:md");
    world.write_text("/a/plain.xml", plain.as_bytes());
    let https = plain.replace("http://www.sitemaps", "https://www.sitemaps");
    world.write_text("/a/https.xml", https.as_bytes());
    world.break_off("/a/broken.xml").start();
    world.write_text("/a/list.xml.gz", b"packed");
    let names = "/a/plain.xml /a/https.xml /a/broken.xml /a/list.xml.gz /a/absent.xml";
    let names: Vec<&str> = names.split(' ').collect();
    let lists = capability_list("/a", &["changelist"]).lists(&names);
    world.write(SET_A, lists.clone()).wait(100);
    let in_words = |finding: &Finding| {
        let words = finding.to_string().replace("https://example.org/a/", "");
        let words = words.replace("capabilitylist.xml names ", "");
        words.split(": ").next().unwrap().to_owned()
    };
    let told = |world: &mut World| -> Vec<String> {
        let found = world.facts().into_iter().filter_map(|fact| match fact {
            Fact::Found(finding) if finding.uri_without_document().is_some() => {
                Some(in_words(&finding))
            }
            _ => None,
        });
        found.collect()
    };
    let expected = [
        "absent.xml, and no file is there",
        "broken.xml, and the file there is broken",
        "https.xml, and the file there is no document",
        "list.xml.gz, and `include` does not match the file there",
        "plain.xml, and the file there is no document",
    ];
    let found = world.findings();
    let found = found
        .iter()
        .filter(|finding| finding.uri_without_document().is_some());
    let mut found: Vec<String> = found.map(in_words).collect();
    found.sort();
    assert_eq!(found, expected);
    // Three of a kind are told, and how many more there are.
    assert_eq!(told(&mut world).len(), 4);

    world.write(SET_A, lists.version(1)).wait(100);
    assert_eq!(told(&mut world), NOTHING);

    world.delete("/a/plain.xml");
    world.write("/a/https.xml", list("changelist")).wait(100);
    assert_eq!(told(&mut world), ["plain.xml, and no file is there"]);
    let findings = world.findings();
    assert!(
        !findings
            .iter()
            .any(|finding| finding.to_string().contains("https.xml, and"))
    );
}

/// R8: memory stays bounded, whatever a list holds, and its changes are announced all the same.
#[test]
fn a_list_beyond_the_protocol_is_announced_and_reported() {
    let mut world = World::with_two_sets(plan());
    let names: Vec<String> = (0..50_100).map(|n| format!("/a/{n}.xml")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let long = capability_list("/a", &["changelist"]).lists(&names);
    world.write(SET_A, long.clone()).wait(100);
    assert_eq!(world.news().len(), 1);
    let findings = world.findings();
    assert!(findings.len() < 150, "{}", findings.len());
    let named = findings
        .iter()
        .filter(|finding| finding.kind() == "no_file");
    assert_eq!(named.map(Finding::finding_count).sum::<usize>(), 50_000 - 2);
    let large = findings
        .iter()
        .find(|finding| finding.kind() == "too_large");
    let words = large.unwrap().to_string();
    assert!(
        words.starts_with("https://example.org/a/capabilitylist.xml has 50102 entries in "),
        "{words}"
    );
    world.write(SET_A, long.lists(&["/a/x.xml"])).wait(100);
    assert_eq!(world.news().len(), 1);
    world.write_capability_list("/a", &["changelist"]).wait(100);
    assert_eq!(world.findings().len(), 0);
}

/// R2: so that no report counts it, and a restart compares its file with what was read last.
#[test]
fn a_document_that_returns_is_no_file_of_another_kind_any_more() {
    let mut world = World::with_two_sets(plan());
    for (capability, others) in [("framework-notification", 1_usize), ("changelist", 0)] {
        world.write(
            "/a/changelist.xml",
            list(capability).up("/a/capabilitylist.xml"),
        );
        world.wait(1);
        let sql = "SELECT count(*) FROM other_file";
        assert_eq!(
            world.db().first(sql, ()).unwrap(),
            Some(others),
            "{capability}"
        );
    }
}
