//! `token`: a new bearer token for a publisher of `rsnotify hub`, with the lines for both configurations.

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
use toml::Value;
use uuid::Uuid;

use crate::cli::exit::Exit;
use crate::cli::options::TokenOptions;
use crate::cli::output::print;
use crate::config::hub_config::HubConfig;
use crate::config::overrides::Overrides;
use crate::config::publisher::check_name;

/// The URL of a hub that is not configured here.
const EXAMPLE: &str = "https://hub.example.org/hub";

pub fn token(file: Option<&Path>, options: &TokenOptions) -> anyhow::Result<Exit> {
    let name = options.name.as_str();
    check_name(name).map_err(|why| anyhow!("\"{}\": {why}", name.escape_debug()))?;
    let hub = HubConfig::load(file, &Overrides::default());
    let hub = hub.map_or_else(|_| EXAMPLE.to_owned(), |config| config.hub.url.to_string());
    let (name, hub) = (Value::from(name), Value::from(hub));
    let of_file = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let path: String = options.name.chars().map(of_file).collect();
    // Each has 122 bits from the system's source of randomness.
    let [first, second] = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::simple);
    print(|out| {
        writeln!(
            out,
            "# For both files named below, which nobody but rsnotify may read:\n{first}{second}\n\n\
             # In the configuration of the hub, with the beginnings of the publisher's topics:\n\
             [[publisher]]\nname = {name}\ntopics = [\"https://repo.example.org/\"]\n\
             bearer_token_file = \"/etc/rsnotify/{path}.token\"\n\n\
             # In that of the Source:\n\
             [[hub]]\nurl = {hub}\nbearer_token_file = \"/etc/rsnotify/hub.token\""
        )
    })?;
    Ok(Exit::Fine)
}
