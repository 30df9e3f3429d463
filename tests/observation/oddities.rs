//! Files that are broken, in the wrong place, or may not be read. What may not be read does not count as deleted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rstest::rstest;

use crate::story::Story;
use crate::story::Watch::{self, Inotify, Notify, Poll};
use crate::support::daemon::{assert_contains, count_of, exit_with, output};
use crate::support::documents::{Site, capability_list, component, list};
use crate::support::needs;

const PATH: &str = "a/changelist.xml";
const UPDATED: &str = "updated changelist a/changelist.xml";

/// Three files that nobody can be told of rightly.
fn write_oddities(site: &Site, content: &str) {
    let orphan = list("a", "changelist", content).replace("rel=\"up\"", "rel=\"related\"");
    site.write("orphan.xml", &orphan);
    let misled = component("a", "changelist", "a/resourcelist.xml", content);
    site.write("a/misled.xml", &misled);
    let foreign = list("a", "change-notification", content);
    site.write("a/foreign.xml", &foreign);
}

const SAID: [&str; 4] = [
    "orphan.xml (changelist) belongs to no set of resources",
    "a/misled.xml names https://source.example/a/resourcelist.xml as its index, which is not an index",
    "a/foreign.xml has the capability \\\"change-notification\\\", which is none that is announced",
    "names https://source.example/a/plain.xml, and the file there is no document: ",
];

#[test]
fn findings_are_logged_once_and_checked() {
    let mut story = Story::over(Inotify, Site::new(), "broken_after = \"100ms\"");
    story.edit("[window]\n", "[window]\nhold = \"0s\"\n");
    story.resume();
    // And one that is no document, although its Capability List names it.
    story.site.write("a/plain.xml", "<html/>\n");
    let names = ["resourcelist", "changelist", "plain"];
    let listed =
        capability_list("a", &names).replace("capability=\"plain\"", "capability=\"changedump\"");
    story.site.write("a/capabilitylist.xml", &listed);
    story.hears(&["updated capabilitylist a/capabilitylist.xml"]);
    for (content, change) in [("1", "created"), ("2", "updated")] {
        write_oddities(&story.site, content);
        story.hears(&[format!("{change} changelist a/misled.xml")]);
        let mut left = if content == "1" {
            SAID.to_vec()
        } else {
            Vec::new()
        };
        while !left.is_empty() {
            let entry = story.await_log(".xml").to_string();
            left.retain(|said| !entry.contains(said));
        }
    }
    let log = story.stop_and_tell();
    let (out, _) = exit_with(&mut story.setup.command("check"), 1);
    for said in SAID {
        assert_eq!(count_of(&log, said), 1, "{said}: {log:#?}");
        assert_contains(&out, &said.replace('\\', ""));
    }
}

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

/// Everybody says that the directory `a` may not be read, with the remedy; or nobody does.
#[track_caller]
fn is_told(story: &Story, is_unreadable: bool) {
    let daemon = story.daemon.as_ref().unwrap();
    daemon.await_status(|status| {
        let unreadable = status["sources"][0]["mounts"][0]["unreadable"].as_array();
        unreadable.is_some_and(|unreadable| !unreadable.is_empty()) == is_unreadable
    });
    let (_, status, _) = output(&mut story.setup.command("status"));
    let (_, page) = daemon.get_admin("/");
    let (_, metrics) = daemon.get_admin("/metrics");
    let root = story.site.root.path().display();
    let directory = story.site.path("a").display().to_string();
    let alert = format!("\n!! the directory {directory} (main) cannot be read: ");
    assert_eq!(status.contains(&alert), is_unreadable, "{status}");
    let remedy = "(SupplementaryGroups= in its unit), or open it by chmod";
    assert_eq!(status.contains(remedy), is_unreadable, "{status}");
    assert_eq!(page.contains("cannot be read"), is_unreadable, "{page}");
    let series = format!("rsnotify_unreadable_directories{{source=\"main\",mount=\"{root}\"}}");
    let gauge = format!("{series} {}\n", u8::from(is_unreadable));
    assert!(metrics.contains(&gauge), "{gauge}: {metrics}");
}

#[rstest]
fn what_may_not_be_read_is_not_gone(#[values(Inotify, Notify, Poll)] watch: Watch) {
    if was_run_without_power() {
        return;
    }
    let site = Site::new();
    site.add_set("b");
    let mut story = Story::begin(watch, site, "announce_all_deletions = true");
    allow(&story, "a", 0o000);
    assert!(
        fs::read_dir(story.site.path("a")).is_err(),
        "it may not be read"
    );
    story.stays_silent();
    is_told(&story, true);
    story.update("b/changelist.xml", "2");
    story.hears(&["updated changelist b/changelist.xml"]);
    allow(&story, "a", 0o755);
    story.stays_silent();
    is_told(&story, false);
    allow(&story, "a", 0o300);
    story.update(PATH, "2");
    allow(&story, "a", 0o755);
    story.hears(&[UPDATED]);
    allow(&story, PATH, 0o200);
    let text = list("a", "changelist", "3");
    story.site.write_in_place(PATH, &text);
    story.stays_silent();
    allow(&story, PATH, 0o644);
    story.ends_hearing(&[UPDATED]);
}
