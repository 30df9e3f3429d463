//! A ResourceSync Source: its mounts, how they are watched, and the rules that hold for it.

use std::path::PathBuf;
use std::time::Duration;

use crate::announce::finding::Acknowledgement;
use crate::announce::plan::{MassDeletion, MountPlan, SourcePlan};
use crate::config::globs::candidates;
use crate::config::mount::{GivenMount, Mounted, mount};
use crate::config::overrides::Overrides;
use crate::config::raw;
use crate::config::reading::{Given, Origin, Reading, in_file};

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub plan: SourcePlan,
    pub tree: TreeSettings,
}

/// How a source's directories are watched and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeSettings {
    pub watch: Watch,
    pub rescan_interval: Duration,
    pub poll_interval: Duration,
    /// How old a file found without an event must be (R3).
    pub settle: Duration,
    pub open_writer: Duration,
}

/// Where hints come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// The best of the others that works on the file system.
    Auto,
    Inotify,
    Notify,
    /// No hints: a sweep every `poll_interval`.
    Poll,
}

/// The ways to watch as they are written.
pub const WATCHES: [(&str, Watch); 4] = [
    ("auto", Watch::Auto),
    ("inotify", Watch::Inotify),
    ("notify", Watch::Notify),
    ("poll", Watch::Poll),
];

/// Checks every `[[source]]`, or the tree that `--root` and `--url` name.
pub fn sources(
    reading: &mut Reading<'_>,
    written: Vec<toml::Spanned<raw::Source>>,
    overrides: &Overrides,
) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut mounts: Vec<Mounted> = Vec::new();
    for (position, (origin, raw, given_mounts)) in
        chosen(reading, written, overrides).into_iter().enumerate()
    {
        if given_mounts.is_empty() {
            reading.report_absence(&["mount"], origin, "source.mount", "it is missing");
        }
        let plans = given_mounts
            .into_iter()
            .filter_map(|given| mount(reading, position, given, &mut mounts))
            .collect();
        let source = source(reading, origin, raw, plans);
        let name = &source.plan.name;
        let is_named = |other: &Source| !name.is_empty() && other.plan.name == *name;
        if sources.iter().any(is_named) {
            reading.report(
                origin,
                "source.name",
                format!("there is a source named \"{name}\" already"),
            );
        }
        sources.push(source);
    }
    sources
}

fn chosen(
    reading: &mut Reading<'_>,
    written: Vec<toml::Spanned<raw::Source>>,
    overrides: &Overrides,
) -> Vec<(Origin, raw::Source, Vec<GivenMount>)> {
    let (root, url) = match (&overrides.root, &overrides.url) {
        (None, None) => {
            if written.is_empty() {
                let message = "nothing to watch: add a [[source]] with a mount, or give --root DIR and --url URI";
                reading.report_absence(&["source"], Origin::Absent, "source", message);
            }
            return written.into_iter().map(as_written).collect();
        }
        (Some(root), Some(url)) => (root, url),
        (Some(_), None) => {
            let message = "it needs --url URI too: what the directory is published as";
            reading.report(Origin::Flag("--root"), "source.mount.path", message);
            return Vec::new();
        }
        (None, Some(_)) => {
            let message = "it needs --root DIR too: the directory that is published there";
            reading.report(Origin::Flag("--url"), "source.mount.url", message);
            return Vec::new();
        }
    };
    let is_main = |source: &toml::Spanned<raw::Source>| {
        source
            .get_ref()
            .name
            .as_ref()
            .is_some_and(|name| name.get_ref() == "main")
    };
    let mut raw = written
        .into_iter()
        .find(is_main)
        .map(toml::Spanned::into_inner)
        .unwrap_or_default();
    raw.name = Some(toml::Spanned::new(0..0, "main".to_owned()));
    let mount = GivenMount {
        origin: Origin::Flag("--root"),
        path: Some(Given {
            value: root.clone(),
            origin: Origin::Flag("--root"),
        }),
        url: Some(Given {
            value: url.clone(),
            origin: Origin::Flag("--url"),
        }),
        aliases: Vec::new(),
    };
    vec![(Origin::Flag("--root"), raw, vec![mount])]
}

fn as_written(written: toml::Spanned<raw::Source>) -> (Origin, raw::Source, Vec<GivenMount>) {
    let Given {
        value: mut raw,
        origin,
    } = in_file(written);
    let mounts = std::mem::take(&mut raw.mount)
        .into_iter()
        .map(|mount| {
            let Given {
                value: mount,
                origin,
            } = in_file(mount);
            GivenMount {
                origin,
                path: mount.path.map(in_file).map(|given| Given {
                    value: PathBuf::from(given.value),
                    origin: given.origin,
                }),
                url: mount.url.map(in_file),
                aliases: mount.aliases.into_iter().map(in_file).collect(),
            }
        })
        .collect();
    (origin, raw, mounts)
}

fn source(
    reading: &mut Reading<'_>,
    origin: Origin,
    raw: raw::Source,
    mounts: Vec<MountPlan>,
) -> Source {
    let name = raw.name.map(in_file);
    let name = reading.required("source.name", origin, name.as_ref(), checked_name);
    let seconds = Duration::from_secs;
    Source {
        plan: SourcePlan {
            name: name.unwrap_or_default(),
            mounts,
            candidates: candidates(reading, raw.include, raw.exclude),
            broken_after: reading.duration("source.broken_after", raw.broken_after, seconds(10)),
            deletion_grace: reading.duration(
                "source.deletion_grace",
                raw.deletion_grace,
                seconds(300),
            ),
            mass_deletion: raw
                .mass_deletion
                .map(in_file)
                .and_then(|given| reading.checked("source.mass_deletion", &given, mass_deletion))
                .unwrap_or(MassDeletion::Percent(50)),
            announce_existing: raw.announce_existing.unwrap_or(false),
            announce_all_deletions: raw.announce_all_deletions.unwrap_or(false),
            announce_all_components: raw.announce_all_components.unwrap_or(false),
            unadvertised_channels: raw.unadvertised_channels.unwrap_or(true),
            acknowledged: acknowledged(reading, raw.acknowledged),
        },
        tree: TreeSettings {
            watch: watch(reading, raw.watch),
            rescan_interval: reading.positive_duration(
                "source.rescan_interval",
                raw.rescan_interval,
                seconds(1_800),
            ),
            poll_interval: reading.positive_duration(
                "source.poll_interval",
                raw.poll_interval,
                seconds(10),
            ),
            settle: reading.duration("source.settle", raw.settle, seconds(1)),
            open_writer: reading.duration("source.open_writer", raw.open_writer, seconds(30)),
        },
    }
}

fn acknowledged(
    reading: &mut Reading<'_>,
    written: Vec<toml::Spanned<String>>,
) -> Vec<Acknowledgement> {
    let written = written.into_iter().map(in_file);
    written
        .filter_map(|given| {
            let parse =
                |text: &str| Acknowledgement::parse(text).map_err(|error| error.to_string());
            reading.checked("source.acknowledged", &given, parse)
        })
        .collect()
}

/// A name becomes a segment of topic URIs.
fn checked_name(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(format!(
            "\"{name}\" cannot name a source: use letters, digits, \"-\", \"_\" and \".\""
        ));
    }
    Ok(name.to_owned())
}

fn mass_deletion(text: &str) -> Result<MassDeletion, String> {
    if text == "never" {
        return Ok(MassDeletion::Never);
    }
    text.strip_suffix('%')
        .filter(|number| !number.starts_with('+'))
        .and_then(|number| number.parse().ok())
        .filter(|percent| *percent <= 100)
        .map(MassDeletion::Percent)
        .ok_or_else(|| format!("\"{text}\" is neither \"0%\" to \"100%\" nor \"never\""))
}

fn watch(reading: &mut Reading<'_>, written: raw::Written<String>) -> Watch {
    let origin = written
        .as_ref()
        .map_or(Origin::Absent, |written| Origin::File(written.span().start));
    let watch = reading.choice("source.watch", written, &WATCHES, Watch::Auto);
    if watch == Watch::Inotify && !cfg!(target_os = "linux") {
        reading.report(
            origin,
            "source.watch",
            "only Linux has inotify: write \"auto\" or \"notify\"",
        );
    }
    watch
}
