//! Every message about a configuration that is refused.

use crate::config::environment::Overrides;
use crate::config::tests::{
    HUB, SOURCE, assert_refused, environment, flags, load_in, message, read, said,
};

#[test]
fn every_mistake_in_the_file_is_named_with_its_place() {
    // These follow the four lines of SOURCE, so the first are keys of its source.
    for (table, mistakes) in [
        (
            "",
            r#"
watch = "inotfy"
=> 5:9: source.watch: "inotfy" is none of "auto", "inotify", "notify", "poll"; did you mean "inotify"?
watch = 3
=> 5:9: source.watch: write one of "auto", "inotify", "notify", "poll"
settle = "1 s"
=> 5:10: source.settle: "1 s" is not a duration: write a whole number and ms, s, m, h or d, such as "30s"
rescan_interval = "0s"
=> 5:19: source.rescan_interval: it must be longer than zero
poll_interval = "0ms"
=> 5:17: source.poll_interval: it must be longer than zero
mass_deletion = "101%"
=> 5:17: source.mass_deletion: "101%" is neither "0%" to "100%" nor "never"
mass_deletion = "+5%"
=> 5:17: source.mass_deletion: "+5%" is neither "0%" to "100%" nor "never"
include = ["*.xml", "a{b"]
=> 5:21: source.include: error parsing glob 'a{b': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
include = []
=> 5:11: source.include: the list is empty: name at least one
exclude = ["/a"]
=> 5:12: source.exclude: "/a" begins with "/": globs match the path below the mount
settle = 1s
=> 5:10: string values must be quoted, expected literal string
[[source]]
name = "main"
mount = [{ path = "/b", url = "https://b.example/" }]
=> 6:8: source.name: there is a source named "main" already
[[source]]
mount = [{ path = "/b", url = "https://b.example/" }]
=> 5:1: source.name: it is missing
[[source]]
name = "a/b"
mount = [{ path = "/b", url = "https://b.example/" }]
=> 6:8: source.name: "a/b" cannot name a source: use letters, digits, "-", "_" and "."
[[source]]
name = "b"
=> 5:1: source.mount: it is missing: write path and url, or mount = [{ path = "…", url = "…" }]
[[hub]]
=> 5:1: hub.url: it is missing
[[hub]]
url = "ws://h.example/"
=> 6:7: hub.url: "ws://h.example/" is neither http nor https
[[hub]]
url = "https://ann:hunter2@h.example/"
=> 6:7: hub.url: credentials do not belong into an address: use username and password_file
[[channel]]
topic = "https://example.org/t"
=> 5:1: channel.capability_list: it is missing
[[channel]]
capability_list = "https://example.org/c"
=> 5:1: channel.topic: it is missing
"#,
        ),
        (
            "[[source]]\nname = \"b\"\n",
            r#"
mount = [{ path = "/b" }]
=> 7:10: source.mount.url: it is missing
mount = [{ url = "https://b.example/" }]
=> 7:10: source.mount.path: it is missing
mount = [{ path = "", url = "https://b.example/" }]
=> 7:19: source.mount.path: it is empty
mount = [{ pth = "/b" }]
=> 7:12: source.mount.pth: there is no such key; did you mean "path"?
mount = [{ path = "/b", url = "b" }]
=> 7:31: source.mount.url: "b" is not an absolute URI such as https://example.org/
mount = [{ path = "/b", url = "https://b.example/?q" }]
=> 7:31: source.mount.url: "https://b.example/?q" has a query (?), which a prefix cannot have
mount = [{ path = "www/b", url = "https://b.example/" }]
=> 7:19: source.mount.path: /etc/www/b overlaps /etc/www, which is mounted already
mount = [{ path = "/b", url = "https://example.org/b" }]
=> 7:31: source.mount.url: https://example.org/b/ overlaps https://example.org/, which is another mount's already
mount = [{ path = "/b", url = "https://b.example/", aliases = ["https://EXAMPLE.org/"] }]
=> 7:31: source.mount.url: https://example.org/ overlaps https://example.org/, which is another mount's already
"#,
        ),
        (
            "[server]\n",
            r#"
listen = "localhost:80"
=> 6:10: server.listen: "localhost:80" has a host name: write its IP address, such as "127.0.0.1:8400"
listen = "unix:/run/s"
=> 6:10: server.listen: a Unix socket says nothing about how it is reached: set public_url too
admin_listen = "127.0.0.1:8400"
=> 6:16: server.admin_listen: 127.0.0.1:8400 is the public listener's address already
public_url = "gopher://a/"
=> 6:14: server.public_url: "gopher://a/" is neither http nor https
port = 1
=> 6:1: server.port: there is no such key; here it may be listen, public_url, admin_listen, retired_topic
listen = "0.0.0.0:8400"
=> 6:10: server.listen: nobody can reach 0.0.0.0:8400 under that name: set public_url too
listen = "[fe80::1%2]:80"
=> 6:10: server.listen: nobody can reach [fe80::1%2]:80 under that name: set public_url too
"#,
        ),
        (
            "[window]\n",
            r#"
quiet = "40s"
=> 6:9: window.quiet: quiet (40s) is longer than max_wait (30s)
max_wait = "1s"
=> 6:12: window.max_wait: quiet (2s) is longer than max_wait (1s)
max_entries = 0
=> 6:15: window.max_entries: 0 is not between 1 and 50000
max_entries = -3
=> 6:15: window.max_entries: -3 is not between 1 and 50000
"#,
        ),
        (
            HUB,
            r#"
[[hub]]
url = "https://h.example/"
=> 8:7: hub.url: https://h.example/ is listed already
publish_url = "/p"
=> 7:15: hub.publish_url: "/p" is not an absolute URI such as https://example.org/
publish_url = "https://ann:hunter2@h.example:99999/"
=> 7:15: hub.publish_url: credentials do not belong into an address: use username and password_file
headers = { Cookie = "x" }
=> 7:22: hub.headers.Cookie: its value is a secret, which does not belong into this file: write { file = "..." }, { env = "..." } or { credential = "..." }
mode = "contnet"
=> 7:8: hub.mode: "contnet" is none of "content", "ping", "content-query"; did you mean "content"?
timeout = "0s"
=> 7:11: hub.timeout: it must be longer than zero
bearer_token_file = "/nowhere/t"
=> 7:21: hub.bearer_token_file: cannot read /nowhere/t: No such file or directory (os error 2)
bearer_token_file = "t"
username = "u"
=> 7:21: hub.bearer_token_file: a bearer token and a user name with a password exclude each other: keep one
username = "u"
=> 7:12: hub.username: it needs password_file too
password_file = "u"
=> 7:17: hub.password_file: it needs username too
client_cert = "u"
=> 7:15: hub.client_cert: it needs client_key too
client_key = "u"
=> 7:14: hub.client_key: it needs client_cert too
headers = { Link = "x" }
=> 7:20: hub.headers.Link: the protocol decides this header
headers = { "a b" = "x" }
=> 7:21: hub.headers.a b: a header's name has letters, digits and "-" only
headers = { A = "x\ny" }
=> 7:17: hub.headers.A: the value has a control character
headers = { A = 1 }
=> 7:17: hub.headers.A: expected a text, { file = "..." }, { env = "..." } or { credential = "..." }
"#,
        ),
        (
            "[embedded_hub]\n",
            r#"
enabled = false
=> 6:11: embedded_hub.enabled: no hub is left to notify: add a [[hub]], or leave this one enabled
path = "hub"
=> 6:8: embedded_hub.path: "hub" is not a plain path such as "/hub"
path = "/topics/hub"
=> 6:8: embedded_hub.path: "/topics/hub" cannot be the hub's path: write one such as "/hub"
trusted_proxies = ["proxy"]
=> 6:20: embedded_hub.trusted_proxies: "proxy" is not a network: write "10.0.0.0/8", "fd00::/8" or a single IP address
allow_callback_networks = ["::1", "10.0.0.1/8"]
=> 6:35: embedded_hub.allow_callback_networks: "10.0.0.1/8" has bits set beyond its prefix: write "10.0.0.0/8"
callback_ports = []
=> 6:18: embedded_hub.callback_ports: the list is empty: name at least one
callback_ports = ["80", "http"]
=> 6:25: embedded_hub.callback_ports: "http" is no port and no range such as "8000-9999"
callback_ports = ["+80"]
=> 6:19: embedded_hub.callback_ports: "+80" is no port and no range such as "8000-9999"
callback_ports = ["9999-8000"]
=> 6:19: embedded_hub.callback_ports: "9999-8000" is no port and no range such as "8000-9999"
callback_ports = ["0"]
=> 6:19: embedded_hub.callback_ports: "0" is no port and no range such as "8000-9999"
max_subscriptions_per_host = 0
=> 6:30: embedded_hub.max_subscriptions_per_host: 0 is not between 1 and 4294967295
enabled = true
[[hub]]
url = "http://127.0.0.1:8400/hub"
=> 8:7: hub.url: http://127.0.0.1:8400/hub is a [[hub]] and the embedded hub at once
"#,
        ),
        (
            "[[channel]]\ncapability_list = \"https://example.org/c\"\n",
            r#"
topic = "https://else.example/t"
=> 7:9: channel.topic: "https://else.example/t" lies neither below server.public_url nor below a mount's url
topic = "https://example.org/t"
hubs = ["http://127.0.0.1:8400/hup"]
=> 8:9: channel.hubs: "http://127.0.0.1:8400/hup" is not the url of a [[hub]], nor the embedded hub; did you mean "http://127.0.0.1:8400/hub"?
topic = "https://example.org/t"
[[channel]]
capability_list = "https://example.org/d"
topic = "https://example.org/t"
=> 10:9: channel.topic: "https://example.org/t" is another channel's topic already
topic = "https://example.org/t"
[[channel]]
capability_list = "https://example.org/c"
topic = "https://example.org/u"
=> 9:19: channel.capability_list: https://example.org/c has a channel already
"#,
        ),
    ] {
        assert_refused(&format!("{SOURCE}{table}"), mistakes, said);
    }
}

#[test]
fn a_file_without_a_source_says_so() {
    assert_eq!(
        message(read("", &Overrides::default())),
        "source: nothing to watch: add a [[source]] with path and url, or give --root DIR and --url URI"
    );
}

#[test]
fn every_mistake_in_the_flags_is_named_with_its_flag() {
    let said = |given: &str| {
        let given = given.lines().map(|line| line.split_once('=').unwrap());
        let overrides = flags(&given.collect::<Vec<_>>());
        message(load_in(&environment(), None, &overrides))
    };
    assert_refused(
        "",
        r#"
root=a
=> --root: it needs --url URI too: what the directory is published as
url=http://e.org/
=> --url: it needs --root DIR too: the directory that is published there
root=a
url=e.org
=> --url: "e.org" is not an absolute URI such as https://example.org/
root=
url=http://e.org/
=> --root: it is empty
"#,
        said,
    );
    assert_refused(
        "root=a\nurl=https://example.org/\n",
        r#"
hub=h
=> --hub: "h" is not an absolute URI such as https://example.org/
state_dir=
=> --state-dir: it is empty
listen=x
=> --listen: "x" is not an address to listen on: write "127.0.0.1:8400", "[::1]:8400" or "unix:/path"
admin_listen=a:1
=> --admin-listen: "a:1" has a host name: write its IP address, such as "127.0.0.1:8400"
public_url=x
=> --public-url: "x" is not an absolute URI such as https://example.org/
"#,
        said,
    );
}

#[test]
fn the_first_mistake_of_the_file_is_reported_and_a_flag_before_it() {
    let text = format!("{SOURCE}settle = \"x\"\n[window]\nquiet = \"y\"\n");
    let place = |given| {
        let message = message(read(&text, &flags(given)));
        message.split_once(": ").map(|(place, _)| place.to_owned())
    };
    assert_eq!(place(&[]).as_deref(), Some("/etc/c.toml:5:10"));
    assert_eq!(place(&[("listen", "z")]).as_deref(), Some("--listen"));
}
