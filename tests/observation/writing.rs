//! Ways of writing a document: one announcement, after the last byte (R3). `tests/tree` tries each way alone.

mod tools;
mod torn;

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, archive, list};

const UPDATED: &str = "updated changelist a/changelist.xml";
const PATH: &str = "a/changelist.xml";

/// A Change List with enough entries to be cut in many places.
fn long_list(content: &str) -> String {
    let loc = "<loc>https://source.example/a/more</loc>\n<lastmod>2026-11-20T12:00:00Z</lastmod>";
    let more = format!("<url>{loc}</url>\n").repeat(100);
    list("a", "changelist", content).replace("</urlset>", &format!("{more}</urlset>"))
}

/// Writes the first bytes, is silent for longer than any settle time, and writes the rest.
fn write_with_a_stall(mut story: Story, mut file: File, text: &str, at: usize) {
    let (first, rest) = text.as_bytes().split_at(at);
    file.write_all(first).unwrap();
    story.stays_silent();
    story.ends_hearing_after(&[UPDATED], move |_| file.write_all(rest).unwrap());
}

#[rstest]
fn in_chunks(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let text = long_list("2");
    let mut file = File::create(story.site.path(PATH)).unwrap();
    let (first, rest) = text.split_at(text.len() / 2);
    for chunk in first.as_bytes().chunks(text.len() / 20) {
        file.write_all(chunk).unwrap();
        std::thread::sleep(Duration::from_millis(50)); // a generator that stalls after each chunk
    }
    write_with_a_stall(story, file, rest, 2000);
}

#[rstest]
fn a_chunk_at_a_time_by_a_writer_that_opens_it_anew_for_each(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = Story::start(watch);
    let text = long_list("2");
    let (first, last) = text.as_bytes().split_at(text.len() - 30);
    story.site.write_in_place(PATH, "");
    for chunk in first.chunks(500) {
        append(&story, chunk);
    }
    story.stays_silent();
    // Another document does not wait for it.
    story.update("a/resourcelist.xml", "2");
    story.hears(&["updated resourcelist a/resourcelist.xml"]);
    let moment = Instant::now();
    append(&story, last);
    story.hears_after(moment, &[UPDATED]);
    story.ends();
}

fn append(story: &Story, chunk: &[u8]) {
    let file = File::options().append(true).open(story.site.path(PATH));
    file.unwrap().write_all(chunk).unwrap();
}

#[rstest]
fn writers_of_nothing_and_of_a_replaced_file_delay_nothing(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let opened = |story: &Story| {
        let path = story.site.path(PATH);
        File::options().append(true).open(path).unwrap()
    };
    let idle = opened(&story);
    let moment = Instant::now();
    story
        .site
        .write_in_place(PATH, &list("a", "changelist", "2"));
    story.hears_after(moment, &[UPDATED]);
    drop(idle);
    story.stays_silent();
    let mut late = opened(&story);
    late.write_all(b"<!-- not done").unwrap();
    let moment = Instant::now();
    story.update(PATH, "3");
    story.hears_after(moment, &[UPDATED]);
    late.write_all(b" yet -->").unwrap();
    drop(late);
    story.ends_silent();
}

#[rstest]
fn renamed_while_it_is_open_and_written_on(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    let text = long_list("2");
    let temporary = story.site.path("a/changelist.tmp");
    let mut file = File::create(&temporary).unwrap();
    file.write_all(&text.as_bytes()[..3000]).unwrap();
    fs::rename(&temporary, story.site.path(PATH)).unwrap();
    write_with_a_stall(story, file, &text[3000..], 2000);
}

#[rstest]
fn with_a_directory_that_is_renamed_meanwhile(#[values(Inotify, Poll)] watch: Watch) {
    let site = Site::new();
    let lists: Vec<String> = (0..20).map(|n| format!("a/y/{n}.xml")).collect();
    let listed = [
        &[PATH.to_owned(), "a/resourcelist.xml".to_owned()],
        &lists[..],
    ]
    .concat();
    let listed = archive("a", "capabilitylist", &listed);
    site.write("a/capabilitylist.xml", &listed);
    let mut story = Story::begin(watch, site, "deletion_grace = \"60s\"");
    let [before, after] = ["a/x", "a/y"].map(|path| story.site.path(path));
    fs::create_dir(&before).unwrap();
    let text = list("a", "changelist", "1");
    let (begin, end) = text.split_at(text.len() / 2);
    let mut files: Vec<File> = (0..20)
        .map(|n| File::create(before.join(format!("{n}.xml"))).unwrap())
        .collect();
    for file in &mut files {
        file.write_all(begin.as_bytes()).unwrap();
    }
    fs::rename(before, after).unwrap();
    let moment = Instant::now();
    for mut file in files {
        file.write_all(end.as_bytes()).unwrap();
    }
    let wanted = lists
        .iter()
        .map(|path| format!("created changelist {path}"));
    story.hears_after(moment, &wanted.collect::<Vec<_>>());
    // The directory is watched still, or anew.
    story.site.write("a/y/0.xml", &list("a", "changelist", "2"));
    story.ends_hearing(&["updated changelist a/y/0.xml"]);
}
