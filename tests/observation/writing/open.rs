//! Writers that keep the file open after writing it, and several writers of one file.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::documents::list;
use crate::writing::{PATH, UPDATED, long_list};

#[rstest]
fn polling_tells_of_a_whole_file_that_is_open_and_nothing_when_it_is_closed() {
    let mut story = Story::start(Poll);
    let mut file = File::create(story.site.path(PATH)).unwrap();
    let moment = Instant::now();
    file.write_all(long_list("2").as_bytes()).unwrap();
    story.hears_after(moment, &[UPDATED]);
    drop(file);
    story.ends_silent();
}

#[rstest]
fn a_writer_that_writes_nothing_delays_nothing(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let path = story.site.path(PATH);
    let idle = File::options().append(true).open(path).unwrap();
    let moment = Instant::now();
    story
        .site
        .write_in_place(PATH, &list("a", "changelist", "2"));
    story.hears_after(moment, &[UPDATED]);
    drop(idle);
    story.ends_silent();
}

#[rstest]
fn a_writer_of_a_replaced_file_does_not_affect_the_new_one(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let path = story.site.path(PATH);
    let mut late = File::options().append(true).open(path).unwrap();
    late.write_all(b"<!-- not done").unwrap();
    let moment = Instant::now();
    story.update(PATH, "2");
    story.hears_after(moment, &[UPDATED]);
    late.write_all(b" yet -->").unwrap();
    drop(late);
    story.ends_silent();
}
