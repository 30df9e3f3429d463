//! Candidates that cannot be read (R3).

use jiff::Timestamp;

use crate::announce::engine::Engine;
use crate::announce::time::later;
use crate::report::status::BrokenView;

/// Candidates that are reported; of others, their number.
const MAX_BROKEN: usize = 100;

/// Returns the first candidates that cannot be read, and the number of the others: first those that lasted, each kind by
/// how long it cannot be read.
pub fn first(engine: &Engine, now: Timestamp) -> (Vec<BrokenView>, usize) {
    let sources = engine.sources().iter().zip(&engine.plan().sources);
    let troubles = sources.flat_map(|(source, plan)| {
        let troubles = source.tree.troubles().iter();
        troubles.map(move |(uri, trouble)| (source, plan, uri, trouble))
    });
    let mut all: Vec<_> = troubles.collect();
    // Each source has its own `broken_after`: an older trouble may not have lasted where a later one has.
    all.sort_by_key(|(_, plan, uri, trouble)| {
        let is_fresh = later(trouble.since, plan.broken_after) > now;
        (is_fresh, trouble.since, *uri)
    });
    let first = all.iter().take(MAX_BROKEN);
    let first = first.map(|(source, plan, uri, trouble)| {
        let mount = plan.mount(trouble.path.mount);
        let below = trouble.path.text();
        BrokenView {
            source: plan.name.clone(),
            path: match mount {
                Some(mount) => format!("{}/{below}", mount.directory.display()),
                None => below.into_owned(),
            },
            uri: (*uri).clone(),
            reason: trouble.reason.clone(),
            since: trouble.since,
            known: source.catalog().is_there(uri),
            lasting: later(trouble.since, plan.broken_after) <= now,
        }
    });
    (first.collect(), all.len().saturating_sub(MAX_BROKEN))
}
