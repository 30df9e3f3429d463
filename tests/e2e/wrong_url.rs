//! A `url` that is wrong or missing: the Capability Lists show which it is.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::DEADLINE;
use crate::support::daemon::{
    Daemon, Setup, assert_contains, assert_lacks, count_of, exit_with, fail, output, succeed,
};
use crate::support::documents::{Site, URL, list};
use crate::support::hub::FakeHub;

const WRONG: &str = "the Capability Lists here name documents below `https://source.example/`, and the mount says \
                     `https://wrong.example/`: is `url` wrong?";

const ORPHAN: &str = "belongs to no set of resources";

fn many_sets() -> Site {
    let site = Site::new();
    for set in 0..30 {
        site.add_set(&format!("s{set}"));
    }
    site
}

#[test]
fn a_wrong_url_is_one_message_wherever_it_is_told() {
    let site = many_sets();
    let mut setup = Setup::with_source(&site, "broken_after = \"0s\"", "");
    setup.replace(URL, "https://wrong.example/");
    let (stdout, _) = exit_with(&mut setup.command("check"), 1);
    assert_contains(&stdout, WRONG);
    assert_contains(&stdout, "\n1 finding\n");
    let (_, stdout, _) = output(setup.command("check").args(["--json", "--all"]));
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["findings"], serde_json::json!([WRONG]));
    assert_eq!(answer["count"], 1);
    let (_, _, stderr) = output(&mut setup.command("scan"));
    assert_eq!(stderr, format!("rsnotify: {WRONG}\n"));

    let daemon = setup.launch();
    daemon.await_log("is `url` wrong?");
    let (_, page) = daemon.get_admin("/");
    assert_contains(&page, "is `url` wrong?");
    let (_, stdout, _) = output(&mut setup.command("status"));
    assert_contains(&stdout, WRONG);
    let (_, log) = daemon.stop_and_tell();
    let warnings = count_of(&log, "\"WARN\"");
    assert_eq!(warnings, 1, "{log:#?}");
}

#[test]
fn findings_of_one_kind_are_folded_unless_all_are_asked_for() {
    let site = Site::new();
    for number in 0..50 {
        let orphan = list("nowhere", "changelist", "1");
        site.write(&format!("orphans/{number}.xml"), &orphan);
    }
    let setup = Setup::with_source(&site, "broken_after = \"0s\"", "");
    let (_, stdout, _) = output(&mut setup.command("check"));
    assert_eq!(stdout.matches(ORPHAN).count(), 3, "{stdout}");
    assert_contains(
        &stdout,
        "and 47 more of the kind unrouted\n      `rsnotify check --all` prints each",
    );
    assert!(stdout.ends_with("\n51 findings\n"), "{stdout}");
    let (_, stdout, _) = output(setup.command("check").arg("--all"));
    assert_eq!(stdout.matches(ORPHAN).count(), 50);
    let daemon = setup.launch();
    daemon.await_log(
        "47 more findings of the kind unrouted in main: `rsnotify check --all` prints each",
    );
    let (_, stdout, _) = output(setup.command("scan").args(["--state", "unrouted"]));
    assert_eq!(stdout.lines().count(), 50, "{stdout}");
    let (_, stdout, _) = output(setup.command("scan").args(["--state", "silent,missing"]));
    assert_eq!(stdout, "");
    fail(setup.command("scan").args(["--state", "lost"]), 2);
}

#[test]
fn what_is_acknowledged_is_a_note() {
    let site = Site::new();
    site.write("a/orphan.xml", &list("nowhere", "changelist", "1"));
    let acknowledged = "acknowledged = [\"unrouted https://source.example/a/*\", \"unadvertised\"]";
    let setup = Setup::with_source(&site, acknowledged, "");
    let stdout = succeed(&mut setup.command("check"));
    assert_contains(
        &stdout,
        "note: 1 finding of the kind unrouted acknowledged by the configuration",
    );
    let wrong = Setup {
        state: TempDir::new().unwrap(),
        config: setup.config.replace("unrouted https", "unruoted https"),
    };
    let stderr = fail(&mut wrong.command("check"), 78);
    assert_contains(&stderr, "source.acknowledged");
}

/// A command with flags in place of a configuration.
fn unconfigured(setup: &Setup, command: &str, site: &Site) -> Command {
    let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    process.env("STATE_DIRECTORY", setup.state.path().join("state"));
    process.arg(command).arg("--root").arg(site.root.path());
    process
}

#[test]
fn without_url_the_lists_say_what_the_tree_is_published_as() {
    let site = many_sets();
    let setup = Setup::new(&site, &[], "");
    let taken = format!(
        "rsnotify: without --url, {} is taken to be published as https://source.example/: below that its Capability \
         Lists name documents\n",
        site.root.path().display()
    );
    let (code, stdout, stderr) = output(&mut unconfigured(&setup, "scan", &site));
    assert_eq!((code, stderr.as_str()), (Some(0), taken.as_str()));
    assert_contains(&stdout, "https://source.example/s7/changelist.xml");
    let (_, stdout, stderr) = output(&mut unconfigured(&setup, "check", &site));
    assert_eq!(stderr, taken);
    assert_lacks(&stdout, "is `url` wrong?");

    let mut run = unconfigured(&setup, "run", &site);
    run.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    run.args(["--log-format", "json"]);
    let daemon = Daemon::spawn(run);
    daemon.await_log("opened channel");
    drop(daemon);
}

#[test]
fn without_url_lists_that_disagree_or_say_nothing_are_asked_about() {
    let site = Site::new();
    site.add_set("b");
    let path = site.path("b/capabilitylist.xml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace(URL, "https://other.example/")).unwrap();
    // Only the two Capability Lists say anything.
    site.remove(".well-known/resourcesync");
    let setup = Setup::new(&site, &[], "");
    let stderr = fail(&mut unconfigured(&setup, "scan", &site), 2);
    for words in [
        "https://source.example/",
        "https://other.example/",
        "give --url URI",
    ] {
        assert_contains(&stderr, words);
    }
    let empty = Site::empty();
    for command in ["run", "scan", "check"] {
        let stderr = fail(&mut unconfigured(&setup, command, &empty), 2);
        assert_contains(&stderr, "give --url URI");
    }
    fs::remove_dir_all(empty.root.path()).unwrap();
    let (code, _, stderr) = output(&mut unconfigured(&setup, "run", &empty));
    let root = empty.root.path().display();
    let words = format!("rsnotify: cannot read the directory {root}: No such file or directory");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.starts_with(&words), "{stderr}");
}

#[test]
fn a_log_that_nobody_reads_delays_nothing() {
    let site = many_sets();
    for number in 0..400 {
        site.add_set(&format!("more-{number}"));
    }
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = setup.run().stderr(Stdio::from(writer)).spawn().unwrap();
    // Until its baseline is taken, a change is none.
    let deadline = Instant::now() + DEADLINE;
    let mut versions = 2..;
    while hub.heard().is_empty() {
        assert!(Instant::now() < deadline, "nothing was told");
        let version = versions.next().unwrap().to_string();
        site.write_list("a", "changelist", &version);
        std::thread::sleep(Duration::from_millis(500)); // polls, until the deadline
    }
    child.kill().unwrap();
    child.wait().unwrap();
    drop(reader);
}
