//! nginx beside us: the same bytes from a file, with the same headers.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Answer;

pub const TARGET: &str = "/topic";

/// A running nginx; ended when dropped.
pub struct Nginx {
    pub address: SocketAddr,
    process: Child,
    _directory: TempDir,
}

impl Nginx {
    /// Serves what was answered elsewhere; nothing if nginx is not installed.
    pub fn serve(answer: &Answer) -> Option<Nginx> {
        let directory = TempDir::new().expect("a directory");
        fs::write(directory.path().join("topic"), &answer.body).expect("a file");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let config = directory.path().join("nginx.conf");
        let text = CONFIG
            .replace("DIRECTORY", &directory.path().display().to_string())
            .replace("ADDRESS", &address.to_string())
            .replace("LINK", answer.header("link").expect("links"));
        fs::write(&config, text).expect("a file");
        // What it says of running as root, or not, is no matter here.
        let process = Command::new("nginx")
            .arg("-c")
            .arg(&config)
            .arg("-e")
            .arg(directory.path().join("error.log"))
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let nginx = Nginx {
            address,
            process,
            _directory: directory,
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10)); // poll: it does not report when it listens
        }
        Some(nginx)
    }

    /// The worker processes.
    pub fn workers(&self) -> Vec<u32> {
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.unwrap_or_default();
        children
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it only if it may say goodbye.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// As fast as it gets: two workers, no log, files kept open, connections never dropped. For so small a file
/// `sendfile` costs more than it saves.
const CONFIG: &str = r#"
user root root;
daemon off;
worker_processes 2;
pid DIRECTORY/nginx.pid;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 1000000000;
    open_file_cache max=100;
    open_file_cache_valid 60s;
    client_body_temp_path DIRECTORY/body;
    proxy_temp_path DIRECTORY/proxy;
    fastcgi_temp_path DIRECTORY/fastcgi;
    uwsgi_temp_path DIRECTORY/uwsgi;
    scgi_temp_path DIRECTORY/scgi;
    types {}
    default_type application/xml;
    server {
        listen ADDRESS backlog=4096;
        root DIRECTORY;
        max_ranges 0;
        add_header Link 'LINK';
    }
}
"#;
