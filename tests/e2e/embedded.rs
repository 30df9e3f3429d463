//! The embedded hub, with `listen` as its Destination.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::DEADLINE;
use crate::daemon::Setup;
use crate::documents::{Site, list};

pub struct Listener {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Listener {
    pub fn start(topic: &str) -> Listener {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rsnotify"))
            .args(["listen", topic])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        let listener = Listener {
            child,
            stdout,
            stderr,
        };
        let first = listener.stderr.recv_timeout(DEADLINE).unwrap();
        assert!(first.starts_with("listening to "), "{first}");
        listener
    }

    pub fn line(&self) -> String {
        self.stdout
            .recv_timeout(DEADLINE)
            .expect("a line from listen in time")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

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
