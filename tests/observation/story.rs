//! A published tree, a daemon over it, a hub that records its notifications, and programs that publish.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::daemon::{Daemon, Setup, TOPICS};
use crate::support::documents::{Site, URL, capability_list, list, replace};
use crate::support::hub::{FakeHub, Request};

/// The backend by which the daemon learns of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    Inotify,
    Notify,
    Poll,
}

impl Watch {
    fn keys(self) -> &'static str {
        match self {
            Watch::Inotify => "watch = \"inotify\"",
            Watch::Notify => "watch = \"notify\"",
            Watch::Poll => "watch = \"poll\"\npoll_interval = \"100ms\"",
        }
    }
}

/// Stories share the machine, but for those that load it.
static MACHINE: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held, not read")]
enum Machine {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// The source has two mounts: the site, and one that holds nothing but the marker.
pub struct Story {
    pub site: Site,
    pub hub: FakeHub,
    /// Its `config` may be edited until the daemon is started.
    pub setup: Setup,
    pub daemon: Option<Daemon>,
    marker: TempDir,
    markers: usize,
    _machine: Machine,
}

const MARKER: &str = "updated changelist marker/changelist.xml";

impl Story {
    /// A running daemon over a site with one set, `a/`, whose documents it knows.
    pub fn start(watch: Watch) -> Story {
        Story::begin(watch, Site::new(), "")
    }

    /// A running daemon over a site whose documents it knows. `keys` are those of [`Story::over`].
    pub fn begin(watch: Watch, site: Site, keys: &str) -> Story {
        let mut story = Story::over(watch, site, keys);
        story.resume();
        story
    }

    /// A site and a daemon that is not started yet. `keys` are those of the source, besides a deletion grace
    /// of none.
    pub fn over(watch: Watch, site: Site, keys: &str) -> Story {
        let guard = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Story::on(Machine::Shared(guard), watch, site, keys)
    }

    /// As `over`, with no other story beside it.
    pub fn alone(watch: Watch, site: Site, keys: &str) -> Story {
        let guard = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Story::on(Machine::Alone(guard), watch, site, keys)
    }

    fn on(machine: Machine, watch: Watch, site: Site, keys: &str) -> Story {
        let hub = FakeHub::start();
        let marker = TempDir::new().unwrap();
        replace(
            &marker.path().join("capabilitylist.xml"),
            &capability_list("marker", &["changelist"]),
        );
        replace(
            &marker.path().join("changelist.xml"),
            &list("marker", "changelist", "0"),
        );
        let grace = match keys.contains("deletion_grace") {
            true => "",
            false => "deletion_grace = \"0s\"",
        };
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\npublic_url = \"{TOPICS}\"\n\
             [window]\nquiet = \"20ms\"\n\
             [[hub]]\nurl = \"{}\"\nmode = \"content\"\n\
             [[source]]\nname = \"main\"\nmount = [{{ path = \"{}\", url = \"{URL}\" }}, \
             {{ path = \"{}\", url = \"{URL}marker/\" }}]\nsettle = \"50ms\"\n{grace}\n{}\n{keys}\n",
            hub.url(),
            site.root.path().display(),
            marker.path().display(),
            watch.keys(),
        );
        let setup = Setup {
            state: TempDir::new().unwrap(),
            config,
        };
        Story {
            site,
            hub,
            setup,
            daemon: None,
            marker,
            markers: 0,
            _machine: machine,
        }
    }

    /// Starts the daemon, again or for the first time, and waits until it is ready.
    pub fn resume(&mut self) {
        self.daemon = Some(self.setup.start());
    }

    /// Starts the daemon, and waits only until it listens.
    pub fn launch(&mut self) {
        self.daemon = Some(self.setup.launch());
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub fn await_log(&self, words: &str) -> Value {
        self.daemon().await_log(words)
    }

    pub fn state_file(&self) -> PathBuf {
        self.setup.state.path().join("state/state.sqlite")
    }

    /// Changes the configuration of the next start.
    #[track_caller]
    pub fn edit(&mut self, from: &str, to: &str) {
        let config = &mut self.setup.config;
        assert!(config.contains(from), "{from}: {config}");
        *config = config.replace(from, to);
    }

    /// Writes a document of the set and of the capability that its path says.
    pub fn update(&self, path: &str, content: &str) {
        let (set, file) = path.rsplit_once('/').unwrap();
        let capability = file.strip_suffix(".xml").unwrap();
        self.site.write(path, &list(set, capability, content));
    }

    /// Stops the daemon as a service manager does.
    pub fn stop(&mut self) {
        let status = self.daemon.take().unwrap().stop();
        assert!(status.success(), "{status}");
    }

    /// Stops the daemon as a service manager does, and tells how many lines of its whole log contain `words`.
    pub fn stop_and_count(&mut self, words: &str) -> usize {
        let log = self.stop_and_tell();
        log.iter().filter(|line| line.contains(words)).count()
    }

    /// As `stop`; all lines of the daemon's log.
    pub fn stop_and_tell(&mut self) -> Vec<String> {
        let (status, log) = self.daemon.take().unwrap().stop_and_tell();
        assert!(status.success());
        log
    }

    /// Stops the daemon as `kill -9` does.
    pub fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    /// The hub hears these changes, each once, in whatever order and notifications, and nothing else. A
    /// Source Description's change is heard on each channel: on the marker's too.
    #[track_caller]
    pub fn hears<S: AsRef<str>>(&mut self, wanted: &[S]) -> Vec<Request> {
        let mut wanted: Vec<&str> = wanted.iter().map(S::as_ref).collect();
        let (mut requests, mut left) = (Vec::new(), wanted.clone());
        while !left.is_empty() {
            let request = self.hub.request();
            for change in request.changes() {
                left.retain(|wanted| *wanted != change);
            }
            requests.push(request);
        }
        // What would be false may come later: everything that was done until now is seen before the markers.
        self.mark(&mut requests);
        self.mark(&mut requests);
        let mut heard: Vec<String> = requests.iter().flat_map(Request::changes).collect();
        heard.retain(|change| change != MARKER);
        heard.sort();
        wanted.sort_unstable();
        assert_eq!(heard, wanted);
        requests
    }

    /// As `hears`, and not before `moment`, which is when the last byte was written.
    #[track_caller]
    pub fn hears_after<S: AsRef<str>>(&mut self, moment: Instant, wanted: &[S]) {
        let requests = self.hears(wanted);
        let is_early = requests.iter().any(|request| request.at < moment);
        assert!(!is_early, "announced before it was complete");
    }

    /// The hub hears nothing.
    #[track_caller]
    pub fn stays_silent(&mut self) {
        self.hears(&[""; 0]);
    }

    /// Nothing is left to be said when the daemon stops, or by one that starts anew and looks again.
    #[track_caller]
    pub fn ends(mut self) {
        self.stop();
        self.resume();
        self.stays_silent();
        self.stop();
    }

    /// The hub hears these changes, and nothing more when the daemon stops, or of one that starts anew.
    #[track_caller]
    pub fn ends_hearing<S: AsRef<str>>(mut self, wanted: &[S]) {
        self.hears(wanted);
        self.ends();
    }

    /// As `ends_hearing`, and not before `finish` begins to write the last byte.
    #[track_caller]
    pub fn ends_hearing_after(mut self, wanted: &[&str], finish: impl FnOnce(&Site)) {
        let moment = Instant::now();
        finish(&self.site);
        self.hears_after(moment, wanted);
        self.ends();
    }

    #[track_caller]
    pub fn ends_silent(self) {
        self.ends_hearing(&[""; 0]);
    }

    /// Changes the marker, and waits until the hub hears it.
    #[track_caller]
    pub fn mark(&mut self, requests: &mut Vec<Request>) {
        self.markers += 1;
        let marker = list("marker", "changelist", &self.markers.to_string());
        replace(&self.marker.path().join("changelist.xml"), &marker);
        loop {
            let request = self.hub.request();
            let is_marker = request.changes().iter().any(|change| change == MARKER);
            requests.push(request);
            if is_marker {
                return;
            }
        }
    }
}

/// Runs a line of shell in the first of `directories`, which it knows as `$1`, `$2` and so on. A tool that is
/// missing fails the story: callers ask `needs` first for what not every machine has.
#[track_caller]
pub fn run(line: &str, directories: &[&Path]) {
    let mut shell = Command::new("sh");
    // Without separators a directory is one word, whatever its name.
    shell
        .args(["-e", "-c", &format!("IFS=; {line}"), "sh"])
        .args(directories);
    shell.current_dir(directories[0]);
    // No settings of the user who runs this.
    shell.env("GIT_CONFIG_GLOBAL", "/dev/null");
    shell.env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{role}_NAME"), "nobody");
        shell.env(format!("GIT_{role}_EMAIL"), "nobody@source.example");
    }
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}
