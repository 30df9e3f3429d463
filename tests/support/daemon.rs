//! The real binary, started and observed.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use tempfile::TempDir;

use super::DEADLINE;
use super::documents::{Site, URL};
use super::hub::FakeHub;

/// Prefix of topics where there is a hub besides the embedded one.
pub const TOPICS: &str = "https://topics.example/";

/// Variables that would divert requests to our hubs, and those that a service manager or container may set for the tests
/// themselves.
const FOREIGN_VARIABLES: &str = "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy \
                                 NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID LISTEN_FDS LISTEN_PID";

/// A state directory and configuration that outlive the daemons that use them.
pub struct Setup {
    pub state: TempDir,
    pub config: String,
}

impl Setup {
    /// One source over `site`; `quiet` as short as it gets, and deletions believed at once, unless `more`
    /// says otherwise.
    pub fn new(site: &Site, hubs: &[String], more: &str) -> Setup {
        let hubs: String = hubs
            .iter()
            .map(|hub| format!("[[hub]]\nurl = \"{hub}\"\nmode = \"content\"\n"))
            .collect();
        Setup::with_source(site, "deletion_grace = \"0s\"", &format!("{hubs}{more}"))
    }

    /// A site of one set, a hub that is told of its changes, and the configuration for both.
    pub fn announcing(more: &str) -> (Site, FakeHub, Setup) {
        let (site, hub) = (Site::new(), FakeHub::start());
        let setup = Setup::new(&site, &[hub.url()], more);
        (site, hub, setup)
    }

    /// A site of one set, whose changes the embedded hub is told of.
    pub fn embedding(more: &str) -> (Site, Setup) {
        let site = Site::new();
        let setup = Setup::new(&site, &[], more);
        (site, setup)
    }

    /// As `announcing`, with a daemon that is ready.
    pub fn start_announcing(more: &str) -> (Site, FakeHub, Setup, Daemon) {
        let (site, hub, setup) = Setup::announcing(more);
        let daemon = setup.start();
        (site, hub, setup, daemon)
    }

    /// As `embedding`, with a daemon that is ready.
    pub fn start_embedding(more: &str) -> (Site, Setup, Daemon) {
        let (site, setup) = Setup::embedding(more);
        let daemon = setup.start();
        (site, setup, daemon)
    }

    pub fn with_source(site: &Site, source: &str, more: &str) -> Setup {
        let root = site.root.path().display();
        // Topics stay the same whatever port is free; only the embedded hub's must be reached.
        let public_url = match more.contains("[[hub]]") {
            true => format!("public_url = \"{TOPICS}\"\n"),
            false => String::new(),
        };
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{public_url}\
             [window]\nquiet = \"20ms\"\n\
             [[source]]\nname = \"main\"\nmount = [{{ path = \"{root}\", url = \"{URL}\" }}]\n\
             settle = \"50ms\"\n{source}\n{more}\n\
             [embedded_hub]\ncallback_ports = [\"1-65535\"]\n\
             allow_callback_networks = [\"127.0.0.0/8\", \"::1/128\"]\n"
        );
        Setup {
            state: TempDir::new().unwrap(),
            config,
        }
    }

    pub fn file(&self) -> std::path::PathBuf {
        let path = self.state.path().join("config.toml");
        std::fs::write(&path, &self.config).unwrap();
        path
    }

    pub fn command(&self, command: &str) -> Command {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        process.arg(command).arg("--config").arg(self.file());
        process.env("STATE_DIRECTORY", self.state.path().join("state"));
        for variable in FOREIGN_VARIABLES.split(' ') {
            process.env_remove(variable);
        }
        process
    }

    /// Starts the daemon and waits until it is ready.
    pub fn start(&self) -> Daemon {
        Daemon::ready(self.run())
    }

    /// Replaces a part of the configuration.
    pub fn replace(&mut self, part: &str, by: &str) {
        self.config = self.config.replace(part, by);
    }

    /// Removes these words of the configuration, and what follows.
    pub fn cut_at(&mut self, words: &str) {
        self.config.truncate(self.config.find(words).unwrap());
    }

    /// Starts the daemon, and waits only until it listens.
    pub fn launch(&self) -> Daemon {
        Daemon::spawn(self.run())
    }

    /// Returns the command that starts the daemon.
    pub fn run(&self) -> Command {
        let mut command = self.command("run");
        command.args(["--log-format", "json", "--log-level", "debug"]);
        command
    }

    /// Runs `scan --json` and returns its documents.
    pub fn scan(&self) -> Vec<Value> {
        let answer = answered(&mut self.command("scan"));
        answer["documents"].as_array().unwrap().clone()
    }

    /// The state that `scan` prints for a path.
    pub fn state_of(&self, path: &str) -> String {
        let documents = self.scan();
        let document = documents.iter().find(|document| document["path"] == path);
        document.map_or("absent".to_owned(), |document| {
            document["state"].as_str().unwrap().to_owned()
        })
    }
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    log: Receiver<Value>,
    /// The part of the log that was read.
    read: RefCell<Vec<Value>>,
    pub public: SocketAddr,
    pub admin: SocketAddr,
}

impl Daemon {
    /// Starts a daemon and waits until it is ready.
    pub fn ready(command: Command) -> Daemon {
        let daemon = Daemon::spawn(command);
        daemon.await_log("ready");
        daemon
    }

    pub fn spawn(mut command: Command) -> Daemon {
        let mut child = command
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let Ok(line) = line else { return };
                let entry = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(entry).is_err() {
                    return;
                }
            }
        });
        let nowhere = "0.0.0.0:0".parse().unwrap();
        let mut daemon = Daemon {
            child,
            log,
            read: RefCell::default(),
            public: nowhere,
            admin: nowhere,
        };
        for _ in 0..2 {
            let entry = daemon.await_log("listening");
            // A Unix socket has none.
            let address = entry["address"].as_str().unwrap().parse();
            let address = address.unwrap_or(nowhere);
            match entry["listener"].as_str().unwrap() {
                "public" => daemon.public = address,
                _ => daemon.admin = address,
            }
        }
        daemon
    }

    /// The next log line whose message contains `words`.
    pub fn await_log(&self, words: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        let from = self.read.borrow().len();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut read = self.read.borrow_mut();
            match self.log.recv_timeout(left) {
                Ok(entry) => {
                    read.push(entry.clone());
                    let message = entry["message"].as_str().unwrap_or_default();
                    if message.contains(words) {
                        return entry;
                    }
                }
                Err(error) => {
                    let seen = &read[from..];
                    panic!("no log line \"{words}\": {error}; the log says {seen:#?}")
                }
            }
        }
    }

    /// Returns the exit status, if the daemon has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Returns the largest resident size so far, in bytes.
    pub fn peak_memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let mut lines = status.lines();
        let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes << 10
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As a service manager stops it.
    pub fn stop(self) -> ExitStatus {
        self.stop_and_tell().0
    }

    /// As a service manager stops it; with every line of its log, from the first to the last.
    pub fn stop_and_tell(mut self) -> (ExitStatus, Vec<String>) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        // The log ends with the process.
        let log = self.read.take().into_iter().chain(self.log.iter());
        let log: Vec<String> = log.map(|entry| entry.to_string()).collect();
        assert!(
            !log.iter().any(|line| line.contains("panicked")),
            "{log:#?}"
        );
        (status, log)
    }

    /// The status line, headers and body of a GET of the public listener.
    pub fn get(&self, target: &str) -> (String, String) {
        get(self.public, target)
    }

    pub fn get_admin(&self, target: &str) -> (String, String) {
        get(self.admin, target)
    }

    /// Returns the status as the admin listener has it in JSON.
    pub fn status(&self) -> Value {
        let (head, body) = self.get_admin("/status.json");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until the status meets a condition, and returns it.
    #[track_caller]
    pub fn await_status(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let status = self.status();
            if is_wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:#}");
            std::thread::sleep(Duration::from_millis(10)); // poll: no line says it
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            // Until the last thread has stopped.
            let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), stopped).unwrap();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in self.log.try_iter() {
                eprintln!("daemon: {entry}");
            }
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The head and the body of the answer to a GET.
pub fn get(address: SocketAddr, target: &str) -> (String, String) {
    try_get(address, target).unwrap()
}

/// As `get`, of a daemon that may be ending.
pub fn try_get(address: SocketAddr, target: &str) -> std::io::Result<(String, String)> {
    let head = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = exchange(address, &head)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok((head.to_owned(), body.to_owned()))
}

/// Sends a request, and returns all that comes until the connection is closed.
pub fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(request.as_ref())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The command that starts a daemon with a configuration file.
pub fn run_with(config: &Path) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    run.args(["run", "--log-format", "json", "--log-level", "debug"]);
    run.arg("--config").arg(config);
    run
}

/// The command that starts a daemon for a tree without a configuration.
pub fn run_without_config(site: &Site, state: &Path, listen: &str) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    run.args(["run", "--log-format", "json", "--log-level", "debug"]);
    run.args(["--url", URL, "--listen", listen]);
    run.args(["--admin-listen", "127.0.0.1:0"]);
    run.arg("--root").arg(site.root.path());
    run.arg("--state-dir").arg(state);
    run
}

/// The same command, started by another program that is given it as its last arguments.
pub fn started_by(mut program: Command, command: &Command) -> Command {
    program.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => program.env(name, value),
            None => program.env_remove(name),
        };
    }
    program
}

/// Runs a command to its end, with its output as text.
pub fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Runs a command to its end, which must have this exit code. Returns its standard output and standard error.
#[track_caller]
pub fn exit_with(command: &mut Command, code: i32) -> (String, String) {
    let (ended, out, err) = output(command);
    assert_eq!(ended, Some(code), "{command:?}: {out}{err}");
    (out, err)
}

/// Runs a command that must succeed. Returns its standard output.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    exit_with(command, 0).0
}

/// Runs a command that must fail with this exit code. Returns its standard error.
#[track_caller]
pub fn fail(command: &mut Command, code: i32) -> String {
    exit_with(command, code).1
}

#[track_caller]
pub fn assert_contains(text: &str, words: &str) {
    assert!(text.contains(words), "no {words:?} in:\n{text}");
}

#[track_caller]
pub fn assert_lacks(text: &str, words: &str) {
    assert!(!text.contains(words), "{words:?} in:\n{text}");
}

#[track_caller]
pub fn assert_starts_with(text: &str, words: &str) {
    assert!(text.starts_with(words), "{words:?} does not begin:\n{text}");
}

#[track_caller]
pub fn assert_ends_with(text: &str, words: &str) {
    assert!(text.ends_with(words), "{words:?} does not end:\n{text}");
}

/// Returns the number of lines that contain these words.
pub fn count_of(lines: &[String], words: &str) -> usize {
    lines.iter().filter(|line| line.contains(words)).count()
}

#[track_caller]
pub fn assert_none_contains(lines: &[String], words: &str) {
    let found = lines.iter().find(|line| line.contains(words));
    assert_eq!(found, None);
}

/// Runs a command with `--json`, however it exits, and returns its answer.
pub fn json(command: &mut Command) -> Value {
    serde_json::from_str(&output(command.arg("--json")).1).unwrap()
}

/// As `json`, of a command that must succeed.
#[track_caller]
pub fn answered(command: &mut Command) -> Value {
    let answer: Value = serde_json::from_str(&succeed(command.arg("--json"))).unwrap();
    assert_eq!(answer["version"], 1);
    answer
}

/// Returns the body of an answer, which must be a success.
#[track_caller]
pub fn body_of((head, body): (String, String)) -> String {
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body
}

/// Runs a command that must succeed.
pub fn finish(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Returns the names in an object, in order.
pub fn keys(object: &Value) -> Vec<&str> {
    let keys = object.as_object().unwrap().keys();
    let mut keys: Vec<&str> = keys.map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
