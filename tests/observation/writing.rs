//! Ways of writing a document: one announcement, after the last byte (R3), also of a file that holds a mixture of versions
//! for a while, and by common programs for publishing. `tests/tree` tries each way alone.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;

use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::story::{Story, run};
use crate::support::documents::{Site, archive, list};
use crate::support::needs;

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
fn a_chunk_at_a_time_by_a_writer_that_reopens_it_for_each(#[values(Inotify, Poll)] watch: Watch) {
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

const BOTH: [&str; 2] = [
    "updated changelist a/changelist.xml",
    "updated resourcelist a/resourcelist.xml",
];

/// Some tools delete what they are about to write.
fn patient(watch: Watch, site: Site) -> Story {
    Story::begin(watch, site, "deletion_grace = \"60s\"")
}

/// Another version of the site, with its Change List and Resource List changed.
fn next() -> Site {
    let site = Site::new();
    site.write(PATH, &long_list("2"));
    site.write_list("a", "resourcelist", "2");
    site
}

/// Runs a line of shell that knows the next version as `$1` and the published tree as `$2`.
#[track_caller]
fn publish(line: &str, next: &Site, story: &Story) {
    run(line, &[next.root.path(), story.site.root.path()]);
}

/// Runs a line that puts the next version in place of the published one.
fn publish_with(watch: Watch, line: &str) {
    if line.starts_with("rsync") && needs::program("rsync").is_none() {
        return;
    }
    let story = patient(watch, Site::new());
    publish(line, &next(), &story);
    story.ends_hearing(&BOTH);
}

#[rstest]
fn whole_documents(
    #[values(Inotify, Poll)] watch: Watch,
    #[values(
        "sed -i s/resource-1/resource-2/ $2/a/*.xml",
        "rsync -I -a ./ $2/",
        "rsync -I -a --inplace ./ $2/",
        "rsync -I -a --inplace --no-whole-file ./ $2/",
        "rsync -I -r --whole-file ./ $2/",
        "rsync -I -rc ./ $2/",
        "rsync -I -a --backup ./ $2/",
        "rsync -I -a --delete-before ./ $2/",
        "rsync -I -a --delay-updates ./ $2/",
        "rsync -I -a --partial-dir=.partial --delay-updates ./ $2/",
        "cp a/*list.xml $2/a",
        "cp -p a/*list.xml $2/a",
        "cp --reflink=auto a/*list.xml $2/a",
        "cp -a . $2",
        "cp --remove-destination a/*list.xml $2/a",
        "install -m 644 a/*list.xml $2/a",
        "dd status=none bs=100 if=a/changelist.xml of=$2/a/changelist.xml; \
         cat a/resourcelist.xml > $2/a/resourcelist.xml",
        "for f in a/*list.xml; do mv $f $2/a; done",
        "tar -c a/*.xml .well-known/resourcesync | tar -x -C $2",
        "tar -c a/*.xml .well-known/resourcesync | tar -x --overwrite -C $2",
        "tar -c a/*.xml .well-known/resourcesync | tar -x --unlink-first -C $2",
        "tar -c a/*.xml .well-known/resourcesync | tar -x --touch -C $2"
    )]
    line: &str,
) {
    publish_with(watch, line);
}

#[rstest]
fn under_notify(
    #[values("sed -i s/resource-1/resource-2/ $2/a/*.xml", "rsync -I -a ./ $2/")] line: &str,
) {
    publish_with(Notify, line);
}

/// A transfer that was cut off is taken up where it ended.
#[rstest]
fn rsync_that_appends(
    #[values(Inotify, Poll)] watch: Watch,
    #[values("--append", "--append-verify")] how: &str,
) {
    if needs::program("rsync").is_none() {
        return;
    }
    let mut story = Story::start(watch);
    story.site.write_in_place(PATH, &long_list("2")[..3000]);
    story.stays_silent();
    publish(&format!("rsync {how} {PATH} $2/{PATH}"), &next(), &story);
    story.ends_hearing(&[UPDATED]);
}

#[rstest]
fn git(#[values(Inotify, Poll)] watch: Watch) {
    if needs::program("git").is_none() {
        return;
    }
    let site = Site::new();
    let branches = "git init -q -b one; git add -A; git commit -q -m one; git checkout -q -b two; \
                    sed -i s/resource-1/resource-2/ a/changelist.xml a/resourcelist.xml; \
                    git commit -q -a -m two; git checkout -q one";
    run(branches, &[site.root.path()]);
    let mut story = patient(watch, site);
    for line in [
        "git checkout -q two",
        "git checkout -q one",
        "git merge -q two",
    ] {
        run(line, &[story.site.root.path()]);
        story.hears(&BOTH);
    }
    run("git gc -q; git reset -q --hard", &[story.site.root.path()]);
    story.ends_silent();
}
