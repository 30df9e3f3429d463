//! Tests of holders of secrets and certificates: files, the environment, systemd. None of it is ever printed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use websub::publisher::settings::HubProxy;

use crate::config::Config;
use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::ConfigError;
use crate::config::tests::{
    HUB, SOURCE, assert_refused, environment, load_in, message, publish_url,
};

/// Reads a configuration of one hub with these keys.
fn load(path: &Path, environment: ProcessEnvironment, hub: &str) -> Result<Config, ConfigError> {
    let text = format!("{SOURCE}{HUB}{hub}\n");
    fs::write(path, text).unwrap();
    load_in(&environment, Some(path), &Overrides::default())
}

fn pem(kind: &str) -> String {
    format!("-----BEGIN {kind}-----\nhunter2\n-----END {kind}-----\n")
}

#[test]
fn secrets_are_read_from_files_and_never_printed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    for (name, content) in [
        ("token", "hunter2\n"),
        ("password", "hunter2\r\n"),
        ("empty", "\n"),
        ("lines", "hunter2\nhunter3\n"),
        ("url", "https://p.example/hunter2?key=hunter2\n"),
        ("cert.pem", &pem("CERTIFICATE")),
        ("key.pem", &pem("PRIVATE KEY")),
    ] {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let load = |hub: &str| load(&path, environment(), hub);

    let config = load(
        "bearer_token_file = \"token\"\nclient_cert = \"cert.pem\"\nclient_key = \"key.pem\"\n\
         ca_file = \"cert.pem\"\nheaders = { X-A = \"hunter2\", X-B = { file = \"token\" } }\n\
         danger_accept_invalid_certs = true\ntimeout = \"5s\"",
    )
    .unwrap();
    let hub = &config.hubs[0];
    assert_eq!(
        hub.bearer_token_file.as_ref().unwrap().content.reveal(),
        "hunter2"
    );
    let headers = hub.headers.iter();
    let values = headers.map(|(name, value)| (name.as_str(), value.content.reveal()));
    let want = [("X-A", "hunter2"), ("X-B", "hunter2")];
    assert_eq!(Vec::from_iter(values), want);
    assert!(hub.client_cert.is_some() && hub.client_key.is_some() && hub.ca_file.is_some());
    assert!(hub.danger_accept_invalid_certs);
    assert_eq!(hub.timeout.0, Duration::from_secs(5));
    assert!(!format!("{config:?}").contains("hunter"));

    let config = load("publish_url = { file = \"url\" }").unwrap();
    let url = publish_url(&config);
    assert_eq!(url, "https://p.example/hunter2?key=hunter2");
    assert!(!format!("{config:?}").contains("hunter"));

    let config = load("username = \"ann\"\npassword_file = \"password\"").unwrap();
    let password = config.hubs[0].password_file.as_ref().unwrap();
    assert_eq!(password.content.reveal(), "hunter2");
    assert_eq!(config.hubs[0].username.as_deref(), Some("ann"));

    assert_refused(
        "",
        r#"
publish_url = { file = "token" }
=> 7:15: hub.publish_url: it holds no absolute URI such as https://hub.example.net/publish?key=…, without user name and password
bearer_token_file = "hunter2hunter2hunter2hunter2hunt"
=> 7:21: hub.bearer_token_file: no such file; if this is the secret itself, write it into a file, and name that here
bearer_token_file = "empty"
=> 7:21: hub.bearer_token_file: empty is empty
bearer_token_file = "lines"
=> 7:21: hub.bearer_token_file: lines has more than one line, or control characters
bearer_token_file = "/dev/zero"
=> 7:21: hub.bearer_token_file: /dev/zero is larger than 64 KiB
headers = { A = { file = "lines" } }
=> 7:17: hub.headers.A: lines has more than one line, or control characters
ca_file = "token"
=> 7:11: hub.ca_file: token has no -----BEGIN … CERTIFICATE----- line
client_cert = "cert.pem"
client_key = "cert.pem"
=> 8:14: hub.client_key: cert.pem has no -----BEGIN … PRIVATE KEY----- line
username = "a:b"
password_file = "password"
=> 7:12: hub.username: a user name has no ":" and no control characters
bearer_token_file = "token"
headers = { authorization = { file = "token" } }
=> 8:11: hub.headers: an Authorization header beside a bearer token or a password: keep one
"#,
        |hub| {
            let got = message(load(hub));
            assert!(!got.contains("hunter"), "{got}");
            got.split_once("config.toml:").unwrap().1.to_owned()
        },
    );
}

#[test]
fn the_environment_and_systemd_hold_secrets_and_certificates_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    for (name, content) in [
        ("token", "hunter2\n".to_owned()),
        ("lines", "hunter2\nhunter3\n".to_owned()),
        ("key", pem("PRIVATE KEY")),
    ] {
        fs::write(directory.path().join(name), content).unwrap();
    }
    let with_variables = || {
        let variables = [
            ("HOME", "/home/ann"),
            ("HUB_TOKEN", "hunter2"),
            ("HUB_EMPTY", ""),
            ("HUB_LINES", "hunter2\nhunter3"),
            ("HUB_CERT", &pem("CERTIFICATE")),
            ("CREDENTIALS_DIRECTORY", directory.path().to_str().unwrap()),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        ProcessEnvironment {
            variables: variables.into(),
            ..environment()
        }
    };
    let config = load(
        &path,
        with_variables(),
        "username = \"ann\"\npassword_file = { credential = \"token\" }\n\
         headers = { A = { env = \"HUB_TOKEN\" }, B = { credential = \"token\" }, C = \"plain\" }\n\
         client_cert = { env = \"HUB_CERT\" }\nclient_key = { credential = \"key\" }\n\
         ca_file = { env = \"HUB_CERT\" }",
    )
    .unwrap();
    let hub = &config.hubs[0];
    assert_eq!(
        hub.password_file.as_ref().unwrap().content.reveal(),
        "hunter2"
    );
    let headers = hub.headers.values();
    let headers = headers.map(|value| (value.content.reveal(), value.holder.is_none()));
    let want = [("hunter2", false), ("hunter2", false), ("plain", true)];
    assert_eq!(Vec::from_iter(headers), want);
    let ca = hub.ca_file.as_ref().unwrap();
    assert_eq!(ca.content.reveal(), pem("CERTIFICATE"));
    let key = hub.client_key.as_ref().unwrap();
    assert_eq!(key.content.reveal(), pem("PRIVATE KEY"));
    assert!(!format!("{:?}", hub.headers).contains("hunter"));

    let there = directory.path().display().to_string();
    assert_refused(
        "",
        r#"
bearer_token_file = { env = "HUB_TOKN" }
=> the environment variable HUB_TOKN is not set, or empty
bearer_token_file = { env = "HUB_EMPTY" }
=> the environment variable HUB_EMPTY is not set, or empty
bearer_token_file = { env = "HUB_LINES" }
=> $HUB_LINES has more than one line, or control characters
bearer_token_file = { credential = "lines" }
=> the credential lines has more than one line, or control characters
bearer_token_file = { credential = "tokn" }
=> there is no credential tokn in DIR: put LoadCredential=tokn:/path/to/it into the service's unit
bearer_token_file = { credential = "../token" }
=> "../token" cannot name a credential: write the name that LoadCredential= gives it
bearer_token_file = { file = "token", env = "HUB_TOKEN" }
=> expected a text, { file = "..." }, { env = "..." } or { credential = "..." }
"#,
        |hub| {
            let got = message(load(&path, with_variables(), hub)).replace(&there, "DIR");
            let (_, of_key) = got.split_once("7:21: hub.bearer_token_file: ").unwrap();
            of_key.to_owned()
        },
    );
    let without = load(&path, environment(), "ca_file = { credential = \"ca\" }");
    let got = message(without);
    let want = "hub.ca_file: there are no credentials, because $CREDENTIALS_DIRECTORY is not set: \
                put LoadCredential=ca:/path/to/it into the service's unit";
    assert!(got.ends_with(want), "{got}");
}

#[test]
fn a_proxy_is_named_for_a_hub_or_ruled_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    let load = |proxy: &str| load(&path, environment(), &format!("proxy = \"{proxy}\""));
    let proxy = |text: &str| load(text).unwrap().hubs[0].proxy.clone().unwrap().0;
    assert_eq!(proxy("none"), HubProxy::Direct);
    for text in ["http://proxy.example:3128", "http://[::1]:3128/"] {
        assert_eq!(proxy(text), HubProxy::Through(text.parse().unwrap()));
    }
    let others = "proxy.example:3128|https://p/|socks5://p:1|http://p/a|http://p/?q|";
    for text in others.split('|') {
        let got = message(load(text));
        let want = "hub.proxy: write \"http://HOST:PORT\", or \"none\" to go without a proxy";
        assert!(got.ends_with(want), "{text}: {got}");
    }
    let got = message(load("http://ann:hunter2@proxy.example:3128"));
    let is_told = got.contains("HTTPS_PROXY") && !got.contains("hunter");
    assert!(is_told, "{got}");
}
