//! `rsnotify hub` as a process, with its configuration, and requests of publishers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::conformance::callback::Callback;
use crate::conformance::source::{Answer, form};
use crate::support::DEADLINE;
use crate::support::daemon::Daemon;

/// The publisher that most tests use: topics below this, with this token.
pub const LIBRARY: &str = "https://library.example/";
pub const TOKEN: &str = "books";

/// A state directory and configuration that outlive the hubs that use them.
pub struct HubSetup {
    pub directory: TempDir,
    pub address: SocketAddr,
    /// Keys of `[hub]`.
    pub keys: String,
    pub publishers: String,
}

/// A `[[publisher]]` with a token.
pub fn publisher(name: &str, prefix: &str, token: &str) -> String {
    format!(
        "[[publisher]]\nname = \"{name}\"\ntopics = [\"{prefix}\"]\nbearer_token_file = \"{token}.token\"\n"
    )
}

/// A `[[publisher]]` whose topics have to name the hub.
pub fn open_publisher(name: &str, prefix: &str) -> String {
    format!("[[publisher]]\nname = \"{name}\"\ntopics = [\"{prefix}\"]\nverify = \"topic\"\n")
}

/// Returns an address of this machine at which no other test takes ports.
fn own_address() -> Ipv4Addr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let [high, low] = TAKEN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = std::process::id() % 64;
    let process = u8::try_from(process).unwrap();
    Ipv4Addr::new(127, 64 + process, 1 + high, low)
}

impl HubSetup {
    pub fn new(publishers: &str) -> HubSetup {
        // The URL must be known before the hub starts, and the port must stay free until then.
        let free = TcpListener::bind((own_address(), 0)).unwrap();
        let directory = TempDir::new().unwrap();
        for token in [TOKEN, "boxes", "other"] {
            let file = directory.path().join(format!("{token}.token"));
            std::fs::write(file, format!("{token}\n")).unwrap();
        }
        HubSetup {
            directory,
            address: free.local_addr().unwrap(),
            keys: String::new(),
            publishers: publishers.to_owned(),
        }
    }

    /// With one publisher, which has [`TOKEN`] and publishes below [`LIBRARY`].
    pub fn library() -> HubSetup {
        HubSetup::new(&publisher("library", LIBRARY, TOKEN))
    }

    pub fn url(&self) -> String {
        format!("http://{}/hub", self.address)
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub fn file(&self) -> PathBuf {
        let path = self.directory.path().join("hub.toml");
        let (address, url) = (self.address, self.url());
        let (keys, publishers) = (&self.keys, &self.publishers);
        let text = format!(
            "state_dir = \"state\"\n[server]\nlisten = \"{address}\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [hub]\nurl = \"{url}\"\ncallback_ports = [\"1-65535\"]\n\
             allow_callback_networks = [\"127.0.0.0/8\"]\n{keys}\n{publishers}"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, command: &[&str]) -> Command {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        process.args(command).arg("--config").arg(self.file());
        process
    }

    pub fn start(&self) -> Daemon {
        let arguments = ["hub", "--log-format", "json", "--log-level", "debug"];
        Daemon::ready(self.command(&arguments))
    }

    /// Starts the hub, with a willing callback that is subscribed to a topic.
    pub fn start_subscribed(&self, topic: &str) -> (Daemon, Callback) {
        let (hub, callback) = (self.start(), Callback::start());
        self.subscribe(topic, &callback.url("/"));
        (hub, callback)
    }

    /// Posts with these header lines.
    pub fn post(&self, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_post(target, headers, body).unwrap()
    }

    /// As [`HubSetup::post`], to a hub that may be ending.
    pub fn try_post(
        &self,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let (host, length) = (self.address, body.len());
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n"
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let broken = || std::io::Error::other("the answer broke off");
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        Ok(Answer {
            status: status.ok_or_else(broken)?,
            head: head.to_lowercase(),
            body: body.to_owned(),
        })
    }

    /// Publishes on a topic with a token.
    pub fn publish(&self, topic: &str, token: &str, body: &str) -> Answer {
        self.try_publish(topic, token, body).unwrap()
    }

    pub fn try_publish(&self, topic: &str, token: &str, body: &str) -> std::io::Result<Answer> {
        let (link, bearer) = (
            format!("<{topic}>; rel=\"self\""),
            format!("Bearer {token}"),
        );
        let headers = [
            ("Content-Type", "application/xml"),
            ("Link", link.as_str()),
            ("Authorization", bearer.as_str()),
        ];
        self.try_post("/hub", &headers, body.as_bytes())
    }

    /// Posts a form, with a token if there is one.
    pub fn form(&self, parameters: &[(&str, &str)], token: Option<&str>) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("Content-Type", "application/x-www-form-urlencoded")];
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        self.post("/hub", &headers, form(parameters).as_bytes())
    }

    pub fn ping(&self, topic: &str, token: Option<&str>) -> Answer {
        self.form(&[("hub.mode", "publish"), ("hub.url", topic)], token)
    }

    /// Asks to subscribe a callback, which is verified later.
    pub fn ask_to_subscribe(&self, topic: &str, callback: &str) {
        let parameters = [
            ("hub.mode", "subscribe"),
            ("hub.topic", topic),
            ("hub.callback", callback),
        ];
        assert_eq!(self.form(&parameters, None).status, 202);
    }

    /// Waits until there are so many subscriptions.
    pub fn await_subscriptions(&self, count: usize) {
        let state = rusqlite::Connection::open(self.state_dir().join("state.sqlite")).unwrap();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = state.query_row("SELECT count(*) FROM subscription", [], |row| row.get(0));
            let found: i64 = found.unwrap();
            if usize::try_from(found).unwrap() == count {
                return;
            }
            assert!(Instant::now() < deadline, "{found} of {count} subscribed");
            std::thread::sleep(Duration::from_millis(20)); // poll: nothing announces it
        }
    }

    /// Returns the number of notifications of a topic that the hub has accepted.
    pub fn published(&self, topic: &str) -> usize {
        let state = rusqlite::Connection::open(self.state_dir().join("state.sqlite")).unwrap();
        let seq = "SELECT seq FROM published_topic WHERE topic = ?1";
        let seq: i64 = state.query_row(seq, [topic], |row| row.get(0)).unwrap();
        usize::try_from(seq).unwrap()
    }

    /// Subscribes a callback, and waits until the subscription exists.
    pub fn subscribe(&self, topic: &str, callback: &str) {
        self.ask_to_subscribe(topic, callback);
        let state = rusqlite::Connection::open(self.state_dir().join("state.sqlite")).unwrap();
        let count = "SELECT count(*) FROM subscription WHERE topic = ?1 AND callback = ?2";
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = state.query_row(count, [topic, callback], |row| row.get::<_, i64>(0));
            if found.unwrap() == 1 {
                return;
            }
            assert!(Instant::now() < deadline, "{callback} never subscribed");
            std::thread::sleep(Duration::from_millis(5)); // poll: nothing announces it
        }
    }
}

/// The bodies that a callback is sent next.
pub fn next_bodies(callback: &Callback, count: usize) -> Vec<String> {
    let bodies = (0..count).map(|_| callback.next("POST").body);
    bodies
        .map(|body| String::from_utf8(body).unwrap())
        .collect()
}
