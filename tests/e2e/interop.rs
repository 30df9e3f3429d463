//! Software of others: a WebSub hub, the reference library, a reader of feeds, web servers, and a validator of XML.
//!
//! `.ci/run` installs them from package registries. If one is missing, its tests are skipped.

mod atom;
mod changes;
mod payloads;
mod readers;
mod stories;
mod web_servers;

use std::net::SocketAddr;

use url::Url;

use crate::own_hub::setup::ask_to_subscribe;
use crate::support::daemon::get;
use crate::support::hub::FakeHub;

/// Subscribes to a topic as its headers say, and waits until the hub has asked whether that is meant.
fn subscribe(subscriber: &FakeHub, address: SocketAddr, target: &str) {
    let (head, _) = get(address, target);
    let is_link = |line: &&str| line.to_ascii_lowercase().starts_with("link: ");
    let links = head.lines().find(is_link).unwrap()[6..].split(", ");
    let [topic, hub] = ["self", "hub"].map(|relation| {
        let end = format!(">; rel=\"{relation}\"");
        let link = links.clone().find_map(|link| link.strip_suffix(&end));
        link.unwrap_or_else(|| panic!("no {relation} in {head}"))
            .trim_start_matches('<')
    });
    let hub = Url::parse(hub).unwrap();
    assert_eq!(hub.path(), "/hub");
    let callback = format!("http://{}/callback", subscriber.address);
    let hub = hub.socket_addrs(|| None).unwrap()[0];
    let answer = ask_to_subscribe(hub, topic, &callback, &[]);
    assert_eq!(answer.status, 202);
    assert!(subscriber.request().challenge().is_some());
}
