//! Load: every queue overflows, and no change is lost.

use std::fs;
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::Signal;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify};
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
    story.ends_hearing(&wanted);
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
