//! The daemon's status: verdict, pending changes, broken documents, last notifications; metrics of a tree: documents and
//! findings by kind.

use std::time::Duration;

use announce::history::{NotificationState, NotificationView};
use announce::plan::{Plan, SourcePlan};
use resourcesync::capability::Capability;
use resourcesync::payload::Payload;
use resourcesync::uri::Topic;
use rsnotify::report;
use rsnotify::report::documents::DocumentState;
use rsnotify::report::figures::SourceContents;
use rsnotify::report::status::alerts::{Health, StatusPart};
use rsnotify::report::status::{AccountCondition, ChannelView, Status};

use crate::world::{
    HUB, OTHER_HUB, Reply, SET_A, World, capability_list, index, list, mount, ping_hub, plan,
    two_hubs,
};

const CHANGED: &str = "/a/changelist.xml";

fn status(world: &World) -> Status {
    report::status(&world.engine().reader(world.now)).unwrap()
}

fn first(status: &Status) -> &ChannelView {
    let is_first = |channel: &&ChannelView| channel.set.as_str().contains("/a/");
    status.channels.iter().find(is_first).unwrap()
}

fn outcomes(notification: &NotificationView) -> Vec<NotificationState> {
    notification.hubs.iter().map(|hub| hub.outcome).collect()
}

/// A change that the first hub answers so, ten seconds ago.
fn answered(plan: Plan, reply: Reply) -> World {
    let mut world = World::with_two_sets(plan);
    world.script(HUB, reply).update(CHANGED).wait(10);
    world
}

#[test]
fn the_last_notifications_say_what_became_of_them_at_each_hub() {
    let mut world = answered(two_hubs(), Reply::Status(400));
    world.update("/b/changelist.xml").wait(1);
    world.script(HUB, Reply::Accept).wait(9);
    let status = status(&world);
    let [second, first] = &status.notifications[..] else {
        panic!("{:?}", status.notifications);
    };
    assert!(second.topic.as_str().ends_with("/b/framework/"));
    assert_eq!((second.seq, second.changes), (1, Some(1)));
    assert_eq!(outcomes(second), [NotificationState::Accepted; 2]);
    assert_eq!(
        outcomes(first),
        [NotificationState::Refused, NotificationState::Accepted]
    );
    let refused = &first.hubs[0];
    assert_eq!(refused.hub.as_str(), HUB);
    assert_eq!(refused.attempts, Some(1));
    assert!(
        refused.reason.as_ref().unwrap().contains("400"),
        "{refused:?}"
    );
    let heard = world.heard_by(OTHER_HUB);
    let payload = first.payload.as_ref().unwrap();
    assert_eq!(payload.0, heard[0].body);
    assert_eq!(first.bytes, Some(payload.0.len()));
}

#[test]
fn a_notification_that_was_dropped_or_was_too_large_says_so() {
    let mut world = answered(plan(), Reply::Status(403));
    world.drop_due("/a", HUB);
    let want = [NotificationState::Dropped];
    assert_eq!(outcomes(&status(&world).notifications[0]), want);
    world.script(HUB, Reply::AtMost(1)).update(CHANGED);
    world.update("/a/resourcelist.xml").wait(10);
    let fates: Vec<_> = status(&world).notifications.iter().map(outcomes).collect();
    let parts = [NotificationState::Accepted];
    assert_eq!(
        fates,
        [
            &parts[..],
            &parts,
            &[NotificationState::Withdrawn],
            &[NotificationState::Dropped]
        ]
    );
}

#[test]
fn a_restart_remembers_what_is_in_flight_and_the_last_notification_of_each_channel() {
    let mut world = answered(two_hubs(), Reply::Status(403));
    world.update("/b/changelist.xml").wait(10);
    world.update("/a/resourcelist.xml").wait(10);
    let before = status(&world);
    world.crash_and_start();
    let after = status(&world);
    let told = |status: &Status| -> Vec<_> {
        let all = status.notifications.iter();
        all.map(|shown| {
            (
                shown.topic.clone(),
                shown.seq,
                shown.payload.clone(),
                shown.changes,
            )
        })
        .collect()
    };
    assert_eq!(told(&after), told(&before));
    // Which of several attempts the hub accepted is not saved, nor what others said of an older one.
    let [last, other, first] = &after.notifications[..] else {
        panic!("{:?}", after.notifications);
    };
    assert_eq!(outcomes(last), [NotificationState::Accepted]);
    assert_eq!(last.hubs[0].attempts, None);
    assert_eq!(
        outcomes(other),
        [NotificationState::Refused, NotificationState::Accepted]
    );
    assert_eq!(outcomes(first), [NotificationState::Refused]);
}

#[test]
fn what_a_ping_hub_was_told_is_not_taken_for_the_page_that_it_read() {
    let mut world = World::with_two_sets(ping_hub());
    for name in [CHANGED, "/a/resourcelist.xml"] {
        world.update(name).wait(10);
        world.fetch("/a/framework/");
        world.wait(10);
    }
    let before = status(&world).notifications.remove(0);
    let said = Payload::parse(&before.payload.unwrap().0).unwrap();
    assert_eq!(said.entries.len(), 1, "the topic serves two by now");
    world.crash_and_start();
    let after = status(&world).notifications.remove(0);
    assert_eq!((after.seq, after.payload, after.changes), (2, None, None));
}

#[test]
fn what_waits_is_told_with_its_reason_and_since_when() {
    let mut world = World::with_two_sets(plan()).with_down(HUB);
    let changed = world.now;
    world.update(CHANGED).wait(1);
    let pending = |world: &World| {
        let status = status(world);
        let channel = first(&status);
        assert_eq!((channel.pending.len(), channel.pending_count()), (1, 1));
        (channel.pending[0].since, channel.pending[0].reason.clone())
    };
    let (since, reason) = pending(&world);
    assert_eq!(since, changed);
    let want = "it waits for further changes, until 2026-11-20T12:01:52Z";
    assert_eq!(reason, want);
    world.wait(5);
    let refused = format!("{HUB} has not accepted notification 1 yet");
    assert_eq!(pending(&world), (changed, refused));
    let later = world.now;
    world.update("/a/resourcelist.xml").wait(5);
    let status = status(&world);
    let reasons: Vec<_> = first(&status).pending.iter().collect();
    assert_eq!(reasons.len(), 2);
    let (since, reason) = (reasons[1].since, &reasons[1].reason);
    assert_eq!(since, later);
    let follows = format!("it follows notification 1, which {HUB} has not accepted yet");
    assert_eq!(*reason, follows);
}

#[test]
fn what_is_held_is_told_on_its_channel_and_of_many_only_the_oldest() {
    let mut world = World::with_two_sets(two_hubs());
    for number in 0..30 {
        let name = format!("/a/new-{number}.xml");
        world.write(&name, list("changelist").of("/a"));
    }
    world.wait(1).write_list("/a/later.xml", "changelist");
    world.update("/b/resourcelist.xml");
    world.delete("/b/resourcelist.xml").wait(5);
    let status = status(&world);
    let channel = first(&status);
    assert_eq!((channel.held.len(), channel.more_held), (10, 21));
    assert!(channel.held[0].uri.as_str().ends_with("/a/new-0.xml"));
    assert!(
        channel.held[0]
            .reason
            .contains("for a document that lists it")
    );
    assert_eq!(channel.pending_count(), 0);
    let other = status
        .channels
        .iter()
        .find(|other| *other != channel)
        .unwrap();
    assert_eq!(other.held_count(), 1);
    assert!(other.held[0].reason.contains("it has been missing since"));
    assert_eq!(status.health(), Health::Busy);
}

#[test]
fn a_broken_document_is_told_with_path_line_and_since_when() {
    let mut world = World::with_two_sets(plan());
    let since = world.now;
    world.break_off(CHANGED).break_off("/a/other.xml").wait(1);
    let shown = status(&world);
    assert!(shown.broken.iter().all(|broken| !broken.lasting));
    assert_eq!(shown.alerts(), []);
    world.wait(30);
    let shown = status(&world);
    let [known, unknown] = &shown.broken[..] else {
        panic!("{:?}", shown.broken);
    };
    assert_eq!(known.path, "/srv/www/a/changelist.xml");
    assert!(known.reason.contains("line"), "{}", known.reason);
    assert_eq!(known.since, since);
    assert_eq!((known.known, unknown.known), (true, false));
    let alerts = shown.alerts();
    assert_eq!((alerts.len(), alerts[0].part), (1, StatusPart::Broken));
    assert_eq!(alerts[0].what, "2 documents cannot be read");
    assert_eq!(shown.health(), Health::Look);
}

#[test]
fn what_may_still_be_written_elsewhere_does_not_hide_what_is_lastingly_broken() {
    let mut plan = plan();
    plan.sources.push(SourcePlan {
        name: "patient".to_owned(),
        mounts: vec![mount("/srv/other", "https://other.example.org/")],
        broken_after: Duration::from_secs(3_600),
        ..plan.sources[0].clone()
    });
    let mut world = World::with_two_sets(plan);
    world.break_off("https://other.example.org/a.xml").wait(1);
    let since = world.now;
    world.break_off(CHANGED).wait(30);
    let shown = status(&world);
    let lasting: Vec<bool> = shown.broken.iter().map(|broken| broken.lasting).collect();
    assert_eq!(lasting, [true, false]);
    let alerts = shown.alerts();
    assert_eq!((alerts.len(), alerts[0].since), (1, Some(since)));
    assert_eq!(alerts[0].what, "1 document cannot be read");
}

#[test]
fn the_verdict_is_what_is_most_urgent() {
    let mut world = World::with_two_sets(two_hubs());
    assert_eq!(status(&world).health(), Health::Fine);
    world.script(HUB, Reply::Status(503));
    world.update(CHANGED).wait(1);
    assert_eq!(status(&world).health(), Health::Busy);
    world.update("/b/changelist.xml").wait(10);
    let alerts = status(&world).alerts();
    assert_eq!(
        alerts.len(),
        1,
        "one for a hub, whatever the number of channels"
    );
    assert!(
        alerts[0].what.contains("of 2 channels: "),
        "{}",
        alerts[0].what
    );
    assert_eq!(alerts[0].urgency, Health::Look);
    world.unmount(0);
    let alerts = status(&world).alerts();
    let urgencies: Vec<Health> = alerts.iter().map(|alert| alert.urgency).collect();
    assert_eq!(urgencies, [Health::Act, Health::Look]);
    assert!(alerts[0].what.contains("/srv/www (main) is not there"));
}

#[test]
fn a_hub_is_summed_up_over_all_channels() {
    let mut world = answered(two_hubs(), Reply::Status(401));
    world.update("/b/changelist.xml").wait(10);
    let status = status(&world);
    let hubs = status.hubs();
    assert_eq!(hubs.len(), 2);
    assert_eq!(hubs[0].hub.as_str(), HUB, "the one in trouble comes first");
    assert_eq!((hubs[0].channels, hubs[0].due), (2, 2));
    assert_eq!(hubs[0].states_in_words(), "2 action required");
    assert_eq!(hubs[0].troubles.len(), 1);
    assert_eq!(hubs[0].last.unwrap().status, Some(401));
    assert!(hubs[0].accepted.is_none() && hubs[1].accepted.is_some());
    let by_trouble = status.channels_by_trouble();
    assert!(
        by_trouble
            .iter()
            .all(|channel| channel.worst().is_trouble())
    );
}

#[test]
fn a_set_whose_list_still_advertises_the_hub_before_is_muted_and_says_so_loudly() {
    const OLD: &str = "https://old.example.net/";
    let mut world = World::with_two_sets(plan());
    let advertising = list("capabilitylist")
        .up("/.well-known/resourcesync")
        .lists(&["/a/resourcelist.xml", "/a/changelist.xml"])
        .channel("/a/framework/", &[OLD]);
    world.write(SET_A, advertising).update(CHANGED).wait(100);
    let status = status(&world);
    let [muted] = &status.muted[..] else {
        panic!("{:?}", status.muted);
    };
    let want = "https://example.org/a/capabilitylist.xml";
    assert_eq!(muted.set.as_str(), want);
    assert_eq!(muted.kind, "foreign_hubs");
    assert_eq!(first(&status).worst(), AccountCondition::Muted);
    assert_eq!(status.health(), Health::Act);
    let alerts = status.alerts();
    let what = format!(
        "NOTHING IS SENT of {}: it advertises only hubs that are not configured: {OLD}",
        muted.set
    );
    assert_eq!((alerts[0].urgency, &alerts[0].what), (Health::Act, &what));
    let advice = alerts[0].advice.as_ref().unwrap();
    for part in [HUB, OLD, "[[hub]]", "`rsnotify advertise`"] {
        assert!(advice.contains(part), "{advice}");
    }
    assert_eq!(
        report::summary(&world.engine().reader(world.now))
            .unwrap()
            .muted,
        1
    );
}

#[test]
fn the_number_of_pending_changes_is_kept_as_channels_change() {
    let mut world = World::with_two_sets(two_hubs());
    let count = |world: &mut World| {
        let status = status(world);
        let hubs = status.channels.iter().flat_map(|channel| &channel.hubs);
        let due: usize = hubs.map(|hub| hub.due).sum();
        assert_eq!(report::pending_count(world.engine().db()).unwrap(), due);
        due
    };
    assert_eq!(count(&mut world), 0);
    world.script(HUB, Reply::Status(503)).update(CHANGED);
    world.update("/b/changelist.xml").wait(10);
    assert_eq!(count(&mut world), 2);
    world.update("/a/resourcelist.xml").wait(10);
    assert_eq!(count(&mut world), 3);
    world.drop_due("/b", HUB);
    assert_eq!(count(&mut world), 2);
    world.script(HUB, Reply::Accept).wait(3_600);
    assert_eq!(count(&mut world), 0);
}

#[test]
fn a_set_whose_change_channel_alone_has_foreign_hubs_is_muted_for_changes_of_resources() {
    let mut world = World::with_two_sets(plan());
    let foreign = &["https://old.example.net/"];
    let set = capability_list("/a", &["changelist"]).change_channel("/a/change/", foreign);
    world.write(SET_A, set).wait(100);
    let status = report::status(&world.engine().reader(world.now)).unwrap();
    let [muted] = &status.muted[..] else {
        panic!("{:?}", status.muted);
    };
    let want = Some("https://example.org/a/change/");
    assert_eq!(muted.topic.as_ref().map(Topic::as_str), want);
    assert_eq!(
        muted.reason,
        "for changes of resources it advertises only hubs that are not configured: https://old.example.net/"
    );
}

/// Returns the holdings of the only source, and the numbers of documents and missing ones in its status.
fn holdings(world: &World) -> (SourceContents, usize, usize) {
    let mut status = report::status(&world.engine().reader(world.now)).unwrap();
    let holdings = status.figures.holdings.pop_first().unwrap().1;
    let source = &status.sources[0];
    (holdings, source.documents, source.missing)
}

#[test]
fn each_document_counts_once_by_what_it_is_by_itself() {
    use Capability::{CapabilityList, ChangeList, ResourceDump, ResourceList, SourceDescription};
    use DocumentState::{Announced, Broken, Held, Missing, Silent, Unrouted};
    let mut world = World::with_two_sets(plan());
    world.write("/orphan.xml", list("changelist"));
    world.write("/a/index.xml", index("resourcedump").of("/a"));
    world.write_list("/a/new.xml", "changelist");
    world.delete("/b/resourcelist.xml");
    world.break_off("/b/changelist.xml").wait(20);
    let (found, documents, missing) = holdings(&world);
    let kinds = [
        ((SourceDescription, Announced), 1),
        ((CapabilityList, Announced), 2),
        ((ResourceList, Announced), 1),
        ((ResourceList, Missing), 1),
        ((ResourceDump, Silent), 1),
        ((ChangeList, Announced), 1),
        ((ChangeList, Held), 1),
        ((ChangeList, Broken), 1),
        ((ChangeList, Unrouted), 1),
    ];
    let there = found.documents.iter().filter(|(_, many)| **many > 0);
    let there: Vec<_> = there.map(|(kind, many)| (*kind, *many)).collect();
    let mut kinds = kinds.to_vec();
    kinds.sort();
    assert_eq!(there, kinds);
    assert_eq!((documents, missing), (10, 1));
    assert!(found.broken_since.is_some());
    assert_eq!(
        found.findings.get("unrouted"),
        Some(&1),
        "{:?}",
        found.findings
    );
}

#[test]
fn a_document_that_is_gone_or_mended_counts_no_more() {
    let mut world = World::with_two_sets(plan());
    let before = holdings(&world).0;
    world.delete("/b/resourcelist.xml");
    world.break_off("/b/changelist.xml").wait(20);
    assert_ne!(holdings(&world).0.documents, before.documents);
    let mended = list("changelist").of("/b");
    world.write("/b/changelist.xml", mended).wait(1_000);
    let (after, documents, missing) = holdings(&world);
    assert_eq!((documents, missing), (6, 0));
    assert_eq!(after.broken_since, None);
    let broken = after
        .documents
        .keys()
        .any(|(_, state)| *state == DocumentState::Broken);
    assert!(!broken, "{:?}", after.documents);
}

#[test]
fn the_outline_is_the_status_without_its_lists() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Status(403));
    world.write("/orphan.xml", list("changelist"));
    world.write_list("/a/new.xml", "changelist");
    world.break_off("/b/changelist.xml");
    world.update("/a/changelist.xml").wait(30);
    let mut status = report::status(&world.engine().reader(world.now)).unwrap();
    for list in [
        status.broken.len(),
        status.findings.len(),
        status.finding_groups.len(),
        status.notifications.len(),
        status.channels[0].pending.len(),
        status.channels[0].held.len(),
    ] {
        assert_ne!(list, 0, "{status:#?}");
    }
    status.broken.clear();
    status.findings.clear();
    status.finding_groups.clear();
    status.notifications.clear();
    for channel in &mut status.channels {
        channel.pending.clear();
        channel.held.clear();
    }
    assert_eq!(
        report::outline(&world.engine().reader(world.now)).unwrap(),
        status
    );
}
