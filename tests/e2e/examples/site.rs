//! The services of `examples/compose` as processes on this machine: a Destination receives through the web server what
//! the generator wrote.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use crate::examples::manifest::{text, texts, yaml};
use crate::support::DEADLINE;
use crate::support::daemon::{Daemon, output, try_get};
use crate::support::listener::Listener;
use crate::support::needs;
use crate::support::ports;

/// A process that ends, with its children, when this is dropped.
struct Service(Child);

impl Service {
    fn start(command: &mut Command) -> Service {
        Service(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The text with each of these replaced by the other.
fn adapted(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "no {from} in {text}");
        text.replace(from, to)
    })
}

fn start_daemon(directory: &Path, tree: &str, site: &str) -> Daemon {
    let file = directory.join("config.toml");
    let hub = "[embedded_hub]\ncallback_ports = [\"1-65535\"]";
    let config = adapted(
        &text("examples/compose/rsnotify.toml"),
        &[
            ("localhost:8080", site),
            ("/srv/www", tree),
            ("172.30.84.11", "127.0.0.1"),
            ("172.30.84.0/24", "127.0.0.0/8"),
            ("[embedded_hub]", hub),
        ],
    );
    fs::write(&file, config + "[window]\nquiet = \"20ms\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    command.arg("run").arg("--config").arg(file);
    command.args([
        "--log-format",
        "json",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    command.env("STATE_DIRECTORY", directory.join("state"));
    let daemon = Daemon::spawn(command);
    daemon.await_log("ready");
    daemon
}

fn start_web_server(
    nginx: &Path,
    directory: &Path,
    tree: &str,
    site: &str,
    daemon: SocketAddr,
) -> Service {
    let directory = directory.display().to_string();
    let config = adapted(
        &text("examples/site/nginx.conf"),
        &[
            ("/tmp/", &format!("{directory}/")),
            ("listen 8080", &format!("listen {site}")),
            ("rsnotify:8400", &daemon.to_string()),
            ("/srv/www", tree),
        ],
    );
    // In the container it is never root, who would have others do the work.
    let user = if getuid().is_root() {
        "user root;\n"
    } else {
        ""
    };
    let file = format!("{directory}/nginx.conf");
    fs::write(&file, format!("{user}{config}")).unwrap();
    let nginx = || {
        let mut nginx = Command::new(nginx);
        nginx.args(["-c", &file, "-e", "stderr"]);
        nginx
    };
    let (code, _, said) = output(nginx().arg("-t"));
    assert_eq!(code, Some(0), "{said}");
    Service::start(nginx().stderr(Stdio::null()))
}

fn start_generator(tree: &str, site: &str) -> Service {
    let compose = yaml("examples/compose/compose.yaml");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/generate.py");
    let mut arguments: Vec<String> = texts(&compose["services"]["generator"]["command"])
        .iter()
        .map(|argument| argument.replace("localhost:8080", site))
        .map(|argument| {
            argument
                .replace("/srv/www", tree)
                .replace("/etc/site/generate.py", script)
        })
        .collect();
    // A note each second.
    assert_eq!(arguments.pop().as_deref(), Some("30"));
    Service::start(Command::new(&arguments[0]).args(&arguments[1..]).arg("1"))
}

#[test]
fn a_destination_receives_through_the_web_server_what_the_generator_wrote() {
    let (Some(nginx), Some(_)) = (needs::program("nginx"), needs::program("python3")) else {
        return;
    };
    let [tree, directory] = [(); 2].map(|()| TempDir::new().unwrap());
    let published = tree.path().to_str().unwrap();
    let address = ports::reserved();
    let site = address.to_string();
    let daemon = start_daemon(directory.path(), published, &site);
    let _web = start_web_server(&nginx, directory.path(), published, &site, daemon.public);
    let _generator = start_generator(published, &site);

    let head = |path: &str| {
        try_get(address, path)
            .map(|(head, _)| head)
            .unwrap_or_default()
    };
    let deadline = Instant::now() + DEADLINE;
    // The generator writes the Source Description last.
    for path in ["/.well-known/resourcesync", "/topics/notes/"] {
        while !head(path).starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < deadline, "the web server has no {path}");
            std::thread::sleep(Duration::from_millis(20)); // poll: nobody says when it is there
        }
        let head = head(path);
        assert!(head.contains("Content-Type: application/xml"), "{head}");
    }
    let listener = Listener::start(&format!("http://{site}/topics/notes/"));
    let change = format!("updated  changelist        http://{site}/notes/changelist.xml");
    // What was published first may still be told.
    let mut heard = std::iter::repeat_with(|| listener.line()).take(10);
    assert!(heard.any(|line| line.ends_with(&change)), "{change}");
}
