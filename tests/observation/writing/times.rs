//! The content of a file decides, not its times and size.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Poll};
use crate::support::documents::{Site, list};
use crate::writing::{PATH, UPDATED, long_list};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn modified(story: &Story) -> SystemTime {
    let metadata = story.site.path(PATH).metadata().unwrap();
    metadata.modified().unwrap()
}

/// Writes a version of the same size, and sets the time that says when.
fn rewrite(story: &Story, content: &str, modified: SystemTime) {
    let mut file = File::create(story.site.path(PATH)).unwrap();
    file.write_all(list("a", "changelist", content).as_bytes())
        .unwrap();
    file.set_modified(modified).unwrap();
}

#[rstest]
fn of_the_same_size_and_time_and_renamed_into_place(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let before = modified(&story);
    let beside = story.site.path("a/changelist.tmp");
    let mut file = File::create(&beside).unwrap();
    file.write_all(list("a", "changelist", "2").as_bytes())
        .unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    std::fs::rename(beside, story.site.path(PATH)).unwrap();
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn with_a_time_that_goes_back_and_forth(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let now = SystemTime::now();
    let times = [
        now - Duration::from_secs(60),
        SystemTime::UNIX_EPOCH + 20 * YEAR,
        now + 20 * YEAR,
        now + Duration::from_secs(3600),
        SystemTime::UNIX_EPOCH,
    ];
    for (content, time) in (2..).zip(times) {
        let moment = Instant::now();
        rewrite(&story, &content.to_string(), time);
        story.hears_after(moment, &[UPDATED]);
    }
    story.ends();
}

/// As py-resourcesync writes a component: twice, the second time with more links. What lies between may be
/// announced, if the window is too short for it; here it is not.
#[rstest]
fn rewritten_twice_within_one_window(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::over(watch, Site::new(), "");
    let (short, long) = ("quiet = \"20ms\"", "quiet = \"1s\"");
    story.edit(short, long);
    story.resume();
    let text = long_list("2");
    story
        .site
        .write_in_place(PATH, &list("a", "changelist", "2"));
    let moment = Instant::now();
    story.site.write_in_place(PATH, &text);
    story.hears_after(moment, &[UPDATED]);
    story.edit(long, short);
    story.ends();
}
