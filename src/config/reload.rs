//! A reload: the difference between two configurations, in a few words for the log, and the changes that only a restart
//! puts into effect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use resourcesync::channel_kind::ChannelKind;

use crate::announce::observation::MountId;
use crate::config::Config;
use crate::config::hub_config::HubConfig;
use crate::config::server::ServerSettings;
use crate::config::source::SourceSettings;

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
    fn server(&self) -> &ServerSettings;

    fn state_dir(&self) -> &Path;

    /// Returns TOML that gives this configuration when it is read again, secrets masked.
    fn effective(&self) -> String;

    /// Returns an error if a daemon that runs with `self` cannot change to `after`.
    fn verify_change(&self, after: &Self) -> Result<(), RestartNeeded>;

    /// Returns the difference, such as `source blog added; window changed`. It has no values: they may be secrets.
    fn difference(&self, after: &Self) -> String;
}

impl DaemonConfig for Config {
    fn server(&self) -> &ServerSettings {
        &self.server
    }

    fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn effective(&self) -> String {
        Config::effective(self)
    }

    /// Refuses another state directory. The listeners may move: topics keep their names.
    fn verify_change(&self, after: &Config) -> Result<(), RestartNeeded> {
        verify_state_dir(&self.state_dir, &after.state_dir)
    }

    fn difference(&self, after: &Config) -> String {
        in_words(&difference(self, after))
    }
}

impl DaemonConfig for HubConfig {
    fn server(&self) -> &ServerSettings {
        &self.server
    }

    fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn effective(&self) -> String {
        HubConfig::effective(self)
    }

    fn verify_change(&self, after: &HubConfig) -> Result<(), RestartNeeded> {
        verify_state_dir(&self.state_dir, &after.state_dir)?;
        let (old, new) = (&self.server, &after.server);
        for (key, is_same) in [
            ("server.listen", old.listen == new.listen),
            ("server.admin_listen", old.admin_listen == new.admin_listen),
        ] {
            if !is_same {
                return Err(RestartNeeded::Key { key });
            }
        }
        Ok(())
    }

    fn difference(&self, after: &HubConfig) -> String {
        in_words(&hub_difference(self, after))
    }
}

/// Refuses another state directory: the process has locked the one that it has.
fn verify_state_dir(before: &Path, after: &Path) -> Result<(), RestartNeeded> {
    match before == after {
        true => Ok(()),
        false => Err(RestartNeeded::StateDir {
            before: before.to_owned(),
            after: after.to_owned(),
        }),
    }
}

fn in_words(changes: &[String]) -> String {
    match changes {
        [] => "nothing changed".to_owned(),
        changes => changes.join("; "),
    }
}

fn difference(before: &Config, after: &Config) -> Vec<String> {
    let mut words = changes_of(
        "source",
        (&before.sources, &after.sources),
        |source| source.plan.name.clone(),
        |one, other| unnumbered(one) == unnumbered(other),
    );
    words.extend(changes_of(
        "hub",
        (&before.hubs, &after.hubs),
        |hub| hub.hub.to_string(),
        PartialEq::eq,
    ));
    words.extend(changes_of(
        "broker",
        (&before.brokers, &after.brokers),
        |broker| broker.plan.name.to_string(),
        PartialEq::eq,
    ));
    words.extend(changes_of(
        "embedded hub",
        (
            before.embedded_hub.as_slice(),
            after.embedded_hub.as_slice(),
        ),
        |hub| format!("/{}", hub.path),
        PartialEq::eq,
    ));
    words.extend(changes_of(
        "channel",
        (&before.channels, &after.channels),
        // A set may have one of each kind.
        |channel| match channel.kind {
            ChannelKind::Framework => channel.capability_list.to_string(),
            ChannelKind::Change => format!("{} ({})", channel.capability_list, channel.kind),
        },
        PartialEq::eq,
    ));
    let (old, new) = (&before.server, &after.server);
    for (key, is_same) in [
        ("window", before.window == after.window),
        ("listen", old.listen == new.listen),
        ("admin_listen", old.admin_listen == new.admin_listen),
        ("public_url", old.public_url == new.public_url),
        ("topic_window", old.topic_window == new.topic_window),
        ("retired_topic", old.retired_topic == new.retired_topic),
        ("shutdown_grace", old.shutdown_grace == new.shutdown_grace),
    ] {
        if !is_same {
            words.push(format!("{key} changed"));
        }
    }
    words
}

fn hub_difference(before: &HubConfig, after: &HubConfig) -> Vec<String> {
    let mut words = changes_of(
        "publisher",
        (&before.publishers, &after.publishers),
        |settings| settings.publisher.name.to_string(),
        PartialEq::eq,
    );
    if before.hub != after.hub {
        words.push("hub changed".to_owned());
    }
    if before.server != after.server {
        words.push("server changed".to_owned());
    }
    words
}

/// Returns the additions, removals and changes of one kind, told apart by name.
fn changes_of<T>(
    kind: &str,
    (before, after): (&[T], &[T]),
    name: impl Fn(&T) -> String,
    is_same: impl Fn(&T, &T) -> bool,
) -> Vec<String> {
    let mut by_name: BTreeMap<String, &T> = before.iter().map(|one| (name(one), one)).collect();
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for one in after {
        let name = name(one);
        match by_name.remove(&name) {
            None => added.push(name),
            Some(before) if !is_same(before, one) => changed.push(name),
            Some(_) => {}
        }
    }
    let removed = before.iter().map(&name);
    let removed = removed.filter(|name| by_name.contains_key(name)).collect();
    let all = [(added, "added"), (removed, "removed"), (changed, "changed")];
    let some = all.into_iter().filter(|(names, _)| !names.is_empty());
    some.map(|(names, verb)| match names.len() {
        0..=MAX_NAMES => format!("{kind} {} {verb}", names.join(", ")),
        count => format!("{count} {kind}s {verb}"),
    })
    .collect()
}

/// Returns the source as it is written: its mounts' numbers depend on the sources before it.
fn unnumbered(source: &SourceSettings) -> SourceSettings {
    let mut source = source.clone();
    for mount in &mut source.plan.mounts {
        mount.id = MountId(0);
    }
    source
}

#[cfg(test)]
mod tests {
    use std::fs;

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
