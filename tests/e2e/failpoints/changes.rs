//! `kill -9` at each failpoint of a change that a Change List reports: it is told once, but for what is sent again byte for
//! byte.

use rstest::rstest;

use crate::changes::story::{Story, in_set};
use crate::changes::subscribe;
use crate::support::changes::{Destination, topic};
use crate::support::hub::{FakeHub, Manner};
use crate::support::until;

/// The receiver of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hubs {
    Content,
    /// Another hub besides, which is down as long as the first daemon lives.
    OneDown,
    /// The embedded hub besides, with one subscriber.
    Embedded,
}

/// Publishes one more change.
fn publish(story: &mut Story, published: &mut Vec<String>) {
    let number = published.len();
    story.add(&[&format!("updated {number}.txt 10:{number:02}:00")]);
    published.push(format!("updated {number}.txt"));
}

/// Hears what a receiver has accepted by now.
fn hear(receiver: &FakeHub, heard: &mut Destination) {
    for request in receiver.heard() {
        let is_change = request.challenge().is_none() && request.topic() == topic("a");
        if is_change && request.accepted {
            heard.hear(&request.body);
        }
    }
}

#[rstest]
fn each_change_is_told_wherever_the_daemon_dies(
    #[values(Hubs::Content, Hubs::OneDown, Hubs::Embedded)] hubs: Hubs,
    #[values(
        "Reading",
        "Taken",
        "Logged",
        "LoggedSaved",
        "Cut",
        "CutSaved",
        "Served",
        "Submitting",
        "Answered",
        "Told",
        "ToldSaved",
        "Dispatched",
        "Relayed",
        "Recorded",
        "RecordedSaved"
    )]
    failpoint: &str,
    #[values(1, 2, 3)] passing: usize,
) {
    let is_of_embedded_hub =
        ["Dispatched", "Relayed", "Recorded", "RecordedSaved"].contains(&failpoint);
    if is_of_embedded_hub && hubs != Hubs::Embedded {
        return;
    }
    let other = FakeHub::start();
    let mut story = match hubs {
        Hubs::Content => Story::new(""),
        Hubs::OneDown => Story::new(&other.table("")),
        Hubs::Embedded => Story::with_embedded_hub(),
    };
    let is_learning = ["Reading", "Taken"].contains(&failpoint) && passing == 1;
    let mut published = Vec::new();
    if is_learning {
        story.die_while_learning(failpoint);
    } else {
        story.start_to_die(failpoint, passing);
        story.await_learned(1);
        if hubs == Hubs::Embedded {
            subscribe(story.daemon(), &topic("a"), &other);
            until(|| story.has_subscriber());
        }
        if hubs == Hubs::OneDown {
            other.behave(Manner::Refuse(503));
        }
    }
    let mut heard = [Destination::default(), Destination::default()];
    while !story.is_dead() {
        assert!(published.len() < 10, "{failpoint} is not passed");
        publish(&mut story, &mut published);
        let count = published.len();
        // The daemon may die of what follows only.
        until(|| {
            hear(&story.hub, &mut heard[0]);
            // What follows is told while the other hub is not.
            let is_at_rest = hubs == Hubs::OneDown || story.is_at_rest();
            (heard[0].told.len() == count && is_at_rest) || story.is_dead()
        });
    }
    other.behave(Manner::Accept);
    if !is_learning {
        publish(&mut story, &mut published);
    }
    story.resume();
    if is_learning {
        story.await_learned(1);
    }
    publish(&mut story, &mut published);
    let count = published.len();
    let has_other = match hubs {
        Hubs::Content => false,
        Hubs::OneDown => true,
        Hubs::Embedded => story.has_subscriber(),
    };
    until(|| {
        hear(&story.hub, &mut heard[0]);
        hear(&other, &mut heard[1]);
        let is_told = |heard: &Destination| heard.told.len() >= count;
        is_told(&heard[0]) && (!has_other || is_told(&heard[1]))
    });
    story.stop();
    hear(&story.hub, &mut heard[0]);
    hear(&other, &mut heard[1]);
    let changes: Vec<&str> = published.iter().map(String::as_str).collect();
    for (receiver, heard) in heard[..1 + usize::from(has_other)].iter().enumerate() {
        assert_eq!(heard.told, in_set(&changes));
        assert_eq!(heard.gaps, 0);
        assert!(
            heard.repeats <= 1,
            "{} repeats at {receiver}",
            heard.repeats
        );
    }
    // What no request told was sent once.
    let mut unsent = "Reading Taken Logged LoggedSaved Cut CutSaved Served".split(' ');
    if hubs == Hubs::Content && unsent.any(|one| one == failpoint) {
        assert_eq!(heard[0].repeats, 0);
    }
    // The Source told of as many as it took.
    let taken = story.saved().count("SELECT sum(taken) FROM change_list");
    assert_eq!(taken, count + 1);
}
