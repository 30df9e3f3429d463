//! File systems that are not mounted: nothing below them counts as deleted, however long that lasts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rstest::rstest;
use tempfile::TempDir;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::daemon::{get, output};
use crate::support::documents::{Site, URL, capability_list, list};
use crate::support::namespace::was_run_again;

const GRACE: Duration = Duration::from_secs(1);
const KEYS: &str = "deletion_grace = \"1s\"";
const AGAIN: &str = "unshare --map-root-user --mount";
const EMPTY: &str =
    "it is empty, and not the directory that held documents: is its file system mounted?";

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}");
}

/// A file system of its own that holds a set with 7 documents, and the directory that it is mounted over.
struct Volume {
    volume: TempDir,
    place: PathBuf,
}

impl Volume {
    fn new(place: &Path, set: &str) -> Volume {
        Volume::with(place, set, set)
    }

    /// The set's name is that of its directory in the site, which need not be that in the volume.
    fn with(place: &Path, directory: &str, set: &str) -> Volume {
        let volume = TempDir::new().unwrap();
        run(Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(volume.path()));
        let capabilities = ["resourcelist", "changelist"];
        let write = |name: &str, content: &str| {
            let path = volume.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write(
            &format!("{directory}/capabilitylist.xml"),
            &capability_list(set, &capabilities),
        );
        for capability in capabilities {
            let name = format!("{directory}/{capability}.xml");
            write(&name, &list(set, capability, "1"));
        }
        for number in 0..4 {
            let name = format!("{directory}/{number}.xml");
            write(&name, &list(set, "changedump", "1"));
        }
        Volume {
            volume,
            place: place.to_owned(),
        }
    }

    fn mount(&self) {
        run(Command::new("mount")
            .arg("--bind")
            .args([self.volume.path(), &self.place]));
    }

    /// Unmounts it, although a file in it may be open for a moment.
    fn unmount(&self) {
        run(Command::new("umount").arg("--lazy").arg(&self.place));
    }

    fn write(&self, below: &str, content: &str) {
        let path = self.volume.path().join(below);
        let next = path.with_extension("next");
        fs::write(&next, content).unwrap();
        fs::rename(next, path).unwrap();
    }
}

/// Nothing tells that a grace is over in which nothing may happen.
fn outlast_the_grace() {
    std::thread::sleep(GRACE + Duration::from_millis(200)); // the grace's deadline, with what is slow
}

#[rstest]
fn a_file_system_that_is_unmounted_deletes_nothing(#[values(Inotify, Notify, Poll)] watch: Watch) {
    if was_run_again(AGAIN) {
        return;
    }
    let mut story = Story::over(watch, Site::empty(), KEYS);
    let place = story.site.root.path().to_owned();
    let volume = Volume::new(&place, "a");
    volume.mount();
    story.resume();
    for _ in 0..2 {
        volume.unmount();
        let entry = story.await_log(EMPTY);
        assert_eq!(entry["level"], "WARN");
        outlast_the_grace();
        story.stays_silent();
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
    outlast_the_grace();
    story.stays_silent();
    volume.mount();
    story.hears(&["updated changelist a/changelist.xml"]);
    let lines = story.stop_and_tell();
    let deleted = lines.iter().filter(|line| line.contains("retired channel"));
    assert_eq!(deleted.count(), 0);
}

/// The status, `check` and `accept`; and nobody else is kept waiting.
fn everyone_says_so(story: &Story, place: &Path) {
    let (head, _) = get(story.daemon().admin, "/readyz");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mount = &story.daemon().status()["sources"][0]["mounts"][0];
    assert_eq!(mount["present"], false);
    assert!(mount["reason"].as_str().unwrap().contains(EMPTY), "{mount}");
    let (_, metrics) = get(story.daemon().admin, "/metrics");
    let present = format!("mount=\"{}\"}} 0\n", place.display());
    assert!(metrics.contains(&present), "{metrics}");
    let (_, out, _) = output(&mut story.setup.command("status"));
    assert!(out.contains(EMPTY), "{out}");
    let (code, out, _) = output(&mut story.setup.command("check"));
    assert_eq!(code, Some(1));
    assert!(out.contains(EMPTY), "{out}");
    for more in [&["main"][..], &["main", "--dry-run"]] {
        let (code, out, _) = output(story.setup.command("accept").args(more));
        assert_eq!(code, Some(0));
        let wanted = format!(
            "no document of main is missing\n{} is not there: nothing below it can be accepted\n",
            place.display()
        );
        assert_eq!(out, wanted);
    }
}

#[rstest]
fn a_daemon_that_starts_before_its_file_system_is_mounted_takes_the_baseline_then(
    #[values(Inotify, Poll)] watch: Watch,
) {
    if was_run_again(AGAIN) {
        return;
    }
    let mut story = Story::over(watch, Site::empty(), KEYS);
    let volume = Volume::new(story.site.root.path(), "a");
    story.resume();
    outlast_the_grace();
    volume.mount();
    story.await_log("was replaced by another directory");
    story.await_log("7 existing documents are not announced");
    story.stays_silent();
    volume.write("a/changelist.xml", &list("a", "changelist", "2"));
    story.ends_hearing(&["updated changelist a/changelist.xml"]);
}

#[rstest]
fn one_file_system_of_three_is_unmounted(#[values(Inotify, Poll)] watch: Watch) {
    if was_run_again(AGAIN) {
        return;
    }
    let places = TempDir::new().unwrap();
    let mut mounts = String::new();
    let volumes = ["a", "b", "c"].map(|set| {
        let place = places.path().join(set);
        fs::create_dir(&place).unwrap();
        let volume = Volume::new(&place, set);
        volume.mount();
        let mount = format!(
            "{{ path = \"{}\", url = \"{URL}{set}-mount/\" }}, ",
            place.display()
        );
        mounts.push_str(&mount);
        volume
    });
    let mut story = Story::over(watch, Site::empty(), KEYS);
    story.setup.config = story
        .setup
        .config
        .replacen("mount = [", &format!("mount = [{mounts}"), 1);
    story.resume();
    volumes[1].unmount();
    story.await_log(EMPTY);
    outlast_the_grace();
    story.stays_silent();
    volumes[1].mount();
    story.await_log("was replaced by another directory");
    story.stays_silent();
    // Emptied in place, its documents are suspended, few as they are.
    fs::remove_dir_all(volumes[1].place.join("b")).unwrap();
    story.await_log("deletions are suspended");
    outlast_the_grace();
    story.stays_silent();
    let (code, out, err) = output(story.setup.command("accept").args(["main", "--dry-run"]));
    let wanted = format!(
        "7 missing documents of main would be accepted as deleted:\n  7 of 7 in {}/b\n",
        volumes[1].place.display()
    );
    assert_eq!((code, out), (Some(0), wanted), "{err}");
    story.stays_silent();
    let (code, _, err) = output(story.setup.command("accept").arg("main"));
    assert_eq!(code, Some(0), "{err}");
    let mut heard = story
        .hub
        .changes_until(&["deleted capabilitylist b-mount/b/capabilitylist.xml"]);
    heard.retain(|change| !change.contains("marker"));
    assert_eq!(
        heard,
        ["deleted capabilitylist b-mount/b/capabilitylist.xml"]
    );
    story.stop();
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
    let volume = Volume::with(&place, "in", "z/in");
    volume.mount();
    let mut story = Story::begin(watch, site, KEYS);
    for _ in 0..2 {
        volume.unmount();
        let entry = story.await_log(AWAY);
        assert_eq!(entry["level"], "ERROR");
        outlast_the_grace();
        story.stays_silent();
        let status = story.daemon().status();
        let source = &status["sources"][0];
        let suspension = source["suspension"].as_str().unwrap();
        assert!(suspension.starts_with("7 of "), "{suspension}");
        let below = format!("those below {} is not mounted there", place.display());
        assert!(suspension.contains(&below), "{suspension}");
        assert_eq!(source["missing_in"][0]["missing"], 7);
        for command in ["status", "check"] {
            let (_, out, err) = output(&mut story.setup.command(command));
            assert!(out.contains(&below), "{command}: {out}{err}");
        }
        volume.mount();
        story.await_log("deletions of main are no longer suspended");
        story.stays_silent();
    }
    volume.write("in/changelist.xml", &list("z/in", "changelist", "2"));
    story.hears(&["updated changelist z/in/changelist.xml"]);
    // Beside it, deletions are believed.
    volume.unmount();
    story.await_log(AWAY);
    fs::remove_dir_all(story.site.path("e")).unwrap();
    story.hears(&["deleted capabilitylist e/capabilitylist.xml"]);
    volume.write("in/changelist.xml", &list("z/in", "changelist", "3"));
    story.kill();
    story.launch();
    story.await_log(AWAY);
    outlast_the_grace();
    story.stays_silent();
    volume.mount();
    story.hears(&["updated changelist z/in/changelist.xml"]);
    story.kill();
    volume.unmount();
    story.launch();
    story.await_log(AWAY);
    outlast_the_grace();
    story.stays_silent();
    let (code, out, err) = output(story.setup.command("accept").arg("main"));
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(out, "accepted 7 missing documents of main as deleted\n");
    story.hears(&["deleted capabilitylist z/in/capabilitylist.xml"]);
    story.stop();
}

/// The grace is counted while a daemon runs, and anew in each run.
#[rstest]
fn a_kill_and_a_downtime_longer_than_the_grace_shorten_no_grace(
    #[values(Inotify, Poll)] watch: Watch,
) {
    let mut story = Story::begin(watch, Site::new(), "deletion_grace = \"3s\"");
    story.site.remove("a/capabilitylist.xml");
    story.stays_silent();
    story.kill();
    std::thread::sleep(Duration::from_millis(3_500)); // longer than the grace
    let moment = Instant::now();
    story.resume();
    let deleted = "deleted capabilitylist a/capabilitylist.xml";
    let requests = story.hears(&[deleted]);
    // What was in flight when it was killed is said again.
    let mut said = requests.iter();
    let said = said.find(|request| request.changes().iter().any(|change| change == deleted));
    assert!(said.unwrap().at >= moment + Duration::from_secs(3));
    story.ends();
}

/// A file that appears at a path for a moment is no deletion.
#[rstest]
fn a_capability_list_that_is_something_else_for_a_moment(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::begin(watch, Site::new(), "deletion_grace = \"1m\"");
    let before = fs::read_to_string(story.site.path("a/capabilitylist.xml")).unwrap();
    let page =
        "<?xml version=\"1.0\"?>\n<html xmlns=\"http://www.w3.org/1999/xhtml\"><body/></html>";
    let wrong = before.replace("\"capabilitylist\"", "\"resourcelist\"");
    assert_ne!(before, wrong);
    for content in [page, &wrong] {
        story.site.write("a/capabilitylist.xml", content);
        story.stays_silent();
        story.site.write("a/capabilitylist.xml", &before);
        story.stays_silent();
    }
    let name = ".well-known/resourcesync";
    let description = fs::read_to_string(story.site.path(name)).unwrap();
    let index = description
        .replace("urlset", "sitemapindex")
        .replace("<url>", "<sitemap>")
        .replace("</url>", "</sitemap>");
    story.site.write(name, &index);
    story.stays_silent();
    story.site.write(name, &description);
    story.ends_silent();
}
