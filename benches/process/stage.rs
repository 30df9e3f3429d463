//! A tree to publish, and the daemon that watches it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::hub::Hub;

const URL: &str = "https://source.example/";

pub struct Stage {
    directory: TempDir,
    sets: usize,
    documents: usize,
    /// The same at each start: topics of another address would be other channels.
    address: SocketAddr,
}

/// The daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    /// Hears once that it is ready, and where its topics are.
    ready: Receiver<SocketAddr>,
    public: Option<SocketAddr>,
    /// The time that each delivered notification took, from its cut to its acceptance.
    deliveries: Receiver<Duration>,
}

impl Stage {
    /// `sets` sets of `documents` documents each, the Capability List (number 0) among them.
    pub fn new(sets: usize, documents: usize) -> Stage {
        let stage = Stage {
            directory: TempDir::new().expect("a directory"),
            sets,
            documents,
            address: free_address(),
        };
        for set in 0..sets {
            fs::create_dir_all(stage.root().join(format!("s{set}"))).expect("a directory");
            let members: String = (1..documents)
                .map(|number| {
                    format!("<url><loc>{URL}s{set}/d{number}.xml</loc><rs:md capability=\"changelist\"/></url>\n")
                })
                .collect();
            fs::write(
                stage.document(set, 0),
                document(set, "capabilitylist", &members),
            )
            .expect("a file");
            for number in 1..documents {
                replace(&stage.stage(set, number, "0"), &stage.document(set, number));
            }
        }
        stage
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    pub fn document(&self, set: usize, number: usize) -> PathBuf {
        self.root().join(format!("s{set}/d{number}.xml"))
    }

    /// A new version of a document, beside the tree.
    pub fn stage(&self, set: usize, number: usize, version: &str) -> PathBuf {
        let entries: String = (0..20)
            .map(|entry| {
                format!("<url><loc>{URL}r{entry}</loc><rs:md change=\"updated\" hash=\"md5:{version}\"/></url>\n")
            })
            .collect();
        let path = self.directory.path().join(format!("staged-{set}-{number}"));
        fs::write(&path, document(set, "changelist", &entries)).expect("a file");
        path
    }

    /// A version of 50 MB with 50,000 entries.
    pub fn stage_large(&self, set: usize, version: usize) -> PathBuf {
        let path = self.directory.path().join("staged-large");
        let padding = "x".repeat(800);
        let mut file = std::io::BufWriter::new(File::create(&path).expect("a file"));
        let whole = document(set, "changelist", "@");
        let (head, tail) = whole.split_once('@').expect("a mark");
        file.write_all(head.as_bytes()).expect("room");
        for entry in 0..50_000 {
            writeln!(
                file,
                "<url><loc>{URL}resources/{entry}/{padding}</loc><lastmod>2026-11-20T00:00:00Z</lastmod>\
                 <rs:md hash=\"md5:{version:032}\" length=\"8876\" type=\"text/html\"/></url>"
            )
            .expect("room");
        }
        file.write_all(tail.as_bytes()).expect("room");
        file.flush().expect("room");
        path
    }

    pub fn add_unrelated(&self, files: usize) {
        for number in 0..files {
            if number % 1_000 == 0 {
                fs::create_dir_all(self.root().join(format!("u{}", number / 1_000)))
                    .expect("a directory");
            }
            let name = format!("u{}/resource-{number}.txt", number / 1_000);
            File::create(self.root().join(name)).expect("a file");
        }
    }

    /// Makes every document look as if it had been written long ago (but for its ctime).
    pub fn age(&self) {
        let long_ago = SystemTime::now() - Duration::from_secs(86_400);
        for set in 0..self.sets {
            for number in 0..self.documents {
                let file = File::options()
                    .append(true)
                    .open(self.document(set, number))
                    .expect("a file");
                file.set_modified(long_ago).expect("a time");
            }
        }
        std::thread::sleep(Duration::from_millis(1_200)); // ctime cannot be set back: let the files settle
    }

    /// Makes the next start a first one.
    pub fn forget(&self) {
        let _ = fs::remove_dir_all(self.directory.path().join("state"));
    }

    /// Starts the daemon and waits until it is ready.
    pub fn start(&self, hub: &Hub) -> Daemon {
        std::thread::sleep(Duration::from_millis(1_200)); // lets the files settle
        self.launch(hub).await_ready()
    }

    /// Starts the daemon.
    pub fn launch(&self, hub: &Hub) -> Daemon {
        self.launch_with("quiet = \"0s\"", &hub.table(""))
    }

    /// Starts the daemon with these keys of the window, and these tables of hubs.
    pub fn launch_with(&self, window: &str, hubs: &str) -> Daemon {
        self.launch_at(&self.address.to_string(), window, hubs)
    }

    /// Starts the daemon with these keys of the window and tables of hubs, and a change channel for each set.
    pub fn launch_with_changes(&self, window: &str, hubs: &str) -> Daemon {
        let tables = format!("change_notifications = true\n{hubs}");
        self.launch_at(&self.address.to_string(), window, &tables)
    }

    /// Starts the daemon with its own hub and a window of 100 ms, and waits until it is ready.
    pub fn start_with_embedded_hub(&self, address: SocketAddr) -> Daemon {
        let hub = "[embedded_hub]\nallow_callback_networks = [\"127.0.0.0/8\"]\n\
                   callback_ports = [\"1024-65535\"]\n";
        self.launch_at(&address.to_string(), "quiet = \"100ms\"", hub)
            .await_ready()
    }

    /// An address that is free, to start at more than once.
    pub fn reserve_address(&self) -> SocketAddr {
        self.address
    }

    /// Subscribes `count` callbacks to a set's channel, in the state of a daemon that does not run.
    pub fn subscribe(&self, hub: SocketAddr, set: usize, callbacks: SocketAddr, count: usize) {
        let state = self.directory.path().join("state/state.sqlite");
        let mut state = Connection::open(state).expect("a state");
        let saved = state.transaction().expect("a transaction");
        for number in 0..count {
            let topic = format!("http://{hub}/topics/main/s{set}/d0/");
            let callback = format!("http://{callbacks}/{number}");
            let insert = "INSERT INTO subscription (topic, callback, expires, heard) VALUES (?1, ?2, 4102444800000000000, 0)";
            saved.execute(insert, [topic, callback]).expect("a row");
        }
        saved.commit().expect("a commit");
    }

    fn launch_at(&self, listen: &str, window: &str, tables: &str) -> Daemon {
        let config = self.directory.path().join("config.toml");
        let text = format!(
            "state_dir = \"{}\"\n[server]\nlisten = \"{listen}\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [window]\n{window}\n[[source]]\nname = \"main\"\n\
             mount = [{{ path = \"{}\", url = \"{URL}\" }}]\n{tables}",
            self.directory.path().join("state").display(),
            self.root().display(),
        );
        fs::write(&config, text).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_rsnotify"))
            .args(["run", "--log-level", "info", "--config"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon");
        let log = BufReader::new(child.stderr.take().expect("a log"));
        let (sender, ready) = channel();
        let (delivered, deliveries) = channel();
        // A log that is not read stops the daemon that writes it.
        std::thread::spawn(move || {
            let mut public = None;
            for line in log.lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("listener=\"public\" address=") {
                    public = address.trim().trim_matches('"').parse().ok();
                }
                if let (true, Some(public)) = (line.contains(" ready"), public) {
                    let _ = sender.send(public);
                }
                let seconds = line.split_once("delivered notification");
                let seconds = seconds.and_then(|(_, rest)| rest.split_once("seconds="));
                if let Some(Ok(seconds)) = seconds.map(|(_, seconds)| seconds.trim().parse()) {
                    let _ = delivered.send(Duration::from_secs_f64(seconds));
                }
            }
        });
        Daemon {
            child,
            ready,
            public: None,
            deliveries,
        }
    }
}

impl Daemon {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address of its topics, once it is ready.
    pub fn public(&self) -> SocketAddr {
        self.public
            .expect("the public listener's address in the log")
    }

    /// Waits for the next notification that some hub or broker accepts. Returns the time that it took.
    pub fn delivered(&self) -> Duration {
        self.deliveries.recv().expect("a delivery")
    }

    /// Waits until it is ready.
    pub fn await_ready(mut self) -> Daemon {
        self.public = self.ready.recv().ok();
        self
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

fn document(set: usize, capability: &str, entries: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         <rs:ln rel=\"up\" href=\"{URL}s{set}/d0.xml\"/>\n<rs:md capability=\"{capability}\"/>\n{entries}</urlset>\n"
    )
}

pub fn replace(staged: &Path, path: &Path) {
    fs::rename(staged, path).expect("a rename");
}

/// User and system time of a process.
pub fn cpu_seconds(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns the bytes that a process has had written to disks so far.
pub fn written_kib(id: u32) -> f64 {
    let io = fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let mut lines = io.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0.0) / 1024.0
}

pub fn peak_memory_mib(id: u32) -> f64 {
    memory_mib(id, "VmHWM:")
}

pub fn current_memory_mib(id: u32) -> f64 {
    memory_mib(id, "VmRSS:")
}

fn memory_mib(id: u32, figure: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with(figure))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1024.0
}
