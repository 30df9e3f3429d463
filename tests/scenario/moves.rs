//! Sets, topics and hubs that move: no due change is lost, and none is announced twice (R11, R13).

use jiff::SignedDuration;
use resourcesync::uri::Uri;
use rsnotify::announce::event::{DropCause, Fact};
use rsnotify::announce::finding::Finding;
use rstest::rstest;

use crate::channels::configured;
use crate::world::{
    Doc, HUB, OTHER_HUB, Reply, World, capability_list, list, mount, plan, set_hubs, two_hubs,
};
use rsnotify::announce::plan::{Mode, Plan};

const NOTHING: [&str; 0] = [];
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
        let up = format!("{to}/capabilitylist.xml");
        let name = format!("{to}/{capability}.xml");
        world.write(&name, list(capability).up(&up));
    }
    world.delete(&format!("{from}/capabilitylist.xml"));
    world.write(
        &format!("{to}/capabilitylist.xml"),
        list("capabilitylist")
            .up("/.well-known/resourcesync")
            .lists(&[
                &format!("{to}/resourcelist.xml"),
                &format!("{to}/changelist.xml"),
            ])
            .channel(&format!("{from}/framework/"), &[]),
    );
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
        world.wait(10);
        assert_eq!(world.news(), NOTHING);
        if is_restarted {
            world.crash_and_start();
        }
        world.update("/n/changelist.xml");
        world.wait(1_000);
        let news = world.news_by_topic();
        assert_eq!(
            sorted(news["/a/framework/"].clone()),
            [
                "created capabilitylist /n/capabilitylist.xml",
                "created changelist /n/changelist.xml",
                "created resourcelist /n/resourcelist.xml",
            ]
        );
        world.update("/n/changelist.xml");
        world.wait(10);
        assert_eq!(world.news(), ["updated changelist /n/changelist.xml"]);
    }
}

/// A world in which `/n` came later and has no channel, for as long as `plan` stands.
fn world_without_a_channel(plan: Plan, list: Doc) -> World {
    let mut world = World::with_two_sets(plan);
    world.write(
        "/n/changelist.xml",
        crate::world::list("changelist").up("/n/capabilitylist.xml"),
    );
    world.write("/n/capabilitylist.xml", list);
    world.wait(100);
    world.update("/n/changelist.xml");
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world
}

const CREATED: [&str; 2] = [
    "created capabilitylist /n/capabilitylist.xml",
    "created changelist /n/changelist.xml",
];

fn set_n(topic: &str, hubs: &[&str]) -> Doc {
    list("capabilitylist")
        .lists(&["/n/changelist.xml"])
        .channel(topic, hubs)
}

#[test]
fn a_set_that_advertised_only_foreign_hubs_is_created_for_the_first_of_ours() {
    let lacking = set_n("/n/framework/", &[FOREIGN_HUB]);
    for is_restarted in [false, true] {
        let mut world = world_without_a_channel(plan(), lacking.clone());
        if is_restarted {
            world.crash_and_start();
            world.wait(10);
        }
        world.write("/n/capabilitylist.xml", set_n("/n/framework/", &[HUB]));
        world.wait(100);
        assert_eq!(sorted(world.news()), CREATED);
    }
}

#[test]
fn a_set_whose_topic_was_not_ours_is_created_once_it_is() {
    let lacking = set_n("https://elsewhere.example.com/", &[]);
    let mut world = world_without_a_channel(plan(), lacking);
    world.write("/n/capabilitylist.xml", set_n("/n/framework/", &[]));
    world.wait(100);
    assert_eq!(sorted(world.news()), CREATED);
}

#[test]
fn a_set_that_advertised_nothing_is_created_once_it_does() {
    let mut plan = plan();
    plan.sources[0].unadvertised_channels = false;
    let lacking = list("capabilitylist").lists(&["/n/changelist.xml"]);
    for is_restarted in [false, true] {
        let mut world = world_without_a_channel(plan.clone(), lacking.clone());
        if is_restarted {
            world.crash_and_start();
            world.wait(10);
        }
        world.write("/n/capabilitylist.xml", set_n("/n/framework/", &[]));
        world.wait(100);
        assert_eq!(sorted(world.news()), CREATED);
    }
}

#[test]
fn a_set_whose_topic_was_configured_for_another_is_created_once_it_is_free() {
    let mut plan = plan();
    plan.channels.push(configured(
        "https://example.org/b/capabilitylist.xml",
        "https://example.org/shared/",
    ));
    let mut world = world_without_a_channel(plan, set_n("/shared/", &[]));
    world.write("/n/capabilitylist.xml", set_n("/n/framework/", &[]));
    world.wait(100);
    assert_eq!(sorted(world.news()), CREATED);
}

/// The sources settle in their order: one may leave a topic before or after the other has looked for it.
#[rstest]
fn a_set_whose_topic_another_source_had_is_created_once_it_is_free(
    #[values(false, true)] is_down_meanwhile: bool,
    #[values(0, 1)] position: usize,
) {
    let mut plan = plan();
    let mut other = plan.sources[0].clone();
    other.name = "other".to_owned();
    other.mounts = vec![mount("/srv/other", OTHER_SITE)];
    plan.sources.insert(position, other);
    let mut world = World::new(plan);
    world.write_set("/a", &["changelist"]);
    world.write(
        "https://other.example.org/capabilitylist.xml",
        list("capabilitylist").channel("/shared/", &[]),
    );
    world.wait(10);
    world.start();
    world.wait(10);
    world.write(
        "/n/changelist.xml",
        list("changelist").up("/n/capabilitylist.xml"),
    );
    world.write("/n/capabilitylist.xml", set_n("/shared/", &[]));
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    if is_down_meanwhile {
        world.crash();
    }
    world.write(
        "https://other.example.org/capabilitylist.xml",
        list("capabilitylist").channel("/own/", &[]),
    );
    if is_down_meanwhile {
        world.start();
    }
    world.wait(100);
    let news = world.news_by_topic();
    let created = news["/shared/"]
        .iter()
        .filter(|change| change.contains("/n/"));
    assert_eq!(sorted(created.cloned().collect()), CREATED);
}

const OTHER_SITE: &str = "https://other.example.org/";

#[test]
fn changes_of_another_source_are_dropped_with_its_topic() {
    let name = |name: &str| format!("{OTHER_SITE}{name}.xml");
    for is_sent in [false, true] {
        let mut plan = plan();
        let mut other = plan.sources[0].clone();
        other.name = "other".to_owned();
        other.mounts = vec![mount("/srv/other", OTHER_SITE)];
        plan.sources.push(other);
        let mut world = World::new(plan);
        world.write_set("/a", &["changelist"]);
        let changes = list("changelist").up(&name("cl"));
        world.write(&name("changes"), changes.clone());
        let of_other = list("capabilitylist").lists(&[&name("changes")]);
        world.write(&name("cl"), of_other.channel("/shared/", &[]));
        world.wait(10);
        world.start();
        world.wait(100);
        world.script(HUB, Reply::Status(503));
        if !is_sent {
            world.write(&name("changes"), changes.version(1));
            world.wait(100);
        }
        world.delete(&name("cl"));
        world.wait(1_000);
        assert!(world.remembers(&name("cl")));
        world.facts();
        world.write(
            "/n/changelist.xml",
            list("changelist").up("/n/capabilitylist.xml"),
        );
        world.write("/n/capabilitylist.xml", set_n("/shared/", &[]));
        world.wait(100);
        let dropped = world.facts().into_iter().filter_map(|fact| match fact {
            Fact::Dropped {
                changes,
                cause: DropCause::ChannelRemoved,
                ..
            } => Some(changes),
            _ => None,
        });
        let dropped: Vec<usize> = dropped.collect();
        assert_eq!(dropped, [if is_sent { 1 } else { 2 }]);
        assert!(!world.remembers(&name("cl")), "{is_sent}");
        world.script(HUB, Reply::Accept);
        world.wait(10_000);
        let news = world.news_by_topic().remove("/shared/").unwrap();
        assert_eq!(sorted(news), CREATED, "{is_sent}");
    }
}

#[test]
fn a_set_of_the_baseline_that_waited_for_its_topic_is_known() {
    let mut world = World::new(plan());
    for set in ["/a", "/b"] {
        world.write(
            &format!("{set}/capabilitylist.xml"),
            list("capabilitylist").channel("/shared/", &[]),
        );
    }
    world.wait(10);
    world.start();
    world.wait(10);
    world.crash_and_start();
    world.write(
        "/b/capabilitylist.xml",
        list("capabilitylist").channel("/own/", &[]),
    );
    world.wait(10);
    assert_eq!(
        world.news(),
        ["updated capabilitylist /b/capabilitylist.xml"]
    );
}

#[test]
fn a_replaced_hub_is_told_of_it_with_all_it_was_due_and_the_new_one_of_all_that_was_not_told() {
    for (is_down, is_restarted) in [(false, false), (true, false), (true, true)] {
        let mut world = World::with_two_sets(two_hubs());
        world.write("/a/capabilitylist.xml", set_a(&[HUB]));
        world.wait(100);
        world.news();
        world.news_at(OTHER_HUB);
        if is_down {
            world.script(HUB, Reply::Status(503));
        }
        world.update("/a/changelist.xml");
        world.wait(1);
        world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]).version(1));
        if is_restarted {
            world.wait(1);
            world.crash_and_start();
        }
        world.wait(100);
        let due = [
            "updated capabilitylist /a/capabilitylist.xml",
            "updated changelist /a/changelist.xml",
        ];
        assert_eq!(sorted(world.news_at(OTHER_HUB)), due);
        world.script(HUB, Reply::Accept);
        world.wait(1_000);
        assert_eq!(sorted(world.news_at(HUB)), due);
        // That was all.
        world.update("/a/changelist.xml");
        world.write(
            "/.well-known/resourcesync",
            list("description").lists(&["/a/capabilitylist.xml"]),
        );
        world.wait(100);
        let heard = world.heard_by(HUB);
        assert!(
            heard.iter().all(|heard| heard.topic != "/a/framework/"),
            "{heard:?}"
        );
        assert_eq!(world.news_at(OTHER_HUB).len(), 3);
        let hubs = world.fetch("/a/framework/").unwrap().hubs;
        let hubs: Vec<&str> = hubs.iter().map(|hub| hub.as_str()).collect();
        assert_eq!(hubs, [OTHER_HUB]);
    }
}

#[test]
fn a_hub_that_returns_while_it_is_told_its_last_changes_receives_everything() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(HUB, Reply::Status(503));
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    world.update("/a/changelist.xml");
    world.wait(10);
    world.write("/a/capabilitylist.xml", set_a(&[HUB, OTHER_HUB]));
    world.wait(10);
    world.script(HUB, Reply::Accept);
    world.wait(1_000);
    let news = sorted(world.news_at(HUB));
    assert!(news.contains(&"updated changelist /a/changelist.xml".to_owned()));
    world.update("/a/resourcelist.xml");
    world.wait(100);
    assert_eq!(
        world.news_at(HUB),
        ["updated resourcelist /a/resourcelist.xml"]
    );
}

#[test]
fn a_hub_that_follows_a_foreign_one_starts_from_what_the_channel_had_told() {
    let mut world = World::with_two_sets(two_hubs());
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.news();
    world.news_at(OTHER_HUB);
    world.write("/a/capabilitylist.xml", set_a(&[FOREIGN_HUB]));
    world.wait(100);
    assert_eq!(
        world.news(),
        ["updated capabilitylist /a/capabilitylist.xml"]
    );
    world.update("/a/changelist.xml");
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    assert_eq!(
        sorted(world.news_at(OTHER_HUB)),
        [
            "updated capabilitylist /a/capabilitylist.xml",
            "updated changelist /a/changelist.xml",
        ]
    );
}

#[test]
fn a_retired_channel_whose_topic_another_set_has_announces_nothing() {
    let mut world = World::with_two_sets(plan());
    write_renamed(&mut world, "/a", "/n");
    world.wait(1_000);
    world.heard_by(HUB);
    for is_restarted in [false, true] {
        if is_restarted {
            world.crash_and_start();
        }
        world.update("/.well-known/resourcesync");
        world.wait(10);
        let heard = world.heard_by(HUB);
        let of_set = heard.iter().filter(|heard| heard.topic == "/a/framework/");
        assert_eq!(of_set.count(), 1);
        let page = world.fetch("/a/framework/").unwrap();
        assert_eq!(
            page.capability_list,
            Uri::parse("https://example.org/n/capabilitylist.xml").unwrap()
        );
    }
}

#[test]
fn a_source_that_is_published_elsewhere_keeps_its_topic_and_says_nothing_twice() {
    let mut world = World::new({
        let mut plan = plan();
        plan.sources[0].mounts = vec![mount("/srv/www", "http://example.org/")];
        plan.public_url = Uri::parse("https://example.org/").unwrap();
        plan
    });
    let topic = "https://example.org/framework/";
    for scheme in ["http", "https"] {
        world.crash();
        let name = |path: &str| format!("{scheme}://example.org{path}");
        world.plan.sources[0].mounts[0].prefix = Uri::parse(&name("/")).unwrap();
        world.write(
            &name("/a/capabilitylist.xml"),
            list("capabilitylist")
                .lists(&[&name("/a/changelist.xml")])
                .channel(topic, &[]),
        );
        world.write(&name("/a/changelist.xml"), list("changelist"));
        world.write(
            &name("/.well-known/resourcesync"),
            list("description").lists(&[&name("/a/capabilitylist.xml")]),
        );
        world.wait(10);
        world.start();
        world.wait(100);
        assert_eq!(world.news(), NOTHING, "{scheme}");
        world.update(&name("/.well-known/resourcesync"));
        world.wait(10);
        let heard = world.heard_by(HUB);
        assert_eq!(heard.len(), 1, "{heard:?}");
    }
    let channels = world.channels();
    let sets: std::collections::BTreeSet<&String> =
        channels.iter().map(|channel| &channel.set).collect();
    assert_eq!(sets.len(), 1);
    let page = world.fetch(topic).unwrap();
    assert!(page.capability_list.as_str().starts_with("https://"));
}

#[test]
fn a_hub_that_replaces_one_other_takes_over_what_that_was_due() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(10);
    world.update("/a/resourcelist.xml");
    world.wait(10);
    set_hubs(&mut world.plan, &[(OTHER_HUB, Mode::Content)]);
    world.reload();
    world.wait(10);
    assert_eq!(
        sorted(world.news_at(OTHER_HUB)),
        [
            "updated changelist /a/changelist.xml",
            "updated resourcelist /a/resourcelist.xml",
        ]
    );
}

/// R11, R13.
#[test]
fn a_hub_that_replaces_one_that_left_is_sent_what_that_was_due() {
    const CORRECTED: &str = "https://corrected.example.net/";
    let mut world = World::with_two_sets(two_hubs());
    world.script(OTHER_HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(10);
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(10);
    world.crash();
    let hubs = [(HUB, Mode::Content), (CORRECTED, Mode::Content)];
    set_hubs(&mut world.plan, &hubs);
    world.start();
    world.wait(3_600);
    assert_eq!(
        world.news_at(CORRECTED),
        [
            "updated changelist /a/changelist.xml",
            "updated capabilitylist /a/capabilitylist.xml"
        ]
    );
}

#[test]
fn a_hub_that_replaces_one_that_lists_still_advertise_is_told_once_they_are_corrected() {
    let mut world = World::with_two_sets(plan());
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.news();
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(10);
    set_hubs(&mut world.plan, &[(OTHER_HUB, Mode::Content)]);
    world.crash_and_start();
    world.wait(100);
    let findings = world.findings();
    assert!(
        findings
            .iter()
            .any(|finding| matches!(finding, Finding::ForeignHubs { .. }))
    );
    assert_eq!(world.news_at(OTHER_HUB), NOTHING);
    world.update("/a/resourcelist.xml");
    world.wait(10);
    world.crash_and_start();
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    assert_eq!(
        sorted(world.news_at(OTHER_HUB)),
        [
            "updated capabilitylist /a/capabilitylist.xml",
            "updated changelist /a/changelist.xml",
            "updated resourcelist /a/resourcelist.xml",
        ]
    );
}

#[test]
fn a_hub_among_several_that_changed_starts_at_now() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(10);
    let (third, fourth) = ("https://third.example.net/", "https://fourth.example.net/");
    set_hubs(
        &mut world.plan,
        &[(third, Mode::Content), (fourth, Mode::Content)],
    );
    world.crash_and_start();
    world.wait(100);
    assert_eq!(world.news_at(third), NOTHING);
    assert_eq!(world.news_at(fourth), NOTHING);
}

/// A source of several mounts, each with a set by the same name and without a channel of its own.
fn world_of_mounts(prefixes: &[&str]) -> World {
    let mut plan = plan();
    plan.sources[0].mounts = mounts(prefixes);
    let mut world = World::new(plan);
    for prefix in prefixes {
        world.write(
            &format!("{prefix}capabilitylist.xml"),
            list("capabilitylist"),
        );
    }
    world.wait(10);
    world.start();
    world.wait(100);
    world
}

fn mounts(prefixes: &[&str]) -> Vec<rsnotify::announce::plan::MountPlan> {
    let each = prefixes.iter();
    each.map(|prefix| mount(&format!("/srv/{}", prefix.replace('/', "-")), prefix))
        .collect()
}

fn topic_of(world: &World, set: &str) -> String {
    let mut live = world
        .channels()
        .into_iter()
        .filter(|channel| !channel.is_retired);
    let topic = live
        .find(|channel| channel.set == set)
        .map(|channel| channel.topic);
    topic.unwrap_or_else(|| panic!("{set} has no channel"))
}

const MOUNTS: [&str; 3] = [
    "https://one.example.org/sets/",
    "https://two.example.org/sets/",
    "http://two.example.org/sets/",
];

#[test]
fn default_topics_of_several_mounts_differ_and_stay() {
    let mut world = world_of_mounts(&MOUNTS[..2]);
    let list = |prefix: &str| format!("{prefix}capabilitylist.xml");
    let first = topic_of(&world, &list(MOUNTS[0]));
    let second = topic_of(&world, &list(MOUNTS[1]));
    assert_ne!(first, second);
    for order in [&MOUNTS[..2], &[MOUNTS[1], MOUNTS[0]], &MOUNTS] {
        world.plan.sources[0].mounts = mounts(order);
        world.write(&list(MOUNTS[2]), crate::world::list("capabilitylist"));
        world.crash_and_start();
        world.wait(100);
        assert_eq!(topic_of(&world, &list(MOUNTS[0])), first);
        assert_eq!(topic_of(&world, &list(MOUNTS[1])), second);
    }
    let third = topic_of(&world, &list(MOUNTS[2]));
    assert!(third != first && third != second, "{third}");
    // Without anything to remember them by, they are the same.
    let mut order = MOUNTS;
    order.reverse();
    let fresh = world_of_mounts(&order);
    assert_eq!(topic_of(&fresh, &list(MOUNTS[0])), first);
    assert_eq!(topic_of(&fresh, &list(MOUNTS[1])), second);
    assert_eq!(topic_of(&fresh, &list(MOUNTS[2])), third);
}

#[test]
fn the_default_topic_of_an_only_mount_stays_as_it_is_when_another_is_added() {
    let list = |prefix: &str| format!("{prefix}capabilitylist.xml");
    let mut world = world_of_mounts(&MOUNTS[1..2]);
    let topic = "https://example.org/topics/main/capabilitylist/";
    assert_eq!(topic_of(&world, &list(MOUNTS[1])), topic);
    world.plan.sources[0].mounts = mounts(&MOUNTS[..2]);
    world.write(&list(MOUNTS[0]), crate::world::list("capabilitylist"));
    world.crash_and_start();
    world.wait(100);
    assert_eq!(topic_of(&world, &list(MOUNTS[1])), topic);
    let other = topic_of(&world, &list(MOUNTS[0]));
    assert_ne!(other, topic);
    world.plan.sources[0].mounts = mounts(&MOUNTS[..1]);
    world.crash_and_start();
    world.wait(100);
    assert_eq!(topic_of(&world, &list(MOUNTS[0])), other);
    // A set that comes back has the topic that it had.
    world.plan.sources[0].mounts = mounts(&MOUNTS[..2]);
    world.crash_and_start();
    world.delete(&list(MOUNTS[1]));
    world.wait(1_000);
    world.write(&list(MOUNTS[1]), crate::world::list("capabilitylist"));
    world.wait(10);
    assert_eq!(topic_of(&world, &list(MOUNTS[0])), other);
}

#[test]
fn what_a_set_is_due_is_not_lost_with_its_list_s_hubs() {
    let mut world = World::with_two_sets(two_hubs());
    world.update("/a/changelist.xml");
    world.write(
        "/a/capabilitylist.xml",
        capability_list("/a", &["resourcelist", "changelist"])
            .version(1)
            .channel("/ignored/", &[]),
    );
    world.wait(100);
    assert_eq!(world.news().len(), 2);
    assert_eq!(world.news_at(OTHER_HUB).len(), 2);
}

#[test]
fn a_hub_that_left_keeps_what_it_is_due_while_the_clock_is_wrong() {
    let month = SignedDuration::from_hours(31 * 24);
    let mut world = World::with_two_sets(two_hubs());
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.news();
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(10);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]).version(1));
    world.wait(100);
    world.set_clock(month);
    world.wait(600);
    world.set_clock(-month);
    world.wait(10_000);
    world.script(HUB, Reply::Accept);
    world.wait(1_000);
    assert_eq!(
        sorted(world.news()),
        [
            "updated capabilitylist /a/capabilitylist.xml",
            "updated changelist /a/changelist.xml",
        ]
    );
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
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(503));
    world.update("/b/resourcelist.xml");
    world.wait(100);
    world.update("/b/changelist.xml");
    world.wait(100);
    for topic in ["/other/", "/b/framework/"] {
        world.write("/b/capabilitylist.xml", moved("/b", topic));
        world.wait(100);
    }
    let fewer = list("capabilitylist")
        .lists(&["/b/resourcelist.xml"])
        .channel("/b/framework/", &[]);
    world.write("/b/capabilitylist.xml", fewer);
    world.write(
        "/b/changelist.xml",
        list("changelist").version(5).up("/a/capabilitylist.xml"),
    );
    world.wait(100);
    world.script(HUB, Reply::Accept);
    world.wait(10_000);
    let news = world.news_by_topic();
    assert_eq!(
        news["/b/framework/"],
        [
            "updated resourcelist /b/resourcelist.xml",
            "updated capabilitylist /b/capabilitylist.xml",
        ]
    );
}

#[test]
fn a_document_that_leaves_a_set_before_a_hub_returns_is_not_pending_for_ever() {
    let mut world = World::with_two_sets(two_hubs());
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(100);
    world.write(
        "/a/new.xml",
        list("resourcelist").up("/a/capabilitylist.xml"),
    );
    world.wait(1_000);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    world.write(
        "/a/new.xml",
        list("resourcelist").up("/b/capabilitylist.xml"),
    );
    world.wait(100);
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.script(HUB, Reply::Accept);
    world.wait(10_000);
    assert_eq!(world.due("/a", HUB), 0);
}

#[test]
fn a_channel_that_retires_again_is_kept_while_the_clock_is_wrong() {
    let month = SignedDuration::from_hours(31 * 24);
    let day = 86_400;
    let mut world = World::with_two_sets(plan());
    let move_to = |world: &mut World, topic: &str, days: u64| {
        world.write("/a/capabilitylist.xml", moved("/a", topic));
        world.wait(days * day);
    };
    move_to(&mut world, "/new/", 1);
    move_to(&mut world, "/a/framework/", 28);
    move_to(&mut world, "/new/", 6);
    world.set_clock(month);
    world.wait(60);
    world.set_clock(-month);
    world.wait(60);
    assert!(
        world
            .topics()
            .iter()
            .any(|topic| topic.ends_with("/a/framework/"))
    );
}

#[test]
fn a_hub_that_left_again_keeps_what_it_is_due_while_the_clock_is_wrong() {
    let month = SignedDuration::from_hours(31 * 24);
    let day = 86_400;
    let mut world = World::with_two_sets(two_hubs());
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.news();
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml");
    world.wait(10);
    for (hub, days) in [(OTHER_HUB, 1), (HUB, 28), (OTHER_HUB, 6)] {
        world.write("/a/capabilitylist.xml", set_a(&[hub]));
        world.wait(days * day);
    }
    world.set_clock(month);
    world.wait(60);
    world.set_clock(-month);
    world.script(HUB, Reply::Accept);
    world.wait(10_000);
    let told = world.news();
    assert!(
        told.contains(&"updated changelist /a/changelist.xml".to_owned()),
        "{told:?}"
    );
}

#[test]
fn a_document_that_is_missing_while_its_topic_moves_is_told_deleted_on_the_new_one() {
    for is_restarted in [false, true] {
        let mut plan = plan();
        plan.sources[0].announce_all_deletions = true;
        let mut world = World::with_two_sets(plan);
        world.delete("/a/changelist.xml");
        world.wait(10);
        world.write("/a/capabilitylist.xml", moved("/a", "/new/"));
        world.wait(10);
        if is_restarted {
            world.crash_and_start();
        }
        world.wait(1_000);
        let moved = "updated capabilitylist /a/capabilitylist.xml";
        let deleted = "deleted changelist /a/changelist.xml";
        let mut news = world.news_by_topic();
        assert_eq!(news.remove("/a/framework/").unwrap(), [moved]);
        assert_eq!(news.remove("/new/").unwrap(), [moved, deleted]);
    }
}
