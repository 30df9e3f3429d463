//! Operations without a change of content are not announced (R4).

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rstest::rstest;
use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;

use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::story::{Story, run};
use crate::support::documents::replace;

const PATH: &str = "a/changelist.xml";

/// The documents of the site.
const ALL: [&str; 4] = [
    "a/capabilitylist.xml",
    "a/resourcelist.xml",
    PATH,
    ".well-known/resourcesync",
];

fn set_modified(path: &Path, time: SystemTime) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Only root may give a file away; its owner may give it to itself, which changes its `ctime` too.
fn give_away(path: &Path) {
    let user = rustix::process::geteuid();
    let owner = if user.is_root() {
        12_345
    } else {
        user.as_raw()
    };
    std::os::unix::fs::chown(path, Some(owner), None).unwrap();
}

/// Does something about a document that says the same afterwards.
type Act = fn(&Path);

const ACTS: [(&str, Act); 11] = [
    ("a touch", |path| {
        run("touch $1/*", &[path.parent().unwrap()]);
    }),
    ("the first time", |path| {
        set_modified(path, SystemTime::UNIX_EPOCH);
    }),
    ("an earlier time", |path| {
        set_modified(path, SystemTime::now() - Duration::from_secs(24 * 3600));
    }),
    ("a time in the future", |path| {
        set_modified(path, SystemTime::now() + Duration::from_secs(24 * 3600));
    }),
    ("other permissions", |path| {
        for mode in [0o600, 0o444, 0o755, 0o644] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    }),
    ("another owner", give_away),
    ("an extended attribute", |path| {
        let set = setxattr(path, "user.checksum", b"abc", XattrFlags::empty());
        // Not every file system has them, and no other way to say that nothing changed is left out.
        assert!(matches!(set, Ok(()) | Err(Errno::OPNOTSUPP)), "{set:?}");
    }),
    ("opened to be written and closed as it was", |path| {
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.sync_all().unwrap();
    }),
    ("a hard link made and removed", |path| {
        let link = path.with_extension("bak");
        fs::hard_link(path, &link).unwrap();
        fs::remove_file(link).unwrap();
    }),
    ("rewritten byte for byte", |path| {
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, &text).unwrap();
        replace(path, &text);
    }),
    ("indented", |path| {
        let text = fs::read_to_string(path).unwrap();
        let text = text
            .replace('\n', "\n\t  ")
            .replace("<loc>", "\n\n<loc>\n  ");
        let text = text
            .replace("</loc>", "\n</loc>")
            .replace("\"/>", "\"\n  />");
        fs::write(path, text).unwrap();
    }),
];

#[rstest]
fn what_leaves_content_as_it_is_is_not_announced(#[values(Inotify, Notify, Poll)] watch: Watch) {
    let mut story = Story::start(watch);
    for (what, act) in ACTS {
        println!("{what}");
        for path in ALL {
            act(&story.site.path(path));
        }
        story.stays_silent();
    }
    story.ends();
}
