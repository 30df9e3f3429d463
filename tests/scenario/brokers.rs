//! Message brokers: told like hubs, and advertised by nothing (F1, F7).

use announce::event::{AnswerOutcome, Fact};
use announce::plan::{BrokerPlan, Plan};
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Hub;
use rstest::rstest;
use websub::answer::BrokerRefusal;
use websub::publisher::reason::RefusalKind;

use crate::channels::configured;
use crate::world::{
    HUB, NOTHING, Reply, SET_A, World, capability_list, list, plan, told, two_hubs,
};

const BROKER: &str = "repository";
const BOTH: [ChannelKind; 2] = [ChannelKind::Framework, ChannelKind::Change];
const UPDATED: &str = "u /a/changelist.xml";

fn broker(name: &str, channels: &[ChannelKind]) -> BrokerPlan {
    BrokerPlan {
        name: Hub::new(name),
        channels: channels.to_vec(),
        sources: None,
    }
}

fn with_broker(mut plan: Plan, channels: &[ChannelKind]) -> Plan {
    plan.brokers.push(broker(BROKER, channels));
    plan
}

#[test]
fn a_broker_is_told_like_a_hub_and_no_topic_names_it() {
    let mut world = World::with_two_sets(with_broker(plan(), &BOTH));
    world.update("/a/changelist.xml").wait(10);
    let (hub, broker) = (world.heard_by(HUB), world.heard_by(BROKER));
    assert_eq!(broker.len(), 1);
    assert_eq!(hub[0].body, broker[0].body);
    let page = world.fetch("/a/framework/").unwrap();
    assert_eq!(page.hubs, [Hub::new(HUB)]);
}

#[test]
fn a_broker_is_sent_the_kinds_and_sources_that_are_configured() {
    for (channels, sources, want) in [
        (&BOTH[..1], None, 1),
        (&BOTH[1..], None, 0),
        (&BOTH[..], Some("main"), 1),
        (&BOTH[..], Some("other"), 0),
    ] {
        let mut plan = with_broker(plan(), channels);
        plan.brokers[0].sources = sources.map(|source| vec![source.to_owned()]);
        let mut world = World::with_two_sets(plan);
        world.update("/a/changelist.xml").wait(10);
        let heard = world.heard_by(BROKER).len();
        assert_eq!(heard, want, "{channels:?} {sources:?}");
    }
}

#[rstest]
#[case::only_foreign_hubs("/a/framework/", "https://foreign.example/")]
#[case::a_topic_that_cannot_be_served("https://elsewhere.example/t", HUB)]
fn a_set_that_advertises_what_no_hub_is_sent_has_brokers(#[case] topic: &str, #[case] hub: &str) {
    let mut world = World::new(with_broker(plan(), &BOTH));
    world.write_set("/a", &["changelist"]);
    let capabilities = list("capabilitylist").lists(&["/a/changelist.xml"]);
    let doc = capabilities.channel(topic, &[hub]);
    world.write(SET_A, doc).wait(10).start().wait(100);
    world.update("/a/changelist.xml");
    world.expect_at(HUB, 10, NOTHING);
    assert_eq!(world.news_at(BROKER), [UPDATED]);
}

#[test]
fn a_set_that_advertises_no_channel_has_one_for_the_broker_alone() {
    let mut plan = with_broker(plan(), &BOTH);
    plan.sources[0].unadvertised_channels = false;
    plan.hubs.clear();
    let mut world = World::new(plan);
    world.write("/b/changelist.xml", list("changelist").up("/b/cl.xml"));
    let doc = list("capabilitylist").lists(&["/b/changelist.xml"]);
    world.write("/b/cl.xml", doc).wait(10).start().wait(100);
    world.update("/b/changelist.xml").wait(10);
    assert_eq!(world.heard_by(BROKER).len(), 1);
    assert_eq!(world.findings(), []);
    assert_eq!(world.topics(), NOTHING, "nobody is to subscribe to it");
    world.crash_and_start().wait(100);
    assert_eq!(world.topics(), NOTHING);
}

/// R8, R9: what is the topic of another set stays there, be it configured for that one or advertised by it.
#[test]
fn a_channel_for_brokers_alone_takes_no_topic_that_another_set_has() {
    let mut plan = with_broker(plan(), &BOTH[..1]);
    plan.channels = vec![configured(
        "https://example.org/a/capabilitylist.xml",
        "https://example.org/a/framework/",
    )];
    let mut world = World::new(plan);
    for set in ["/a", "/b", "/c"] {
        world.write_set(set, &["changelist"]);
    }
    let advertise = |world: &mut World, set: &str, topic: &str| {
        let capabilities = list("capabilitylist").lists(&[&format!("{set}/changelist.xml")]);
        let path = format!("{set}/capabilitylist.xml");
        world.write(&path, capabilities.channel(topic, &[HUB]));
    };
    advertise(&mut world, "/c", "/topics/main/b/capabilitylist/");
    world.wait(10).start().wait(100);
    // Its own topic is another's, and so is the default one.
    advertise(&mut world, "/b", "/a/framework/");
    world.wait(100);
    for name in [HUB, BROKER] {
        world.news_at(name);
    }
    world.update("/b/changelist.xml");
    world.update("/c/changelist.xml").wait(100);
    for name in [HUB, BROKER] {
        assert_eq!(world.news_at(name), ["u /c/changelist.xml"], "{name}");
    }
}

/// C21, C23: positions in a notification make ids (F4).
#[test]
fn what_was_logged_for_a_broker_is_sent_whole_although_fewer_entries_are_configured() {
    let mut world = World::new(with_broker(plan(), &BOTH[1..]));
    world.write_changes("/a/changelist.xml", &["u z 00:00"]);
    let set = capability_list("/a", &["changelist"]).change_channel("/a/change/", &[]);
    world.write(SET_A, set).wait(10).start().wait(10);
    world.script(BROKER, Reply::Fail(30));
    // One in flight, and one behind it.
    let entries = ["u z 00:00", "u a 01:00", "u b 02:00", "u c 03:00"];
    for count in [2, 4] {
        world.write_changes("/a/changelist.xml", &entries[..count]);
        world.wait(60);
    }
    world.plan.window.max_entries = 1;
    world.reload();
    world.script(BROKER, Reply::Accept).wait(120);
    let heard = world.changes_heard_by(BROKER);
    let told: Vec<_> = heard.iter().map(|heard| heard.entries().len()).collect();
    assert_eq!(told, [1, 2]);
}

#[test]
fn an_error_about_the_login_needs_an_operator_and_a_retry_tries_at_once() {
    let mut world = World::with_two_sets(with_broker(plan(), &BOTH));
    for (refusal, kind) in [
        (BrokerRefusal::Credentials, RefusalKind::NotAllowed),
        (BrokerRefusal::Destination, RefusalKind::DestinationRefused),
    ] {
        world.script(BROKER, Reply::Error(refusal));
        world.update("/a/changelist.xml").wait(300);
        assert_eq!(world.attempts_at(BROKER).len(), 1, "{kind:?}");
        let facts = world.facts();
        let is_refused = |fact: &Fact| matches!(fact, Fact::Answered(_, AnswerOutcome::Refused { refusal, .. }) if refusal.needs_operator && refusal.kind == kind);
        assert!(facts.iter().any(is_refused), "{facts:?}");
        world.script(BROKER, Reply::Accept);
        world.retry(None).expect_at(BROKER, 1, [UPDATED]);
        world.attempts_at(BROKER);
    }
}

#[test]
fn a_broker_that_is_added_starts_at_now_and_takes_no_hub_s_place() {
    let mut world = World::with_two_sets(two_hubs());
    world.update("/a/changelist.xml").wait(10);
    // A hub goes, and a broker comes.
    world.plan = with_broker(plan(), &BOTH);
    world.crash_and_start().expect_at(BROKER, 1_000, NOTHING);
    world.update("/a/changelist.xml");
    world.expect_at(BROKER, 10, [UPDATED]);
    // And the other way.
    world.plan = two_hubs();
    world.crash_and_start().wait(1_000);
    assert!(!told!(world, Fact::HubReplaced { .. }));
}

#[test]
fn a_reload_that_narrows_a_broker_sends_its_last_changes() {
    let mut world = World::with_two_sets(with_broker(plan(), &BOTH));
    world.script(BROKER, Reply::Fail(0));
    world.update("/a/changelist.xml").wait(10);
    world.plan.brokers[0].channels = vec![ChannelKind::Change];
    world.reload();
    world.update("/a/resourcelist.xml").wait(10);
    world.script(BROKER, Reply::Accept);
    world.expect_at(BROKER, 100, [UPDATED]);
    assert_eq!(world.news_at(HUB).len(), 2);
}
