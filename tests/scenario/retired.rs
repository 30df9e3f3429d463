//! Retired channels, hubs that left, and topics that another set takes: what was due stays due, and nothing is added (R11).

use announce::event::DropCause;

use crate::moves::{moved, set_a};
use crate::world::{
    Doc, HUB, NOTHING, OTHER_HUB, Reply, SET_A, SET_B, World, all_deletions, altered, list,
    ping_hub, plan, two_hubs, uri,
};

const CHANGE_LIST: &str = "/a/changelist.xml";
const UPDATED: &str = "u /a/changelist.xml";
const DESCRIPTION: &str = "/.well-known/resourcesync";

/// A world in which the Change List of `/a` is due on its topic, and another change in flight, which the hub does not take.
fn world_with_a_due_change() -> World {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/resourcelist.xml").wait(100);
    world.update(CHANGE_LIST).wait(100);
    world
}

/// The Source Description.
fn description() -> Doc {
    list("description").lists(&[SET_A, SET_B])
}

/// `/a` moves to another topic; its old one retires.
fn move_a(world: &mut World) {
    world.write(SET_A, moved("/a", "/new/")).wait(100);
}

/// `/b` moves to these topics, one after the other.
fn move_b(world: &mut World, topics: &[&str]) {
    for topic in topics {
        world.write(SET_B, moved("/b", topic)).wait(100);
    }
}

fn roll_back(world: &mut World) {
    let first = list("changelist").of("/a");
    world.write(CHANGE_LIST, first).wait(1_000);
}

fn delete(world: &mut World) {
    world.delete(CHANGE_LIST).wait(1_000);
}

/// Returns the news of the old topic of `/a` about its Change List, once the hub takes everything.
fn late_news(world: &mut World) -> Vec<String> {
    late_news_after(world, 10_000)
}

fn late_news_after(world: &mut World, seconds: u64) -> Vec<String> {
    world.script(HUB, Reply::Accept).wait(seconds);
    let mut news = world.news_by_topic();
    let mut news = news.remove("/a/framework/").unwrap_or_default();
    news.retain(|change| change.ends_with(CHANGE_LIST));
    news
}

/// Asserts that nothing is created or deleted.
#[track_caller]
fn assert_updates(news: &[String]) {
    let is_update = |change: &String| change.starts_with("u ");
    assert!(news.iter().all(is_update), "{news:?}");
}

/// Changes the list once more, and asserts that nothing of it is announced late after a restart.
#[track_caller]
fn assert_silent_after_restart(world: &mut World) {
    world.update(CHANGE_LIST).wait(100);
    world.crash_and_start().wait(100);
    assert_eq!(late_news(world), NOTHING);
}

#[test]
fn a_change_that_is_due_no_more_stays_so_after_a_restart() {
    for undo in [roll_back, delete] {
        let mut world = world_with_a_due_change();
        move_a(&mut world);
        undo(&mut world);
        world.write(CHANGE_LIST, list("changelist").version(9).of("/a"));
        world.wait(100).crash_and_start().wait(100);
        assert_eq!(late_news(&mut world), NOTHING);
    }
}

#[test]
fn what_follows_a_change_that_was_undone_is_announced_once_the_channel_returns() {
    let mut world = world_with_a_due_change();
    move_a(&mut world);
    roll_back(&mut world);
    world.write(CHANGE_LIST, list("changelist").version(9).of("/a"));
    world.wait(100);
    world.write(SET_A, set_a(&[]).version(3)).wait(100);
    assert_eq!(late_news(&mut world), [UPDATED]);
}

#[test]
fn a_document_that_leaves_the_set_is_not_due_on_its_retired_channel() {
    let mut world = world_with_a_due_change();
    move_a(&mut world);
    let fewer = list("capabilitylist").lists(&["/a/resourcelist.xml"]);
    world.write(SET_A, fewer.channel("/new/", &[]));
    let of_b = list("changelist").version(5).of("/b");
    world.write(CHANGE_LIST, of_b).wait(100);
    assert_eq!(late_news(&mut world), NOTHING);
}

#[test]
fn a_change_that_is_due_waits_for_its_document_while_that_is_missing() {
    for is_back in [true, false] {
        let mut world = world_with_a_due_change();
        move_a(&mut world);
        world.delete(CHANGE_LIST).wait(10).crash_and_start();
        assert_eq!(late_news_after(&mut world, 200), NOTHING);
        if is_back {
            world.write(CHANGE_LIST, list("changelist").version(9).of("/a"));
            assert_eq!(late_news(&mut world), [UPDATED]);
        } else {
            assert_eq!(late_news(&mut world), NOTHING);
        }
        assert_eq!(world.still_due(), 0);
    }
}

#[test]
fn a_change_that_was_withdrawn_and_is_due_no_more_stays_so_after_a_restart() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update(CHANGE_LIST);
    world.update("/a/resourcelist.xml").wait(100);
    move_a(&mut world);
    roll_back(&mut world);
    world.script(HUB, Reply::AtMost(1)).wait(10_000);
    assert_silent_after_restart(&mut world);
}

#[test]
fn a_hub_that_left_is_sent_nothing_twice_after_a_restart() {
    let mut world = World::with_two_sets(altered(two_hubs(), |plan| plan.window.max_entries = 1));
    world.write(SET_A, set_a(&[HUB])).wait(100);
    world.script(HUB, Reply::Status(503));
    world.update(CHANGE_LIST).wait(100);
    world.update("/a/resourcelist.xml").wait(100);
    world.write(SET_A, set_a(&[OTHER_HUB])).wait(100);
    world.script(HUB, Reply::FirstOf(2, 503)).wait(10_000);
    world.script(HUB, Reply::Status(503));
    let told = world.news();
    assert!(told.contains(&UPDATED.to_owned()), "{told:?}");
    assert!(world.due("/a", HUB) > 0, "it is still due something");
    assert_silent_after_restart(&mut world);
}

#[test]
fn what_only_a_hub_was_due_that_is_gone_is_not_due_to_the_others() {
    let mut world = World::with_two_sets(two_hubs()).with_down(HUB);
    world.update(CHANGE_LIST).wait(100);
    move_a(&mut world);
    let told = world.news_at(OTHER_HUB);
    assert!(told.contains(&UPDATED.to_owned()), "{told:?}");
    world.plan.hubs.remove(0);
    world.crash_and_start().wait(100);
    world.update(CHANGE_LIST).wait(100);
    world.crash_and_start().wait(1_000);
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
fn what_one_hub_is_due_is_not_due_to_another_that_accepted_it() {
    for is_changed in [false, true] {
        let mut world = World::with_two_sets(two_hubs()).with_down(HUB);
        world.update(CHANGE_LIST).wait(100);
        move_a(&mut world);
        assert_eq!(news_on_old_topic(&mut world, OTHER_HUB), [UPDATED]);
        if is_changed {
            world.update(CHANGE_LIST).wait(100);
        }
        world.crash_and_start().wait(100);
        let heard = news_on_old_topic(&mut world, OTHER_HUB);
        assert_eq!(heard, NOTHING, "{is_changed}");
        // Not what followed it.
        assert_eq!(late_news(&mut world), [UPDATED], "{is_changed}");
    }
}

#[test]
fn what_follows_a_change_in_flight_is_due_if_it_came_before_the_channel_retired() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(plan()).with_down(HUB);
        for _ in 0..2 {
            world.update(CHANGE_LIST).wait(100);
        }
        move_a(&mut world);
        world.update(CHANGE_LIST).wait(100);
        if is_restarted {
            world.crash_and_start();
        }
        assert_eq!(late_news(&mut world), [UPDATED, UPDATED]);
        world.update(CHANGE_LIST);
        assert_eq!(late_news(&mut world), NOTHING);
    }
}

#[test]
fn what_a_hub_that_left_is_due_is_not_due_to_those_that_stay() {
    let mut world = World::with_two_sets(two_hubs()).with_down(HUB);
    world.update(CHANGE_LIST).wait(100);
    world.write(SET_A, set_a(&[OTHER_HUB])).wait(100);
    world.write(SET_A, moved("/a", "/new/").version(2));
    world.wait(100);
    assert_eq!(news_on_old_topic(&mut world, OTHER_HUB), [UPDATED]);
    world.update(CHANGE_LIST).wait(100);
    world.crash_and_start().wait(100);
    assert_eq!(news_on_old_topic(&mut world, OTHER_HUB), NOTHING);
    // Not what followed it.
    assert_eq!(late_news(&mut world), [UPDATED]);
}

#[test]
fn what_a_hub_that_left_is_due_survives_the_return_of_the_channel_and_a_restart() {
    let mut world = World::with_two_sets(two_hubs()).with_down(HUB);
    world.update("/a/resourcelist.xml").wait(100);
    world.update(CHANGE_LIST).wait(100);
    world.write(SET_A, set_a(&[OTHER_HUB])).wait(100);
    world.delete(SET_A).wait(1_000);
    world.write(SET_A, set_a(&[OTHER_HUB]).version(1)).wait(100);
    world.crash_and_start().wait(100);
    assert_eq!(late_news(&mut world), [UPDATED]);
}

#[test]
fn what_is_undone_while_it_flies_on_a_retired_channel_is_told_no_more() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update(CHANGE_LIST).wait(100);
    move_a(&mut world);
    roll_back(&mut world);
    assert_eq!(late_news(&mut world), [UPDATED]);
}

#[test]
fn a_source_description_that_is_missing_is_not_told_on_a_retired_channel() {
    let retire: fn(&mut World) = move_a;
    let return_again: fn(&mut World) = |world| {
        world.delete(SET_A).wait(1_000);
        world.write(SET_A, set_a(&[]).version(1)).wait(100);
    };
    for change in [retire, return_again] {
        let mut world = world_with_a_due_change();
        world.write(DESCRIPTION, description().version(1)).wait(100);
        change(&mut world);
        world.delete(DESCRIPTION).wait(10);
        world.script(HUB, Reply::Accept).wait(200);
        let mut news = world.news_by_topic();
        let mut news = news.remove("/a/framework/").unwrap();
        assert!(news.len() > 1, "{news:?}");
        news.retain(|change| change.ends_with(DESCRIPTION));
        assert_eq!(news, NOTHING);
        world.write(DESCRIPTION, description().version(2)).wait(100);
        let news = world.news_by_topic();
        let change = format!("u description {DESCRIPTION}");
        assert_eq!(news["/a/framework/"], [change]);
    }
}

#[test]
fn a_retired_channel_ends_when_another_set_takes_its_topic() {
    for is_restarted in [false, true] {
        let mut world = World::with_two_sets(plan());
        world.update(CHANGE_LIST).wait(100);
        let before = world.heard_by(HUB).pop().unwrap();
        world.script(HUB, Reply::Status(503));
        world.update("/a/resourcelist.xml").wait(100);
        world.update(CHANGE_LIST).wait(100);
        move_a(&mut world);
        world.facts();
        move_b(&mut world, &["/a/framework/"]);
        // The Resource List in flight, the Change List, and the Capability List that moved.
        let dropped = world.dropped(DropCause::ChannelRemoved);
        assert_eq!(dropped[0], format!("{HUB} /a/framework/ 3"));
        if is_restarted {
            world.crash_and_start().wait(100);
        }
        world.script(HUB, Reply::Accept).wait(10_000);
        let mut heard = world.heard_by(HUB);
        heard.retain(|heard| heard.topic == "/a/framework/");
        // The set that took it was known, so none of its documents is new.
        let changes = heard.iter().flat_map(|heard| heard.changes());
        let changes: Vec<String> = changes.collect();
        assert_eq!(changes, ["u /b/capabilitylist.xml"]);
        // Numbers and times of the topic go on, and its first notification is the first of the set.
        assert_eq!(heard[0].payload.from, None);
        assert!(heard[0].seq > before.seq);
        assert!(heard[0].payload.until > before.payload.until);
        let page = world.fetch("/a/framework/").unwrap();
        assert_eq!(page.capability_list, uri(SET_B));
        world.update(DESCRIPTION).wait(10);
        let mut heard = world.heard_by(HUB);
        heard.retain(|heard| heard.topic == "/a/framework/");
        assert_eq!(heard.len(), 1, "once, as one set has the topic");
    }
}

#[test]
fn a_topic_that_is_fetched_has_nothing_of_the_set_that_had_it_before() {
    let mut world = World::with_two_sets(ping_hub()).with_down(HUB);
    world.update(CHANGE_LIST).wait(100);
    move_a(&mut world);
    move_b(&mut world, &["/a/framework/"]);
    world.script(HUB, Reply::Accept);
    world.update("/b/changelist.xml").wait(5_000);
    let page = world.fetch("/a/framework/").unwrap();
    let body = String::from_utf8_lossy(&page.body).into_owned();
    assert!(
        body.contains("/b/changelist.xml") && !body.contains("/a/changelist.xml"),
        "{body}"
    );
}

/// The Capability List of `/b` on a topic, with these hubs.
fn b_on(topic: &str, hubs: &[&str], version: u32) -> Doc {
    list("capabilitylist")
        .version(version)
        .up(DESCRIPTION)
        .lists(&["/b/resourcelist.xml", "/b/changelist.xml"])
        .channel(topic, hubs)
}

#[test]
fn a_set_that_takes_a_topic_over_with_fewer_hubs_creates_nothing_for_one_that_follows() {
    for is_down in [false, true] {
        for is_retired_first in [false, true] {
            let mut world = World::with_two_sets(two_hubs());
            if is_down {
                world.script(OTHER_HUB, Reply::Status(503));
            }
            world.update(CHANGE_LIST).wait(100);
            if is_retired_first {
                move_a(&mut world);
                world.write(SET_B, b_on("/a/framework/", &[HUB], 1));
            } else {
                world.write(SET_B, b_on("/a/framework/", &[HUB], 1));
                world.wait(100);
                move_a(&mut world);
            }
            world.wait(100).update("/b/resourcelist.xml").wait(100);
            world.write(SET_B, b_on("/a/framework/", &[HUB, OTHER_HUB], 2));
            world.wait(100);
            world.script(OTHER_HUB, Reply::Accept).wait(10_000);
            for hub in [HUB, OTHER_HUB] {
                assert_updates(&world.news_at(hub));
            }
            world.update("/b/changelist.xml").wait(100);
            let change = "u /b/changelist.xml";
            assert_eq!(world.news_at(OTHER_HUB), [change]);
        }
    }
}

#[test]
fn a_topic_that_two_sets_swap_while_a_hub_is_down_creates_nothing() {
    let mut world = World::with_two_sets(two_hubs()).with_down(OTHER_HUB);
    world.update(CHANGE_LIST).wait(100);
    for version in [1, 3] {
        world.write(SET_A, moved("/a", "/new/").version(version));
        world.wait(100);
        world.write(SET_B, b_on("/a/framework/", &[HUB], version));
        world.wait(100);
        world.write(SET_B, b_on("/b/framework/", &[], version + 1));
        world.wait(100);
        world.write(SET_A, set_a(&[]).version(version + 1));
        world.wait(100);
    }
    world.script(OTHER_HUB, Reply::Accept).wait(10_000);
    for hub in [HUB, OTHER_HUB] {
        assert_updates(&world.news_at(hub));
    }
}

#[test]
fn what_was_dropped_with_a_hub_that_left_for_long_is_not_created_when_it_returns() {
    let mut world = world_with_a_due_change();
    let foreign = set_a(&["https://foreign.example.com/"]);
    world.plan.retired_topic = std::time::Duration::from_secs(3_600);
    world.reload();
    world.write(SET_A, foreign).wait(3 * 3_600).news();
    world.script(HUB, Reply::Accept);
    world.write(SET_A, set_a(&[]).version(3));
    world.expect(10_000, ["u /a/capabilitylist.xml"]);
}

#[test]
fn a_document_that_is_deleted_while_its_set_is_away_is_told_deleted_when_it_returns() {
    for is_away in [false, true] {
        let mut world = World::with_two_sets(all_deletions());
        if is_away {
            world.delete(SET_A);
        } else {
            let foreign = set_a(&["https://foreign.example.com/"]);
            world.write(SET_A, foreign);
        }
        world.wait(1_000);
        world.delete(CHANGE_LIST).wait(1_000).news();
        world.write(SET_A, set_a(&[]).version(3)).wait(1_000);
        let news = world.news();
        let deleted = "d /a/changelist.xml".to_owned();
        assert!(news.contains(&deleted), "{is_away} {news:?}");
        assert_eq!(news.len(), 2, "{news:?}");
        assert!(!world.remembers(CHANGE_LIST));
    }
}

/// A deletion that was dropped is told to nobody, so that nothing is kept of the document.
#[test]
fn a_deletion_that_a_hub_is_due_no_more_is_forgotten_with_its_document() {
    let mut plan = plan();
    plan.sources[0].announce_all_deletions = true;
    plan.retired_topic = std::time::Duration::from_secs(24 * 3_600);
    let mut world = World::with_two_sets(plan).with_down(HUB);
    world.delete(CHANGE_LIST).wait(1_000);
    let foreign = set_a(&["https://foreign.example.com/"]);
    world.write(SET_A, foreign).wait(1_000);
    assert!(world.remembers(CHANGE_LIST));
    world.wait(3 * 24 * 3_600);
    assert!(!world.remembers(CHANGE_LIST));
    world.write(CHANGE_LIST, list("changelist").of("/a"));
    world.wait(1_000).script(HUB, Reply::Accept);
    world.write(SET_A, set_a(&[]).version(3)).wait(10_000);
    let news = world.news();
    assert!(news.contains(&"c /a/changelist.xml".to_owned()), "{news:?}");
}

/// R11, R13: only what was dropped counts as told.
#[test]
fn what_came_while_a_set_had_no_hub_is_created_once_it_has_one_again() {
    let mut world = world_with_a_due_change();
    world.plan.retired_topic = std::time::Duration::from_secs(24 * 3_600);
    world.reload();
    world.write(SET_A, set_a(&["https://foreign.example.com/"]));
    world.wait(100);
    for name in ["/a/before.xml", "/a/after.xml"] {
        world.write(name, list("resourcedump").of("/a"));
        world.wait(3 * 24 * 3_600);
    }
    world.news();
    world.script(HUB, Reply::Accept);
    world.write(SET_A, set_a(&[]).version(3));
    let created = ["before", "after"].map(|name| format!("c resourcedump /a/{name}.xml"));
    let want = ["u /a/capabilitylist.xml", &created[0], &created[1]];
    world.expect(10_000, want);
}
