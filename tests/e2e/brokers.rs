//! Message brokers with the real binary: a broker that dies anywhere, and, where they are installed, real ones.

mod consumers;
mod feeds;
mod listening;
mod resending;
mod tls;
mod transactions;

use std::collections::HashSet;
use std::net::SocketAddr;

use messaging::frame::Frame;
use resourcesync::change_payload::ChangePayload;
use serde_json::Value;

use crate::support::changes::{change_list, told};
use crate::support::daemon::{Daemon, Setup, TOPICS};
use crate::support::documents::Site;
use crate::support::stomp::FakeBroker;

/// A `[[broker]]` named `repository` at this address.
fn broker(address: SocketAddr, more: &str) -> String {
    format!(
        "[[broker]]\nname = \"repository\"\nurl = \"stomp://{address}\"\n\
         destination = \"/topic/{{source}}.changes\"\n{more}\n"
    )
}

/// A site with one set, and a daemon that tells brokers of its changes.
struct Story {
    site: Site,
    setup: Setup,
    entries: Vec<String>,
}

impl Story {
    fn new(brokers: &str) -> Story {
        let site = Site::new();
        let setup = Setup::with_source(&site, "deletion_grace = \"0s\"", brokers);
        // Topics stay the same whatever port is free.
        let public = format!("[server]\npublic_url = \"{TOPICS}\"\n");
        let config = setup.config.replace("[server]\n", &public);
        let setup = Setup { config, ..setup };
        let story = Story {
            site,
            setup,
            entries: Vec::new(),
        };
        story.write();
        story
    }

    /// With a broker that takes everything, configured with `more`.
    fn with_broker(more: &str) -> (FakeBroker, Story) {
        let fake = FakeBroker::start();
        let story = Story::new(&broker(fake.address, more));
        (fake, story)
    }

    /// Starts the daemon for the first time, and waits until it has learned what the Change List has.
    fn start(&self) -> Daemon {
        let daemon = self.setup.launch();
        daemon.await_log("not announcing");
        daemon
    }

    fn write(&self) {
        let list = change_list("a", &self.entries);
        self.site.write("a/changelist.xml", &list);
    }

    /// Adds a change to the Change List.
    fn change(&mut self) {
        let number = self.entries.len();
        let (minute, second) = (number / 60, number % 60);
        let entry = format!("updated {number}.txt 10:{minute:02}:{second:02}");
        self.entries.push(entry);
        self.write();
    }

    /// Returns the changes that were made, in order.
    fn changes(&self) -> Vec<String> {
        let entries = self.entries.iter();
        let changes = entries.map(|entry| entry.rsplit_once(' ').unwrap().0);
        changes.map(|change| change.replace(' ', " a/")).collect()
    }
}

/// Returns what a status says of a broker on the first channel that it hears.
fn view<'a>(status: &'a Value, broker: &str) -> Option<&'a Value> {
    let channels = status["channels"].as_array()?.iter();
    let mut hubs = channels.flat_map(|channel| channel["hubs"].as_array().into_iter().flatten());
    hubs.find(|hub| hub["hub"] == broker)
}

/// Returns the changes of messages, of which a repeat counts once; and how many were repeats.
fn distinct(messages: &[Frame]) -> (Vec<String>, usize) {
    let mut ids = HashSet::new();
    let mut changes = Vec::new();
    let mut repeats = 0;
    for message in messages {
        match ids.insert(message.header("messageId").unwrap()) {
            true => changes.extend(told(&ChangePayload::parse(&message.body).unwrap())),
            false => repeats += 1,
        }
    }
    (changes, repeats)
}
