//! A daemon with every kind of problem that its status page shows.

use std::net::TcpListener;

use crate::support::daemon::{Daemon, Setup};
use crate::support::documents::{Site, description, list};
use crate::support::hub::{FakeHub, Manner};

/// A file name, and what a hub answers, that would be a script if it were not text.
pub const HOSTILE: &str =
    "\"><img src=x onerror=\"document.title='run'\"><script>document.title='run'<";

/// A daemon, and what it works on.
pub struct Troubled {
    pub daemon: Daemon,
    _setup: Setup,
    _site: Site,
    _hubs: [FakeHub; 2],
}

impl Troubled {
    /// Sixty sets; one hub that accepts, one that wants credentials, one that is down; a broken document with a hostile
    /// name, and a source that is not mounted.
    pub fn start() -> Troubled {
        let site = Site::empty();
        let sets: Vec<String> = (0..60).map(|number| format!("set-{number}")).collect();
        for set in &sets {
            site.add_set(set);
        }
        let names: Vec<&str> = sets.iter().map(String::as_str).collect();
        site.write(".well-known/resourcesync", &description(&names));
        let (well, refusing) = (FakeHub::start(), FakeHub::start());
        refusing.behave(Manner::Refuse(401));
        let down = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let hubs = [well.url(), refusing.url(), format!("http://{down}/publish")];
        let more = "[[source]]\nname = \"archive\"\n\
                    mount = [{ path = \"/nowhere/at/all\", url = \"https://archive.example/\" }]\n";
        let setup = Setup::new(&site, &hubs, more);
        let daemon = setup.start();
        for set in &sets[..3] {
            site.write(
                &format!("{set}/changelist.xml"),
                &list(set, "changelist", "2"),
            );
        }
        // No name has a slash.
        let broken = format!("set-0/{}.xml", HOSTILE);
        site.write_in_place(&broken, &list("set-0", "changelist", "1")[..250]);
        for _ in 0..3 {
            daemon.await_log("did not accept notification 1: it wants credentials");
        }
        Troubled {
            daemon,
            _setup: setup,
            _site: site,
            _hubs: [well, refusing],
        }
    }

    /// Waits until the broken document is on the page.
    pub fn await_broken(&self) {
        let broken = "in the middle of an element";
        self.daemon
            .await_status(|status| status.to_string().contains(broken));
    }

    /// The page of a channel in trouble.
    pub fn a_channel(&self) -> String {
        "/channel?topic=https%3A%2F%2Ftopics.example%2Ftopics%2Fmain%2Fset-0%2Fcapabilitylist%2F"
            .to_owned()
    }

    pub fn url(&self, page: &str) -> String {
        format!("http://{}{page}", self.daemon.admin)
    }
}
