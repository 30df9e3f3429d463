//! A daemon that dies at a failpoint, its successor, and what a hub receives from both.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use jiff::Timestamp;
use resourcesync::payload::Payload;

use crate::support::daemon::{Daemon, Setup, TOPICS, body_of, try_get};
use crate::support::documents::{Site, URL, list};
use crate::support::hub::{FakeHub, Manner, Request};
use crate::support::state::Saved;
use crate::support::until;

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
    /// The notification that is saved as in flight to the hub.
    pub flight: Option<Vec<u8>>,
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
        setup.replace("\"50ms\"", "\"0s\"");
        if hubs == Hubs::Embedded {
            let public_url = format!("public_url = \"{TOPICS}\"\n[window]");
            setup.replace("[window]", &public_url);
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
        let mut command = self.setup.run();
        command.env("RSNOTIFY_FAILPOINT", format!("{step}:{passing}"));
        let daemon = Daemon::ready(command);
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
                let saved = self.saved();
                let flight = self.flight(&saved);
                let is_flying = flight.is_some();
                let is_level = self.is_level(&saved);
                return Death {
                    changes,
                    copies: self.requests.len() - before,
                    is_uncut: !is_flying && !is_level,
                    is_cut: is_flying || (is_level && self.is_seen(&saved)),
                    flight,
                    owed: self.owed(),
                    page: self.page(&saved),
                };
            }
        }
        panic!("{step} was passed less than {passing} times");
    }

    /// Returns the number of notifications still pending for subscribers.
    fn owed(&self) -> usize {
        self.saved().count(
            "SELECT count(*) FROM relay WHERE EXISTS \
             (SELECT 1 FROM subscription s WHERE s.topic = relay.topic AND s.heard < relay.id)",
        )
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
        let page = body_of(daemon.get(PAGE));
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
            assert_eq!(death.page, *flight);
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
                let is_ours = [UPDATED, UPDATED_LIST].contains(&&*change);
                assert!(is_ours, "{change}");
            }
        }
        let seq: i64 = self
            .saved()
            .value("SELECT seq FROM channel WHERE topic = ?1", [topic("b")]);
        assert_eq!(seq, 0, "nothing changed in it");
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
        crate::embedded::subscribe(daemon.public, &topic, &callback);
        until(|| self.saved().count("SELECT count(*) FROM subscription") > 0);
    }

    fn saved(&self) -> Saved {
        Saved::of(&self.setup)
    }

    /// Returns the condition of a query on the account of the hub whose requests are counted, on the channel that has
    /// something to say.
    fn followed(&self) -> String {
        let hub = match self.hubs {
            Hubs::Embedded => "1".to_owned(),
            _ => format!("h.uri = '{}'", self.hub.url()),
        };
        format!(
            "account a CROSS JOIN hub h ON h.id = a.hub CROSS JOIN channel c ON c.id = a.channel \
             WHERE c.topic = '{}' AND {hub}",
            topic("a")
        )
    }

    /// Returns the body in flight to it.
    fn flight(&self, saved: &Saved) -> Option<Vec<u8>> {
        let sql = format!(
            "SELECT a.body FROM {} AND a.seq IS NOT NULL",
            self.followed()
        );
        let found = saved.0.query_row(&sql, [], |row| row.get(0));
        found.ok()
    }

    /// Returns true if it was told everything that was seen.
    fn is_level(&self, saved: &Saved) -> bool {
        let sql = format!(
            "SELECT count(*) FROM {} AND NOT EXISTS (SELECT 1 FROM owed o WHERE o.channel = a.channel AND o.hub = a.hub)",
            self.followed()
        );
        saved.count(&sql) == 1
    }

    /// Returns the body that the topic must serve (R25).
    fn page(&self, saved: &Saved) -> Vec<u8> {
        let body: Vec<u8> = saved.value("SELECT body FROM channel WHERE topic = ?1", [topic("a")]);
        match &body[..] {
            [] if self.hubs == Hubs::Ping => Payload::default().render(),
            _ => body,
        }
    }

    /// Returns true if the current tree was seen.
    fn is_seen(&self, saved: &Saved) -> bool {
        let documents = "SELECT uri, modified FROM document WHERE presence BETWEEN 1 AND 3";
        let mut documents = saved.0.prepare(documents).unwrap();
        let rows = documents.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().all(|row| {
            let (uri, seen): (String, i64) = row.unwrap();
            let below = uri.strip_prefix(URL).unwrap();
            let file = fs::metadata(self.site.path(below)).and_then(|file| file.modified());
            let modified = file.map(|modified| Timestamp::try_from(modified).unwrap());
            modified.is_ok_and(|modified| modified.as_nanosecond() == i128::from(seen))
        })
    }

    /// Returns true if everything was seen, and told to every receiver.
    fn is_at_rest(&mut self) -> bool {
        let saved = self.saved();
        let down = self.down.as_ref().filter(|_| self.is_down);
        let down = down.map(|down| down.url().to_owned()).unwrap_or_default();
        let untold: i64 = saved.value(
            "SELECT count(*) FROM account a CROSS JOIN hub h ON h.id = a.hub WHERE h.uri <> ?1 AND (a.seq IS NOT NULL \
             OR (a.pinged IS NOT NULL AND a.fetched = 0) OR EXISTS (SELECT 1 FROM owed o WHERE o.channel = a.channel \
             AND o.hub = a.hub))",
            [down],
        );
        self.is_seen(&saved) && untold == 0 && saved.count("SELECT count(*) FROM relay") == 0
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
        until(|| {
            self.listen();
            is_so(self)
        });
        // What made it so may have come since.
        self.listen();
    }
}

fn topic(set: &str) -> String {
    format!("{TOPICS}topics/main/{set}/capabilitylist/")
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
