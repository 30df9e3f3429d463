//! The configuration: the file, its keys, and [`Config`], which holds only valid values.
//!
//! Each key has one definition ([`definition::Definition`]) in the file of its table. A flag counts before its environment
//! variable, that before the file, the file before the default. Loading reads the file and the secrets and certificates
//! that it names, resolves the links in its directories, and reads nothing else of the environment.

pub mod address;
pub mod broker;
mod channel;
pub mod definition;
pub mod duration;
pub mod effective;
pub mod embedded_hub;
mod environment;
pub mod error;
mod form;
mod globs;
mod header;
mod holder;
pub mod http;
pub mod hub;
pub mod hub_config;
mod key;
mod loader;
mod mount;
pub mod origin;
pub mod overrides;
pub mod own_hub;
pub mod partial;
pub mod publisher;
pub mod reference;
pub mod reload;
pub mod schema;
pub mod secret;
mod section;
pub mod server;
pub mod source;
mod state_dir;
mod structure;
pub mod subscribers;
mod suggestion;
#[cfg(test)]
mod tests;
mod tls;
mod web_uri;
mod window;

use std::path::{Path, PathBuf};

use resourcesync::uri::{Hub, Uri};

use crate::announce::plan::{ChannelPlan, HubPlan, Mode, Plan, Replaces, WindowPlan};
use crate::config::broker::Broker;
use crate::config::channel::Surroundings;
use crate::config::definition::Definition;
use crate::config::embedded_hub::{Circumstances, EmbeddedHubConfig};
use crate::config::environment::Environment;
use crate::config::error::ConfigError;
use crate::config::hub::ExternalHub;
use crate::config::hub_config::is_of_hub;
use crate::config::loader::Loader;
use crate::config::origin::{FileText, Origin, Origins, located};
use crate::config::overrides::Overrides;
use crate::config::section::Section;
use crate::config::server::ServerSettings;
use crate::config::source::SourceSettings;
use crate::config::structure::WrittenTable;

/// The keys of the file of `rsnotify run`; [`hub_config::HUB_KEYS`] are those of `rsnotify hub`.
pub static KEYS: [&Definition; 8] = [
    &state_dir::STATE_DIR.definition,
    &server::SERVER,
    &source::SOURCE,
    &window::WINDOW,
    &embedded_hub::EMBEDDED_HUB,
    &hub::HUB,
    &broker::BROKER,
    &channel::CHANNEL,
];

/// A configuration that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file that was read, if any; absolute if it was named so.
    pub file: Option<PathBuf>,
    pub state_dir: PathBuf,
    pub server: ServerSettings,
    /// At least one; their mounts are numbered in order over all of them.
    pub sources: Vec<SourceSettings>,
    /// The hubs outside this process.
    pub hubs: Vec<ExternalHub>,
    pub embedded_hub: Option<EmbeddedHubConfig>,
    pub brokers: Vec<Broker>,
    pub channels: Vec<ChannelPlan>,
    pub window: WindowPlan,
}

impl Config {
    /// Reads the file at `path`, or the default one if nothing else says what to watch, under what the flags say.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Config, ConfigError> {
        let (config, _) = Config::load_with_origins(path, overrides)?;
        Ok(config)
    }

    /// As [`Config::load`], with the origins of the values.
    pub fn load_with_origins(
        path: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<(Config, Origins), ConfigError> {
        Config::load_in(&Environment::of_this_process(), path, overrides)
    }

    fn load_in(
        environment: &Environment,
        path: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<(Config, Origins), ConfigError> {
        let Some(path) = environment.file(path, overrides) else {
            if overrides.root.is_none() && overrides.url.is_none() {
                return Err(ConfigError::Nothing {
                    default: environment.default_file.clone(),
                });
            }
            return load(environment, None, overrides);
        };
        let text = &read(path)?;
        load(environment, Some(FileText { path, text }), overrides)
    }

    /// Returns the part of the configuration that the engine needs. `public_url` is the URL of the public listener, which
    /// [`ServerSettings::public_url_at`] knows once it is bound.
    pub fn plan(&self, public_url: &Uri) -> Plan {
        let outside = self.hubs.iter().map(|settings| HubPlan {
            hub: settings.hub.clone(),
            mode: settings.mode,
            replaces: settings.replaces.clone(),
        });
        let embedded = self.embedded_hub.iter().map(|embedded| HubPlan {
            hub: embedded.hub(public_url),
            mode: Mode::Embedded,
            replaces: Replaces::Automatic,
        });
        Plan {
            sources: self
                .sources
                .iter()
                .map(|source| source.plan.clone())
                .collect(),
            hubs: outside.chain(embedded).collect(),
            brokers: self
                .brokers
                .iter()
                .map(|broker| broker.plan.clone())
                .collect(),
            channels: self.channels.clone(),
            public_url: public_url.clone(),
            window: self.window.clone(),
            topic_window: self.server.topic_window,
            retired_topic: self.server.retired_topic,
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

fn load(
    environment: &Environment,
    file: Option<FileText<'_>>,
    overrides: &Overrides,
) -> Result<(Config, Origins), ConfigError> {
    let mut loader = Loader::new(file, environment);
    let mut written = match file {
        Some(file) => written(&mut loader, file)?,
        None => WrittenTable::default(),
    };
    let loader = &mut loader;
    let server = server::with_flags(written.take_table(server::SERVER.name), overrides);
    let server = server::server(&mut Section::new(loader, 0, server));
    let sources = written.take_tables(source::SOURCE.name).value;
    let sources = source::sources(loader, sources, overrides);
    let window = written.take_table(window::WINDOW.name);
    let window = window::window(&mut Section::new(loader, 0, window));
    let hubs = written.take_tables(hub::HUB.name).value;
    let circumstances = Circumstances {
        has_hubs: !hubs.is_empty() || overrides.hub.is_some(),
        // An installation has a file; a trial on this machine needs none.
        is_trial: file.is_none() && server.is_on_this_machine(),
    };
    let hubs = hub::hubs(loader, hubs, overrides);
    let embedded_hub = written.take_table(embedded_hub::EMBEDDED_HUB.name);
    let embedded_hub =
        embedded_hub::embedded_hub(&mut Section::new(loader, 0, embedded_hub), &circumstances);
    let brokers = written.take_tables(broker::BROKER.name).value;
    let names: Vec<&str> = sources
        .iter()
        .map(|source| source.plan.name.as_str())
        .collect();
    let brokers = broker::brokers(loader, brokers, &names);
    let channels = written.take_tables(channel::CHANNEL.name).value;
    let state_dir = state_dir::state_dir(loader, environment, written, overrides);
    state_dir::refuse_in_mount(loader, &state_dir, &sources);

    let public_url = server.known_public_url();
    let mounts = sources.iter().flat_map(|source| &source.plan.mounts);
    let mut prefixes: Vec<Uri> = mounts.map(|mount| mount.prefix.clone()).collect();
    prefixes.extend(public_url.clone());
    let mut known_hubs: Vec<Hub> = hubs.iter().map(|external| external.hub.clone()).collect();
    if let (Some(embedded), Some(public_url)) = (&embedded_hub, &public_url) {
        add_embedded(loader, embedded.hub(public_url), &mut known_hubs);
    }
    let surroundings = Surroundings {
        prefixes: &prefixes,
        hubs: &known_hubs,
        are_prefixes_known: !loader.is_misspelt(&[
            "public_url",
            "server",
            "source",
            "mount",
            "url",
        ]),
        are_hubs_known: !loader.is_misspelt(&["hub", "url", "embedded_hub", "path", "enabled"]),
    };
    let channels = channel::channels(loader, channels, &surroundings);
    let config = Config {
        file: file.map(|file| file.path.to_owned()),
        state_dir: state_dir.value,
        server,
        sources,
        hubs,
        embedded_hub,
        brokers,
        channels,
        window,
    };
    loader.finish(config)
}

/// Reads the keys of a file, of which each is known.
fn written<'a>(
    loader: &mut Loader<'_>,
    file: FileText<'a>,
) -> Result<WrittenTable<'a>, ConfigError> {
    let table = structure::parse(file)?;
    if is_of_hub(table.get_ref()) {
        let path = file.path.to_owned();
        return Err(match table.get_ref().contains_key(source::SOURCE.name) {
            true => ConfigError::OfBoth { path },
            false => ConfigError::OfHub { path },
        });
    }
    let mut slips = Vec::new();
    let written = WrittenTable::new(file, "", &KEYS, located(table), &mut slips);
    loader.report_slips(slips);
    Ok(written)
}

/// Adds the embedded hub to those that are known, and reports if it is one of them.
fn add_embedded(loader: &mut Loader<'_>, embedded: Hub, known_hubs: &mut Vec<Hub>) {
    if known_hubs.contains(&embedded) {
        let message = format!("{embedded} is a [[hub]] and the embedded hub at once");
        loader.report(Origin::Absent, &hub::URL.definition, message);
    }
    known_hubs.push(embedded);
}
