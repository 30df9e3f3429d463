//! A set with a change channel, a hub, and a Destination that hears what the hub accepts.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::changes::{Destination, change_list, topic};
use crate::support::daemon::{Daemon, Setup};
use crate::support::documents::Site;
use crate::support::hub::FakeHub;
use crate::support::state::Saved;
use crate::support::until;

/// The Change List that grows.
pub const LIST: &str = "a/changelist.xml";

/// The entry that the list has when the channel opens, of which nobody is told.
pub const LEARNED: &str = "updated before.txt 09:00:00";

pub struct Story {
    pub site: Site,
    pub hub: FakeHub,
    /// Its `config` may be edited until the daemon is started.
    pub setup: Setup,
    daemon: Option<Daemon>,
    pub heard: Destination,
    entries: Vec<String>,
}

impl Story {
    /// A running daemon that has learned what the Change List of the set `a` holds.
    pub fn start() -> Story {
        let mut story = Story::new("");
        story.resume();
        story.await_learned(1);
        story
    }

    /// As `start`, of a daemon that is not started yet. `more` are tables of the configuration besides.
    pub fn new(more: &str) -> Story {
        let site = Site::new();
        let hub = FakeHub::start();
        let tables = hub.table("") + more;
        let mut setup = Setup::with_source(&site, "change_notifications = true", &tables);
        setup.replace("[window]\n", "[window]\nchange_quiet = \"20ms\"\n");
        site.write(LIST, &change_list("a", &[LEARNED]));
        Story {
            site,
            hub,
            setup,
            daemon: None,
            heard: Destination::default(),
            entries: vec![LEARNED.to_owned()],
        }
    }

    /// As `new`, with the embedded hub besides.
    pub fn with_embedded_hub() -> Story {
        let mut story = Story::new("");
        let config = &mut story.setup.config;
        *config = config.replacen("[embedded_hub]\n", "[embedded_hub]\nenabled = true\n", 1);
        story
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub fn resume(&mut self) {
        self.daemon = Some(self.setup.start());
    }

    /// Starts a daemon that dies when it passes a failpoint for this time, and waits only until it listens.
    pub fn start_to_die(&mut self, failpoint: &str, passing: usize) {
        let mut command = self.setup.run();
        command.env("RSNOTIFY_FAILPOINT", format!("{failpoint}:{passing}"));
        self.daemon = Some(Daemon::spawn(command));
    }

    /// Runs a daemon that dies the first time that it passes a failpoint, which may be before it listens.
    pub fn die_while_learning(&self, failpoint: &str) {
        let mut command = self.setup.run();
        command.env("RSNOTIFY_FAILPOINT", format!("{failpoint}:1"));
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status}");
    }

    /// Returns true if the daemon was killed.
    pub fn is_dead(&mut self) -> bool {
        let Some(daemon) = &mut self.daemon else {
            return true;
        };
        let Some(status) = daemon.ended() else {
            return false;
        };
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status}");
        self.daemon = None;
        true
    }

    pub fn stop(&mut self) {
        assert!(self.daemon.take().unwrap().stop().success());
    }

    pub fn saved(&self) -> Saved {
        Saved::of(&self.setup)
    }

    /// Returns true if somebody has subscribed to the embedded hub.
    pub fn has_subscriber(&self) -> bool {
        self.saved().count("SELECT count(*) FROM subscription") > 0
    }

    /// Returns true if what is saved is told.
    pub fn is_at_rest(&self) -> bool {
        self.saved().is_at_rest()
    }

    /// Waits until so many sets have change channels that know what was listed when they opened.
    #[track_caller]
    pub fn await_learned(&self, sets: usize) {
        self.await_count(
            "SELECT count(*) FROM change_set WHERE learned > 0 AND NOT EXISTS (SELECT 1 FROM change_list \
             WHERE set_id = change_set.id AND to_learn = 1)",
            sets,
        );
    }

    /// Waits until a query counts so many rows of what is saved.
    #[track_caller]
    pub fn await_count(&self, sql: &str, wanted: usize) {
        until(|| self.saved().count(sql) == wanted);
    }

    /// Appends entries to the Change List, which is replaced by renaming.
    pub fn add(&mut self, entries: &[&str]) {
        self.entries
            .extend(entries.iter().map(|&one| one.to_owned()));
        self.site.write(LIST, &self.list());
    }

    /// Returns the Change List as it should be now.
    pub fn list(&self) -> String {
        change_list("a", &self.entries)
    }

    /// Replaces the entries of the Change List, which is not written.
    pub fn set_entries(&mut self, entries: &[&str]) {
        self.entries = entries.iter().map(|&one| one.to_owned()).collect();
    }

    /// Hears the hub until these changes of the set `a`, such as `updated 1.txt`, were told after those before, and no
    /// others.
    #[track_caller]
    pub fn hears(&mut self, wanted: &[&str]) {
        let before = self.heard.told.len();
        let topic = topic("a");
        self.heard.listen(&self.hub, &topic, before + wanted.len());
        assert_eq!(self.heard.told[before..], in_set(wanted));
    }
}

/// Returns changes of the set `a` as they are told.
pub fn in_set(changes: &[&str]) -> Vec<String> {
    let changes = changes.iter().map(|change| {
        let (change, path) = change.split_once(' ').unwrap();
        format!("{change} a/{path}")
    });
    changes.collect()
}
