//! A file that temporarily holds a mixture of versions.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Instant;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::{Site, archive, list};
use crate::support::needs;
use crate::writing::{PATH, UPDATED, long_list, write_with_a_stall};

#[rstest]
fn broken_for_a_while(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values("a hole", "room behind it", "another tail", "the rest of a longer one")] how: &str,
) {
    let (old, new) = (long_list("old"), long_list("2"));
    let at = new.rfind("<lastmod>").unwrap();
    let stalled = match how {
        "a hole" => new[..500].to_owned() + &"\0".repeat(5000) + &new[5500..],
        "room behind it" => new.clone() + &"\0".repeat(60_000),
        "another tail" => new[..at + 3].to_owned() + &old[old.rfind("<lastmod>").unwrap()..],
        _ => new.clone() + &old[old.len() - 100..],
    };
    let mut story = Story::start(watch);
    let file = File::create(story.site.path(PATH)).unwrap();
    file.write_all_at(stalled.as_bytes(), 0).unwrap();
    story.stays_silent();
    story.ends_hearing_after(&[UPDATED], move |_| {
        file.write_all_at(new.as_bytes(), 0).unwrap();
        file.set_len(new.len() as u64).unwrap();
    });
}

/// By polling it cannot be told that this file is not done: it is well-formed and was left alone.
#[rstest]
fn a_mixture_of_two_versions_that_is_well_formed(#[values(Inotify, Notify)] watch: Watch) {
    let entries = |first: &str, second: &str| {
        archive("a", "changelist", &[first.to_owned(), second.to_owned()])
    };
    let site = Site::new();
    site.write(PATH, &entries("a/old-1", "a/old-2"));
    let story = Story::begin(watch, site, "");
    let new = entries("a/new-1", "a/new-2");
    let file = File::options().write(true).open(story.site.path(PATH));
    let at = new.rfind("<url>").unwrap();
    write_with_a_stall(story, file.unwrap(), &new, at);
}

/// Maps the file named first at the size of the one named second, and copies that one into it: half of it,
/// and the rest when told to.
const THROUGH_A_MAP: &str = "\
import mmap, sys
text = open(sys.argv[2], 'rb').read()
with open(sys.argv[1], 'r+b') as file:
    file.truncate(len(text))
    with mmap.mmap(file.fileno(), len(text)) as map:
        half = len(text) // 2
        map[:half] = text[:half]
        print('half', flush=True)
        sys.stdin.readline()
        map[half:] = text[half:]
";

/// The kernel changes the file's times with the first byte that is written to a page, and may not with the
/// next. By polling, a writer that stalls while its file is broken is waited for; one that stalls while it is
/// well-formed looks done, and what it adds to the same page gives no sign at all.
#[rstest]
#[case::in_one_page(list("a", "changelist", "another version"))]
#[case::in_several(long_list("2"))]
fn through_a_map(#[values(Inotify, Poll)] watch: Watch, #[case] text: String) {
    let Some(python) = needs::program("python3") else {
        return;
    };
    let mut story = Story::start(watch);
    let source = tempfile::NamedTempFile::new().unwrap();
    fs::write(source.path(), &text).unwrap();
    let mut python = Command::new(python);
    python
        .args(["-c", THROUGH_A_MAP])
        .arg(story.site.path(PATH))
        .arg(source.path());
    let mut python = python
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut half = String::new();
    let mut said: BufReader<ChildStdout> = BufReader::new(python.stdout.take().unwrap());
    said.read_line(&mut half).unwrap();
    assert_eq!(half, "half\n");
    story.stays_silent();
    let moment = Instant::now();
    python.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(python.wait().unwrap().success());
    story.hears_after(moment, &[UPDATED]);
    story.ends();
}

#[rstest]
fn a_writer_that_crashes_midway_and_is_run_again(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, Site::new(), "broken_after = \"200ms\"");
    let text = long_list("2");
    story.site.write_in_place(PATH, &text[..text.len() / 2]);
    let entry = story.await_log("cannot read a/changelist.xml");
    assert_eq!(entry["level"], "WARN", "{entry}");
    story.stays_silent();
    story.kill();
    story.resume();
    story.stays_silent();
    story.ends_hearing_after(&[UPDATED], |site| site.write_in_place(PATH, &text));
}
