//! `examples/cron`: what a cron job publishes is announced, no Capability List without its channels, and no resources
//! as deleted that are not there to be read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use resourcesync::listing::Listing;
use tempfile::TempDir;

use crate::support::daemon::{Setup, assert_contains, assert_none_contains, output};
use crate::support::documents::{Site, URL};
use crate::support::hub::FakeHub;
use crate::support::python::python;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cron/publish");
/// A hub of which nothing is asked.
const HUB: &str = "http://127.0.0.1:9/hub";

/// A host with a tree of one set, the user's crontab, and a configuration.
struct Host {
    site: Site,
    setup: Setup,
    /// Directory in which the staging directory is made.
    var: TempDir,
    python: &'static Path,
    sets: &'static str,
}

impl Host {
    fn new(hub: &str) -> Option<Host> {
        let python = python()?;
        let site = Site::empty();
        fs::create_dir_all(site.path("a")).unwrap();
        Some(Host {
            setup: Setup::new(&site, &[hub.to_owned()], ""),
            site,
            var: tempfile::tempdir().unwrap(),
            python,
            sets: "a",
        })
    }

    fn resource(&self, name: &str, content: &str) {
        self.site.write(&format!("a/{name}.txt"), content);
    }

    fn change_list(&self) -> String {
        fs::read_to_string(self.site.path("resourcesync/a/changelist.xml")).unwrap()
    }

    /// Returns what a list names, by paths below the site.
    fn listed(&self, list: &str) -> Vec<String> {
        let list = fs::read(self.site.path(list)).unwrap();
        let entries = Listing::parse(&list).unwrap().unwrap().entries.into_iter();
        let uris = entries.map(|entry| entry.loc.unwrap());
        uris.map(|uri| uri.strip_prefix(URL).unwrap().to_owned())
            .collect()
    }

    fn staging(&self) -> PathBuf {
        self.var.path().join("publish")
    }

    /// Runs the line for `crontab` that the script begins with, with a URI that lacks its last slash. Returns the exit code,
    /// and what cron sends as a mail.
    fn run(&self, variables: &[(&str, &str)]) -> (Option<i32>, String) {
        let script = fs::read_to_string(SCRIPT).unwrap();
        let line = script
            .lines()
            .find_map(|line| line.strip_prefix("#   * * * * * "));
        let python = self.python.parent().unwrap().to_str().unwrap();
        let line = line
            .unwrap()
            .replace("https://example.org/", URL.trim_end_matches('/'))
            .replace("/srv/www", self.site.root.path().to_str().unwrap())
            .replace("SET=poems", &format!("SET='{}'", self.sets))
            .replace("/usr/share/doc/rsnotify/examples/cron/publish", SCRIPT);
        let rsnotify = Path::new(env!("CARGO_BIN_EXE_rsnotify")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut cron = Command::new("sh");
        cron.args(["-c", &line])
            .env("PATH", format!("{}:{python}:{path}", rsnotify.display()))
            .env("STAGING", self.staging())
            .env("CONFIG", self.setup.file())
            .env("STATE_DIRECTORY", self.setup.state.path().join("state"))
            .envs(variables.iter().copied());
        let (code, out, err) = output(&mut cron);
        (code, out + &err)
    }

    fn publish(&self) {
        assert_eq!(self.run(&[]), (Some(0), String::new()));
    }
}

#[test]
fn a_cron_job_publishes_no_half_step_and_sends_no_mail() {
    let hub = FakeHub::start();
    let Some(host) = Host::new(&hub.url()) else {
        return;
    };
    host.resource("1", "one");
    let daemon = host.setup.start();
    host.publish();
    let list = host.site.path("resourcesync/a/capabilitylist.xml");
    let first = fs::read_to_string(&list).unwrap();
    assert_contains(&first, "topics/main/resourcesync/a/capabilitylist/");
    assert_contains(&first, &format!("{URL}resourcesync/a/changelist.xml"));
    let place = || {
        let list = fs::metadata(&list).unwrap();
        (list.ino(), list.ctime(), list.ctime_nsec())
    };
    let placed = place();

    host.publish();
    host.resource("1", "another");
    host.resource("2", "two");
    host.publish();
    let heard = hub.changes_until(&[
        "updated changelist resourcesync/a/changelist.xml",
        "updated resourcelist resourcesync/a/resourcelist.xml",
    ]);
    assert_none_contains(&heard, "updated capabilitylist");
    assert_eq!(place(), placed, "it was written anew");
    let changes = host.change_list();
    for change in ["updated", "created"] {
        assert_contains(&changes, change);
    }
    assert!(daemon.stop().success());
}

#[test]
fn changes_of_earlier_runs_are_kept_for_a_mirror_that_was_off() {
    let Some(host) = Host::new(HUB) else { return };
    let changes = "resourcesync/a/changelist.xml";
    let from = || {
        let list = Listing::parse(host.change_list().as_bytes()).unwrap();
        let list = list.unwrap();
        let datetimes = list.entries.iter().map(|change| &change.datetime);
        assert!(datetimes.is_sorted() && list.entries[0].datetime >= list.from);
        list.from
    };
    for name in ["1", "2", "3"] {
        host.resource(name, name);
        host.publish();
    }
    assert_eq!(host.listed(changes), ["a/2.txt", "a/3.txt"]);
    let before = from();

    host.resource("4", "four");
    assert_eq!(host.run(&[("DAYS", "0")]).0, Some(0));
    assert_eq!(host.listed(changes), ["a/4.txt"]);
    assert!(from() > before, "it does not reach back that far now");
}

#[test]
fn a_file_that_is_touched_is_no_change_unless_content_is_not_compared() {
    let Some(host) = Host::new(HUB) else { return };
    host.resource("1", "one");
    host.publish();
    let before = host.change_list();
    let touch = |seconds| {
        let file = fs::File::open(host.site.path("a/1.txt")).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    };
    touch(1_000_000_000);
    host.publish();
    assert_eq!(host.change_list(), before);

    touch(1_100_000_000);
    assert_eq!(host.run(&[("HASH", "")]), (Some(0), String::new()));
    assert!(host.change_list().contains("updated"));
}

#[test]
fn what_a_run_that_was_broken_off_has_made_is_not_published() {
    let Some(host) = Host::new(HUB) else { return };
    host.resource("1", "one");
    host.publish();
    let before = host.change_list();
    let staged = host.staging().join("www/resourcesync/a/changelist.xml");
    fs::write(&staged, before.replace("</urlset>", "<url/></urlset>")).unwrap();
    host.publish();
    assert_eq!(host.change_list(), before);
}

#[test]
fn a_change_list_of_the_cron_job_keeps_the_latest_50_000_changes() {
    let Some(host) = Host::new(HUB) else { return };
    host.resource("1", "one");
    host.publish();
    let empty = host.change_list();
    let from = Listing::parse(empty.as_bytes()).unwrap().unwrap().from;
    let now = jiff::Timestamp::now();
    let earlier = (0..50_000).map(|number| {
        let time = now - jiff::SignedDuration::from_secs(60_000 - number);
        format!(
            "<url><loc>{URL}a/{number}</loc><rs:md change=\"updated\" datetime=\"{time:.3}\"/></url>"
        )
    });
    let earlier: String = earlier.collect();
    let full = empty
        .replace("</urlset>", &format!("{earlier}</urlset>"))
        .replace(&from.unwrap().to_string(), "2026-01-01T00:00:00Z");
    host.site.write("resourcesync/a/changelist.xml", &full);
    host.resource("2", "two");
    host.publish();
    let listed = host.listed("resourcesync/a/changelist.xml");
    assert_eq!(listed.len(), 50_000);
    assert_eq!([&*listed[0], &*listed[49_999]], ["a/1", "a/2.txt"]);
}

#[test]
fn a_cron_job_publishes_several_sets() {
    let Some(mut host) = Host::new(HUB) else {
        return;
    };
    host.sets = "a b";
    host.resource("1", "one");
    host.site.write("b/2.txt", "two");
    host.publish();
    for (list, want) in [
        (
            ".well-known/resourcesync",
            &[
                "resourcesync/a/capabilitylist.xml",
                "resourcesync/b/capabilitylist.xml",
            ][..],
        ),
        ("resourcesync/a/resourcelist.xml", &["a/1.txt"]),
        ("resourcesync/b/resourcelist.xml", &["b/2.txt"]),
    ] {
        assert_eq!(host.listed(list), want, "{list}");
    }
}

#[test]
fn names_of_files_are_escaped_in_their_uris() {
    let Some(host) = Host::new(HUB) else { return };
    let name = "é 100%#a?b&c";
    host.resource(name, "one");
    host.publish();
    let path = "a/%C3%A9%20100%25%23a%3Fb&c.txt";
    assert_eq!(host.listed("resourcesync/a/resourcelist.xml"), [path]);
    let before = host.change_list();
    host.publish();
    assert_eq!(host.change_list(), before);
    host.resource(name, "another");
    host.publish();
    assert_eq!(host.listed("resourcesync/a/changelist.xml"), [path]);
}

#[test]
fn a_cron_job_needs_no_configuration_where_the_daemon_has_none() {
    let Some(host) = Host::new(HUB) else { return };
    host.resource("1", "one");
    assert_eq!(host.run(&[("CONFIG", "")]), (Some(0), String::new()));
    let list = fs::read_to_string(host.site.path("resourcesync/a/capabilitylist.xml")).unwrap();
    assert_contains(
        &list,
        "http://127.0.0.1:8400/topics/main/resourcesync/a/capabilitylist/",
    );
}

#[test]
fn resources_that_are_not_there_are_not_published_as_deleted() {
    let Some(host) = Host::new(HUB) else { return };
    let (files, away) = (host.site.path("a"), host.site.path("away"));
    let fails = || {
        let (code, mail) = host.run(&[]);
        assert_eq!(code, Some(1), "{mail}");
        assert_contains(&mail, "nothing is published");
    };
    fails();
    assert!(!host.site.path("resourcesync/a/capabilitylist.xml").exists());
    host.resource("1", "one");
    host.publish();
    let before = host.change_list();
    fs::rename(&files, away).unwrap();
    fails();
    assert_eq!(host.change_list(), before);
}

#[test]
fn a_run_leaves_the_tree_to_the_one_before_it() {
    let Some(host) = Host::new(HUB) else { return };
    host.resource("1", "one");
    fs::create_dir_all(host.staging()).unwrap();
    let lock = fs::File::create(host.staging().join("lock")).unwrap();
    lock.lock().unwrap();
    host.publish();
    assert!(!host.site.path("resourcesync/a/capabilitylist.xml").exists());
    drop(lock);
    host.publish();
    assert!(host.site.path("resourcesync/a/capabilitylist.xml").exists());
}
