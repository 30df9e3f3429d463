//! `[[publisher]]`: the publishers of `rsnotify hub`, with the prefixes of their topics.

use ipnet::IpNet;
use resourcesync::uri::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use websub::hub::publication::{Publisher, Publishers};

use crate::config::address::with_slash;
use crate::config::file::{Checked, ConfigFile};
use crate::config::secret::{ConfiguredSecret, content_of, read_secret};
use crate::config::text::{ParsedText, values};

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
    pub verify: Option<Verify>,
    /// Networks, such as `"10.0.0.0/8"`, in which its topics may be although they are not public.
    ///
    /// Names that resolve to other addresses inside are not read. An address in `topics` itself needs none.
    pub allow_topic_networks: Vec<ParsedText<IpNet>>,
}

/// Ways to verify a publication besides the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    Topic,
}

/// Returns what the hub needs of the publishers.
pub fn plan(publishers: &[PublisherSettings]) -> Publishers {
    let publishers = publishers.iter().map(|settings| Publisher {
        name: settings.name.as_str().into(),
        topics: settings.topics.clone(),
        token: content_of(&settings.bearer_token_file),
        verify_topic: settings.verify.is_some(),
        topic_networks: values(&settings.allow_topic_networks),
    });
    Publishers(publishers.collect())
}

/// Checks all publishers, and reads their tokens.
pub fn check(file: &ConfigFile<'_>, publishers: &mut [PublisherSettings]) -> Checked {
    for at in 0..publishers.len() {
        let (earlier, rest) = publishers.split_at_mut(at);
        let (publisher, table) = (&mut rest[0], format!("publisher.{at}"));
        if publisher.bearer_token_file.is_none() && publisher.verify.is_none() {
            let message = "neither bearer_token_file nor verify = \"topic\" is set, so anybody could publish in its name: \
                           set one, or both";
            return Err(file.error(&table, message));
        }
        let key = format!("{table}.bearer_token_file");
        read_secret(file, &key, &mut publisher.bearer_token_file)?;
        publisher.topics = publisher.topics.drain(..).map(with_slash).collect();
        let token = content_of(&publisher.bearer_token_file);
        for other in earlier {
            let name = &other.name;
            let (key, message) = if *name == publisher.name {
                (
                    "name",
                    format!("another publisher is named \"{name}\" already"),
                )
            } else if let Some((ours, theirs)) = overlap(&publisher.topics, &other.topics) {
                let message = format!(
                    "{ours} and {theirs} of the publisher \"{name}\" overlap, so a topic could be of either: separate \
                     them, or make them one publisher"
                );
                ("topics", message)
            } else if token.is_some() && token == content_of(&other.bearer_token_file) {
                let message = format!(
                    "the publisher \"{name}\" has the same token, so they cannot be told apart: give each its own"
                );
                ("bearer_token_file", message)
            } else {
                continue;
            };
            return Err(file.error(&format!("{table}.{key}"), message));
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
fn overlap<'a>(ours: &'a [Uri], theirs: &'a [Uri]) -> Option<(&'a Uri, &'a Uri)> {
    let pairs = ours
        .iter()
        .flat_map(|ours| theirs.iter().map(move |theirs| (ours, theirs)));
    let mut pairs = pairs.filter(|(ours, theirs)| ours.is_below(theirs) || theirs.is_below(ours));
    pairs.next()
}
