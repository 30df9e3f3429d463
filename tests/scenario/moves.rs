//! Sets, topics and hubs that move: no due change is lost, and none is announced twice (R9, R11, R13).

use announce::event::DropCause;
use announce::finding::Finding;
use announce::plan::{Plan, PublishMode, ReplacedHub};
use resourcesync::uri::Hub;
use rstest::rstest;

use crate::channels::configured;
use crate::world::{
    Doc, HUB, NOTHING, OTHER_HUB, Reply, SET_A, SET_B, World, advertise, all_deletions,
    capability_list, list, mount, other_source, plan, set_hubs, two_hubs, two_sources, uri,
};

const SET_N: &str = "/n/capabilitylist.xml";
const FOREIGN_HUB: &str = "https://foreign.example.com/";

/// The Capability List of `/a`, with these hubs.
pub fn set_a(hubs: &[&str]) -> Doc {
    list("capabilitylist")
        .up("/.well-known/resourcesync")
        .lists(&["/a/resourcelist.xml", "/a/changelist.xml"])
        .channel("/a/framework/", hubs)
}

/// The same set under another name, on the topic that it had.
fn write_renamed(world: &mut World, from: &str, to: &str) {
    for capability in ["resourcelist", "changelist"] {
        world.delete(&format!("{from}/{capability}.xml"));
        world.write_list(&format!("{to}/{capability}.xml"), capability);
    }
    world.delete(&format!("{from}/capabilitylist.xml"));
    let renamed = moved(to, &format!("{from}/framework/")).version(0);
    world.write(&format!("{to}/capabilitylist.xml"), renamed);
}

fn sorted(mut changes: Vec<String>) -> Vec<String> {
    changes.sort();
    changes
}

#[test]
fn a_set_that_had_to_wait_for_its_topic_is_created() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(plan());
        write_renamed(&mut world, "/a", "/n");
        world.expect_nothing(10);
        if is_restarted {
            world.crash_and_start();
        }
        world.update("/n/changelist.xml").wait(1_000);
        let news = world.news_by_topic();
        let all = [CREATED[0], CREATED[1], "c /n/resourcelist.xml"];
        assert_eq!(sorted(news["/a/framework/"].clone()), all);
        world.update("/n/changelist.xml");
        world.expect(10, ["u /n/changelist.xml"]);
    }
}

/// A world in which `/n` came later and has no channel, for as long as `plan` stands.
fn world_without_a_channel(plan: Plan, list: Doc) -> World {
    let mut world = World::with_two_sets(plan);
    world.write_list("/n/changelist.xml", "changelist");
    world.write(SET_N, list).wait(100);
    world.update("/n/changelist.xml").expect_nothing(100);
    world
}

const CREATED: [&str; 2] = ["c /n/capabilitylist.xml", "c /n/changelist.xml"];

fn set_n(topic: &str, hubs: &[&str]) -> Doc {
    list("capabilitylist")
        .lists(&["/n/changelist.xml"])
        .channel(topic, hubs)
}

/// What its Capability List had before it named a topic and a hub of ours.
#[rstest]
#[case::only_foreign_hubs(plan(), set_n("/n/framework/", &[FOREIGN_HUB]), &[HUB])]
#[case::a_topic_elsewhere(plan(), set_n("https://elsewhere.example.com/", &[]), &[])]
#[case::nothing(without_channels(), list("capabilitylist").lists(&["/n/changelist.xml"]), &[])]
#[case::a_topic_that_is_configured_for_another(with_shared(), set_n("/shared/", &[]), &[])]
fn a_set_that_had_no_channel_is_created_once_it_has_one(
    #[case] plan: Plan,
    #[case] lacking: Doc,
    #[case] hubs: &[&str],
    #[values(false, true)] is_restarted: bool,
) {
    let mut world = world_without_a_channel(plan, lacking);
    if is_restarted {
        world.crash_and_start().wait(10);
    }
    world.write(SET_N, set_n("/n/framework/", hubs));
    world.expect_sorted(HUB, 100, CREATED);
}

fn without_channels() -> Plan {
    let mut plan = plan();
    plan.sources[0].unadvertised_channels = false;
    plan
}

fn with_shared() -> Plan {
    let mut plan = plan();
    plan.channels.push(configured(SET_B, "/shared/"));
    plan
}

/// The sources settle in their order: one may leave a topic before or after the other has looked for it.
#[rstest]
fn a_set_whose_topic_another_source_had_is_created_once_it_is_free(
    #[values(false, true)] is_down_meanwhile: bool,
    #[values(0, 1)] position: usize,
) {
    let mut plan = plan();
    let other = other_source(&plan, OTHER_SITE);
    plan.sources.insert(position, other);
    let mut world = World::new(plan);
    world.write_set("/a", &["changelist"]);
    let of_other = "https://other.example.org/capabilitylist.xml";
    world.write(of_other, advertise("/shared/", &[]));
    world.wait(10).start().wait(10);
    world.write_list("/n/changelist.xml", "changelist");
    world.write(SET_N, set_n("/shared/", &[]));
    world.expect_nothing(100);
    if is_down_meanwhile {
        world.crash();
    }
    world.write(of_other, advertise("/own/", &[]));
    if is_down_meanwhile {
        world.start();
    }
    world.wait(100);
    let mut created = world.news_by_topic().remove("/shared/").unwrap();
    created.retain(|change| change.contains("/n/"));
    assert_eq!(sorted(created), CREATED);
}

const OTHER_SITE: &str = "https://other.example.org/";

#[test]
fn changes_of_another_source_are_dropped_with_its_topic() {
    let name = |name: &str| format!("{OTHER_SITE}{name}.xml");
    for is_sent in [false, true] {
        let mut world = World::new(two_sources(OTHER_SITE));
        world.write_set("/a", &["changelist"]);
        let changes = list("changelist").up(&name("cl"));
        world.write(&name("changes"), changes.clone());
        let of_other = list("capabilitylist").lists(&[&name("changes")]);
        world.write(&name("cl"), of_other.channel("/shared/", &[]));
        world.wait(10).start().wait(100);
        world.update(&name("changes")).wait(10);
        assert!(world.heard_by(HUB)[0].payload.until.is_some());
        world.script(HUB, Reply::Status(503));
        if !is_sent {
            world.write(&name("changes"), changes.version(7)).wait(100);
        }
        world.delete(&name("cl")).wait(1_000);
        assert!(world.remembers(&name("cl")));
        world.facts();
        world.write_list("/n/changelist.xml", "changelist");
        world.write(SET_N, set_n("/shared/", &[])).wait(100);
        let changes = if is_sent { 1 } else { 2 };
        let dropped = format!("{HUB} /shared/ {changes}");
        assert_eq!(world.dropped(DropCause::ChannelRemoved), [dropped]);
        assert!(!world.remembers(&name("cl")), "{is_sent}");
        world.script(HUB, Reply::Accept).wait(10_000);
        let mut heard = world.heard_by(HUB);
        heard.retain(|heard| heard.topic == "/shared/");
        assert_eq!(heard[0].payload.from, None, "it does not go on (R20)");
        let news = heard.iter().flat_map(|heard| heard.changes());
        assert_eq!(sorted(news.collect()), CREATED, "{is_sent}");
    }
}

#[test]
fn a_set_of_the_baseline_that_waited_for_its_topic_is_known() {
    let mut world = World::new(plan());
    world.write(SET_A, advertise("/shared/", &[]));
    world.write(SET_B, advertise("/shared/", &[]));
    world.wait(10).start().wait(10);
    world.crash_and_start();
    world.write(SET_B, advertise("/own/", &[]));
    world.expect(10, ["u /b/capabilitylist.xml"]);
}

#[test]
fn a_replaced_hub_is_told_of_it_with_all_it_was_due_and_the_new_one_of_all_that_was_not_told() {
    for (is_down, is_restarted) in [(false, false), (true, false), (true, true)] {
        let mut world = World::with_two_sets(two_hubs());
        world.write(SET_A, set_a(&[HUB])).wait(100).news();
        world.news_at(OTHER_HUB);
        if is_down {
            world.script(HUB, Reply::Status(503));
        }
        world.update("/a/changelist.xml").wait(1);
        world.write(SET_A, set_a(&[OTHER_HUB]).version(1));
        if is_restarted {
            world.wait(1).crash_and_start();
        }
        world.wait(100);
        let due = ["u /a/capabilitylist.xml", "u /a/changelist.xml"];
        assert_eq!(sorted(world.news_at(OTHER_HUB)), due);
        world.script(HUB, Reply::Accept);
        world.expect_sorted(HUB, 1_000, due);
        // That was all.
        world.update("/a/changelist.xml");
        world.describe(&[SET_A]).wait(100);
        let topics: Vec<String> = world.news_by_topic().into_keys().collect();
        assert!(!topics.contains(&"/a/framework/".to_owned()), "{topics:?}");
        assert_eq!(world.news_at(OTHER_HUB).len(), 3);
        let hubs = world.fetch("/a/framework/").unwrap().hubs;
        assert_eq!(hubs, [Hub::new(OTHER_HUB)]);
    }
}

#[test]
fn a_hub_that_returns_while_it_is_told_its_last_changes_receives_everything() {
    let mut world = World::with_two_sets(two_hubs()).with_down(HUB);
    world.write(SET_A, set_a(&[OTHER_HUB])).wait(100);
    world.update("/a/changelist.xml").wait(10);
    world.write(SET_A, set_a(&[HUB, OTHER_HUB])).wait(10);
    world.script(HUB, Reply::Accept).wait(1_000);
    let news = sorted(world.news_at(HUB));
    assert!(news.contains(&"u /a/changelist.xml".to_owned()));
    world.update("/a/resourcelist.xml");
    world.expect_at(HUB, 100, ["u /a/resourcelist.xml"]);
}

#[test]
fn a_hub_that_follows_a_foreign_one_starts_from_what_the_channel_had_told() {
    let mut world = World::with_two_sets(two_hubs());
    world.write(SET_A, set_a(&[HUB])).wait(100).news();
    world.news_at(OTHER_HUB);
    world.write(SET_A, set_a(&[FOREIGN_HUB]));
    world.expect(100, ["u /a/capabilitylist.xml"]);
    world.update("/a/changelist.xml").expect_nothing(100);
    assert!(world.fetch("/a/framework/").is_some());
    world.write(SET_A, set_a(&[OTHER_HUB]));
    let due = ["u /a/capabilitylist.xml", "u /a/changelist.xml"];
    world.expect_sorted(OTHER_HUB, 100, due);
}

#[test]
fn a_source_that_is_published_elsewhere_keeps_its_topic_and_says_nothing_twice() {
    let mut world = World::new(plan());
    let topic = "https://example.org/framework/";
    for scheme in ["http", "https"] {
        world.crash();
        let name = |path: &str| format!("{scheme}://example.org{path}");
        world.plan.sources[0].mounts[0].prefix = uri(&name("/"));
        let set = list("capabilitylist").lists(&[&name("/a/changelist.xml")]);
        world.write(&name(SET_A), set.channel(topic, &[]));
        world.write(&name("/a/changelist.xml"), list("changelist"));
        let description = list("description").lists(&[&name(SET_A)]);
        world.write(&name("/.well-known/resourcesync"), description);
        world.wait(10).start().wait(100);
        assert_eq!(world.news(), NOTHING, "{scheme}");
        world.update(&name("/.well-known/resourcesync")).wait(10);
        let heard = world.heard_by(HUB);
        assert_eq!(heard.len(), 1, "{heard:?}");
    }
    let mut channels = world.channels();
    channels.dedup_by_key(|channel| channel.set.clone());
    assert_eq!(channels.len(), 1);
    let page = world.fetch(topic).unwrap();
    assert!(page.capability_list.as_str().starts_with("https://"));
}

#[test]
fn a_hub_that_replaces_one_other_takes_over_what_that_was_due_unless_told_not_to() {
    for (replaces, due, dropped) in [
        (
            ReplacedHub::Automatic,
            &["u /a/changelist.xml", "u /a/resourcelist.xml"][..],
            vec![],
        ),
        (
            ReplacedHub::Nothing,
            &NOTHING,
            vec![format!("{HUB} /a/framework/ 2")],
        ),
    ] {
        let mut world = World::with_two_sets(plan()).with_down(HUB);
        world.update("/a/changelist.xml").wait(10);
        world.update("/a/resourcelist.xml").wait(10);
        set_hubs(&mut world.plan, &[(OTHER_HUB, PublishMode::Content)]);
        world.plan.hubs[0].replaces = replaces;
        world.facts();
        world.reload();
        assert_eq!(world.dropped(DropCause::HubRemoved), dropped);
        world.expect_sorted(OTHER_HUB, 10, due.to_vec());
    }
}

/// R11, R13.
#[test]
fn a_hub_that_replaces_one_that_left_is_sent_what_that_was_due() {
    const CORRECTED: &str = "https://corrected.example.net/";
    let mut world = World::with_two_sets(two_hubs()).with_down(OTHER_HUB);
    world.update("/a/changelist.xml").wait(10);
    world.write(SET_A, set_a(&[HUB])).wait(10).crash();
    let hubs = [
        (HUB, PublishMode::Content),
        (CORRECTED, PublishMode::Content),
    ];
    set_hubs(&mut world.plan, &hubs);
    let due = ["u /a/changelist.xml", "u /a/capabilitylist.xml"];
    world.start().expect_at(CORRECTED, 3_600, due);
}

#[test]
fn a_hub_that_replaces_one_that_lists_still_advertise_is_told_once_they_are_corrected() {
    let mut world = World::with_two_sets(plan());
    world.write(SET_A, set_a(&[HUB])).wait(100).news();
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml").wait(10);
    set_hubs(&mut world.plan, &[(OTHER_HUB, PublishMode::Content)]);
    world.crash_and_start().wait(100);
    let is_foreign = |finding: &Finding| matches!(finding, Finding::ForeignHubs { .. });
    assert!(world.findings().iter().any(is_foreign));
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
    world.update("/a/resourcelist.xml").wait(10);
    world.crash_and_start().write(SET_A, set_a(&[OTHER_HUB]));
    let due = ["capabilitylist", "changelist", "resourcelist"];
    world.expect_sorted(OTHER_HUB, 100, due.map(|name| format!("u /a/{name}.xml")));
}

#[test]
fn a_hub_among_several_that_changed_starts_at_now_unless_it_replaces_one() {
    for (replaces, want) in [
        (ReplacedHub::Automatic, &NOTHING[..]),
        (ReplacedHub::Nothing, &NOTHING[..]),
        (ReplacedHub::Hub(Hub::new(HUB)), &["u /a/changelist.xml"]),
    ] {
        let mut world = World::with_two_sets(two_hubs()).with_down(HUB);
        world.update("/a/changelist.xml").wait(10);
        let (third, fourth) = ("https://third.example.net/", "https://fourth.example.net/");
        let hubs = [
            (third, PublishMode::Content),
            (fourth, PublishMode::Content),
        ];
        set_hubs(&mut world.plan, &hubs);
        world.plan.hubs[0].replaces = replaces;
        world.crash_and_start().expect_at(third, 100, want.to_vec());
        assert_eq!(world.news_at(fourth), NOTHING);
    }
}

/// A source of several mounts, each with a set by the same name and without a channel of its own.
fn world_of_mounts(prefixes: &[&str]) -> World {
    let mut plan = plan();
    plan.sources[0].mounts = mounts(prefixes);
    let mut world = World::new(plan);
    for prefix in prefixes {
        world.write(&of(prefix), list("capabilitylist"));
    }
    world.wait(10).start().wait(100);
    world
}

/// The Capability List of a mount.
fn of(prefix: &str) -> String {
    format!("{prefix}capabilitylist.xml")
}

fn mounts(prefixes: &[&str]) -> Vec<announce::plan::MountPlan> {
    let each = prefixes.iter();
    each.map(|prefix| mount(&format!("/srv/{}", prefix.replace('/', "-")), prefix))
        .collect()
}

fn topic_of(world: &World, set: &str) -> String {
    let mut channels = world.channels().into_iter();
    let channel = channels.find(|channel| !channel.is_retired && channel.set == set);
    channel.unwrap().topic
}

const MOUNTS: [&str; 3] = [
    "https://one.example.org/sets/",
    "https://two.example.org/sets/",
    "http://two.example.org/sets/",
];

#[test]
fn default_topics_of_several_mounts_differ_and_stay() {
    let mut world = world_of_mounts(&MOUNTS[..2]);
    let first = topic_of(&world, &of(MOUNTS[0]));
    let second = topic_of(&world, &of(MOUNTS[1]));
    assert_ne!(first, second);
    for order in [&MOUNTS[..2], &[MOUNTS[1], MOUNTS[0]], &MOUNTS] {
        world.plan.sources[0].mounts = mounts(order);
        world.write(&of(MOUNTS[2]), list("capabilitylist"));
        world.crash_and_start().wait(100);
        assert_eq!(topic_of(&world, &of(MOUNTS[0])), first);
        assert_eq!(topic_of(&world, &of(MOUNTS[1])), second);
    }
    let third = topic_of(&world, &of(MOUNTS[2]));
    assert!(third != first && third != second, "{third}");
    // Without anything to remember them by, they are the same.
    let mut order = MOUNTS;
    order.reverse();
    let fresh = world_of_mounts(&order);
    assert_eq!(topic_of(&fresh, &of(MOUNTS[0])), first);
    assert_eq!(topic_of(&fresh, &of(MOUNTS[1])), second);
    assert_eq!(topic_of(&fresh, &of(MOUNTS[2])), third);
}

#[test]
fn the_default_topic_of_an_only_mount_stays_as_it_is_when_another_is_added() {
    let mut world = world_of_mounts(&MOUNTS[1..2]);
    let topic = "https://example.org/topics/main/capabilitylist/";
    assert_eq!(topic_of(&world, &of(MOUNTS[1])), topic);
    world.plan.sources[0].mounts = mounts(&MOUNTS[..2]);
    world.write(&of(MOUNTS[0]), list("capabilitylist"));
    world.crash_and_start().wait(100);
    assert_eq!(topic_of(&world, &of(MOUNTS[1])), topic);
    let other = topic_of(&world, &of(MOUNTS[0]));
    assert_ne!(other, topic);
    world.plan.sources[0].mounts = mounts(&MOUNTS[..1]);
    world.crash_and_start().wait(100);
    assert_eq!(topic_of(&world, &of(MOUNTS[0])), other);
    // A set that comes back has the topic that it had.
    world.plan.sources[0].mounts = mounts(&MOUNTS[..2]);
    world.crash_and_start().delete(&of(MOUNTS[1])).wait(1_000);
    world.write(&of(MOUNTS[1]), list("capabilitylist")).wait(10);
    assert_eq!(topic_of(&world, &of(MOUNTS[0])), other);
}

#[test]
fn what_a_set_is_due_is_not_lost_with_its_list_s_hubs() {
    let mut world = World::with_two_sets(two_hubs());
    world.update("/a/changelist.xml");
    let set = capability_list("/a", &["resourcelist", "changelist"]).version(1);
    world.write(SET_A, set.channel("/ignored/", &[])).wait(100);
    assert_eq!(world.news().len(), 2);
    assert_eq!(world.news_at(OTHER_HUB).len(), 2);
}

/// The Capability List of `/a` or `/b`, on another topic.
pub fn moved(set: &str, topic: &str) -> Doc {
    let names = ["resourcelist", "changelist"].map(|name| format!("{set}/{name}.xml"));
    list("capabilitylist")
        .version(1)
        .up("/.well-known/resourcesync")
        .lists(&[&names[0], &names[1]])
        .channel(topic, &[])
}

#[test]
fn a_document_that_leaves_a_set_whose_topic_returned_is_not_due() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/b/resourcelist.xml").wait(100);
    world.update("/b/changelist.xml").wait(100);
    for topic in ["/other/", "/b/framework/"] {
        world.write(SET_B, moved("/b", topic)).wait(100);
    }
    let fewer = list("capabilitylist")
        .lists(&["/b/resourcelist.xml"])
        .channel("/b/framework/", &[]);
    world.write(SET_B, fewer);
    world.write("/b/changelist.xml", list("changelist").version(5).of("/a"));
    world.wait(100).script(HUB, Reply::Accept).wait(10_000);
    let news = &world.news_by_topic()["/b/framework/"];
    assert_eq!(news, &["u /b/resourcelist.xml", "u /b/capabilitylist.xml"]);
}

#[test]
fn a_document_that_leaves_a_set_before_a_hub_returns_is_not_pending_for_ever() {
    let mut world = World::with_two_sets(two_hubs());
    world.write(SET_A, set_a(&[HUB])).wait(100);
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml").wait(100);
    world.write_list("/a/new.xml", "resourcelist").wait(1_000);
    world.write(SET_A, set_a(&[OTHER_HUB])).wait(100);
    world.write("/a/new.xml", list("resourcelist").of("/b"));
    world.wait(100).write(SET_A, set_a(&[HUB])).wait(100);
    world.script(HUB, Reply::Accept).wait(10_000);
    assert_eq!(world.due("/a", HUB), 0);
}

#[test]
fn a_document_that_is_missing_while_its_topic_moves_is_told_deleted_on_the_new_one() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(all_deletions());
        world.delete("/a/changelist.xml").wait(10);
        world.write(SET_A, moved("/a", "/new/")).wait(10);
        if is_restarted {
            world.crash_and_start();
        }
        world.wait(1_000);
        let moved = "u /a/capabilitylist.xml";
        let deleted = "d /a/changelist.xml";
        let mut news = world.news_by_topic();
        assert_eq!(news.remove("/a/framework/").unwrap(), [moved]);
        assert_eq!(news.remove("/new/").unwrap(), [moved, deleted]);
    }
}
