//! `[window]`: how changes are batched into notifications.

use std::time::Duration;

use crate::announce::plan::{ChangeWindowPlan, WindowPlan};
use crate::config::definition::Fallback::Default;
use crate::config::definition::{Definition, Kind};
use crate::config::duration;
use crate::config::effective::{Page, quoted};
use crate::config::form::{DURATION, integer};
use crate::config::key::ConfigKey;
use crate::config::origin::Origin;
use crate::config::section::Section;

pub static WINDOW: Definition = Definition::table(
    "window",
    Kind::Table(&[
        &QUIET.definition,
        &MAX_WAIT.definition,
        &HOLD.definition,
        &MAX_ENTRIES.definition,
        &CHANGE_QUIET.definition,
        &CHANGE_MAX_WAIT.definition,
        &CHANGE_BACKLOG.definition,
    ]),
    "Batching of changes into notifications.",
);

static QUIET: ConfigKey<Duration> = ConfigKey::new(
    "window",
    "quiet",
    DURATION,
    Default("\"2s\""),
    "Time without further changes after which the changes of a channel are announced; `\"0s\"` announces at once.",
)
.more("Not longer than `max_wait`.");

static MAX_WAIT: ConfigKey<Duration> = ConfigKey::new(
    "window",
    "max_wait",
    DURATION,
    Default("\"30s\""),
    "Longest time from the first change to the notification.",
);

static HOLD: ConfigKey<Duration> = ConfigKey::new(
    "window",
    "hold",
    DURATION,
    Default("\"60s\""),
    "Longest time that a new document waits to be listed by its Capability List, index or archive.",
);

static MAX_ENTRIES: ConfigKey<u32> = ConfigKey::new(
    "window",
    "max_entries",
    integer(50_000),
    Default("1000"),
    "Maximum number of changes in one notification, 1 to 50000; the rest waits for the next.",
);

static CHANGE_QUIET: ConfigKey<Duration> = ConfigKey::new(
    "window",
    "change_quiet",
    DURATION,
    Default("\"250ms\""),
    "Time without changes of its Change Lists after which the changes of a change channel are announced.",
)
.more("Not longer than `change_max_wait`.");

static CHANGE_MAX_WAIT: ConfigKey<Duration> = ConfigKey::new(
    "window",
    "change_max_wait",
    DURATION,
    Default("\"5s\""),
    "Longest time from the first changed Change List to the notification.",
);

static CHANGE_BACKLOG: ConfigKey<u32> = ConfigKey::new(
    "window",
    "change_backlog",
    integer(100_000_000),
    Default("1000000"),
    "Maximum number of changes that wait for a hub on a change channel; the oldest beyond it are dropped for that hub.",
);

/// The largest payload (R21).
const MAX_BYTES: usize = 1024 * 1024;

/// Reads `[window]`.
pub fn window(section: &mut Section<'_, '_, '_>) -> WindowPlan {
    let origin = match section.origin_of(&QUIET) {
        Origin::Absent => section.origin_of(&MAX_WAIT),
        origin => origin,
    };
    let change_origin = match section.origin_of(&CHANGE_QUIET) {
        Origin::Absent => section.origin_of(&CHANGE_MAX_WAIT),
        origin => origin,
    };
    let plan = WindowPlan {
        quiet: section.value(&QUIET),
        max_wait: section.value(&MAX_WAIT),
        hold: section.value(&HOLD),
        max_entries: section.value(&MAX_ENTRIES) as usize,
        max_bytes: MAX_BYTES,
        changes: ChangeWindowPlan {
            quiet: section.value(&CHANGE_QUIET),
            max_wait: section.value(&CHANGE_MAX_WAIT),
            backlog: section.value(&CHANGE_BACKLOG) as usize,
        },
    };
    let loader = &mut section.loader;
    if plan.quiet > plan.max_wait && !loader.is_misspelt(&["quiet", "max_wait", "window"]) {
        let quiet = duration::display(plan.quiet);
        let max_wait = duration::display(plan.max_wait);
        let message = format!("{quiet} is longer than max_wait, {max_wait}");
        loader.report(origin, &QUIET.definition, message);
    }
    let changes = &plan.changes;
    let keys = ["change_quiet", "change_max_wait", "window"];
    if changes.quiet > changes.max_wait && !loader.is_misspelt(&keys) {
        let quiet = duration::display(changes.quiet);
        let max_wait = duration::display(changes.max_wait);
        let message = format!("{quiet} is longer than change_max_wait, {max_wait}");
        loader.report(change_origin, &CHANGE_QUIET.definition, message);
    }
    plan
}

/// Writes `[window]`.
pub fn effective(page: &mut Page<'_>, plan: &WindowPlan) {
    // A field that is added cannot be forgotten here.
    let WindowPlan {
        quiet,
        max_wait,
        hold,
        max_entries,
        max_bytes: _,
        changes,
    } = plan;
    let ChangeWindowPlan {
        quiet: change_quiet,
        max_wait: change_max_wait,
        backlog,
    } = changes;
    for (key, value) in [(&QUIET, quiet), (&MAX_WAIT, max_wait), (&HOLD, hold)] {
        page.key(&key.definition, quoted(duration::display(*value)));
    }
    page.key(&MAX_ENTRIES.definition, max_entries);
    for (key, value) in [
        (&CHANGE_QUIET, change_quiet),
        (&CHANGE_MAX_WAIT, change_max_wait),
    ] {
        page.key(&key.definition, quoted(duration::display(*value)));
    }
    page.key(&CHANGE_BACKLOG.definition, backlog);
}
