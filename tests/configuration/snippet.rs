//! `snippet` reports missing settings and hints for the web server.

use std::fs;

use crate::{output, rsnotify};

fn snippet(flags: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let there = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir(there("tree")).unwrap();
    let mut snippet = rsnotify(&["snippet", "nginx", "--url", "https://e.org/"]);
    snippet.args(["--root", &there("tree"), "--state-dir", &there("state")]);
    output(snippet.args(flags))
}

#[test]
fn what_a_web_server_cannot_be_told_is_said() {
    for (flags, want) in [
        (
            &[][..],
            "rsnotify: server.public_url is not set, so no web server is in front of rsnotify: \
                   set it to the URL of the web server\n",
        ),
        (
            &["--public-url", "https://e.org", "--listen", "127.0.0.1:0"],
            "rsnotify: each start listens on another port: \
                   set server.listen to a port that the web server can know\n",
        ),
        (
            &[
                "--public-url",
                "https://e.org",
                "--listen",
                "unix:/run/$a;b",
            ],
            "rsnotify: /run/$a;b cannot be written for \
                   every web server: choose a path of letters, digits, \"/\", \".\", \"_\", \"-\" and \"+\"\n",
        ),
    ] {
        assert_eq!(snippet(flags), (Some(1), String::new(), want.to_owned()));
    }
}

#[test]
fn rsnotify_is_reached_where_it_listens_and_must_trust_the_web_server() {
    for (listen, address, trusted) in [
        // Trusted without being named.
        ("127.0.0.1:8400", "http://127.0.0.1:8400;", ""),
        ("0.0.0.0:8400", "http://127.0.0.1:8400;", "[\"127.0.0.1\"]"),
        ("[::]:8400", "http://[::1]:8400;", "[\"::1\"]"),
        (
            "192.0.2.1:8400",
            "http://192.0.2.1:8400;",
            "[\"192.0.2.1\"]",
        ),
        ("unix:/run/a.sock", "http://unix:/run/a.sock;", ""),
    ] {
        let (code, lines, errors) =
            snippet(&["--public-url", "https://e.org/p", "--listen", listen]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{lines}");
        for part in [
            "location ^~ \"/p/topics/\"",
            "location = \"/p/hub\"",
            address,
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        let last = lines.trim_end().lines().last().unwrap();
        match trusted {
            "" => assert_eq!(last, "}"),
            trusted => assert_eq!(last, format!("# trusted_proxies = {trusted}")),
        }
    }
    let hub = ["--hub", "https://h.example/"];
    let flags = [&["--public-url", "https://e.org"], &hub[..]].concat();
    let (_, lines, _) = snippet(&flags);
    let is_without = !lines.contains("hub\"") && !lines.contains("trusted");
    assert!(is_without, "{lines}");
}
