//! Every set of resources, with the entries that its Capability List lacks to advertise its channels.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use announce::state;
use announce::steps::engine::StateReader;
use resourcesync::advertise::advertise;
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::document::{Advertisement, Form};
use resourcesync::uri::{Hub, Uri};
use similar::udiff::UnifiedHunkHeader;
use similar::{Algorithm, ChangeTag, capture_diff_slices, group_diff_ops};

use crate::cli::replace::replace;
use crate::daemon::log::error_chain;
use crate::{report, tree};

/// Number of lines before and after a change. `patch` without `-p` uses only the last part of the path, and tolerates
/// two differing lines: no other Capability List has this many lines in common.
const CONTEXT: usize = 6;

/// A set of resources, compared with its Capability List.
pub struct AdvertisedSet {
    pub list: Uri,
    /// The path of the list, without links; nothing if it is not in the tree.
    pub path: Option<PathBuf>,
    /// The channels as they should be advertised, at most one of each kind.
    pub channels: Vec<Advertisement>,
    pub outcome: SetComparison,
    /// True if what the list lacked was written into it.
    pub is_written: bool,
}

/// The result of the comparison.
pub enum SetComparison {
    /// Nothing is missing.
    Complete,
    Lacks {
        before: Vec<u8>,
        after: Vec<u8>,
        patch: Vec<u8>,
    },
    /// The list is not in the tree: its generator has to add the entries.
    NotInTheTree,
    /// The list cannot be patched, for this reason: a predicate such as "is not there now".
    Failed { reason: String },
}

impl AdvertisedSet {
    /// Returns the list as operators know it: its file, or else its URI.
    pub fn name(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        path.unwrap_or_else(|| self.list.to_string())
    }

    /// Writes what the list lacks into it.
    pub fn update_list(&mut self) {
        let (Some(path), SetComparison::Lacks { before, after, .. }) = (&self.path, &self.outcome)
        else {
            return;
        };
        match replace(path, before, after) {
            Ok(()) => self.is_written = true,
            Err(error) => {
                let reason = error_chain(error.as_ref());
                self.outcome = failed_outcome(format!("is not written: {reason}"));
            }
        }
    }
}

/// A set as the state and the tree have it: the path of its list, and its channels.
type FoundSet = (Option<PathBuf>, BTreeMap<ChannelKind, Advertisement>);

/// Returns every set with the channels of this kind, or of each, in order of its Capability List's URI.
pub fn sets(
    reader: &StateReader<'_>,
    kind: Option<ChannelKind>,
) -> state::Result<Vec<AdvertisedSet>> {
    let mut patched = BTreeSet::new();
    let mut sets = Vec::new();
    for (list, (path, channels)) in found_sets(reader, kind)? {
        let channels: Vec<Advertisement> = channels.into_values().collect();
        let file = path.and_then(|path| match tree::content(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            content => Some((path, content)),
        });
        let path = file.as_ref().map(|(path, _)| path.clone());
        let is_configured = || {
            let mut configured = reader.plan.channels.iter();
            configured.any(|channel| channel.capability_list == list)
        };
        let mut outcome = match (channels.as_slice(), file) {
            // It is gone with its channel.
            ([], None) => continue,
            ([], Some(_)) => failed_outcome(why_no_channel(reader, &list, kind)?),
            (_, None) if is_configured() => SetComparison::NotInTheTree,
            (_, None) => failed_outcome("is not there now"),
            (_, Some((_, Err(error)))) => failed_outcome(format!("cannot be read: {error}")),
            (channels, Some((path, Ok(before)))) => compare_list(reader, &path, before, channels)?,
        };
        if let (SetComparison::Lacks { .. }, Some(path)) = (&outcome, &path)
            && !patched.insert(path.clone())
        {
            outcome = failed_outcome(format!(
                "is the same file as another set's, and can advertise the channels of one only: not {}",
                channels[0].topic.as_str()
            ));
        }
        sets.push(AdvertisedSet {
            list,
            path,
            channels,
            outcome,
            is_written: false,
        });
    }
    Ok(sets)
}

/// Returns the sets with channels, and those whose Capability List is in the tree.
fn found_sets(
    reader: &StateReader<'_>,
    kind: Option<ChannelKind>,
) -> state::Result<BTreeMap<Uri, FoundSet>> {
    let mut found: BTreeMap<Uri, FoundSet> = BTreeMap::new();
    for channel in report::channels::with_served_topics(reader)? {
        let is_meant = kind.is_none_or(|kind| channel.kind == kind);
        if !is_meant || channel.retired.is_some() {
            continue;
        }
        let told = channel.hubs.iter().filter(|view| !view.has_left);
        let told: Vec<_> = told.map(|view| &view.hub).collect();
        let all = || reader.plan.hubs.iter().map(|hub| hub.hub.clone());
        let mut hubs: Vec<_> = all().filter(|hub| told.contains(&hub)).collect();
        // A list that advertises only foreign hubs lacks all of ours.
        if hubs.is_empty() {
            hubs = all().collect();
        }
        let advertisement = Advertisement {
            kind: channel.kind,
            topic: channel.topic,
            hubs,
        };
        let (_, channels) = found.entry(channel.set).or_default();
        channels.insert(channel.kind, advertisement);
    }
    for document in report::documents::all(reader)? {
        let is_list = document.kind == Some((Capability::CapabilityList, Form::List));
        if is_list || found.contains_key(&document.uri) {
            let (path, _) = found.entry(document.uri).or_default();
            // `patch` refuses paths that lead through a link.
            let file = tree::file_path(reader.plan, &document.path);
            *path = file.map(|file| file.canonicalize().unwrap_or(file));
        }
    }
    Ok(found)
}

fn why_no_channel(
    reader: &StateReader<'_>,
    list: &Uri,
    kind: Option<ChannelKind>,
) -> state::Result<String> {
    let findings = report::findings::about_channel(reader, list)?;
    let Some(finding) = findings.iter().find(|finding| finding.mutes_channel()) else {
        let why = match kind {
            Some(ChannelKind::Change) => {
                "advertises no change channel, and change_notifications = false gives it none"
            }
            _ => "advertises no channel, and unadvertised_channels = false gives it none",
        };
        return Ok(why.to_owned());
    };
    let finding = finding.to_string();
    let words = finding.strip_prefix(list.as_str()).unwrap_or(&finding);
    let predicate = words.trim_start();
    Ok(format!(
        "{predicate}; with a [[channel]] that names another topic, this prints how to correct it"
    ))
}

/// Escapes a citation of a file, which may contain anything, for a terminal.
fn failed_outcome(reason: impl AsRef<str>) -> SetComparison {
    let reason = reason.as_ref().replace(char::is_control, "\u{fffd}");
    SetComparison::Failed { reason }
}

/// Compares a list with the channels that it should advertise.
fn compare_list(
    reader: &StateReader<'_>,
    path: &Path,
    before: Vec<u8>,
    channels: &[Advertisement],
) -> state::Result<SetComparison> {
    // Only the state knows which hubs were ours: another program's may have the address of an embedded one.
    let former = "SELECT uri FROM hub WHERE configured = 0";
    let hubs = reader.db.all::<Vec<Hub>>(former, ())?;
    let former = hubs.into_iter().collect();
    let mut after = None;
    for channel in channels {
        match advertise(after.as_deref().unwrap_or(&before), channel, &former) {
            Ok(patched) => after = patched.or(after),
            Err(error) => {
                let reason = error_chain(&error);
                return Ok(failed_outcome(format!("cannot be patched: {reason}")));
            }
        }
    }
    Ok(match after {
        None => SetComparison::Complete,
        Some(after) => SetComparison::Lacks {
            patch: unified_diff(path, &before, &after),
            before,
            after,
        },
    })
}

/// Returns a unified diff. The path is absolute and leads through no link, or `patch` refuses it.
pub fn unified_diff(path: &Path, before: &[u8], after: &[u8]) -> Vec<u8> {
    // Lines end in LF for `patch`, whatever is before it.
    let [old, new] = [before, after].map(|text| {
        let lines = text.split_inclusive(|&byte| byte == b'\n');
        lines.collect::<Vec<&[u8]>>()
    });
    let changes = capture_diff_slices(Algorithm::Myers, &old, &new);
    let name = quoted_name(path.as_os_str().as_bytes());
    let mut patch = format!("--- {name}\n+++ {name}\n").into_bytes();
    let hunks = group_diff_ops(changes, CONTEXT);
    for hunk in hunks.into_iter().filter(|hunk| !hunk.is_empty()) {
        patch.extend(format!("{}\n", UnifiedHunkHeader::new(&hunk)).bytes());
        for change in hunk.iter().flat_map(|part| part.iter_changes(&old, &new)) {
            patch.push(match change.tag() {
                ChangeTag::Equal => b' ',
                ChangeTag::Delete => b'-',
                ChangeTag::Insert => b'+',
            });
            patch.extend(change.value());
            if !change.value().ends_with(b"\n") {
                patch.extend(b"\n\\ No newline at end of file\n");
            }
        }
    }
    patch
}

/// Returns a file's name as GNU diff writes it: one with special characters is quoted.
fn quoted_name(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let mark = if name.iter().all(is_plain) { "" } else { "\"" };
    let mut quoted = String::new();
    for &byte in name {
        match byte {
            b' ' => quoted.push(' '),
            byte if is_plain(&byte) => quoted.push(char::from(byte)),
            byte => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    format!("{mark}{quoted}{mark}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::unified_diff;

    #[test]
    fn a_patch_has_lines_that_end_in_lf_and_names_that_are_quoted_where_they_are_odd() {
        let ends = ("1\r2\r\n3\r\n", "1\r2\r\nnew\r\n3\r\n");
        let (no_end, other) = (("1\n2", "1\n3\r"), ("1\n", "2\n"));
        let unmarked = "@@ -1 +1 @@\n-1\n+2\n";
        let marked = "@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\r\n\\ No newline at end of file\n";
        for ((before, after), name, written, wanted) in [
            (ends, "/a", "/a", "@@ -1,2 +1,3 @@\n 1\r2\r\n+new\r\n 3\r\n"),
            (no_end, "/a", "/a", marked),
            (other, "/srv/a-b_c.xml", "/srv/a-b_c.xml", unmarked),
            (other, "/a b.xml", "\"/a b.xml\"", unmarked),
            (
                other,
                "/é\n\t\"\\",
                r#""/\303\251\012\011\042\134""#,
                unmarked,
            ),
        ] {
            let patch = unified_diff(Path::new(name), before.as_bytes(), after.as_bytes());
            let wanted = format!("--- {written}\n+++ {written}\n{wanted}");
            assert_eq!(String::from_utf8(patch).unwrap(), wanted);
        }
    }
}
