//! The JSON Schema of the configuration file accepts and refuses what rsnotify does, as far as a schema can.

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::Value;

use crate::{example_in_full, output, rsnotify, text};

fn schema() -> Value {
    serde_json::from_str(&text("config.schema.json")).unwrap()
}

fn validator() -> Validator {
    jsonschema::draft7::new(&schema()).unwrap()
}

/// What the schema finds wrong with a file.
fn problems(validator: &Validator, file: &str) -> Vec<String> {
    let file: Value = toml::from_str(file).unwrap();
    let errors = validator.iter_errors(&file);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn the_schema_that_is_checked_in_is_the_one_that_the_command_prints() {
    let (code, printed, errors) = output(&mut rsnotify(&["schema"]));
    assert_eq!(code, Some(0), "{errors}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert!(
        printed == schema(),
        "config.schema.json is stale: cargo run -- schema > config.schema.json"
    );
    jsonschema::draft7::meta::validate(&printed).unwrap();
    // Some editors know no newer draft than this.
    jsonschema::draft4::meta::validate(&printed).unwrap();
}

/// Every file below a directory of the repository that is a configuration of rsnotify.
fn configurations(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            configurations(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && fs::read_to_string(&path).unwrap().contains("[[source]]")
        {
            found.push(path);
        }
    }
}

#[test]
fn every_example_in_the_repository_is_accepted() {
    let validator = validator();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("config.example.toml")];
    for directory in ["docs", "examples", "packaging", "systemd"] {
        let directory = root.join(directory);
        if directory.is_dir() {
            configurations(&directory, &mut files);
        }
    }
    for path in files {
        let file = fs::read_to_string(&path).unwrap();
        assert_eq!(problems(&validator, &file), [""; 0], "{}", path.display());
    }
    assert_eq!(problems(&validator, &example_in_full()), [""; 0]);
}

const SOURCE: &str =
    "[[source]]\nname = \"main\"\nmount = [{ path = \"/a\", url = \"https://e.org\" }]\n";

/// What may follow a source; a slash between spaces is the end of a line.
const ACCEPTED: &str = r#"
settle = "1s"
watch = "poll"
include = ["*.xml"]
mass_deletion = "never"
mass_deletion = "7%"
mass_deletion = "100%"
announce_existing = true
[[source]] / name = "b" / mount = [{ path = "/b", url = "HTTP://b.example/c" }]
[server] / listen = "127.0.0.1:0"
[server] / listen = "[fe80::1%2]:80" / public_url = "https://e.org/"
[server] / admin_listen = "unix:/run/a"
[window] / max_entries = 50000
[window] / quiet = "0s"
[[hub]] / url = "https://h.example/"
[[hub]] / url = "https://h.example/" / mode = "content-query"
[[hub]] / url = "https://h.example/" / bearer_token_file = "token"
[[hub]] / url = "https://h.example/" / bearer_token_file = { file = "token" }
[[hub]] / url = "https://h.example/" / bearer_token_file = { env = "TOKEN" }
[[hub]] / url = "https://h.example/" / headers = { A = "b", C = { file = "token" } }
[[hub]] / url = "https://h.example/" / proxy = "none"
[[hub]] / url = "https://h.example/" / proxy = "http://[::1]:3128/"
[embedded_hub] / enabled = true
[embedded_hub] / callback_ports = ["1-65535", "80"]
[embedded_hub] / trusted_proxies = ["10.0.0.0/8", "::1"]
[embedded_hub] / max_subscriptions = 4294967295
[[channel]] / capability_list = "https://e.org/c" / topic = "https://e.org/t?a"
"#;

/// What may not.
const REFUSED: &str = r#"
setle = "1s"
settle = "1 s"
settle = "-1s"
settle = 1
watch = "pool"
include = []
include = ["/a"]
include = "*.xml"
mass_deletion = "101%"
mass_deletion = "7"
announce_existing = "true"
[[source]] / name = "b"
[[source]] / mount = [{ path = "/b", url = "https://b.example" }]
[[source]] / name = "b/c" / mount = [{ path = "/b", url = "https://b.example" }]
[[source]] / name = "b" / mount = [{ path = "/b" }]
[[source]] / name = "b" / mount = [{ path = "/b", url = "b.example" }]
[[source]] / name = "b" / mount = [{ path = "/b", url = "https://b.example/?c" }]
[server] / listen = "localhost:80"
[server] / admin_listen = "8401"
[sever]
[[window]] / max_entries = 5
[hub] / url = "https://h.example/"
[window] / max_entries = 50001
[window] / max_entries = 0
[[hub]]
[[hub]] / url = "ws://h.example/"
[[hub]] / url = "https://h.example/ "
[[hub]] / url = "https://h.example/" / mode = "query"
[[hub]] / url = "https://h.example/" / bearer_token_file = { value = "token" }
[[hub]] / url = "https://h.example/" / bearer_token_file = 1
[[hub]] / url = "https://h.example/" / headers = { A = ["b"] }
[[hub]] / url = "https://h.example/" / proxy = "http://a:b@p.example/"
[[hub]] / url = "https://h.example/" / proxy = "https://p.example/"
[embedded_hub] / path = "hub"
[embedded_hub] / callback_ports = [80]
[embedded_hub] / callback_ports = []
[embedded_hub] / trusted_proxies = ["proxy"]
[embedded_hub] / max_subscriptions = 4294967296
[[channel]] / capability_list = "https://e.org/c"
[[channel]] / capability_list = "https://e.org/c" / topic = "https://e.org/t#a"
[[channel]] / capability_list = "https://e.org/c" / topic = "https://e.org/t" / hub = []
"#;

#[test]
fn the_schema_refuses_what_the_loader_refuses() {
    let validator = validator();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    fs::write(directory.path().join("token"), "hunter2").unwrap();
    // Nothing may follow too.
    let accepted = ACCEPTED.trim_end().lines().map(|more| (more, true));
    let refused = REFUSED.trim().lines().map(|more| (more, false));
    for (more, is_right) in accepted.chain(refused) {
        let more = more.replace(" / ", "\n");
        let file = format!("state_dir = \"s\"\n{SOURCE}{more}\n");
        fs::write(&path, &file).unwrap();
        let mut check = rsnotify(&["check", "--no-environment", "--config"]);
        let (code, _, errors) = output(check.arg(&path).env("TOKEN", "hunter2"));
        let want = if is_right { Some(0) } else { Some(78) };
        assert_eq!(code, want, "{more}\n{errors}");
        let problems = problems(&validator, &file);
        assert_eq!(problems.is_empty(), is_right, "{more}\n{problems:?}");
    }
}
