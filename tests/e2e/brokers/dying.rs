//! `kill -9` of the daemon at failpoints of a change that is told as a feed: a consumer that discards by `messageId`
//! hears each change once.

use std::collections::HashMap;

use rstest::rstest;

use crate::brokers::Story;
use crate::brokers::feeds::{ATOM, told};
use crate::support::daemon::Daemon;
use crate::support::until;

#[rstest]
fn each_change_is_one_feed_wherever_the_daemon_dies(
    #[values("LoggedSaved", "Answered", "Told")] failpoint: &str,
) {
    let (fake, mut story) = Story::with_broker(ATOM);
    let mut run = story.setup.run();
    run.env("RSNOTIFY_FAILPOINT", format!("{failpoint}:2"));
    let mut daemon = Daemon::spawn(run);
    // The first passing may be that of learning what is listed already.
    daemon.await_log("not announcing");
    let mut is_dead = false;
    while !is_dead {
        assert!(story.entries.len() < 10, "{failpoint} is not passed");
        story.change();
        until(|| {
            is_dead = daemon.ended().is_some();
            is_dead || told(&fake.messages(0)).len() == story.entries.len()
        });
    }
    story.change();
    let daemon = story.setup.start();
    story.change();
    let made: Vec<String> = story
        .changes()
        .iter()
        .map(|change| change.replace("updated", "UPDATE"))
        .collect();
    until(|| told(&fake.messages(0)).len() >= made.len());
    assert!(daemon.stop().success());
    let messages = fake.messages(0);
    assert_eq!(told(&messages), made);
    let mut bodies = HashMap::new();
    for message in &messages {
        let id = message.header("messageId").unwrap();
        let first = bodies.entry(id).or_insert(&message.body);
        assert_eq!(*first, &message.body, "a repeat is the same");
    }
    let repeats = messages.len() - bodies.len();
    let may_repeat = ["Answered", "Told"].contains(&failpoint);
    assert!(repeats <= usize::from(may_repeat), "{repeats} repeats");
}
