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

#[test]
fn the_schema_refuses_what_the_loader_refuses() {
    let validator = validator();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    fs::write(directory.path().join("token"), "hunter2").unwrap();
    let hub = "[[hub]]\nurl = \"https://h.example/\"\n";
    let channel = "[[channel]]\ncapability_list = \"https://e.org/c\"\n";
    // What follows a source, and whether it is accepted.
    for (more, is_right) in [
        ("", true),
        ("setle = \"1s\"", false),
        ("settle = \"1s\"", true),
        ("settle = \"1 s\"", false),
        ("settle = \"-1s\"", false),
        ("settle = 1", false),
        ("watch = \"poll\"", true),
        ("watch = \"pool\"", false),
        ("include = []", false),
        ("include = [\"*.xml\"]", true),
        ("include = [\"/a\"]", false),
        ("include = \"*.xml\"", false),
        ("mass_deletion = \"never\"", true),
        ("mass_deletion = \"7%\"", true),
        ("mass_deletion = \"100%\"", true),
        ("mass_deletion = \"101%\"", false),
        ("mass_deletion = \"7\"", false),
        ("announce_existing = true", true),
        ("announce_existing = \"true\"", false),
        ("[[source]]\nname = \"b\"", false),
        (
            "[[source]]\nmount = [{ path = \"/b\", url = \"https://b.example\" }]",
            false,
        ),
        (
            "[[source]]\nname = \"b/c\"\nmount = [{ path = \"/b\", url = \"https://b.example\" }]",
            false,
        ),
        (
            "[[source]]\nname = \"b\"\nmount = [{ path = \"/b\" }]",
            false,
        ),
        (
            "[[source]]\nname = \"b\"\nmount = [{ path = \"/b\", url = \"b.example\" }]",
            false,
        ),
        (
            "[[source]]\nname = \"b\"\nmount = [{ path = \"/b\", url = \"HTTP://b.example/c\" }]",
            true,
        ),
        (
            "[[source]]\nname = \"b\"\nmount = [{ path = \"/b\", url = \"https://b.example/?c\" }]",
            false,
        ),
        ("[server]\nlisten = \"127.0.0.1:0\"", true),
        (
            "[server]\nlisten = \"[fe80::1%2]:80\"\npublic_url = \"https://e.org/\"",
            true,
        ),
        ("[server]\nlisten = \"localhost:80\"", false),
        ("[server]\nadmin_listen = \"unix:/run/a\"", true),
        ("[server]\nadmin_listen = \"8401\"", false),
        ("[sever]", false),
        ("[[window]]\nmax_entries = 5", false),
        ("[hub]\nurl = \"https://h.example/\"", false),
        ("[window]\nmax_entries = 50000", true),
        ("[window]\nmax_entries = 50001", false),
        ("[window]\nmax_entries = 0", false),
        ("[window]\nquiet = \"0s\"", true),
        (hub, true),
        ("[[hub]]", false),
        ("[[hub]]\nurl = \"ws://h.example/\"", false),
        ("[[hub]]\nurl = \"https://h.example/ \"", false),
        (&format!("{hub}mode = \"content-query\""), true),
        (&format!("{hub}mode = \"query\""), false),
        (&format!("{hub}bearer_token_file = \"token\""), true),
        (
            &format!("{hub}bearer_token_file = {{ file = \"token\" }}"),
            true,
        ),
        (
            &format!("{hub}bearer_token_file = {{ env = \"TOKEN\" }}"),
            true,
        ),
        (
            &format!("{hub}bearer_token_file = {{ value = \"token\" }}"),
            false,
        ),
        (&format!("{hub}bearer_token_file = 1"), false),
        (
            &format!("{hub}headers = {{ A = \"b\", C = {{ file = \"token\" }} }}"),
            true,
        ),
        (&format!("{hub}headers = {{ A = [\"b\"] }}"), false),
        (&format!("{hub}proxy = \"none\""), true),
        (&format!("{hub}proxy = \"http://[::1]:3128/\""), true),
        (&format!("{hub}proxy = \"http://a:b@p.example/\""), false),
        (&format!("{hub}proxy = \"https://p.example/\""), false),
        ("[embedded_hub]\nenabled = true", true),
        ("[embedded_hub]\npath = \"hub\"", false),
        (
            "[embedded_hub]\ncallback_ports = [\"1-65535\", \"80\"]",
            true,
        ),
        ("[embedded_hub]\ncallback_ports = [80]", false),
        ("[embedded_hub]\ncallback_ports = []", false),
        (
            "[embedded_hub]\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]",
            true,
        ),
        ("[embedded_hub]\ntrusted_proxies = [\"proxy\"]", false),
        ("[embedded_hub]\nmax_subscriptions = 4294967295", true),
        ("[embedded_hub]\nmax_subscriptions = 4294967296", false),
        (channel, false),
        (&format!("{channel}topic = \"https://e.org/t?a\""), true),
        (&format!("{channel}topic = \"https://e.org/t#a\""), false),
        (
            &format!("{channel}topic = \"https://e.org/t\"\nhub = []"),
            false,
        ),
    ] {
        let file = format!("state_dir = \"s\"\n{SOURCE}{more}\n");
        fs::write(&path, &file).unwrap();
        let check = [
            "check",
            "--no-environment",
            "--config",
            path.to_str().unwrap(),
        ];
        let (code, _, errors) = output(rsnotify(&check).env("TOKEN", "hunter2"));
        let want = if is_right { Some(0) } else { Some(78) };
        assert_eq!(code, want, "{more}\n{errors}");
        let problems = problems(&validator, &file);
        assert_eq!(
            problems.is_empty(),
            is_right,
            "{more}\n{problems:?}\n{errors}"
        );
    }
}
