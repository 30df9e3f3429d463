//! `examples/mirror`: its copy is equal to the tree in the end, wherever it was killed, and nothing else is touched.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::{Setup, fail, output, succeed};
use crate::support::documents::{Site, URL, capability_list, files_below, list};
use crate::support::needs;
use crate::support::ports;
use crate::support::python::python;
use crate::support::until;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mirror/mirror.py");
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mirror");
const FILES: usize = 8;
const KILLS: usize = 8;

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Source of one set, whose web server is Python's.
struct Source {
    site: Site,
    url: String,
    changes: Vec<String>,
    _server: Process,
}

impl Source {
    fn start(python: &Path) -> Source {
        let site = Site::empty();
        let address = ports::reserved();
        let mut server = Command::new(python);
        server
            .args(["-m", "http.server", "--bind", "127.0.0.1"])
            .arg(address.port().to_string())
            .current_dir(site.root.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut source = Source {
            url: format!("http://{address}/"),
            site,
            changes: Vec::new(),
            _server: Process(server.spawn().unwrap()),
        };
        let mut listed = String::new();
        for file in 0..FILES / 2 {
            let (uri, now) = (source.write_resource(file), Timestamp::now());
            listed += &format!("<url><loc>{uri}</loc><lastmod>{now}</lastmod></url>\n");
        }
        source.write("resourcelist.xml", &list("a", "resourcelist", "1"), &listed);
        let capabilities = capability_list("a", &["resourcelist", "changelist"]);
        let capabilities = capabilities.replace(URL, &source.url);
        source.site.write("a/capabilitylist.xml", &capabilities);
        source.report("updated", 0);
        until(|| TcpStream::connect(address).is_ok());
        source
    }

    fn write(&self, name: &str, like: &str, entries: &str) {
        let (head, rest) = like.split_once("<url>").unwrap();
        let (_, tail) = rest.split_once("</url>\n").unwrap();
        let document = format!("{head}{entries}{tail}").replace(URL, &self.url);
        self.site.write(&format!("a/{name}"), &document);
    }

    fn write_resource(&self, file: usize) -> String {
        let content = format!("{}", fastrand::u64(..));
        self.site.write(&format!("a/files/{file}.txt"), &content);
        format!("{}a/files/{file}.txt", self.url)
    }

    /// Changes or deletes a resource, and reports it.
    fn change(&mut self) {
        let file = fastrand::usize(..FILES);
        let is_there = self.site.path(&format!("a/files/{file}.txt")).exists();
        let change = match (is_there, fastrand::u8(..3)) {
            (true, 0) => "deleted",
            (true, _) => "updated",
            (false, _) => "created",
        };
        match change {
            "deleted" => self.site.remove(&format!("a/files/{file}.txt")),
            _ => drop(self.write_resource(file)),
        }
        self.report(change, file);
    }

    fn report(&mut self, change: &str, file: usize) {
        let (url, now) = (&self.url, Timestamp::now());
        self.changes.push(format!(
            "<url><loc>{url}a/files/{file}.txt</loc><rs:md change=\"{change}\" datetime=\"{now}\"/></url>\n"
        ));
        let list = list("a", "changelist", "1");
        self.write("changelist.xml", &list, &self.changes.concat());
    }
}

#[test]
fn the_copy_is_equal_in_the_end_wherever_it_was_killed() {
    let (Some(python), Some(_)) = (python(), needs::program("setpriv")) else {
        return;
    };
    let mut source = Source::start(python);
    let mut setup = Setup::with_source(&source.site, "change_notifications = true", "");
    setup.config = setup
        .config
        .replace(URL, &source.url)
        .replace("callback_ports = [\"1-65535\"]\n", "")
        .replacen("127.0.0.1:0", &ports::reserved().to_string(), 1)
        .replace(
            "quiet = \"20ms\"",
            "quiet = \"20ms\"\nchange_quiet = \"20ms\"",
        );
    succeed(setup.command("advertise").arg("--write"));
    let daemon = setup.start();

    let here = TempDir::new().unwrap();
    let (copy, state) = (here.path().join("copy"), here.path().join("state"));
    let rsnotify = Path::new(env!("CARGO_BIN_EXE_rsnotify"));
    let path = std::env::var_os("PATH").unwrap();
    let paths = std::iter::once(rsnotify.parent().unwrap().to_owned());
    let path = std::env::join_paths(paths.chain(std::env::split_paths(&path))).unwrap();
    let arguments = [
        format!("{}a/capabilitylist.xml", source.url),
        format!("{}a/files/", source.url),
    ];
    let start = || {
        let mut mirror = Command::new(python);
        mirror.arg(SCRIPT).args(&arguments).args([&copy, &state]);
        mirror.env("PATH", &path).stdin(Stdio::null());
        Process(mirror.spawn().unwrap())
    };
    let files_of_source = source.site.path("a/files");
    let is_equal = || files_below(&copy) == files_below(&files_of_source);
    let is_subscribed = || state.join("listen.json").exists();
    let is_copied = || state.join("copied").exists();
    let mut mirror = start();
    for _ in 0..KILLS {
        let before = files_below(&copy);
        for _ in 0..fastrand::usize(1..10) {
            source.change();
        }
        let point = fastrand::u8(..5);
        until(|| {
            // As a service manager does.
            if mirror.0.try_wait().unwrap().is_some() {
                mirror = start();
            }
            match point {
                0 => true,
                1 => is_subscribed(),
                2 => is_copied(),
                3 => files_below(&copy) != before || is_equal(),
                _ => is_equal(),
            }
        });
        // By its own process id, so that what it has started is left behind.
        drop(mirror);
        mirror = start();
    }
    source.change();
    until(|| {
        if mirror.0.try_wait().unwrap().is_some() {
            mirror = start();
        }
        is_equal()
    });
    drop(mirror);
    assert!(daemon.stop().success());
}

/// A copy and its state, beside a file of somebody else.
struct Destination {
    here: TempDir,
}

impl Destination {
    fn new() -> Destination {
        let destination = Destination {
            here: TempDir::new().unwrap(),
        };
        fs::create_dir(destination.path("copy")).unwrap();
        fs::create_dir(destination.path("state")).unwrap();
        fs::write(destination.path("victim"), "mine").unwrap();
        destination
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    /// Adds the arguments for a copy of the resources of a Source, without the last slash of their prefix.
    fn add_arguments(&self, command: &mut Command, source: &Source) {
        command
            .arg(format!("{}a/capabilitylist.xml", source.url))
            .arg(format!("{}a/files", source.url))
            .args([self.path("copy"), self.path("state")]);
    }

    /// Checks that the copy has these files, and that the victim is as it was.
    #[track_caller]
    fn assert_has_only<const N: usize>(&self, wanted: [&str; N]) {
        let names: Vec<PathBuf> = files_below(&self.path("copy")).into_keys().collect();
        assert_eq!(names, wanted.map(PathBuf::from));
        assert_eq!(fs::read_to_string(self.path("victim")).unwrap(), "mine");
    }
}

#[test]
fn a_notification_changes_nothing_outside_the_copy() {
    let Some(python) = python() else { return };
    let (source, destination) = (Source::start(python), Destination::new());
    source.site.write("a/files/é 2.txt", "two");
    let victim = destination.path("victim");
    let victim = victim.to_str().unwrap();
    // The server has no names of that length.
    let too_long = "x".repeat(70_000);
    let relative = [
        "../victim",
        "d/../../victim",
        "%2E%2E/victim",
        "%2F..%2Fvictim",
        "d//e",
        "d/./e",
        "e%00",
        "d/",
        "",
        "c#d.txt",
        &too_long,
    ];
    let refused = relative.into_iter().chain([victim]);
    let uris = refused.chain(["1.txt", "é 2.txt"]);
    let entries = uris.map(|name| json!({ "loc": format!("{}a/files/{name}", source.url) }));
    let entries: Vec<Value> = entries.collect();

    let mut mirror = Command::new(python);
    mirror.arg(SCRIPT).arg("--apply");
    destination.add_arguments(&mut mirror, &source);
    mirror.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut mirror = mirror.spawn().unwrap();
    let line = json!({ "entries": entries }).to_string();
    let mut input = mirror.stdin.take().unwrap();
    input.write_all(line.as_bytes()).unwrap();
    drop(input);
    let output = mirror.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    destination.assert_has_only(["%C3%A9%202.txt", "1.txt"]);
    let refused = said.lines().filter(|line| line.contains("is not copied"));
    assert_eq!(refused.count(), relative.len() + 1, "{said}");
}

#[test]
fn the_first_copy_changes_nothing_outside_its_directory() {
    let (Some(python), Some(_)) = (python(), needs::program("setpriv")) else {
        return;
    };
    let (source, destination) = (Source::start(python), Destination::new());
    source.site.write("a/victim", "another's");
    let listed = ["1.txt", "../victim"]
        .map(|name| format!("<url><loc>{}a/files/{name}</loc></url>\n", source.url));
    source.write(
        "resourcelist.xml",
        &list("a", "resourcelist", "1"),
        &listed.concat(),
    );
    let code = "import mirror; mirror.copy(mirror.arguments(), mirror.resync_sync())";
    let mut mirror = Command::new(python);
    mirror.current_dir(DIRECTORY).args(["-B", "-c", code]);
    destination.add_arguments(&mut mirror, &source);
    let (status, out, err) = output(&mut mirror);
    assert_eq!(status, Some(0), "{out}{err}");
    destination.assert_has_only(["1.txt"]);
}

#[test]
fn a_python_without_resync_is_named() {
    let Some(python) = python() else { return };
    let bare = TempDir::new().unwrap();
    let linked = bare.path().join("python");
    symlink(fs::canonicalize(python).unwrap(), &linked).unwrap();
    let mut mirror = Command::new(linked);
    mirror
        .current_dir(DIRECTORY)
        .args(["-B", "-c", "import mirror; mirror.resync_sync()"])
        .env("PATH", "");
    let err = fail(&mut mirror, 1);
    assert!(err.starts_with("there is no "), "{err}");
}
