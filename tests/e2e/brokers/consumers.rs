//! ActiveMQ and RabbitMQ, with the examples of consumers: what is sent arrives whole and in order over JMS, with a durable
//! subscription and a selector, and over STOMP, also when a broker is killed meanwhile.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::Value;

use crate::brokers::feeds::{ATOM, publish};
use crate::brokers::listening::listen;
use crate::brokers::{Story, view};
use crate::support::brokers::{ActiveMq, CLASSES, PASSWORD, RabbitMq, USER};
use crate::support::daemon::{Daemon, assert_contains, output, succeed};
use crate::support::documents::URL;
use crate::support::listener::{Listener, lines};
use crate::support::needs;
use crate::support::ports;
use crate::support::{DEADLINE, until};

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
        let lines = lines(process.stdout.take().unwrap());
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

/// A `[[broker]]` with a user and a password.
fn broker(
    name: &str,
    address: impl Display,
    destination: &str,
    [user, password]: [&str; 2],
    directory: &Path,
) -> String {
    let file = directory.join(name);
    std::fs::write(&file, password).unwrap();
    format!(
        "[[broker]]\nname = \"{name}\"\nurl = \"stomp://{address}\"\ndestination = \"{destination}\"\n\
         username = \"{user}\"\npassword_file = \"{}\"\n",
        file.display()
    )
}

/// Waits until a notification was refused by a broker for this kind of reason.
fn await_refusal(daemon: &Daemon, broker: &str, kind: &str) {
    daemon.await_status(|status| {
        view(status, broker).is_some_and(|view| view["last"]["refusal"]["kind"] == kind)
    });
}

/// Returns the changes that a story made, as content change messages have them.
fn made(story: &Story) -> Vec<String> {
    let changes = story.changes().into_iter();
    changes
        .map(|change| change.replace("updated ", "UPDATE "))
        .collect()
}

/// Returns the next changes that `listen` prints, of which a repeat, by the value of `id`, counts once.
fn heard(listener: &Listener, id: &str, count: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut changes = Vec::new();
    while changes.len() < count {
        let line = listener.event("notification");
        if seen.insert(line[id].to_string()) {
            let (list, uri) = match line["items"].as_array() {
                Some(items) => (items, "itemUri"),
                None => (line["entries"].as_array().unwrap(), "loc"),
            };
            changes.extend(list.iter().map(|one| {
                let change = one["change"].as_str().unwrap().replace("updated", "UPDATE");
                format!(
                    "{change} {}",
                    one[uri].as_str().unwrap().strip_prefix(URL).unwrap()
                )
            }));
        }
    }
    changes
}

#[test]
fn all_consumers_receive_the_same_changes_although_broker_and_daemon_are_killed() {
    let (Some(mut activemq), Some(javac)) = (ActiveMq::start(), needs::program("javac")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut compiler = Command::new(javac);
    compiler.args(["-cp", &CLASSES.join(":"), "-d"]);
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/consumers/Consumer.java"
    );
    compiler.arg(directory).arg(example);
    succeed(&mut compiler);
    let public = ports::reserved();
    let login = [USER, PASSWORD];
    let brokers = [
        ("repository", "/topic/open.{source}", login),
        ("locked", "/topic/open.locked", [USER, "wrong"]),
        ("forbidden", "/topic/forbidden.{source}", login),
    ];
    let brokers = brokers.map(|(name, destination, login)| {
        broker(name, activemq.stomp, destination, login, directory) + ATOM
    });
    let mut story = Story::new(&brokers.concat());
    // The daemon that comes after the kill has the same hub.
    let config = story
        .setup
        .config
        .replacen("127.0.0.1:0", &public.to_string(), 1);
    let config = config.replace("https://topics.example/", &format!("http://{public}/"));
    let on_hubs = "change_notifications = true\nsettle = ";
    story.setup.config = config.replace("settle = ", on_hubs);
    let selector = "format = 'atom' AND changeTypes LIKE '%UPDATE%' AND itemCount = '1' \
                    AND objectUri LIKE 'https://source.example/%' AND initial IS NULL AND kind = 'change' \
                    AND JMSType = 'content-change' AND JMSDeliveryMode = 'PERSISTENT' \
                    AND JMSCorrelationID LIKE 'urn:uuid:%'";
    let java = Consumer::java(directory, &activemq, selector);
    let more = ["", USER, PASSWORD];
    let python = Consumer::python(directory, activemq.stomp, "/topic/open.main", &more);
    let Some(python) = python else { return };
    let listener = listen(&story.setup, &["--durable", "listener"]);
    let mut daemon = story.start();
    let topic = format!("http://{public}/changes/main/a/capabilitylist/");
    let state = directory.join("subscriber.json").display().to_string();
    let subscriber = Listener::with(&[&topic, "--state", &state, "--json"]);
    subscriber.event("subscribed");
    for round in 0..3 {
        for _ in 0..4 {
            story.change();
        }
        if round == 0 {
            await_refusal(&daemon, "locked", "not_allowed");
            await_refusal(&daemon, "forbidden", "destination_refused");
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
        ("listen --broker", heard(&listener, "messageId", made.len())),
        (
            "a WebSub subscriber",
            heard(&subscriber, "until", made.len()),
        ),
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
    succeed(story.setup.command("resend").arg("repository"));
    assert_eq!(resent.changes(1), ["ADD a/resource-1"]);
    let (_, checked, _) = output(&mut story.setup.command("check"));
    assert_contains(&checked, "repository: connected to ActiveMQ/");
    assert_contains(&checked, "locked: no connection to");
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
    let broker = broker("repository", activemq.stomp, queue, login, directory.path());
    let mut story = Story::new(&(broker + ATOM));
    let consumers = [(), ()].map(|()| listen(&story.setup, &[]));
    let daemon = story.start();
    let objects: Vec<String> = (0..20).map(|number| format!("{number}.txt")).collect();
    for (minute, change) in ["created", "updated", "deleted"].iter().enumerate() {
        let entries = objects.iter().enumerate();
        let entries = entries.map(|(at, name)| format!("{change} {name} 10:{minute:02}:{at:02}"));
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
fn rabbitmq_has_every_change_in_order_although_it_is_killed_and_routes_feeds_by_its_exchange() {
    let Some(mut rabbitmq) = RabbitMq::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let guest = ["guest", "guest"];
    let brokers = [
        ("repository", "/queue/{source}", guest, ""),
        ("feeds", "/exchange/amq.topic/changes.{source}", guest, ATOM),
        ("locked", "/queue/locked", ["guest", "wrong"], ""),
        ("nowhere", "/exchange/none/x", guest, ""),
    ];
    let brokers = brokers.map(|(name, destination, login, more)| {
        broker(name, rabbitmq.stomp, destination, login, directory) + more
    });
    let mut story = Story::new(&brokers.concat());
    let bound = "/exchange/amq.topic/changes.main";
    let consumer = Consumer::python(directory, rabbitmq.stomp, bound, &["", "guest", "guest"]);
    let Some(consumer) = consumer else { return };
    let daemon = story.start();
    for _ in 0..5 {
        story.change();
    }
    assert_eq!(consumer.changes(5), made(&story));
    await_refusal(&daemon, "locked", "not_allowed");
    await_refusal(&daemon, "nowhere", "destination_refused");
    let listener = listen(&story.setup, &[]);
    rabbitmq.kill();
    story.change();
    rabbitmq.launch();
    for _ in 0..5 {
        story.change();
    }
    let made = made(&story);
    assert_eq!(heard(&listener, "messageId", made.len()), made);
    assert!(daemon.stop().success());
}
