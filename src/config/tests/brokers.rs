//! Tests of `[[broker]]`.

use std::time::Duration;

use messaging::message::{BrokerNotification, HashedPayload, resourcesync_message};
use messaging::objects::TypeRule;
use messaging::objects::{AtomRules, atom_messages};
use messaging::settings::BrokerAddress;
use resourcesync::capability::ChannelKind;
use resourcesync::uri::Uri;

use crate::config::environment::Overrides;
use crate::config::tests::{SOURCE, assert_refused, message, read};
use announce::plan::PublishMode;

const BROKER: &str = "[[broker]]\nname = \"repository\"\nurl = \"stomp://mq.example.org\"\n\
                      destination = \"/topic/content.change\"\n";

fn wrong(more: &str) -> String {
    let text = format!("{SOURCE}{BROKER}{more}");
    message(read(&text, &Overrides::default()))
}

#[test]
fn a_broker_has_defaults_and_is_no_hub() {
    let config = read(&format!("{SOURCE}{BROKER}"), &Overrides::default()).unwrap();
    let broker = &config.brokers[0];
    assert_eq!(broker.vhost, "/");
    assert_eq!(broker.timeout.0, Duration::from_secs(30));
    assert_eq!(broker.channels, [ChannelKind::Change]);
    assert_eq!(broker.sources, None);
    assert!(config.embedded_hub.is_some(), "as without any hub");
    let plan = config.plan(&Uri::parse("http://127.0.0.1:8400/").unwrap());
    assert_eq!(plan.hubs.len(), 1);
    assert_eq!(plan.mode_of(&broker.name), Some(PublishMode::Broker));
    assert!(plan.hubs.iter().all(|hub| hub.hub != broker.name));
}

#[test]
fn an_address_has_a_port_by_its_scheme() {
    for (url, host, port, is_tls) in [
        ("stomp://mq.example.org", "mq.example.org", 61613, false),
        ("stomp://127.0.0.1:1/", "127.0.0.1", 1, false),
        ("stomp+tls://[::1]", "::1", 61614, true),
        (
            "STOMP+TLS://mq.example.org:443",
            "mq.example.org",
            443,
            true,
        ),
    ] {
        let text = BROKER.replace("stomp://mq.example.org", url);
        let config = read(&format!("{SOURCE}{text}"), &Overrides::default()).unwrap();
        let address = BrokerAddress {
            host: host.to_owned(),
            port,
            is_tls,
        };
        assert_eq!(config.brokers[0].address.0, address, "{url}");
    }
}

#[test]
fn every_mistake_is_named() {
    assert_refused(
        "",
        r#"
channels = ["changes"]
=> …"changes" is none of "framework", "change"
channels = []
=> …broker.channels: the list is empty: name at least one
sources = []
=> …broker.sources: the list is empty: name at least one
sources = ["mian"]
=> …"mian" is no source; did you mean "main"?
payload = "json"
=> …broker.payload: "json" is none of
payload = "atom"
types = [{ objects = "[a", type = "Thesis" }]
=> …:10:22: broker.types.objects: error parsing glob
payload = "atom"
types = [{ objects = "**", type = "a,b" }]
=> …a type is a URI or a word, without commas
types = [{ objects = "**", type = "Thesis" }]
=> …broker.types: it has no effect without feeds
object = "directory"
=> …it has no effect without feeds: write payload = "atom"
payload = "atom"
channels = ["framework", "change"]
=> …feeds are about changed resources: write channels = ["change"]
payload = "atom"
object = "set"
=> …"set" is none of "resource", "directory"
payload = "atom"
location = { from = "https://e.org/" }
=> …broker.location.to: it is missing
vhost = ""
=> …broker.vhost
username = "a"
=> …broker.username: it needs password_file too
client_key = "k"
=> …broker.client_key: it needs client_cert too
timeout = "0s"
=> …it must be longer than zero
headers = { seq = "1" }
=> …each message has this header already
headers = { a = "\u0001" }
=> …the value has a control character
hub = "x"
=> …broker.hub: there is no such key
"#,
        wrong,
    );
    assert!(wrong(BROKER).contains("there is a broker repository already"));
    let (name, url, topic) = (
        "repository",
        "stomp://mq.example.org",
        "/topic/content.change",
    );
    for (key, value, want) in [
        (name, "a b", "a name has letters, digits"),
        (name, "embedded", "it means the embedded hub in commands"),
        (url, "https://mq.example.org", "write \"stomp://HOST:PORT\""),
        (
            url,
            "stomp://a:secret@mq",
            "credentials do not belong into an address",
        ),
        (url, "stomp://mq/x", "write \"stomp://HOST:PORT\""),
        (topic, "/topic/{set}", "it can have {source} only"),
        (topic, "", "write a destination"),
    ] {
        let text = format!("{SOURCE}{}", BROKER.replace(key, value));
        let said = message(read(&text, &Overrides::default()));
        assert!(said.contains(want), "{value}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn certificates_need_tls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let said = wrong(&format!("ca_file = \"{}\"", path.display()));
    assert!(said.contains("it has no effect without TLS"), "{said}");
}

#[test]
fn headers_and_properties_of_messages_are_reserved() {
    let body = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:rs="http://www.openarchives.org/rs/terms/">
        <rs:md capability="change-notification" from="2026-11-20T10:00:00Z" until="2026-11-20T10:05:00Z"/>
        <url>
            <loc>https://e.org/reports/1.txt</loc>
            <rs:md change="updated" type="text/plain"/>
            <rs:ln rel="author" href="mailto:ada@e.org"/>
        </url>
        </urlset>"#;
    let notification = BrokerNotification {
        source: "main",
        topic: "https://e.org/changes",
        kind: ChannelKind::Change,
        seq: 1,
        body: HashedPayload::new(body, &[]),
    };
    let form = AtomRules {
        types: vec![TypeRule {
            objects: "**".to_owned(),
            name: "Report".to_owned(),
        }],
        ..AtomRules::default()
    };
    let mut messages = atom_messages(&notification, &form).unwrap();
    // It has every optional property.
    for name in ["parentUri", "objectTypes", "user"] {
        assert!(messages[0].header(name).is_some(), "{name}");
    }
    messages.push(resourcesync_message(&notification));
    for message in messages {
        for (name, _) in &message.headers {
            let said = wrong(&format!("headers = {{ \"{name}\" = \"x\" }}\n"));
            let want = "each message has this header already";
            assert!(said.contains(want), "{name}: {said}");
        }
    }
}
