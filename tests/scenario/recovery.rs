//! A hub that fails and recovers: the failure concerns the hub, and not each channel; answers that are no acceptance: a
//! denial, and 413 to what cannot be halved; what was never answered is cut again (R22, R23).

use std::time::Duration;

use announce::event::{AnswerOutcome, Fact};
use announce::plan::Plan;
use jiff::Timestamp;
use rstest::rstest;

use crate::world::{HUB, Heard, NOTHING, Reply, World, all_deletions, index, list, ping_hub, plan};

const SETS: usize = 40;

/// A world with so many sets of two documents, all known.
fn sets(plan: Plan, count: usize) -> World {
    let mut world = World::new(plan);
    for number in 0..count {
        world.write_set(&set(number), &["resourcelist", "changelist"]);
    }
    world.wait(10).start().expect_nothing(100);
    world.facts();
    world
}

fn set(number: usize) -> String {
    format!("/s{number:04}")
}

fn update_all(world: &mut World, count: usize) {
    for number in 0..count {
        world.update(&format!("{}/changelist.xml", set(number)));
    }
}

/// The most of these times that lie within 30 s.
fn most_in_30_s(attempts: &[Heard]) -> usize {
    let times: Vec<Timestamp> = attempts.iter().map(|attempt| attempt.at).collect();
    let within = |from: &Timestamp| {
        let until = *from + Duration::from_secs(30);
        times
            .iter()
            .filter(|at| (*from..until).contains(at))
            .count()
    };
    times.iter().map(within).max().unwrap_or_default()
}

fn gaps(attempts: &[Heard]) -> Vec<f64> {
    let pairs = attempts.windows(2);
    pairs
        .map(|two| two[1].at.duration_since(two[0].at).as_secs_f64())
        .collect()
}

fn refusals_told(world: &mut World) -> usize {
    let told = world.facts().into_iter().filter(|fact| {
        matches!(
            fact,
            Fact::Answered(_, AnswerOutcome::Refused { is_news: true, .. })
                | Fact::RefusedAlike { .. }
        )
    });
    told.count()
}

#[rstest]
#[case(plan(), Reply::Status(503), 30)]
#[case(plan(), Reply::Status(429), 30)]
#[case(plan(), Reply::Status(500), 30)]
#[case(plan(), Reply::Say(500, ""), 30)]
#[case(plan(), Reply::Fail(0), 30)]
#[case(plan(), Reply::Fail(0), 180)]
#[case(ping_hub(), Reply::Status(503), 30)]
fn forty_channels_are_told_within_3_s_of_the_return_of_their_hub(
    #[case] plan: Plan,
    #[case] reply: Reply,
    #[case] seconds: u64,
) {
    let mut world = sets(plan, SETS);
    world.script(HUB, reply);
    update_all(&mut world, SETS);
    world.wait(2).wait(seconds);
    let attempts = world.attempts_at(HUB);
    assert!(most_in_30_s(&attempts) <= 15, "{:?}", gaps(&attempts));
    assert!(
        attempts.len() as u64 >= seconds / 3,
        "{:?}",
        gaps(&attempts)
    );
    assert!(refusals_told(&mut world) <= 2);
    assert_eq!(world.failing_hubs(), [HUB]);

    world.script(HUB, Reply::Accept).wait(3);
    assert_eq!(world.heard_by(HUB).len(), SETS);
    let facts = world.facts();
    let recovered = facts
        .iter()
        .filter(|fact| matches!(fact, Fact::Recovered { .. }));
    assert_eq!(recovered.count(), 1);
    assert_eq!(world.failing_hubs(), NOTHING);
}

#[test]
fn three_thousand_channels_are_no_more_attempts_than_one() {
    let mut world = sets(plan(), 3_000);
    world.script(HUB, Reply::Fail(30));
    update_all(&mut world, 3_000);
    world.wait(3_600);
    let attempts = world.attempts_at(HUB);
    assert!(attempts.len() < 120, "{}", attempts.len());
    assert!(refusals_told(&mut world) <= 3);
    world.script(HUB, Reply::Accept).wait(60);
    assert_eq!(world.heard_by(HUB).len(), 3_000);
}

#[test]
fn probes_are_never_more_than_30_s_apart() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::Fail(0));
    update_all(&mut world, SETS);
    world.wait(86_400);
    let gaps = gaps(&world.attempts_at(HUB));
    let late = &gaps[2..];
    assert!(
        late.iter().all(|gap| (1.9..=30.0).contains(gap)),
        "{gaps:?}"
    );
    assert!(late.last().unwrap() > &20.0, "{gaps:?}");
}

#[test]
fn a_retry_after_holds_for_the_whole_hub() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::Busy(503, 600));
    update_all(&mut world, SETS);
    world.wait(590);
    assert!(world.attempts_at(HUB).len() <= 2);
    world.script(HUB, Reply::Accept).wait(15);
    assert_eq!(world.heard_by(HUB).len(), SETS);
}

/// R23: what waits for an operator, for `Retry-After`, or for its next attempt.
#[rstest]
fn a_start_and_a_reload_retry_everything_at_once(
    #[values(
        Reply::Status(400),
        Reply::Status(401),
        Reply::Status(503),
        Reply::Busy(503, 3_600),
        Reply::RefuseTopic("/s0000/framework/", 500)
    )]
    reply: Reply,
    #[values(World::crash_and_start, World::reload)] begin: fn(&mut World) -> &mut World,
) {
    let mut world = sets(plan(), SETS);
    world.script(HUB, reply);
    update_all(&mut world, SETS);
    world.wait(600);
    let heard = world.heard_by(HUB).len();
    world.script(HUB, Reply::Accept);
    begin(&mut world);
    world.wait(1);
    assert_eq!(heard + world.heard_by(HUB).len(), SETS);
}

#[rstest]
fn a_start_tries_a_hub_that_still_fails_twice_at_once_whatever_waits(
    #[values(Reply::Status(401), Reply::Status(503))] reply: Reply,
    #[values(World::crash_and_start, World::reload)] begin: fn(&mut World) -> &mut World,
) {
    let mut world = sets(plan(), 200);
    world.script(HUB, reply);
    update_all(&mut world, 200);
    world.wait(600);
    world.attempts_at(HUB);
    begin(&mut world);
    world.wait(1);
    assert_eq!(world.attempts_at(HUB).len(), 2);
    world.wait(29);
    assert!(world.attempts_at(HUB).len() <= 13);
}

#[test]
fn a_topic_that_a_hub_never_takes_does_not_slow_the_others() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::RefuseTopic("/s0000/framework/", 500));
    update_all(&mut world, SETS);
    world.wait(10);
    assert_eq!(world.heard_by(HUB).len(), SETS - 1);
    world.wait(3_600);
    let attempts = world.attempts_at(HUB);
    let attempts: Vec<_> = attempts
        .iter()
        .filter(|attempt| attempt.topic.contains("s0000"))
        .collect();
    assert!(
        attempts.len() < 20,
        "it has its own backoff: {}",
        attempts.len()
    );
    for _ in 0..20 {
        world.wait(97).update("/s0001/changelist.xml").wait(2);
        assert_eq!(world.heard_by(HUB).len(), 1, "at once");
    }
    assert_eq!(world.failing_hubs(), NOTHING);
}

#[test]
fn credentials_that_are_refused_are_the_hub_s_affair() {
    for status in [401, 403, 404, 405] {
        let mut world = sets(plan(), SETS);
        world.script(HUB, Reply::Status(status));
        update_all(&mut world, SETS);
        world.wait(3_600);
        let attempts = world.attempts_at(HUB).len();
        assert!(attempts <= 20, "{status}: {attempts}");
        assert!(refusals_told(&mut world) <= 4);
        let account = world.account(&format!("{}/framework/", set(SETS - 1)), HUB);
        assert!(account.unwrap().needs_operator, "{status}");
        world.script(HUB, Reply::Accept).retry(None).wait(1);
        assert_eq!(world.heard_by(HUB).len(), SETS, "{status}");
    }
}

#[test]
fn what_waited_for_credentials_goes_with_the_first_that_is_accepted() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::Status(401));
    update_all(&mut world, SETS);
    world.wait(3_600).script(HUB, Reply::Accept);
    let mut heard = Vec::new();
    // The next attempt comes by itself within a quarter of an hour.
    for _ in 0..=900 {
        world.wait(1);
        heard.extend(world.heard_by(HUB));
        if !heard.is_empty() {
            break;
        }
    }
    world.wait(2);
    heard.extend(world.heard_by(HUB));
    assert_eq!(heard.len(), SETS);
}

#[test]
fn what_is_wrong_with_one_notification_stays_with_it() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::RefuseTopic("/s0000/framework/", 400));
    update_all(&mut world, SETS);
    world.wait(3);
    assert_eq!(world.heard_by(HUB).len(), SETS - 1);
    assert_eq!(world.failing_hubs(), NOTHING);
    world.attempts_at(HUB);
    world.wait(895);
    assert_eq!(world.attempts_at(HUB).len(), 0);
    world.wait(10);
    assert_eq!(world.attempts_at(HUB).len(), 1);
}

#[test]
fn refusals_of_the_same_kind_are_told_three_times_and_then_by_number() {
    let mut world = sets(plan(), 300);
    world.script(HUB, Reply::Status(400));
    update_all(&mut world, 300);
    world.wait(120);
    assert_eq!(world.attempts_at(HUB).len(), 300);
    let facts = world.facts();
    let alike: Vec<_> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::RefusedAlike { notifications, .. } => Some(*notifications),
            _ => None,
        })
        .collect();
    assert_eq!(alike, [297]);
    let news = facts.iter().filter(|fact| {
        matches!(
            fact,
            Fact::Answered(_, AnswerOutcome::Refused { is_news: true, .. })
        )
    });
    assert_eq!(news.count(), 3);
}

#[test]
fn a_requested_retry_is_made_at_once() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::Busy(503, 3_000));
    update_all(&mut world, SETS);
    world.wait(10);
    world.attempts_at(HUB);
    world.retry(Some(("/s0030", HUB)));
    let attempts = world.attempts_at(HUB);
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].topic, "/s0030/framework/");
    world.script(HUB, Reply::Accept).retry(None).wait(1);
    assert_eq!(world.heard_by(HUB).len(), SETS);
}

#[test]
fn a_size_that_was_refused_is_remembered_for_an_hour() {
    let mut world = World::new(plan());
    let names: Vec<String> = (0..200).map(|number| format!("c{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let write_all = |world: &mut World, set: &str, version: u32| {
        for name in &names {
            let doc = list("changelist").of(set).version(version);
            world.write(&format!("{set}/{name}.xml"), doc);
        }
    };
    for set in ["/a", "/b"] {
        write_all(&mut world, set, 0);
        world.write_capability_list(set, &names);
    }
    world.wait(10).start().wait(100).news();
    world.facts();
    let halved = |world: &mut World| -> Vec<&str> {
        let halved = world.facts().into_iter().filter_map(|fact| match fact {
            Fact::Answered(_, AnswerOutcome::Halved { is_news, .. }) => {
                Some(if is_news { "told" } else { "noted" })
            }
            _ => None,
        });
        halved.collect()
    };
    world.script(HUB, Reply::AtMost(3));
    write_all(&mut world, "/a", 1);
    world.wait(100);
    assert_eq!(world.news().len(), 200);
    let noted = ["told", "noted", "noted", "noted", "noted", "noted"];
    assert_eq!(halved(&mut world), noted, "200, 100, 50, 25, 12, 6");
    // Within the hour: on the same channel, and on another.
    for (set, version) in [("/a", 2), ("/b", 1)] {
        world.wait(1_000);
        write_all(&mut world, set, version);
        world.wait(100);
        assert_eq!(world.news().len(), 200);
        assert_eq!(halved(&mut world), NOTHING, "{set}");
    }
    world.wait(3_600).script(HUB, Reply::Accept);
    write_all(&mut world, "/a", 3);
    world.wait(100);
    assert_eq!(world.heard_by(HUB).len(), 1, "the hub may take more by now");
}

#[test]
fn one_entry_for_several_components_is_submitted_although_its_size_was_refused() {
    let mut world = World::new(plan());
    world.write_set("/b", &["resourcelist", "changelist"]);
    // Its notifications are larger than any of the other set.
    let set = format!("/{}", "x".repeat(1_000));
    let names: Vec<String> = (0..3)
        .map(|number| format!("{set}/c{number}.xml"))
        .collect();
    let list_name = format!("{set}/capabilitylist.xml");
    let index_name = format!("{set}/index.xml");
    let write_components = |world: &mut World, version: u32| {
        for name in &names {
            world.pass(Duration::from_millis(10));
            world.write(name, list("changelist").index(&index_name).version(version));
        }
    };
    write_components(&mut world, 0);
    let components: Vec<&str> = names.iter().map(String::as_str).collect();
    let index = index("changelist").up(&list_name).lists(&components);
    world.write(&index_name, index);
    let capability_list = list("capabilitylist").lists(&[&index_name]);
    let topic = format!("{set}/framework/");
    world.write(&list_name, capability_list.channel(&topic, &[]));
    world.wait(10).start().expect_nothing(100);

    world.script(HUB, Reply::AtMost(1));
    world.update("/b/changelist.xml");
    world.update("/b/resourcelist.xml").wait(100);
    assert_eq!(world.news().len(), 2, "each by itself, after a 413");

    write_components(&mut world, 1);
    world.wait(100);
    let heard = world.heard_by(HUB);
    let last = format!("u changelist {set}/c2.xml");
    assert_eq!(
        heard.iter().flat_map(Heard::changes).collect::<Vec<_>>(),
        [last]
    );
    world.wait(10_000);
    assert_eq!(world.attempts_at(HUB).len(), 4, "it speaks for all three");
}

#[test]
fn topics_without_subscribers_slow_no_other() {
    let mut world = sets(plan(), SETS);
    world.script(HUB, Reply::AcceptOnly("/s0039/framework/", 500));
    update_all(&mut world, SETS);
    world.wait(3_600);
    let attempts = world.attempts_at(HUB).len();
    assert!(attempts < 500, "{attempts}");
    assert_eq!(world.heard_by(HUB).len(), 1);
    for _ in 0..20 {
        world.wait(97).update("/s0039/changelist.xml").wait(5);
        assert_eq!(world.heard_by(HUB).len(), 1, "within 3 s of its window");
    }
}

#[test]
fn a_hub_that_fails_in_the_middle_of_a_burst_is_found_by_a_few() {
    let mut world = sets(plan(), 1_000);
    world.script(HUB, Reply::FirstOf(100, 503));
    update_all(&mut world, 1_000);
    world.wait(30);
    let failed = world.attempts_at(HUB).len() - 100;
    assert!(failed <= 64 + 15, "{failed}");
    world.script(HUB, Reply::Accept).wait(3);
    assert_eq!(world.heard_by(HUB).len(), 1_000);
}

#[test]
fn what_is_dropped_waits_for_no_hub() {
    for status in [503, 401] {
        let mut world = sets(plan(), 2);
        world.script(HUB, Reply::Status(status));
        update_all(&mut world, 2);
        world.wait(600);
        for number in 0..2 {
            world.drop_due(&set(number), HUB);
        }
        assert_eq!(world.failing_hubs(), NOTHING);
        world.script(HUB, Reply::Accept);
        world.update("/s0000/changelist.xml").wait(2);
        assert_eq!(world.heard_by(HUB).len(), 1, "at once");
    }
}

#[test]
fn a_list_that_a_hub_may_know_is_deleted_although_its_creation_was_never_acknowledged() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Hang).write_set("/n", &[]).wait(10);
    assert_eq!(world.attempts_at(HUB).len(), 1);
    world.update("/a/changelist.xml");
    world.update("/b/changelist.xml").wait(10).crash();
    world.delete("/n/capabilitylist.xml");
    // Two others are tried first, and fail: it is not submitted before the tree is swept.
    world.script(HUB, Reply::Status(503)).start();
    world.script(HUB, Reply::Accept).wait(1_000);
    let news = world.news_by_topic();
    let deleted = "d /n/capabilitylist.xml".to_owned();
    assert_eq!(news.get("/n/framework/"), Some(&vec![deleted]));
}

#[test]
fn what_is_due_after_a_drop_is_told_by_the_next_run_although_the_hub_never_answered() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Hang);
    world.update("/a/changelist.xml").wait(10);
    world.drop_due("/a", HUB);
    world.update("/a/resourcelist.xml").wait(10);
    world.script(HUB, Reply::Accept).expect_nothing(10_000); // it was never answered
    world.crash_and_start();
    world.expect(10, ["u /a/resourcelist.xml"]);
}

#[test]
fn a_notification_that_was_never_sent_is_not_in_doubt() {
    for is_reload in [false, true] {
        let mut world = sets(plan(), 8).with_down(HUB);
        let names: Vec<String> = (0..8).map(set).collect();
        for set in &names {
            world.update(&format!("{set}/changelist.xml"));
        }
        world.pass(Duration::from_millis(2_100));
        let mut attempted = world.attempts_at(HUB);
        let is_cut = |set: &String| world.outbox(set, HUB).notification.is_some();
        assert!(names.iter().all(is_cut));
        if !is_reload {
            world.crash();
        }
        for set in &names {
            let name = format!("{set}/changelist.xml");
            world.unseen().write_list(&name, "changelist");
        }
        // A start and a reload try some at once, before the tree is looked at.
        world.start();
        attempted.extend(world.attempts_at(HUB));
        world.script(HUB, Reply::Accept).wait(1_000);
        let news = world.news_by_topic();
        let topic = |set: &String| format!("{set}/framework/");
        let is_sent = |set: &&String| attempted.iter().any(|it| it.topic == topic(set));
        let (sent, unsent): (Vec<&String>, Vec<&String>) = names.iter().partition(is_sent);
        assert!(!sent.is_empty() && unsent.len() > 1, "{unsent:?}");
        for set in unsent {
            assert_eq!(news.get(&topic(set)), None, "{is_reload}");
        }
    }
}

#[test]
fn a_denial_is_not_an_acceptance() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::Deny);
    world.update("/a/changelist.xml").wait(10);
    world.script(HUB, Reply::Accept).expect_nothing(800);
    world.expect(200, ["u /a/changelist.xml"]);
}

#[test]
fn a_document_that_ended_and_began_is_too_large_without_haste() {
    let mut world = World::with_two_sets(all_deletions());
    world.script(HUB, Reply::AtMost(1));
    world.write_list("/a/changelist.xml", "resourcedump");
    world.wait(400);
    assert_eq!(world.attempts_at(HUB).len(), 2, "two changes, halved once");
    assert!(matches!(
        world.facts().last(),
        Some(Fact::Answered(_, AnswerOutcome::Refused { refusal, .. })) if refusal.needs_operator
    ));
    world.script(HUB, Reply::Accept);
    let want = ["d /a/changelist.xml", "c resourcedump /a/changelist.xml"];
    world.expect(1_000, want);
}

#[test]
fn a_single_change_that_is_too_large_needs_an_operator() {
    let mut world = World::with_two_sets(plan());
    world.script(HUB, Reply::AtMost(0));
    world.update("/a/changelist.xml").wait(10);
    assert!(matches!(
        &world.facts()[..],
        [Fact::Cut { .. }, Fact::Answered(_, AnswerOutcome::Refused { refusal, .. })]
            if refusal.needs_operator
    ));
    world.script(HUB, Reply::Accept);
    world.expect(1_000, ["u /a/changelist.xml"]);
}
