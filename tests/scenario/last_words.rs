//! Last words of channels that retire or move, and of hubs that leave: what ceases to be due stays so (R11).

use resourcesync::payload::Payload;

use crate::moves::{moved, set_a};
use crate::world::{Doc, HUB, OTHER_HUB, Reply, World, list, ping_hub, plan, two_hubs};

const CHANGE_LIST: &str = "/a/changelist.xml";
const DESCRIPTION: &str = "/.well-known/resourcesync";

/// A world in which the Change List of `/a` is due on its topic, and another change in flight, which the hub does not take.
fn world_with_a_due_change() -> World {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(503));
    world.update("/a/resourcelist.xml");
    world.wait(100);
    world.update(CHANGE_LIST);
    world.wait(100);
    world
}

/// The Source Description.
fn description() -> Doc {
    list("description").lists(&["/a/capabilitylist.xml", "/b/capabilitylist.xml"])
}

/// `/a` moves to another topic; its old one is taken over by `/b`, which leaves it, or stays.
fn move_sets(world: &mut World, topics_of_b: &[&str]) {
    world.write("/a/capabilitylist.xml", moved("/a", "/new/"));
    world.wait(100);
    for topic in topics_of_b {
        world.write("/b/capabilitylist.xml", moved("/b", topic));
        world.wait(100);
    }
}

fn roll_back(world: &mut World) {
    let first = list("changelist").up("/a/capabilitylist.xml");
    world.write(CHANGE_LIST, first);
    world.wait(1_000);
}

fn delete(world: &mut World) {
    world.delete(CHANGE_LIST);
    world.wait(1_000);
}

/// Returns the news of the old topic of `/a` about its Change List, once the hub takes everything.
fn late_news(world: &mut World) -> Vec<String> {
    world.script(HUB, Reply::Accept);
    world.wait(10_000);
    let mut news = world.news_by_topic();
    let mut news = news.remove("/a/framework/").unwrap_or_default();
    news.retain(|change| change.ends_with(CHANGE_LIST));
    news
}

/// Changes the list once more, and asserts that nothing of it is announced late after a restart.
#[track_caller]
fn assert_silent_after_restart(world: &mut World) {
    world.update(CHANGE_LIST);
    world.wait(100);
    world.crash_and_start();
    world.wait(100);
    assert_eq!(late_news(world), [""; 0]);
}

#[test]
fn a_change_that_is_due_no_more_is_no_last_word_after_a_restart() {
    let moves_of_b: [&[&str]; 4] = [
        &[],
        &["/a/framework/"],
        &["/a/framework/", "/other/"],
        &["/a/framework/", "/other/", "/a/framework/"],
    ];
    for topics in moves_of_b {
        for undo in [roll_back, delete] {
            let mut world = world_with_a_due_change();
            move_sets(&mut world, topics);
            undo(&mut world);
            world.write(
                CHANGE_LIST,
                list("changelist").version(9).up("/a/capabilitylist.xml"),
            );
            world.wait(100);
            world.crash_and_start();
            world.wait(100);
            assert_eq!(late_news(&mut world), [""; 0], "{topics:?}");
        }
    }
}

#[test]
fn a_change_that_was_withdrawn_and_is_due_no_more_is_no_last_word_after_a_restart() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(503));
    world.update(CHANGE_LIST);
    world.update("/a/resourcelist.xml");
    world.wait(100);
    move_sets(&mut world, &[]);
    roll_back(&mut world);
    world.script(HUB, Reply::AtMost(1));
    world.wait(10_000);
    assert_silent_after_restart(&mut world);
}

#[test]
fn a_hub_that_left_hears_no_last_word_twice_after_a_restart() {
    let mut plan = two_hubs();
    plan.window.max_entries = 1;
    let mut world = World::with_two_sets(plan);
    world.write("/a/capabilitylist.xml", set_a(&[HUB]));
    world.wait(100);
    world.script(HUB, Reply::Status(503));
    world.update(CHANGE_LIST);
    world.wait(100);
    world.update("/a/resourcelist.xml");
    world.wait(100);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    world.script(HUB, Reply::FirstOf(2, 503));
    world.wait(10_000);
    world.script(HUB, Reply::Status(503));
    let told = world.news();
    assert!(
        told.contains(&format!("updated changelist {CHANGE_LIST}")),
        "{told:?}"
    );
    assert!(
        world.outbox("/a", HUB).hub.due > 0,
        "it is still due something"
    );
    assert_silent_after_restart(&mut world);
}

#[test]
fn what_only_a_hub_was_due_that_is_gone_is_no_last_word_for_the_others() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(HUB, Reply::Status(503));
    world.update(CHANGE_LIST);
    world.wait(100);
    move_sets(&mut world, &[]);
    let told = world.news_at(OTHER_HUB);
    assert!(
        told.contains(&format!("updated changelist {CHANGE_LIST}")),
        "{told:?}"
    );
    world.plan.hubs.remove(0);
    world.crash_and_start();
    world.wait(100);
    world.update(CHANGE_LIST);
    world.wait(100);
    world.crash_and_start();
    world.wait(1_000);
    let heard = world.heard_by(OTHER_HUB);
    let mut heard = heard.iter().filter(|heard| heard.topic == "/a/framework/");
    let is_of_a = |change: &String| change.ends_with(CHANGE_LIST);
    assert!(!heard.any(|heard| heard.changes().iter().any(is_of_a)));
}

/// Returns the news of the old topic of `/a` about its Change List that a hub took.
fn news_on_old_topic(world: &mut World, hub: &str) -> Vec<String> {
    let mut heard = world.heard_by(hub);
    heard.retain(|heard| heard.topic == "/a/framework/");
    let mut news: Vec<String> = heard.iter().flat_map(|heard| heard.changes()).collect();
    news.retain(|change| change.ends_with(CHANGE_LIST));
    news
}

#[test]
fn what_one_hub_is_due_is_no_last_word_for_another_that_accepted_it() {
    let update = format!("updated changelist {CHANGE_LIST}");
    let moves_of_b: [&[&str]; 3] = [&[], &["/a/framework/"], &["/a/framework/", "/other/"]];
    for topics in moves_of_b {
        for is_changed in [false, true] {
            let mut world = World::with_two_sets(two_hubs());
            world.script(HUB, Reply::Status(503));
            world.update(CHANGE_LIST);
            world.wait(100);
            move_sets(&mut world, topics);
            assert_eq!(news_on_old_topic(&mut world, OTHER_HUB), [update.as_str()]);
            if is_changed {
                world.update(CHANGE_LIST);
                world.wait(100);
            }
            world.crash_and_start();
            world.wait(100);
            let heard = news_on_old_topic(&mut world, OTHER_HUB);
            assert_eq!(heard, [""; 0], "{topics:?} {is_changed}");
            // The one that was in flight, and what followed it.
            let late = vec![update.clone(); 1 + usize::from(is_changed)];
            assert_eq!(late_news(&mut world), late, "{topics:?} {is_changed}");
        }
    }
}

#[test]
fn what_a_hub_that_left_is_due_is_no_last_word_for_those_that_stay() {
    let update = format!("updated changelist {CHANGE_LIST}");
    let mut world = World::with_two_sets(two_hubs());
    world.script(HUB, Reply::Status(503));
    world.update(CHANGE_LIST);
    world.wait(100);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    world.write("/a/capabilitylist.xml", moved("/a", "/new/").version(2));
    world.wait(100);
    assert_eq!(news_on_old_topic(&mut world, OTHER_HUB), [update.as_str()]);
    world.update(CHANGE_LIST);
    world.wait(100);
    world.crash_and_start();
    world.wait(100);
    assert_eq!(news_on_old_topic(&mut world, OTHER_HUB), [""; 0]);
    // The one that was in flight, and what followed it.
    assert_eq!(late_news(&mut world), [update.clone(), update]);
}

#[test]
fn last_words_of_a_hub_that_left_survive_the_return_of_the_channel_and_a_restart() {
    let mut world = World::with_two_sets(two_hubs());
    world.script(HUB, Reply::Status(503));
    world.update("/a/resourcelist.xml");
    world.wait(100);
    world.update(CHANGE_LIST);
    world.wait(100);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]));
    world.wait(100);
    world.delete("/a/capabilitylist.xml");
    world.wait(1_000);
    world.write("/a/capabilitylist.xml", set_a(&[OTHER_HUB]).version(1));
    world.wait(100);
    world.crash_and_start();
    world.wait(100);
    let update = format!("updated changelist {CHANGE_LIST}");
    assert_eq!(late_news(&mut world), [update]);
}

#[test]
fn a_last_word_that_was_undone_while_it_flew_is_announced_again() {
    let moves_of_b: [&[&str]; 4] = [
        &[],
        &["/a/framework/"],
        &["/a/framework/", "/other/"],
        &["/a/framework/", "/other/", "/a/framework/"],
    ];
    let update = format!("updated changelist {CHANGE_LIST}");
    for topics in moves_of_b {
        let mut world = World::with_two_sets(plan());
        world.script(HUB, Reply::Status(503));
        world.update(CHANGE_LIST);
        world.wait(100);
        move_sets(&mut world, topics);
        roll_back(&mut world);
        let late = late_news(&mut world);
        assert_eq!(late, [&*update, &*update], "{topics:?}");
    }
}

#[test]
fn a_source_description_that_is_missing_is_no_last_word() {
    let retire: fn(&mut World) = |world| move_sets(world, &[]);
    let take_over: fn(&mut World) = |world| move_sets(world, &["/a/framework/"]);
    let return_again: fn(&mut World) = |world| {
        world.delete("/a/capabilitylist.xml");
        world.wait(1_000);
        world.write("/a/capabilitylist.xml", set_a(&[]).version(1));
        world.wait(100);
    };
    for change in [retire, take_over, return_again] {
        let mut world = world_with_a_due_change();
        world.write(DESCRIPTION, description().version(1));
        world.wait(100);
        change(&mut world);
        world.delete(DESCRIPTION);
        world.wait(10);
        world.script(HUB, Reply::Accept);
        world.wait(200);
        let mut news = world.news_by_topic();
        let mut news = news.remove("/a/framework/").unwrap();
        assert!(news.len() > 1, "{news:?}");
        news.retain(|change| change.ends_with(DESCRIPTION));
        assert_eq!(news, [""; 0]);
        world.write(DESCRIPTION, description().version(2));
        world.wait(100);
        let news = world.news_by_topic();
        let change = format!("updated description {DESCRIPTION}");
        assert_eq!(news["/a/framework/"], [change]);
    }
}

#[test]
fn a_topic_that_repeats_last_words_names_no_other_set_s_list() {
    let mut plan = ping_hub();
    plan.window.max_entries = 1;
    let mut world = World::with_two_sets(plan);
    world.script(HUB, Reply::Status(503));
    world.update("/a/resourcelist.xml");
    world.wait(100);
    world.update(CHANGE_LIST);
    world.wait(100);
    move_sets(&mut world, &["/a/framework/"]);
    world.update(CHANGE_LIST);
    world.wait(100);
    // The topic repeats only what is told later than this.
    world.script(HUB, Reply::FirstOf(5, 503));
    world.wait(5_000);
    world.script(HUB, Reply::Accept);
    world.wait(100);
    world.plan.window.max_entries = 10;
    world.reload();
    world.update("/b/changelist.xml");
    world.wait(100);
    let page = world.fetch("/a/framework/").unwrap();
    let payload = Payload::parse(&page.body).unwrap();
    let uris: Vec<&str> = payload.entries.iter().map(|it| it.uri.as_str()).collect();
    assert_eq!(
        uris,
        [
            "https://example.org/a/changelist.xml",
            "https://example.org/b/changelist.xml"
        ]
    );
    assert_eq!(payload.up, None);
}
