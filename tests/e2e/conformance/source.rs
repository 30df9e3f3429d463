//! The real binary with its embedded hub, over a tree with one set; or `rsnotify hub` with a source that publishes there.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;
use url::form_urlencoded;

use crate::conformance::callback::{Callback, Request};
use crate::own_hub::setup::{HubSetup, TOKEN, publisher};
use crate::support::DEADLINE;
use crate::support::daemon::{
    Daemon, assert_contains, exchange, get, run_with, run_without_config,
};
use crate::support::documents::{Site, URL};

/// The variable with which the fixture is `rsnotify hub` instead of the embedded hub.
pub const OWN_HUB: &str = "RSNOTIFY_TEST_OWN_HUB";

pub struct Source {
    pub site: Site,
    state: TempDir,
    daemon: Option<Daemon>,
    address: SocketAddr,
    version: u32,
    own_hub: Option<OwnHub>,
}

/// A hub for many Sources, whose only publisher is the source.
struct OwnHub {
    setup: HubSetup,
    publisher: Daemon,
}

impl Source {
    pub fn start() -> Source {
        if std::env::var_os(OWN_HUB).is_some() {
            return Source::at_own_hub();
        }
        let site = Site::new();
        let state = TempDir::new().unwrap();
        let daemon = run(&site, &state, "127.0.0.1:0");
        Source {
            address: daemon.public,
            site,
            state,
            daemon: Some(daemon),
            version: 1,
            own_hub: None,
        }
    }

    /// Starts it, and a willing callback.
    pub fn start_with_callback() -> (Source, Callback) {
        (Source::start(), Callback::start())
    }

    fn at_own_hub() -> Source {
        let (site, state) = (Site::new(), TempDir::new().unwrap());
        let mut setup = HubSetup::library();
        let config = state.path().join("c.toml");
        let (root, hub) = (site.root.path().display(), setup.url());
        let token = setup.directory.path().join(format!("{TOKEN}.token"));
        let text = format!(
            "state_dir = \"state\"\n[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [[source]]\nname = \"main\"\nmount = [{{ path = \"{root}\", url = \"{URL}\" }}]\n\
             [[hub]]\nurl = \"{hub}\"\nbearer_token_file = \"{}\"\n",
            token.display()
        );
        std::fs::write(&config, text).unwrap();
        let publisher = Daemon::ready(run_with(&config));
        let prefix = format!("http://{}/", publisher.public);
        setup.publishers = self::publisher("source", &prefix, TOKEN);
        let daemon = setup.start();
        Source {
            address: setup.address,
            site,
            state,
            daemon: Some(daemon),
            version: 1,
            own_hub: Some(OwnHub { setup, publisher }),
        }
    }

    /// The status of a publication by a stranger: the embedded hub takes none at all.
    pub fn status_of_a_stranger(&self) -> u16 {
        match self.own_hub {
            Some(_) => 401,
            None => 403,
        }
    }

    /// Stops, and starts again with the topic of a channel gone for as long as it is served without its set.
    pub fn retire_topic(&mut self) {
        self.kill();
        if let Some(own_hub) = &mut self.own_hub {
            own_hub.setup.publishers = publisher("other", "https://other.example/", TOKEN);
            self.resume();
            return;
        }
        let long_ago = "UPDATE channel SET retired = 0, ends = 0 WHERE kind = 0";
        assert_eq!(self.state().execute(long_ago, []).unwrap(), 1);
        let gone = "INSERT INTO seeing SELECT id FROM document WHERE capability = 1; \
                    UPDATE document SET source = NULL, mount = NULL, path = NULL, capability = NULL, form = NULL, \
                    fingerprint = NULL, presence = 0 WHERE capability = 1; DELETE FROM seeing; DELETE FROM owed";
        self.state().execute_batch(gone).unwrap();
        std::fs::remove_file(self.site.path("a/capabilitylist.xml")).unwrap();
        // A run doubts the clock for an hour, but for no longer than topics are kept.
        let config = self.state.path().join("c.toml");
        let (root, address) = (self.site.root.path().display(), self.address);
        let text = format!(
            "state_dir = \".\"\n[server]\nlisten = \"{address}\"\nadmin_listen = \"127.0.0.1:0\"\n\
             retired_topic = \"1s\"\n[embedded_hub]\nallow_callback_networks = [\"127.0.0.0/8\"]\n\
             callback_ports = [\"1-65535\"]\n[[source]]\nname = \"main\"\nchange_notifications = true\n\
             mount = [{{ path = \"{root}\", url = \"{URL}\" }}]\n"
        );
        std::fs::write(&config, text).unwrap();
        self.daemon = Some(Daemon::ready(run_with(&config)));
    }

    /// Kills the daemon like `kill -9`.
    pub fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// Starts again, where it was before.
    pub fn resume(&mut self) {
        self.kill();
        let daemon = match &self.own_hub {
            Some(own_hub) => own_hub.setup.start(),
            None => run(&self.site, &self.state, &self.address.to_string()),
        };
        self.daemon = Some(daemon);
    }

    pub fn hub(&self) -> String {
        format!("http://{}/hub", self.address)
    }

    pub fn topic(&self) -> String {
        format!("http://{}/topics/main/a/capabilitylist/", self.topics_at())
    }

    /// Returns the address at which topics are served.
    fn topics_at(&self) -> SocketAddr {
        match &self.own_hub {
            Some(own_hub) => own_hub.publisher.public,
            None => self.address,
        }
    }

    /// Changes a document of the set, which its channel hears of.
    pub fn change(&mut self) {
        self.version += 1;
        let content = self.version.to_string();
        self.site.write_list("a", "changelist", &content);
    }

    /// The status, head and body of an answer to a form.
    pub fn post(&self, form: &str) -> Answer {
        self.request("POST", "application/x-www-form-urlencoded", form)
    }

    pub fn request(&self, method: &str, content_type: &str, body: &str) -> Answer {
        let request = format!(
            "{method} /hub HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let text = exchange(self.address, request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head[9..12].parse().unwrap(),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    /// Asks for something on the set's topic, with more parameters.
    pub fn ask(&self, mode: &str, callback: &str, more: &[(&str, &str)]) -> Answer {
        let topic = self.topic();
        let all = [
            ("hub.mode", mode),
            ("hub.topic", &topic),
            ("hub.callback", callback),
        ];
        self.post(&form(all.iter().chain(more)))
    }

    /// Asks for something, which the hub must accept.
    #[track_caller]
    pub fn assert_accepted(&self, mode: &str, callback: &str, more: &[(&str, &str)]) {
        assert_eq!(self.ask(mode, callback, more).status, 202);
    }

    /// Subscribes a willing callback, and waits until the subscription exists.
    pub fn subscribe(
        &mut self,
        callback: &Callback,
        target: &str,
        more: &[(&str, &str)],
    ) -> Request {
        let url = callback.url(target);
        assert_eq!(self.ask("subscribe", &url, more).status, 202);
        let asked = callback.next("GET");
        let count = "SELECT count(*) FROM subscription WHERE callback = ?1";
        self.await_saved(|state| state.query_row(count, [&url], |row| row.get(0)), 1);
        asked
    }

    /// Waits until there are so many subscriptions.
    pub fn await_subscriptions(&self, wanted: i64) {
        let count = "SELECT count(*) FROM subscription";
        self.await_saved(|state| state.query_row(count, [], |row| row.get(0)), wanted);
    }

    /// Waits until the only subscription has this secret.
    pub fn await_secret(&self, wanted: Option<&str>) {
        let secret = "SELECT secret FROM subscription";
        let wanted = wanted.map(str::to_owned);
        self.await_saved(
            |state| state.query_row(secret, [], |row| row.get(0)),
            wanted,
        );
    }

    /// Returns the expiry of the only subscription.
    pub fn expiry(&self) -> Timestamp {
        let expires = "SELECT expires FROM subscription";
        let at = self
            .state()
            .query_row(expires, [], |row| row.get::<_, i64>(0));
        Timestamp::from_nanosecond(at.unwrap().into()).unwrap()
    }

    /// Lets the subscriptions of a callback end at that time; the daemon must not run.
    pub fn expire(&self, target: &str, at: Timestamp) {
        let update = "UPDATE subscription SET expires = ?1 WHERE callback LIKE ?2";
        let changed = self.state().execute(
            update,
            rusqlite::params![
                i64::try_from(at.as_nanosecond()).unwrap(),
                format!("%{target}")
            ],
        );
        assert_eq!(changed.unwrap(), 1);
    }

    /// The head and body of the topic.
    pub fn fetch_topic(&self) -> (String, String) {
        get(self.topics_at(), "/topics/main/a/capabilitylist/")
    }

    fn state(&self) -> Connection {
        let directory = match &self.own_hub {
            Some(own_hub) => own_hub.setup.state_dir(),
            None => self.state.path().to_owned(),
        };
        Connection::open(directory.join("state.sqlite")).unwrap()
    }

    fn await_saved<T: PartialEq + Debug>(
        &self,
        read: impl Fn(&Connection) -> rusqlite::Result<T>,
        wanted: T,
    ) {
        let deadline = Instant::now() + DEADLINE;
        let state = self.state();
        loop {
            let found = read(&state).unwrap();
            if found == wanted {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{found:?} is saved, not {wanted:?}"
            );
            std::thread::sleep(Duration::from_millis(5)); // a poll of the file, up to the deadline
        }
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// An error with its reason, as section 5.1.2 wants it.
    pub fn assert_refused(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_contains(&self.head, "content-type: text/plain");
        assert!(self.body.trim().len() > 10, "{:?}", self.body);
    }
}

pub fn form<'a>(parameters: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(parameters)
        .finish()
}

fn run(site: &Site, state: &TempDir, listen: &str) -> Daemon {
    Daemon::ready(run_without_config(site, state.path(), listen))
}
