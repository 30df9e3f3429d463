//! `from` and `until` of notifications: true, distinct, and joined (R20).

use std::collections::BTreeSet;
use std::time::Duration;

use announce::plan::PublishMode;
use jiff::Timestamp;
use resourcesync::payload::Payload;
use rstest::rstest;

use crate::world::{
    HUB, Heard, OTHER_HUB, Reply, SET_A, World, advertise, altered, excluding, index, list,
    ping_hub, plan, set_hubs, two_hubs,
};

/// The span in the root-level `rs:md` of a notification.
fn attribute(body: &[u8], name: &str) -> Option<Timestamp> {
    let text = std::str::from_utf8(body).unwrap();
    let (_, rest) = text.split_once("\"framework-notification\"").unwrap();
    let (md, _) = rest.split_once("/>").unwrap();
    let (_, rest) = md.split_once(&format!(" {name}=\""))?;
    let (value, _) = rest.split_once('"').unwrap();
    Some(value.parse().unwrap())
}

fn from(heard: &Heard) -> Option<Timestamp> {
    attribute(&heard.body, "from")
}

fn until(heard: &Heard) -> Option<Timestamp> {
    attribute(&heard.body, "until")
}

fn heard(world: &mut World, hub: &str) -> Vec<Heard> {
    let mut heard = world.heard_by(hub);
    heard.retain(|notification| notification.topic == "/a/framework/");
    heard
}

fn one(world: &mut World) -> Heard {
    let heard = heard(world, HUB);
    assert_eq!(heard.len(), 1, "{heard:?}");
    heard[0].clone()
}

fn times(payload: &Payload) -> Vec<Timestamp> {
    let entries = payload.entries.iter();
    entries.filter_map(|entry| entry.datetime).collect()
}

/// Each begins where the one before ended, no `until` comes twice, and what comes later is later.
fn assert_joined(heard: &[Heard]) {
    let mut untils = BTreeSet::new();
    for notification in heard {
        if let Some(until) = until(notification) {
            assert!(untils.insert(until), "{until} twice: {heard:?}");
        }
        if let Some(from) = from(notification) {
            let times = times(&notification.payload);
            assert!(times.iter().all(|time| *time > from), "{notification:?}");
            assert!(
                until(notification).is_some_and(|until| until > from),
                "{notification:?}"
            );
        }
    }
    for (before, notification) in heard.iter().zip(heard.iter().skip(1)) {
        assert!(
            from(notification).is_none() || from(notification) == until(before),
            "{heard:?}"
        );
        if let Some(until) = until(before) {
            let later = times(&notification.payload);
            assert!(later.iter().all(|time| *time > until), "{heard:?}");
        }
    }
}

#[test]
fn each_notification_begins_where_the_one_before_ended() {
    let mut world = World::with_two_sets(two_hubs());
    let mut all = Vec::new();
    for round in 0..4 {
        world.update("/a/changelist.xml").wait(10);
        if round == 2 {
            world.crash_and_start();
        }
        all.extend(heard(&mut world, HUB));
    }
    assert_eq!(all.len(), 4);
    assert_eq!(from(&all[0]), None, "the first has nothing before it");
    for (before, notification) in all.iter().zip(&all[1..]) {
        assert!(until(before).is_some());
        assert_eq!(from(notification), until(before));
    }
    assert_joined(&all);
    let other = heard(&mut world, OTHER_HUB);
    let bodies = |all: &[Heard]| {
        all.iter()
            .map(|notification| notification.body.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(bodies(&other), bodies(&all), "they share what is the same");
}

#[test]
fn a_hub_that_was_down_continues_from_what_it_accepted_last() {
    let mut world = World::with_two_sets(two_hubs());
    world.update("/a/changelist.xml").wait(10);
    world.script(OTHER_HUB, Reply::Status(503));
    for _ in 0..3 {
        world.update("/a/changelist.xml").wait(10);
    }
    world.crash_and_start();
    world.script(OTHER_HUB, Reply::Accept).wait(1_000);
    let late = heard(&mut world, OTHER_HUB);
    assert_eq!(late.len(), 3);
    for (before, notification) in late.iter().zip(&late[1..]) {
        assert_eq!(from(notification), until(before));
    }
    assert_joined(&late);
    assert_joined(&heard(&mut world, HUB));
}

#[test]
fn until_is_not_later_than_what_is_left_for_the_next() {
    let mut plan = plan();
    plan.window.max_entries = 2;
    plan.window.quiet = Duration::from_secs(4);
    let mut world = World::with_two_sets(plan);
    for number in 0..6 {
        let name = format!("/a/c{number}.xml");
        world.write(&name, list("changelist").of("/a"));
        world.update(SET_A).wait(1);
    }
    world.wait(200);
    let all = heard(&mut world, HUB);
    assert!(all.len() > 2, "{all:?}");
    assert_joined(&all);
    assert!(
        all.iter().all(|notification| until(notification).is_some()),
        "{all:?}"
    );
}

#[test]
fn where_nothing_true_can_be_said_until_is_left_out() {
    let mut world = World::with_two_sets(altered(plan(), |plan| plan.window.max_entries = 1));
    world.update("/a/changelist.xml").wait(10);
    let before = one(&mut world);
    world.update("/a/changelist.xml");
    world.update("/a/resourcelist.xml").update(SET_A).wait(10);
    let all = heard(&mut world, HUB);
    assert_eq!(all.len(), 3);
    assert_eq!(from(&all[0]), until(&before));
    assert!(until(&all[0]).unwrap() < times(&all[1].payload)[0]);
    // Of the second there is nothing to say that was not said: the third changed at the same moment.
    assert_eq!((from(&all[1]), until(&all[1])), (None, None));
    assert_eq!(from(&all[2]), None);
    assert!(until(&all[2]).is_some());
    assert_joined(&all);
}

fn hold(world: &mut World) {
    world.write_list("/a/new.xml", "changelist");
}

fn delete_description(world: &mut World) {
    world.delete("/.well-known/resourcesync");
}

#[rstest]
#[case::is_held(hold, 100)]
#[case::is_a_deletion_that_does_not_count_yet(delete_description, 1_000)]
fn until_is_not_later_than_what(#[case] happens: fn(&mut World), #[case] seconds: u64) {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10);
    let mut all = heard(&mut world, HUB);
    happens(&mut world);
    let at = world.now;
    world.wait(5).update("/a/changelist.xml").wait(5);
    let meanwhile = one(&mut world);
    assert!(until(&meanwhile).unwrap() < at, "{meanwhile:?}");
    all.push(meanwhile);
    world.wait(seconds);
    all.extend(heard(&mut world, HUB));
    assert_eq!(all.len(), 3);
    assert_joined(&all);
}

#[test]
fn until_follows_the_clock_back_and_from_is_left_out_then() {
    let mut world = World::with_two_sets(plan());
    let right = world.now;
    world.set_wall(right + Duration::from_secs(86_400));
    world.update("/a/changelist.xml").wait(10);
    assert!(until(&one(&mut world)).unwrap() > right + Duration::from_secs(86_400));
    for is_restarted in [false, true] {
        world.set_wall(right + Duration::from_secs(if is_restarted { 5_000 } else { 0 }));
        if is_restarted {
            world.crash_and_start();
        }
        world.update("/a/changelist.xml").wait(10);
        let notification = one(&mut world);
        let said = until(&notification).unwrap();
        assert!(said <= notification.at, "{notification:?}");
        if !is_restarted {
            assert_eq!(from(&notification), None);
        }
    }
    world.update("/a/changelist.xml").wait(10);
    assert!(from(&one(&mut world)).is_some());
}

#[test]
fn a_clock_that_comes_to_the_same_time_again_says_another_until() {
    let mut world = World::with_two_sets(plan());
    let mut all = Vec::new();
    let at = world.now;
    for back in [0, 1, 0, 1] {
        world.set_wall(at - Duration::from_secs(back));
        world.update("/a/changelist.xml").wait(10);
        all.push(one(&mut world));
    }
    let untils: Vec<_> = all.iter().filter_map(until).collect();
    let distinct: BTreeSet<_> = untils.iter().collect();
    assert_eq!(untils.len(), 4);
    assert_eq!(distinct.len(), 4, "{untils:?}");
}

#[test]
fn what_was_dropped_leaves_from_out() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10);
    one(&mut world);
    world.script(HUB, Reply::Status(503));
    world.update("/a/changelist.xml").wait(10);
    world.drop_due("/a", HUB);
    world.script(HUB, Reply::Accept);
    world.update("/a/resourcelist.xml").wait(100);
    let next = one(&mut world);
    assert_eq!(from(&next), None);
    world.update("/a/resourcelist.xml").wait(100);
    assert_eq!(from(&one(&mut world)), until(&next));
}

fn change_mode(world: &mut World, mode: PublishMode) {
    set_hubs(&mut world.plan, &[(HUB, mode)]);
    world.reload().wait(10);
}

#[rstest]
#[case::it_was_excluded(|world: &mut World| {
    world.script(HUB, Reply::Status(503)).update("/a/resourcelist.xml").wait(10);
    world.update("/a/changelist.xml").plan.sources[0].candidates = excluding(&["a/changelist.xml"]);
    world.reload();
})]
#[case::the_hub_left_for_long(|world: &mut World| {
    world.script(HUB, Reply::Status(503)).update("/a/changelist.xml").wait(10);
    let foreign = advertise("/a/framework/", &["https://foreign.example/"]);
    world.write(SET_A, foreign.lists(&["/a/resourcelist.xml", "/a/changelist.xml"]));
    world.wait(2_000).write_capability_list("/a", &["resourcelist", "changelist"]);
})]
#[case::the_hub_did_not_fetch_it(|world: &mut World| {
    change_mode(world, PublishMode::Ping);
    world.update("/a/changelist.xml").wait(10);
    change_mode(world, PublishMode::Content);
})]
fn what_no_notification_has_leaves_from_out(#[case] happens: fn(&mut World)) {
    let kept = Duration::from_secs(1_000);
    let mut world = World::with_two_sets(altered(plan(), |plan| plan.retired_topic = kept));
    world.update("/a/changelist.xml").wait(10);
    happens(&mut world);
    heard(&mut world, HUB);
    world.script(HUB, Reply::Accept);
    world.update("/a/resourcelist.xml").wait(5_000);
    let mut all = heard(&mut world, HUB).into_iter();
    assert!(all.any(|it| from(&it).is_none()));
}

#[test]
fn a_hub_that_is_pinged_no_more_goes_on_over_restarts() {
    let mut world = World::with_two_sets(ping_hub());
    world.update("/a/changelist.xml").wait(10);
    world.fetch("/a/framework/");
    change_mode(&mut world, PublishMode::Content);
    world.update("/a/changelist.xml").wait(10).crash_and_start();
    let last = heard(&mut world, HUB).pop().unwrap();
    world.update("/a/changelist.xml").wait(10);
    assert_eq!(from(&one(&mut world)), until(&last));
}

#[test]
fn a_topic_that_is_read_again_does_not_go_on_from_what_it_was_before() {
    let mut world = World::with_two_sets(ping_hub());
    for mode in [PublishMode::Content, PublishMode::Ping] {
        world.update("/a/changelist.xml").wait(10);
        world.fetch("/a/framework/");
        change_mode(&mut world, mode);
    }
    world.fetch("/a/framework/");
    world.update("/a/resourcelist.xml").wait(10);
    let page = world.fetch("/a/framework/").unwrap().body;
    assert_eq!(attribute(&page, "from"), None);
}

#[test]
fn a_description_that_becomes_an_index_holds_nothing_up() {
    let mut world = World::with_two_sets(plan());
    world
        .write("/.well-known/resourcesync", index("description"))
        .wait(10);
    for is_first in [true, false] {
        world.update("/a/changelist.xml").wait(10);
        let heard = one(&mut world);
        assert!(
            until(&heard).is_some() && (is_first || from(&heard).is_some()),
            "{heard:?}"
        );
    }
}

#[test]
fn what_a_hub_may_have_and_was_withdrawn_leaves_from_out() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10);
    let first = one(&mut world);
    world.script(HUB, Reply::Fail(5));
    world.update("/a/changelist.xml");
    world.update("/a/resourcelist.xml").wait(100);
    world.script(HUB, Reply::AtMost(1)).wait(1_000);
    let halves = heard(&mut world, HUB);
    assert_eq!(halves.len(), 2, "{halves:?}");
    // The hub may have passed on a notification of both changes, whose `until` is later than that of the first.
    assert!(until(&halves[0]) > until(&first));
    assert_eq!(from(&halves[0]), None);
}

#[test]
fn a_new_hub_has_no_from_and_a_revived_channel_goes_on() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10);
    one(&mut world);
    world.plan = two_hubs();
    world.crash_and_start().update("/a/changelist.xml").wait(10);
    assert!(from(&one(&mut world)).is_some());
    assert_eq!(from(&heard(&mut world, OTHER_HUB)[0]), None);
    world.delete(SET_A).wait(1_000);
    let last = one(&mut world);
    world.write_capability_list("/a", &["resourcelist", "changelist"]);
    world.wait(100);
    assert_eq!(from(&one(&mut world)), until(&last));
}

#[test]
fn a_topic_that_ping_hubs_read_says_what_is_true_of_it() {
    let mut world = World::with_two_sets(ping_hub());
    let mut pages: Vec<std::sync::Arc<[u8]>> = Vec::new();
    for name in [
        "/a/changelist.xml",
        "/a/resourcelist.xml",
        "/a/changelist.xml",
    ] {
        world.update(name).wait(5);
        pages.push(world.fetch("/a/framework/").unwrap().body);
        world.wait(5);
    }
    assert_eq!(attribute(&pages[0], "from"), None);
    for (before, page) in pages.iter().zip(&pages[1..]) {
        assert!(attribute(before, "until").is_some());
        assert_eq!(attribute(page, "from"), attribute(before, "until"));
    }
}

#[test]
fn the_until_of_a_topic_that_ping_hubs_read_is_not_later_than_what_is_held() {
    let mut world = World::with_two_sets(ping_hub());
    world.update("/a/changelist.xml").wait(5);
    world.fetch("/a/framework/");
    world.write_list("/a/new.xml", "changelist");
    let came = world.now;
    world.wait(5).update("/a/changelist.xml").wait(5);
    let page = world.fetch("/a/framework/").unwrap().body;
    let until = attribute(&page, "until");
    assert!(until.is_some_and(|until| until < came), "{until:?}");
}

#[test]
fn a_topic_of_both_kinds_of_hub_never_says_the_same_until_twice() {
    let mut plan = plan();
    set_hubs(
        &mut plan,
        &[(HUB, PublishMode::Ping), (OTHER_HUB, PublishMode::Content)],
    );
    let mut world = World::with_two_sets(plan);
    let mut untils = BTreeSet::new();
    for _ in 0..3 {
        world.update("/a/changelist.xml").wait(5);
        let page = world.fetch("/a/framework/").unwrap().body;
        assert!(untils.insert(attribute(&page, "until").unwrap()));
        for notification in heard(&mut world, OTHER_HUB) {
            assert!(
                untils.insert(until(&notification).unwrap()),
                "{notification:?}"
            );
        }
        world.wait(5);
    }
    assert_eq!(untils.len(), 6);
}

#[test]
fn halves_of_what_was_too_large_are_joined() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml").wait(10);
    let mut all = heard(&mut world, HUB);
    world.script(HUB, Reply::AtMost(2));
    for number in 0..7 {
        let name = format!("/a/c{number}.xml");
        world.write(&name, list("changelist").of("/a"));
        world.pass(Duration::from_millis(100));
    }
    world.wait(2_000);
    all.extend(heard(&mut world, HUB));
    assert!(all.len() > 3, "{all:?}");
    assert_joined(&all);
    assert_eq!(from(&all[1]), until(&all[0]));
}
