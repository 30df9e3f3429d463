//! A reload: the difference between two configurations, in a few words for the log, and the changes that only a restart
//! puts into effect.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use resourcesync::channel_kind::ChannelKind;

use crate::announce::plan::ChannelPlan;
use crate::config::Config;
use crate::config::effective::{Comment, page};
use crate::config::hub::ExternalHub;
use crate::config::hub_config::HubConfig;
use crate::config::log::Log;
use crate::config::schema::DaemonKind;
use crate::config::secret::mask_headers;
use crate::config::server::ServerSettings;

/// Maximum names of one kind; beyond it they are counted instead.
const MAX_NAMES: usize = 3;

/// A change that only a restart puts into effect.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestartNeeded {
    #[error("state_dir has changed from {before} to {after}: restart rsnotify for that")]
    StateDir { before: PathBuf, after: PathBuf },
    #[error("{key} has changed: restart rsnotify for that")]
    Key { key: &'static str },
}

/// A configuration that a running daemon may exchange for another one.
pub trait DaemonConfig {
    /// Whether the listeners may move while the daemon runs. Topics keep their names then.
    const MOVES: bool;

    fn server(&self) -> &ServerSettings;

    fn log(&self) -> &Log;

    fn state_dir(&self) -> &Path;

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
    fn verify_change(&self, after: &Self) -> Result<(), RestartNeeded> {
        // The process has locked the one that it has.
        if self.state_dir() != after.state_dir() {
            let (before, after) = (self.state_dir().to_owned(), after.state_dir().to_owned());
            return Err(RestartNeeded::StateDir { before, after });
        }
        let (old, new) = (self.server(), after.server());
        let has_format = self.log().format != after.log().format;
        let has_moved = |old, new| !Self::MOVES && old != new;
        let changed = [
            ("log.format", has_format),
            ("server.listen", has_moved(&old.listen, &new.listen)),
            (
                "server.admin_listen",
                has_moved(&old.admin_listen, &new.admin_listen),
            ),
        ];
        match changed.iter().find(|(_, has_changed)| *has_changed) {
            Some((key, _)) => Err(RestartNeeded::Key { key }),
            None => Ok(()),
        }
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

    fn server(&self) -> &ServerSettings {
        &self.server
    }

    fn log(&self) -> &Log {
        &self.log
    }

    fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn effective(&self, comment: Comment<'_>) -> String {
        let mut shown = self.clone();
        // Where the port is any free one, only the running daemon knows.
        shown.server.public_url = self.server.known_public_url();
        shown.hubs.iter_mut().for_each(ExternalHub::mask);
        shown
            .brokers
            .iter_mut()
            .for_each(|broker| mask_headers(&mut broker.headers));
        page(&shown, DaemonKind::Run, comment)
    }

    fn changes(&self, after: &Config) -> Vec<String> {
        // A set may have one of each kind.
        let channel_name = |channel: &ChannelPlan| match channel.kind {
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

    fn server(&self) -> &ServerSettings {
        &self.server
    }

    fn log(&self) -> &Log {
        &self.log
    }

    fn state_dir(&self) -> &Path {
        &self.state_dir
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
    is_changed
        .then(|| format!("{key} changed"))
        .into_iter()
        .collect()
}

/// Returns the additions, removals and changes of one kind, told apart by name.
fn named<T: PartialEq>(
    kind: &str,
    (before, after): (&[T], &[T]),
    name: impl Fn(&T) -> String,
) -> Vec<String> {
    let mut removed: BTreeMap<String, &T> = before.iter().map(|one| (name(one), one)).collect();
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for one in after {
        let name = name(one);
        match removed.remove(&name) {
            None => added.push(name),
            Some(before) if before != one => changed.push(name),
            Some(_) => {}
        }
    }
    let removed = before
        .iter()
        .map(&name)
        .filter(|name| removed.contains_key(name))
        .collect();
    let all: [(Vec<String>, &str); 3] =
        [(added, "added"), (removed, "removed"), (changed, "changed")];
    let words = all
        .into_iter()
        .filter_map(|(names, verb)| match names.len() {
            0 => None,
            1..=MAX_NAMES => Some(format!("{kind} {} {verb}", names.join(", "))),
            count => Some(format!("{count} {kind}s {verb}")),
        });
    words.collect()
}

#[cfg(test)]
mod tests {
    use crate::config::overrides::Overrides;

    use super::*;

    /// A source for each name, and more keys.
    fn configured(sources: &[&str], more: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.toml");
        let sources: String = sources
            .iter()
            .map(|name| {
                format!(
                    "[[source]]\nname = \"{name}\"\nmount = [{{ path = \"/{name}\", url = \"https://{name}.org/\" }}]\n"
                )
            })
            .collect();
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
        for (before, after, want) in [
            (
                configured(&["a"], HUB),
                configured(&["a"], HUB),
                "nothing changed",
            ),
            (
                configured(&["b"], HUB),
                configured(&["a", "b"], HUB),
                "source a added",
            ),
            (
                configured(&["a", "b"], HUB),
                configured(&["b"], &window),
                "source a removed; window changed",
            ),
            (
                configured(&["a"], HUB),
                configured(&["a"], &token),
                "hub https://h.example/ changed",
            ),
            (
                configured(&["a"], HUB),
                configured(&["a"], ""),
                "hub https://h.example/ removed; embedded hub /hub added",
            ),
            (
                configured(&["a"], HUB),
                configured(&["a", "b", "c", "d", "e"], HUB),
                "4 sources added",
            ),
            (
                configured(&["a"], &both),
                configured(&["a"], &both),
                "nothing changed",
            ),
            (
                configured(&["a"], &both),
                configured(&["a"], &one),
                "channel https://a.org/c.xml (change) removed",
            ),
        ] {
            assert_eq!(before.difference(&after), want);
        }
    }
}
