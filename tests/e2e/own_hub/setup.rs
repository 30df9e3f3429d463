//! `rsnotify hub` as a process, with its configuration, and requests of publishers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;
use url::form_urlencoded;

use crate::own_hub::callback::Callback;
use crate::support::daemon::{Daemon, assert_contains, exchange};
use crate::support::state::Saved;
use crate::support::until;

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
        post(self.address, target, headers, body)
    }

    /// Publishes on a topic with a token.
    pub fn publish(&self, topic: &str, token: &str, body: &str) -> Answer {
        let link = format!("<{topic}>; rel=\"self\"");
        let bearer = format!("Bearer {token}");
        let headers = [
            ("Content-Type", "application/xml"),
            ("Link", link.as_str()),
            ("Authorization", bearer.as_str()),
        ];
        self.post("/hub", &headers, body.as_bytes())
    }

    /// Posts a form, with a token if there is one.
    pub fn form(&self, parameters: &[(&str, &str)], token: Option<&str>) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let bearer = bearer
            .iter()
            .map(|bearer| ("Authorization", bearer.as_str()));
        post_form(self.address, parameters, &Vec::from_iter(bearer))
    }

    pub fn ping(&self, topic: &str, token: Option<&str>) -> Answer {
        self.form(&[("hub.mode", "publish"), ("hub.url", topic)], token)
    }

    /// Asks to subscribe a callback, which is verified later.
    pub fn ask_to_subscribe(&self, topic: &str, callback: &str) {
        let answer = ask_to_subscribe(self.address, topic, callback, &[]);
        assert_eq!(answer.status, 202);
    }

    /// Waits until there are so many subscriptions.
    pub fn await_subscriptions(&self, count: usize) {
        let sql = "SELECT count(*) FROM subscription";
        await_count(&self.state_dir(), sql, [], count);
    }

    /// Returns the number of notifications of a topic that the hub has accepted.
    pub fn published(&self, topic: &str) -> usize {
        let seq = "SELECT seq FROM published_topic WHERE topic = ?1";
        let state = Saved::at(&self.state_dir().join("state.sqlite"));
        usize::try_from(state.value::<i64>(seq, [topic])).unwrap()
    }

    /// Subscribes a callback, and waits until the subscription exists.
    pub fn subscribe(&self, topic: &str, callback: &str) {
        self.ask_to_subscribe(topic, callback);
        let sql = "SELECT count(*) FROM subscription WHERE topic = ?1 AND callback = ?2";
        await_count(&self.state_dir(), sql, [topic, callback], 1);
    }
}

/// An answer to a request.
pub struct Answer {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

impl Answer {
    /// An error with its reason in plain text.
    #[track_caller]
    pub fn assert_refused(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_contains(&self.head, "content-type: text/plain");
        assert!(self.body.trim().len() > 10, "{:?}", self.body);
    }
}

/// Posts with these header lines.
fn post(address: SocketAddr, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let host = match headers.iter().any(|(name, _)| *name == "Host") {
        true => String::new(),
        false => format!("Host: {address}\r\n"),
    };
    let head = format!(
        "POST {target} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {}\r\n{}\r\n",
        body.len(),
        lines.collect::<String>()
    );
    let text = exchange(address, [head.as_bytes(), body].concat()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head[9..12].parse().unwrap(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

/// Posts a form to a hub, with these header lines besides.
pub fn post_form(hub: SocketAddr, parameters: &[(&str, &str)], headers: &[(&str, &str)]) -> Answer {
    let form = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish();
    let content_type = ("Content-Type", "application/x-www-form-urlencoded");
    let headers = [&[content_type], headers].concat();
    post(hub, "/hub", &headers, form.as_bytes())
}

/// Asks a hub to subscribe, with these header lines besides.
pub fn ask_to_subscribe(
    hub: SocketAddr,
    topic: &str,
    callback: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let parameters = [
        ("hub.mode", "subscribe"),
        ("hub.topic", topic),
        ("hub.callback", callback),
    ];
    post_form(hub, &parameters, headers)
}

/// Waits until a query of the state in a directory counts so many rows.
#[track_caller]
pub fn await_count<const N: usize>(directory: &Path, sql: &str, values: [&str; N], count: usize) {
    until(|| {
        let state = Saved::at(&directory.join("state.sqlite"));
        let found: i64 = state.value(sql, rusqlite::params_from_iter(values));
        usize::try_from(found).unwrap() == count
    });
}

/// The bodies that a callback is sent next.
pub fn next_bodies(callback: &Callback, count: usize) -> Vec<String> {
    let bodies = (0..count).map(|_| callback.next("POST").body);
    bodies
        .map(|body| String::from_utf8(body).unwrap())
        .collect()
}
