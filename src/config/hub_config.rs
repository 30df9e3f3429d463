//! The configuration of `rsnotify hub`: a file with `[hub]` and `[[publisher]]` instead of sources.

use std::path::{Path, PathBuf};

use ipnet::IpNet;
use resourcesync::uri::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;
use websub::hub::publication::{Publisher, Publishers};

use crate::config::environment::{Overrides, ProcessEnvironment};
use crate::config::file::{Checked, ConfigError, ConfigTree};
use crate::config::schema::DaemonKind;
use crate::config::secret::{ConfiguredSecret, content_of, read_secret_file};
use crate::config::served_hub::HubInProcess;
use crate::config::server::{Log, ServerSettings};
use crate::config::text::{AsText, inner_values, with_slash};
use crate::config::{ReloadableConfig, key_change, named_changes, state_dir};

/// The configuration of `rsnotify hub`, with the keys of its file. What [`HubConfig::load`] returns was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HubConfig {
    // The file that was read; absolute if it was named so.
    #[serde(skip)]
    pub file: PathBuf,
    /// Directory in which rsnotify keeps what it has seen and told.
    // As the unit of the service has it: two processes cannot share one.
    #[schemars(example = "/var/lib/rsnotify-hub", extend("x-shown" = true, "x-default" = ""))]
    pub state_dir: PathBuf,
    /// Listeners, and the times that belong to them.
    pub server: ServerSettings,
    /// Log on standard error.
    pub log: Log,
    /// The hub of `rsnotify hub`.
    pub hub: HubInProcess,
    /// Publishers whose notifications `rsnotify hub` takes.
    #[serde(rename = "publisher")]
    pub publishers: Vec<PublisherSettings>,
}

impl HubConfig {
    /// Reads the file at `path`, or the default one, under what the flags say.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Checked<HubConfig> {
        let environment = ProcessEnvironment::of_this_process();
        let path = path.unwrap_or(&environment.default_file);
        let (_, text) = environment.read_config(Some(path), overrides)?;
        HubConfig::load_text(path, &text, overrides)
    }

    /// Reads a text as that of the file at `path`.
    pub fn load_text(path: &Path, text: &str, overrides: &Overrides) -> Checked<HubConfig> {
        let environment = ProcessEnvironment::of_this_process();
        let file = &mut ConfigTree::parse(Some(path), text, &environment)?;
        HubConfig::from_file(file, overrides)
    }

    pub(crate) fn from_file(
        file: &mut ConfigTree<'_>,
        overrides: &Overrides,
    ) -> Checked<HubConfig> {
        verify_daemon(file, DaemonKind::Hub)?;
        // There are no flags for its tables.
        let mut flags = overrides.clone();
        let source = &mut flags.source;
        (source.tree.root, source.tree.url, source.hub) = (None, None, None);
        flags.apply(file);
        let mut config: HubConfig = file.to_config()?;
        config.file = file.path.unwrap_or(Path::new("")).to_owned();
        config.hub.check_hub_table(file)?;
        // The URL of the hub says where it is reached.
        if config.server.public_url.is_none() {
            let url = Url::parse(config.hub.url.as_str());
            let origin = url.map(|url| format!("{}/", url.origin().ascii_serialization()));
            config.server.public_url = origin.ok().and_then(|origin| Uri::parse(&origin).ok());
        }
        config.server.check(file)?;
        (config.hub).trust_loopback_proxies(file, "hub", &config.server.listen.0);
        check_publishers(file, &mut config.publishers)?;
        config.state_dir = state_dir(file, &config.state_dir)?;
        Ok(config)
    }

    /// Returns true if the file at `path`, or the default one, is one of `rsnotify hub`, whatever else is wrong with it.
    pub fn is_hub_file(path: Option<&Path>, overrides: &Overrides) -> bool {
        let environment = ProcessEnvironment::of_this_process();
        let read = environment.read_config(path, overrides);
        read.is_ok_and(|(path, text)| is_of_hub(&ConfigTree::recover(path, &text, &environment).0))
    }

    /// Returns what the hub needs of the publishers.
    pub fn publisher_plan(&self) -> Publishers {
        let publishers = self.publishers.iter().map(|settings| Publisher {
            name: settings.name.as_str().into(),
            topics: settings.topics.clone(),
            token: content_of(&settings.bearer_token_file),
            verify_topic: settings.verify.is_some(),
            topic_networks: inner_values(&settings.allow_topic_networks),
        });
        Publishers(publishers.collect())
    }
}

impl ReloadableConfig for HubConfig {
    const DAEMON: DaemonKind = DaemonKind::Hub;

    fn shared_parts(&self) -> (&Path, &ServerSettings, &Log) {
        (&self.state_dir, &self.server, &self.log)
    }

    fn changes_in_words(&self, after: &HubConfig) -> Vec<String> {
        let publishers = (&self.publishers[..], &after.publishers[..]);
        let words = [
            named_changes("publisher", publishers, |publisher| publisher.name.clone()),
            key_change("hub", self.hub != after.hub),
            key_change("server", self.server != after.server),
            key_change("log", self.log != after.log),
        ];
        words.concat()
    }
}

/// Returns true for a file of `rsnotify hub`: it has publishers, or a table `[hub]` and no source.
pub(crate) fn is_of_hub(file: &ConfigTree<'_>) -> bool {
    let has_table = file.get("hub").is_some_and(|hub| hub.get_ref().is_table());
    file.get("publisher").is_some() || has_table && file.get("source").is_none()
}

/// Refuses a file that is not one of this daemon alone.
pub(crate) fn verify_daemon(file: &ConfigTree<'_>, daemon: DaemonKind) -> Checked {
    let path = file.path.unwrap_or(Path::new("")).display();
    let has_source = file.get("source").is_some();
    let message = match (is_of_hub(file), daemon) {
        (true, _) if has_source => format!(
            "{path} has both [[source]] and [[publisher]]: `rsnotify run` and `rsnotify hub` are two daemons, each with a \
             file and a state_dir of its own"
        ),
        (true, DaemonKind::Run) => format!(
            "{path} is a configuration of a hub for many Sources ([hub], [[publisher]]): start it with `rsnotify hub \
             --config {path}`; this command needs a file with [[source]]"
        ),
        (false, DaemonKind::Hub) => format!(
            "{path} is a configuration of `rsnotify run`: a hub for many Sources needs a file with [hub] and [[publisher]]"
        ),
        _ => return Ok(()),
    };
    Err(ConfigError::Invalid(message))
}

/// A publisher with the holder of its token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "topics"]))]
pub struct PublisherSettings {
    /// Name of the publisher in reports and metrics.
    #[schemars(example = &"library", extend("x-form" = "publisher", "x-shown" = true))]
    pub name: String,
    /// Prefixes of the topics that it may publish, and others may subscribe to. Those of two publishers never overlap.
    #[schemars(with = "Vec<String>", length(min = 1))]
    #[schemars(extend("x-form" = "prefix", "x-shown" = true, "examples" = [["https://repo.example.org/"]]))]
    pub topics: Vec<Uri>,
    /// Holder of the bearer token that it sends. With `verify` as well, both are demanded.
    #[schemars(example = "/etc/rsnotify/library")]
    pub bearer_token_file: Option<ConfiguredSecret>,
    /// `"topic"`: a publication is accepted if the `Link` of its topic names this hub.
    ///
    /// Without a token, anybody may then publish on such a topic: prefer a token, or pings, whose content comes from the
    /// topic itself.
    #[schemars(example = &"topic", extend("x-shown" = true))]
    pub verify: Option<ExtraVerification>,
    /// Networks, such as `"10.0.0.0/8"`, in which its topics may be although they are not public.
    ///
    /// Names that resolve to other addresses inside are not read. An address in `topics` itself needs none.
    pub allow_topic_networks: Vec<AsText<IpNet>>,
}

/// Ways to verify a publication besides the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExtraVerification {
    Topic,
}

/// Checks all publishers, and reads their tokens.
fn check_publishers(file: &ConfigTree<'_>, publishers: &mut [PublisherSettings]) -> Checked {
    for at in 0..publishers.len() {
        let (earlier, rest) = publishers.split_at_mut(at);
        let (publisher, table) = (&mut rest[0], file.table(format_args!("publisher.{at}")));
        if publisher.bearer_token_file.is_none() && publisher.verify.is_none() {
            let message = "neither bearer_token_file nor verify = \"topic\" is set, so anybody could publish in its name: \
                           set one, or both";
            return Err(file.error(&table.key, message));
        }
        let token = &mut publisher.bearer_token_file;
        read_secret_file(&table, "bearer_token_file", token)?;
        publisher.topics = publisher.topics.drain(..).map(with_slash).collect();
        let token = content_of(&publisher.bearer_token_file);
        for other in earlier {
            let name = &other.name;
            let message = format_args!("another publisher is named \"{name}\" already");
            table.refuse_if(*name == publisher.name, "name", message)?;
            if let Some((ours, theirs)) = find_overlap(&publisher.topics, &other.topics) {
                let message = format_args!(
                    "{ours} and {theirs} of the publisher \"{name}\" overlap, so a topic could be of either: separate \
                     them, or make them one publisher"
                );
                return Err(table.error("topics", message));
            }
            let is_same = token.is_some() && token == content_of(&other.bearer_token_file);
            let message = format_args!(
                "the publisher \"{name}\" has the same token, so they cannot be told apart: give each its own"
            );
            table.refuse_if(is_same, "bearer_token_file", message)?;
        }
    }
    Ok(())
}

/// Checks a publisher's name.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() || name.chars().any(char::is_control) {
        return Err("a name has at least one letter, and no control characters".to_owned());
    }
    Ok(())
}

/// Returns two prefixes of which one lies below the other.
fn find_overlap<'a>(ours: &'a [Uri], theirs: &'a [Uri]) -> Option<(&'a Uri, &'a Uri)> {
    ours.iter().find_map(|ours| {
        let overlaps = |theirs: &&Uri| ours.is_below(theirs) || theirs.is_below(ours);
        Some((ours, theirs.iter().find(overlaps)?))
    })
}

#[cfg(test)]
mod tests;
