//! The wall clock is set, and nothing changes but the times that are said.

use std::time::Duration;

use announce::event::Fact;
use announce::plan::{Plan, PublishMode};
use jiff::{SignedDuration, Timestamp};

use crate::world::{HUB, OTHER_HUB, Reply, SET_B, World, list, plan, set_hubs};

const DAY: u64 = 86_400;
const LIST: &str = "/a/changes.xml";

/// The observations of a hub and of readers of topics, each with the second since the wall clock was set.
type Course = Vec<(i64, String)>;

/// A world of sets with change channels, one of which has changes that were taken. Another hub left that of `/c`, which
/// still has to hear of it, and the topic of `/d` moved: both twice, in a month.
fn world(plan: Plan) -> World {
    let mut world = World::with_two_sets(plan);
    world.write_changes(LIST, &["u z 2026-11-20T12:00:00Z"]);
    world.write_set("/c", &["changelist"]);
    world.write_set("/d", &["changelist"]).wait(100);
    world.script(OTHER_HUB, Reply::Busy(503, 3_600));
    world.update("/c/changelist.xml").wait(10);
    for (hub, topic) in [(HUB, "/new/"), (OTHER_HUB, "/d/framework/"), (HUB, "/new/")] {
        for (set, topic, hubs) in [("/c", "/c/framework/", &[hub][..]), ("/d", topic, &[][..])] {
            let of_set = list("capabilitylist").lists(&[&format!("{set}/changelist.xml")]);
            let name = format!("{set}/capabilitylist.xml");
            world.write(&name, of_set.channel(topic, hubs));
        }
        world.wait(15 * DAY);
    }
    world.update("/.well-known/resourcesync").crash();
    world.plan.sources[0].change_notifications = true;
    world.start().wait(3_600).news();
    world.changes();
    world
}

/// Lets time pass in steps of a second, and notes what is sent meanwhile, without the times that are said.
fn pass(world: &mut World, seconds: u64, since: Timestamp, course: &mut Course) {
    for _ in 0..seconds {
        world.wait(1);
        let second = world.now.duration_since(since).as_secs();
        for attempt in world.attempts_at(HUB) {
            // Their order is that of their times.
            let mut changes = attempt.changes();
            changes.sort();
            course.push((second, format!("submitted {changes:?}")));
        }
        let mut news = world.news();
        news.sort();
        course.extend(news.into_iter().map(|news| (second, news)));
        for heard in world.changes_heard_by(HUB) {
            assert!(heard.payload.from < heard.payload.until);
            let said = heard.entries();
            let said = said.iter().map(|entry| entry.split(' ').take(2).collect());
            let said: Vec<Vec<&str>> = said.collect();
            course.push((second, format!("{said:?}")));
        }
        for fact in world.facts() {
            if let Fact::Broken { uri, .. } | Fact::HoldExpired { uri, .. } = fact {
                course.push((second, format!("reported {uri}")));
            }
        }
    }
}

/// The course of a world whose wall clock is set by so much for a minute.
fn course(plan: Plan, by: SignedDuration) -> Course {
    let mut world = world(plan);
    let mut course = Course::new();
    let since = world.now;
    // An open window, a retry that waits, a grace, a hold, a broken file, and a round that is due.
    world.script(HUB, Reply::Status(503));
    world.update("/a/resourcelist.xml");
    pass(&mut world, 10, since, &mut course);
    world.update("/a/changelist.xml").delete(SET_B);
    world.write_changes(LIST, &["u z 2026-11-20T12:00:00Z", "u a"]);
    world.set_clock(by);
    world.write_text("/a/broken.xml", b"<urlset");
    world.write_list("/a/new.xml", "changelist");
    // It is not told of the Source Description (R10).
    world.write_set("/e", &["resourcelist"]);
    pass(&mut world, 20, since, &mut course);
    world.script(HUB, Reply::Accept).update("/b/changelist.xml");
    world.write_changes(LIST, &["u z 2026-11-20T12:00:00Z", "u a", "d b"]);
    pass(&mut world, 40, since, &mut course);
    world.set_clock(-by);
    world.update("/a/changelist.xml");
    world.write_changes(LIST, &["u z 2026-11-20T12:00:00Z", "u a", "d b", "c c"]);
    pass(&mut world, 900, since, &mut course);
    world.script(OTHER_HUB, Reply::Accept).wait(4_000);
    let mut late = world.news_at(OTHER_HUB);
    late.sort();
    course.push((0, format!("late {late:?}")));
    for day in 0..32 {
        world.wait(DAY);
        course.push((day, format!("{:?}", world.topics())));
    }
    course
}

#[test]
fn a_wall_clock_that_is_set_for_a_minute_changes_nothing_but_the_times_that_are_said() {
    for mode in [PublishMode::Content, PublishMode::Ping] {
        let mut plan = plan();
        set_hubs(&mut plan, &[(HUB, mode), (OTHER_HUB, PublishMode::Content)]);
        let undisturbed = course(plan.clone(), SignedDuration::ZERO);
        for name in ["broken", "new"] {
            let reported = format!("reported https://example.org/a/{name}.xml");
            assert!(undisturbed.iter().any(|(_, what)| *what == reported));
        }
        let is_late = |(_, what): &(i64, String)| {
            what.starts_with("late") && what.contains("u /c/changelist.xml")
        };
        assert!(undisturbed.iter().any(is_late), "{undisturbed:?}");
        for hours in [365 * 24, -1] {
            let course = course(plan.clone(), SignedDuration::from_hours(hours));
            assert_eq!(course, undisturbed, "{hours} h");
        }
    }
}

#[test]
fn the_time_of_an_entry_is_that_of_the_wall_clock() {
    for hours in [365 * 24, -1] {
        let mut world = World::with_two_sets(plan());
        world.set_clock(SignedDuration::from_hours(hours));
        world.update("/a/changelist.xml");
        let at = world.wall();
        world.wait(10);
        let heard = world.heard_by(HUB);
        let said = heard[0].payload.entries[0].datetime.unwrap();
        assert_eq!(said.duration_since(at).unsigned_abs(), Duration::ZERO);
        assert!(heard[0].payload.until.unwrap() > at);
    }
}

#[test]
fn a_run_goes_on_from_the_last_time_saved_although_the_wall_clock_is_earlier() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    world.update("/a/changelist.xml").delete(SET_B).wait(400);
    let before = world.now;
    world.crash();
    world.set_clock(SignedDuration::from_hours(-24 * 365));
    world.start();
    assert!(world.now + Duration::from_secs(400) > before);
    world.script(HUB, Reply::Accept);
    let deleted = "d /b/capabilitylist.xml";
    world.expect_sorted(HUB, 35, [deleted, "u /a/changelist.xml"]);
    world.wait(29 * DAY);
    assert_eq!(world.topics().len(), 2);
    world.wait(2 * DAY);
    assert_eq!(world.topics().len(), 1);
}
