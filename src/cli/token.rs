//! `token`: a new bearer token for a publisher of `rsnotify hub`, with the lines for both configurations.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use toml::Value;
use uuid::Uuid;

use crate::cli::Exit;
use crate::cli::options::TokenOptions;
use crate::cli::output::{eprint_line, print};
use crate::cli::replace::{create_like, replace};
use crate::cli::run::request_reload;
use crate::config::file::ConfigError;
use crate::config::hub_config::{HubConfig, check_name};
use crate::config::secret::SecretLocation;

pub fn token(file: Option<&Path>, options: &TokenOptions) -> anyhow::Result<Exit> {
    let name = options.name.as_str();
    check_name(name).map_err(|why| anyhow!("\"{}\": {why}", name.escape_debug()))?;
    let config = match HubConfig::load(file, &options.state.overrides()) {
        Err(ConfigError::Read { source, .. })
            if file.is_none() && !options.write && source.kind() == ErrorKind::NotFound =>
        {
            None
        }
        config => Some(config?),
    };
    let mut publishers = config.iter().flat_map(|config| &config.publishers);
    if publishers.any(|publisher| publisher.name == name) {
        let known = format!("a publisher is named \"{name}\" already");
        ensure!(!options.write, "{known}: nothing was written");
        eprint_line(format_args!(
            "{known}: to replace its token, put this one into its file"
        ));
    }
    // Each has 122 bits from the system's source of randomness.
    let [first, second] = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::simple);
    let token = format!("{first}{second}");
    let written = config.as_ref().filter(|_| options.write);
    if let Some(config) = written {
        add_publisher(config, options, &token)?;
    }
    let hub = match &config {
        Some(config) => Value::from(config.hub.url.as_str()).to_string(),
        None => "\"https://hub.example.org/hub\" # an example".to_owned(),
    };
    print(|out| {
        writeln!(
            out,
            "# Write this token into each file named below, which only rsnotify may read \
             (install -o rsnotify -m 400 /dev/stdin FILE):\n# {token}\n"
        )?;
        if written.is_none() {
            let file = Path::new("/etc/rsnotify").join(file_name(name));
            let publisher = publisher_table(options, &file);
            writeln!(out, "# In the configuration of the hub:\n{publisher}")?;
        }
        writeln!(
            out,
            "# In the configuration of the Source:\n[[hub]]\nurl = {hub}\n\
             bearer_token_file = \"/etc/rsnotify/hub-token\""
        )
    })?;
    if let Some(config) = written {
        let state_dir = &config.state_dir;
        match request_reload(state_dir)? {
            Some(changes) => eprint_line(format_args!("the hub has reloaded: {changes}")),
            None => eprint_line(format_args!(
                "no hub is running with {}: the next start takes the publisher",
                state_dir.display()
            )),
        }
    }
    Ok(Exit::Fine)
}

/// Adds a publisher to the hub's configuration, with a file for its token. If either fails, neither is there.
fn add_publisher(config: &HubConfig, options: &TokenOptions, token: &str) -> anyhow::Result<()> {
    let shown = config.file.display();
    // A link is not replaced, but what it leads to.
    let found = config.file.canonicalize();
    let path = found.with_context(|| format!("cannot find {shown}"))?;
    let before = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    // The daemon's user, who need not be the one of the configuration file.
    let model = fs::metadata(&config.state_dir)
        .or_else(|_| fs::metadata(&path))
        .with_context(|| format!("cannot read {shown}"))?;
    let holders = config.publishers.iter().rev();
    let mut files = holders.filter_map(|other| match &other.bearer_token_file.as_ref()?.holder {
        Some(SecretLocation::File(file)) => Some(file),
        _ => None,
    });
    let beside = files.next().unwrap_or(&path);
    let file = beside.with_file_name(file_name(&options.name));
    create_like(&file, format!("{token}\n").as_bytes(), &model, 0o600)?;
    let gap = if before.ends_with('\n') { "\n" } else { "\n\n" };
    let after = format!("{before}{gap}{}", publisher_table(options, &file));
    let valid = HubConfig::load_text(&config.file, &after, &options.state.overrides());
    let written = valid
        .map_err(anyhow::Error::from)
        .and_then(|_| replace(&path, before.as_bytes(), after.as_bytes()));
    if written.is_err() {
        let _ = fs::remove_file(&file);
    }
    written.with_context(|| format!("{shown} is left as it was"))
}

/// Returns the table of a publisher.
fn publisher_table(options: &TokenOptions, file: &Path) -> String {
    let name = Value::from(options.name.as_str());
    let file = Value::from(&*file.to_string_lossy());
    let topics = match &options.topics[..] {
        [] => "[\"https://repo.example.org/\"] # an example".to_owned(),
        topics => Value::from(topics.to_vec()).to_string(),
    };
    format!("[[publisher]]\nname = {name}\ntopics = {topics}\nbearer_token_file = {file}\n")
}

/// Returns the name of a publisher's file.
fn file_name(publisher: &str) -> String {
    let of_file = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = publisher.chars().map(of_file).collect();
    format!("{name}.token")
}
