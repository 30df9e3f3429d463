//! Changes of a file's times, permissions, names or readers, and not of its content.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rstest::rstest;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::silence::PATH;
use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::tools::run;

/// The documents of the site.
const ALL: [&str; 4] = [
    "a/capabilitylist.xml",
    "a/resourcelist.xml",
    "a/changelist.xml",
    ".well-known/resourcesync",
];

/// Does something about every document, and is silent.
fn about_all(watch: Watch, act: impl Fn(&Path)) {
    let story = Story::start(watch);
    for path in ALL {
        act(&story.site.path(path));
    }
    story.ends_silent();
}

#[rstest]
fn a_touch(#[values(Inotify, Notify, Poll)] watch: Watch) {
    about_all(watch, |path| run("touch $1/*", &[path.parent().unwrap()]));
}

#[rstest]
fn other_times(#[values(Inotify, Poll)] watch: Watch) {
    let day = Duration::from_secs(24 * 3600);
    let epoch = SystemTime::UNIX_EPOCH;
    for time in [epoch, SystemTime::now() - day, SystemTime::now() + day] {
        about_all(watch, |path| {
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(time).unwrap();
        });
    }
}

#[rstest]
fn other_permissions(#[values(Inotify, Poll)] watch: Watch) {
    about_all(watch, |path| {
        for mode in [0o600, 0o444, 0o755, 0o644] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    });
}

/// Only root may give a file away; its owner may give it to itself, which changes its `ctime` too.
#[rstest]
fn another_owner(#[values(Inotify, Poll)] watch: Watch) {
    let user = rustix::process::geteuid();
    let owner = if user.is_root() {
        12_345
    } else {
        user.as_raw()
    };
    about_all(watch, |path| {
        std::os::unix::fs::chown(path, Some(owner), None).unwrap()
    });
}

#[rstest]
fn an_extended_attribute(#[values(Inotify, Poll)] watch: Watch) {
    use rustix::fs::{XattrFlags, setxattr};
    about_all(watch, |path| {
        let set = setxattr(path, "user.checksum", b"abc", XattrFlags::empty());
        // Not every file system has them, and no other way to say that nothing changed is left out.
        assert!(matches!(set, Ok(()) | Err(Errno::OPNOTSUPP)), "{set:?}");
    });
}

#[rstest]
fn opened_to_be_written_and_closed_as_it_was(#[values(Inotify, Poll)] watch: Watch) {
    about_all(watch, |path| {
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.sync_all().unwrap();
    });
}

#[rstest]
fn a_hard_link_made_and_removed_elsewhere(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    let elsewhere = TempDir::new().unwrap();
    let link = elsewhere.path().join("changelist.xml");
    fs::hard_link(story.site.path(PATH), &link).unwrap();
    fs::hard_link(&link, story.site.path("a/changelist.bak")).unwrap();
    story.stays_silent();
    fs::remove_file(link).unwrap();
    fs::remove_file(story.site.path("a/changelist.bak")).unwrap();
    story.ends_silent();
}

#[rstest]
fn a_thousand_readers(#[values(Inotify, Poll)] watch: Watch) {
    let story = Story::start(watch);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for path in ALL.iter().cycle().take(250) {
                    let text = fs::read_to_string(story.site.path(path)).unwrap();
                    assert!(text.ends_with(">\n"));
                }
            });
        }
    });
    run(
        "grep -r resource . > /dev/null; tar -c . | cat > /dev/null",
        &[story.site.root.path()],
    );
    story.ends_silent();
}

#[rstest]
fn a_restart(#[values(Inotify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    story.kill();
    story.resume();
    story.stays_silent();
    story.stop();
    run("touch a/*", &[story.site.root.path()]);
    story.resume();
    story.ends_silent();
}
