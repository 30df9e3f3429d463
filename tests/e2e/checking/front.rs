//! The web server in front of the topics, correct and with usual mistakes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::daemon::{
    Daemon, Setup, TOPICS, assert_contains, assert_none_contains, exchange, exit_with,
};
use crate::support::documents::Site;
use crate::support::hub::FakeHub;

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
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    upstream: Arc<Mutex<Option<SocketAddr>>>,
}

impl Front {
    pub fn start() -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let manner = Arc::new(Mutex::new(Manner::PassOn));
        let upstream = Arc::new(Mutex::new(None));
        let shared = (Arc::clone(&manner), Arc::clone(&upstream));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, upstream) = (*shared.0.lock().unwrap(), *shared.1.lock().unwrap());
                std::thread::spawn(move || serve(stream.unwrap(), manner, upstream));
            }
        });
        Front {
            address,
            manner,
            upstream,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn behave(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn pass_on_to(&self, daemon: &Daemon) {
        *self.upstream.lock().unwrap() = Some(daemon.public);
    }
}

/// Answers one request, and closes.
fn serve(mut stream: TcpStream, manner: Manner, upstream: Option<SocketAddr>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let is_head = lines[0].starts_with("HEAD ");
    let answer = match manner {
        Manner::NotFound => {
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n<h1>Not Found</h1>".to_owned()
        }
        Manner::Hang => {
            let _ = reader.fill_buf();
            return;
        }
        _ => passed_on(&lines, manner, upstream.unwrap()),
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.replace("HTTP/1.1 ", "HTTP/1.0 ");
    let body = if is_head { "" } else { body };
    // The client may have disconnected.
    let _ = write!(stream, "{head}\r\n\r\n{body}");
}

fn passed_on(lines: &[String], manner: Manner, upstream: SocketAddr) -> String {
    let mut request = lines.to_vec();
    if manner == Manner::DropQuery {
        let (path, _) = request[0].split_once('?').unwrap();
        request[0] = format!("{path} HTTP/1.1");
    }
    let request = request.join("\r\n") + "\r\nConnection: close\r\n\r\n";
    let answer = exchange(upstream, request).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let lines = head.lines().filter_map(|line| {
        let (name, _) = line.split_once(": ").unwrap_or((line, ""));
        match (manner, name.to_ascii_lowercase().as_str()) {
            (Manner::DropLink, "link") => None,
            (Manner::Late, "date") => Some("Date: Thu, 01 Jan 2026 00:00:00 GMT"),
            _ => Some(line),
        }
    });
    let head = lines.collect::<Vec<_>>().join("\r\n");
    format!("{head}\r\n\r\n{body}")
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
    check(&setup).found(&[&format!("the clock of http://{} is ", front.address)]);
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
