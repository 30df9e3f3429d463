//! The services of `examples/compose`, and the pods of `examples/kustomize`, as processes on this machine: a Destination
//! receives what the generator wrote.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use crate::examples::manifest::{named, text, texts, yaml};
use crate::support::daemon::{Daemon, assert_contains, output, succeed, try_get};
use crate::support::listener::Listener;
use crate::support::needs;
use crate::support::ports;
use crate::support::until;

const QUICK: &str = "[window]\nquiet = \"20ms\"\nchange_quiet = \"20ms\"\n";

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
        assert_contains(&text, from);
        text.replace(from, to)
    })
}

/// Starts `rsnotify run` or `hub` with an example's configuration, adapted to this machine.
fn start_daemon(
    directory: &Path,
    name: &str,
    listen: &str,
    example: &str,
    changes: &[(&str, &str)],
    more: &str,
) -> Daemon {
    let file = directory.join(format!("{name}.toml"));
    fs::write(&file, adapted(&text(example), changes) + more).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
    command.arg(name).arg("--config").arg(file);
    command.args(["--log-format", "json", "--listen", listen]);
    command.args(["--admin-listen", "127.0.0.1:0"]);
    command.env("STATE_DIRECTORY", directory.join(format!("{name}.state")));
    Daemon::ready(command)
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
            ("127.0.0.1:8400", &daemon.to_string()),
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
    succeed(nginx().arg("-t"));
    Service::start(nginx().stderr(Stdio::null()))
}

/// Starts the generator with the arguments of an example, adapted to this machine.
fn start_generator(arguments: &[&str], changes: &[(&str, &str)]) -> Service {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/generate.py");
    let mut arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    arguments[1] = script.to_owned();
    for (from, to) in changes {
        for argument in &mut arguments {
            *argument = argument.replace(from, to);
        }
    }
    // A note each second.
    assert_eq!(arguments.pop().as_deref(), Some("30"));
    Service::start(Command::new(&arguments[0]).args(&arguments[1..]).arg("1"))
}

/// Awaits that the web server has the site and its topics, and what a Destination receives of both channels.
fn await_notes(address: SocketAddr) {
    let site = address.to_string();
    let head = |path| try_get(address, path).map_or(String::new(), |(head, _)| head);
    // The generator writes the Source Description last.
    for path in [
        "/.well-known/resourcesync",
        "/topics/notes/",
        "/changes/notes/",
    ] {
        until(|| head(path).starts_with("HTTP/1.1 200"));
        assert_contains(&head(path), "Content-Type: application/xml");
    }
    for (topic, change) in [
        (
            "topics",
            "updated  changelist        http://SITE/notes/changelist.xml",
        ),
        ("changes", "created  http://SITE/notes/"),
    ] {
        let listener = Listener::start(&format!("http://{site}/{topic}/notes/"));
        let change = change.replace("SITE", &site);
        // What was published first may still be told.
        let mut heard = std::iter::repeat_with(|| listener.line()).take(10);
        assert!(heard.any(|line| line.contains(&change)), "{change}");
    }
}

/// Runs a site with the configuration and the generator of an example, adapted to this machine. A Destination receives its
/// notes.
fn run_site(
    nginx: &Path,
    address: SocketAddr,
    published: &str,
    example: &str,
    generator: &[&str],
    changes: &[(&str, &str)],
) {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let daemon = start_daemon(directory, "run", "127.0.0.1:0", example, changes, QUICK);
    let site = address.to_string();
    let _web = start_web_server(nginx, directory, published, &site, daemon.public);
    let _generator = start_generator(generator, changes);
    await_notes(address);
}

#[test]
fn a_destination_receives_through_the_web_server_what_the_generator_wrote() {
    let (Some(nginx), Some(_)) = (needs::program("nginx"), needs::program("python3")) else {
        return;
    };
    let tree = TempDir::new().unwrap();
    let published = tree.path().to_str().unwrap();
    let address = ports::reserved();
    let site = address.to_string();
    let changes = [("localhost:8080", site.as_str()), ("/srv/www", published)];
    let compose = yaml("examples/compose/compose.yaml");
    let generator = texts(&compose["services"]["generator"]["command"]);
    let example = "examples/compose/rsnotify.toml";
    run_site(&nginx, address, published, example, &generator, &changes);
}

#[test]
fn a_destination_receives_from_the_hub_of_the_pod_what_the_generator_wrote() {
    let (Some(nginx), Some(_)) = (needs::program("nginx"), needs::program("python3")) else {
        return;
    };
    let [tree, directory] = [(); 2].map(|()| TempDir::new().unwrap());
    let published = tree.path().to_str().unwrap();
    // As the page has it made.
    let (code, made, said) =
        output(Command::new(env!("CARGO_BIN_EXE_rsnotify")).args(["token", "site"]));
    assert_eq!(code, Some(0), "{said}");
    let token = directory.path().join("hub.token");
    let second = made.lines().nth(1).unwrap();
    fs::write(&token, second.replace("# ", "")).unwrap();

    let [address, hub] = [(); 2].map(|()| ports::reserved());
    let (site, hub) = (address.to_string(), hub.to_string());
    let (site_url, hub_url) = (format!("http://{site}/"), format!("http://{hub}/hub"));
    let changes = [
        ("http://site/", site_url.as_str()),
        ("http://hub/hub", &hub_url),
        ("/etc/rsnotify/hub.token", token.to_str().unwrap()),
    ];
    let of_hub = [&changes[..], &[("10.0.0.0/8", "127.0.0.0/8")]].concat();
    let _hub = start_daemon(
        directory.path(),
        "hub",
        &hub,
        "examples/kustomize/hub.toml",
        &of_hub,
        "",
    );
    let of_site = [&changes[..], &[("/srv/www", published)]].concat();
    let pod = &yaml("examples/kustomize/deployment.yaml")["spec"]["template"]["spec"];
    let generator = named(&pod["containers"], "name", "generator");
    let generator = [texts(&generator["command"]), texts(&generator["args"])].concat();
    let example = "examples/kustomize/rsnotify.toml";
    run_site(&nginx, address, published, example, &generator, &of_site);
}
