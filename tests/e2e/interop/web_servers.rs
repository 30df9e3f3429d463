//! Web servers from Debian's packages in front of rsnotify, configured by `rsnotify snippet`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interop::subscribe;
use crate::support::DEADLINE;
use crate::support::daemon::{Setup, assert_contains, get, json, succeed};
use crate::support::documents::Site;
use crate::support::hub::FakeHub;
use crate::support::needs;
use crate::support::ports;

/// One of the web servers: what `snippet` calls it, its program, and its whole configuration around the lines.
struct Kind {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// `DIR` stands for a directory of its own with the lines in `lines`, `PORT` for its port.
    configuration: &'static str,
}

const NGINX: Kind = Kind {
    name: "nginx",
    program: "nginx",
    arguments: &["-e", "DIR/log", "-c", "DIR/configuration"],
    configuration: "daemon off; pid DIR/pid; events {}
        http {
            access_log off; client_body_temp_path DIR/body; proxy_temp_path DIR/proxy;
            fastcgi_temp_path DIR/fastcgi; uwsgi_temp_path DIR/uwsgi; scgi_temp_path DIR/scgi;
            gzip on; gzip_types application/xml; charset utf-8; charset_types application/xml;
            server { listen 127.0.0.1:PORT; root DIR/www; include DIR/lines; }
        }",
};

const APACHE: Kind = Kind {
    name: "apache",
    program: "apache2",
    arguments: &["-DFOREGROUND", "-f", "DIR/configuration"],
    configuration: "ServerRoot /usr/lib/apache2\nDefaultRuntimeDir DIR\nPidFile DIR/pid\nErrorLog DIR/log\n\
        ServerName 127.0.0.1\nListen 127.0.0.1:PORT\nUser nobody\nGroup nogroup\n\
        LoadModule mpm_event_module modules/mod_mpm_event.so\n\
        LoadModule authz_core_module modules/mod_authz_core.so\n\
        LoadModule headers_module modules/mod_headers.so\nLoadModule proxy_module modules/mod_proxy.so\n\
        LoadModule proxy_http_module modules/mod_proxy_http.so\n\
        LoadModule rewrite_module modules/mod_rewrite.so\n\
        <VirtualHost 127.0.0.1:PORT>\nDocumentRoot DIR/www\nInclude DIR/lines\n</VirtualHost>\n",
};

const CADDY: Kind = Kind {
    name: "caddy",
    program: "caddy",
    arguments: &[
        "run",
        "--adapter",
        "caddyfile",
        "--config",
        "DIR/configuration",
    ],
    configuration: "{\nadmin off\nauto_https off\n}\n\
        http://127.0.0.1:PORT {\nroot * DIR/www\nimport DIR/lines\nfile_server\n}\n",
};

/// A web server with a directory of its own, which it serves too.
struct WebServer {
    process: Child,
    directory: TempDir,
}

impl WebServer {
    fn start(kind: &Kind, program: &Path, port: u16, lines: &str) -> WebServer {
        let directory = TempDir::new().unwrap();
        let there = directory.path();
        let fill = |text: &str| {
            let text = text.replace("DIR", there.to_str().unwrap());
            text.replace("PORT", &port.to_string())
        };
        fs::create_dir(there.join("www")).unwrap();
        fs::write(there.join("www/own"), "its own").unwrap();
        fs::write(there.join("lines"), lines).unwrap();
        fs::write(there.join("configuration"), fill(kind.configuration)).unwrap();
        public(there);
        let process = Command::new(program)
            .args(kind.arguments.iter().map(|argument| fill(argument)))
            .env("HOME", there)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = WebServer { process, directory };
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{} {ended:?}: {lines}{}",
                kind.name,
                fs::read_to_string(server.directory.path().join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(20)); // poll: nothing tells when it listens
        }
        server
    }
}

/// Lets the processes that a web server starts without privileges read what it serves.
fn public(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // Asked like this, it ends its children too.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// An answer without what belongs to one connection: the status, our headers, and the body.
fn answer(address: SocketAddr, target: &str) -> (String, Vec<String>, String) {
    let (head, body) = get(address, target);
    let (status, headers) = head.split_once("\r\n").unwrap();
    let ours = ["content-type: ", "etag: ", "link: "];
    let mut headers: Vec<String> = headers
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            format!("{}: {value}", name.to_ascii_lowercase())
        })
        .filter(|line| ours.iter().any(|name| line.starts_with(name)))
        .collect();
    headers.sort();
    (status.to_owned(), headers, body)
}

/// Everything that a snippet promises, or nothing where the server is not installed.
#[rstest]
#[case::nginx(&NGINX)]
#[case::apache(&APACHE)]
#[case::caddy(&CADDY)]
fn a_web_server_passes_on_what_it_was_told_to(#[case] kind: &Kind) {
    let Some(program) = needs::program(kind.program) else {
        return;
    };
    let (address, listen) = (ports::reserved(), ports::reserved().port());
    let port = address.port();
    let odd = "/data%20set/%24HOME%7Bx%7D;y'(z)%5C.%22/%C3%A9%7e/?set=a%2Fb&c=%7e+";
    let made = "/topics/main/b/capabilitylist/";
    let site = Site::new();
    site.add_set("b");
    let channel = format!(
        "[[channel]]\ncapability_list = \"https://source.example/a/capabilitylist.xml\"\n\
         topic = \"http://{address}{odd}\"\n"
    );
    let mut setup = Setup::new(&site, &[], &channel);
    setup.replace(
        "[server]\nlisten = \"127.0.0.1:0\"\n",
        &format!("[server]\nlisten = \"127.0.0.1:{listen}\"\npublic_url = \"http://{address}/\"\n"),
    );
    let lines = succeed(setup.command("snippet").arg(kind.name));
    let daemon = setup.start();
    let _server = WebServer::start(kind, &program, port, &lines);

    let subscriber = FakeHub::start();
    for (topic, set) in [(odd, "a"), (made, "b")] {
        subscribe(&subscriber, address, topic);
        // Having asked, the hub still has to hear the answer.
        daemon.await_log(&format!("subscribed to http://{address}{topic}"));
        site.write_list(set, "changelist", "2");
        subscriber.changes_until(&[&format!("updated changelist {set}/changelist.xml")]);
        let (status, headers, body) = answer(address, topic);
        assert_eq!(status, "HTTP/1.1 200 OK", "{lines}");
        assert_contains(&body, "changelist.xml");
        assert_eq!(
            (status, headers, body),
            answer(daemon.public, topic),
            "{lines}"
        );
    }
    let checked = json(&mut setup.command("check"));
    let [finding] = &checked["findings"].as_array().unwrap()[..] else {
        panic!("{checked:#}{lines}");
    };
    let finding = finding.as_str().unwrap();
    assert_contains(finding, "does not advertise its channel");

    // The rest stays the web server's own.
    assert_eq!(answer(address, "/own").2, "its own");
    let (path, _) = odd.split_once('?').unwrap();
    for target in [
        "/",
        "/topics",
        "/hub2",
        &format!("{path}more"),
        "/data%20set/",
    ] {
        assert!(!get(address, target).0.contains("rel=\"self\""), "{target}");
        assert_ne!(
            answer(address, target),
            answer(daemon.public, target),
            "{target}"
        );
    }
}
