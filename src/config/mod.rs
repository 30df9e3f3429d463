//! The configuration: the file, its keys, and [`Config`], which holds only valid values.
//!
//! Each table is one struct, whose fields are the keys: their doc comments, types and defaults are all that is said of them.
//! The schema is made of these, and from it the check, the reference page and the example file. A flag counts before its
//! environment variable, that before the file, the file before the default. Loading reads the file and the secrets and
//! certificates that it names, resolves the links in its directories, and reads nothing else of the environment. A reload is
//! told as the difference between two configurations, and what only a restart puts into effect is refused.

pub(crate) mod broker;
pub mod environment;
pub mod file;
pub(crate) mod hub;
pub mod hub_config;
pub mod schema;
pub(crate) mod secret;
pub(crate) mod served_hub;
pub(crate) mod server;
pub(crate) mod source;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use announce::plan::{BrokerPlan, ConfiguredChannel, HubPlan, Plan, PublishMode, ReplacedHub};
use messaging::settings::{BadCertificates, BrokerSettings};
use resourcesync::capability::ChannelKind;
use resourcesync::uri::{Hub, Uri};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use websub::hub::address::LOOPBACK;
use websub::publisher::settings::{PublishSettings, PublishSettingsError};

use crate::config::broker::Broker;
use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::{Checked, ConfigError, ConfigTree};
use crate::config::hub::ExternalHub;
use crate::config::hub_config::{HubConfig, is_of_hub, verify_daemon};
use crate::config::schema::{Comment, DaemonKind, to_toml, with_suggestion};
use crate::config::secret::mask_headers;
use crate::config::served_hub::HubInProcess;
use crate::config::server::{Log, ServerSettings};
use crate::config::source::{Source, Window};
use crate::config::text::AsText;

/// The time for which a topic that ping hubs fetch repeats earlier notifications (R25), because such hubs skip pings.
const TOPIC_WINDOW: std::time::Duration = std::time::Duration::from_secs(3_600);

/// The configuration of `rsnotify run`, with the keys of its file. What [`Config::load`] returns was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    // The file that was read, if any; absolute if it was named so.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Directory in which rsnotify keeps what it has seen and told.
    ///
    /// Commands such as `rsnotify accept` and `rsnotify outbox` reach the daemon by a socket in it: run them as its user,
    /// or as root. Do not put it into a published directory.
    #[schemars(example = "/var/lib/rsnotify", extend("x-shown" = true))]
    #[schemars(extend("x-default" = "`$STATE_DIRECTORY`, else `$XDG_STATE_HOME/rsnotify`, else `~/.local/state/rsnotify`"))]
    pub state_dir: PathBuf,
    /// Listeners, and the times that belong to them.
    ///
    /// See below.
    pub server: ServerSettings,
    /// Log on standard error.
    ///
    /// See below.
    pub log: Log,
    /// Sources to watch, at least one.
    ///
    /// See below.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
    /// Batching of changes into notifications.
    ///
    /// See below.
    pub window: Window,
    /// Hub in this process.
    ///
    /// See below.
    pub embedded_hub: Option<HubInProcess>,
    /// Hubs outside this process that are notified.
    ///
    /// See below. Without any, the embedded hub.
    #[serde(rename = "hub")]
    pub hubs: Vec<ExternalHub>,
    /// Message brokers that notifications are sent to, over STOMP 1.2.
    ///
    /// See below.
    #[serde(rename = "broker")]
    pub brokers: Vec<Broker>,
    /// Channels that Capability Lists do not advertise, or that override what one advertises.
    ///
    /// See below.
    #[serde(rename = "channel")]
    pub channels: Vec<ConfiguredChannel>,
}

impl Config {
    /// Reads the file at `path`, or the default one if nothing else says what to watch, under what the flags say.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Checked<Config> {
        let environment = ProcessEnvironment::of_this_process();
        let (path, text) = environment.read_config(path, overrides)?;
        let file = &mut ConfigTree::parse(path, &text, &environment)?;
        Config::from_file(file, overrides)
    }

    /// Loads a configuration as far as consumers of its brokers need it, on whose host there may be no source. The sources
    /// that brokers name need not be among them.
    pub fn load_for_consumer(path: Option<&Path>) -> Checked<Config> {
        let environment = ProcessEnvironment::of_this_process();
        let (path, text) = environment.read_config(path, &Overrides::default())?;
        let file = ConfigTree::parse(path, &text, &environment)?;
        let mut config: Config = file.to_config()?;
        broker::check(&file, &mut config.brokers, None)?;
        Ok(config)
    }

    fn from_file(file: &mut ConfigTree<'_>, overrides: &Overrides) -> Checked<Config> {
        let tree = &overrides.source.tree;
        let flag = match (&tree.root, &tree.url) {
            (Some(_), None) => "--root: it needs --url URI too: what the directory is published as",
            (None, Some(_)) => {
                "--url: it needs --root DIR too: the directory that is published there"
            }
            (None, None) if file.path.is_none() => {
                let default = file.environment.default_file.clone();
                return Err(ConfigError::Nothing { default });
            }
            _ => "",
        };
        verify_daemon(file, DaemonKind::Run)?;
        if !flag.is_empty() {
            return Err(ConfigError::Invalid(flag.to_owned()));
        }
        overrides.apply(file);
        let mut config: Config = file.to_config()?;
        config.file = file.path.map(Path::to_owned);
        // A path in a flag need not be Unicode, as one in the file is.
        if let (Some(root), Some(source)) = (&tree.root, config.sources.first_mut()) {
            source.path = Some(file.environment.absolute(root));
        }
        if let Some(path) = &tree.state.state_dir {
            config.state_dir = file.environment.absolute(path);
        }
        config.check(file)?;
        Ok(config)
    }

    /// Returns the part of the configuration that the engine needs. `public_url` is the URL of the public listener, which
    /// `ServerSettings::public_url_at` knows once it is bound.
    pub fn plan(&self, public_url: &Uri) -> Plan {
        let outside = self.hubs.iter().map(|settings| HubPlan {
            hub: settings.hub.clone(),
            mode: settings.mode,
            replaces: settings.replaces.0.clone(),
        });
        let embedded = self.embedded_hub.iter().map(|embedded| HubPlan {
            hub: embedded.hub_uri(public_url),
            mode: PublishMode::Embedded,
            replaces: ReplacedHub::Automatic,
        });
        let brokers = self.brokers.iter().map(|broker| BrokerPlan {
            name: broker.name.clone(),
            channels: broker.channels.clone(),
            sources: broker.sources.clone(),
        });
        Plan {
            sources: self.sources.iter().map(Source::plan).collect(),
            hubs: outside.chain(embedded).collect(),
            brokers: brokers.collect(),
            channels: self.channels.clone(),
            public_url: public_url.clone(),
            window: self.window.plan(),
            topic_window: TOPIC_WINDOW,
            retired_topic: self.server.retired_topic.0,
        }
    }

    /// Returns the settings of submissions to each hub. An error in them is an error of the configuration.
    pub fn publish_settings(&self) -> Result<Vec<PublishSettings>, PublishSettingsError> {
        self.hubs
            .iter()
            .map(ExternalHub::publish_settings)
            .collect()
    }

    /// Returns the settings of each broker. An error in them is an error of the configuration.
    pub fn broker_settings(&self) -> Result<Vec<BrokerSettings>, BadCertificates> {
        self.brokers.iter().map(Broker::settings).collect()
    }

    /// Checks what one value says of another, reads the secrets, and fills in what depends on other keys.
    fn check(&mut self, file: &ConfigTree<'_>) -> Checked {
        self.server.check(file)?;
        source::check_all(file, &mut self.sources)?;
        self.window.check(file)?;
        hub::check_all(file, &mut self.hubs)?;
        self.resolve_embedded_hub(file)?;
        let names: Vec<&str> = self.sources.iter().map(|source| &*source.name).collect();
        broker::check(file, &mut self.brokers, Some(&names))?;
        self.state_dir = state_dir(file, &self.state_dir)?;
        self.refuse_state_in_mount(file)?;
        self.check_channels(file)
    }

    /// Checks the hubs that channels may name, and that each channel has a set and a topic of its own.
    fn check_channels(&mut self, file: &ConfigTree<'_>) -> Checked {
        // What topics may lie below. The public URL is not known while its port is not.
        let public_url = self.server.known_public_url();
        let mounts = self.sources.iter().flat_map(|source| &source.mount);
        let prefixes = mounts.map(|mount| &mount.prefix).chain(&public_url);
        let prefixes: Vec<Uri> = prefixes.cloned().collect();
        let mut hubs: Vec<Hub> = self.hubs.iter().map(|hub| hub.hub.clone()).collect();
        if let (Some(embedded), Some(public_url)) = (&self.embedded_hub, &public_url) {
            let embedded = embedded.hub_uri(public_url);
            if let Some(at) = hubs.iter().position(|hub| *hub == embedded) {
                let message = format!("{embedded} is a [[hub]] and the embedded hub at once");
                return Err(file.error(&format!("hub.{at}.url"), message));
            }
            hubs.push(embedded);
        }
        for source in &self.sources {
            let source = source.plan();
            for channel in &mut self.channels {
                channel.capability_list = source.canonical(&channel.capability_list);
            }
        }
        // There may be one for each of many thousand sets.
        let (mut lists, mut topics) = (BTreeSet::new(), BTreeSet::new());
        for (at, channel) in self.channels.iter().enumerate() {
            let table = file.table(format_args!("channel.{at}"));
            let (list, topic) = (&channel.capability_list, channel.topic.as_str());
            let kind = match channel.kind {
                ChannelKind::Change => "change ",
                ChannelKind::Framework => "",
            };
            let is_repeated = !lists.insert((list, channel.kind));
            let message = format_args!("{list} has a {kind}channel already");
            table.refuse_if(is_repeated, "capability_list", message)?;
            let is_below = |uri: Uri| prefixes.iter().any(|prefix| uri.is_below(prefix));
            let message = format_args!(
                "\"{topic}\" lies neither below server.public_url nor below a mount's url"
            );
            table.refuse_if(!Uri::parse(topic).is_ok_and(is_below), "topic", message)?;
            let message = format_args!("\"{topic}\" is another channel's topic already");
            table.refuse_if(!topics.insert(topic), "topic", message)?;
            if let Some(position) = channel.hubs.iter().position(|hub| !hubs.contains(hub)) {
                let hub = channel.hubs[position].as_str();
                let message =
                    format!("\"{hub}\" is not the url of a [[hub]], nor the embedded hub");
                let known: Vec<&str> = hubs.iter().map(Hub::as_str).collect();
                let message = with_suggestion(&message, hub, &known);
                return Err(table.error(&format!("hubs.{position}"), message));
            }
        }
        Ok(())
    }

    /// Takes the embedded hub out unless it is enabled: without that key, exactly when there is no other hub.
    fn resolve_embedded_hub(&mut self, file: &ConfigTree<'_>) -> Checked {
        let mut embedded = self.embedded_hub.take().unwrap_or_default();
        let is_enabled = *embedded.enabled.get_or_insert(self.hubs.is_empty());
        if !is_enabled && self.hubs.is_empty() {
            let message = "no hub is left to notify: add a [[hub]], or leave this one enabled";
            return Err(file.error("embedded_hub.enabled", message));
        }
        embedded.trust_loopback_proxies(file, "embedded_hub", &self.server.listen.0);
        // An installation has a file; a trial on this machine needs none.
        if file.path.is_none() && self.server.is_local_only() {
            let here = LOOPBACK.map(AsText);
            embedded.allow_callback_networks.splice(..0, here);
        }
        self.embedded_hub = is_enabled.then_some(embedded);
        Ok(())
    }

    /// Refuses a state directory in a mount, where it would be watched and published: there are subscribers' secrets in it.
    fn refuse_state_in_mount(&self, file: &ConfigTree<'_>) -> Checked {
        let (state_dir, real) = (&self.state_dir, resolved(&self.state_dir));
        let mut mounts = self.sources.iter().flat_map(|source| &source.mount);
        let around = mounts.find(|mount| {
            state_dir.starts_with(&mount.directory) || real.starts_with(resolved(&mount.directory))
        });
        let Some(mount) = around else { return Ok(()) };
        let (state_dir, mount) = (state_dir.display(), mount.directory.display());
        let message = format!(
            "{state_dir} lies inside the mount {mount}, where it would be watched, and published: put it elsewhere"
        );
        Err(file.error("state_dir", message))
    }
}

/// Returns the effective configuration of either daemon, as it would read the file: TOML with a comment behind each value
/// that is not from the file, which `comment` makes of the flags that set it, or of `default`.
pub fn describe(
    path: Option<&Path>,
    overrides: &Overrides,
    comment: &dyn Fn(&str) -> String,
) -> Checked<String> {
    let environment = ProcessEnvironment::of_this_process();
    let (path, text) = environment.read_config(path, overrides)?;
    let file = &mut ConfigTree::parse(path, &text, &environment)?;
    let page = if is_of_hub(file) {
        HubConfig::from_file(file, overrides)?.effective_toml(&|key| file.origin(key).map(comment))
    } else {
        Config::from_file(file, overrides)?.effective_toml(&|key| file.origin(key).map(comment))
    };
    Ok(match path {
        Some(path) => format!("# Without a comment: from {}.\n{page}", path.display()),
        None => format!("# No file was read.\n{page}"),
    })
}

/// Returns the state directory that is written, or else the default one.
fn state_dir(file: &ConfigTree<'_>, written: &Path) -> Checked<PathBuf> {
    if file.get("state_dir").is_some() {
        return file.absolute("state_dir", written);
    }
    let message = "it is needed, because none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is set";
    let default = file.environment.default_state_dir();
    default.ok_or_else(|| file.error("state_dir", message))
}

/// Returns the path with symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let resolved = path.ancestors().find_map(|above| {
        let (below, real) = (path.strip_prefix(above).ok()?, above.canonicalize().ok()?);
        Some(real.join(below))
    });
    resolved.unwrap_or_else(|| path.to_owned())
}

/// Maximum names of one kind; beyond it they are counted instead.
const MAX_NAMES: usize = 3;

/// A configuration that a running daemon may exchange for another one.
pub trait ReloadableConfig: Serialize + DeserializeOwned + JsonSchema {
    /// The daemon in whose file it is.
    const DAEMON: DaemonKind;

    /// Returns what both daemons have: the state directory, and two tables.
    fn shared_parts(&self) -> (&Path, &ServerSettings, &Log);

    /// Returns TOML that gives this configuration when it is read again, unless a secret in it is masked, with comments
    /// behind values. A secret that is held elsewhere is named by its holder.
    fn effective_toml(&self, comment: Comment<'_>) -> String {
        to_toml(self, comment)
    }

    /// Returns each difference in words, such as `source blog added` and `window changed`. They have no values: these may
    /// be secrets.
    fn changes_in_words(&self, after: &Self) -> Vec<String>;

    /// Returns the directories that cannot be read now, with the reasons, in words.
    fn unreadable_directories(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns an error if a daemon that runs with `self` cannot change to `after`.
    fn verify_change(&self, after: &Self) -> Checked {
        let (before, old, old_log) = self.shared_parts();
        let (after, new, new_log) = after.shared_parts();
        // The listeners of `rsnotify run` may move while it runs. Topics keep their names then.
        let has_moved = |old, new| Self::DAEMON == DaemonKind::Hub && old != new;
        let key = if before != after {
            // The process has locked the one that it has.
            let (before, after) = (before.display(), after.display());
            format!("state_dir has changed from {before} to {after}")
        } else if old_log.format != new_log.format {
            "log.format has changed".to_owned()
        } else if has_moved(&old.listen, &new.listen) {
            "server.listen has changed".to_owned()
        } else if has_moved(&old.admin_listen, &new.admin_listen) {
            "server.admin_listen has changed".to_owned()
        } else {
            return Ok(());
        };
        let message = format!("{key}: restart rsnotify for that");
        Err(ConfigError::Invalid(message))
    }
}

impl ReloadableConfig for Config {
    const DAEMON: DaemonKind = DaemonKind::Run;

    fn shared_parts(&self) -> (&Path, &ServerSettings, &Log) {
        (&self.state_dir, &self.server, &self.log)
    }

    fn effective_toml(&self, comment: Comment<'_>) -> String {
        let mut shown = self.clone();
        // Where the port is any free one, only the running daemon knows.
        shown.server.public_url = self.server.known_public_url();
        shown.hubs.iter_mut().for_each(ExternalHub::mask_secrets);
        for broker in &mut shown.brokers {
            mask_headers(&mut broker.headers);
        }
        to_toml(&shown, comment)
    }

    fn changes_in_words(&self, after: &Config) -> Vec<String> {
        // A set may have one of each kind.
        let channel_name = |channel: &ConfiguredChannel| match channel.kind {
            ChannelKind::Framework => channel.capability_list.to_string(),
            ChannelKind::Change => format!("{} ({})", channel.capability_list, channel.kind),
        };
        let embedded = (self.embedded_hub.as_slice(), after.embedded_hub.as_slice());
        let (old, new) = (&self.server, &after.server);
        let words = [
            named_changes("source", (&self.sources, &after.sources), |source| {
                source.name.clone()
            }),
            named_changes("hub", (&self.hubs, &after.hubs), |hub| hub.hub.to_string()),
            named_changes("broker", (&self.brokers, &after.brokers), |broker| {
                broker.name.to_string()
            }),
            named_changes("embedded hub", embedded, |hub| hub.path.clone()),
            named_changes("channel", (&self.channels, &after.channels), channel_name),
            key_change("window", self.window != after.window),
            key_change("log", self.log != after.log),
            key_change("listen", old.listen != new.listen),
            key_change("admin_listen", old.admin_listen != new.admin_listen),
            key_change("public_url", old.public_url != new.public_url),
            key_change("retired_topic", old.retired_topic != new.retired_topic),
        ];
        words.concat()
    }

    fn unreadable_directories(&self) -> Vec<String> {
        let mounts = self.sources.iter().flat_map(|source| &source.mount);
        let missing = mounts.filter_map(|mount| {
            let error = fs::read_dir(&mount.directory).err()?;
            let directory = mount.directory.display();
            Some(format!(
                "{directory} is missing, and nothing below it counts as deleted: {error}"
            ))
        });
        missing.collect()
    }
}

fn key_change(key: &str, is_changed: bool) -> Vec<String> {
    Vec::from_iter(is_changed.then(|| format!("{key} changed")))
}

/// Returns the additions, removals and changes of one kind, told apart by name.
fn named_changes<'a, T: PartialEq>(
    kind: &str,
    (before, after): (&'a [T], &'a [T]),
    name: impl Fn(&T) -> String,
) -> Vec<String> {
    let index = |all: &'a [T]| BTreeMap::from_iter(all.iter().map(|one| (name(one), one)));
    let (old, new) = (index(before), index(after));
    let names = |all: &[T], is_meant: &dyn Fn(&String, &T) -> bool| {
        let named = all.iter().map(|one| (name(one), one));
        let meant = named.filter(|(name, one)| is_meant(name, one));
        Vec::from_iter(meant.map(|(name, _)| name))
    };
    let is_other = |name: &String, one: &T| old.get(name).is_some_and(|before| *before != one);
    let all = [
        (names(after, &|name, _| !old.contains_key(name)), "added"),
        (names(before, &|name, _| !new.contains_key(name)), "removed"),
        (names(after, &is_other), "changed"),
    ];
    let words = all.iter().filter_map(|(names, verb)| match names.len() {
        0 => None,
        1..=MAX_NAMES => Some(format!("{kind} {} {verb}", names.join(", "))),
        count => Some(format!("{count} {kind}s {verb}")),
    });
    words.collect()
}

#[cfg(test)]
mod tests;
