//! `run --dry-run` prints the requests without sending them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rstest::rstest;

use crate::support::daemon::{Setup, assert_contains, assert_lacks, exit_with};
use crate::support::documents::{Site, files_below, list};
use crate::support::hub::{FakeHub, Request};

/// A hub's entry that asks for credentials and a header of the operator's.
fn guarded(hub: &FakeHub, mode: &str, directory: &Path) -> String {
    let (token, key) = (directory.join("token"), directory.join("key"));
    fs::write(&token, "open-sesame\n").unwrap();
    fs::write(&key, "k-1\n").unwrap();
    format!(
        "[[hub]]\nurl = \"{}\"\nmode = \"{mode}\"\nbearer_token_file = \"{}\"\n\
         headers = {{ X-Site = \"main\", X-Key = {{ file = \"{}\" }} }}\n",
        hub.url(),
        token.display(),
        key.display()
    )
}

fn dry_run(setup: &Setup) -> (String, String) {
    exit_with(setup.command("run").arg("--dry-run"), 0)
}

/// The requests in what was printed: target, headers, body.
fn requests(printed: &str) -> Vec<(String, BTreeMap<String, String>, String)> {
    let blocks = printed.split("# ").skip(1);
    let requests = blocks.map(|block| {
        let (_, request) = block.split_once('\n').unwrap();
        let (head, body) = request.split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let url = lines.next().unwrap().strip_prefix("POST ").unwrap();
        let target = url.splitn(4, '/').nth(3).unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        (
            format!("/{target}"),
            headers.collect(),
            body.trim_end().to_owned(),
        )
    });
    requests.collect()
}

/// A body without the time of its making.
fn without_until(body: &str) -> String {
    match body.split_once(" until=\"") {
        Some((before, after)) => format!("{before}{}", after.split_once('"').unwrap().1),
        None => body.to_owned(),
    }
}

/// Every file of the state that matters.
fn state_files(setup: &Setup) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = files_below(&setup.state.path().join("state"));
    // SQLite shares its index with readers in memory that is a file.
    files.retain(|path, content| !content.is_empty() && !path.to_string_lossy().ends_with("-shm"));
    files
}

#[rstest]
#[case("content")]
#[case("content-query")]
#[case("ping")]
fn a_dry_run_prints_the_requests_that_a_run_then_sends(#[case] mode: &str) {
    let site = Site::new();
    let hub = FakeHub::start();
    let secrets = tempfile::TempDir::new().unwrap();
    let entry = guarded(&hub, mode, secrets.path());
    let mut setup = Setup::new(&site, &[], &entry);
    setup.replace("[window]", "[window]\nmax_entries = 1");
    setup.start().stop();
    let stopped = SystemTime::now();
    for capability in ["changelist", "resourcelist"] {
        let name = format!("a/{capability}.xml");
        site.write(&name, &list("a", capability, "2"));
        // The clock of the file system is coarse: a change from before the last look would be dated by each next look.
        while fs::metadata(site.path(&name)).unwrap().modified().unwrap() <= stopped {
            site.write(&name, &list("a", capability, "2"));
        }
    }
    let state = state_files(&setup);

    let (printed, summary) = dry_run(&setup);
    assert_contains(&summary, "2 requests would be sent; none was");
    assert_lacks(&printed, "open-sesame");
    assert_lacks(&printed, "k-1");
    assert_eq!(hub.heard().len(), 0);
    assert_eq!(state_files(&setup), state);

    let daemon = setup.start();
    let first: Request = hub.notification();
    if mode == "ping" {
        daemon.get("/topics/main/a/capabilitylist/");
    }
    let sent = [first, hub.notification()];
    for ((target, mut headers, body), sent) in requests(&printed).into_iter().zip(sent) {
        assert_eq!(target, sent.target);
        let mut heard = sent.headers.clone();
        assert_eq!(headers.remove("x-key").as_deref(), Some("***"));
        assert_eq!(heard.remove("x-key").as_deref(), Some("k-1"));
        assert_eq!(
            headers.remove("authorization").as_deref(),
            Some("Bearer ***")
        );
        assert_eq!(
            heard.remove("authorization").as_deref(),
            Some("Bearer open-sesame")
        );
        assert_eq!(headers, heard);
        let sent = String::from_utf8(sent.body).unwrap();
        assert_eq!(without_until(&body), without_until(sent.trim_end()));
    }
}

#[test]
fn a_deletion_is_among_the_requests_although_it_has_to_wait() {
    let site = Site::new();
    site.add_set("b");
    let hub = FakeHub::start();
    let entry = format!("[[hub]]\nurl = \"{}\"\n", hub.url());
    let setup = Setup::with_source(&site, "", &entry);
    setup.start().stop();
    site.remove("b/capabilitylist.xml");
    let (printed, _) = dry_run(&setup);
    assert_contains(&printed, "change=\"deleted\"");
    // The grace, and what was left of it when the printing began.
    let wait = printed.strip_prefix("# after ").unwrap();
    let wait: String = wait.chars().take_while(char::is_ascii_digit).collect();
    assert!((299..310).contains(&wait.parse().unwrap()), "{printed}");
}

#[test]
fn a_first_run_would_send_nothing_and_a_dry_one_leaves_no_trace() {
    let (_site, _hub, setup) = Setup::announcing("");
    let (printed, summary) = dry_run(&setup);
    assert_eq!(printed, "");
    assert_contains(&summary, "0 requests would be sent");
    assert_contains(&summary, "takes what is there as known");
    assert!(!setup.state.path().join("state").exists());
}
