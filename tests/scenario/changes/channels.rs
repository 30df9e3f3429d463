//! Change channels that come, move and go (C9, C10, C12).

use resourcesync::channel_kind::ChannelKind;
use resourcesync::uri::Topic;
use rsnotify::announce::event::{DropCause, Fact};
use rsnotify::announce::plan::ChannelPlan;
use rstest::rstest;

use crate::changes::{LIST, NOTHING, SECOND, TOPIC, UP, set_a, uri, world_of};
use crate::world::{HUB, Reply, World, capability_list, index, list, plan};

const SET_B: &str = "/b/capabilitylist.xml";

/// The notifications that the first hub heard, with their topics.
fn by_topic(world: &mut World) -> Vec<String> {
    let heard = world.changes_heard_by(HUB).into_iter();
    heard
        .map(|heard| format!("{} {heard}", heard.topic))
        .collect()
}

#[test]
fn a_topic_that_moves_goes_on_where_the_old_one_ended() {
    let mut world = world_of(plan());
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(1);
    world.write(UP, set_a("/a/moved/", &[]));
    world.wait(1);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
    world.wait(1);
    assert_eq!(
        by_topic(&mut world),
        [
            "/a/change/ [00:00, 01:00] u a 01:00",
            "/a/moved/ [01:00, 02:00] u b 02:00"
        ]
    );
}

#[test]
fn what_is_fresh_when_a_topic_moves_is_told_on_the_old_one() {
    for is_list_first in [true, false] {
        let mut world = world_of(plan());
        let write = |world: &mut World| world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
        if is_list_first {
            write(&mut world);
        }
        world.unseen(|world| {
            world.write(UP, set_a("/a/moved/", &[]));
            if !is_list_first {
                write(world);
            }
        });
        world.see_all(&[LIST.to_owned(), UP.to_owned()]);
        world.wait(1);
        world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
        world.wait(1);
        assert_eq!(
            by_topic(&mut world),
            [
                "/a/change/ [00:00, 01:00] u a 01:00",
                "/a/moved/ [01:00, 02:00] u b 02:00"
            ]
        );
    }
}

#[test]
fn a_topic_that_moves_and_moves_back_goes_on() {
    let mut world = world_of(plan());
    let mut entries = vec!["u z 00:00".to_owned()];
    for (number, topic) in [TOPIC, "/a/moved/", TOPIC].into_iter().enumerate() {
        world.write(UP, set_a(topic, &[]));
        world.wait(1);
        entries.push(format!("u r{number} 0{}:00", number + 1));
        world.write_changes(LIST, &entries);
        world.wait(1);
    }
    assert_eq!(
        by_topic(&mut world),
        [
            "/a/change/ [00:00, 01:00] u r0 01:00",
            "/a/moved/ [01:00, 02:00] u r1 02:00",
            "/a/change/ [02:00, 03:00] u r2 03:00"
        ]
    );
}

#[test]
fn a_removed_advertisement_is_followed_by_the_last_changes() {
    let mut world = world_of(plan());
    world.script(HUB, Reply::Status(503));
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(1);
    // It waits for the hub (C20).
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
    world.wait(1);
    world.write(UP, capability_list("/a", &["changelist"]));
    world.wait(1);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00", "u c 03:00"]);
    world.script(HUB, Reply::Accept);
    world.wait(60);
    assert_eq!(
        world.changes(),
        ["[00:00, 01:00] u a 01:00", "[01:00, 02:00] u b 02:00"]
    );
    // It revives with its memory: what was published meanwhile is fresh.
    world.write(UP, set_a(TOPIC, &[]));
    world.wait(10);
    assert_eq!(world.changes(), ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn a_deleted_capability_list_is_followed_by_its_last_changes() {
    let mut world = world_of(plan());
    world.write(SET_B, capability_list("/b", &[]));
    world.wait(10);
    world.delete(UP);
    world.wait(290);
    world.script(HUB, Reply::Status(503));
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(1);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
    world.wait(100);
    world.script(HUB, Reply::Accept);
    world.wait(60);
    assert_eq!(
        world.changes(),
        ["[00:00, 01:00] u a 01:00", "[01:00, 02:00] u b 02:00"]
    );
    world.write(UP, set_a(TOPIC, &[]));
    world.wait(10);
    assert_eq!(world.changes(), NOTHING);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00", "u c 03:00"]);
    world.wait(10);
    assert_eq!(world.changes(), ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn a_set_under_another_name_takes_its_topic_over() {
    let mut world = world_of(plan());
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(1);
    world.write_changes("/n/changelist.xml", &["u z 00:00", "u a 01:00"]);
    world.write(
        "/n/capabilitylist.xml",
        capability_list("/n", &["changelist"]).change_channel(TOPIC, &[]),
    );
    world.delete(UP);
    world.delete(LIST);
    world.accept_deletions();
    world.wait(1_000);
    assert_eq!(
        by_topic(&mut world),
        ["/a/change/ [00:00, 01:00] u a 01:00"]
    );
    world.write_changes(
        "/n/changelist.xml",
        &["u z 00:00", "u a 01:00", "u b 02:00"],
    );
    world.wait(10);
    assert_eq!(
        by_topic(&mut world),
        ["/a/change/ [01:00, 02:00] u b 02:00"]
    );
    world.crash_and_start();
    world.wait(10);
    assert_eq!(world.change_sets(), 1);
}

/// Writes the set `/b`, with a change channel and a list of its own.
fn write_b(world: &mut World, topic: &str, entries: &[&str]) {
    world.write_changes("/b/changelist.xml", entries);
    let list = capability_list("/b", &["changelist"]).change_channel(topic, &[]);
    world.write(SET_B, list);
}

#[test]
fn what_is_fresh_when_another_set_takes_the_topic_is_told_on_the_new_one() {
    let mut world = world_of(plan());
    write_b(&mut world, "/b/change/", &["u b 00:00"]);
    world.wait(10);
    world.unseen(|world| {
        world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
        world.write(UP, set_a("/a/moved/", &[]));
        write_b(world, TOPIC, &["u b 00:00"]);
    });
    world.see_all(&[LIST, UP, SET_B].map(str::to_owned));
    world.wait(10);
    assert_eq!(by_topic(&mut world), ["/a/moved/ [00:00, 01:00] u a 01:00"]);
    world.write_changes("/b/changelist.xml", &["u b 00:00", "u c 02:00"]);
    world.wait(10);
    assert_eq!(
        by_topic(&mut world),
        ["/a/change/ [00:00, 02:00] u c 02:00"]
    );
}

#[test]
fn what_hubs_are_due_when_another_set_takes_the_topic_is_dropped() {
    let mut world = world_of(plan());
    world.script(HUB, Reply::Status(503));
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(10);
    world.write(UP, set_a("/a/moved/", &[]));
    world.wait(10);
    world.facts();
    write_b(&mut world, TOPIC, &["u b 00:30"]);
    world.wait(10);
    let is_dropped = |fact: &Fact| matches!(fact, Fact::Dropped { topic, changes: 1, cause: DropCause::ChannelRemoved, .. } if topic.as_str().ends_with(TOPIC));
    assert!(world.facts().iter().any(is_dropped));
    world.script(HUB, Reply::Accept);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u d 02:00"]);
    world.write_changes("/b/changelist.xml", &["u b 00:30", "u c 04:00"]);
    world.wait(3_600);
    let mut told = by_topic(&mut world);
    told.sort();
    assert_eq!(
        told,
        [
            "/a/change/ [01:00, 04:00] u c 04:00",
            "/a/moved/ [01:00, 02:00] u d 02:00"
        ]
    );
}

#[test]
fn a_set_that_is_advertised_again_on_another_topic_goes_on_where_the_old_one_ended() {
    let mut world = world_of(plan());
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(1);
    world.write(UP, capability_list("/a", &["changelist"]));
    world.wait(1);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
    world.wait(1_000);
    world.write(UP, set_a("/a/moved/", &[]));
    world.wait(1);
    assert_eq!(
        by_topic(&mut world),
        [
            "/a/change/ [00:00, 01:00] u a 01:00",
            "/a/moved/ [01:00, 02:00] u b 02:00"
        ]
    );
}

#[test]
fn a_set_that_takes_a_topic_over_does_not_claim_what_it_learned() {
    let mut world = world_of(plan());
    world.write(UP, set_a("/a/moved/", &[]));
    write_b(&mut world, TOPIC, &["u b 03:00"]);
    world.wait(10);
    world.write_changes("/b/changelist.xml", &["u b 03:00", "u c 04:00"]);
    world.wait(10);
    assert_eq!(
        by_topic(&mut world),
        ["/a/change/ [03:00, 04:00] u c 04:00"]
    );
}

#[test]
fn two_channels_of_a_set_may_exchange_their_topics() {
    let mut world = world_of(plan());
    world.write(
        UP,
        list("capabilitylist")
            .lists(&[LIST])
            .channel(TOPIC, &[])
            .change_channel("/a/framework/", &[]),
    );
    world.wait(60);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(60);
    assert_eq!(
        by_topic(&mut world),
        ["/a/framework/ [00:00, 01:00] u a 01:00"]
    );
    let framework = world.heard_by(HUB);
    let last = framework.last().unwrap();
    assert_eq!(
        (&*last.topic, last.changes()),
        (
            TOPIC,
            vec!["updated changelist /a/changelist.xml".to_owned()]
        )
    );
}

/// What hubs were due on the old topics is dropped, and reported; what was published and not yet announced is not.
#[test]
fn what_is_fresh_when_two_channels_of_a_set_exchange_their_topics_is_told() {
    let mut world = world_of(plan());
    world.write(UP, set_a(TOPIC, &[]).channel("/a/framework/", &[]));
    world.wait(60);
    world.script(HUB, Reply::Status(503));
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.wait(10);
    world.facts();
    world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
    world.write(
        UP,
        list("capabilitylist")
            .lists(&[LIST])
            .channel(TOPIC, &[])
            .change_channel("/a/framework/", &[]),
    );
    let dropped = world.facts().into_iter().filter_map(|fact| match fact {
        Fact::Dropped {
            topic,
            changes,
            cause: DropCause::ChannelRemoved,
            ..
        } => Some((topic.to_string(), changes)),
        _ => None,
    });
    let dropped: Vec<_> = dropped.collect();
    assert!(
        dropped.contains(&(uri(TOPIC).to_string(), 1)),
        "{dropped:?}"
    );
    world.script(HUB, Reply::Accept);
    world.wait(3_600);
    assert_eq!(
        by_topic(&mut world),
        ["/a/framework/ [01:00, 02:00] u b 02:00"]
    );
}

#[test]
fn two_sets_may_exchange_their_topics() {
    let mut world = world_of(plan());
    let set_b = |topic| capability_list("/b", &["changelist"]).change_channel(topic, &[]);
    world.write_changes("/b/changelist.xml", &["u y 00:00"]);
    world.write(SET_B, set_b("/b/change/"));
    world.wait(60);
    world.unseen(|world| {
        world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
        world.write_changes("/b/changelist.xml", &["u y 00:00", "u b 02:00"]);
        world.write(UP, set_a("/b/change/", &[]));
        world.write(SET_B, set_b(TOPIC));
    });
    let names = [LIST, UP, "/b/changelist.xml", SET_B].map(str::to_owned);
    world.see_all(&names);
    world.wait(60);
    let mut heard = by_topic(&mut world);
    heard.sort();
    assert_eq!(
        heard,
        [
            "/a/change/ [00:00, 02:00] u b 02:00",
            "/b/change/ [00:00, 01:00] u a 01:00"
        ]
    );
    world.crash_and_start();
    world.wait(60);
    assert_eq!(world.change_sets(), 2);
    assert_eq!(world.changes(), NOTHING);
}

#[test]
fn sets_have_change_channels_where_the_configuration_says_so() {
    let mut world = World::with_two_sets(plan());
    world.now = crate::changes::time("2026-11-20T12:10:00Z");
    world.crash();
    world.plan.sources[0].change_notifications = true;
    world.start();
    world.wait(10);
    assert_eq!(world.changes(), NOTHING);
    world.write_changes(SECOND, &["u a 2026-11-20T12:10:05Z"]);
    world.wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!(heard[0].topic, "/changes/main/a/capabilitylist/");
    world.crash();
    world.plan.sources[0].change_notifications = false;
    world.plan.channels.push(ChannelPlan {
        capability_list: uri(SET_B),
        kind: ChannelKind::Change,
        topic: Topic::new("https://example.org/b/changes/"),
        hubs: Vec::new(),
    });
    world.start();
    world.wait(10);
    world.write_changes("/b/second.xml", &["u b 2026-11-20T12:10:06Z"]);
    world.write_changes(
        SECOND,
        &["u a 2026-11-20T12:10:05Z", "u b 2026-11-20T12:10:06Z"],
    );
    world.wait(1);
    let topics: Vec<String> = world
        .changes_heard_by(HUB)
        .into_iter()
        .map(|heard| heard.topic)
        .collect();
    assert_eq!(topics, ["/b/changes/"]);
}

#[test]
fn a_set_without_a_change_list_is_told_from_its_first_one_on() {
    let mut world = World::new(plan());
    world.now = crate::changes::time("2026-11-20T10:06:00Z");
    world.write(UP, set_a(TOPIC, &[]));
    world.wait(10);
    world.start();
    world.wait(10);
    world.write_changes(LIST, &["c a 01:00"]);
    world.wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!(heard[0].entries(), ["c a"]);
}

/// Writes the set `/b` with the Change Lists `changelist.xml` and `1.xml`, the latter through an index; those that are
/// `unread` are broken off.
fn write_b_broken_off(world: &mut World, unread: &[&str]) {
    for name in ["/b/changelist.xml", "/b/index.xml", "/b/1.xml"] {
        match unread.contains(&name) {
            true => world.break_off(name),
            false => mend_b(world, name),
        }
    }
    let names = ["changelist", "index"];
    let set = capability_list("/b", &names).change_channel("/b/change/", &[]);
    world.write(SET_B, set);
}

fn mend_b(world: &mut World, name: &str) {
    match name {
        "/b/index.xml" => world.write(name, index("changelist").up(SET_B).lists(&["/b/1.xml"])),
        "/b/1.xml" => world.write_changes(name, &["c x 00:00"]),
        _ => world.write_changes(name, &["c y 00:30"]),
    }
}

fn is_learned(world: &mut World) -> bool {
    let facts = world.facts();
    let mut facts = facts.iter();
    facts.any(|fact| matches!(fact, Fact::Learned { .. }))
}

/// What is found when a set appears, and can be read only later.
#[rstest]
#[case::its_change_list(&["/b/changelist.xml"])]
#[case::a_component_of_an_index(&["/b/1.xml"])]
#[case::an_index_and_its_component(&["/b/index.xml", "/b/1.xml"])]
fn lists_that_cannot_be_read_yet_when_a_set_appears_are_learned(
    #[case] unread: &[&str],
    #[values("running", "down", "stopped between")] daemon: &str,
) {
    let mut world = world_of(plan());
    if daemon == "down" {
        world.crash();
    }
    write_b_broken_off(&mut world, unread);
    match daemon {
        "down" => world.start(),
        "stopped between" => world.crash_and_start(),
        _ => {}
    }
    for name in unread {
        world.wait(1);
        mend_b(&mut world, name);
    }
    world.wait(10);
    assert_eq!(world.changes(), NOTHING);
    world.write_changes("/b/changelist.xml", &["c y 00:30", "d x 05:00"]);
    world.wait(1);
    assert_eq!(world.changes(), ["[00:30, 05:00] d x 05:00"]);
}

#[rstest]
#[case(&["/b/changelist.xml"])]
#[case(&["/b/index.xml", "/b/1.xml"])]
fn a_list_that_is_read_just_when_its_set_would_be_learned_is_learned(#[case] unread: &[&str]) {
    let mut world = world_of(plan());
    write_b_broken_off(&mut world, unread);
    for name in unread {
        // The timer of the next check expires with the observation.
        world.unseen(|world| {
            world.wait(1);
            mend_b(world, name);
        });
        world.see(name);
    }
    world.wait(10);
    assert_eq!(world.changes(), NOTHING);
    assert!(is_learned(&mut world));
}

#[test]
fn a_list_that_is_broken_delays_a_set_no_longer() {
    let mut world = world_of(plan());
    write_b_broken_off(&mut world, &["/b/changelist.xml"]);
    world.wait(9);
    assert!(!is_learned(&mut world));
    world.wait(2);
    assert!(is_learned(&mut world));
    world.write_changes("/b/1.xml", &["c x 00:00", "d x 05:00"]);
    world.wait(1);
    assert_eq!(world.changes(), ["[00:00, 05:00] d x 05:00"]);
}

#[test]
fn a_list_that_was_broken_before_delays_no_set() {
    let mut world = world_of(plan());
    world.break_off("/b/changelist.xml");
    world.wait(11);
    write_b_broken_off(&mut world, &["/b/changelist.xml"]);
    world.wait(1);
    assert!(is_learned(&mut world));
}

#[test]
fn a_list_that_is_gone_before_it_could_be_read_delays_a_set_no_longer() {
    let mut world = world_of(plan());
    write_b_broken_off(&mut world, &["/b/changelist.xml"]);
    world.wait(1);
    world.delete("/b/changelist.xml");
    world.wait(2);
    assert!(is_learned(&mut world));
}

#[test]
fn a_configured_set_is_not_learned_before_its_capability_list_can_be_read() {
    let mut world = world_of(plan());
    world.crash();
    world.plan.channels.push(ChannelPlan {
        capability_list: uri(SET_B),
        kind: ChannelKind::Change,
        topic: Topic::new("https://example.org/b/changes/"),
        hubs: Vec::new(),
    });
    world.write_changes_of("/b/changelist.xml", "/other.xml", &["c y 00:30"]);
    world.break_off(SET_B);
    world.start();
    world.wait(1);
    world.write(SET_B, capability_list("/b", &["changelist"]));
    world.wait(10);
    assert_eq!(world.changes(), NOTHING);
}
