//! The web server in front of the topics, correct and with usual mistakes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::support::daemon::{
    Daemon, Setup, TOPICS, assert_contains, assert_none_contains, exit_with, get,
};
use crate::support::documents::Site;
use crate::support::http::{Request, Say, Server, say};
use crate::support::hub::FakeHub;
use crate::support::until;

use super::{CHANNEL, check};

/// The server's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    PassOn,
    NotFound,
    DropLink,
    DropQuery,
    Hang,
    Late,
}

/// A web server on loopback.
pub struct Front {
    manner: Arc<Mutex<Manner>>,
    upstream: Arc<Mutex<Option<SocketAddr>>>,
    server: Server,
}

impl Front {
    pub fn start() -> Front {
        let manner = Arc::new(Mutex::new(Manner::PassOn));
        let upstream = Arc::new(Mutex::new(None));
        let shared = (Arc::clone(&manner), Arc::clone(&upstream));
        let server = Server::start(move |request| {
            let (manner, upstream) = (*shared.0.lock().unwrap(), *shared.1.lock().unwrap());
            match manner {
                Manner::NotFound => Some(Say {
                    headers: "Content-Type: text/html\r\n".to_owned(),
                    ..say("404 Not Found", "<h1>Not Found</h1>")
                }),
                Manner::Hang => {
                    until(|| *shared.0.lock().unwrap() != manner);
                    None
                }
                _ => Some(passed_on(request, manner, upstream.unwrap())),
            }
        });
        Front {
            manner,
            upstream,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.server.address)
    }

    pub fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn pass_on_to(&self, daemon: &Daemon) {
        *self.upstream.lock().unwrap() = Some(daemon.public);
    }
}

fn passed_on(request: &Request, manner: Manner, upstream: SocketAddr) -> Say {
    let target = match manner {
        Manner::DropQuery => request.target.split('?').next().unwrap(),
        _ => &request.target,
    };
    let (head, body) = get(upstream, target);
    let (status, lines) = head.split_once("\r\n").unwrap();
    let lines = lines.lines().filter_map(|line| {
        let (name, _) = line.split_once(": ").unwrap();
        match (manner, name.to_ascii_lowercase().as_str()) {
            (Manner::DropLink, "link") | (_, "connection" | "content-length") => None,
            (Manner::Late, "date") => Some("Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n".to_owned()),
            _ => Some(format!("{line}\r\n")),
        }
    });
    Say {
        headers: lines.collect(),
        ..say(status.strip_prefix("HTTP/1.1 ").unwrap(), body)
    }
}

/// A site with one topic below the server, the way a `[[channel]]` names it.
pub fn behind(front: &Front, site: &Site, hub: &FakeHub) -> Setup {
    let channel = CHANNEL.replace(
        "https://source.example/a/framework/",
        &format!("{TOPICS}a/framework?set=a"),
    );
    let mut setup = Setup::new(site, &[hub.url()], &channel);
    setup.replace(TOPICS, &front.url());
    setup
}

#[test]
fn a_topic_that_is_not_passed_on_is_found_with_what_it_looks_like() {
    let (front, site, hub) = (Front::start(), Site::new(), FakeHub::start());
    let setup = behind(&front, &site, &hub);
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    check(&setup).is_fine();

    let topic = format!("{}a/framework?set=a: ", front.url());
    for (manner, found) in [
        (
            Manner::NotFound,
            "404 with Content-Type text/html, which is not from rsnotify",
        ),
        (Manner::DropLink, "there is no Link header"),
        (Manner::DropQuery, "404 from rsnotify itself"),
        (Manner::Hang, "no answer to HEAD (timed out"),
    ] {
        front.behave(manner);
        check(&setup).found(&[&format!("{topic}{found}")]);
    }
    front.behave(Manner::Late);
    check(&setup).found(&[&format!("the clock of http://{} is ", front.server.address)]);
    front.behave(Manner::PassOn);
    check(&setup).is_fine();
    assert!(hub.heard().is_empty(), "nothing was told");
}

#[test]
fn where_nothing_runs_no_topic_is_missed() {
    let (front, site, hub) = (Front::start(), Site::new(), FakeHub::start());
    let setup = behind(&front, &site, &hub);
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("state, so topics were not checked: start it");
    assert!(
        !setup.state.path().join("state").exists(),
        "nothing was made"
    );
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    let notes = check(&setup).notes;
    assert_none_contains(&notes, "is not running");
    daemon.stop();
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("state, so topics were not checked: start it");
}

#[test]
fn a_free_port_is_known_to_the_daemon_alone() {
    let (_site, setup, _daemon) = Setup::start_embedding("");
    let checked = check(&setup);
    checked.found(&["a/capabilitylist.xml does not advertise its channel"]);
    checked.noted("server.listen takes any free port, so topics below it were not checked");
}

#[test]
fn what_is_found_is_told_in_groups_with_what_to_do() {
    let (front, site, hub) = (Front::start(), Site::new(), FakeHub::start());
    site.write("a/broken.xml", "<urlset");
    let setup = behind(&front, &site, &hub);
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    front.behave(Manner::NotFound);
    let (stdout, _) = exit_with(&mut setup.command("check"), 1);
    let topic = format!("{}a/framework?set=a", front.url());
    let wanted = format!(
        "topics\n  {topic}: 404 with Content-Type text/html, which is not from rsnotify\n      the web server in \
         front answers itself; let it pass the topic on to server.listen, path and query unchanged: \
         `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do\n\n"
    );
    assert!(stdout.starts_with("tree\n  a/broken.xml: "), "{stdout}");
    assert_contains(&stdout, &wanted);
    assert!(stdout.ends_with("\n2 findings\n"), "{stdout}");
}
