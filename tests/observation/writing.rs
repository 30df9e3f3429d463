//! Every way of writing a document: one announcement, after the last byte.

use std::time::Instant;

use rstest::rstest;

use crate::documents::list;
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};

const UPDATED: &str = "updated changelist a/changelist.xml";

#[rstest]
fn in_place(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let text = list("a", "changelist", "2");
    let moment = Instant::now();
    story.site.write_in_place("a/changelist.xml", &text);
    story.hears_after(moment, &[UPDATED]);
    story.ends();
}
