//! Mass deletion: deletions of an emptied tree are suspended until an operator confirms them. Below a file system that is not
//! mounted nothing counts as deleted, however long that lasts; one that may be remote is polled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rstest::rstest;
use tempfile::TempDir;

use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::story::{Story, run};
use crate::support::daemon::{assert_contains, body_of, exit_with, output, succeed};
use crate::support::documents::{Site, capability_list, list, replace};
use crate::support::namespace::was_run_again;

const AGAIN: &str = "unshare --map-root-user --mount";
const EMPTY: &str =
    "it is empty, and not the directory that held documents: is its file system mounted?";

/// A file system of its own that holds a set with 7 documents, and the directory that it is mounted over.
struct Volume {
    volume: TempDir,
    place: PathBuf,
}

impl Volume {
    /// The set's name is that of its directory in the site, which need not be that in the volume.
    fn new(place: &Path, directory: &str, set: &str) -> Volume {
        let volume = TempDir::new().unwrap();
        run(
            "mount -t tmpfs none $2",
            &[&std::env::temp_dir(), volume.path()],
        );
        let capabilities = ["resourcelist", "changelist"];
        let (place, below) = (place.to_owned(), volume.path().join(directory));
        let write = |name, text: &str| replace(&below.join(format!("{name}.xml")), text);
        write("capabilitylist", &capability_list(set, &capabilities));
        for capability in capabilities {
            write(capability, &list(set, capability, "1"));
        }
        for number in ["0", "1", "2", "3"] {
            write(number, &list(set, "changedump", "1"));
        }
        Volume { volume, place }
    }

    fn mount(&self) {
        run("mount --bind $1 $2", &[self.volume.path(), &self.place]);
    }

    /// Unmounts it, although a file in it may be open for a moment.
    fn unmount(&self) {
        run("umount --lazy $2", &[self.volume.path(), &self.place]);
    }

    fn write(&self, below: &str, content: &str) {
        replace(&self.volume.path().join(below), content);
    }
}

#[rstest]
fn a_file_system_that_is_unmounted_deletes_nothing(#[values(Inotify, Notify, Poll)] watch: Watch) {
    if was_run_again(AGAIN) {
        return;
    }
    let mut story = Story::over(watch, Site::empty(), KEYS);
    let place = story.site.root.path().to_owned();
    let volume = Volume::new(&place, "a", "a");
    volume.mount();
    story.resume();
    for _ in 0..2 {
        volume.unmount();
        let entry = story.await_log(EMPTY);
        assert_eq!(entry["level"], "WARN");
        stays_silent_for_good(&mut story);
        everyone_says_so(&story, &place);
        volume.mount();
        story.await_log("was replaced by another directory");
        story.stays_silent();
    }
    volume.write("a/changelist.xml", &list("a", "changelist", "2"));
    story.hears(&["updated changelist a/changelist.xml"]);
    // While it is away, everything may happen.
    volume.unmount();
    story.await_log(EMPTY);
    volume.write("a/changelist.xml", &list("a", "changelist", "3"));
    story.kill();
    story.launch();
    story.await_log(EMPTY);
    stays_silent_for_good(&mut story);
    volume.mount();
    story.hears(&["updated changelist a/changelist.xml"]);
    assert_eq!(story.stop_and_count("retired channel"), 0);
}

/// The status, `check` and `accept`; and nobody else is kept waiting.
fn everyone_says_so(story: &Story, place: &Path) {
    body_of(story.daemon().get_admin("/readyz"));
    let mount = &story.daemon().status()["sources"][0]["mounts"][0];
    assert_eq!(mount["present"], false);
    assert_contains(mount["reason"].as_str().unwrap(), EMPTY);
    let (_, metrics) = story.daemon().get_admin("/metrics");
    let present = format!("mount=\"{}\"}} 0\n", place.display());
    assert_contains(&metrics, &present);
    assert_contains(&succeed(&mut story.setup.command("status")), EMPTY);
    assert_contains(&exit_with(&mut story.setup.command("check"), 1).0, EMPTY);
    for more in [&["main"][..], &["main", "--dry-run"]] {
        let out = succeed(story.setup.command("accept").args(more));
        let wanted = format!(
            "no document of main is missing\n{} is not there: nothing below it can be accepted\n",
            place.display()
        );
        assert_eq!(out, wanted);
    }
}

const AWAY: &str = "is not mounted there: their deletions are suspended";

/// A set of 7 documents on a file system of its own, below a root with 25 others.
#[rstest]
fn a_file_system_below_a_root_is_unmounted(#[values(Inotify, Notify, Poll)] watch: Watch) {
    if was_run_again(AGAIN) {
        return;
    }
    let site = Site::new();
    for set in ["b", "c", "d", "e"] {
        site.add_set(set);
    }
    let place = site.path("z");
    fs::create_dir(&place).unwrap();
    let volume = Volume::new(&place, "in", "z/in");
    volume.mount();
    let mut story = Story::begin(watch, site, KEYS);
    volume.unmount();
    let entry = story.await_log(AWAY);
    assert_eq!(entry["level"], "ERROR");
    stays_silent_for_good(&mut story);
    let status = story.daemon().status();
    let source = &status["sources"][0];
    let suspension = source["suspension"].as_str().unwrap();
    assert!(suspension.starts_with("7 of "), "{suspension}");
    let below = format!("those below {} is not mounted there", place.display());
    assert_contains(suspension, &below);
    assert_eq!(source["missing_in"][0]["missing"], 7);
    for command in ["status", "check"] {
        let (_, out, _) = output(&mut story.setup.command(command));
        assert_contains(&out, &below);
    }
    // Beside it, deletions are believed.
    fs::remove_dir_all(story.site.path("e")).unwrap();
    story.hears(&["deleted capabilitylist e/capabilitylist.xml"]);
    volume.write("in/changelist.xml", &list("z/in", "changelist", "2"));
    story.kill();
    story.launch();
    story.await_log(AWAY);
    stays_silent_for_good(&mut story);
    volume.mount();
    story.await_log("deletions of main are no longer suspended");
    story.hears(&["updated changelist z/in/changelist.xml"]);
    volume.unmount();
    story.await_log(AWAY);
    accepts(&story, "accepted 7 missing documents of main as deleted");
    story.hears(&["deleted capabilitylist z/in/capabilitylist.xml"]);
    story.stop();
}

/// No file system in which an ordinary user can write is unknown to be local; but one can be mounted over a
/// directory of such a system, which makes no promise for it.
#[cfg(target_os = "linux")]
#[test]
fn what_is_not_known_to_be_local_is_polled_and_says_so_once() {
    if was_run_again(AGAIN) {
        return;
    }
    let site = Site::empty();
    site.add_set("epoll");
    let mut story = Story::over(Inotify, site, "");
    let auto = "watch = \"auto\"\npoll_interval = \"100ms\"";
    story.edit("watch = \"inotify\"", auto);
    let root = story.site.root.path().to_owned();
    run("mount --bind $1 /proc/sys/fs/epoll", &[&root.join("epoll")]);
    let (whole, part) = (format!("\"{}\"", root.display()), "\"/proc/sys/fs\"");
    story.edit(&whole, part);
    story.resume();
    for version in ["2", "3"] {
        story.update("epoll/changelist.xml", version);
        story.hears(&["updated changelist epoll/changelist.xml"]);
    }
    story.site.add_set("epoll/new");
    story.hears(&[
        "created capabilitylist epoll/new/capabilitylist.xml",
        "created changelist epoll/new/changelist.xml",
        "created resourcelist epoll/new/resourcelist.xml",
    ]);
    let words = "polling /proc/sys/fs every 0.1 s";
    assert_eq!(story.stop_and_count(words), 1, "said once");
}

/// Short, but longer than it takes to remove a tree.
const GRACE: Duration = Duration::from_secs(1);
pub const KEYS: &str = "deletion_grace = \"1s\"";
/// Changes that a hub receives when everything below the site is gone.
const DELETED: [&str; 3] = [
    "deleted capabilitylist a/capabilitylist.xml",
    "deleted description .well-known/resourcesync",
    "deleted description .well-known/resourcesync",
];

/// A set of 23 documents, a Source Description, and beside them the marker's two.
fn large() -> Site {
    let site = Site::new();
    for number in 0..20 {
        let path = format!("a/{number:02}.xml");
        site.write(&path, &list("a", "changelist", "1"));
    }
    site
}

fn is_suspended(story: &Story) -> bool {
    story.daemon().status()["sources"][0]["suspended"] == true
}

/// Nothing tells that a grace is over in which nothing may happen.
pub fn outlast_the_grace() {
    std::thread::sleep(GRACE + Duration::from_millis(200)); // the grace's deadline, with what is slow
}

/// The hub hears nothing, not even once the grace of a deletion is over.
#[track_caller]
pub fn stays_silent_for_good(story: &mut Story) {
    outlast_the_grace();
    story.stays_silent();
}

#[track_caller]
pub fn accepts(story: &Story, said: &str) {
    let out = succeed(story.setup.command("accept").arg("main"));
    assert_eq!(out.trim_end(), said);
}

#[rstest]
fn an_emptied_tree_is_suspended_until_accepted(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, large(), KEYS);
    for name in ["a", ".well-known"] {
        fs::remove_dir_all(story.site.path(name)).unwrap();
    }
    let entry = story.await_log("deletions are suspended");
    assert_eq!(entry["level"], "ERROR");
    assert_contains(&entry.to_string(), "run `rsnotify accept main`");
    outlast_the_grace();
    everyone_says_that_it_is_suspended(&story);

    story.site.add_set("b");
    story.site.write("a/00.xml", &list("a", "changelist", "2"));
    story.hears(&[
        "created capabilitylist b/capabilitylist.xml",
        "created changelist b/changelist.xml",
        "created resourcelist b/resourcelist.xml",
        "updated changelist a/00.xml",
    ]);

    accepts(&story, "accepted 23 missing documents of main as deleted");
    // A Source Description's deletion is heard on the new channel too.
    story.hears(&[&DELETED[..], &DELETED[2..]].concat());
    accepts(&story, "no document of main is missing");
    story.ends();
}

/// `scan`, `check`, the status and the metrics.
fn everyone_says_that_it_is_suspended(story: &Story) {
    let remedy = "24 of 26 documents of main are missing: their deletions are suspended until enough are back, \
                  or until you run `rsnotify accept main`";
    assert_contains(&exit_with(&mut story.setup.command("check"), 1).0, remedy);
    let (_, out, err) = output(&mut story.setup.command("scan"));
    assert_contains(&err, remedy);
    let missing = out.lines().filter(|line| line.starts_with("missing "));
    assert_eq!(missing.count(), 24);
    let documents = story.setup.scan();
    let missing = documents.iter().filter(|document| {
        let reason = document["reason"].as_str().unwrap_or_default();
        document["state"] == "missing" && reason.contains("`rsnotify accept main`")
    });
    assert_eq!(missing.count(), 24);
    assert!(is_suspended(story));
    assert_eq!(story.daemon().status()["sources"][0]["suspension"], remedy);
    let (_, metrics) = story.daemon().get_admin("/metrics");
    assert_contains(&metrics, "rsnotify_suspended{source=\"main\"} 1\n");
}

#[rstest]
fn deletions_accepted_while_none_runs_are_sent_by_the_next(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, large(), KEYS);
    story.stop();
    let away = TempDir::new().unwrap();
    for name in ["a", ".well-known"] {
        fs::rename(story.site.path(name), away.path().join(name)).unwrap();
    }
    accepts(
        &story,
        "no document of main was missing when rsnotify last looked, and it is not running",
    );
    story.resume();
    assert!(is_suspended(&story));
    stays_silent_for_good(&mut story);
    story.stop();
    accepts(
        &story,
        "accepted 24 missing documents of main as deleted; rsnotify is not running, and announces it when it \
         is started",
    );
    story.resume();
    story.ends_hearing(&DELETED);
}
