//! `examples/compose`: its services agree with each other.

use std::collections::BTreeMap;

use rsnotify::cli::options::Command;
use rsnotify::config::Config;
use rsnotify::config::address::Address;
use serde_json::Value;

use crate::examples::image::{self, IMAGE, USER};
use crate::examples::manifest::{command, configuration, text, texts, yaml};

const FILE: &str = "examples/compose/rsnotify.toml";

fn services() -> Value {
    yaml("examples/compose/compose.yaml")["services"].clone()
}

/// The variables that a service has of its own.
fn own_variables(service: &Value) -> BTreeMap<String, String> {
    let variables = service["environment"].as_object().unwrap().iter();
    variables
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

fn daemon(services: &Value) -> Config {
    let mut variables = image::variables();
    variables.extend(own_variables(&services["rsnotify"]));
    configuration(&command(&["run"], &variables), FILE, None)
}

/// The port of a listener that other containers reach.
fn open_port(address: &Address) -> String {
    match address {
        Address::Tcp(address) if address.ip().is_unspecified() => address.port().to_string(),
        other => panic!("{other} is not open to other containers"),
    }
}

#[test]
fn services_run_this_image_with_flags_and_variables_that_exist() {
    let services = services();
    for name in ["rsnotify", "listen"] {
        assert_eq!(services[name]["image"], IMAGE);
    }
    assert_eq!(services["rsnotify"]["user"], format!("{USER}:{USER}"));
    assert_eq!(
        services["rsnotify"]["build"]["dockerfile"],
        "packaging/Containerfile"
    );

    let listen = &services["listen"];
    let asked = command(&texts(&listen["command"]), &own_variables(listen));
    assert!(matches!(asked, Command::Listen(_)), "{asked:?}");
    let check = texts(&services["rsnotify"]["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "/usr/bin/rsnotify"]);
    let asked = command(&check[2..], &BTreeMap::new());
    assert!(matches!(asked, Command::Health(_)), "{asked:?}");
}

#[test]
fn addresses_and_ports_agree() {
    let services = services();
    let config = daemon(&services);
    let address = |name: &str| {
        services[name]["networks"]["default"]["ipv4_address"]
            .as_str()
            .unwrap()
    };

    let port = open_port(&config.server.listen);
    assert_eq!(image::ports(), [port.as_str()]);
    assert!(
        text("examples/site/nginx.conf").contains(&format!("proxy_pass http://rsnotify:{port};"))
    );
    assert_eq!(
        texts(&services["web"]["extra_hosts"]),
        [format!("rsnotify:{}", address("rsnotify"))]
    );
    let admin = open_port(&config.server.admin_listen);
    assert_eq!(
        texts(&services["rsnotify"]["ports"]),
        [format!("127.0.0.1:{admin}:{admin}")]
    );

    // The embedded hub believes the web server, and calls back where `listen` waits beside it.
    let hub = config.embedded_hub.as_ref().unwrap();
    assert!(
        format!("{:?}", hub.trusted_proxies).contains(address("web")),
        "{hub:?}"
    );
    assert_eq!(services["listen"]["network_mode"], "service:web");
    let callback = format!("http://{}:9000/", address("web"));
    assert_eq!(
        services["listen"]["environment"]["RSNOTIFY_CALLBACK"],
        callback
    );
}

#[test]
fn the_tree_is_published_as_it_is_announced() {
    let services = services();
    let config = daemon(&services);
    let url = config.server.public_url.as_ref().unwrap();
    let mount = &config.sources[0].mount[0];
    assert_eq!(&mount.prefix, url);
    let tree = mount.directory.to_str().unwrap();
    let hub = config.embedded_hub.as_ref().unwrap().hub(url);
    let generator = texts(&services["generator"]["command"]);
    assert_eq!(generator[2..5], [tree, url.as_str(), hub.as_str()]);
    assert!(text("examples/site/nginx.conf").contains(&format!("root {tree};")));

    let has = |service: &str, volume: &str| texts(&services[service]["volumes"]).contains(&volume);
    assert!(has("generator", &format!("tree:{tree}")));
    assert!(has("web", &format!("tree:{tree}:ro")));
    assert!(has("rsnotify", &format!("tree:{tree}:ro")));
    assert!(has(
        "rsnotify",
        &format!("state:{}", image::variables()["STATE_DIRECTORY"])
    ));
    let topic = texts(&services["listen"]["command"])[1];
    assert_eq!(topic, format!("{url}topics/notes/"));
}

#[test]
fn nothing_may_more_than_it_must() {
    for (name, service) in services().as_object().unwrap() {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(texts(&service["cap_drop"]), ["ALL"], "{name}");
    }
}
