//! `config`: the effective configuration, with the origin of each value.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use crate::cli::exit::Exit;
use crate::cli::options::{ConfigOptions, Options};
use crate::cli::output::print;
use crate::config::Config;
use crate::config::definition::Definition;
use crate::config::effective::Comment;
use crate::config::hub_config::HubConfig;
use crate::config::origin::Origin;

/// Function that writes a configuration with comments.
type Effective = dyn Fn(Comment<'_>) -> String;

pub fn config(file: Option<&Path>, options: &ConfigOptions) -> anyhow::Result<Exit> {
    let overrides = options.overrides();
    let is_of_hub = HubConfig::is_at(file, &overrides);
    let (effective, path, origins): (Box<Effective>, _, _) = if is_of_hub {
        let (config, origins) = HubConfig::load_with_origins(file, &overrides)?;
        let path = Some(config.file.clone());
        let effective = move |comment: Comment<'_>| config.effective_with(comment);
        (Box::new(effective), path, origins)
    } else {
        let (config, origins) = Config::load_with_origins(file, &overrides)?;
        let path = config.file.clone();
        let effective = move |comment: Comment<'_>| config.effective_with(comment);
        (Box::new(effective), path, origins)
    };
    let matches = Options::command().get_matches();
    let (_, given) = matches.subcommand().context("no command was given")?;
    let comment = |key: &Definition, entry| match origins.of(key, entry) {
        Origin::File(_) => None,
        Origin::Absent => Some("default".to_owned()),
        Origin::Flag(_) => {
            let flags = key.flags.iter().filter_map(|flag| as_given(given, flag));
            Some(flags.collect::<Vec<_>>().join(" "))
        }
    };
    print(|out| {
        match &path {
            Some(path) => writeln!(out, "# Without a comment: from {}.", path.display())?,
            None => writeln!(out, "# No file was read.")?,
        }
        out.write_all(effective(&comment).as_bytes())
    })?;
    Ok(Exit::Fine)
}

/// Returns the flag, or else the variable that sets it, if there is one.
fn as_given(given: &ArgMatches, flag: &str) -> Option<String> {
    let name = flag.trim_start_matches('-').replace('-', "_");
    match given.value_source(&name)? {
        ValueSource::CommandLine => Some(flag.to_owned()),
        ValueSource::EnvVariable => Some(format!("RSNOTIFY_{}", name.to_uppercase())),
        _ => None,
    }
}
