//! A reload: the difference between two configurations, in a few words for the log, and the changes that only a restart
//! puts into effect.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use resourcesync::channel_kind::ChannelKind;

use crate::config::Config;
use crate::config::file::{Checked, ConfigError};
use crate::config::hub::ExternalHub;
use crate::config::hub_config::HubConfig;
use crate::config::schema::{Comment, DaemonKind, page};
use crate::config::secret::mask_headers;
use crate::config::server::{Log, ServerSettings};
use announce::plan::ConfiguredChannel;

/// Maximum names of one kind; beyond it they are counted instead.
const MAX_NAMES: usize = 3;

/// A configuration that a running daemon may exchange for another one.
pub trait DaemonConfig {
    /// Whether the listeners may move while the daemon runs. Topics keep their names then.
    const MOVES: bool;

    /// Returns what both daemons have: the state directory, and two tables.
    fn shared(&self) -> (&Path, &ServerSettings, &Log);

    /// Returns TOML that gives this configuration when it is read again, unless a secret in it is masked, with comments
    /// behind values. A secret that is held elsewhere is named by its holder.
    fn effective(&self, comment: Comment<'_>) -> String;

    /// Returns each difference in words.
    fn changes(&self, after: &Self) -> Vec<String>;

    /// Returns the directories that cannot be read now, with the reasons, in words.
    fn missing_directories(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns an error if a daemon that runs with `self` cannot change to `after`.
    fn verify_change(&self, after: &Self) -> Checked {
        let (before, old, old_log) = self.shared();
        let (after, new, new_log) = after.shared();
        let has_moved = |old, new| !Self::MOVES && old != new;
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

    /// Returns the difference, such as `source blog added; window changed`. It has no values: they may be secrets.
    fn difference(&self, after: &Self) -> String {
        let changes = self.changes(after);
        if changes.is_empty() {
            "nothing changed".to_owned()
        } else {
            changes.join("; ")
        }
    }
}

impl DaemonConfig for Config {
    const MOVES: bool = true;

    fn shared(&self) -> (&Path, &ServerSettings, &Log) {
        (&self.state_dir, &self.server, &self.log)
    }

    fn effective(&self, comment: Comment<'_>) -> String {
        let mut shown = self.clone();
        // Where the port is any free one, only the running daemon knows.
        shown.server.public_url = self.server.known_public_url();
        shown.hubs.iter_mut().for_each(ExternalHub::mask);
        for broker in &mut shown.brokers {
            mask_headers(&mut broker.headers);
        }
        page(&shown, DaemonKind::Run, comment)
    }

    fn changes(&self, after: &Config) -> Vec<String> {
        // A set may have one of each kind.
        let channel_name = |channel: &ConfiguredChannel| match channel.kind {
            ChannelKind::Framework => channel.capability_list.to_string(),
            ChannelKind::Change => format!("{} ({})", channel.capability_list, channel.kind),
        };
        let embedded = (self.embedded_hub.as_slice(), after.embedded_hub.as_slice());
        let (old, new) = (&self.server, &after.server);
        let words = [
            named("source", (&self.sources, &after.sources), |source| {
                source.name.clone()
            }),
            named("hub", (&self.hubs, &after.hubs), |hub| hub.hub.to_string()),
            named("broker", (&self.brokers, &after.brokers), |broker| {
                broker.name.to_string()
            }),
            named("embedded hub", embedded, |hub| hub.path.clone()),
            named("channel", (&self.channels, &after.channels), channel_name),
            changed("window", self.window != after.window),
            changed("log", self.log != after.log),
            changed("listen", old.listen != new.listen),
            changed("admin_listen", old.admin_listen != new.admin_listen),
            changed("public_url", old.public_url != new.public_url),
            changed("retired_topic", old.retired_topic != new.retired_topic),
        ];
        words.concat()
    }

    fn missing_directories(&self) -> Vec<String> {
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

impl DaemonConfig for HubConfig {
    const MOVES: bool = false;

    fn shared(&self) -> (&Path, &ServerSettings, &Log) {
        (&self.state_dir, &self.server, &self.log)
    }

    fn effective(&self, comment: Comment<'_>) -> String {
        page(self, DaemonKind::Hub, comment)
    }

    fn changes(&self, after: &HubConfig) -> Vec<String> {
        let publishers = (&self.publishers[..], &after.publishers[..]);
        let words = [
            named("publisher", publishers, |publisher| publisher.name.clone()),
            changed("hub", self.hub != after.hub),
            changed("server", self.server != after.server),
            changed("log", self.log != after.log),
        ];
        words.concat()
    }
}

fn changed(key: &str, is_changed: bool) -> Vec<String> {
    Vec::from_iter(is_changed.then(|| format!("{key} changed")))
}

/// Returns the additions, removals and changes of one kind, told apart by name.
fn named<'a, T: PartialEq>(
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
mod tests {
    use crate::config::file::Overrides;

    use super::*;

    /// A source for each name, and more keys.
    fn configured(sources: &str, more: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.toml");
        let source = |name| {
            format!(
                "[[source]]\nname = \"{name}\"\nmount = [{{ path = \"/{name}\", url = \"https://{name}.org/\" }}]\n"
            )
        };
        let sources: String = sources.split(' ').map(source).collect();
        fs::write(&path, format!("{sources}{more}")).unwrap();
        Config::load(Some(&path), &Overrides::default()).unwrap()
    }

    const HUB: &str = "[[hub]]\nurl = \"https://h.example/\"\n";

    #[test]
    fn what_came_went_and_changed_is_named() {
        let window = format!("{HUB}[window]\nquiet = \"1s\"");
        let token = format!("{HUB}headers = {{ X-Key = \"secret\" }}");
        let channels = ["framework", "change"].map(|kind| {
            format!(
                "[[channel]]\ncapability_list = \"https://a.org/c.xml\"\nkind = \"{kind}\"\n\
                 topic = \"https://a.org/{kind}/\"\nhubs = [\"https://h.example/\"]\n"
            )
        });
        let both = format!("{HUB}{}", channels.concat());
        let one = format!("{HUB}{}", channels[0]);
        let (window, token, both, one) = (&*window, &*token, &*both, &*one);
        let none = "hub https://h.example/ removed; embedded hub /hub added";
        for (sources, more, sources_after, more_after, want) in [
            ("a", HUB, "a", HUB, "nothing changed"),
            ("b", HUB, "a b", HUB, "source a added"),
            ("a b", HUB, "b", window, "source a removed; window changed"),
            ("a", HUB, "a", token, "hub https://h.example/ changed"),
            ("a", HUB, "a", "", none),
            ("a", HUB, "a b c d e", HUB, "4 sources added"),
            ("a", both, "a", both, "nothing changed"),
            (
                "a",
                both,
                "a",
                one,
                "channel https://a.org/c.xml (change) removed",
            ),
        ] {
            let before = configured(sources, more);
            let after = configured(sources_after, more_after);
            assert_eq!(before.difference(&after), want);
        }
    }
}
