//! The last output of `cargo test`: the skipped tests, the reasons, and the packages to install. Cargo runs test
//! programs in the order of their names, so this one's name begins with `zz`.

#[expect(dead_code, reason = "only what the others wrote is read")]
#[path = "support/needs.rs"]
mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Age at which records of an interrupted run are deleted.
const KEPT: Duration = Duration::from_secs(86_400);

fn main() {
    // Asked by other runners than cargo.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let path = needs::records();
    let records = fs::read_to_string(&path).unwrap_or_default();
    print!("{}", summary(&records));
    let _ = fs::remove_file(&path);
    path.parent().map(forget_old);
}

/// Returns the summary of records, each a line of reason, packages and test.
fn summary(records: &str) -> String {
    let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut packages = BTreeSet::new();
    for record in records.lines() {
        if let [reason, wanted, test] = record.split('\t').collect::<Vec<_>>()[..] {
            reasons.entry(reason).or_default().insert(test);
            packages.extend(wanted.split_whitespace());
        }
    }
    if reasons.is_empty() {
        return "\nno test was skipped\n".to_owned();
    }
    let all: BTreeSet<&str> = reasons.values().flatten().copied().collect();
    let mut text = format!("\nskipped, wholly or in part: {}\n", counted(all.len()));
    for (reason, tests) in &reasons {
        let example = tests.first().copied().unwrap_or_default();
        let rest = match tests.len() - 1 {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        text += &format!("  {reason}: {example}{rest}\n");
    }
    if !packages.is_empty() {
        let packages: Vec<&str> = packages.into_iter().collect();
        let packages = packages.join(" ");
        text += &format!(
            "to run them too: `.ci/run`, which installs everything, or as root\n  \
             apt-get install --no-install-recommends {packages}\n"
        );
    }
    text
}

fn counted(tests: usize) -> String {
    match tests {
        1 => "1 test".to_owned(),
        tests => format!("{tests} tests"),
    }
}

/// Deletes the records of runs that never came so far.
fn forget_old(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        if age.is_some_and(|age| age > KEPT) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
