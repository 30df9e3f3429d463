//! Symbolic links: swapped, dangling and in loops. Files with another name, or mounted from elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;
use tempfile::TempDir;

use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::story::{Story, run};
use crate::support::documents::{Site, capability_list, list, replace};
use crate::support::namespace::was_run_again;

const UPDATED: &str = "updated changelist b/changelist.xml";

/// The documents of a set that are written elsewhere, and reached as `b/` by links.
pub fn write_set(directory: &Path, version: &str) {
    for (capability, version) in [("resourcelist", "1"), ("changelist", version)] {
        let path = directory.join(format!("{capability}.xml"));
        replace(&path, &list("b", capability, version));
    }
    let listed = capability_list("b", &["resourcelist", "changelist", "changedump"]);
    replace(&directory.join("capabilitylist.xml"), &listed);
}

/// A link that takes the place of another in one step.
pub fn swap(target: impl AsRef<Path>, link: &Path) {
    let next = link.with_file_name(".next");
    symlink(target, &next).unwrap();
    fs::rename(&next, link).unwrap();
}

#[rstest]
fn a_release_that_is_swapped(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let site = Site::new();
    for release in ["1", "2"] {
        write_set(&site.path(&format!("releases/{release}")), release);
    }
    site.write("releases/2/changedump.xml", &list("b", "changedump", "1"));
    symlink("releases/1", site.path("b")).unwrap();
    let mut story = Story::begin(watch, site, "exclude = [\"releases/**\"]");
    swap("releases/2", &story.site.path("b"));
    story.hears(&[UPDATED, "created changedump b/changedump.xml"]);
    // The old release is nobody's any more.
    let text = list("b", "changelist", "unpublished");
    story.site.write("releases/1/changelist.xml", &text);
    story.stays_silent();
    let text = list("b", "changelist", "3");
    story.site.write("releases/2/changelist.xml", &text);
    story.hears(&[UPDATED]);
    write_set(&story.site.path("releases/3"), "3");
    story
        .site
        .write("releases/3/changedump.xml", &list("b", "changedump", "1"));
    swap("releases/3", &story.site.path("b"));
    story.ends_silent();
}

#[rstest]
fn a_file_that_is_written_by_a_name_outside_of_the_tree(
    #[values(Inotify, Notify, Poll)] watch: Watch,
    #[values("a hard link", "a mount")] by: &str,
) {
    if by == "a mount" && was_run_again("unshare --map-root-user --mount") {
        return;
    }
    let site = Site::new();
    let elsewhere = TempDir::new_in(site.root.path().parent().unwrap()).unwrap();
    let (place, other) = (
        site.path("b/changelist.xml"),
        elsewhere.path().join("other"),
    );
    site.add_set("b");
    if by == "a mount" {
        fs::copy(&place, &other).unwrap();
        run("mount --bind $2 $3", &[elsewhere.path(), &other, &place]);
    } else {
        fs::hard_link(&place, &other).unwrap();
    }
    let mut story = Story::begin(watch, site, "");
    // In place again and again, and no event tells the tree.
    for version in ["2", "3"] {
        fs::write(&other, list("b", "changelist", version)).unwrap();
        story.hears(&[UPDATED]);
        story.stop();
        story.resume();
    }
    fs::write(&other, "<urlset").unwrap();
    story.stays_silent();
    fs::write(&other, list("b", "changelist", "4")).unwrap();
    story.ends_hearing(&[UPDATED]);
}

/// No file system in which an ordinary user can write is unknown to be local; but one can be mounted over a directory of
/// such a system, which makes no promise for it.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_is_not_known_to_be_local_makes_its_mount_polled() {
    if was_run_again("unshare --map-root-user --mount") {
        return;
    }
    let (site, volume) = (Site::empty(), Site::empty());
    volume.add_set("x/epoll");
    let place = site.path("x");
    fs::create_dir(&place).unwrap();
    run("mount --rbind /proc/sys/fs $1", &[&place]);
    let mounted = volume.path("x/epoll");
    run("mount --bind $1 $2", &[&mounted, &place.join("epoll")]);
    let mut story = Story::over(Inotify, site, "");
    let auto = "watch = \"auto\"\npoll_interval = \"100ms\"";
    story.edit("watch = \"inotify\"", auto);
    story.resume();
    for version in ["2", "3"] {
        let text = list("x/epoll", "changelist", version);
        volume.write("x/epoll/changelist.xml", &text);
        story.hears(&["updated changelist x/epoll/changelist.xml"]);
    }
    let words = "lies on a file system that is not known to be local";
    assert_eq!(story.stop_and_count(words), 1, "said once");
}
