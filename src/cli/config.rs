//! `config`: the effective configuration, with the origin of each value. `schema`: the JSON Schema of the configuration
//! file, for editors.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use crate::cli::exit::Exit;
use crate::cli::options::{ConfigOptions, Options};
use crate::cli::output::print;
use crate::config::{describe, schema};

pub fn config(file: Option<&Path>, options: &ConfigOptions) -> anyhow::Result<Exit> {
    let matches = Options::command().get_matches();
    let (_, given) = matches.subcommand().context("no command was given")?;
    let page = describe(file, &options.overrides(), &|origin| {
        let flags = origin.split(' ').filter_map(|flag| as_given(given, flag));
        flags.collect::<Vec<_>>().join(" ")
    })?;
    print(|out| out.write_all(page.as_bytes()))?;
    Ok(Exit::Fine)
}

pub fn schema() -> anyhow::Result<Exit> {
    let schema = schema::schema();
    print(|out| writeln!(out, "{schema:#}"))?;
    Ok(Exit::Fine)
}

/// Returns the flag, or else the variable that sets it, if there is one; or another origin as it is.
fn as_given(given: &ArgMatches, flag: &str) -> Option<String> {
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
