//! A flag overrides its environment variable, that the file, and the file the default; `config` prints which one
//! applies.

use std::collections::BTreeSet;
use std::fs;

use clap::CommandFactory;
use rsnotify::cli::options::CommandLine;

use crate::{output, rsnotify};

const SOURCE: &str =
    "[[source]]\nname = \"main\"\nmount = [{ path = \"/file\", url = \"http://file.example/\" }]\n";

/// A flag, what the flag and its variable say, and what the file says; then the effective value without any of them, with
/// the file, with the variable too, and with the flag too.
const CASES: &str = r#"
state-dir | /flag | /variable | state_dir = "/state"
state_dir = "/home/ann/.local/state/rsnotify"  # default
state_dir = "/state"
state_dir = "/variable"  # RSNOTIFY_STATE_DIR
state_dir = "/flag"  # --state-dir
log-level | debug | warn | log.level = "error"
level = "info"  # default
level = "error"
level = "warn"  # RSNOTIFY_LOG_LEVEL
level = "debug"  # --log-level
log-format | human | json | log.format = "json"
format = "human"  # default
format = "json"
format = "json"  # RSNOTIFY_LOG_FORMAT
format = "human"  # --log-format
listen | 127.0.0.1:1 | 127.0.0.2:2 | server.listen = "127.0.0.3:3"
listen = "127.0.0.1:8400"  # default
listen = "127.0.0.3:3"
listen = "127.0.0.2:2"  # RSNOTIFY_LISTEN
listen = "127.0.0.1:1"  # --listen
admin-listen | unix:/flag | [::1]:0 | server.admin_listen = "127.0.0.3:3"
admin_listen = "127.0.0.1:8401"  # default
admin_listen = "127.0.0.3:3"
admin_listen = "[::1]:0"  # RSNOTIFY_ADMIN_LISTEN
admin_listen = "unix:/flag"  # --admin-listen
public-url | http://flag.example | http://variable.example | server.public_url = "http://file.example"
public_url = "http://127.0.0.1:8400/"  # default
public_url = "http://file.example/"
public_url = "http://variable.example/"  # RSNOTIFY_PUBLIC_URL
public_url = "http://flag.example/"  # --public-url
hub | http://flag.example/ | http://variable.example/ | hub = [{ url = "http://file.example/" }]
enabled = true  # default
url = "http://file.example/"
url = "http://variable.example/"  # RSNOTIFY_HUB
url = "http://flag.example/"  # --hub
root url | /flag http://flag.example/ | /variable http://variable.example/ |
mount = [{ path = "/file", url = "http://file.example/", aliases = [] }]
mount = [{ path = "/file", url = "http://file.example/", aliases = [] }]
mount = [{ path = "/variable", url = "http://variable.example/", aliases = [] }]  # RSNOTIFY_ROOT RSNOTIFY_URL
mount = [{ path = "/flag", url = "http://flag.example/", aliases = [] }]  # --root --url
"#;

/// Flags that belong together.
struct Case {
    /// Each with what it says, and what its environment variable says.
    flags: Vec<(&'static str, &'static str, &'static str)>,
    /// What the file says.
    written: &'static str,
    effective: [&'static str; 4],
}

fn cases() -> Vec<Case> {
    let lines: Vec<&str> = CASES.trim().lines().collect();
    let cases = lines.chunks(5).map(|lines| {
        let cells: Vec<&str> = lines[0].split('|').map(str::trim).collect();
        let [flags, by_flag, by_variable, written] = cells[..] else {
            panic!("{lines:?}");
        };
        let said = by_flag.split(' ').zip(by_variable.split(' '));
        let flags = flags.split(' ').zip(said);
        Case {
            flags: flags
                .map(|(flag, (by_flag, by_variable))| (flag, by_flag, by_variable))
                .collect(),
            written,
            effective: lines[1..].try_into().unwrap(),
        }
    });
    cases.collect()
}

#[test]
fn a_flag_counts_before_its_variable_before_the_file_before_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.toml");
    for case in cases() {
        for (sources, want) in case.effective.iter().enumerate() {
            let written = if sources > 0 { case.written } else { "" };
            fs::write(&path, format!("{written}\n{SOURCE}")).unwrap();
            let mut command = rsnotify(&["config", "--config", path.to_str().unwrap()]);
            command.env("HOME", "/home/ann");
            for (flag, by_flag, by_variable) in &case.flags {
                if sources > 1 {
                    let name = flag.to_uppercase().replace('-', "_");
                    command.env(format!("RSNOTIFY_{name}"), by_variable);
                }
                if sources > 2 {
                    command.arg(format!("--{flag}")).arg(by_flag);
                }
            }
            let (code, answer, errors) = output(&mut command);
            assert_eq!(code, Some(0), "{errors}");
            assert!(answer.lines().any(|line| line == *want), "{want}\n{answer}");
        }
    }
}

#[test]
fn the_file_that_is_read_is_named_in_the_same_order() {
    let directory = tempfile::tempdir().unwrap();
    let there = |name: &str| directory.path().join(name).display().to_string();
    let (flag, variable) = (there("flag.toml"), there("variable.toml"));
    for path in [&flag, &variable] {
        fs::write(path, format!("state_dir = \"{path}\"\n{SOURCE}")).unwrap();
    }
    for (arguments, want) in [
        (&["config"][..], &variable),
        (&["config", "--config", &flag], &flag),
    ] {
        let (_, answer, errors) = output(rsnotify(arguments).env("RSNOTIFY_CONFIG", &variable));
        let want = format!("# Without a comment: from {want}.\nstate_dir = \"{want}\"\n");
        assert!(answer.starts_with(&want), "{answer}{errors}");
    }
}

#[test]
fn every_flag_of_run_that_says_what_a_key_says_is_tried_here() {
    let command = CommandLine::command();
    let flags = |name: &str| -> BTreeSet<String> {
        let command = command.find_subcommand(name).unwrap();
        let flags = command.get_arguments().filter_map(|flag| flag.get_long());
        flags.map(str::to_owned).collect()
    };
    let tried = cases().into_iter().flat_map(|case| case.flags);
    let tried: BTreeSet<String> = tried.map(|(flag, _, _)| flag.to_owned()).collect();
    assert_eq!(flags("config"), tried);
    let others = ["dry-run", "log-format", "log-level"].map(str::to_owned);
    assert_eq!(flags("run"), tried.into_iter().chain(others).collect());
}
