//! Tests of the configuration of `rsnotify hub`.

use std::path::Path;
use std::time::Duration;

use resourcesync::uri::Topic;
use rstest::rstest;

use super::HubConfig;
use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::{ConfigError, ConfigTree};
use crate::config::hub_config::ExtraVerification;
use crate::config::tests::{self, assert_refused, variables};
use crate::config::{Config, ReloadableConfig};

const HUB: &str = "[hub]\nurl = \"https://hub.example/hub\"\n";
const LIBRARY: &str = "[[publisher]]\nname = \"library\"\ntopics = [\"https://library.example\"]\n\
                       verify = \"topic\"\n";

fn environment() -> ProcessEnvironment {
    ProcessEnvironment {
        variables: variables([
            ("TOKEN", "books"),
            ("OTHER", "boxes"),
            ("HOME", "/home/ann"),
        ]),
        ..tests::environment()
    }
}

fn read(text: &str) -> Result<HubConfig, ConfigError> {
    let path = Path::new("/etc/c.toml");
    let environment = environment();
    let file = &mut ConfigTree::parse(Some(path), text, &environment)?;
    HubConfig::from_file(file, &Overrides::default())
}

fn message(text: &str) -> String {
    read(text).map_or_else(|error| error.to_string(), |config| format!("{config:?}"))
}

#[test]
fn a_url_and_a_publisher_suffice() {
    let config = read(&format!("{HUB}{LIBRARY}")).unwrap();
    assert_eq!(config.hub.url.as_str(), "https://hub.example/hub");
    assert_eq!(config.hub.max_body.0, 2 << 20);
    assert_eq!(config.hub.topic_ttl.0, Duration::from_secs(90 * 24 * 3_600));
    assert_eq!(config.hub.max_publications_per_minute, Some(300));
    let public_url = config.server.public_url.as_ref().unwrap();
    assert_eq!(public_url.as_str(), "https://hub.example/");
    // The first publisher may be added later.
    assert!(read(HUB).unwrap().publishers.is_empty());
    let publishers = config.publisher_plan();
    let found = publishers.of_topic(&Topic::new("https://library.example/t"));
    assert_eq!(&*found.unwrap().name, "library");
    let trusted = config.hub.trusted_proxies.iter();
    let trusted: Vec<String> = trusted.map(|network| network.0.to_string()).collect();
    assert_eq!(trusted, ["127.0.0.0/8", "::1/128"]);
}

#[test]
fn keys_have_effect_and_the_effective_configuration_gives_the_same_again() {
    let text = "state_dir = \"/s\"\n\
                [server]\nlisten = \"unix:/run/hub.sock\"\n\
                [hub]\nurl = \"http://127.0.0.1:8400/a/b/\"\nmax_body = \"64KiB\"\ntopic_ttl = \"1d\"\n\
                max_requests_per_minute = 5\nmax_publications_per_minute = 7\ncallback_ports = [\"1-65535\"]\n\
                [[publisher]]\nname = \"a\"\ntopics = [\"https://a.example/x\", \"https://a.example/y\"]\n\
                bearer_token_file = { env = \"TOKEN\" }\nverify = \"topic\"\n";
    let config = read(text).unwrap();
    assert_eq!(config.hub.max_body.0, 65_536);
    assert_eq!(config.hub.max_publications_per_minute, Some(7));
    assert_eq!(config.hub.max_requests_per_minute, 5);
    let settings = &config.publishers[0];
    let token = settings.bearer_token_file.as_ref().unwrap();
    assert_eq!(token.content.reveal(), "books");
    assert_eq!(settings.verify, Some(ExtraVerification::Topic));
    let effective = config.effective_toml(&|_| None);
    assert!(!effective.contains("books"), "{effective}");
    assert_eq!(read(&effective).unwrap(), config, "{effective}");
}

#[rstest]
#[case("max_body = 1000", 1_000)]
#[case("max_body = \"1000\"", 1_000)]
#[case("max_body = \"1000B\"", 1_000)]
#[case("max_body = \"3 MiB\"", 3 << 20)]
fn a_size_is_a_number_or_has_a_unit(#[case] key: &str, #[case] want: u32) {
    let config = read(&format!("{HUB}{key}\n{LIBRARY}")).unwrap();
    assert_eq!(config.hub.max_body.0, want);
}

#[test]
fn a_publisher_that_proves_nothing_is_refused() {
    assert_refused(
        &format!("{HUB}[[publisher]]\n"),
        r#"
name = "a"
topics = ["https://a.example/"]
=> …neither bearer_token_file nor verify = "topic" is set
name = "a"
topics = []
verify = "topic"
=> …the list is empty: name at least one
name = " "
topics = ["https://a.example/"]
verify = "topic"
=> …a name has at least one letter
name = "a"
topics = ["https://a.example/"]
verify = "topics"
=> …did you mean "topic"?
name = "a"
topics = ["https://a.example/"]
bearer_token_file = { env = "NONE" }
=> …the environment variable NONE is not set
"#,
        message,
    );
}

#[test]
fn two_publishers_cannot_be_taken_for_each_other() {
    let publisher = |name: &str, prefix: &str, token: &str| {
        format!(
            "[[publisher]]\nname = \"{name}\"\ntopics = [\"{prefix}\"]\nbearer_token_file = {{ env = \"{token}\" }}\n"
        )
    };
    let overlap = "https://a.example/x/ and https://a.example/ of the publisher \"a\" overlap";
    for (name, prefix, token, want) in [
        ("b", "https://b.example/", "OTHER", "HubConfig {"),
        ("b", "https://a.example/x", "OTHER", overlap),
        (
            "a",
            "https://b.example/",
            "OTHER",
            "another publisher is named \"a\" already",
        ),
        (
            "b",
            "https://b.example/",
            "TOKEN",
            "the publisher \"a\" has the same token",
        ),
    ] {
        let first = publisher("a", "https://a.example/", "TOKEN");
        let said = message(&format!("{HUB}{first}{}", publisher(name, prefix, token)));
        assert!(said.contains(want), "{said}");
    }
}

#[rstest]
#[case("https://hub.example")]
#[case("https://hub.example/")]
#[case("https://hub.example/../hub")]
#[case("https://u:p@hub.example/hub")]
#[case("https://hub.example/hub?x")]
#[case("hub")]
fn the_url_of_the_hub_has_a_plain_path(#[case] url: &str) {
    let message = message(&format!("[hub]\nurl = \"{url}\"\n{LIBRARY}"));
    assert!(message.contains("c.toml:2:7: hub.url: "), "{message}");
}

#[test]
fn a_file_of_one_daemon_is_refused_by_the_other_which_is_named() {
    let source =
        "[[source]]\nname = \"main\"\nmount = [{ path = \"www\", url = \"https://e.org\" }]\n";
    assert!(message(source).contains("a configuration of `rsnotify run`"));
    let both = message(&format!("{source}{LIBRARY}"));
    assert!(both.contains("two daemons"), "{both}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    for (text, want) in [
        (
            format!("{HUB}{LIBRARY}"),
            "start it with `rsnotify hub --config ",
        ),
        (format!("{source}{LIBRARY}"), "two daemons"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Config::load(Some(&path), &Overrides::default()).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
        assert!(HubConfig::is_hub_file(Some(&path), &Overrides::default()));
    }
}
