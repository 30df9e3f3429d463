//! The embedded hub and `rsnotify hub`, for a subscriber from its first request to its last (WebSub 5 to 8, Framework
//! Notification 4). Each clause alone is tried in `crates/websub/tests/websub/hub.rs`.

use rstest::rstest;
use websub::hub::delivery::signature;
use websub::secret::Secret;

use crate::own_hub::callback::{Callback, say, willing};
use crate::own_hub::setup::{Answer, HubSetup, TOKEN, await_count, post_form};
use crate::own_hub::story::Publishing;
use crate::support::daemon::{Daemon, assert_starts_with, body_of};

/// The hub that a source publishes at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    OfManySources,
}

struct Story {
    source: Publishing,
    own_hub: Option<(HubSetup, Daemon)>,
}

impl Story {
    fn start(kind: Kind) -> Story {
        if kind == Kind::Embedded {
            let hub = "[embedded_hub]\ncallback_ports = [\"1-65535\"]\nallow_callback_networks = [\"127.0.0.0/8\"]\n";
            let source = Publishing::start_with("library", hub);
            return Story {
                source,
                own_hub: None,
            };
        }
        let setup = HubSetup::library();
        let hub = setup.start();
        Story {
            source: Publishing::start(&setup, "library", TOKEN),
            own_hub: Some((setup, hub)),
        }
    }

    fn ask(&self, mode: &str, callback: &str, more: &[(&str, &str)]) -> Answer {
        let address = match &self.own_hub {
            Some((setup, _)) => setup.address,
            None => self.source.daemon.public,
        };
        let parameters = [
            ("hub.mode", mode),
            ("hub.topic", &self.source.topic),
            ("hub.callback", callback),
        ];
        post_form(address, &[&parameters[..], more].concat(), &[])
    }

    fn await_subscriptions(&self, count: usize) {
        let directory = match &self.own_hub {
            Some((setup, _)) => setup.state_dir(),
            None => self.source.directory.path().join("state"),
        };
        let sql = "SELECT count(*) FROM subscription";
        await_count(&directory, sql, [], count);
    }

    /// Kills the hub, and starts it again after a change.
    fn change_during_a_kill(mut self) -> Story {
        match self.own_hub {
            Some((setup, hub)) => {
                hub.kill();
                self.source.change();
                let hub = setup.start();
                Story {
                    own_hub: Some((setup, hub)),
                    ..self
                }
            }
            None => {
                self.source.change();
                Story {
                    source: self.source.restart(),
                    own_hub: None,
                }
            }
        }
    }
}

#[rstest]
fn a_subscriber_receives_everything_in_order_until_it_unsubscribes(
    #[values(Kind::Embedded, Kind::OfManySources)] kind: Kind,
) {
    let mut story = Story::start(kind);
    let (callback, staying) = (Callback::start(), Callback::start());
    let url = callback.url("/c?k=v");
    let more = [("hub.secret", "s"), ("hub.lease_seconds", "3600")];
    let answer = story.ask("subscribe", &url, &more);
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    let asked = callback.next("GET");
    assert_starts_with(&asked.target, "/c?k=v&hub.mode=subscribe&");
    let parameter = |name| asked.parameter(name).unwrap();
    assert_eq!(parameter("hub.topic"), story.source.topic);
    assert_eq!(parameter("hub.lease_seconds"), "3600");
    story.ask("subscribe", &staying.url("/"), &[]);
    story.await_subscriptions(2);

    story.source.change();
    let delivered = callback.next("POST");
    assert_eq!(delivered.target, "/c?k=v");
    assert_eq!(delivered.headers["content-type"], "application/xml");
    let hub = match &story.own_hub {
        Some((setup, _)) => setup.url(),
        None => "https://library.example/hub".to_owned(),
    };
    let links = format!(
        "<{}>; rel=\"self\", <{hub}>; rel=\"hub\", <https://source.example/a/capabilitylist.xml>; rel=\"resourcesync\"",
        story.source.topic
    );
    assert_eq!(delivered.headers["link"], links);
    let signed = signature(&Secret::new("s"), &delivered.body);
    assert_eq!(delivered.headers["x-hub-signature"], signed);
    let topic = body_of(story.source.daemon.get("/topics/main/a/capabilitylist/"));
    assert_eq!(topic.as_bytes(), delivered.body);
    staying.next("POST");

    callback.behave(|request| match request.method.as_str() {
        "POST" => say("503 Service Unavailable", ""),
        _ => willing(request),
    });
    story.source.change();
    let refused = callback.next("POST").body;
    story = story.change_during_a_kill();
    callback.behave(willing);
    // What was refused may have come again before the kill.
    let mut heard = vec![refused];
    while heard.len() < 2 {
        heard.push(callback.next("POST").body);
        heard.dedup();
    }
    let last = &heard[1];
    assert_ne!(*last, delivered.body);
    while staying.next("POST").body != *last {}

    assert_eq!(story.ask("unsubscribe", &url, &[]).status, 202);
    let asked = callback.next("GET");
    assert_eq!(asked.parameter("hub.mode").as_deref(), Some("unsubscribe"));
    story.await_subscriptions(1);
    story.source.change();
    while staying.next("POST").body == *last {}
    assert!(
        callback
            .heard()
            .iter()
            .all(|request| request.method == "GET")
    );
}

/// WebSub 5.2.
#[test]
fn a_subscriber_of_the_embedded_hub_is_told_that_its_topic_ended() {
    let tables = "deletion_grace = \"0s\"\nmass_deletion = \"never\"\n[embedded_hub]\ncallback_ports = [\"1-65535\"]\n\
                  allow_callback_networks = [\"127.0.0.0/8\"]\n";
    let source = Publishing::start_with("library", tables);
    let config = source.directory.path().join("c.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("[server]\n", "[server]\nretired_topic = \"1s\"\n");
    std::fs::write(&config, text).unwrap();
    let story = Story {
        source: source.restart(),
        own_hub: None,
    };
    let callback = Callback::start();
    story.ask("subscribe", &callback.url("/c?k=v"), &[]);
    callback.next("GET");
    story.await_subscriptions(1);
    story.source.end_set();
    let told = callback.next("GET");
    assert_starts_with(&told.target, "/c?k=v&hub.mode=denied&");
    let parameter = |name| told.parameter(name).unwrap();
    assert_eq!(parameter("hub.topic"), story.source.topic);
    assert_eq!(parameter("hub.reason"), "the topic has ended");
    story.await_subscriptions(0);
}
