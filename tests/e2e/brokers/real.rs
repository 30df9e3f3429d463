//! ActiveMQ and RabbitMQ: what is sent arrives whole and in order, also when a broker is killed meanwhile.

use std::net::SocketAddr;

use resourcesync::change_payload::ChangePayload;
use serde_json::Value;

use crate::brokers::Story;
use crate::brokers::listening::Listener;
use crate::support::brokers::{ActiveMq, JmsConsumer, PASSWORD, RabbitMq, USER};
use crate::support::changes::told;
use crate::support::daemon::{Daemon, assert_contains, output};
use crate::support::documents::URL;

/// A `[[broker]]` with a user and a password.
fn broker(
    name: &str,
    address: SocketAddr,
    destination: &str,
    (user, password): (&str, &str),
    directory: &std::path::Path,
) -> String {
    let file = directory.join(name);
    std::fs::write(&file, password).unwrap();
    format!(
        "[[broker]]\nname = \"{name}\"\nurl = \"stomp://{address}\"\ndestination = \"{destination}\"\n\
         channels = [\"change\", \"framework\"]\nusername = \"{user}\"\npassword_file = \"{}\"\n",
        file.display()
    )
}

/// The changes that came, in order, of which a repeat counts once.
#[derive(Default)]
struct Received {
    ids: Vec<String>,
    changes: Vec<String>,
}

impl Received {
    fn take(&mut self, id: &Value, changes: Vec<String>) {
        let id = id.as_str().unwrap().to_owned();
        if !self.ids.contains(&id) {
            self.ids.push(id);
            self.changes.extend(changes);
        }
    }

    /// Takes what a listener prints, until so many changes came.
    fn listen(&mut self, listener: &Listener, count: usize) {
        while self.changes.len() < count {
            let line = listener.next();
            if line["event"] == "notification" && line["kind"] == "change" {
                let entries = line["entries"].as_array().unwrap().iter();
                let changes = entries.map(|entry| {
                    let path = entry["loc"].as_str().unwrap().strip_prefix(URL);
                    format!("{} {}", entry["change"].as_str().unwrap(), path.unwrap())
                });
                self.take(&line["messageId"], changes.collect());
            }
        }
    }
}

/// Waits until a notification was refused by a broker for this kind of reason.
fn await_refusal(daemon: &Daemon, broker: &str, kind: &str) {
    daemon.await_status(|status| {
        let channels = status["channels"].as_array().unwrap().iter();
        let hubs = channels.flat_map(|channel| channel["hubs"].as_array().unwrap());
        let mut meant = hubs.filter(|hub| hub["hub"] == broker);
        meant.any(|hub| hub["last"]["refusal"]["kind"] == kind)
    });
}

#[test]
fn activemq_gives_jms_consumers_every_change_in_order_although_it_is_killed() {
    let Some(mut activemq) = ActiveMq::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let Some(()) = JmsConsumer::compile(directory.path()) else {
        return;
    };
    let login = (USER, PASSWORD);
    let stomp = activemq.stomp;
    let brokers = [
        ("repository", "/topic/open.{source}", login),
        ("locked", "/topic/open.locked", (USER, "wrong")),
        ("forbidden", "/topic/forbidden.{source}", login),
    ];
    let brokers = brokers.map(|(name, destination, login)| {
        broker(name, stomp, destination, login, directory.path())
    });
    let mut story = Story::new(&brokers.concat());
    let consumer = JmsConsumer::subscribe(
        directory.path(),
        activemq.openwire,
        ("open.main", "kind = 'change' AND source = 'main'"),
        "archive",
    );
    let listener = Listener::start(
        &story.setup,
        &["--selector", "kind = 'change'", "--durable", "listener"],
    );
    let daemon = story.start();
    story.change();
    await_refusal(&daemon, "locked", "not_allowed");
    await_refusal(&daemon, "forbidden", "destination_refused");
    let (mut by_jms, mut by_stomp) = (Received::default(), Received::default());
    let hear = |received: &mut Received, count: usize| {
        while received.changes.len() < count {
            let message = consumer.next();
            assert_eq!(message["type"], "content-change");
            assert_eq!(message["persistent"], true);
            assert_eq!(message["format"], "resourcesync");
            assert_eq!(message["kind"], "change", "the selector selects");
            let id = message["messageId"].as_str().unwrap();
            assert_eq!(message["correlation"], format!("urn:uuid:{id}"));
            let text = message["text"].as_str().unwrap();
            let payload = ChangePayload::parse(text.as_bytes()).unwrap();
            received.take(&message["messageId"], told(&payload));
        }
    };
    hear(&mut by_jms, 1);
    for round in 0..3 {
        for _ in 0..5 {
            story.change();
        }
        if round == 1 {
            activemq.kill();
            story.change();
            activemq.launch();
        }
    }
    hear(&mut by_jms, story.changes().len());
    assert_eq!(by_jms.changes, story.changes());
    by_stomp.listen(&listener, story.changes().len());
    assert_eq!(by_stomp.changes, story.changes());
    let (_, checked, _) = output(&mut story.setup.command("check"));
    assert_contains(&checked, "repository: connected to ActiveMQ/");
    assert_contains(&checked, "locked: no connection to");
    assert!(daemon.stop().success());
}

#[test]
fn rabbitmq_has_every_change_in_order_although_it_is_killed() {
    let Some(mut rabbitmq) = RabbitMq::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (stomp, guest) = (rabbitmq.stomp, ("guest", "guest"));
    let brokers = [
        ("repository", "/queue/{source}", guest),
        ("locked", "/queue/locked", ("guest", "wrong")),
        ("nowhere", "/exchange/none/x", guest),
    ];
    let brokers = brokers.map(|(name, destination, login)| {
        broker(name, stomp, destination, login, directory.path())
    });
    let mut story = Story::new(&brokers.concat());
    let daemon = story.start();
    story.change();
    await_refusal(&daemon, "locked", "not_allowed");
    await_refusal(&daemon, "nowhere", "destination_refused");
    let listener = Listener::start(&story.setup, &[]);
    for round in 0..3 {
        for _ in 0..5 {
            story.change();
        }
        if round == 1 {
            rabbitmq.kill();
            story.change();
            rabbitmq.launch();
        }
    }
    let mut received = Received::default();
    received.listen(&listener, story.changes().len());
    assert_eq!(received.changes, story.changes());
    assert!(daemon.stop().success());
}
