//! Stories of Sources and their hub: one that is added, and three with many subscribers, each of which is killed at random.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::own_hub::callback::{Callback, Request, Say, willing};
use crate::own_hub::setup::{HubSetup, TOKEN, publisher};
use crate::support::daemon::{Daemon, assert_contains, exit_with, output, run_with, succeed};
use crate::support::documents::Site;

/// The number of subscribers over all topics, if not 24.
const SUBSCRIBERS: &str = "RSNOTIFY_TEST_SUBSCRIBERS";
const ROUNDS: usize = 6;

/// A source with one set, which publishes at a hub.
pub struct Publishing {
    site: Site,
    pub directory: tempfile::TempDir,
    pub topic: String,
    pub daemon: Daemon,
    version: u32,
}

impl Publishing {
    pub fn start(setup: &HubSetup, name: &str, token: &str) -> Publishing {
        let token = setup.directory.path().join(format!("{token}.token"));
        let (url, token) = (setup.url(), token.display());
        let hub = format!("[[hub]]\nurl = \"{url}\"\nbearer_token_file = \"{token}\"\n");
        Publishing::start_with(name, &hub)
    }

    /// Starts a source with these tables at the end of its configuration.
    pub fn start_with(name: &str, tables: &str) -> Publishing {
        let (site, directory) = (Site::new(), tempfile::tempdir().unwrap());
        let root = site.root.path().display();
        let config = format!(
            "state_dir = \"state\"\n[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
             public_url = \"https://{name}.example/\"\n[window]\nquiet = \"20ms\"\n\
             [[source]]\nname = \"main\"\nmount = [{{ path = \"{root}\", url = \"https://source.example/\" }}]\n\
             settle = \"50ms\"\n{tables}"
        );
        std::fs::write(directory.path().join("c.toml"), config).unwrap();
        Publishing {
            daemon: Publishing::run(&directory),
            topic: format!("https://{name}.example/topics/main/a/capabilitylist/"),
            site,
            directory,
            version: 1,
        }
    }

    fn run(directory: &tempfile::TempDir) -> Daemon {
        Daemon::ready(run_with(&directory.path().join("c.toml")))
    }

    pub fn change(&mut self) {
        self.version += 1;
        let content = self.version.to_string();
        self.site.write_list("a", "changelist", &content);
    }

    /// Deletes the Capability List of the set.
    pub fn end_set(&self) {
        std::fs::remove_file(self.site.path("a/capabilitylist.xml")).unwrap();
    }

    pub fn restart(self) -> Publishing {
        self.daemon.kill();
        Publishing {
            daemon: Publishing::run(&self.directory),
            ..self
        }
    }
}

/// A subscriber: a path of the one callback server. While it is dead, its connections break.
#[derive(Default)]
struct Subscriber {
    is_dead: AtomicBool,
    /// Bodies that it took, in order, with repeats.
    taken: Mutex<Vec<Vec<u8>>>,
}

impl Subscriber {
    fn answer(&self, request: &Request) -> Option<Say> {
        if request.method == "POST" {
            if self.is_dead.load(Ordering::Relaxed) {
                return None;
            }
            self.taken.lock().unwrap().push(request.body.clone());
        }
        Some(willing(request))
    }

    /// Returns what it took, each at its first time.
    fn heard(&self) -> Vec<Vec<u8>> {
        let taken = self.taken.lock().unwrap();
        let mut seen = BTreeSet::new();
        let first = taken.iter().filter(|body| seen.insert(body.as_slice()));
        first.cloned().collect()
    }
}

/// Random numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

#[test]
fn one_command_adds_a_source_to_a_running_hub() {
    let setup = HubSetup::new("");
    let hub = setup.start();
    let noted = succeed(&mut setup.command(&["check", "--no-environment"]));
    assert_contains(&noted, "there is no [[publisher]]");
    let (_, status, _) = output(&mut setup.command(&["status"]));
    assert_contains(&status, "\nhub: 0 subscriptions");
    let file = setup.directory.path().join("hub.toml");
    let mut token = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    token.args(["token", "library", "https://library.example/", "--write"]);
    let (lines, said) = exit_with(token.arg("--config").arg(&file), 0);
    assert_contains(&said, "the hub has reloaded: publisher library added");
    let secret = lines.lines().nth(1).unwrap().strip_prefix("# ").unwrap();
    let holder = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&holder, secret).unwrap();
    let there = holder.path().to_str().unwrap();
    let lines = lines.replace("/etc/rsnotify/hub-token", there);
    let mut source = Publishing::start_with("library", &lines);
    let callback = Callback::start();
    setup.subscribe(&source.topic, &callback.url("/"));
    source.change();
    let body = String::from_utf8(callback.next("POST").body).unwrap();
    assert_contains(&body, "a/changelist.xml");
    source.daemon.stop();
    hub.stop();
}

#[test]
fn every_subscriber_of_three_sources_receives_all_of_its_topic_in_order_though_each_dies() {
    let count = std::env::var(SUBSCRIBERS).map_or(24, |count| count.parse().unwrap());
    let names = [
        ("library", TOKEN),
        ("archive", "boxes"),
        ("museum", "other"),
    ];
    let publishers =
        names.map(|(name, token)| publisher(name, &format!("https://{name}.example/"), token));
    let mut setup = HubSetup::new(&publishers.concat());
    let limits =
        "requests_per_minute subscriptions subscriptions_per_host subscriptions_per_address";
    for limit in limits.split(' ') {
        setup.keys += &format!("max_{limit} = 1000000\n");
    }
    let mut hub = setup.start();
    let mut sources: Vec<Publishing> = names
        .iter()
        .map(|(name, token)| Publishing::start(&setup, name, token))
        .collect();
    let subscribers: Arc<Vec<Subscriber>> =
        Arc::new((0..count).map(|_| Subscriber::default()).collect());
    let answering = Arc::clone(&subscribers);
    let callback = Callback::that_may(move |request| {
        let (path, _) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        let number: usize = path[1..].parse().unwrap();
        answering[number].answer(request)
    });
    for number in 0..count {
        let topic = &sources[number % sources.len()].topic;
        setup.ask_to_subscribe(topic, &callback.url(&format!("/{number}")));
    }
    setup.await_subscriptions(count);
    let mut dice = Dice(7);
    for round in 0..ROUNDS {
        sources.iter_mut().for_each(Publishing::change);
        for subscriber in &*subscribers {
            let is_dead = dice.roll(3) == 0;
            subscriber.is_dead.store(is_dead, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(dice.roll(300))); // a random time
        match round % 3 {
            0 => {
                hub.kill();
                hub = setup.start();
            }
            1 => {
                let victim = usize::try_from(dice.roll(3)).unwrap();
                let source = sources.remove(victim);
                sources.insert(victim, source.restart());
            }
            _ => {
                hub.kill();
                sources = sources.into_iter().map(Publishing::restart).collect();
                hub = setup.start();
            }
        }
        // Each change is a notification of its own, because the next comes after its end.
        for source in &sources {
            source.daemon.await_status(|status| {
                let channel = &status["channels"][0];
                channel["pending"].as_array().is_some_and(Vec::is_empty)
                    && channel["held"].as_array().is_some_and(Vec::is_empty)
            });
        }
    }
    for subscriber in &*subscribers {
        subscriber.is_dead.store(false, Ordering::Relaxed);
    }
    hub.await_status(|status| status["embedded_hub"]["owed"] == 0);
    for (topic, (name, _)) in names.iter().enumerate() {
        let of_topic = subscribers.iter().skip(topic).step_by(names.len());
        let heard: Vec<_> = of_topic.map(Subscriber::heard).collect();
        let told = setup.published(&sources[topic].topic);
        assert_eq!(heard[0].len(), told, "{name}");
        assert!(heard.iter().all(|bodies| *bodies == heard[0]), "{name}");
    }
    hub.stop();
    for source in sources {
        source.daemon.stop();
    }
}
