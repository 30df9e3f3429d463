//! The examples of consumers, on real brokers: over JMS with a durable subscription and a selector, and over STOMP.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::brokers::Story;
use crate::brokers::feeds::publish;
use crate::brokers::listening::Listener;
use crate::changes::story::until;
use crate::support::DEADLINE;
use crate::support::brokers::{ActiveMq, CLASSES, PASSWORD, RabbitMq, USER};
use crate::support::documents::URL;
use crate::support::listener::Listener as Subscriber;
use crate::support::needs;
use crate::support::ports;

/// An example in a process of its own; killed when dropped.
struct Consumer {
    process: Child,
    lines: Receiver<String>,
}

impl Consumer {
    fn start(command: &mut Command) -> Consumer {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let consumer = Consumer { process, lines };
        assert_eq!(consumer.line(), "listening");
        consumer
    }

    /// Starts the example in Java, which was compiled in `directory`.
    fn java(directory: &Path, activemq: &ActiveMq, selector: &str) -> Consumer {
        let classes = format!("{}:{}", CLASSES.join(":"), directory.display());
        let url = format!(
            "failover:(tcp://{})?initialReconnectDelay=50&maxReconnectDelay=500",
            activemq.openwire
        );
        let mut command = Command::new("java");
        command.args(["-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", &classes]);
        command.args(["Consumer", &url, "open.main", selector, USER, PASSWORD]);
        Consumer::start(&mut command)
    }

    /// Starts the example in Python, which keeps its file in `directory`.
    fn python(
        directory: &Path,
        stomp: impl Display,
        destination: &str,
        more: &[&str],
    ) -> Option<Consumer> {
        let stomp = stomp.to_string();
        let (host, port) = stomp.split_once(':').unwrap();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/examples/consumers/consumer.py"
        );
        let mut command = Command::new(needs::program("python3")?);
        command.args([script, host, port, destination]).args(more);
        Some(Consumer::start(command.current_dir(directory)))
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).unwrap()
    }

    /// Returns the next changes, such as `ADD a/1.txt`; `listening` comes again after each connection.
    #[track_caller]
    fn changes(&self, count: usize) -> Vec<String> {
        let lines = std::iter::repeat_with(|| self.line());
        let changes = lines.filter(|line| line != "listening").map(|line| {
            let mut words = line.split(' ');
            let (change, item) = (words.next().unwrap(), words.next().unwrap());
            format!("{change} {}", item.strip_prefix(URL).unwrap())
        });
        changes.take(count).collect()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Compiles the example in Java in `directory`.
fn compile(directory: &Path) -> Option<()> {
    let mut compiler = Command::new(needs::program("javac")?);
    compiler.args(["-cp", &CLASSES.join(":"), "-d"]);
    compiler.arg(directory).arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/consumers/Consumer.java"
    ));
    assert!(compiler.status().unwrap().success());
    Some(())
}

/// A `[[broker]]` with feeds and a password.
fn with_feeds(
    address: impl Display,
    destination: &str,
    [user, password]: [&str; 2],
    directory: &Path,
) -> String {
    let file = directory.join("password");
    std::fs::write(&file, password).unwrap();
    format!(
        "[[broker]]\nname = \"repository\"\nurl = \"stomp://{address}\"\ndestination = \"{destination}\"\n\
         payload = \"atom\"\nusername = \"{user}\"\npassword_file = \"{}\"\n",
        file.display()
    )
}

/// Returns the changes that a story made, as content change messages have them.
fn made(story: &Story) -> Vec<String> {
    let changes = story.changes().into_iter();
    changes
        .map(|change| change.replace("updated ", "UPDATE "))
        .collect()
}

/// Returns the next changes of `listen --broker`, of which a repeat counts once.
fn listened(listener: &Listener, count: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut changes = Vec::new();
    while changes.len() < count {
        let line = listener.next();
        if line["event"] != "notification" || !seen.insert(line["messageId"].to_string()) {
            continue;
        }
        let items = line["items"].as_array().unwrap().iter();
        changes.extend(items.map(|item| {
            let uri = item["itemUri"].as_str().unwrap();
            let change = item["change"].as_str().unwrap();
            format!("{change} {}", uri.strip_prefix(URL).unwrap())
        }));
    }
    changes
}

/// Returns the next changes of a subscriber of a hub, of which a repeat counts once.
fn delivered(subscriber: &Subscriber, count: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut changes = Vec::new();
    while changes.len() < count {
        let line = subscriber.event("notification");
        if !seen.insert(line["until"].to_string()) {
            continue;
        }
        let entries = line["entries"].as_array().unwrap().iter();
        changes.extend(entries.map(|entry: &Value| {
            let path = entry["loc"].as_str().unwrap().strip_prefix(URL);
            format!("UPDATE {}", path.unwrap())
        }));
    }
    changes
}

#[test]
fn all_consumers_receive_the_same_changes_although_broker_and_daemon_are_killed() {
    let Some(mut activemq) = ActiveMq::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let Some(()) = compile(directory) else { return };
    let public = ports::reserved();
    let login = [USER, PASSWORD];
    let brokers = with_feeds(activemq.stomp, "/topic/open.{source}", login, directory);
    let mut story = Story::new(&brokers);
    // The daemon that comes after the kill has the same hub.
    let config = story
        .setup
        .config
        .replacen("127.0.0.1:0", &public.to_string(), 1);
    let config = config.replace("https://topics.example/", &format!("http://{public}/"));
    let on_hubs = "change_notifications = true\nsettle = ";
    story.setup.config = config.replace("settle = ", on_hubs);
    let selector = "format = 'atom' AND changeTypes LIKE '%UPDATE%' AND itemCount = '1' \
                    AND objectUri LIKE 'https://source.example/%' AND initial IS NULL";
    let java = Consumer::java(directory, &activemq, selector);
    let more = ["", USER, PASSWORD];
    let python = Consumer::python(directory, activemq.stomp, "/topic/open.main", &more);
    let Some(python) = python else { return };
    let listener = Listener::start(&story.setup, &["--durable", "listener"]);
    let mut daemon = story.start();
    let topic = format!("http://{public}/changes/main/a/capabilitylist/");
    let state = directory.join("subscriber.json").display().to_string();
    let subscriber = Subscriber::with(&[&topic, "--state", &state, "--json"]);
    subscriber.event("subscribed");
    for round in 0..3 {
        for _ in 0..4 {
            story.change();
        }
        if round == 1 {
            activemq.kill();
            daemon.kill();
            story.change();
            activemq.launch();
            daemon = story.setup.start();
            story.change();
        }
    }
    let made = made(&story);
    for (consumer, received) in [
        ("JMS, durable, with a selector", java.changes(made.len())),
        ("Python over STOMP", python.changes(made.len())),
        ("listen --broker", listened(&listener, made.len())),
        ("a WebSub subscriber", delivered(&subscriber, made.len())),
    ] {
        assert_eq!(received, made, "{consumer}");
    }
    // A selector that fits nothing lets nothing through: what comes to it is what it names.
    drop(java);
    let resent = Consumer::java(
        directory,
        &activemq,
        "initial = 'true' AND changeTypes = 'ADD'",
    );
    let resend = story.setup.command("resend").arg("repository").status();
    assert!(resend.unwrap().success());
    assert_eq!(resent.changes(1), ["ADD a/resource-1"]);
    assert!(daemon.stop().success());
}

#[test]
fn of_two_competing_consumers_one_hears_all_changes_of_an_object_in_order() {
    let Some(activemq) = ActiveMq::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let login = [USER, PASSWORD];
    let queue = "/queue/open.{source}";
    let brokers = with_feeds(activemq.stomp, queue, login, directory.path());
    let mut story = Story::new(&brokers);
    let consumers = [(), ()].map(|()| Listener::start(&story.setup, &[]));
    let daemon = story.start();
    let objects: Vec<String> = (0..20).map(|number| format!("{number}.txt")).collect();
    for (minute, change) in ["created", "updated", "deleted"].iter().enumerate() {
        let entries = objects.iter().enumerate();
        let entries =
            entries.map(|(second, name)| format!("{change} {name} 10:{minute:02}:{second:02}"));
        publish(&mut story, &entries.collect::<Vec<_>>());
    }
    let mut heard: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    let mut seen = HashSet::new();
    until(|| {
        for (number, consumer) in consumers.iter().enumerate() {
            for line in consumer.printed() {
                assert_eq!(line["event"], "notification", "{line}");
                if seen.insert(line["messageId"].to_string()) {
                    let object = line["objectUri"].as_str().unwrap().to_owned();
                    let of_object = heard.entry(object).or_default();
                    let items = line["items"].as_array().unwrap().iter();
                    let change = |item: &Value| item["change"].as_str().unwrap().to_owned();
                    of_object.extend(items.map(|item| (number, change(item))));
                }
            }
        }
        heard.values().map(Vec::len).sum::<usize>() == 3 * objects.len()
    });
    let mut by: [usize; 2] = [0; 2];
    for (object, changes) in &heard {
        let (consumer, _) = changes[0];
        by[consumer] += 1;
        let want = ["ADD", "UPDATE", "DELETE"].map(|change| (consumer, change.to_owned()));
        assert_eq!(*changes, want, "{object}");
    }
    assert!(by.iter().all(|objects| *objects > 0), "{by:?}");
    assert!(daemon.stop().success());
}

#[test]
fn rabbitmq_routes_the_feeds_of_each_source_by_its_exchange() {
    let Some(rabbitmq) = RabbitMq::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let exchange = "/exchange/amq.topic/changes.{source}";
    let guest = ["guest", "guest"];
    let mut story = Story::new(&with_feeds(rabbitmq.stomp, exchange, guest, directory));
    let more = ["", "guest", "guest"];
    let bound = "/exchange/amq.topic/changes.main";
    let Some(consumer) = Consumer::python(directory, rabbitmq.stomp, bound, &more) else {
        return;
    };
    let daemon = story.start();
    for _ in 0..3 {
        story.change();
    }
    assert_eq!(consumer.changes(3), made(&story));
    assert!(daemon.stop().success());
}
