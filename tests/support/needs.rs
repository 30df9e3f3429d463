//! Programs and permissions that some tests need and not every machine has: if one is missing, the test is recorded as
//! skipped.
//!
//! Test programs share this file. Each writes its records below `target`, and `tests/zz_skipped.rs`, the last one
//! that `cargo test` runs, prints them. Where `CI` is set, a missing program is a failure.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A program that only some tests need.
pub struct Need {
    pub program: &'static str,
    /// The packages of Debian that have it.
    pub packages: &'static str,
}

/// Every program that a test may ask for. `.ci/run` installs each; a test compares.
pub const NEEDS: [Need; 23] = [
    need("activemq", "activemq libactivemq-java"),
    need("apache2", "apache2-bin"),
    need("caddy", "caddy"),
    need("chromedriver", "chromium-driver"),
    need("chromium", "chromium"),
    need("curl", "curl"),
    need("git", "git"),
    need("groff", "groff-base"),
    need("java", "default-jre-headless"),
    need("javac", "default-jdk-headless"),
    need("kill", "procps"),
    need("nginx", "nginx-light"),
    need("patch", "patch"),
    need("promtool", "prometheus"),
    need("python3", "python3"),
    need("rabbitmq-server", "rabbitmq-server"),
    need("rsync", "rsync"),
    need("script", "bsdutils"),
    need("setpriv", "util-linux"),
    need("sqlite3", "sqlite3"),
    need("systemd-analyze", "systemd"),
    need("unshare", "util-linux mount"),
    need("xmllint", "libxml2-utils"),
];

const fn need(program: &'static str, packages: &'static str) -> Need {
    Need { program, packages }
}

/// Returns the path of a program of [`NEEDS`]. If it is not installed, the calling test is recorded as skipped.
#[track_caller]
pub fn program(name: &str) -> Option<PathBuf> {
    let need = NEEDS.iter().find(|need| need.program == name);
    let need = need.unwrap_or_else(|| panic!("{name} is not in tests/support/needs.rs"));
    let found = find(name);
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no {name}");
        skip(&format!("there is no {name}"), need.packages);
    }
    found
}

/// Records the calling test as skipped; `packages` are those that would help, if any would.
pub fn skip(reason: &str, packages: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a hash.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    // Not `eprintln!`, which the test runner keeps to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {program} {test}: {reason}");
    let path = records();
    let _ = path.parent().map(fs::create_dir_all);
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One write, so that records of several threads do not mix.
    let record = format!("{reason}\t{packages}\t{program} {test}\n");
    let _ = file.and_then(|mut file| file.write_all(record.as_bytes()));
}

/// The file of what this run of `cargo test` has skipped. All its programs have one parent, which is named by its
/// process id and by when it started, because ids are used again.
pub fn records() -> PathBuf {
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    // What stands in parentheses may hold anything; the start is the 20th field behind it.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let started = fields.split_whitespace().nth(19).unwrap_or("0");
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("skipped/{parent}-{started}"))
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Not in everybody's PATH, and servers are there.
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = directories.map(|directory| directory.join(name));
    files.find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}
