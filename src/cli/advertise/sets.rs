//! Every set of resources, with what its Capability List lacks to advertise its channel.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::announce::engine::Engine;
use crate::announce::observation::DocumentPath;
use crate::cli::advertise::patch::unified;
use crate::daemon::log::error_chain;
use crate::report;
use crate::resourcesync::advertise::advertise;
use crate::resourcesync::capability::Capability;
use crate::resourcesync::channel_kind::ChannelKind;
use crate::resourcesync::document::{Advertisement, Form};
use crate::resourcesync::uri::{Hub, Uri};
use crate::tree;

/// A set of resources and what became of its Capability List.
pub struct Set {
    pub list: Uri,
    /// The path of the list, without links; nothing if it is not in the tree.
    pub path: Option<PathBuf>,
    /// The channel as it should be advertised, if there is one.
    pub channel: Option<Advertisement>,
    pub outcome: Outcome,
}

/// The result of the comparison.
pub enum Outcome {
    /// Nothing is missing.
    Complete,
    Lacks {
        patch: Vec<u8>,
    },
    /// Software generates it, and must be taught.
    NotInTheTree,
    /// Returns the message about the list: a predicate.
    Failed {
        reason: String,
    },
}

impl Set {
    /// The reason why nothing can be done for it.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Failed { reason } => Some(reason),
            _ => None,
        }
    }
}

/// Every set, in order of its Capability List's URI.
pub fn sets(engine: &Engine) -> Vec<Set> {
    let mut channels = BTreeMap::new();
    for channel in report::channels::all(engine) {
        if channel.retired.is_none() {
            let configured = report::channels::hubs_of(engine, &channel.topic);
            let all = || engine.plan().hubs.iter().map(|hub| hub.hub.clone());
            let mut hubs: Vec<_> = all().filter(|hub| configured.contains(hub)).collect();
            // A list that advertises only foreign hubs lacks all of ours.
            if hubs.is_empty() {
                hubs = all().collect();
            }
            let topic = channel.topic;
            channels.insert(
                channel.set,
                Advertisement {
                    kind: ChannelKind::Framework,
                    topic,
                    hubs,
                },
            );
        }
    }
    let mut lists: BTreeMap<Uri, Option<PathBuf>> =
        channels.keys().map(|set| (set.clone(), None)).collect();
    for document in report::documents::all(engine) {
        let is_list = document.kind == Some((Capability::CapabilityList, Form::List));
        if is_list || lists.contains_key(&document.uri) {
            lists.insert(document.uri, file_of(engine, &document.path));
        }
    }
    let mut patched = BTreeSet::new();
    let sets = lists.into_iter().filter_map(|(list, path)| {
        let channel = channels.remove(&list);
        set(engine, list, path, channel, &mut patched)
    });
    sets.collect()
}

fn file_of(engine: &Engine, path: &DocumentPath) -> Option<PathBuf> {
    let (_, source) = engine.plan().source_of(path.mount)?;
    let mount = source.mounts.iter().find(|mount| mount.id == path.mount)?;
    let path = mount.directory.join(OsStr::from_bytes(&path.below));
    // What leads through a link, `patch` takes for an attack.
    Some(path.canonicalize().unwrap_or(path))
}

/// Nothing for a list that is gone with its channel.
fn set(
    engine: &Engine,
    list: Uri,
    path: Option<PathBuf>,
    channel: Option<Advertisement>,
    patched: &mut BTreeSet<PathBuf>,
) -> Option<Set> {
    let file = path.and_then(|path| match tree::content(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        content => Some((path, content)),
    });
    let path = file.as_ref().map(|(path, _)| path.clone());
    let outcome = match (&channel, file) {
        (None, None) => return None,
        (None, Some(_)) => failed(why_no_channel(engine, &list)),
        (Some(_), None) if is_configured(engine, &list) => Outcome::NotInTheTree,
        (Some(_), None) => failed("is not there now"),
        (Some(channel), Some((path, content))) => {
            compared(engine, &path, content, channel, patched)
        }
    };
    Some(Set {
        list,
        path,
        channel,
        outcome,
    })
}

/// Returns true if a `[[channel]]` names the list.
fn is_configured(engine: &Engine, list: &Uri) -> bool {
    let mut channels = engine.plan().channels.iter();
    channels.any(|channel| channel.capability_list == *list)
}

fn why_no_channel(engine: &Engine, list: &Uri) -> String {
    let Some(finding) = report::findings::about_channel(engine, list).next() else {
        return "advertises no channel, and unadvertised_channels = false gives it none".to_owned();
    };
    let finding = finding.to_string();
    let predicate = finding
        .strip_prefix(list.as_str())
        .unwrap_or(&finding)
        .trim_start();
    format!(
        "{predicate}; with a [[channel]] that names another topic, this prints how to correct it"
    )
}

/// Escapes a citation of a file, which may contain anything, for a terminal.
fn failed(reason: impl AsRef<str>) -> Outcome {
    let reason = reason.as_ref().replace(char::is_control, "\u{fffd}");
    Outcome::Failed { reason }
}

/// Hubs of ours that are no longer configured, as far as anything tells: those of the state file, and the embedded one.
fn former_hubs(engine: &Engine) -> BTreeSet<Hub> {
    let plan = engine.plan();
    let embedded = Uri::below(&plan.public_url, b"hub");
    let mut former = engine.former_hubs().clone();
    former.insert(Hub::new(embedded.as_str()));
    former.retain(|hub| plan.hubs.iter().all(|known| known.hub != *hub));
    former
}

fn compared(
    engine: &Engine,
    path: &Path,
    content: io::Result<Vec<u8>>,
    channel: &Advertisement,
    patched: &mut BTreeSet<PathBuf>,
) -> Outcome {
    let before = match content {
        Ok(content) => content,
        Err(error) => return failed(format!("cannot be read: {error}")),
    };
    match advertise(&before, channel, &former_hubs(engine)) {
        Ok(None) => Outcome::Complete,
        Ok(Some(_)) if !patched.insert(path.to_owned()) => {
            failed("is the same file as another set's, and can advertise one channel only")
        }
        Ok(Some(after)) => Outcome::Lacks {
            patch: unified(path, &before, &after),
        },
        Err(error) => failed(format!("cannot be patched: {}", error_chain(&error))),
    }
}
