//! The checked-in manual pages and completions are those of the command line, the Debian package lists files that exist,
//! and systemd reads the units. `tests/service/run` boots a Debian that uses them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::examples::manifest::text;
use crate::support::daemon::assert_starts_with;
use crate::support::documents::files_below;
use crate::support::needs;

const RENEW: &str = "run packaging/renew and commit what it writes";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The command, somewhere else, in a narrow terminal, and configured: what it prints may not depend on that.
fn rsnotify(arguments: &[&str], directory: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_rsnotify"))
        .args(arguments)
        .current_dir(directory)
        .env("COLUMNS", "20")
        .env("LANG", "de_DE.UTF-8")
        .env("RSNOTIFY_CONFIG", "/nowhere")
        .env("RSNOTIFY_LISTEN", "127.0.0.1:1")
        .env("STATE_DIRECTORY", "/nowhere")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    output
}

#[test]
fn the_manual_pages_are_those_of_the_command_line() {
    let elsewhere = TempDir::new().unwrap();
    let directory = elsewhere.path().join("made/on/the/way");
    rsnotify(&["man", directory.to_str().unwrap()], elsewhere.path());
    let written_now = files_below(&directory);
    let kept = files_below(&repository().join("packaging/man"));
    let names: Vec<_> = written_now.keys().collect();
    assert!(names.contains(&&"rsnotify.1".into()), "{names:?}");
    assert_eq!(names, kept.keys().collect::<Vec<_>>(), "{RENEW}");
    for (name, page) in &written_now {
        assert!(page == &kept[name], "{}: {RENEW}", name.display());
    }
    let main = rsnotify(&["man"], elsewhere.path()).stdout;
    assert!(main == kept[Path::new("rsnotify.1")], "rsnotify.1");
}

#[test]
fn the_completions_are_those_of_the_command_line() {
    let elsewhere = TempDir::new().unwrap();
    for (shell, file) in [
        ("bash", "rsnotify.bash"),
        ("zsh", "_rsnotify"),
        ("fish", "rsnotify.fish"),
    ] {
        let script = rsnotify(&["completions", shell], elsewhere.path()).stdout;
        let kept = text(&format!("packaging/completions/{file}"));
        assert_eq!(String::from_utf8(script).unwrap(), kept, "{file}: {RENEW}");
    }
}

#[test]
fn manual_pages_are_typeset_without_a_warning() {
    let Some(groff) = needs::program("groff") else {
        return;
    };
    for name in files_below(&repository().join("packaging/man")).keys() {
        let page = repository().join("packaging/man").join(name);
        let output = Command::new(&groff)
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(page)
            .output()
            .unwrap();
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{warnings}");
    }
}

fn manifest() -> toml::Table {
    text("Cargo.toml").parse().unwrap()
}

#[test]
fn each_file_of_the_debian_package_is_there() {
    let deb = manifest()["package"]["metadata"]["deb"].clone();
    let is_there = |source: &str| {
        // A pattern's directory is what can be missing; lintian sees to the rest.
        let parts = Path::new(source).components();
        let plain = parts.take_while(|part| !part.as_os_str().to_string_lossy().contains('*'));
        repository().join(plain.collect::<PathBuf>()).exists()
    };
    for asset in deb["assets"].as_array().unwrap() {
        let source = asset[0].as_str().unwrap();
        assert!(
            source.starts_with("target/") || is_there(source),
            "{source}"
        );
    }
    for key in ["maintainer-scripts", "changelog"] {
        let path = deb[key].as_str().unwrap();
        assert!(is_there(path), "{path}");
    }
}

#[test]
fn the_debian_changelog_begins_with_this_version() {
    let manifest = manifest();
    let version = manifest["workspace"]["package"]["version"].as_str();
    let version = version.unwrap();
    let changelog = text("packaging/deb/changelog");
    assert_starts_with(&changelog, &format!("rsnotify ({version}-"));
}

#[test]
fn what_tests_may_lack_is_installed_before_all_of_them_are_run() {
    let script = text(".ci/run");
    for need in needs::NEEDS {
        for package in need.packages.split(' ') {
            let is_installed = script.lines().any(|line| {
                let mut words = line.split_whitespace();
                let is_needed = words.next() == Some("need") && words.next() == Some(package);
                is_needed || line.contains(&format!("apt-get download {package}"))
            });
            assert!(
                is_installed,
                ".ci/run does not install {package} for {}",
                need.program
            );
        }
    }
}

const SERVICE: &str = "rsnotify.service";
const SOCKET: &str = "rsnotify.socket";

fn unit(name: &str) -> String {
    text(&format!("systemd/{name}"))
}

/// Units as they are where rsnotify is installed: with a program to start.
fn installed() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in [SERVICE, SOCKET] {
        let unit = unit(name).replace("/usr/bin/rsnotify", env!("CARGO_BIN_EXE_rsnotify"));
        fs::write(folder.path().join(name), unit).unwrap();
    }
    folder
}

/// Returns the result of `systemd-analyze` and its output; `None` where it is not installed.
fn analyzed(arguments: &[&str], units: &[&str]) -> Option<(bool, String)> {
    let analyze = needs::program("systemd-analyze")?;
    let folder = installed();
    let mut command = Command::new(analyze);
    command.args(arguments).env("SYSTEMD_COLORS", "0");
    command.args(units.iter().map(|name| folder.path().join(name)));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Some((output.status.success(), said))
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    // It looks whether what a unit runs is there.
    let Some(_) = needs::program("kill") else {
        return;
    };
    let verified = analyzed(&["verify", "--man=no"], &[SERVICE, SOCKET]);
    assert_eq!(
        verified.unwrap_or((true, String::new())),
        (true, String::new())
    );
}

#[test]
fn the_service_is_exposed_to_little() {
    // In tenths.
    let arguments = ["security", "--offline=true", "--no-pager", "--threshold=15"];
    if let Some((is_safe, said)) = analyzed(&arguments, &[SERVICE]) {
        let overall = said.lines().find(|line| line.contains("Overall"));
        assert!(is_safe, "{said}");
        assert!(overall.is_some(), "{said}");
    }
}

#[test]
fn the_socket_takes_the_place_of_what_the_service_listens_on_by_itself() {
    let socket = unit(SOCKET);
    for line in ["ListenStream=127.0.0.1:8400", "FileDescriptorName=public"] {
        assert!(socket.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn the_services_dump_no_core_and_have_a_limit_of_memory() {
    for name in [SERVICE, "rsnotify-hub.service"] {
        let service = unit(name);
        for line in ["LimitCORE=0", "MemoryMax=2G"] {
            assert!(service.lines().any(|found| found == line), "{name}: {line}");
        }
    }
}
