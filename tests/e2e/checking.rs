//! `check` finds the usual mistakes of a new installation.

mod front;
mod hubs;
mod machine;

use std::process::Command;

use serde_json::Value;

use crate::support::daemon::{Setup, assert_contains, output};

/// The channel of the site's only set, so that it advertises nothing and lacks nothing.
const CHANNEL: &str = "[[channel]]\ncapability_list = \"https://source.example/a/capabilitylist.xml\"\n\
                       topic = \"https://source.example/a/framework/\"\n";

/// The output of `check --json`, with its exit code.
struct Checked {
    code: Option<i32>,
    findings: Vec<String>,
    notes: Vec<String>,
}

fn check(setup: &Setup) -> Checked {
    check_by(setup.command("check").arg("--json"))
}

fn check_by(command: &mut Command) -> Checked {
    let (code, stdout, stderr) = output(command);
    let answer: Value = serde_json::from_str(&stdout)
        .unwrap_or_else(|error| panic!("{error}: {code:?} {stdout}{stderr}"));
    assert_eq!(answer["version"], 1);
    assert!(answer["documents"].is_u64(), "{answer}");
    let list = |key: &str| {
        let list = answer[key].as_array().unwrap().iter();
        list.map(|line| line.as_str().unwrap().to_owned()).collect()
    };
    Checked {
        code,
        findings: list("findings"),
        notes: list("notes"),
    }
}

impl Checked {
    /// Nothing is wrong.
    fn is_fine(&self) {
        assert_eq!(self.findings, [""; 0]);
        assert_eq!(self.code, Some(0));
    }

    /// This and nothing else is wrong.
    fn found(&self, words: &[&str]) {
        assert_eq!(self.findings.len(), words.len(), "{:#?}", self.findings);
        for (finding, words) in self.findings.iter().zip(words) {
            assert_contains(finding, words);
        }
        assert_eq!(self.code, Some(1));
    }

    /// This is noted, among other things.
    fn noted(&self, words: &str) {
        let noted = self.notes.iter().any(|note| note.contains(words));
        assert!(noted, "{words}: {:#?}", self.notes);
    }
}
