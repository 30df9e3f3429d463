//! Unreadable files do not count as deleted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::documents::list;
use crate::support::needs;

use super::{PATH, SIBLING, UPDATED};

/// Root reads everything: runs the test again without that power, daemon and all, and says whether it did.
pub fn was_run_without_power() -> bool {
    const AGAIN: &str = "OBSERVATION_TEST_AGAIN";
    const POWER: &str = "-dac_override,-dac_read_search";
    // A container may have given it to us.
    const LESS: [&str; 4] = ["--inh-caps", POWER, "--bounding-set", POWER];
    if !rustix::process::geteuid().is_root() || std::env::var_os(AGAIN).is_some() {
        return false;
    }
    let less = |program: &std::path::Path, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(LESS).arg("--").arg(program).args(arguments);
        command.env(AGAIN, "1").status()
    };
    if !less("true".as_ref(), &[]).is_ok_and(|status| status.success()) {
        needs::skip("root cannot give up its power to read here", "util-linux");
        return true;
    }
    let thread = std::thread::current();
    let test = ["--exact", thread.name().unwrap(), "--test-threads", "1"];
    let status = less(&std::env::current_exe().unwrap(), &test).unwrap();
    assert!(status.success(), "the test failed without root's power");
    true
}

fn allow(story: &Story, below: &str, mode: u32) {
    fs::set_permissions(story.site.path(below), Permissions::from_mode(mode)).unwrap();
}

#[rstest]
fn a_file_that_may_not_be_read_is_not_gone(#[values(Inotify, Notify, Poll)] watch: Watch) {
    if was_run_without_power() {
        return;
    }
    let mut story = Story::over(
        watch,
        crate::support::documents::Site::new(),
        "announce_all_deletions = true",
    );
    story.resume();
    allow(&story, PATH, 0o000);
    assert!(
        fs::read(story.site.path(PATH)).is_err(),
        "it may not be read"
    );
    story.stays_silent();
    story
        .site
        .write("a/resourcelist.xml", &list("a", "resourcelist", "2"));
    story.hears(&[SIBLING]);
    allow(&story, PATH, 0o644);
    story.stays_silent();

    let text = list("a", "changelist", "2");
    allow(&story, PATH, 0o200);
    story.site.write_in_place(PATH, &text);
    story.stays_silent();
    allow(&story, PATH, 0o644);
    story.hears(&[UPDATED]);
    story.ends();
}

#[rstest]
fn a_directory_that_may_not_be_read_is_not_gone(#[values(Inotify, Poll)] watch: Watch) {
    if was_run_without_power() {
        return;
    }
    let site = crate::support::documents::Site::new();
    site.add_set("b");
    let mut story = Story::over(watch, site, "announce_all_deletions = true");
    story.resume();
    allow(&story, "a", 0o000);
    assert!(
        fs::read_dir(story.site.path("a")).is_err(),
        "it may not be read"
    );
    story.stays_silent();
    story
        .site
        .write("b/changelist.xml", &list("b", "changelist", "2"));
    story.hears(&["updated changelist b/changelist.xml"]);
    allow(&story, "a", 0o755);
    story.stays_silent();
    allow(&story, "a", 0o300);
    story.site.write(PATH, &list("a", "changelist", "2"));
    allow(&story, "a", 0o755);
    story.hears(&[UPDATED]);
    story.ends();
}
