//! `examples/compose`: its services agree with each other.

use std::collections::BTreeMap;

use rsnotify::cli::options::Command;
use rsnotify::config::Config;
use rsnotify::config::text::Address;
use serde_json::Value;

use crate::examples::manifest::{
    IMAGE, USER, command, configuration, ports, text, texts, variables, yaml,
};
use crate::support::daemon::assert_contains;

const FILE: &str = "examples/compose/rsnotify.toml";

fn services() -> Value {
    yaml("examples/compose/compose.yaml")["services"].clone()
}

fn daemon(services: &Value) -> Config {
    let mut variables = variables();
    for (name, value) in services["rsnotify"]["environment"].as_object().unwrap() {
        variables.insert(name.clone(), value.as_str().unwrap().to_owned());
    }
    configuration(&command(&["run"], &variables), FILE, None)
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
    let asked = command(&texts(&listen["command"]), &BTreeMap::new());
    assert!(matches!(asked, Command::Listen(_)), "{asked:?}");
    let check = texts(&services["rsnotify"]["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "/usr/bin/rsnotify"]);
    let asked = command(&check[2..], &BTreeMap::new());
    assert!(matches!(asked, Command::Health(_)), "{asked:?}");
}

#[test]
fn services_reach_each_other_on_loopback() {
    let services = services();
    let config = daemon(&services);
    for name in ["rsnotify", "listen"] {
        assert_eq!(services[name]["network_mode"], "service:web");
        assert!(services[name]["ports"].is_null(), "{name}");
    }
    // A service that shares the network of another is started again with it.
    assert_eq!(services["rsnotify"]["depends_on"]["web"]["restart"], true);
    let (Address::Tcp(public), Address::Tcp(admin)) =
        (&config.server.listen.0, &config.server.admin_listen.0)
    else {
        panic!("{config:?}");
    };
    assert!(public.ip().is_loopback() && admin.ip().is_unspecified());
    assert_eq!(ports(), [public.port().to_string()]);
    let passed_on = format!("proxy_pass http://{public};");
    assert!(text("examples/site/nginx.conf").contains(&passed_on));
    let port = admin.port();
    assert_eq!(
        texts(&services["web"]["ports"]),
        ["127.0.0.1:8080:8080", &format!("127.0.0.1:{port}:{port}")]
    );
    // The embedded hub calls back where `listen` waits beside it.
    assert_contains(&format!("{:?}", config.embedded_hub), "127.0.0.0/8");
}

#[test]
fn no_address_of_a_container_is_fixed() {
    for file in ["compose.yaml", "rsnotify.toml"] {
        let text = text(&format!("examples/compose/{file}"));
        for word in ["ipv4_address", "subnet", "extra_hosts", "172.", "192.168."] {
            assert!(!text.contains(word), "{file} has {word}");
        }
    }
}

#[test]
fn the_tree_is_published_as_it_is_announced() {
    let services = services();
    let config = daemon(&services);
    let url = config.server.public_url.as_ref().unwrap();
    let mount = &config.sources[0].mount[0];
    assert_eq!(&mount.prefix, url);
    let tree = mount.directory.to_str().unwrap();
    let hub = config.embedded_hub.as_ref().unwrap().hub_uri(url);
    let generator = texts(&services["generator"]["command"]);
    assert_eq!(generator[2..5], [tree, url.as_str(), hub.as_str()]);
    assert!(text("examples/site/nginx.conf").contains(&format!("root {tree};")));

    let has = |service: &str, volume: &str| texts(&services[service]["volumes"]).contains(&volume);
    assert!(has("generator", &format!("tree:{tree}")));
    assert!(has("web", &format!("tree:{tree}:ro")));
    assert!(has("rsnotify", &format!("tree:{tree}:ro")));
    assert!(has(
        "rsnotify",
        &format!("state:{}", variables()["STATE_DIRECTORY"])
    ));
    assert_eq!(
        texts(&services["listen"]["command"])[1..],
        [
            format!("{url}topics/notes/"),
            format!("{url}changes/notes/")
        ]
    );
}

#[test]
fn nothing_may_more_than_it_must() {
    for (name, service) in services().as_object().unwrap() {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(texts(&service["cap_drop"]), ["ALL"], "{name}");
    }
}

#[test]
fn the_token_of_the_hub_is_where_its_file_says() {
    let hub = &yaml("examples/compose/hub.yaml")["services"]["hub"];
    let file = text("examples/compose/hub.toml");
    assert_contains(&file, "bearer_token_file = \"/etc/rsnotify/library.token\"");
    let mounted = "./library.token:/etc/rsnotify/library.token:ro";
    assert!(texts(&hub["volumes"]).contains(&mounted), "{hub}");
    let made = "rsnotify token library | sed -n '2s/# //p' >examples/compose/library.token";
    assert!(text("docs/container.md").contains(made));
}
