//! Tests of the effective configuration: a file that gives it again, without secrets.

use std::fs;

use proptest::prelude::{Strategy, prop_assert_eq, proptest};

use crate::config::Config;
use crate::config::ReloadableConfig;
use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::ConfigError;
use crate::config::tests::{SOURCE, environment, flags, load_in, read};

fn effective(config: &Config) -> String {
    config.effective_toml(&|_| None)
}

/// The same configuration, read from its effective form.
fn again(config: &Config, environment: &ProcessEnvironment) -> Result<Config, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    fs::write(&path, effective(config)).unwrap();
    let again = load_in(environment, Some(&path), &Overrides::default())?;
    Ok(bare(again))
}

/// Returns the configuration without what does not matter: the file, and whether the public URL was written.
fn bare(mut config: Config) -> Config {
    config.file = None;
    config.server.public_url = config.server.known_public_url();
    config
}

#[test]
fn what_is_effective_reads_back() {
    let tree = [("root", "a"), ("url", "http://e.org/")];
    let many = r#"
        state_dir = "/it's \"here\""
        [server]
        public_url = "https://push.example/a"
        listen = "unix:/run/http.sock"
        admin_listen = "[::1]:0"
        retired_topic = "90m"
        [log]
        level = "debug"
        format = "json"
        [[source]]
        name = "b"
        mount = [
            { path = "/srv/b", url = "https://b.example/", aliases = ["http://b.example/"] },
            { path = "/srv/c", url = "https://b.example/c/" },
        ]
        include = ['{a,b}/*.xml', "**/\u00e9.xml"]
        exclude = ["old/**"]
        watch = "poll"
        mass_deletion = "never"
        announce_existing = true
        unadvertised_channels = false
        acknowledged = ["unrouted", "no_file https://example.org/a/*"]
        [window]
        quiet = "1500ms"
        max_entries = 7
        [[hub]]
        url = "https://h.example/?a=%7e"
        publish_url = "http://10.0.0.1:8080"
        mode = "content-query"
        headers = { X-Client = 'a "b" \c', "x'y" = "" }
        proxy = "none"
        danger_accept_invalid_certs = true
        [[hub]]
        url = "https://g.example/"
        mode = "ping"
        proxy = "http://proxy.example:3128"
        timeout = "1h"
        [embedded_hub]
        enabled = true
        callback_ports = ["80", "1000-2000"]
        trusted_proxies = ["127.0.0.1", "fd00::/8"]
        max_subscriptions = 3
        [[channel]]
        capability_list = "https://b.example/c.xml"
        topic = "https://push.example/a/t?%20"
        hubs = ["https://g.example/"]
    "#;
    for (text, given) in [
        (None, &[][..]),
        (None, &[("listen", "127.0.0.1:0"), ("hub", "http://h.e/")]),
        (None, &[("public_url", "https://e.org/push")]),
        (Some(SOURCE), &[]),
        (Some(SOURCE), &[("hub", "https://h.e/"), ("state_dir", "s")]),
        (Some(many), &[]),
        (Some(many), &[("hub", "https://g.example/")]),
    ] {
        let config = match text {
            Some(text) => read(text, &flags(given)),
            None => load_in(&environment(), None, &flags(&[&tree, given].concat())),
        };
        let config = config.unwrap();
        let again = again(&config, &environment());
        let again = again.unwrap_or_else(|error| panic!("{error}\n{}", effective(&config)));
        assert_eq!(effective(&again), effective(&config));
        assert_eq!(again, bare(config));
    }
}

proptest! {
    #[test]
    fn any_text_reads_back(
        path in "/\\PC{1,20}",
        value in "\\PC{0,20}",
        glob in "[^/\\pC\\[\\]{}*\\\\][^\\pC\\[\\]{}*\\\\]{0,20}",
        milliseconds in (0..315_360_000_000_u64).prop_map(|most| most / 2),
    ) {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let (path, value, glob) = (quoted(&path), quoted(&value), quoted(&glob));
        let text = format!(
            "state_dir = {path}\n{SOURCE}include = [{glob}]\nsettle = \"{milliseconds}ms\"\n\
             [[hub]]\nurl = \"https://h.e/\"\nheaders = {{ a = {value} }}\n",
        );
        let config = bare(read(&text, &Overrides::default()).unwrap());
        prop_assert_eq!(again(&config, &environment()).unwrap(), config);
    }
}

#[test]
fn a_secret_is_named_by_what_holds_it_and_else_masked() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path();
    let pem = |kind: &str| format!("-----BEGIN {kind}-----\nhunter2\n-----END {kind}-----\n");
    fs::write(there.join("token"), "hunter2").unwrap();
    fs::write(there.join("cert"), pem("CERTIFICATE")).unwrap();
    fs::write(there.join("key"), pem("PRIVATE KEY")).unwrap();
    let path = there.join("config.toml");
    let text = r#"
        [[source]]
        name = "main"
        mount = [{ path = "www", url = "https://example.org" }]
        [[hub]]
        url = "https://h.example/?id=7"
        publish_url = "https://h.example/hunter2?key=hunter2"
        headers = { X-A = { env = "TOKEN" }, X-Api-Key = "hunter2", X-B = "b" }
        bearer_token_file = "token"
        [[hub]]
        url = "https://i.example/"
        username = "ann"
        password_file = { credential = "token" }
        client_cert = { file = "cert" }
        client_key = "key"
        ca_file = "cert"
    "#;
    fs::write(&path, text).unwrap();
    let environment = ProcessEnvironment {
        variables: [
            ("HOME".into(), "/home/ann".into()),
            ("TOKEN".into(), "hunter2".into()),
            ("CREDENTIALS_DIRECTORY".into(), there.into()),
        ]
        .into(),
        ..environment()
    };
    let config = load_in(&environment, Some(&path), &Overrides::default()).unwrap();
    let effective = effective(&config);
    assert!(!effective.contains("hunter"), "{effective}");
    let held = |name: &str| format!("{{ file = \"{}\" }}", there.join(name).display());
    for line in [
        "url = \"https://h.example/?id=7\"",
        "publish_url = \"https://h.example/***\"",
        "headers = { X-A = { env = \"TOKEN\" }, X-Api-Key = \"***\", X-B = \"b\" }",
        &format!("bearer_token_file = {}", held("token")),
        "publish_url = \"https://i.example/\"",
        "password_file = { credential = \"token\" }",
        &format!("client_cert = {}", held("cert")),
        &format!("client_key = {}", held("key")),
        &format!("ca_file = {}", held("cert")),
    ] {
        let is_shown = effective.lines().any(|shown| shown == line);
        assert!(is_shown, "{line}\n{effective}");
    }
    // What is not masked is there again, the secrets included.
    let mut again = again(&config, &environment).unwrap();
    let (hub, ours) = (&mut again.hubs[0], &config.hubs[0]);
    hub.publish_url.clone_from(&ours.publish_url);
    hub.headers.clone_from(&ours.headers);
    assert_eq!(again, bare(config));
}

#[test]
fn every_key_is_effective_in_the_order_of_the_reference() {
    let overrides = flags(&[("root", "/srv/www"), ("url", "https://example.org/")]);
    let config = load_in(&environment(), None, &overrides).unwrap();
    let effective = effective(&config);
    let names = effective
        .lines()
        .map(|line| line.split(" = ").next().unwrap());
    let want = "state_dir  [server] listen public_url admin_listen retired_topic  [log] level format  \
                [[source]] name mount include exclude watch rescan_interval poll_interval settle broken_after \
                deletion_grace mass_deletion announce_existing announce_all_deletions announce_all_components \
                unadvertised_channels change_notifications changes_from_resource_lists acknowledged  \
                [window] quiet max_wait hold max_entries change_quiet change_max_wait change_backlog  \
                [embedded_hub] enabled path https_callbacks_only callback_ports allow_callback_networks \
                trusted_proxies max_subscriptions max_subscriptions_per_host max_subscriptions_per_address \
                max_requests_per_minute max_backlog";
    assert_eq!(Vec::from_iter(names).join(" "), want);
}
