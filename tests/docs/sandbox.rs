//! The environment of a page's commands: its own directory and free ports, mapped to those in the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use regex::{Captures, Regex};
use tempfile::TempDir;

use crate::page::repository;

/// Ports in the pages. In the sandbox each is replaced by a free one.
const PORTS: [&str; 5] = ["8000", "8080", "8400", "8401", "9400"];

/// The hub in the pages, and its address in the sandbox, where a page's setup may start one.
const HUB: (&str, &str) = ("https://hub.example.net/", "http://127.0.0.1:9400/");

/// Directories in the pages. In the sandbox each is below its own directory.
const DIRECTORIES: [&str; 5] = [
    "/etc/rsnotify",
    "/run/rsnotify",
    "/srv/www",
    "/var/backups",
    "/var/lib/rsnotify",
];

/// Prefixes of paths of the machine that runs the tests.
const MACHINE: [&str; 9] = [
    "/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var",
];

/// The name of the sandbox's directory in a page.
const HOME: &str = "/home/ada";

pub struct Sandbox {
    directory: TempDir,
    /// Ports of the page with their replacements.
    ports: BTreeMap<String, String>,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        let sandbox = Sandbox {
            directory: TempDir::new().unwrap(),
            ports: free_ports(),
        };
        let root = sandbox.directory.path();
        fs::create_dir(root.join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_rsnotify"), root.join("bin/rsnotify")).unwrap();
        for directory in DIRECTORIES {
            fs::create_dir_all(root.join(&directory[1..])).unwrap();
        }
        let tree = "examples/tree";
        sandbox.copy(&repository().join(tree), &root.join(tree));
        sandbox
    }

    /// Translates a text of the page to the sandbox.
    pub fn to_sandbox(&self, text: &str) -> String {
        let text = text.replace(HUB.0, HUB.1);
        let number = Regex::new(r"\d+").unwrap();
        let text = number.replace_all(&text, |number: &Captures<'_>| {
            let number = &number[0];
            self.ports
                .get(number)
                .map_or(number, String::as_str)
                .to_owned()
        });
        let root = self.directory.path().to_str().unwrap();
        let text = DIRECTORIES
            .iter()
            .fold(text.into_owned(), |text, directory| {
                text.replace(directory, &format!("{root}{directory}"))
            });
        text.replace(HOME, root)
    }

    /// Translates output of the sandbox to the page.
    pub fn to_page(&self, text: &str) -> String {
        let text = self
            .ports
            .iter()
            .fold(text.to_owned(), |text, (said, here)| {
                let port = Regex::new(&format!(r":{here}\b")).unwrap();
                port.replace_all(&text, format!(":{said}")).into_owned()
            });
        let text = text.replace(HUB.1, HUB.0);
        let root = self.directory.path().to_str().unwrap();
        let text = DIRECTORIES.iter().fold(text, |text, directory| {
            text.replace(&format!("{root}{directory}"), directory)
        });
        text.replace(root, HOME)
    }

    /// Returns the first path of this machine in a page's commands that is outside of the sandbox; none is permitted.
    pub fn foreign_path(commands: &str) -> Option<&str> {
        let mut words = commands.split(|c: char| c.is_whitespace() || "\"'=>(|;".contains(c));
        words.find(|word| {
            let is_ours = |directory: &&str| word.starts_with(directory);
            MACHINE.iter().any(|root| word.starts_with(root))
                && !DIRECTORIES.iter().chain([&HOME]).any(is_ours)
        })
    }

    /// Returns a clean shell in the sandbox's directory, for translated commands.
    pub fn shell(&self, commands: &str) -> Command {
        let root = self.directory.path();
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]);
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy().to_lowercase();
            let is_ours = ["rsnotify_", "xdg_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            if is_ours || name.ends_with("_proxy") || name.ends_with("_directory") {
                shell.env_remove(variable);
            }
        }
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}/bin:{path}:/usr/sbin:/sbin", root.display());
        shell
            .current_dir(root)
            .env("HOME", root)
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("RSNOTIFY_LISTEN", self.to_sandbox("127.0.0.1:8400"))
            .env("RSNOTIFY_ADMIN_LISTEN", self.to_sandbox("127.0.0.1:8401"));
        // A reader's configuration is where commands look for it without being told.
        let config = root.join("etc/rsnotify/config.toml");
        if config.exists() {
            shell.env("RSNOTIFY_CONFIG", config);
        }
        shell
    }

    fn copy(&self, from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                self.copy(&entry.path(), &to);
            } else {
                let text = fs::read_to_string(entry.path()).unwrap();
                fs::write(to, self.to_sandbox(&text)).unwrap();
            }
        }
    }
}

/// Returns free ports with four digits, so that tables keep their width, and below those of outgoing connections.
fn free_ports() -> BTreeMap<String, String> {
    // Stories are told at the same time, and a port is bound some time after it was chosen.
    static CHOSEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let is_free = |port: &u16| {
        TcpListener::bind(format!("127.0.0.1:{port}")).is_ok()
            && CHOSEN.lock().unwrap().insert(*port)
    };
    let free = || std::iter::repeat_with(|| fastrand::u16(3000..9990)).find(is_free);
    let ports = PORTS.map(|said| (said.to_owned(), free().unwrap().to_string()));
    ports.into()
}

#[test]
fn a_sandbox_has_its_own_ports_and_directories() {
    let sandbox = Sandbox::new();
    let page = "curl http://127.0.0.1:8400/ --data-binary @/srv/www/a.xml https://hub.example.net/";
    let here = sandbox.to_sandbox(page);
    let is_elsewhere = !here.contains(":8400/") && !here.contains("@/srv/www");
    assert!(is_elsewhere, "{here}");
    assert_eq!(sandbox.to_page(&here), page);
    assert_eq!(sandbox.to_sandbox("18400 84000"), "18400 84000");
    for (commands, foreign) in [
        ("patch -d / < /srv/www/a.diff > /dev/null", None),
        ("rm -r \"/etc/nginx\"", Some("/etc/nginx")),
    ] {
        assert_eq!(Sandbox::foreign_path(commands), foreign);
    }
}
