//! Channels: opened, advertised, moved, retired and revived (R8, R9, R11).

use std::time::Duration;

use announce::event::Fact;
use announce::finding::Finding;
use announce::plan::ConfiguredChannel;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Topic;

use crate::world::{
    HUB, OTHER_HUB, Reply, SET_A, SET_B, World, absolute, advertise, capability_list, list, plan,
    told, two_hubs, uri,
};

const DAY: u64 = 86_400;

pub fn configured(capability_list: &str, topic: &str) -> ConfiguredChannel {
    ConfiguredChannel {
        capability_list: uri(capability_list),
        kind: ChannelKind::Framework,
        topic: Topic::new(absolute(topic)),
        hubs: Vec::new(),
    }
}

fn set_a() -> crate::world::Doc {
    capability_list("/a", &["resourcelist", "changelist"])
}

/// The Capability List of `/a`, without a channel.
fn both() -> crate::world::Doc {
    list("capabilitylist").lists(&["/a/resourcelist.xml", "/a/changelist.xml"])
}

#[test]
fn a_deleted_capability_list_is_announced_on_its_own_channel_which_retires() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(1_000);
    let heard = world.heard_by(HUB);
    assert_eq!(heard[0].topic, "/a/framework/");
    assert_eq!(heard[0].changes(), ["d /a/capabilitylist.xml"]);
    // R20: what is above all of it.
    assert_eq!(heard[0].payload.up, Some(uri("/.well-known/resourcesync")));
    assert!(world.fetch("/a/framework/").is_some());
    // The set has ended: its documents belong nowhere.
    world.update("/a/changelist.xml").expect_nothing(100);
}

#[test]
fn a_retired_channel_revives_with_what_it_has_told() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(1_000);
    world.update("/a/changelist.xml").wait(10);
    world.crash_and_start().news();
    world.write(SET_A, set_a()).wait(10);
    let news = world.news_by_topic();
    let want = ["u /a/changelist.xml", "c /a/capabilitylist.xml"];
    assert_eq!(news["/a/framework/"], want);
    assert!(told!(world, Fact::ChannelRevived { .. }));
}

#[test]
fn a_retired_channel_announces_its_last_changes_to_every_hub_and_no_more() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(OTHER_HUB, Reply::Status(503));
    world.update("/a/changelist.xml").wait(1);
    world.write(SET_A, advertise("/elsewhere/", &[])).wait(100);
    world.script(OTHER_HUB, Reply::Accept);
    world.crash_and_start().wait(1_000);
    let last = ["u /a/changelist.xml", "u /a/capabilitylist.xml"];
    for hub in [HUB, OTHER_HUB] {
        let heard = world.heard_by(hub);
        let old = heard.iter().filter(|heard| heard.topic == "/a/framework/");
        let old: Vec<String> = old.flat_map(crate::world::Heard::changes).collect();
        assert_eq!(old, last, "{hub}");
    }
    world.update("/a/changelist.xml").update(SET_A).wait(100);
    assert!(!world.news_by_topic().contains_key("/a/framework/"));
}

#[test]
fn a_set_that_came_and_went_while_its_hub_was_dead_is_created_and_deleted() {
    let mut world = World::with_two_sets(plan());
    world.write("/c/capabilitylist.xml", list("capabilitylist"));
    world.script(HUB, Reply::Status(503)).wait(10);
    world.delete("/c/capabilitylist.xml").wait(1_000);
    world.crash_and_start().script(HUB, Reply::Accept);
    let want = ["c /c/capabilitylist.xml", "d /c/capabilitylist.xml"];
    world.expect(1_000, want);
    assert!(!world.remembers("/c/capabilitylist.xml"));
}

#[test]
fn a_topic_that_moves_is_told_to_the_old_channel_and_to_the_new() {
    let mut world = World::with_two_sets(plan());
    world.write(SET_A, both().channel("/moved/", &[])).wait(10);
    let news = world.news_by_topic();
    let update = ["u /a/capabilitylist.xml"];
    assert_eq!(news["/a/framework/"], update);
    assert_eq!(news["/moved/"], update);
    world.update("/a/changelist.xml").wait(10);
    let news = world.news_by_topic();
    assert_eq!(news["/moved/"], ["u /a/changelist.xml"]);
    assert_eq!(news.len(), 1);
}

#[test]
fn a_topic_that_is_no_longer_advertised_gives_way_to_our_own() {
    let mut world = World::with_two_sets(plan());
    world.write(SET_A, list("capabilitylist")).wait(10);
    let news = world.news_by_topic();
    let update = ["u /a/capabilitylist.xml"];
    assert_eq!(news["/a/framework/"], update);
    assert_eq!(news["/topics/main/a/capabilitylist/"], update);
}

#[test]
fn a_retired_topic_is_served_for_a_while() {
    let mut world = World::with_two_sets(plan());
    world.delete(SET_A).wait(29 * DAY);
    let said = ["d /a/capabilitylist.xml"];
    assert_eq!(world.served("/a/framework/"), said);
    world.crash_and_start();
    assert_eq!(world.served("/a/framework/"), said);
    world.wait(2 * DAY);
    assert!(world.fetch("/a/framework/").is_none());
    world.crash_and_start();
    assert!(world.fetch("/a/framework/").is_none());
    assert!(world.channels().iter().all(|channel| !channel.is_retired));
}

#[test]
fn a_set_that_advertises_nothing_gets_a_channel_of_our_making() {
    let mut world = World::with_two_sets(plan());
    world.write("/c/capabilitylist.xml", list("capabilitylist"));
    world.wait(20);
    let news = world.news_by_topic();
    let want = ["c /c/capabilitylist.xml"];
    assert_eq!(news["/topics/main/c/capabilitylist/"], want);
    assert!(matches!(
        world.findings()[..],
        [Finding::Unadvertised { .. }]
    ));
}

#[test]
fn a_channel_added_to_a_known_set_starts_from_what_was_seen() {
    let mut plan = plan();
    plan.sources[0].unadvertised_channels = false;
    let mut world = World::new(plan);
    world.write(SET_A, list("capabilitylist").lists(&["/a/changelist.xml"]));
    world.write("/a/changelist.xml", list("changelist"));
    world.wait(10).start().wait(10);
    world.update("/a/changelist.xml").expect_nothing(10);
    let set = list("capabilitylist").lists(&["/a/changelist.xml"]);
    world.write(SET_A, set.channel("/a/framework/", &[]));
    world.expect(10, ["u /a/capabilitylist.xml"]);
    world.update("/a/changelist.xml");
    world.expect(10, ["u /a/changelist.xml"]);
}

#[test]
fn only_the_advertised_ones_of_the_configured_hubs_are_told() {
    let mut world = World::with_two_sets(two_hubs());
    let foreign = "https://evil.example.com/";
    let advertised = both().channel("/a/framework/", &[OTHER_HUB, foreign]);
    world.write(SET_A, advertised).wait(100).news();
    world.news_at(OTHER_HUB);
    world.update("/a/changelist.xml").expect_nothing(100);
    assert_eq!(world.news_at(OTHER_HUB), ["u /a/changelist.xml"]);
    assert!(matches!(world.findings()[..], [Finding::ForeignHub { .. }]));
}

#[test]
fn of_two_sets_with_one_topic_the_first_keeps_it() {
    let mut world = World::new(plan());
    for set in ["/a", "/b"] {
        let doc = advertise("/shared/", &[]);
        world.write(&format!("{set}/capabilitylist.xml"), doc);
    }
    world.wait(10).start().wait(100);
    assert!(matches!(
        &world.findings()[..],
        [Finding::SharedTopic { set, .. }] if set.as_str().ends_with(SET_B)
    ));
    world.update(SET_A);
    world.update(SET_B).expect(10, ["u /a/capabilitylist.xml"]);
    // Once it is free, the other takes it.
    world.write(SET_A, advertise("/own/", &[])).wait(10).news();
    world.update(SET_B).expect(10, ["u /b/capabilitylist.xml"]);
    assert!(world.findings().is_empty());
}

#[test]
fn of_two_sets_with_one_topic_the_configured_one_keeps_it() {
    let mut plan = plan();
    plan.channels.push(configured(SET_B, "/shared/"));
    let mut world = World::new(plan);
    for set in ["/a", "/b"] {
        let doc = advertise("/shared/", &[]);
        world.write(&format!("{set}/capabilitylist.xml"), doc);
    }
    world.wait(10).start().update(SET_A);
    world.update(SET_B).expect(10, ["u /b/capabilitylist.xml"]);
}

#[test]
fn a_channel_that_is_configured_for_another_set_takes_no_topic() {
    let mut plan = plan();
    plan.channels
        .push(configured("/c/capabilitylist.xml", "/other/"));
    let mut world = World::new(plan);
    let advertising = || advertise("/shared/", &[]);
    world.write(SET_B, advertising()).wait(10).start();
    world.write(SET_A, advertising());
    world.update(SET_B).expect(10, ["u /b/capabilitylist.xml"]);
}

#[test]
fn a_configured_channel_needs_no_list_in_the_tree() {
    for is_known_before in [false, true] {
        let mut world = World::new(plan());
        world.write("/x.xml", list("changelist").up("/generated/capabilitylist"));
        if is_known_before {
            world.wait(10).start();
        }
        let channel = configured("/generated/capabilitylist", "/topic/");
        world.plan.channels.push(channel);
        world.wait(10).start().wait(10);
        world.update("/x.xml").wait(10);
        let news = world.news_by_topic();
        assert_eq!(news["/topic/"], ["u changelist /x.xml"]);
    }
}

#[test]
fn a_channel_s_number_is_never_given_to_another() {
    let mut plan = plan();
    plan.retired_topic = Duration::from_secs(1_000);
    let mut world = World::with_two_sets(plan);
    let last = world.channels().pop().unwrap();
    world.delete(&last.set).wait(2_000);
    assert!(world.channels().iter().all(|channel| channel.id < last.id));
    world.write_set("/c", &["changelist"]);
    assert!(world.channels().pop().unwrap().id > last.id);
}

#[test]
fn changes_due_to_a_dead_hub_are_dropped_when_its_channel_ends() {
    let mut plan = plan();
    plan.retired_topic = Duration::from_secs(1_000);
    let mut world = World::with_two_sets(plan).with_down(HUB);
    world.delete(SET_A).wait(600);
    assert!(world.remembers(SET_A));
    world.wait(1_000);
    assert!(!world.remembers(SET_A));
}

#[test]
fn a_problem_with_a_topic_is_reported() {
    for (topic, is_sent, words) in [
        (
            "https://evil.example.com/topic",
            false,
            "which lies neither below public_url nor below a mount",
        ),
        (
            "/n/a topic/",
            false,
            "which has a space: no URI may have one",
        ),
        (
            "/t/é/",
            true,
            "which clients request as https://example.org/t/%C3%A9/",
        ),
        (
            "/t/../dots/",
            true,
            "which clients request as https://example.org/dots/",
        ),
    ] {
        let mut world = World::with_two_sets(plan());
        world.write("/n/capabilitylist.xml", advertise(topic, &[]));
        world.wait(100);
        assert_eq!(!world.news().is_empty(), is_sent, "{topic}");
        let found: Vec<String> = world.findings().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(words), "{found:?}");
    }
}

#[test]
fn a_channel_whose_retirement_ended_meanwhile_is_kept_for_an_hour_of_the_next_run() {
    let topic = "https://example.org/a/framework/";
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.delete(SET_A).wait(1_000);
    world.crash().wait(31 * DAY).start().wait(3_590);
    assert!(world.topics().contains(&topic));
    world.wait(20);
    assert!(!world.topics().contains(&topic));
}
