//! The embedded hub, with `listen` as its Destination.

use crate::daemon::{Setup, output};
use crate::documents::{Site, list};
use crate::listener::Listener;

#[test]
fn a_listener_sees_each_change_as_one_line() {
    let site = Site::new();
    let setup = Setup::new(&site, &[], "");
    let daemon = setup.start();
    let topic = format!("http://{}/topics/main/a/capabilitylist/", daemon.public);
    let listener = Listener::start(&topic);
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    let line = listener.line();
    assert!(line.contains("updated  changelist"), "{line}");
    assert!(
        line.contains("https://source.example/a/changelist.xml"),
        "{line}"
    );
}

#[test]
fn a_subscription_outlives_a_kill() {
    let site = Site::new();
    let mut setup = Setup::new(&site, &[], "");
    let daemon = setup.start();
    let public = daemon.public;
    let listener = Listener::start(&format!("http://{public}/topics/main/a/capabilitylist/"));
    // The first delivery shows that the subscription is saved.
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    listener.line();
    daemon.kill();
    setup.config = setup.config.replacen("127.0.0.1:0", &public.to_string(), 1);
    site.write("a/changelist.xml", &list("a", "changelist", "3"));
    let _daemon = setup.start();
    let line = listener.line();
    assert!(
        line.contains("https://source.example/a/changelist.xml"),
        "{line}"
    );
}

#[test]
fn a_dry_run_shows_what_subscribers_would_be_sent() {
    let site = Site::new();
    let mut setup = Setup::new(&site, &[], "");
    let daemon = setup.start();
    let public = daemon.public;
    let topic = format!("http://{public}/topics/main/a/capabilitylist/");
    let listener = Listener::start(&topic);
    site.write("a/changelist.xml", &list("a", "changelist", "2"));
    listener.line();
    daemon.stop();
    setup.config = setup.config.replacen("127.0.0.1:0", &public.to_string(), 1);
    site.write("a/changelist.xml", &list("a", "changelist", "3"));
    let (_, printed, _) = output(setup.command("run").arg("--dry-run"));
    let title = format!("notification 2 of {topic}, to the subscriber http://127.0.0.1:");
    assert!(printed.contains(&title), "{printed}");
    let links = format!("Link: <{topic}>; rel=\"self\", <http://{public}/hub>; rel=\"hub\"");
    assert!(printed.contains(&links), "{printed}");
    assert!(printed.contains("change=\"updated\""), "{printed}");
}
