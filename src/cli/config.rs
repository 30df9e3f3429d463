//! `config`: the effective configuration, with the origin of each value. `schema`: the JSON Schema of the configuration
//! file, for editors. Environment variables of flags: one that is misspelt is an error, as a key of the file is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use crate::cli::Exit;
use crate::cli::options::CommandLine;
use crate::cli::output::print;
use crate::config::environment::Overrides;
use crate::config::schema::nearest;
use crate::config::{describe, schema};

const PREFIX: &str = "RSNOTIFY_";

/// Variables that are no flags: those for the commands of `listen`, which may be rsnotify again, and for tests.
const OTHERS: [&str; 5] = ["TOPIC", "KIND", "FROM", "UNTIL", "FAILPOINT"];
/// Kubernetes sets these in each container beside a service that is called `rsnotify`; the last two are for tests.
const FOREIGN: [&str; 4] = ["SERVICE_", "PORT", "TEST_", "MODEL_"];

pub fn config(file: Option<&Path>, options: &Overrides) -> anyhow::Result<Exit> {
    let matches = CommandLine::command().get_matches();
    let (_, given) = matches.subcommand().context("no command was given")?;
    let page = describe(file, options, &|origin| {
        let flags = origin
            .split(' ')
            .filter_map(|flag| flag_or_variable(given, flag));
        flags.collect::<Vec<_>>().join(" ")
    })?;
    print(|out| out.write_all(page.as_bytes()))
}

pub fn schema() -> anyhow::Result<Exit> {
    let schema = schema::schema();
    print(|out| writeln!(out, "{schema:#}"))
}

/// Returns the flag, or else the variable that sets it, if there is one; or another origin as it is.
fn flag_or_variable(given: &ArgMatches, flag: &str) -> Option<String> {
    let Some(name) = flag.strip_prefix("--") else {
        return Some(flag.to_owned());
    };
    let name = name.replace('-', "_");
    match given.value_source(&name)? {
        ValueSource::CommandLine => Some(flag.to_owned()),
        ValueSource::EnvVariable => Some(format!("RSNOTIFY_{}", name.to_uppercase())),
        _ => None,
    }
}

/// Returns what is wrong with the environment, if it has a variable that looks like that of a flag, and is none.
pub fn unknown_variable(environment: impl IntoIterator<Item = OsString>) -> Option<String> {
    let known = flag_variables();
    let ours = environment.into_iter().filter_map(|name| {
        let name = name.into_string().ok()?;
        let flag = name.strip_prefix(PREFIX)?;
        let is_foreign = FOREIGN.iter().any(|prefix| flag.starts_with(prefix));
        let is_known = known.contains(&name) || OTHERS.contains(&flag) || is_foreign;
        (!is_known).then_some(name)
    });
    let name = ours.min()?;
    let lower = |name: &String| name[PREFIX.len()..].to_lowercase();
    let flags: Vec<String> = known.iter().map(lower).collect();
    let nearest = nearest(&lower(&name), flags.iter().map(String::as_str));
    let hint = match nearest {
        Some(flag) => format!("did you mean {PREFIX}{}?", flag.to_uppercase()),
        None => "each flag has one, and that of a secret begins otherwise".to_owned(),
    };
    Some(format!(
        "there is no environment variable {name} of rsnotify; {hint}"
    ))
}

/// Returns the variables of all flags.
fn flag_variables() -> BTreeSet<String> {
    let mut command = CommandLine::command();
    command.build();
    let mut commands = vec![&command];
    let mut known = BTreeSet::new();
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands());
        let variables = command.get_arguments().filter_map(|flag| flag.get_env());
        known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::unknown_variable;

    #[test]
    fn a_variable_of_no_flag_is_named() {
        let listen = "RSNOTIFY_LISTN of rsnotify; did you mean RSNOTIFY_LISTEN?";
        for (names, want) in [
            ("RSNOTIFY_LISTEN HOME rsnotify_x RSNOTIFYX", ""),
            ("RSNOTIFY_CALLBACK RSNOTIFY_TOPIC RSNOTIFY_UNTIL", ""),
            (
                "RSNOTIFY_SERVICE_HOST RSNOTIFY_PORT RSNOTIFY_PORT_8400_TCP_ADDR",
                "",
            ),
            ("RSNOTIFY_LISTN", listen),
            ("RSNOTIFY_LOGLEVEL", "did you mean RSNOTIFY_LOG_LEVEL?"),
            ("RSNOTIFY_COLOUR", "RSNOTIFY_COLOUR of rsnotify; each flag"),
        ] {
            let found = unknown_variable(names.split_whitespace().map(Into::into));
            assert_eq!(found.is_some(), !want.is_empty(), "{found:?}");
            assert!(found.unwrap_or_default().contains(want), "{want}");
        }
    }
}
