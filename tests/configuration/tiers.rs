//! `check --no-environment` reads only the configuration and its secrets: a broken tree or a hub that is down must not
//! keep a service from starting.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use tempfile::TempDir;

use crate::{output, rsnotify};

/// A configuration whose tree and hub are of no use.
struct Setup {
    directory: TempDir,
    /// Takes connections and never answers.
    hub: TcpListener,
}

impl Setup {
    fn new() -> Setup {
        let directory = tempfile::tempdir().unwrap();
        let hub = TcpListener::bind("127.0.0.1:0").unwrap();
        hub.set_nonblocking(true).unwrap();
        let setup = Setup { directory, hub };
        fs::create_dir(setup.path("tree")).unwrap();
        fs::write(setup.path("tree/broken.xml"), "<urlset").unwrap();
        let pipe = Command::new("mkfifo")
            .arg(setup.path("tree/pipe.xml"))
            .status();
        assert!(pipe.unwrap().success());
        fs::write(setup.path("token"), "hunter2").unwrap();
        let address = setup.hub.local_addr().unwrap();
        let text = format!(
            "state_dir = \"state\"\n[server]\npublic_url = \"http://127.0.0.1:1/\"\n\
             [[source]]\nname = \"main\"\nsettle = \"0s\"\nbroken_after = \"0s\"\n\
             mount = [{{ path = \"tree\", url = \"https://e.org/\" }}]\n\
             [[hub]]\nurl = \"http://{address}/\"\ntimeout = \"200ms\"\nproxy = \"none\"\n\
             bearer_token_file = \"token\"\n"
        );
        fs::write(setup.path("config.toml"), text).unwrap();
        setup
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.directory.path().join(below)
    }

    fn check(&self, flags: &[&str]) -> (Option<i32>, String, String) {
        let file = self.path("config.toml");
        output(rsnotify(&["check", "--config", file.to_str().unwrap()]).args(flags))
    }

    /// Whether anybody has asked the hub anything.
    fn hub_was_asked(&self) -> bool {
        self.hub.accept().is_ok()
    }
}

#[test]
fn a_broken_tree_and_a_dead_hub_keep_no_service_down() {
    let setup = Setup::new();
    let fine = || {
        (
            Some(0),
            "the configuration is fine\n".to_owned(),
            String::new(),
        )
    };
    assert_eq!(setup.check(&["--no-environment"]), fine());
    fs::remove_dir_all(setup.path("tree")).unwrap();
    assert_eq!(setup.check(&["--no-environment"]), fine());
    assert!(!setup.hub_was_asked());
    assert!(!setup.path("state").exists());
}

#[test]
fn what_run_could_not_start_with_is_found_with_and_without_the_flag() {
    let setup = Setup::new();
    fs::remove_file(setup.path("token")).unwrap();
    for flags in [&["--no-environment"][..], &[]] {
        let (code, _, errors) = setup.check(flags);
        assert_eq!(code, Some(78), "{errors}");
        let is_named = errors.contains("hub.bearer_token_file: cannot read");
        assert!(is_named, "{errors}");
    }
    assert!(!setup.hub_was_asked());
}
