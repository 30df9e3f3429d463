//! House rules that a machine can check: permitted dependencies of folders, purity, and the map in ARCHITECTURE.md.

#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

#[path = "tidy/logging.rs"]
mod logging;
#[path = "tidy/packages.rs"]
mod packages;
#[path = "tidy/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use regex::Regex;

use source::{code_files, feature_modules, repository, source_files};

/// The folders of `src/` that may use only some of the others, and of them those that may use the [state](STATE). What the
/// crates may use is in their `Cargo.toml`.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("report", &[STATE]),
    ("diagnostics", &["report"]),
    ("tree", &PURE),
    ("admin", &PURE),
    ("control", &PURE),
    // It makes the settings of the others.
    ("config", &["tree"]),
];

/// The module of a pure crate that is no pure one: it opens the database, and has its statements.
const STATE: &str = "announce::state";

/// The parts of `src/` that join the others, and may use all of them.
const JOINING: [&str; 4] = ["cli", "daemon", "lib", "main"];

/// The folders of `src/` that know no clock, disk, network, randomness or logging.
const PURE: [&str; 2] = ["report", "diagnostics"];

/// Pure parts that work on the state: on the transaction that they are given, not on its file.
const ON_THE_STATE: [&str; 2] = ["announce", "report"];

/// The crates that know none either, but for the state and for modules that a feature adds.
const PURE_CRATES: [&str; 4] = ["announce", "messaging", "resourcesync", "websub"];

/// Paths, types and macros of the outside world, banned in pure folders.
const IMPURE: &str = "std::env std::fs std::net std::os std::process std::thread Timestamp::now \
    Zoned::now SystemTime Instant OsRng RandomState thread_rng axum:: fastrand:: getrandom:: \
    inotify:: notify:: prometheus_client:: rand:: reqwest:: rusqlite:: rustix:: sd_notify:: \
    state::open tokio:: tower_http:: tracing:: tracing_subscriber:: uuid:: dbg! eprint! eprintln! \
    print! println! include_str! include_bytes! thread_local!";

/// Names banned in the folder that reads the published tree: nothing there is written, locked or leased,
/// because a generator would notice it.
const TOUCHING: &str = "WRONLY RDWR CREATE OpenOptions File::create create_dir fcntl flock \
    lock_shared try_lock mmap fs::remove_dir fs::remove_file unlink fs::rename set_permissions \
    fs::write write_all";

/// Lines of code that the parts of `src/` and the crates may have, without comments, tests and the inside of long texts.
/// A part that grows needs a reason in its commit; one that shrank keeps [`SLACK`] at most.
const BUDGETS: [(&str, usize); 15] = [
    ("admin", 1_010),
    ("announce", 10_300),
    ("cli", 4_710),
    ("config", 2_690),
    ("control", 270),
    ("daemon", 3_240),
    ("destination", 2_780),
    ("diagnostics", 830),
    ("lib", 10),
    ("main", 10),
    ("messaging", 1_510),
    ("report", 2_100),
    ("resourcesync", 4_580),
    ("tree", 3_770),
    ("websub", 7_630),
];

/// Lines by which a part may stay below its budget.
const SLACK: usize = 100;

/// Texts banned everywhere, tests included.
const NOWHERE: [(&str, &str); 6] = [
    ("super::super", "name the module from crate::"),
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("#[ignore", "a test runs, or is deleted"),
    ("iif(", "write CASE, which other databases have too"),
    ("OR REPLACE", "write ON CONFLICT with its columns"),
];

/// Returns true if the code contains `word`, not as a part of a longer name or path.
fn says(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && (word.ends_with(['!', ':']) || !after.is_some_and(is_name))
    })
}

/// Returns the parts that a line names after `crate::`.
fn parts_used(code: &str) -> impl Iterator<Item = &str> {
    static PART: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"crate::(\w*)").unwrap());
    let parts = PART.captures_iter(code).map(|part| part.extract());
    parts.map(|(_, [name])| name)
}

fn report(rule: &str, failures: &[String]) {
    assert!(
        failures.is_empty(),
        "\n\n{rule}:\n  {}\n",
        failures.join("\n  ")
    );
}

#[test]
fn folders_use_only_what_they_may() {
    let mut failures = Vec::new();
    for file in source_files(&["src"]) {
        let Some((folder, may_use)) = MAY_USE.iter().find(|(part, _)| file.part() == Some(part))
        else {
            continue;
        };
        for (number, code) in file.production() {
            let state = says(code, STATE).then_some(STATE);
            for used in parts_used(code).chain(state) {
                if used.is_empty() {
                    let words = "write crate::NAME, so that this test can read it";
                    failures.push(file.at(number, words));
                } else if used != *folder && !may_use.contains(&used) {
                    failures.push(file.at(number, format!("{folder} uses {used}")));
                }
            }
            let top = format!("src/{folder}");
            let is_top = file.path == format!("{top}/mod.rs") || file.path == format!("{top}.rs");
            if is_top && says(code, "super") && !code.contains("pub(super)") {
                failures.push(file.at(number, format!("{folder} reaches out by super")));
            }
        }
    }
    report(
        "A folder uses another that it may not (tests/tidy.rs, MAY_USE)",
        &failures,
    );
}

#[test]
fn pure_folders_have_no_access_to_the_outside() {
    let mut failures = Vec::new();
    let files = code_files();
    let mut adaptors = feature_modules(&files);
    adaptors.insert(STATE.to_owned());
    for file in files {
        let is_adaptor = file.crate_module().is_some_and(|module| {
            let is_within = |adaptor: &String| says(&module, adaptor);
            adaptors.iter().any(is_within)
        });
        let is_pure = |part| PURE.contains(&part) || PURE_CRATES.contains(&part);
        if is_adaptor || !file.part().is_some_and(is_pure) {
            continue;
        }
        let is_on_the_state = file.part().is_some_and(|part| ON_THE_STATE.contains(&part));
        for (number, code) in file.production() {
            // The bytes of a path, which touch nothing.
            let code = &code.replace("std::os::unix::ffi::", "");
            let is_banned =
                |word: &str| says(code, word) && !(is_on_the_state && word == "rusqlite::");
            for word in IMPURE.split(' ').filter(|word| is_banned(word)) {
                failures.push(file.at(number, word));
            }
            for group in code.split("std::{").skip(1) {
                failures.push(file.at(number, format!("std::{{{group} hides what it uses")));
            }
        }
    }
    report(
        "A pure folder has a clock, disk, network, randomness or logging",
        &failures,
    );
}

#[test]
fn only_joining_parts_use_adaptors_of_crates() {
    let mut failures = Vec::new();
    let files = code_files();
    let adaptors = feature_modules(&files);
    assert!(adaptors.contains("websub::http"), "{adaptors:?}");
    for file in files {
        // The configuration makes their settings.
        let is_checked = |part| !JOINING.contains(&part) && part != "config";
        let is_checked = file.part().is_some_and(is_checked);
        if !is_checked || file.crate_module().is_some() {
            continue;
        }
        for (number, code) in file.production() {
            for module in adaptors.iter().filter(|module| says(code, module)) {
                failures.push(file.at(number, module));
            }
        }
    }
    report(
        "Only daemon, cli and config use the adaptors of crates",
        &failures,
    );
}

#[test]
fn the_published_tree_is_only_read() {
    let mut failures = Vec::new();
    for file in source_files(&["src"]) {
        // The eventfd that ends the inotify thread is written, and `CREATE` is an event's name there.
        if file.part() != Some("tree") || file.path == "src/tree/inotify.rs" {
            continue;
        }
        for (number, code) in file.production() {
            for word in TOUCHING.split(' ').filter(|word| says(code, word)) {
                failures.push(file.at(number, word));
            }
        }
    }
    report("The published tree may only be read", &failures);
}

#[test]
fn every_file_begins_with_a_comment_on_its_purpose() {
    let mut files = source_files(&["src", "crates", "tests", "benches", "examples", "fuzz"]);
    files.retain(|file| !file.text.starts_with("//! "));
    let failures: Vec<String> = files.into_iter().map(|file| file.path).collect();
    report("The first line is not a //! comment", &failures);
}

#[test]
fn banned_texts_are_absent() {
    let mut failures = Vec::new();
    for file in source_files(&["src", "crates", "tests", "benches"]) {
        for (number, line) in (1..).zip(&file.lines) {
            let code = line.code.as_str();
            for (word, instead) in NOWHERE.iter().filter(|(word, _)| code.contains(word)) {
                failures.push(file.at(number, format!("{word}: {instead}")));
            }
            if code.contains("#[allow") || code.contains("#![allow") {
                let words = "#[allow: write #[expect(.., reason = ..)]";
                failures.push(file.at(number, words));
            }
            if line.is_test {
                continue;
            }
            if code.contains(".unwrap()") {
                failures.push(file.at(number, ".unwrap() outside tests"));
            }
            let item = code.trim_start();
            let is_use = item.starts_with("use ") || item.starts_with("pub use ");
            if is_use && code.contains("::*") {
                failures.push(file.at(number, "name what you use instead of *"));
            }
        }
    }
    report("A house rule bans this", &failures);
}

#[test]
fn no_two_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in code_files() {
        for (at, line) in file.lines.iter().enumerate() {
            if let Some(name) = named_type(&line.code) {
                let place = format!("{}:{}", file.path, at + 1);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    let shared = places.iter().filter(|(_, places)| places.len() > 1);
    let failures: Vec<String> = shared
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    report("Types share a name: say which is which", &failures);
}

#[test]
fn no_two_files_of_a_folder_differ_only_in_an_ending() {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in code_files() {
        let path = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
        // A file and the folder of its parts have one name.
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let path = &path[..at];
            let endings = ["ing", "er", "ed", "es", "s", "e"];
            let stem = endings.iter().find_map(|ending| path.strip_suffix(ending));
            let stem = stem.unwrap_or(path).to_owned();
            names.entry(stem).or_default().insert(path.to_owned());
        }
    }
    let alike = names.into_values().filter(|paths| paths.len() > 1);
    let failures: Vec<String> = alike
        .map(|paths| paths.into_iter().collect::<Vec<_>>().join(" and "))
        .collect();
    report("Files of one folder differ only in an ending", &failures);
}

/// Returns the name of the type that an item in this line of a module declares.
fn named_type(code: &str) -> Option<&str> {
    static TYPE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum|union|trait|type) (\w+)").unwrap()
    });
    Some(TYPE.captures(code)?.extract::<1>().1[0])
}

/// Returns the folders of sources with their descriptions in ARCHITECTURE.md: lines such as
/// ``- `src/tree/`: the file system``.
fn code_map() -> BTreeMap<String, String> {
    let page = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    page.lines()
        .filter_map(|line| line.trim_start().strip_prefix("- `"))
        .filter(|line| line.starts_with("src/") || line.starts_with("crates/"))
        .map(|line| {
            let (path, phrase) = line.split_once('`').unwrap_or((line, ""));
            let phrase = phrase.trim_start_matches(':').trim();
            (path.to_owned(), phrase.to_owned())
        })
        .collect()
}

#[test]
fn architecture_md_maps_the_folders_there_are() {
    let files = code_files();
    let folders: BTreeSet<String> = files
        .iter()
        .filter(|file| {
            file.lines
                .iter()
                .any(|line| !line.is_test && !line.code.trim().is_empty())
        })
        .filter_map(|file| file.path.rsplit_once('/'))
        .map(|(folder, _)| format!("{folder}/"))
        .filter(|folder| folder != "src/")
        .collect();
    let map = code_map();
    let mapped: BTreeSet<String> = map.keys().cloned().collect();
    let mut failures = Vec::new();
    for path in folders.difference(&mapped) {
        failures.push(format!("add a line: - `{path}`: .."));
    }
    for path in mapped.difference(&folders) {
        failures.push(format!("there is no folder `{path}`"));
    }
    for (path, _) in map.iter().filter(|(_, phrase)| phrase.is_empty()) {
        failures.push(format!("say in a phrase what `{path}` is"));
    }
    report(
        "The map of folders in ARCHITECTURE.md differs from src/ and crates/",
        &failures,
    );
}

#[test]
fn every_part_keeps_its_budget_of_lines() {
    let files = source_files(&["src", "crates"]);
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &files {
        if let Some(part) = file.part() {
            let code = file
                .production()
                .filter(|(_, code)| !code.trim().is_empty());
            *lines.entry(part).or_default() += code.count();
        }
    }
    let mut failures = Vec::new();
    for (part, lines) in &lines {
        match BUDGETS.iter().find(|(name, _)| name == part) {
            None => failures.push(format!("{part}: give it a budget of {lines}")),
            Some((_, budget)) if lines > budget => {
                failures.push(format!("{part}: {lines} lines, {budget} permitted"));
            }
            Some((_, budget)) if lines + SLACK < *budget => {
                failures.push(format!("{part}: lower its budget of {budget} to {lines}"));
            }
            Some(_) => {}
        }
    }
    let gone = BUDGETS.iter().filter(|(part, _)| !lines.contains_key(part));
    failures.extend(gone.map(|(part, _)| format!("{part}: there is no such part")));
    report(
        "Lines of code differ from their budgets (tests/tidy.rs, BUDGETS)",
        &failures,
    );
}

#[test]
fn every_folder_has_a_rule() {
    let files = source_files(&["src"]);
    let parts: BTreeSet<&str> = files.iter().filter_map(|file| file.part()).collect();
    let known =
        |part: &str| MAY_USE.iter().any(|(folder, _)| *folder == part) || JOINING.contains(&part);
    let missing = parts.into_iter().filter(|part| !known(part));
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    report(
        "A folder of src/ may use whatever it likes (tests/tidy.rs, MAY_USE)",
        &missing,
    );
}

#[test]
fn rules_name_folders_there_are() {
    let named = MAY_USE
        .iter()
        .map(|(folder, _)| *folder)
        .chain(PURE)
        .chain(PURE_CRATES)
        .chain(JOINING);
    let missing: Vec<String> = named
        .filter(|part| {
            let path = repository().join("src").join(part);
            let is_crate = repository().join("crates").join(part).is_dir();
            !path.is_dir() && !path.with_extension("rs").is_file() && !is_crate
        })
        .map(str::to_owned)
        .collect();
    report(
        "A rule of tests/tidy.rs names a folder that is gone",
        &missing,
    );
}

#[test]
fn words_are_whole() {
    for (code, word, is_said) in [
        ("use std::fs;", "std::fs", true),
        ("std::fsx", "std::fs", false),
        ("let instant_of = 1", "Instant", false),
        ("Instant::now()", "Instant", true),
        ("use notify::Watcher", "notify::", true),
        ("use inotify::Watches", "notify::", false),
        ("let notify = notify(hub)", "notify::", false),
        ("eprintln!()", "println!", false),
        ("println!()", "println!", true),
    ] {
        assert_eq!(says(code, word), is_said, "{code}");
    }
}
