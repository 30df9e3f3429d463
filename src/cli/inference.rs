//! The prefix that `--root` is published as, without `--url`: the Capability Lists in it name their documents.

use std::fs;
use std::path::Path;

use announce::steps::findings::PrefixCounts;

use crate::cli::one_shot_scan::scan_with_state;
use crate::cli::output::eprint_line;
use crate::config::Config;
use crate::config::environment::Overrides;

/// The prefix of a tree while it is unknown. No document is named by it (RFC 2606 section 2).
const UNKNOWN: &str = "http://url.invalid/";
/// The maximum number of prefixes that are suggested.
const MAX_OFFERED: usize = 5;

/// The error if the prefix of the tree cannot be inferred.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UrlInferenceError(String);

/// Returns the flags with the missing `--url`, and prints the prefix that was inferred.
pub fn with_url(file: Option<&Path>, overrides: Overrides) -> anyhow::Result<Overrides> {
    let tree = &overrides.source.tree;
    let (Some(root), None) = (&tree.root, &tree.url) else {
        return Ok(overrides);
    };
    let with = |url: &str| {
        let mut with = overrides.clone();
        with.source.tree.url = Some(url.to_owned());
        with
    };
    let config = Config::load(file, &with(UNKNOWN))?;
    if let Err(reason) = fs::read_dir(root) {
        let root = root.display();
        let error = format!("cannot read the directory {root}: {reason}; correct --root");
        return Err(UrlInferenceError(error).into());
    }
    let scan = scan_with_state(&config, None, false)?;
    let source = &scan.engine.plan.sources[0];
    let naming = PrefixCounts::of(scan.engine.db(), source, &source.mounts[0])?;
    let all: usize = naming.otherwise.values().sum();
    let Some((prefix, _)) = naming.most_common().filter(|(_, count)| count * 2 > all) else {
        let (root, reason) = (root.display(), failure_reason(&naming, &scan.notices));
        let error = format!("cannot tell what {root} is published as: {reason}; give --url URI");
        return Err(UrlInferenceError(error).into());
    };
    eprint_line(format_args!(
        "without --url, {} is taken to be published as {prefix}: below that its Capability Lists name documents",
        root.display()
    ));
    Ok(with(prefix.as_str()))
}

fn failure_reason(naming: &PrefixCounts, notices: &[String]) -> String {
    if naming.otherwise.is_empty() {
        let unnamed = || "no Capability List in it names a document that is there".to_owned();
        return notices.first().cloned().unwrap_or_else(unnamed);
    }
    let mut candidates: Vec<_> = naming.otherwise.iter().collect();
    candidates.sort_by_key(|(prefix, count)| (std::cmp::Reverse(**count), (*prefix).clone()));
    let first = candidates.iter().take(MAX_OFFERED);
    let words = first.map(|(prefix, count)| format!("{prefix} ({count})"));
    let offered = words.collect::<Vec<_>>().join(", ");
    format!("its Capability Lists name documents below {offered}")
}
