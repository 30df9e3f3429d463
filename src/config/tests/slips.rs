//! Tests of messages about misspelt keys and values of the wrong kind.

use crate::config::tests::{SOURCE, assert_refused, flags, message, read, said};

#[test]
fn every_misspelt_table_is_named_with_the_one_that_was_meant() {
    for (table, meant) in [
        ("[[hubs]]", "hub"),
        ("[[sources]]", "source"),
        ("[[channels]]", "channel"),
        ("[Server]", "server"),
        ("[windows]", "window"),
        ("[embedded-hub]", "embedded_hub"),
    ] {
        let (start, name) = (
            table.rfind('[').unwrap() + 2,
            table.trim_matches(['[', ']']),
        );
        let want = format!("5:{start}: {name}: there is no such key; did you mean \"{meant}\"?");
        assert_eq!(said(&format!("{SOURCE}{table}\n")), want);
    }
}

#[test]
fn a_table_that_is_written_as_another_kind_is_told_how_to_be_written() {
    assert_refused(
        SOURCE,
        r#"
[hub]
url = "https://h.example/"
=> 5:1: hub: this table may be repeated: write [[hub]], or a list [{ … }]
[[window]]
=> 5:1: window: this table may appear only once: write [window]
"#,
        said,
    );
}

#[test]
fn the_first_slip_of_the_file_is_named_before_any_value_that_is_wrong() {
    assert_refused(
        SOURCE,
        r#"
watc = "poll"
setle = "1s"
=> 5:1: source.watc: there is no such key; did you mean "watch"?
settle = "x"
watch = 3
[sever]
=> 6:9: source.watch: write one of "auto", "inotify", "notify", "poll"
exclude = [1, 2]
[[hub]]
url = 7
=> 5:12: source.exclude: write "1", with quotation marks
[[hub]]
url = 7
=> 6:7: hub.url: write "7", with quotation marks
[[hub]]
urll = "https://h.example/"
=> 6:1: hub.urll: there is no such key; did you mean "url"?
[[hub]]
mode = "pong"
=> 6:8: hub.mode: "pong" is none of "content", "ping", "content-query"; did you mean "ping"?
[window]
quiet = 2
max_wait = "1s"
=> 6:9: window.quiet: write "2s"
[server]
public_uri = "https://pub.example/"
listen = "0.0.0.0:80"
=> 6:1: server.public_uri: there is no such key; did you mean "public_url"?
"#,
        said,
    );
    let want = "1:3: sources: there is no such key; did you mean \"source\"?";
    assert_eq!(said("[[sources]]\nname = \"a\"\n"), want);
}

#[test]
fn a_value_of_another_type_is_told_what_to_write() {
    assert_refused(
        SOURCE,
        r#"
include = "**/*.xml"
=> 5:11: source.include: it is a list: write ["**/*.xml"]
rescan_interval = 30
=> 5:19: source.rescan_interval: write "30s"
mass_deletion = 50
=> 5:17: source.mass_deletion: write "50%" or "never"
announce_existing = "true"
=> 5:21: source.announce_existing: write true or false, without quotation marks
[window]
max_entries = "10"
=> 6:15: window.max_entries: write 10, without quotation marks
[server]
listen = 8400
=> 6:10: server.listen: write "127.0.0.1:8400"
[[hub]]
url = ["https://h.example/"]
=> 6:7: hub.url: it is one text: write "…", without [ ]
[embedded_hub]
callback_ports = 80
=> 6:18: embedded_hub.callback_ports: it is a list: write ["80"]
"#,
        said,
    );
    assert_refused(
        "",
        r#"
[[source]]
name = "main"
mount = "www"
=> 3:9: source.mount: write mount = [{ path = "www", url = "…" }]
[[source]]
name = "main"
mount = ["www"]
=> 3:10: source.mount: write mount = [{ path = "www", url = "…" }]
source = "www"
=> 1:10: source: it is a table: write [[source]] and its keys below
"#,
        said,
    );
}

#[test]
fn the_state_lies_in_no_mount() {
    let flag = |value: &str| flags(&[("state_dir", value)]);
    let place = "lies inside the mount /etc/www, where it would be watched, and published: put it elsewhere";
    for (directory, is_inside) in [
        ("/etc/www", true),
        ("/etc/www/a/b", true),
        ("/etc/other/../www/a", true),
        ("/etc/www2", false),
        ("/etc", false),
    ] {
        let read = read(SOURCE, &flag(directory));
        assert_eq!(read.is_err(), is_inside, "{directory}");
        if is_inside {
            let message = message(read);
            let is_told = message.starts_with("--state-dir: /etc/www") && message.ends_with(place);
            assert!(is_told, "{message}");
        }
    }
    let said = said(&format!("state_dir = \"/etc/www/state\"\n{SOURCE}"));
    assert_eq!(said, format!("1:13: state_dir: /etc/www/state {place}"));
}

#[test]
fn the_state_lies_in_no_mount_by_way_of_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let (tree, link) = (directory.path().join("tree"), directory.path().join("link"));
    std::fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink(&tree, &link).unwrap();
    let mut overrides = flags(&[("url", "https://example.org/")]);
    overrides.source.tree.root = Some(tree);
    overrides.source.tree.state.state_dir = Some(link.join("not/yet"));
    let message = message(read("", &overrides));
    let is_told =
        message.starts_with("--state-dir: ") && message.contains(" lies inside the mount ");
    assert!(is_told, "{message}");
}
