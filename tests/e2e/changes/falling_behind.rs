//! A hub that is too far behind (C22): that shows, to operators and to Destinations.

use crate::changes::story::{Story, with_window};
use crate::support::changes::{Destination, topic};
use crate::support::hub::{FakeHub, Manner};

#[test]
fn a_hub_beyond_the_backlog_misses_the_oldest_changes_and_no_other_hub_does() {
    let down = FakeHub::start();
    let mut story = Story::new(&format!(
        "[[hub]]\nurl = \"{}\"\nmode = \"content\"\n",
        down.url()
    ));
    story.setup.config = with_window(&story.setup.config, "change_backlog = 3");
    story.resume();
    story.await_learned(1);
    down.behave(Manner::Refuse(503));
    // One notification each. The first, which the hub has refused, stays in flight.
    for minute in 0..8 {
        story.add(&[&format!("updated 1.txt 10:0{minute}:00")]);
        story.hears(&["updated 1.txt"]);
    }
    let logged = story.daemon().await_log("fell behind");
    assert_eq!(logged["level"], "ERROR");
    assert_eq!(logged["hub"], down.url());
    assert_eq!(logged["topic"], topic("a"));
    down.behave(Manner::Accept);
    let mut heard = Destination::default();
    heard.listen(&down, &topic("a"), 3);
    assert_eq!(heard.told, ["updated a/1.txt"; 3]);
    assert_eq!(heard.sizes, [1; 3]);
    assert_eq!(heard.gaps, 1);
    assert_eq!(heard.until(), story.heard.until());
    assert_eq!(story.heard.gaps, 0);
    story.add(&["deleted 1.txt 10:10:00"]);
    heard.listen(&down, &topic("a"), 4);
    assert_eq!((heard.told.len(), heard.gaps), (4, 1));
}
