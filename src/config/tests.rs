//! Tests of the whole configuration: files that are accepted, and the values that they give.

mod brokers;
mod effective;
mod embedded_hub;
mod messages;
mod reload;
mod secrets;
mod slips;
mod submissions;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use resourcesync::uri::{Hub, Uri};

use crate::config::Config;
use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::{Checked, ConfigTree};
use announce::candidates::CandidateGlobs;
use announce::finding::AcknowledgedPattern;
use announce::plan::{MassDeletionLimit, PublishMode, ReplacedHub, SourcePlan, WindowPlan};

const SOURCE: &str = r#"
[[source]]
name = "main"
mount = [{ path = "www", url = "https://example.org" }]
"#;

const HUB: &str = "[[hub]]\nurl = \"https://h.example/\"\n";

pub(super) fn environment() -> ProcessEnvironment {
    ProcessEnvironment {
        default_file: PathBuf::from("/nowhere/config.toml"),
        current_dir: PathBuf::from("/here"),
        variables: variables([("HOME", "/home/ann")]),
    }
}

pub(super) fn variables(
    named: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> HashMap<OsString, OsString> {
    let named = named.into_iter();
    named
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn read(text: &str, overrides: &Overrides) -> Checked<Config> {
    let path = Path::new("/etc/c.toml");
    let environment = environment();
    let file = &mut ConfigTree::parse(Some(path), text, &environment)?;
    Config::from_file(file, overrides)
}

/// Loads the file at `path`, or the default one.
fn load_in(
    environment: &ProcessEnvironment,
    path: Option<&Path>,
    overrides: &Overrides,
) -> Checked<Config> {
    let (path, text) = environment.read_config(path, overrides)?;
    Config::from_file(&mut ConfigTree::parse(path, &text, environment)?, overrides)
}

fn flags(given: &[(&str, &str)]) -> Overrides {
    let mut overrides = Overrides::default();
    for (flag, value) in given {
        let text = Some((*value).to_owned());
        match *flag {
            "root" => overrides.source.tree.root = Some(value.into()),
            "state_dir" => overrides.source.tree.state.state_dir = Some(value.into()),
            "url" => overrides.source.tree.url = text,
            "hub" => overrides.source.hub = text,
            "listen" => overrides.source.listen = text,
            "admin_listen" => overrides.daemon.admin_listen = text,
            "public_url" => overrides.source.public_url = text,
            flag => panic!("{flag}"),
        }
    }
    overrides
}

/// Returns the URL that the first hub is told at.
fn publish_url(config: &Config) -> &str {
    config.hubs[0]
        .publish_url
        .as_ref()
        .unwrap()
        .content
        .reveal()
}

fn message(outcome: Checked<Config>) -> String {
    match outcome {
        Ok(config) => format!("accepted: {config:?}"),
        Err(error) => error.to_string(),
    }
}

/// Returns the message about a file, without its path.
fn said(text: &str) -> String {
    let message = message(read(text, &Overrides::default()));
    let without = message.strip_prefix("/etc/c.toml:");
    without.unwrap_or(&message).to_owned()
}

/// Checks what is `said` of each text of a table, in which the wanted message follows it in a line of its own, after `=> `,
/// or a part of the message after `=> …`. All of them have the same lines `above`.
#[track_caller]
pub(super) fn assert_refused(above: &str, table: &str, said: impl Fn(&str) -> String) {
    let (mut text, mut failures) = (above.to_owned(), Vec::new());
    for line in table.trim().lines() {
        let Some(want) = line.strip_prefix("=> ") else {
            text += &format!("{line}\n");
            continue;
        };
        let got = said(&text);
        let is_as_wanted = match want.strip_prefix('…') {
            Some(part) => got.contains(part),
            None => got == want,
        };
        if !is_as_wanted {
            failures.push(format!("{text}got:  {got}\nwant: {want}"));
        }
        above.clone_into(&mut text);
    }
    assert_eq!(text, above, "a message follows each text");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn two_flags_are_enough() {
    let overrides = flags(&[("root", "tree"), ("url", "http://localhost:8000")]);
    let config = load_in(&environment(), None, &overrides).unwrap();
    assert_eq!(config.file, None);
    let source = &config.sources[0];
    assert_eq!(source.mount[0].directory, Path::new("/here/tree"));
    assert_eq!(source.mount[0].prefix.as_str(), "http://localhost:8000/");
    let published = source.mount[0].url_path();
    let candidates = source.plan().candidates;
    let accepts = |below: &[u8]| candidates.accepts(&published, below);
    assert!(accepts(b"a/b.xml"));
    assert!(accepts(b".well-known/resourcesync"));

    let listens = "127.0.0.1:8400".parse().unwrap();
    let plan = config.plan(&config.server.public_url_at(listens));
    assert_eq!(plan.public_url.as_str(), "http://127.0.0.1:8400/");
    assert_eq!(plan.hubs.len(), 1);
    assert_eq!(plan.hubs[0].hub.as_str(), "http://127.0.0.1:8400/hub");
    assert_eq!(plan.hubs[0].mode, PublishMode::Embedded);
    assert_eq!(plan.window.quiet, Duration::from_secs(2));
    assert_eq!(plan.window.max_bytes, 1_048_576);
    assert_eq!(plan.retired_topic, Duration::from_secs(2_592_000));
}

#[test]
fn each_key_of_a_source_and_what_a_hub_replaces_are_in_the_plan() {
    let text = format!(
        "{SOURCE}\
         include = [\"a/*\"]\nexclude = [\"b/*\"]\nbroken_after = \"7m\"\ndeletion_grace = \"8m\"\n\
         mass_deletion = \"never\"\nannounce_existing = true\nannounce_all_deletions = true\n\
         announce_all_components = true\nunadvertised_channels = false\nchange_notifications = true\n\
         changes_from_resource_lists = true\nacknowledged = [\"unrouted\"]\n\
         {HUB}replaces = \"https://old.example/\"\n"
    );
    let config = read(&text, &Overrides::default()).unwrap();
    let plan = config.plan(&Uri::parse("https://push.example/").unwrap());
    let replaced = ReplacedHub::Hub(Hub::new("https://old.example/"));
    assert_eq!(plan.hubs[0].replaces, replaced);
    let mounts = plan.sources[0].mounts.clone();
    let globs = |glob: &str| vec![glob.to_owned()];
    let want = SourcePlan {
        name: "main".to_owned(),
        mounts,
        candidates: CandidateGlobs::new(globs("a/*"), globs("b/*")).unwrap(),
        broken_after: Duration::from_secs(420),
        deletion_grace: Duration::from_secs(480),
        mass_deletion: MassDeletionLimit::Never,
        announce_existing: true,
        announce_all_deletions: true,
        announce_all_components: true,
        unadvertised_channels: false,
        change_notifications: true,
        changes_from_resource_lists: true,
        acknowledged: vec![AcknowledgedPattern::parse("unrouted").unwrap()],
    };
    assert_eq!(plan.sources[0], want);
}

#[test]
fn what_a_hub_replaces_is_one_or_nothing_or_found_out() {
    for (key, want) in [
        ("", ReplacedHub::Automatic),
        ("replaces = \"auto\"", ReplacedHub::Automatic),
        ("replaces = \"nothing\"", ReplacedHub::Nothing),
    ] {
        let config = read(&format!("{SOURCE}{HUB}{key}"), &Overrides::default()).unwrap();
        let plan = config.plan(&Uri::parse("https://push.example/").unwrap());
        assert_eq!(plan.hubs[0].replaces, want, "{key}");
    }
}

#[test]
fn each_key_of_the_window_is_in_the_plan() {
    let text = format!(
        "{SOURCE}[window]\nquiet = \"1s\"\nmax_wait = \"2s\"\nhold = \"3s\"\nmax_entries = 4\n\
         change_quiet = \"5s\"\nchange_max_wait = \"6s\"\nchange_backlog = 7\n"
    );
    let config = read(&text, &Overrides::default()).unwrap();
    let plan = config.plan(&Uri::parse("https://push.example/").unwrap());
    let want = WindowPlan {
        quiet: Duration::from_secs(1),
        max_wait: Duration::from_secs(2),
        hold: Duration::from_secs(3),
        max_entries: 4,
        max_bytes: 1_048_576,
        change_quiet: Duration::from_secs(5),
        change_max_wait: Duration::from_secs(6),
        change_backlog: 7,
    };
    assert_eq!(plan.window, want);
}

#[test]
fn nothing_to_watch_says_what_to_do() {
    assert_eq!(
        message(load_in(&environment(), None, &Overrides::default())),
        "nothing to watch: name a configuration file with --config FILE, or a tree with --root DIR --url URI \
         (/nowhere/config.toml does not exist)"
    );
    let path = Some(Path::new("/nowhere/x.toml"));
    let missing = message(load_in(&environment(), path, &Overrides::default()));
    assert_eq!(
        missing,
        "cannot read the configuration file /nowhere/x.toml"
    );
}

#[test]
fn a_flag_counts_before_the_file() {
    let text = format!(
        r#"
        state_dir = "state"
        [server]
        listen = "127.0.0.1:1"
        public_url = "https://a.example"
        [[source]]
        name = "other"
        mount = [{{ path = "/other", url = "https://other.example/" }}]
        {SOURCE}
        settle = "3s"
        [[hub]]
        url = "https://hub.example/a"
        mode = "ping"
        [[hub]]
        url = "https://hub.example/b"
        "#
    );
    let config = read(&text, &Overrides::default()).unwrap();
    assert_eq!(config.state_dir, Path::new("/etc/state"));
    assert_eq!(config.sources[1].mount[0].directory, Path::new("/etc/www"));
    let plan = config.plan(&Uri::parse("https://a.example/").unwrap());
    assert_eq!(plan.sources[1].mounts, config.sources[1].mount);
    assert_eq!(config.hubs.len(), 2);
    assert_eq!(config.embedded_hub, None);

    let overrides = flags(&[
        ("root", "../tree/./a"),
        ("url", "https://flag.example/"),
        ("hub", "https://hub.example/a"),
        ("state_dir", "state"),
        ("listen", "unix:http.sock"),
        ("admin_listen", "[::1]:0"),
        ("public_url", "https://flag.example/push"),
    ]);
    let config = read(&text, &overrides).unwrap();
    assert_eq!(config.state_dir, Path::new("/here/state"));
    assert_eq!(config.server.listen.0.to_string(), "unix:/here/http.sock");
    assert_eq!(config.server.admin_listen.0.to_string(), "[::1]:0");
    let public_url = config.server.known_public_url().map(|uri| uri.to_string());
    assert_eq!(public_url.as_deref(), Some("https://flag.example/push/"));
    assert_eq!(config.sources.len(), 1);
    assert_eq!(config.sources[0].mount[0].directory, Path::new("/tree/a"));
    assert_eq!(config.sources[0].settle.0, Duration::from_secs(3));
    assert_eq!(config.hubs.len(), 1);
    assert_eq!(config.hubs[0].mode, PublishMode::Ping);

    let overrides = flags(&[("hub", "https://hub.example/c")]);
    let config = read(&text, &overrides).unwrap();
    assert_eq!(publish_url(&config), "https://hub.example/c");
    assert_eq!(config.hubs[0].mode, PublishMode::Content);
}

#[test]
fn the_state_directory_has_a_default_on_every_system() {
    let overrides = flags(&[("root", "a"), ("url", "http://e.org/")]);
    let named = [
        ("HOME", "/h"),
        ("XDG_STATE_HOME", "/x"),
        ("STATE_DIRECTORY", "/var/lib/rsnotify:/var/lib/b"),
    ];
    let found = |count: usize| {
        let environment = ProcessEnvironment {
            variables: variables(named.into_iter().take(count)),
            ..environment()
        };
        load_in(&environment, None, &overrides)
    };
    for (count, want) in [
        (1, "/h/.local/state/rsnotify"),
        (2, "/x/rsnotify"),
        (3, "/var/lib/rsnotify"),
    ] {
        assert_eq!(found(count).unwrap().state_dir, Path::new(want));
    }
    let want =
        "state_dir: it is needed, because none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is set";
    assert_eq!(message(found(0)), want);
}

#[test]
fn both_kinds_of_hub_may_be_told_at_once() {
    let text = format!(
        "{SOURCE}[[hub]]\nurl = \"https://h.example/?a=%7e\"\npublish_url = \"https://p.example/\"\n\
         [embedded_hub]\nenabled = true\npath = \"/a/hub\"\n\
         [[channel]]\ncapability_list = \"https://example.org/c.xml\"\ntopic = \"https://push.example/t\"\n\
         hubs = [\"https://h.example/?a=%7e\", \"https://push.example/a/hub\"]\n"
    );
    let config = read(&text, &flags(&[("public_url", "https://push.example")])).unwrap();
    let plan = config.plan(&Uri::parse("https://push.example/").unwrap());
    let hubs = plan.hubs.iter().map(|hub| (hub.hub.as_str(), hub.mode));
    let want = [
        ("https://h.example/?a=%7e", PublishMode::Content),
        ("https://push.example/a/hub", PublishMode::Embedded),
    ];
    assert_eq!(Vec::from_iter(hubs), want);
    assert_eq!(publish_url(&config), "https://p.example/");
    assert_eq!(plan.channels[0].hubs.len(), 2);
    assert_eq!(plan.channels[0].topic.as_str(), "https://push.example/t");
}

#[test]
fn one_source_may_have_mounts_inside_one_another() {
    let text = r#"
        [[source]]
        name = "main"
        mount = [
            { path = "/srv/www", url = "https://example.org/" },
            { path = "/srv/www/data", url = "https://example.org/sets/" },
        ]
    "#;
    let config = read(text, &Overrides::default()).unwrap();
    assert_eq!(config.sources[0].mount.len(), 2);
}

#[test]
fn a_channel_may_name_its_list_by_an_alias() {
    let channel = |list: &str, topic: &str| {
        format!(
            "[[channel]]\ncapability_list = \"{list}\"\ntopic = \"https://b.example/{topic}\"\n"
        )
    };
    let source = "[[source]]\nname = \"b\"\nmount = [{ path = \"/b\", url = \"https://b.example/\", \
                  aliases = [\"http://b.example/\"] }]\n[embedded_hub]\nenabled = true\n";
    let by_alias = format!("{source}{}", channel("http://b.example/c.xml", "1"));
    let public_url = flags(&[("public_url", "https://push.example")]);
    let config = read(&by_alias, &public_url).unwrap();
    let plan = config.plan(&Uri::parse("https://push.example/").unwrap());
    let list = plan.channels[0].capability_list.as_str();
    assert_eq!(list, "https://b.example/c.xml");
    let twice = format!("{by_alias}{}", channel("https://b.example/c.xml", "2"));
    let message = read(&twice, &public_url).unwrap_err().to_string();
    assert!(message.contains("has a channel already"), "{message}");
}
