//! The environment of a page's commands: its own directory and free ports, mapped to those in the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use tempfile::TempDir;

use crate::page::repository;

/// The ports that pages speak of. In the story each is one that is free.
const PORTS: [&str; 5] = ["8000", "8080", "8400", "8401", "9400"];

/// The hub that pages speak of, and where a page's setup may put one that answers.
const HUB: (&str, &str) = ("https://hub.example.net/", "http://127.0.0.1:9400/");

/// The directories that pages speak of. In the story each lies below the story's own.
const DIRECTORIES: [&str; 5] = [
    "/etc/rsnotify",
    "/run/rsnotify",
    "/srv/www",
    "/var/backups",
    "/var/lib/rsnotify",
];

/// What begins a path of the machine that the tests run on.
const MACHINE: [&str; 9] = [
    "/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var",
];

/// The directory that a story plays in, where a page has to name it.
const HOME: &str = "/home/ada";

pub struct Place {
    directory: TempDir,
    /// What the page says, and what it is here.
    ports: BTreeMap<String, String>,
}

impl Place {
    pub fn new() -> Place {
        let place = Place {
            directory: TempDir::new().unwrap(),
            ports: free_ports(),
        };
        let root = place.directory.path();
        fs::create_dir(root.join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_rsnotify"), root.join("bin/rsnotify")).unwrap();
        for directory in DIRECTORIES {
            fs::create_dir_all(root.join(&directory[1..])).unwrap();
        }
        place.copy(
            &repository().join("examples/tree"),
            &root.join("examples/tree"),
        );
        place
    }

    /// What the page says, as it is here.
    pub fn here(&self, text: &str) -> String {
        let text = text.replace(HUB.0, HUB.1);
        let text = replace_numbers(&text, |number, _| {
            self.ports.get(number).map(String::as_str)
        });
        let root = self.directory.path().to_str().unwrap();
        let text = DIRECTORIES.iter().fold(text, |text, directory| {
            text.replace(directory, &format!("{root}{directory}"))
        });
        text.replace(HOME, root)
    }

    /// What came out here, as the page would say it.
    pub fn said(&self, text: &str) -> String {
        let text = replace_numbers(text, |number, before| {
            let mut ports = self.ports.iter();
            let port = ports.find(|(_, here)| before == Some(':') && *here == number);
            port.map(|(said, _)| said.as_str())
        });
        let text = text.replace(HUB.1, HUB.0);
        let root = self.directory.path().to_str().unwrap();
        DIRECTORIES
            .iter()
            .fold(text, |text, directory| {
                text.replace(&format!("{root}{directory}"), directory)
            })
            .replace(root, HOME)
    }

    /// The first path of this machine in a page's commands that is not a place of the story: nothing else is touched.
    pub fn stranger(commands: &str) -> Option<&str> {
        let mut words = commands.split(|c: char| c.is_whitespace() || "\"'=>(|;".contains(c));
        words.find(|word| {
            let is_ours = |own: &&str| word.starts_with(own);
            MACHINE.iter().any(|root| word.starts_with(root))
                && !DIRECTORIES.iter().chain([&HOME]).any(is_ours)
        })
    }

    /// A shell as a reader has it who begins in this directory, for commands as they are here.
    pub fn shell(&self, commands: &str) -> Command {
        let root = self.directory.path();
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]);
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy().to_lowercase();
            let is_ours = ["rsnotify_", "xdg_"]
                .iter()
                .any(|own| name.starts_with(own));
            if is_ours || name.ends_with("_proxy") || name.ends_with("_directory") {
                shell.env_remove(variable);
            }
        }
        let path = std::env::var("PATH").unwrap();
        shell
            .current_dir(root)
            .env("HOME", root)
            .env(
                "PATH",
                format!("{}/bin:{path}:/usr/sbin:/sbin", root.display()),
            )
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("RSNOTIFY_LISTEN", self.here("127.0.0.1:8400"))
            .env("RSNOTIFY_ADMIN_LISTEN", self.here("127.0.0.1:8401"));
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
                fs::write(to, self.here(&text)).unwrap();
            }
        }
    }
}

/// Of four digits, so that tables stay as wide as they are in the page, and so that no connection takes one by chance.
fn free_ports() -> BTreeMap<String, String> {
    // Stories are told at the same time, and a port is bound some time after it was chosen.
    static CHOSEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let is_free = |port: &u16| {
        TcpListener::bind(format!("127.0.0.1:{port}")).is_ok()
            && CHOSEN.lock().unwrap().insert(*port)
    };
    let free = || std::iter::repeat_with(|| fastrand::u16(3000..9990)).find(is_free);
    PORTS
        .iter()
        .map(|said| ((*said).to_owned(), free().unwrap().to_string()))
        .collect()
}

/// Replaces whole numbers; `instead` is also given the character before.
fn replace_numbers<'a>(
    text: &str,
    instead: impl Fn(&str, Option<char>) -> Option<&'a str>,
) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        replaced.push_str(before);
        let end = number
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let instead = instead(number, replaced.chars().next_back());
        replaced.push_str(instead.unwrap_or(number));
        rest = after;
    }
    replaced + rest
}

#[test]
fn a_place_has_its_own_ports_and_directories() {
    let place = Place::new();
    let page = "curl http://127.0.0.1:8400/ --data-binary @/srv/www/a.xml https://hub.example.net/";
    let here = place.here(page);
    assert!(
        !here.contains(":8400/") && !here.contains("@/srv/www"),
        "{here}"
    );
    assert_eq!(place.said(&here), page);
    assert_eq!(place.here("18400 84000"), "18400 84000");
    assert_eq!(
        Place::stranger("patch -d / < /srv/www/a.diff > /dev/null"),
        None
    );
    assert_eq!(Place::stranger("rm -r \"/etc/nginx\""), Some("/etc/nginx"));
}
