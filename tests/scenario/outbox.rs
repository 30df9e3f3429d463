//! Operator commands for a hub that does not accept: inspect, retry, drop (R23).

use rsnotify::report;
use rsnotify::report::outbox::AccountView;
use rsnotify::report::status::Condition;
use websub::publisher::reason::RefusalKind;

use crate::operators::{dropped, refused};
use crate::world::{HUB, Reply, World, capability_list, list, names, plan, two_hubs};

const NOTHING: [&str; 0] = [];

fn next(account: &AccountView) -> Vec<String> {
    let paths = account.changes.iter().map(|entry| {
        let path = entry.uri.as_str().replace("https://example.org", "");
        format!("{} {path}", entry.change)
    });
    paths.collect()
}

#[test]
fn changes_whose_window_is_open_are_dropped_too() {
    let mut world = World::with_two_sets(plan());
    world.update("/a/changelist.xml");
    world.wait(1);
    assert!(
        world
            .outbox("/a", HUB)
            .waits
            .unwrap()
            .contains("further changes")
    );
    world.drop_due("/a", HUB);
    world.wait(100);
    assert_eq!(world.news(), NOTHING);
    assert_eq!(dropped(&mut world), [1]);
    world.drop_due("/a", HUB);
    assert_eq!(dropped(&mut world), Vec::<usize>::new(), "nothing is due");
}

#[test]
fn what_is_held_or_missing_is_not_due_and_is_not_dropped() {
    let mut world = World::with_two_sets(plan());
    world.write("/a/new.xml", list("changelist").up("/a/capabilitylist.xml"));
    world.write(
        "/a/lost.xml",
        list("changelist").up("/a/capabilitylist.xml"),
    );
    world.delete("/a/lost.xml");
    world.update("/a/changelist.xml");
    world.wait(1);
    let account = world.outbox("/a", HUB);
    assert_eq!(next(&account), ["updated /a/changelist.xml"]);
    let held: Vec<&str> = account.held.iter().map(|held| held.uri.as_str()).collect();
    assert_eq!(
        held,
        [
            "https://example.org/a/lost.xml",
            "https://example.org/a/new.xml"
        ]
    );
    assert!(account.held[0].reason.contains("missing"), "{account:?}");
    assert!(account.held[1].reason.contains("lists it"), "{account:?}");
    world.drop_due("/a", HUB);
    assert_eq!(dropped(&mut world), [1]);
    world.write(
        "/a/lost.xml",
        list("changelist").up("/a/capabilitylist.xml"),
    );
    world.write(
        "/a/capabilitylist.xml",
        capability_list("/a", &["resourcelist", "changelist", "new", "lost"]),
    );
    world.wait(100);
    let mut news = world.news();
    news.sort();
    assert_eq!(
        news,
        [
            "created changelist /a/lost.xml",
            "created changelist /a/new.xml",
            "updated capabilitylist /a/capabilitylist.xml",
        ]
    );
}

#[test]
fn the_outbox_shows_what_comes_next_once_what_is_in_flight_is_accepted() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(401));
    let dump = || list("changedump").up("/a/capabilitylist.xml");
    world.write("/a/changelist.xml", dump());
    world.wait(10);
    let account = world.outbox("/a", HUB);
    assert_eq!(next(&account), NOTHING, "all of it is in flight");
    let flight = account.notification.unwrap();
    assert_eq!((flight.seq, flight.changes.len()), (1, 1));
    assert!(flight.payload.unwrap().contains("/a/changelist.xml"));
    world.write("/a/changelist.xml", dump().version(1));
    world.update("/a/resourcelist.xml");
    world.wait(10);
    let account = world.outbox("/a", HUB);
    assert_eq!(account.hub.due, 2);
    let wanted = ["updated /a/changelist.xml", "updated /a/resourcelist.xml"];
    assert_eq!(next(&account), wanted);
    world.script(HUB, Reply::Accept);
    world.retry(None);
    assert_eq!(
        world.news(),
        [
            "created changedump /a/changelist.xml",
            "updated changedump /a/changelist.xml",
            "updated resourcelist /a/resourcelist.xml",
        ]
    );
    assert_eq!(next(&world.outbox("/a", HUB)), NOTHING);
}

#[test]
fn the_last_answer_is_known_whatever_it_was_and_after_a_restart() {
    let mut world = refused(plan(), 403);
    world.crash_and_start();
    let account = world.outbox("/a", HUB);
    assert_eq!(account.hub.state, Condition::NeedsOperator);
    let last = account.hub.last.unwrap();
    assert_eq!(
        (last.status, &*last.excerpt, last.seq),
        (Some(403), "words", 1)
    );
    assert_eq!(last.refusal.unwrap().kind, RefusalKind::NotAllowed);
    world.script(HUB, Reply::Accept);
    world.retry(None);
    let account = world.outbox("/a", HUB);
    assert_eq!(account.hub.state, Condition::Fine);
    let last = account.hub.last.unwrap();
    assert_eq!((last.status, last.refusal), (Some(202), None));
    assert_eq!(account.hub.last_failure, None);
}

#[test]
fn a_hub_without_subscribers_is_no_trouble() {
    for (status, state) in [
        (400, Condition::NeedsOperator),
        (503, Condition::Failing),
        (500, Condition::NoSubscribers),
    ] {
        let mut world = World::with_two_sets(plan());
        world.script(HUB, Reply::Say(status, ""));
        world.update("/a/changelist.xml");
        world.wait(10);
        assert_eq!(world.outbox("/a", HUB).hub.state, state, "{status}");
    }
}

#[test]
fn an_account_is_named_by_its_topic_or_its_capability_list() {
    let mut world = World::with_two_sets(two_hubs());
    let engine = world.engine();
    let list = "https://example.org/a/capabilitylist.xml";
    let (id, hub) = report::outbox::account(&engine.reader(world.now), &names(list, HUB)).unwrap();
    let topic = "https://example.org/a/framework/";
    assert_eq!(
        report::outbox::account(&engine.reader(world.now), &names(topic, HUB)).unwrap(),
        (id, hub)
    );
    for (channel, hub, says) in [
        (
            "https://example.org/a/framework",
            HUB,
            "there is https://example.org/a/framework/, https:",
        ),
        (
            topic,
            "https://hub.example.net",
            "there is https://hub.example.net/, https://other",
        ),
        (topic, "embedded", "is not told to \"embedded\""),
        ("", "", "no channel"),
    ] {
        let error = report::outbox::account(&engine.reader(world.now), &names(channel, hub))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    // Its topic moves: the list names the channel that lives, the old topic the one that retired.
    let moved = list_with_topic("/a/moved/");
    world.write("/a/capabilitylist.xml", moved);
    world.wait(100);
    let engine = world.engine();
    assert_ne!(
        report::outbox::account(&engine.reader(world.now), &names(list, HUB))
            .unwrap()
            .0,
        id
    );
    assert_eq!(
        report::outbox::account(&engine.reader(world.now), &names(topic, HUB))
            .unwrap()
            .0,
        id
    );
}

fn list_with_topic(topic: &str) -> crate::world::Doc {
    list("capabilitylist")
        .up("/.well-known/resourcesync")
        .lists(&["/a/resourcelist.xml", "/a/changelist.xml"])
        .channel(topic, &[])
}
