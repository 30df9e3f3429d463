//! Change channels that come, move and go (C9, C10, C12).

use announce::event::{DropCause, Fact};
use announce::plan::ConfiguredChannel;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Topic;
use rstest::rstest;

use crate::changes::{LIST, SECOND, TOPIC, set_a, world_of};
use crate::world::{
    Doc, HUB, NOTHING, Reply, SET_A, SET_B, World, capability_list, index, list, plan, told,
    two_sources, uri,
};

const FIRST: &str = "/a/change/ [00:00, 01:00] u a 01:00";
const MOVED: &str = "/a/moved/ [01:00, 02:00] u b 02:00";

#[test]
fn what_is_fresh_when_a_topic_moves_is_told_on_the_old_one() {
    for is_list_first in [true, false] {
        let mut world = world_of(plan());
        let write = |world: &mut World| {
            world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
        };
        if is_list_first {
            write(&mut world);
        }
        let mut unseen = world.unseen();
        unseen.write(SET_A, set_a("/a/moved/", &[]));
        if !is_list_first {
            write(&mut unseen);
        }
        drop(unseen);
        world.see_all([LIST, SET_A]).wait(1);
        world.write_changes(LIST, &["u z 00:00", "u a 01:00", "u b 02:00"]);
        world.expect_by_topic(1, [FIRST, MOVED]);
    }
}

#[test]
fn a_topic_that_moves_and_moves_back_goes_on() {
    let mut world = world_of(plan());
    let mut entries = vec!["u z 00:00".to_owned()];
    for (number, topic) in [TOPIC, "/a/moved/", TOPIC].into_iter().enumerate() {
        world.write(SET_A, set_a(topic, &[])).wait(1);
        entries.push(format!("u r{number} 0{}:00", number + 1));
        world.write_changes(LIST, &entries).wait(1);
    }
    assert_eq!(
        world.changes_by_topic(),
        [
            "/a/change/ [00:00, 01:00] u r0 01:00",
            "/a/moved/ [01:00, 02:00] u r1 02:00",
            "/a/change/ [02:00, 03:00] u r2 03:00"
        ]
    );
}

#[test]
fn a_removed_advertisement_is_followed_by_the_last_changes() {
    let mut world = world_of(plan()).with_down(HUB);
    world.append(LIST, &["u a 01:00"]).wait(1);
    // It waits for the hub (C20).
    world.append(LIST, &["u b 02:00"]).wait(1);
    world.write(SET_A, capability_list("/a", &["changelist"]));
    world.wait(1);
    world.append(LIST, &["u c 03:00"]);
    world.script(HUB, Reply::Accept);
    world.expect_changes(60, ["[00:00, 01:00] u a 01:00", "[01:00, 02:00] u b 02:00"]);
    // It revives with its memory: what was published meanwhile is fresh.
    world.write(SET_A, set_a(TOPIC, &[]));
    world.expect_changes(10, ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn a_deleted_capability_list_is_followed_by_its_last_changes() {
    let mut world = world_of(plan());
    world.write(SET_B, capability_list("/b", &[])).wait(10);
    world.delete(SET_A).wait(290);
    world.script(HUB, Reply::Status(503));
    world.append(LIST, &["u a 01:00"]).wait(1);
    world.append(LIST, &["u b 02:00"]).wait(100);
    world.script(HUB, Reply::Accept);
    world.expect_changes(60, ["[00:00, 01:00] u a 01:00", "[01:00, 02:00] u b 02:00"]);
    world.write(SET_A, set_a(TOPIC, &[])).expect_no_changes(10);
    world.append(LIST, &["u c 03:00"]);
    world.expect_changes(10, ["[02:00, 03:00] u c 03:00"]);
}

#[test]
fn a_set_under_another_name_takes_its_topic_over() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 01:00"]).wait(1);
    world.write_changes("/n/changelist.xml", &["u z 00:00", "u a 01:00"]);
    let renamed = capability_list("/n", &["changelist"]).change_channel(TOPIC, &[]);
    world.write("/n/capabilitylist.xml", renamed).delete(SET_A);
    world.delete(LIST);
    world.accept_deletions().expect_by_topic(1_000, [FIRST]);
    world.append("/n/changelist.xml", &["u b 02:00"]);
    world.expect_by_topic(10, ["/a/change/ [01:00, 02:00] u b 02:00"]);
    world.crash_and_start().wait(10);
    assert_eq!(world.change_sets(), 1);
}

/// Writes the set `/b`, with a change channel and a list of its own.
fn write_b(world: &mut World, topic: &str, entries: &[&str]) {
    world.write_changes("/b/changelist.xml", entries);
    let list = capability_list("/b", &["changelist"]).change_channel(topic, &[]);
    world.write(SET_B, list);
}

#[test]
fn what_hubs_are_due_when_another_set_takes_the_topic_is_dropped() {
    let mut world = world_of(plan()).with_down(HUB);
    world.append(LIST, &["u a 01:00"]).wait(10);
    world.write(SET_A, set_a("/a/moved/", &[])).wait(10).facts();
    write_b(&mut world, TOPIC, &["u b 00:30"]);
    world.wait(10);
    let dropped = world.dropped(DropCause::ChannelRemoved);
    assert!(dropped.contains(&format!("{HUB} {TOPIC} 1")));
    world.script(HUB, Reply::Accept);
    world.append(LIST, &["u d 02:00"]);
    world.write_changes("/b/changelist.xml", &["u b 00:30", "u c 04:00"]);
    world.wait(3_600);
    let mut told = world.changes_by_topic();
    told.sort();
    let of_b = "/a/change/ [01:00, 04:00] u c 04:00";
    assert_eq!(told, [of_b, "/a/moved/ [01:00, 02:00] u d 02:00"]);
}

#[test]
fn a_set_that_is_advertised_again_on_another_topic_goes_on_where_the_old_one_ended() {
    let mut world = world_of(plan());
    world.append(LIST, &["u a 01:00"]).wait(1);
    world.write(SET_A, capability_list("/a", &["changelist"]));
    world.wait(1);
    world.append(LIST, &["u b 02:00"]).wait(1_000);
    world.write(SET_A, set_a("/a/moved/", &[]));
    world.expect_by_topic(1, [FIRST, MOVED]);
}

#[test]
fn a_set_that_takes_a_topic_over_does_not_claim_what_it_learned() {
    let mut world = world_of(plan());
    world.write(SET_A, set_a("/a/moved/", &[]));
    write_b(&mut world, TOPIC, &["u b 03:00"]);
    world.wait(10);
    world.write_changes("/b/changelist.xml", &["u b 03:00", "u c 04:00"]);
    world.expect_by_topic(10, ["/a/change/ [03:00, 04:00] u c 04:00"]);
}

/// The Capability List of `/a`, with the topic of each channel on the other.
fn exchanged() -> Doc {
    let of_a = list("capabilitylist").lists(&[LIST]);
    of_a.channel(TOPIC, &[])
        .change_channel("/a/framework/", &[])
}

#[test]
fn two_channels_of_a_set_may_exchange_their_topics() {
    let mut world = world_of(plan());
    world.write(SET_A, exchanged()).wait(60);
    world.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    world.expect_by_topic(60, ["/a/framework/ [00:00, 01:00] u a 01:00"]);
    let last = world.heard_by(HUB).pop().unwrap();
    assert_eq!(last.topic, TOPIC);
    assert_eq!(last.changes(), ["u /a/changelist.xml"]);
}

/// What hubs were due on the old topics is dropped, and reported; what was published and not yet announced is not.
#[test]
fn what_is_fresh_when_two_channels_of_a_set_exchange_their_topics_is_told() {
    let mut world = world_of(plan());
    world.write(SET_A, set_a(TOPIC, &[]).channel("/a/framework/", &[]));
    world.wait(60).script(HUB, Reply::Status(503));
    world.append(LIST, &["u a 01:00"]).wait(10).facts();
    world.append(LIST, &["u b 02:00"]);
    world.write(SET_A, exchanged());
    let dropped = world.dropped(DropCause::ChannelRemoved);
    let of_topic = format!("{HUB} {TOPIC} 1");
    assert!(dropped.contains(&of_topic), "{dropped:?}");
    world.script(HUB, Reply::Accept);
    world.expect_by_topic(3_600, ["/a/framework/ [01:00, 02:00] u b 02:00"]);
}

#[test]
fn two_sets_may_exchange_their_topics() {
    let mut world = world_of(plan());
    let set_b = |topic| capability_list("/b", &["changelist"]).change_channel(topic, &[]);
    world.write_changes("/b/changelist.xml", &["u y 00:00"]);
    world.write(SET_B, set_b("/b/change/")).wait(60);
    let mut unseen = world.unseen();
    unseen.write_changes(LIST, &["u z 00:00", "u a 01:00"]);
    unseen.write_changes("/b/changelist.xml", &["u y 00:00", "u b 02:00"]);
    unseen.write(SET_A, set_a("/b/change/", &[]));
    unseen.write(SET_B, set_b(TOPIC));
    drop(unseen);
    world.see_all([LIST, SET_A, "/b/changelist.xml", SET_B]);
    world.wait(60);
    let mut heard = world.changes_by_topic();
    heard.sort();
    let of_b = "/a/change/ [00:00, 02:00] u b 02:00";
    assert_eq!(heard, [of_b, "/b/change/ [00:00, 01:00] u a 01:00"]);
    world.crash_and_start().wait(60);
    assert_eq!(world.change_sets(), 2);
    assert_eq!(world.changes(), NOTHING);
}

#[test]
fn sets_have_change_channels_where_the_configuration_says_so() {
    let mut world = World::with_two_sets(plan());
    world.now = crate::changes::time("2026-11-20T12:10:00Z");
    world.crash();
    world.plan.sources[0].change_notifications = true;
    world.plan.sources[0].unadvertised_channels = false;
    world.start().expect_no_changes(10);
    assert_eq!(world.change_sets(), 0);
    world.crash();
    world.plan.sources[0].unadvertised_channels = true;
    world.start().expect_no_changes(10);
    world.write_changes(SECOND, &["u a 2026-11-20T12:10:05Z"]);
    world.wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!(heard[0].topic, "/changes/main/a/capabilitylist/");
    world.crash();
    world.plan.sources[0].change_notifications = false;
    world.plan.channels.push(ConfiguredChannel {
        capability_list: uri(SET_B),
        kind: ChannelKind::Change,
        topic: Topic::new("https://example.org/b/changes/"),
        hubs: Vec::new(),
    });
    world.start().wait(10);
    world.write_changes("/b/second.xml", &["u b 2026-11-20T12:10:06Z"]);
    world.append(SECOND, &["u b 2026-11-20T12:10:06Z"]).wait(1);
    let heard = world.changes_heard_by(HUB);
    assert_eq!((heard.len(), &*heard[0].topic), (1, "/b/changes/"));
}

#[test]
fn a_set_without_a_change_list_is_told_from_its_first_one_on() {
    let mut world = World::new(plan());
    world.now = crate::changes::time("2026-11-20T10:06:00Z");
    world.write(SET_A, set_a(TOPIC, &[])).wait(10);
    world.start().wait(10);
    world.write_changes(LIST, &["c a 01:00"]).wait(1);
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
        };
    }
    let names = ["changelist", "index"];
    let set = capability_list("/b", &names).change_channel("/b/change/", &[]);
    world.write(SET_B, set);
}

fn mend_b<'w>(world: &'w mut World, name: &str) -> &'w mut World {
    match name {
        "/b/index.xml" => world.write(name, index("changelist").up(SET_B).lists(&["/b/1.xml"])),
        "/b/1.xml" => world.write_changes(name, &["c x 00:00"]),
        _ => world.write_changes(name, &["c y 00:30"]),
    }
}

fn is_learned(world: &mut World) -> bool {
    told!(world, Fact::Learned { .. })
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
        _ => &mut world,
    };
    for name in unread {
        world.wait(1);
        mend_b(&mut world, name);
    }
    world.expect_no_changes(10);
    world.write_changes("/b/changelist.xml", &["c y 00:30", "d x 05:00"]);
    world.expect_changes(1, ["[00:30, 05:00] d x 05:00"]);
}

#[rstest]
#[case(&["/b/changelist.xml"])]
#[case(&["/b/index.xml", "/b/1.xml"])]
fn a_list_that_is_read_just_when_its_set_would_be_learned_is_learned(#[case] unread: &[&str]) {
    let mut world = world_of(plan());
    write_b_broken_off(&mut world, unread);
    for name in unread {
        // The timer of the next check expires with the observation.
        mend_b(world.unseen().wait(1), name);
        world.see(name);
    }
    world.expect_no_changes(10);
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
    world.expect_changes(1, ["[00:00, 05:00] d x 05:00"]);
}

#[test]
fn a_list_that_was_broken_before_delays_no_set() {
    let mut world = world_of(plan());
    world.break_off("/b/changelist.xml").wait(11);
    write_b_broken_off(&mut world, &["/b/changelist.xml"]);
    world.wait(1);
    assert!(is_learned(&mut world));
}

#[test]
fn a_list_that_is_gone_before_it_could_be_read_delays_a_set_no_longer() {
    let mut world = world_of(plan());
    write_b_broken_off(&mut world, &["/b/changelist.xml"]);
    world.wait(1).delete("/b/changelist.xml").wait(2);
    assert!(is_learned(&mut world));
}

#[test]
fn a_configured_set_is_not_learned_before_its_capability_list_can_be_read() {
    let mut world = world_of(plan());
    world.crash();
    world.plan.channels.push(ConfiguredChannel {
        capability_list: uri(SET_B),
        kind: ChannelKind::Change,
        topic: Topic::new("https://example.org/b/changes/"),
        hubs: Vec::new(),
    });
    world.write_changes_of("/b/changelist.xml", "/other.xml", &["c y 00:30"]);
    world.break_off(SET_B).start().wait(1);
    world.write(SET_B, capability_list("/b", &["changelist"]));
    world.expect_no_changes(10);
}

#[test]
fn a_source_that_is_configured_again_is_learned_again() {
    for is_reload in [true, false] {
        let mut world = world_of(two_sources("https://other.org/"));
        let source = world.plan.sources.remove(0);
        world.apply_plan(is_reload);
        assert_eq!(world.change_sets(), 0);
        world.unseen().append(LIST, &["u b 02:00"]);
        world.plan.sources.insert(0, source);
        world.apply_plan(is_reload).expect_no_changes(100);
        world.append(LIST, &["u c 03:00"]);
        world.expect_changes(1, ["[02:00, 03:00] u c 03:00"]);
    }
}
