//! `[[source]]`: a ResourceSync Source, how its mounts are watched, and the rules that hold for it; `[window]`: how its
//! changes are batched into notifications.

use std::path::PathBuf;
use std::time::Duration;

use announce::candidates::CandidateGlobs;
use announce::finding::AcknowledgedPattern;
use announce::observation::MountId;
use announce::plan::{DEFAULT_INCLUDE, MassDeletionLimit, MountPlan, SourcePlan, WindowPlan};
use globset::GlobBuilder;
use resourcesync::datetime::format_duration;
use resourcesync::uri::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::config::file::{Checked, ConfigTree, NOT_ZERO, TablePlace};
use crate::config::text::{AsText, inner_values, seconds, with_slash};
use crate::tree::{ListKeyCache, TreeSettings, WatchMode};

/// The silence of a writer that keeps a file open after which the file counts as complete (R3).
const OPEN_WRITER: Duration = Duration::from_secs(30);

/// A source. `path` and `url` are the short form of one mount; once it is checked, only `mount` has any.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend(
    "required" = ["name"],
    "anyOf" = [{ "required": ["mount"] }, { "required": ["path", "url"] }]
))]
pub struct Source {
    /// Name of the source, made of `-`, `_`, `.`, letters and digits.
    ///
    /// It appears in logs, and in the topics of sets that advertise none.
    #[schemars(example = &"main", extend("x-form" = "source", "x-shown" = true))]
    pub name: String,
    /// Directory to watch, if it is only one.
    ///
    /// It need not exist yet.
    #[schemars(example = "/srv/www", extend("x-shown" = true))]
    pub path: Option<PathBuf>,
    /// URI that the directory is published as.
    #[schemars(with = "Option<String>", example = "https://example.org/")]
    #[schemars(extend("x-form" = "prefix", "x-shown" = true))]
    pub url: Option<Uri>,
    /// Directories to watch, and the URIs that they are published as, instead of `path` and `url`.
    ///
    /// See below.
    #[schemars(length(min = 1), extend("x-default" = "`path` and `url`", "examples" = [[{
        "path": "/srv/www", "url": "https://example.org/", "aliases": ["http://example.org/"]
    }]]))]
    pub mount: Vec<MountPlan>,
    /// Files that may be capability documents, as globs, in which `*` stops at `/` and `**` does not. They are compared
    /// with the path below the mount, and with the path of the URI.
    ///
    /// For compressed documents add `"**/*.xml.gz"`. An empty list is refused. What an edit newly includes counts as
    /// known; what it no longer includes is forgotten.
    #[schemars(length(min = 1), extend("x-form" = "glob"))]
    #[default(DEFAULT_INCLUDE.map(str::to_owned).into())]
    pub include: Vec<String>,
    /// Files to leave out although `include` matches, compared with the same two paths.
    #[schemars(extend("x-form" = "glob"))]
    pub exclude: Vec<String>,
    /// Origin of hints that something has changed: `"inotify"` (Linux), `"notify"` (the interface of other systems),
    /// `"poll"` (no hints: sweep every `poll_interval`), or `"auto"`, which is inotify where the file system is known to
    /// be local, else poll.
    ///
    /// See [watching](operations.md#how-changes-are-noticed).
    #[default(WatchMode::Auto)]
    pub watch: WatchMode,
    /// Interval of the sweep that finds changes without a hint.
    #[default(seconds(30 * 60))]
    pub rescan_interval: AsText<Duration>,
    /// Interval of the sweep where there are no hints.
    #[default(seconds(10))]
    pub poll_interval: AsText<Duration>,
    /// Time for which a file that was found without a hint must be unchanged before it counts as complete.
    #[default(seconds(1))]
    pub settle: AsText<Duration>,
    /// Time for which a document may be incomplete before it is reported as broken.
    ///
    /// A new change channel waits as long for lists of its set that may still be written.
    #[default(seconds(10))]
    pub broken_after: AsText<Duration>,
    /// Time for which a document must be missing, in one run of rsnotify, before it counts as deleted.
    #[default(seconds(5 * 60))]
    pub deletion_grace: AsText<Duration>,
    /// Deletions are suspended when more than this part of the source (and at least 10 documents) is missing, or all its
    /// Capability Lists if it had several, or all documents of one mount, whatever their number, until enough come back
    /// or `rsnotify accept SOURCE` accepts them.
    ///
    /// `"never"` always accepts.
    #[default(AsText(MassDeletionLimit::Percent(50)))]
    pub mass_deletion: AsText<MassDeletionLimit>,
    /// Announce the documents that the first sweep of a tree finds as created, instead of taking them as known.
    pub announce_existing: bool,
    /// Announce also the deletions that the specification does not provide for, such as a Resource List's.
    pub announce_all_deletions: bool,
    /// Announce each changed component of an index, instead of the newest for all.
    pub announce_all_components: bool,
    /// Give a set that advertises no channel a topic of its own below `public_url`.
    #[default(true)]
    pub unadvertised_channels: bool,
    /// Give each set a change channel, which announces the changed resources that its Change Lists name.
    ///
    /// A Capability List that advertises a change channel has one in any case. With `--root` and no file, the default is
    /// true.
    pub change_notifications: bool,
    /// Announce on the change channel of a set without Change Lists what differs between its Resource Lists and those
    /// before.
    ///
    /// `deletion_grace` and `mass_deletion` hold for resources too.
    pub changes_from_resource_lists: bool,
    /// Findings that are known and need no action: a kind such as `unrouted`, a URI (with `*` at its end: all that begin
    /// so), or a kind and a URI.
    pub acknowledged: Vec<AsText<AcknowledgedPattern>>,
}

impl Source {
    /// Returns what the engine needs of it, which numbers the mounts.
    pub fn plan(&self) -> SourcePlan {
        let candidates = CandidateGlobs::new(self.include.clone(), self.exclude.clone());
        SourcePlan {
            name: self.name.clone(),
            mounts: self.mount.clone(),
            // Each glob was checked.
            candidates: candidates.unwrap_or_default(),
            broken_after: self.broken_after.0,
            deletion_grace: self.deletion_grace.0,
            mass_deletion: self.mass_deletion.0,
            announce_existing: self.announce_existing,
            announce_all_deletions: self.announce_all_deletions,
            announce_all_components: self.announce_all_components,
            unadvertised_channels: self.unadvertised_channels,
            change_notifications: self.change_notifications,
            changes_from_resource_lists: self.changes_from_resource_lists,
            acknowledged: inner_values(&self.acknowledged),
        }
    }

    /// Returns the settings of its tree, with the mounts as the plan numbers them.
    pub fn tree_settings(&self, plan: &SourcePlan) -> TreeSettings {
        TreeSettings {
            mounts: plan.mounts.clone(),
            candidates: plan.candidates.clone(),
            watch: self.watch,
            rescan_interval: self.rescan_interval.0,
            poll_interval: self.poll_interval.0,
            settle: self.settle.0,
            open_writer: OPEN_WRITER,
            recent_keys: ListKeyCache::default(),
        }
    }

    fn check(&mut self, table: &TablePlace<'_>) -> Checked {
        match (self.path.take(), self.url.take()) {
            (None, None) => {
                let message =
                    "it is missing: write path and url, or mount = [{ path = \"…\", url = \"…\" }]";
                table.refuse_if(self.mount.is_empty(), "mount", message)?;
            }
            _ if !self.mount.is_empty() => {
                let message =
                    "path and url are the short form of one mount: move them into mount = [{ … }]";
                return Err(table.error("mount", message));
            }
            (Some(directory), Some(prefix)) => self.mount.push(MountPlan {
                id: MountId(0),
                directory,
                prefix,
                aliases: Vec::new(),
            }),
            (Some(_), None) => {
                let message = "it needs url too: what the directory is published as";
                return Err(table.error("path", message));
            }
            (None, Some(_)) => {
                let message = "it needs path too: the directory that is published there";
                return Err(table.error("url", message));
            }
        }
        let no_inotify = self.watch == WatchMode::Inotify && !cfg!(target_os = "linux");
        let [rescan, poll] = [&self.rescan_interval, &self.poll_interval].map(|it| it.0.is_zero());
        table.refuse_if(rescan, "rescan_interval", NOT_ZERO)?;
        table.refuse_if(poll, "poll_interval", NOT_ZERO)?;
        let message = "only Linux has inotify: write \"auto\" or \"notify\"";
        table.refuse_if(no_inotify, "watch", message)
    }
}

/// Checks all sources.
pub fn check_all(file: &ConfigTree<'_>, sources: &mut [Source]) -> Checked {
    if sources.is_empty() {
        let message = "nothing to watch: add a [[source]] with path and url, or give --root DIR and --url URI";
        return Err(file.error("source", message));
    }
    let mut earlier: Vec<(String, MountPlan)> = Vec::new();
    for (at, source) in sources.iter_mut().enumerate() {
        let table = file.table(format_args!("source.{at}"));
        source.check(&table)?;
        let is_repeated = earlier.iter().any(|(name, _)| *name == source.name);
        let message = format_args!("there is a source named \"{}\" already", source.name);
        table.refuse_if(is_repeated, "name", message)?;
        let first = earlier.len();
        for (position, mount) in source.mount.iter_mut().enumerate() {
            let path = format!("{}.path", table.key);
            let mount_table = match file.get(&path) {
                Some(_) => file.table(&table.key),
                None => file.table(format_args!("{}.mount.{position}", table.key)),
            };
            mount.directory =
                file.absolute(&format!("{}.path", mount_table.key), &mount.directory)?;
            mount.prefix = with_slash(mount.prefix.clone());
            mount.aliases = mount.aliases.drain(..).map(with_slash).collect();
            for (at, (_, other)) in earlier.iter().enumerate() {
                if let Some((name, message)) = overlap_error(mount, other, at >= first) {
                    return Err(mount_table.error(name, message));
                }
            }
            earlier.push((source.name.clone(), mount.clone()));
        }
    }
    Ok(())
}

/// Returns an error if two mounts overlap. R1: those of different sources do not overlap, and those of one differ.
fn overlap_error(
    mount: &MountPlan,
    other: &MountPlan,
    is_same_source: bool,
) -> Option<(&'static str, String)> {
    let (ours, theirs) = (&mount.directory, &other.directory);
    let is_around = ours.starts_with(theirs) || theirs.starts_with(ours);
    if ours == theirs || is_around && !is_same_source {
        let (ours, theirs) = (ours.display(), theirs.display());
        let message = format!("{ours} overlaps {theirs}, which is mounted already");
        return Some(("path", message));
    }
    let mut pairs = mount
        .prefixes()
        .flat_map(|ours| other.prefixes().map(move |theirs| (ours, theirs)));
    let (ours, theirs) = pairs.find(|(ours, theirs)| {
        ours == theirs || !is_same_source && (ours.is_below(theirs) || theirs.is_below(ours))
    })?;
    let message = format!("{ours} overlaps {theirs}, which is another mount's already");
    Some(("url", message))
}

/// Checks a name, which becomes a segment of topic URIs.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(format!(
            "\"{name}\" cannot name a source: use letters, digits, \"-\", \"_\" and \".\""
        ));
    }
    Ok(())
}

/// Checks a glob, in which `*` does not match `/`.
pub fn check_glob(text: &str) -> Result<(), String> {
    if text.starts_with('/') {
        return Err(format!(
            "\"{text}\" begins with \"/\": globs match the path below the mount"
        ));
    }
    match GlobBuilder::new(text).literal_separator(true).build() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The largest payload (R21).
const MAX_BYTES: usize = 1024 * 1024;

/// Batching of changes into notifications.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Window {
    /// Time without further changes after which the changes of a channel are announced; `"0s"` announces at once.
    ///
    /// Not longer than `max_wait`.
    #[default(seconds(2))]
    pub quiet: AsText<Duration>,
    /// Longest time from the first change to the notification.
    #[default(seconds(30))]
    pub max_wait: AsText<Duration>,
    /// Longest time that a new document waits to be listed by its Capability List, index or archive.
    #[default(seconds(60))]
    pub hold: AsText<Duration>,
    /// Maximum number of changes in one notification, 1 to 50000; the rest waits for the next.
    #[schemars(range(min = 1, max = 50_000))]
    #[default(1_000)]
    pub max_entries: usize,
    /// Time without changes of its Change Lists after which the changes of a change channel are announced.
    ///
    /// Not longer than `change_max_wait`.
    #[default(AsText(Duration::from_millis(250)))]
    pub change_quiet: AsText<Duration>,
    /// Longest time from the first changed Change List to the notification.
    #[default(seconds(5))]
    pub change_max_wait: AsText<Duration>,
    /// Maximum number of changes that wait for a hub on a change channel; the oldest beyond it are dropped for that hub.
    #[schemars(range(min = 1, max = 100_000_000))]
    #[default(1_000_000)]
    pub change_backlog: usize,
}

impl Window {
    pub(crate) fn check(&self, file: &ConfigTree<'_>) -> Checked {
        let of_documents = ("", self.quiet.0, self.max_wait.0);
        let of_changes = ("change_", self.change_quiet.0, self.change_max_wait.0);
        for (prefix, quiet, max_wait) in [of_documents, of_changes] {
            if quiet > max_wait {
                let (quiet, max_wait) = (format_duration(quiet), format_duration(max_wait));
                let message =
                    format!("{prefix}quiet ({quiet}) is longer than {prefix}max_wait ({max_wait})");
                let [quiet, max_wait] =
                    ["quiet", "max_wait"].map(|key| format!("window.{prefix}{key}"));
                let key = file.get(&quiet).map_or(max_wait, |_| quiet);
                return Err(file.error(&key, message));
            }
        }
        Ok(())
    }

    pub fn plan(&self) -> WindowPlan {
        WindowPlan {
            quiet: self.quiet.0,
            max_wait: self.max_wait.0,
            hold: self.hold.0,
            max_entries: self.max_entries,
            max_bytes: MAX_BYTES,
            change_quiet: self.change_quiet.0,
            change_max_wait: self.change_max_wait.0,
            change_backlog: self.change_backlog,
        }
    }
}
