//! `[[source]]`: a ResourceSync Source, how its mounts are watched, and the rules that hold for it.

use std::time::Duration;

use crate::announce::finding::Acknowledgement;
use crate::announce::plan::{MassDeletion, MountPlan, SourcePlan};
use crate::config::definition::Fallback::{Default, Required};
use crate::config::definition::{Definition, Example, Kind, TextKind};
use crate::config::duration;
use crate::config::effective::{Page, list, quoted, word};
use crate::config::form::{self, BOOLEAN, DURATION, POSITIVE_DURATION, choice, text, words};
use crate::config::globs::{EXCLUDE, INCLUDE, candidates};
use crate::config::key::{ConfigKey, ValueForm};
use crate::config::loader::Loader;
use crate::config::mount::{self, GivenMount, MOUNT, Mounted, mount, mount_of_flags, numbered};
use crate::config::origin::Origin;
use crate::config::overrides::Overrides;
use crate::config::section::Section;
use crate::config::structure::WrittenTable;

pub static SOURCE: Definition = Definition::table(
    "source",
    Kind::Tables(&[
        &NAME.definition,
        &MOUNT,
        &INCLUDE.definition,
        &EXCLUDE.definition,
        &WATCH.definition,
        &RESCAN_INTERVAL.definition,
        &POLL_INTERVAL.definition,
        &SETTLE.definition,
        &OPEN_WRITER.definition,
        &BROKEN_AFTER.definition,
        &DELETION_GRACE.definition,
        &MASS_DELETION.definition,
        &ANNOUNCE_EXISTING.definition,
        &ANNOUNCE_ALL_DELETIONS.definition,
        &ANNOUNCE_ALL_COMPONENTS.definition,
        &UNADVERTISED_CHANNELS.definition,
        &CHANGE_NOTIFICATIONS.definition,
        &CHANGES_FROM_RESOURCE_LISTS.definition,
        &ACKNOWLEDGED.definition,
    ]),
    "Sources to watch, at least one.",
);

static NAME: ConfigKey<String> = ConfigKey::new(
    "source",
    "name",
    ValueForm {
        kind: Kind::Text(&TextKind::matching("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")),
        read: |loader, key, value| text(loader, key, &value, checked_name),
    },
    Required,
    "Name of the source, made of `-`, `_`, `.`, letters and digits.",
)
.more("It appears in logs, and in the topics of sets that advertise none.")
.example(Example::Value("\"main\""))
.flags(&["--root", "--url"]);

static WATCH: ConfigKey<Watch> = ConfigKey::new(
    "source",
    "watch",
    ValueForm {
        kind: Kind::Text(&TextKind {
            words: &words(&WATCHES),
            ..TextKind::ANY
        }),
        read: |loader, key, value| {
            let watch = choice(loader, key, &value, &WATCHES)?;
            if watch == Watch::Inotify && !cfg!(target_os = "linux") {
                let message = "only Linux has inotify: write \"auto\" or \"notify\"";
                loader.report(value.origin, key, message);
            }
            Some(watch)
        },
    },
    Default("\"auto\""),
    "Origin of hints that something has changed: `\"inotify\"` (Linux), `\"notify\"` (the interface of other systems), \
     `\"poll\"` (no hints: sweep every `poll_interval`), or `\"auto\"`, which is inotify where the file system is known to \
     be local, else poll.",
)
.more("See [watching](watching.md).");

static RESCAN_INTERVAL: ConfigKey<Duration> = ConfigKey::new(
    "source",
    "rescan_interval",
    POSITIVE_DURATION,
    Default("\"30m\""),
    "Interval of the sweep that finds changes without a hint.",
);

static POLL_INTERVAL: ConfigKey<Duration> = ConfigKey::new(
    "source",
    "poll_interval",
    POSITIVE_DURATION,
    Default("\"10s\""),
    "Interval of the sweep where there are no hints.",
);

static SETTLE: ConfigKey<Duration> = ConfigKey::new(
    "source",
    "settle",
    DURATION,
    Default("\"1s\""),
    "Time for which a file that was found without a hint must be unchanged before it counts as complete.",
);

static OPEN_WRITER: ConfigKey<Duration> = ConfigKey::new(
    "source",
    "open_writer",
    DURATION,
    Default("\"30s\""),
    "Time for which a writer that keeps a file open must write nothing before the file counts as complete.",
);

static BROKEN_AFTER: ConfigKey<Duration> = ConfigKey::new(
    "source",
    "broken_after",
    DURATION,
    Default("\"10s\""),
    "Time for which a document may be incomplete before it is reported as broken.",
)
.more("A new change channel waits as long for lists of its set that may still be written.");

static DELETION_GRACE: ConfigKey<Duration> = ConfigKey::new(
    "source",
    "deletion_grace",
    DURATION,
    Default("\"5m\""),
    "Time for which a document must be missing, in one run of rsnotify, before it counts as deleted.",
);

static MASS_DELETION: ConfigKey<MassDeletion> = ConfigKey::new(
    "source",
    "mass_deletion",
    ValueForm {
        kind: Kind::Text(&TextKind {
            examples: &["50%", "never"],
            instead_of_number: Some(|number| format!("write \"{number}%\" or \"never\"")),
            ..TextKind::matching("^(never|0*([0-9]{1,2}|100)%)$")
        }),
        read: |loader, key, value| text(loader, key, &value, mass_deletion),
    },
    Default("\"50%\""),
    "Deletions are suspended when more than this part of the source (and at least 10 documents) is missing, or all its \
     Capability Lists if it had several, or all documents of one mount, whatever their number, until enough come back \
     or `rsnotify accept SOURCE` accepts them.",
)
.more("`\"never\"` always accepts.");

static ANNOUNCE_EXISTING: ConfigKey<bool> = ConfigKey::new(
    "source",
    "announce_existing",
    BOOLEAN,
    Default("false"),
    "Announce the documents that the first sweep of a tree finds as created, instead of taking them as known.",
);

static ANNOUNCE_ALL_DELETIONS: ConfigKey<bool> = ConfigKey::new(
    "source",
    "announce_all_deletions",
    BOOLEAN,
    Default("false"),
    "Announce also the deletions that the specification does not provide for, such as a Resource List's.",
);

static ANNOUNCE_ALL_COMPONENTS: ConfigKey<bool> = ConfigKey::new(
    "source",
    "announce_all_components",
    BOOLEAN,
    Default("false"),
    "Announce each changed component of an index, instead of the newest for all.",
);

static UNADVERTISED_CHANNELS: ConfigKey<bool> = ConfigKey::new(
    "source",
    "unadvertised_channels",
    BOOLEAN,
    Default("true"),
    "Give a set that advertises no channel a topic of its own below `public_url`.",
);

static CHANGE_NOTIFICATIONS: ConfigKey<bool> = ConfigKey::new(
    "source",
    "change_notifications",
    BOOLEAN,
    Default("false"),
    "Give each set a change channel, which announces the changed resources that its Change Lists name.",
)
.more("A Capability List that advertises a change channel has one in any case. With `--root` and no file, the default is true.");

static CHANGES_FROM_RESOURCE_LISTS: ConfigKey<bool> = ConfigKey::new(
    "source",
    "changes_from_resource_lists",
    BOOLEAN,
    Default("false"),
    "Announce on the change channel of a set without Change Lists what differs between its Resource Lists and those \
     before.",
)
.more("`deletion_grace` and `mass_deletion` hold for resources too.");

static ACKNOWLEDGED: ConfigKey<Vec<Acknowledgement>> = ConfigKey::new(
    "source",
    "acknowledged",
    ValueForm {
        kind: Kind::List {
            item: &TextKind::ANY,
            may_be_empty: true,
        },
        read: |loader, key, value| {
            let parse =
                |text: &str| Acknowledgement::parse(text).map_err(|error| error.to_string());
            Some(form::list(loader, key, value, parse))
        },
    },
    Default("[]"),
    "Findings that are known and need no action: a kind such as `unrouted`, a URI (with `*` at its end: all that begin \
     so), or a kind and a URI.",
);

/// A source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    pub plan: SourcePlan,
    pub tree: TreeConfig,
}

/// Settings of watching and reading a source's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeConfig {
    pub watch: Watch,
    pub rescan_interval: Duration,
    pub poll_interval: Duration,
    /// Minimum age of a file that was found without an event (R3).
    pub settle: Duration,
    pub open_writer: Duration,
}

/// The origin of hints.
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
const WATCHES: [(&str, Watch); 4] = [
    ("auto", Watch::Auto),
    ("inotify", Watch::Inotify),
    ("notify", Watch::Notify),
    ("poll", Watch::Poll),
];

/// Reads every `[[source]]`, or the tree that `--root` and `--url` name.
pub fn sources(
    loader: &mut Loader<'_>,
    written: Vec<WrittenTable<'_>>,
    overrides: &Overrides,
) -> Vec<SourceSettings> {
    let mut sources = Vec::new();
    let mut mounted: Vec<Mounted> = Vec::new();
    for (position, chosen) in chosen(loader, written, overrides).into_iter().enumerate() {
        let (origin, mounts) = (chosen.written.origin, chosen.mounts);
        let mut section = Section::new(loader, position, chosen.written);
        let mounts: Vec<GivenMount> = match mounts {
            Some(mounts) => {
                section.note(&MOUNT, Origin::Flag("--root"));
                mounts
            }
            None => {
                let tables = section.required_tables(&MOUNT).into_iter();
                let mounts = tables.filter_map(|table| mount(section.loader, table));
                mounts.collect()
            }
        };
        let mounts = mounts.into_iter();
        let plans = mounts.map(|given| numbered(section.loader, position, given, &mut mounted));
        let plans = plans.collect();
        let source = source(&mut section, plans);
        let name = &source.plan.name;
        let has_name = |other: &SourceSettings| !name.is_empty() && other.plan.name == *name;
        if sources.iter().any(has_name) {
            let message = format!("there is a source named \"{name}\" already");
            loader.report(origin, &NAME.definition, message);
        }
        sources.push(source);
    }
    sources
}

/// A source to read, with the mounts that flags give it.
struct ChosenSource<'f> {
    written: WrittenTable<'f>,
    mounts: Option<Vec<GivenMount>>,
}

fn chosen<'f>(
    loader: &mut Loader<'_>,
    written: Vec<WrittenTable<'f>>,
    overrides: &Overrides,
) -> Vec<ChosenSource<'f>> {
    let (root, url) = match (&overrides.root, &overrides.url) {
        (None, None) => {
            if written.is_empty() {
                let message = "nothing to watch: add a [[source]] with a mount, or give --root DIR and --url URI";
                loader.report_absence(&["source"], Origin::Absent, &SOURCE, message);
            }
            let written = written.into_iter();
            return written
                .map(|written| ChosenSource {
                    written,
                    mounts: None,
                })
                .collect();
        }
        (Some(root), Some(url)) => (root, url),
        (Some(_), None) => {
            let message = "it needs --url URI too: what the directory is published as";
            let key = &mount::PATH_KEY.definition;
            loader.report(Origin::Flag("--root"), key, message);
            return Vec::new();
        }
        (None, Some(_)) => {
            let message = "it needs --root DIR too: the directory that is published there";
            loader.report(Origin::Flag("--url"), &mount::URL.definition, message);
            return Vec::new();
        }
    };
    let mut written = written.into_iter();
    let mut written = written
        .find(|table| table.text(NAME.definition.name) == Some("main"))
        .unwrap_or_default();
    written.origin = Origin::Flag("--root");
    written.set(&NAME.definition, Some(&"main".to_owned()));
    if !loader.has_file() {
        // C9: the hub is our own, so that nobody else gets traffic that was not asked for.
        written.set_true(&CHANGE_NOTIFICATIONS.definition, "--root");
    }
    let mounts = mount_of_flags(loader, root, url).into_iter().collect();
    vec![ChosenSource {
        written,
        mounts: Some(mounts),
    }]
}

fn source(section: &mut Section<'_, '_, '_>, mounts: Vec<MountPlan>) -> SourceSettings {
    let name = section.required(&NAME).map(|name| name.value);
    SourceSettings {
        plan: SourcePlan {
            name: name.unwrap_or_default(),
            mounts,
            candidates: candidates(section),
            broken_after: section.value(&BROKEN_AFTER),
            deletion_grace: section.value(&DELETION_GRACE),
            mass_deletion: section.value(&MASS_DELETION),
            announce_existing: section.value(&ANNOUNCE_EXISTING),
            announce_all_deletions: section.value(&ANNOUNCE_ALL_DELETIONS),
            announce_all_components: section.value(&ANNOUNCE_ALL_COMPONENTS),
            unadvertised_channels: section.value(&UNADVERTISED_CHANNELS),
            change_notifications: section.value(&CHANGE_NOTIFICATIONS),
            changes_from_resource_lists: section.value(&CHANGES_FROM_RESOURCE_LISTS),
            acknowledged: section.value(&ACKNOWLEDGED),
        },
        tree: TreeConfig {
            watch: section.value(&WATCH),
            rescan_interval: section.value(&RESCAN_INTERVAL),
            poll_interval: section.value(&POLL_INTERVAL),
            settle: section.value(&SETTLE),
            open_writer: section.value(&OPEN_WRITER),
        },
    }
}

/// Checks a name, which becomes a segment of topic URIs.
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

/// Writes a `[[source]]`.
pub fn effective(page: &mut Page<'_>, source: &SourceSettings) {
    // A field that is added cannot be forgotten here.
    let SourceSettings { plan, tree } = source;
    let SourcePlan {
        name,
        mounts,
        candidates,
        broken_after,
        deletion_grace,
        mass_deletion,
        announce_existing,
        announce_all_deletions,
        announce_all_components,
        unadvertised_channels,
        change_notifications,
        changes_from_resource_lists,
        acknowledged,
    } = plan;
    let TreeConfig {
        watch,
        rescan_interval,
        poll_interval,
        settle,
        open_writer,
    } = tree;
    page.key(&NAME.definition, quoted(name));
    let mounts: Vec<String> = mounts.iter().map(mount::effective).collect();
    page.key(&MOUNT, format!("[{}]", mounts.join(", ")));
    page.key(&INCLUDE.definition, list(candidates.include()));
    page.key(&EXCLUDE.definition, list(candidates.exclude()));
    page.key(&WATCH.definition, quoted(word(&WATCHES, *watch)));
    for (key, value) in [
        (&RESCAN_INTERVAL, rescan_interval),
        (&POLL_INTERVAL, poll_interval),
        (&SETTLE, settle),
        (&OPEN_WRITER, open_writer),
        (&BROKEN_AFTER, broken_after),
        (&DELETION_GRACE, deletion_grace),
    ] {
        page.key(&key.definition, quoted(duration::display(*value)));
    }
    let mass_deletion = match mass_deletion {
        MassDeletion::Percent(percent) => format!("{percent}%"),
        MassDeletion::Never => "never".to_owned(),
    };
    page.key(&MASS_DELETION.definition, quoted(mass_deletion));
    for (key, value) in [
        (&ANNOUNCE_EXISTING, announce_existing),
        (&ANNOUNCE_ALL_DELETIONS, announce_all_deletions),
        (&ANNOUNCE_ALL_COMPONENTS, announce_all_components),
        (&UNADVERTISED_CHANNELS, unadvertised_channels),
        (&CHANGE_NOTIFICATIONS, change_notifications),
        (&CHANGES_FROM_RESOURCE_LISTS, changes_from_resource_lists),
    ] {
        page.key(&key.definition, value);
    }
    page.key(&ACKNOWLEDGED.definition, list(acknowledged));
}
