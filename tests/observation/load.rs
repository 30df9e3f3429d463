//! Load: every queue overflows, and no change is lost.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rstest::rstest;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::DEADLINE;
use crate::support::documents::{Site, capability_list, list};

const LISTED: &str = "updated capabilitylist a/capabilitylist.xml";

/// Writes these Change Dumps of the set `a/`, straight into place.
fn write_dumps(site: &Site, names: &[String], content: &str) {
    for name in names {
        let path = site.path(&format!("a/{name}.xml"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, list("a", "changedump", content)).unwrap();
    }
}

/// Lets the Capability List name these Change Dumps.
fn name_them(site: &Site, names: &[String]) {
    let mut all = vec!["resourcelist", "changelist"];
    all.extend(names.iter().map(String::as_str));
    site.write("a/capabilitylist.xml", &capability_list("a", &all));
}

fn told(change: &str, names: &[String]) -> Vec<String> {
    let told = |name| format!("{change} changedump a/{name}.xml");
    names.iter().map(told).collect()
}

fn hears(story: &mut Story, wanted: &[String]) {
    for request in story.hears(wanted) {
        assert!(request.changes().len() <= 1_000); // R21
    }
}

#[rstest]
fn two_thousand_documents_written_at_once(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::alone(watch, Site::new(), "");
    story.resume();
    let names: Vec<String> = (0..2_000).map(|n| format!("d{}/{n}", n % 50)).collect();
    write_dumps(&story.site, &names, "1");
    name_them(&story.site, &names);
    let mut wanted = told("created", &names);
    wanted.push(LISTED.to_owned());
    hears(&mut story, &wanted);
    write_dumps(&story.site, &names, "2");
    hears(&mut story, &told("updated", &names));
    story.ends();
}

/// Not by polling, which has no queue: a poller that was stopped is one that was down.
#[rstest]
fn more_events_than_the_kernel_keeps(#[values(Inotify, Notify)] watch: Watch) {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let groups = ["before", "after", "twice"].map(|group| -> Vec<String> {
        (0..100).map(|n| format!("{group}/{}/{n}", n % 5)).collect()
    });
    let [before, after, twice] = &groups;
    let site = Site::new();
    for names in &groups {
        write_dumps(&site, names, "1");
    }
    name_them(&site, &groups.concat());
    let mut story = Story::alone(watch, site, "");
    story.resume();
    story.stays_silent();

    story.daemon().signal(Signal::STOP);
    write_dumps(&story.site, before, "2");
    write_dumps(&story.site, twice, "2");
    fs::create_dir(story.site.path("a/noise")).unwrap();
    for n in 0..=limit {
        // Below a directory that is watched; hidden files are no documents.
        fs::write(story.site.path(&format!("a/.noise-{n}")), "").unwrap();
    }
    write_dumps(&story.site, after, "2");
    write_dumps(&story.site, twice, "3");
    let new: Vec<String> = (0..100).map(|n| format!("new/{}/{n}", n % 5)).collect();
    write_dumps(&story.site, &new, "1");
    name_them(&story.site, &[groups.concat(), new.clone()].concat());
    story.daemon().signal(Signal::CONT);

    story.await_log("queue overflowed");
    let mut wanted = told("updated", &groups.concat());
    wanted.extend(told("created", &new));
    wanted.push(LISTED.to_owned());
    hears(&mut story, &wanted);
    story.ends();
}

/// Two in a hundred are documents, which are announced. What is no document is remembered in the state file,
/// once it was read: that proves that the others were found too, without 100,000 announcements.
#[rstest]
fn a_hundred_thousand_files_in_new_directories(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::alone(watch, Site::new(), "");
    // Asking for 100,000 files takes a debug build longer than 100 ms: it would do nothing else.
    if watch == Poll {
        story.edit("\"100ms\"", "\"1s\"");
    }
    story.resume();
    let mut names = Vec::new();
    for directory in 0..1_000 {
        let below = format!("new/{}/{directory}", directory % 10);
        fs::create_dir_all(story.site.path("a").join(&below)).unwrap();
        for file in 0..100 {
            let name = format!("{below}/{file}");
            if file == directory % 50 || file == 99 - directory % 50 {
                write_dumps(&story.site, std::slice::from_ref(&name), "1");
                names.push(name);
            } else {
                let path = story.site.path(&format!("a/{name}.xml"));
                fs::write(path, "<other/>").unwrap();
            }
        }
    }
    assert_eq!(names.len(), 2_000);
    name_them(&story.site, &names);
    let mut wanted = told("created", &names);
    wanted.push(LISTED.to_owned());
    hears(&mut story, &wanted);
    let file = story.state_file();
    let deadline = Instant::now() + DEADLINE;
    while others(&file) < 98_000 {
        assert!(Instant::now() < deadline, "{} were seen", others(&file));
        std::thread::sleep(Duration::from_millis(50)); // polls the file until the deadline
    }
    assert_eq!(others(&file), 98_000);
    story.ends();
}

fn others(file: &PathBuf) -> i64 {
    let state = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    state
        .query_row("SELECT count(*) FROM other_file", [], |row| row.get(0))
        .unwrap()
}

/// Polling finds a change at the next look, however long that takes: it promises no second. Nor does `notify`,
/// whose crate compares each directory that goes with every other that it watches, while it takes no events.
#[rstest]
fn the_next_change_after_five_thousand_directories_went(#[values(Inotify, Notify)] watch: Watch) {
    let site = Site::new();
    for n in 0..5_000 {
        let below = site.path(&format!("old/{}/{n}", n % 10));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("other.xml"), "<other/>").unwrap();
    }
    let mut story = Story::alone(watch, site, "");
    story.edit("\"20ms\"", "\"0s\"");
    story.resume();
    fs::remove_dir_all(story.site.path("old")).unwrap();
    let moment = Instant::now();
    story.update("a/changelist.xml", "2");
    const UPDATED: &str = "updated changelist a/changelist.xml";
    let requests = story.hears(&[UPDATED]);
    let is_it = |change: &String| change == UPDATED;
    let request = requests
        .iter()
        .find(|request| request.changes().iter().any(is_it));
    let took = request.unwrap().at - moment;
    println!("{watch:?}: {took:?}");
    if watch == Inotify {
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    story.ends();
}
