//! `config`: the configuration in force, and where each value of it comes from.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory};

use crate::cli::options::{Exit, NetworkOptions, Options, TreeOptions};
use crate::cli::output::print;
use crate::config::Config;
use crate::config::in_force::Key;
use crate::config::overrides::Overrides;

/// What `run` takes of these, so that one sees what it would do.
#[derive(Debug, Clone, Args)]
pub struct ConfigOptions {
    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    /// Where health, metrics and the status page listen [default: 127.0.0.1:8401]
    #[arg(long, value_name = "ADDR", env = "RSNOTIFY_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,
}

impl ConfigOptions {
    fn overrides(&self) -> Overrides {
        Overrides {
            admin_listen: self.admin_listen.clone(),
            ..self.network.overrides(self.tree.overrides())
        }
    }
}

pub fn config(file: Option<&Path>, options: &ConfigOptions) -> anyhow::Result<Exit> {
    let overrides = options.overrides();
    let config = Config::load(file, &overrides)?;
    let matches = Options::command().get_matches();
    let (_, given) = matches.subcommand().context("no command was given")?;
    let file = match &config.file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?
        }
        None => toml::Table::new(),
    };
    let origins = Origins {
        file,
        overrides,
        given,
    };
    print(|out| {
        match &config.file {
            Some(path) => writeln!(out, "# Without a comment: from {}.", path.display())?,
            None => writeln!(out, "# No file was read.")?,
        }
        out.write_all(config.in_force_with(&|key| origins.remark(key)).as_bytes())
    })?;
    Ok(Exit::Fine)
}

/// Where values come from.
struct Origins<'a> {
    file: toml::Table,
    overrides: Overrides,
    /// The flags, and those of them that the environment gave.
    given: &'a ArgMatches,
}

impl Origins<'_> {
    /// Where a value comes from, unless that is the file.
    fn remark(&self, key: Key) -> Option<String> {
        let flags: &[&str] = match (key.table, key.name) {
            ("", "state_dir") => &["state_dir"],
            ("server", "listen") => &["listen"],
            ("server", "admin_listen") => &["admin_listen"],
            ("server", "public_url") => &["public_url"],
            ("source", "name" | "mount") => &["root", "url"],
            ("hub", "url") => &["hub"],
            _ => &[],
        };
        let given: Vec<String> = flags
            .iter()
            .filter_map(|flag| self.as_given(flag))
            .collect();
        if !given.is_empty() {
            return Some(given.join(" "));
        }
        let is_written = self
            .written(key)
            .is_some_and(|table| table.contains_key(key.name));
        (!is_written).then(|| "default".to_owned())
    }

    /// The flag, or the variable in its place, if there is one.
    fn as_given(&self, flag: &str) -> Option<String> {
        match self.given.value_source(flag)? {
            ValueSource::CommandLine => Some(format!("--{}", flag.replace('_', "-"))),
            ValueSource::EnvVariable => Some(format!("RSNOTIFY_{}", flag.to_uppercase())),
            _ => None,
        }
    }

    /// The file's table of a key. A flag that stands for all tables of a name keeps the settings of one of them.
    fn written(&self, key: Key) -> Option<&toml::Table> {
        if key.table.is_empty() {
            return Some(&self.file);
        }
        let kept = match key.table {
            "source" if self.overrides.root.is_some() => Some(("name", "main")),
            "hub" => self.overrides.hub.as_deref().map(|hub| ("url", hub)),
            _ => None,
        };
        let value = self.file.get(key.table)?;
        let Some(tables) = value.as_array() else {
            return value.as_table();
        };
        let mut tables = tables.iter().filter_map(toml::Value::as_table);
        match kept {
            Some((name, text)) => {
                tables.find(|own| own.get(name).and_then(|own| own.as_str()) == Some(text))
            }
            None => tables.nth(key.entry),
        }
    }
}
