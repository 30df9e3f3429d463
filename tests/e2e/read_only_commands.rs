//! Commands that only read, and show their progress on a terminal and nowhere else; `run --dry-run` prints the requests
//! without sending them.

use std::collections::BTreeMap;
use std::fs::{self, hard_link};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use rstest::rstest;

use crate::support::daemon::{
    Setup, assert_contains, assert_lacks, exit_with, fail, output, succeed,
};
use crate::support::documents::{Site, files_below, index, list};
use crate::support::hub::{FakeHub, Request};
use crate::support::needs;

#[test]
fn scan_prints_every_document_with_its_place_in_the_framework() {
    let site = Site::new();
    site.write("a/orphan.xml", &list("nowhere", "changelist", "1"));
    site.write(
        "a/index.xml",
        &index("a", "resourcedump", &["a/part.xml".to_owned()]),
    );
    site.write("a/part.xml", &list("a", "resourcedump", "1"));
    site.write("a/broken.xml", &list("a", "changelist", "1")[..200]);
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    assert_eq!(setup.state_of("a/changelist.xml"), "new");
    let _daemon = setup.start();
    let documents = setup.scan();
    let find = |path: &str| {
        documents
            .iter()
            .find(|document| document["path"] == path)
            .unwrap_or_else(|| panic!("{path} in {documents:#?}"))
    };
    for (path, state) in [
        ("a/changelist.xml", "announced"),
        ("a/orphan.xml", "unrouted"),
        ("a/index.xml", "silent"),
        ("a/broken.xml", "broken"),
        (".well-known/resourcesync", "announced"),
    ] {
        assert_eq!(find(path)["state"], state, "{path}");
    }
    let part = find("a/part.xml");
    assert_eq!(part["uri"], "https://source.example/a/part.xml");
    assert_eq!(part["capability"], "resourcedump");
    assert_eq!(part["form"], "list");
    assert_eq!(part["index"], "https://source.example/a/index.xml");
    assert_eq!(
        part["sets"][0],
        "https://source.example/a/capabilitylist.xml"
    );
    assert_eq!(part["channels"].as_array().unwrap().len(), 1);
    assert!(part["reason"].is_null());
}

#[test]
fn scan_says_what_a_change_while_down_will_do() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let setup = Setup::with_source(&site, "", &hub.table(""));
    assert!(setup.start().stop().success());
    site.write_list("a", "changelist", "2");
    site.remove("a/resourcelist.xml");
    assert_eq!(setup.state_of("a/changelist.xml"), "pending");
    assert_eq!(setup.state_of("a/resourcelist.xml"), "missing");
    assert_eq!(setup.state_of("a/capabilitylist.xml"), "announced");
}

#[test]
fn check_exits_with_0_1_or_78() {
    let site = Site::new();
    let hub = FakeHub::start();
    let channel = "[[channel]]\ncapability_list = \"https://source.example/a/capabilitylist.xml\"\n\
                   topic = \"https://source.example/a/framework/\"\n";
    let setup = Setup::new(&site, &[hub.url()], channel);
    succeed(&mut setup.command("check"));

    site.write("a/orphan.xml", &list("nowhere", "changelist", "1"));
    site.write_capability_list("a", &["resourcelist", "changelist", "absent", "plain"]);
    site.write(
        "a/plain.xml",
        "<urlset xmlns=\"https://www.sitemaps.org/schemas/sitemap/0.9\"/>",
    );
    let (stdout, _) = exit_with(&mut setup.command("check"), 1);
    for words in [
        "orphan.xml",
        "names https://source.example/a/absent.xml, and no file is there",
        "names https://source.example/a/plain.xml, and the file there is no document: its root element urlset is in",
    ] {
        assert_contains(&stdout, words);
    }

    let bad = Setup {
        config: setup.config.replace("quiet", "quite"),
        ..setup
    };
    for command in ["check", "run", "scan"] {
        let stderr = fail(&mut bad.command(command), 78);
        assert_contains(&stderr, "did you mean \"quiet\"");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    fail(
        Command::new(env!("CARGO_BIN_EXE_rsnotify")).arg("announce"),
        2,
    );
}

#[test]
fn scan_explains_one_file() {
    let site = Site::new();
    site.write("a/notes.txt", "none");
    site.write(
        "a/sitemap.xml",
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>",
    );
    site.write("a/broken.xml", &list("a", "changelist", "1")[..200]);
    let hub = FakeHub::start();
    let setup = Setup::new(&site, &[hub.url()], "");
    let explained = |path: &str| {
        let path = site.path(path);
        let (code, out, said) = output(setup.command("scan").arg(&path));
        (code, out + &said)
    };
    let (code, said) = explained("a/changelist.xml");
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("\nread "), "no daemon has run: {said}");
    let daemon = setup.start();
    let (code, said) = explained("a/changelist.xml");
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "URI       https://source.example/a/changelist.xml",
        "include   **/*.xml",
        "kind      changelist list",
        "set       https://source.example/a/capabilitylist.xml",
        "state     announced",
    ] {
        assert_contains(&said, &format!("\n{line}\n"));
    }
    assert_contains(&said, "\nread      20");
    assert_contains(&said, "\nchannel   http");
    for (path, glob, why) in [
        (
            "a/notes.txt",
            false,
            "the file there is no document: it is a resource or another file",
        ),
        ("a/sitemap.xml", true, "the file there is no document: "),
        ("a/none.xml", true, "no file is there"),
    ] {
        let (code, said) = explained(path);
        assert_eq!(
            (code, said.contains("\ninclude ")),
            (Some(1), glob),
            "{said}"
        );
        assert_contains(&said, "\nstate     no document\nreason    ");
        assert_contains(&said, why);
    }
    let (code, said) = explained("a/broken.xml");
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&said, "\nstate     broken\nreason    ");
    let mut asked = setup.command("scan");
    asked.args(["--json"]).arg(site.path("a/changelist.xml"));
    let (_, answer, _) = output(&mut asked);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["document"]["state"], "announced");
    assert_eq!(answer["include"], "**/*.xml");
    let said = fail(setup.command("scan").arg("/nowhere/a.xml"), 1);
    assert_contains(&said, "/nowhere/a.xml lies below no mount; ");
    assert!(daemon.stop().success());
}

#[test]
fn a_tree_without_a_document_says_so_and_why() {
    let (site, hub) = (Site::empty(), FakeHub::start());
    let setup = Setup::new(&site, &[hub.url()], "");
    let said = |command: &str| {
        let (code, out, said) = output(&mut setup.command(command));
        (code, out + &said)
    };
    for command in ["scan", "check"] {
        let (_, said) = said(command);
        assert_contains(&said, "no file is read: no name in the tree");
    }
    for name in ["b.xml", "a.xml"] {
        let sitemap = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>";
        site.write(name, sitemap);
    }
    let why =
        "2 XML files read, none is a ResourceSync document; a.xml: the file there is no document: ";
    for (command, want) in [("scan", 0), ("check", 1)] {
        let (code, said) = said(command);
        assert_contains(&said, why);
        assert_eq!(code, Some(want), "{said}");
    }
    let daemon = setup.start();
    assert_contains(&said("status").1, why);
    let (_, page) = daemon.get_admin("/");
    assert_contains(&page, "nothing is announced of main: 2 XML files");
    let (_, log) = daemon.stop_and_tell();
    assert!(log.iter().any(|line| line.contains(why)), "{log:#?}");
    // The next one reads neither again.
    let daemon = setup.start();
    assert_contains(&said("status").1, "none is a ResourceSync document; a.xml");
    daemon.kill();
    site.add_set("a");
    assert!(!said("scan").1.contains("none is a ResourceSync document"));
}

#[test]
fn a_backup_is_taken_of_a_daemon_that_runs_and_one_that_does_not_and_restores_the_state() {
    let (site, hub, setup) = Setup::announcing("");
    let to = |name: &str| setup.state.path().join(name);
    let back_up = |name: &str| output(setup.command("backup").arg(to(name)));
    let (code, _, said) = back_up("none");
    assert_eq!(code, Some(1));
    assert_contains(&said, "there is no state in ");
    let daemon = setup.start();
    let (code, said, _) = back_up("running");
    assert_eq!(code, Some(0));
    assert!(said.starts_with("copied the state in "), "{said}");
    let mode = fs::metadata(to("running")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, _, said) = back_up("running");
    assert_eq!(code, Some(1));
    assert_contains(&said, "cannot write the backup ");
    assert_contains(&said, "File exists");
    site.write_list("a", "changelist", "2");
    let told = ["updated changelist a/changelist.xml"];
    hub.assert_told(told);
    assert!(daemon.stop().success());
    assert_eq!(back_up("stopped").0, Some(0));
    // With the state of before the change, it is announced again; with that of after it, it is not.
    for (name, is_told) in [("running", true), ("stopped", false)] {
        fs::copy(to(name), to("state/state.sqlite")).unwrap();
        let daemon = setup.start();
        if is_told {
            hub.assert_told(told);
        }
        assert!(daemon.stop().success());
    }
    assert!(hub.heard().is_empty());
}

/// More than a sweep can read before it has to say that it goes on.
const FILES: usize = 30_000;

/// Names of one file that is no document, so that only the looking takes time.
fn fill(site: &Site) {
    site.write("many/0.xml", "<nothing/>");
    let first = site.path("many/0.xml");
    for number in 1..FILES {
        hard_link(&first, site.path(&format!("many/{number}.xml"))).unwrap();
    }
}

/// Returns the standard error of `scan` on a terminal; `None` where there is no `script`.
fn shown(setup: &Setup) -> Option<String> {
    let script = needs::program("script")?;
    let binary = env!("CARGO_BIN_EXE_rsnotify");
    let answer = setup.state.path().join("answer");
    let line = format!(
        "{binary} scan --config {} >{}",
        setup.file().display(),
        answer.display()
    );
    let mut script = Command::new(script);
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    script.env("STATE_DIRECTORY", setup.state.path().join("state"));
    script.env("TERM", "xterm").stdin(Stdio::null());
    let output = script.output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    assert!(is_plain(&fs::read_to_string(answer).unwrap()));
    Some(shown)
}

/// Returns true if a text consists of plain lines.
fn is_plain(text: &str) -> bool {
    text.contains("changelist") && !text.chars().any(|c| c.is_control() && c != '\n')
}

#[test]
fn a_terminal_shows_how_far_a_sweep_has_come_and_a_pipe_nothing_of_it() {
    let site = Site::new();
    let setup = Setup::with_source(&site, "", "");
    fill(&site);

    let output = setup.command("scan").output().unwrap();
    assert!(is_plain(&String::from_utf8(output.stdout).unwrap()));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");

    let Some(first) = shown(&setup) else { return };
    // A few documents lie beside them, listed before or after.
    assert!(first.contains(" of 30,00"), "{first:?}");
    assert!(first.contains(" files found so far"), "{first:?}");
    let wiped = "\r\u{1b}[2K";
    assert!(first.ends_with(wiped), "{first:?}");

    assert!(setup.start().stop().success());
    let second = shown(&setup).unwrap();
    assert!(second.contains(" of about 30,00"), "{second:?}");
    assert!(second.contains("[=") || second.contains("[>"), "{second:?}");
    assert!(second.ends_with(wiped), "{second:?}");
}

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
