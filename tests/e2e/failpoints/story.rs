//! A daemon that dies at a failpoint, its successor, and what a hub receives from both.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use resourcesync::payload::Payload;
use resourcesync::uri::{Hub, Uri};
use rsnotify::announce::ids::ChannelId;
use rsnotify::announce::state::{ChannelRow, Flight, LedgerRow, State, Told};
use rsnotify::store::Store;

use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, Setup, TOPICS, try_get};
use crate::support::documents::{Site, URL, list};
use crate::support::hub::{FakeHub, Manner, Request};

pub const UPDATED: &str = "updated changelist a/changelist.xml";
pub const UPDATED_LIST: &str = "updated resourcelist a/resourcelist.xml";

const PAGE: &str = "/topics/main/a/capabilitylist/";
const SIGKILL: i32 = 9;

/// The receiver of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hubs {
    Content,
    ContentQuery,
    Ping,
    /// Two, the second of which refuses everything as long as the first daemon lives.
    OneDown,
    /// The embedded hub, with one subscriber.
    Embedded,
}

/// The state after the daemon died.
pub struct Death {
    /// Number of changes of the Change List.
    pub changes: usize,
    /// Number of requests for the last change.
    pub copies: usize,
    /// Changes saved as in flight to the hub.
    pub flight: Option<Flight>,
    /// Number of deliveries saved as pending for subscribers.
    pub owed: usize,
    /// True if the last change was saved as seen, and no notification of it.
    is_uncut: bool,
    /// True if the last change was saved as in flight or told.
    pub is_cut: bool,
    page: Vec<u8>,
}

/// Two sets, one of which never changes; the hub, or the subscriber.
pub struct Story {
    hubs: Hubs,
    site: Site,
    setup: Setup,
    hub: FakeHub,
    down: Option<FakeHub>,
    is_down: bool,
    daemon: Option<Daemon>,
    versions: usize,
    /// As they came, the refused and unanswered ones too.
    requests: Vec<Request>,
    /// Their bodies, or the topic as fetched after a ping.
    bodies: Vec<Vec<u8>>,
}

impl Story {
    pub fn new(hubs: Hubs) -> Story {
        let site = Site::new();
        site.add_set("b");
        let hub = FakeHub::start();
        let down = (hubs == Hubs::OneDown).then(FakeHub::start);
        let mode = match hubs {
            Hubs::Content | Hubs::OneDown => "content",
            Hubs::ContentQuery => "content-query",
            Hubs::Ping => "ping",
            Hubs::Embedded => "embedded",
        };
        let configured = [Some(&hub), down.as_ref()].into_iter().flatten();
        let configured = configured.filter(|_| hubs != Hubs::Embedded);
        let tables: String = configured
            .map(|hub| format!("[[hub]]\nurl = \"{}\"\nmode = \"{mode}\"\n", hub.url()))
            .collect();
        let mut setup = Setup::with_source(&site, "", &tables);
        // What changed while no daemon ran is then seen by the first sweep, however fast that comes.
        setup.config = setup.config.replace("\"50ms\"", "\"0s\"");
        if hubs == Hubs::Embedded {
            let public_url = format!("public_url = \"{TOPICS}\"\n[window]");
            setup.config = setup.config.replace("[window]", &public_url);
        }
        Story {
            hubs,
            site,
            setup,
            hub,
            is_down: down.is_some(),
            down,
            daemon: None,
            versions: 1,
            requests: Vec::new(),
            bodies: Vec::new(),
        }
    }

    /// Changes the Change List, each time after the last change was told, until the daemon dies as it passes
    /// `step` for this time.
    pub fn dies_at(&mut self, step: &str, passing: usize) -> Death {
        let mut command = self.setup.command("run");
        command.args(["--log-format", "json", "--log-level", "debug"]);
        command.env("RSNOTIFY_FAILPOINT", format!("{step}:{passing}"));
        let daemon = Daemon::spawn(command);
        daemon.await_log("ready");
        if self.hubs == Hubs::Embedded {
            self.subscribe(&daemon);
        }
        self.daemon = Some(daemon);
        if let Some(down) = &self.down {
            down.behave(Manner::Refuse(503));
        }
        // Each change passes each step once, or more often.
        for changes in 1..=passing {
            let before = self.requests.len();
            if step == "Sent" && changes == passing {
                self.hub.behave(Manner::Hang);
                self.change();
                self.until(|story| story.requests.len() > before);
                self.daemon.take().unwrap().kill();
                self.hub.behave(Manner::Accept);
            } else {
                self.change();
                self.until(|story| story.is_dead() || (changes < passing && story.is_at_rest()));
            }
            if self.is_dead() {
                self.listen();
                let state = self.state();
                let ((id, hub), ledger) = self.followed(&state);
                let is_flying = ledger.flight.is_some();
                let is_level = is_level(&state, *id, hub);
                return Death {
                    changes,
                    copies: self.requests.len() - before,
                    is_uncut: !is_flying && !is_level,
                    is_cut: is_flying || (is_level && self.is_seen(&state)),
                    flight: ledger.flight.clone(),
                    owed: self.owed(),
                    page: self.page(&state),
                };
            }
        }
        panic!("{step} was passed less than {passing} times");
    }

    /// Returns the number of notifications still pending for subscribers.
    fn owed(&self) -> usize {
        let saved = self.store().load_hub().unwrap();
        let subscriptions = &saved.subscriptions;
        let waits = |id| {
            subscriptions
                .iter()
                .any(|(_, progress)| progress.heard < id)
        };
        let relays = saved.topics.iter().flat_map(|topic| &topic.relays);
        relays.filter(|relay| waits(relay.id)).count()
    }

    /// Returns true if the daemon has ended, which must be as expected.
    fn is_dead(&mut self) -> bool {
        let Some(daemon) = &mut self.daemon else {
            return true;
        };
        let Some(status) = daemon.ended() else {
            return false;
        };
        assert_eq!(status.signal(), Some(SIGKILL), "{status}");
        self.daemon = None;
        true
    }

    /// Another change, and then a daemon that takes up what was saved. It finds no tree at first, and serves and
    /// sends all the same what was cut.
    pub fn resumes(&mut self, death: &Death) {
        self.change();
        if death.is_uncut {
            self.daemon = Some(self.setup.launch());
            return;
        }
        let root = self.site.root.path().to_owned();
        let away = root.with_extension("away");
        fs::rename(&root, &away).unwrap();
        let daemon = self.setup.launch();
        let (head, page) = daemon.get(PAGE);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(page.as_bytes() == death.page, "{page}");
        self.daemon = Some(daemon);
        let before = self.bodies.len();
        if death.flight.is_some() || death.owed > 0 {
            self.until(|story| story.bodies.len() > before);
            let first = &self.bodies[before];
            assert!(*first == death.page, "not as it was saved: {first:?}");
        }
        if let Some(flight) = &death.flight
            && self.hubs != Hubs::Ping
        {
            assert_eq!(death.page, &flight.body[..]);
        }
        fs::rename(&away, &root).unwrap();
    }

    /// The change that nobody saw, and one more once that was told.
    pub fn tells_the_rest(&mut self) {
        if let Some(down) = &self.down {
            down.behave(Manner::Accept);
            self.is_down = false;
        }
        self.until(Story::is_at_rest);
        self.versions += 1;
        let list = list("a", "resourcelist", &self.versions.to_string());
        self.site.write("a/resourcelist.xml", &list);
        self.until(Story::is_at_rest);
    }

    /// Nothing was said besides, in no other order, and nothing is left to be said.
    pub fn ends(mut self) {
        assert!(self.daemon.take().unwrap().stop().success());
        self.listen();
        assert!(self.is_at_rest());
        let down = self.down.iter().flat_map(FakeHub::heard);
        let down: Vec<Vec<u8>> = down.map(|request| request.body).collect();
        for bodies in [&self.bodies, &down] {
            for change in changes(bodies) {
                assert!(
                    [UPDATED, UPDATED_LIST].contains(&change.as_str()),
                    "{change}"
                );
            }
        }
        assert_eq!(
            channel(&self.state(), "b").1.seq,
            0,
            "nothing changed in it"
        );
    }

    /// Returns the number of all requests.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The changes of all notifications, however often each came.
    pub fn told(&self) -> Vec<String> {
        changes(&self.bodies)
    }

    fn change(&mut self) {
        self.versions += 1;
        let list = list("a", "changelist", &self.versions.to_string());
        self.site.write("a/changelist.xml", &list);
    }

    fn subscribe(&self, daemon: &Daemon) {
        let callback = format!("http://{}/callback", self.hub.address);
        let topic = format!("{TOPICS}{}", &PAGE[1..]);
        let form = format!("hub.mode=subscribe&hub.callback={callback}&hub.topic={topic}");
        let mut stream = TcpStream::connect(daemon.public).unwrap();
        write!(
            stream,
            "POST /hub HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}",
            daemon.public,
            form.len()
        )
        .unwrap();
        await_until(|| !self.store().load_hub().unwrap().subscriptions.is_empty());
    }

    fn store(&self) -> Store {
        let directory = self.setup.state.path().join("state");
        Store::open_to_read(&directory).unwrap().unwrap()
    }

    fn state(&self) -> State {
        self.store().load().unwrap()
    }

    /// The account of the hub whose requests are counted, on the channel that has something to say.
    fn followed<'a>(&self, state: &'a State) -> (&'a (ChannelId, Hub), &'a LedgerRow) {
        let id = channel(state, "a").0;
        let is_ours = |hub: &Hub| self.hubs == Hubs::Embedded || hub.as_str() == self.hub.url();
        let mut ledgers = state.ledgers.iter();
        let ledger = ledgers.find(|((channel, hub), _)| *channel == id && is_ours(hub));
        ledger.unwrap()
    }

    /// Returns the body that the topic must serve (R25).
    fn page(&self, state: &State) -> Vec<u8> {
        match &channel(state, "a").1.body[..] {
            [] if self.hubs == Hubs::Ping => Payload::default().render(),
            body => body.to_vec(),
        }
    }

    /// Returns true if the current tree was seen.
    fn is_seen(&self, state: &State) -> bool {
        state.documents.iter().all(|(uri, record)| {
            let below = uri.as_str().strip_prefix(URL).unwrap();
            let file = fs::metadata(self.site.path(below)).and_then(|file| file.modified());
            let modified = file.map(|modified| Timestamp::try_from(modified).unwrap());
            modified.is_ok_and(|modified| modified == record.stat.modified)
        })
    }

    /// Returns true if everything was seen, and told to every receiver.
    fn is_at_rest(&mut self) -> bool {
        let state = self.state();
        let down = self.down.as_ref().filter(|_| self.is_down);
        let is_down = |hub: &Hub| down.is_some_and(|down| down.url() == hub.as_str());
        let is_told = state.ledgers.iter().all(|((id, hub), ledger)| {
            let is_fetched = ledger.ping.is_none_or(|ping| ping.fetched);
            is_down(hub) || (ledger.flight.is_none() && is_fetched && is_level(&state, *id, hub))
        });
        self.is_seen(&state) && is_told && self.store().load_hub().unwrap().topics.is_empty()
    }

    /// Takes in what came, and fetches the topic for a ping.
    fn listen(&mut self) {
        for request in self.hub.heard() {
            if request.challenge().is_some() {
                continue;
            }
            if self.hubs != Hubs::Ping {
                self.bodies.push(request.body.clone());
            } else if let Some(daemon) = &self.daemon
                && let Ok((head, page)) = try_get(daemon.public, PAGE)
                && head.contains(&format!("content-length: {}", page.len()))
            {
                self.bodies.push(page.into_bytes());
            }
            self.requests.push(request);
        }
    }

    #[track_caller]
    fn until(&mut self, mut is_so: impl FnMut(&mut Story) -> bool) {
        await_until(|| {
            self.listen();
            is_so(self)
        });
        // What made it so may have come since.
        self.listen();
    }
}

#[track_caller]
fn await_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not come to that in time");
        std::thread::sleep(Duration::from_millis(20)); // polls until the deadline
    }
}

fn channel<'a>(state: &'a State, set: &str) -> (ChannelId, &'a ChannelRow) {
    let list = format!("{URL}{set}/capabilitylist.xml");
    let mut channels = state.channels.iter();
    let (id, row) = channels.find(|(_, row)| row.set.as_str() == list).unwrap();
    (*id, row)
}

/// Returns true if a hub was told everything that was seen.
fn is_level(state: &State, id: ChannelId, hub: &Hub) -> bool {
    let set = &state.channels[&id].set;
    let heard = state.documents.iter().filter(|(_, record)| {
        record.relations.sets.contains(set) || record.is_source_description()
    });
    let seen: BTreeMap<Uri, Told> = heard
        .map(|(uri, record)| (uri.clone(), Told::from(record.version)))
        .collect();
    state.told[&(id, hub.clone())] == seen
}

/// The changes of notifications, each of which may come again, but not after a later one.
fn changes(bodies: &[Vec<u8>]) -> Vec<String> {
    let mut last: Option<(&[u8], Payload)> = None;
    let mut changes = Vec::new();
    for body in bodies {
        let payload = Payload::parse(body).unwrap();
        if let Some((before, earlier)) = &last {
            if before == body {
                continue;
            }
            assert!(
                earlier.until < payload.until,
                "{earlier:?} before {payload:?}"
            );
        }
        changes.extend(payload.entries.iter().map(|entry| {
            let path = entry.uri.as_str().strip_prefix(URL).unwrap();
            format!("{} {} {path}", entry.change, entry.capability)
        }));
        last = Some((body, payload));
    }
    changes
}
