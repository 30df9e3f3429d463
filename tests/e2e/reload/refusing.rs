//! A configuration that is not reloaded: the reason is logged, and the previous one is kept.

use serde_json::Value;

use crate::reload::{CHANGE, assert_reloaded, change, reload};
use crate::support::daemon::{Daemon, Setup, assert_contains, body_of};

fn is_refused(daemon: &Daemon, setup: &Setup, why: &str) {
    let said = reload(daemon, setup);
    assert!(said.starts_with("configuration not reloaded"), "{said}");
    assert_contains(&said, why);
    let refused = &daemon.status()["configuration"]["refused"];
    assert_contains(refused["error"].as_str().unwrap(), why);
}

#[test]
fn a_refused_configuration_is_reported_and_the_previous_one_is_kept() {
    let (site, hub, mut setup) = Setup::announcing("");
    let good = setup.config.clone();
    let daemon = setup.start();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
    std::fs::write(setup.state.path().join("none.pem"), pem).unwrap();
    let listening = "listen = \"127.0.0.1:0\"\nadmin_listen";
    let in_hub = |key: &str| good.replace("[[hub]]\n", &format!("[[hub]]\n{key}\n"));
    for (config, why) in [
        (good.replace("[[hub]]", "[[hub"), "unclosed array table"),
        (
            in_hub("ca_file = \"none.pem\""),
            "cannot use the certificates",
        ),
        (
            format!("state_dir = \"/nowhere\"\n{good}"),
            " to /nowhere: restart rsnotify",
        ),
        (
            good.replace(listening, &format!("listen = \"{taken}\"\nadmin_listen")),
            "is another program there?",
        ),
    ] {
        setup.config = config;
        is_refused(&daemon, &setup, why);
        assert!(daemon.get_admin("/readyz").0.starts_with("HTTP/1.1 200"));
    }
    change(&site, "2");
    hub.assert_told([CHANGE]);
    setup.config = good;
    assert_reloaded(&daemon, &setup, "nothing changed");
    assert_eq!(daemon.status()["configuration"]["refused"], Value::Null);
}

#[test]
fn a_listener_is_not_moved_where_the_other_cannot_be() {
    let (_site, _hub, mut setup, daemon) = Setup::start_announcing("");
    let socket = setup.state.path().join("public.sock");
    setup.replace(
        "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"",
        &format!(
            "listen = \"unix:{}\"\nadmin_listen = \"unix:/nowhere/admin.sock\"",
            socket.display()
        ),
    );
    is_refused(&daemon, &setup, "cannot listen on unix:/nowhere/admin.sock");
    assert!(!socket.exists(), "what was bound in vain is gone");
    body_of(daemon.get("/topics/main/a/capabilitylist/"));
}
