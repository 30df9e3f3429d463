//! Names and contents of files cannot control a terminal or a log.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::support::daemon::{Setup, TOPICS, assert_contains, output};
use crate::support::documents::{Site, list};

/// ESC, CR, a line of its own, C1, a bidirectional control, BEL, DEL.
const NAME: &str = "x\u{1b}[2J\r\nERROR all is lost\u{9b}31m\u{202e}\u{7}\u{7f}\u{2028}";
/// As it is shown.
const SHOWN: &str = "x\\u001b[2J\\r\\nERROR all is lost\\u009b31m\\u202e\\u0007\\u007f\\u2028";
/// Those that XML admits in an attribute or a text.
const TEXT: &str = "y&#xd;&#xa;ERROR&#x9b;&#x202e;&#x2028;";

fn is_control(c: char) -> bool {
    c.is_control() || "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2028}".contains(c)
}

#[track_caller]
fn is_harmless(shown: &str) {
    let harm = shown.find(|c| c != '\n' && is_control(c));
    assert!(harm.is_none(), "{harm:?} in {shown:?}");
    let forged = shown.lines().find(|line| line.starts_with("ERROR"));
    assert_eq!(forged, None, "{shown}");
}

fn harmful() -> Site {
    let site = Site::new();
    let broken = site
        .root
        .path()
        .join(OsStr::from_bytes(format!("a/{NAME}broken.xml").as_bytes()));
    fs::write(broken, "<urlset").unwrap();
    site.write(
        &format!("a/{NAME}orphan.xml"),
        &list("nowhere", "changelist", "1"),
    );
    site.write("a/foreign.xml", &list("a", TEXT, "1"));
    let directory = site.path(&format!("a/{NAME}loop"));
    std::os::unix::fs::symlink(site.root.path(), directory).unwrap();
    let list = fs::read_to_string(site.path("a/capabilitylist.xml")).unwrap();
    let loc = "https://source.example/a/changelist.xml";
    let evil = format!("{loc}</loc></url><url><loc>https://source.example/a/{TEXT}");
    site.write("a/capabilitylist.xml", &list.replace(loc, &evil));
    site
}

#[test]
fn commands_and_pages_show_names_and_contents_escaped() {
    let site = harmful();
    let gone = format!("a/{NAME}gone/x.xml");
    site.write(&gone, &list("a", "changelist", "1"));
    let hub = "http://127.0.0.1:9/";
    let more = format!("[[hub]]\nurl = \"{hub}\"\n");
    let mut setup = Setup::with_source(&site, "broken_after = \"0s\"", &more);
    let daemon = setup.start();
    site.write(&format!("a/{NAME}late.xml"), &list("a", "changelist", "1"));
    site.remove(&gone);
    daemon.await_status(|status| status["sources"][0]["missing"] == 1);
    daemon.await_status(|status| status.to_string().contains("late.xml"));
    let topic = format!("{TOPICS}topics/main/a/capabilitylist/");
    let hostile = format!("http://127.0.0.1:9/{NAME}");
    let table = [
        (&["check"][..], true),
        (&["check", "--json"], false),
        (&["scan"], false),
        (&["scan", "--json"], false),
        (&["status"], true),
        (&["status", "--json"], false),
        (&["outbox", "list"], false),
        (&["outbox", "list", "--json"], false),
        (&["outbox", "show", &topic, hub], false),
        (&["outbox", "show", "--payload", &topic, hub], false),
        (&["outbox", "show", &hostile, &hostile], true),
        (&["outbox", "drop", &topic, hub], false),
        (&["outbox", "retry", &hostile, &hostile], true),
        (&["subscriptions", "list"], false),
        (&["subscriptions", "show", &hostile, &hostile], false),
        (&["accept", "main", "--dry-run"], true),
        (&["accept", NAME], true),
        (&["accept", "main", "--dry-run", "--json"], false),
        (&["advertise"], false),
        (&["listen", &hostile], false),
    ];
    let broken = format!("a/{NAME}broken.xml");
    assert_eq!(setup.state_of(&broken), "broken");
    // The daemon runs with an earlier configuration, and the file has a key that does not exist.
    let invalid = setup.config.clone() + "\"x\\u001b[2J\" = 1\n";
    for (config, is_valid) in [(setup.config.clone(), true), (invalid, false)] {
        setup.config = config;
        for (arguments, is_shown) in table {
            let (_, stdout, stderr) = output(setup.command(arguments[0]).args(&arguments[1..]));
            is_harmless(&stdout);
            is_harmless(&stderr);
            let all = format!("{stdout}{stderr}");
            // Without a configuration there is no tree to check.
            let is_shown = is_shown && (is_valid || arguments != ["check"]);
            assert!(!is_shown || all.contains(SHOWN), "{arguments:?}: {all}");
        }
    }
    for page in ["/", "/channels", "/status.json"] {
        let (_, body) = daemon.get_admin(page);
        is_harmless(&body.replace("\r\n", "\n"));
    }
}

#[test]
fn log_lines_show_names_and_contents_escaped() {
    let site = harmful();
    for format in ["human", "json"] {
        // A run that has a state does not read again what is no document.
        let setup = Setup::with_source(&site, "broken_after = \"0s\"", "");
        let mut command = setup.command("run");
        command.args(["--log-format", format]);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stderr(Stdio::from(writer));
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut seen = String::new();
        for line in std::io::BufRead::lines(std::io::BufReader::new(reader)) {
            let line = line.unwrap();
            is_harmless(&line);
            seen += &line;
            if seen.contains("cannot read a/x") && seen.contains("foreign.xml") {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let shown = match format {
            "json" => SHOWN.replace('\\', "\\\\"),
            _ => SHOWN.to_owned(),
        };
        assert_contains(&seen, &shown);
    }
}
