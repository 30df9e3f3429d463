//! `[window]`: how changes are batched into notifications.

use std::time::Duration;

use resourcesync::duration::display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::config::file::{Checked, ConfigFile};
use crate::config::text::{ParsedText, seconds};
use announce::plan::WindowPlan;

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
    pub quiet: ParsedText<Duration>,
    /// Longest time from the first change to the notification.
    #[default(seconds(30))]
    pub max_wait: ParsedText<Duration>,
    /// Longest time that a new document waits to be listed by its Capability List, index or archive.
    #[default(seconds(60))]
    pub hold: ParsedText<Duration>,
    /// Maximum number of changes in one notification, 1 to 50000; the rest waits for the next.
    #[schemars(range(min = 1, max = 50_000))]
    #[default(1_000)]
    pub max_entries: usize,
    /// Time without changes of its Change Lists after which the changes of a change channel are announced.
    ///
    /// Not longer than `change_max_wait`.
    #[default(ParsedText(Duration::from_millis(250)))]
    pub change_quiet: ParsedText<Duration>,
    /// Longest time from the first changed Change List to the notification.
    #[default(seconds(5))]
    pub change_max_wait: ParsedText<Duration>,
    /// Maximum number of changes that wait for a hub on a change channel; the oldest beyond it are dropped for that hub.
    #[schemars(range(min = 1, max = 100_000_000))]
    #[default(1_000_000)]
    pub change_backlog: usize,
}

impl Window {
    pub(crate) fn check(&self, file: &ConfigFile<'_>) -> Checked {
        for (prefix, quiet, max_wait) in [
            ("", self.quiet.0, self.max_wait.0),
            ("change_", self.change_quiet.0, self.change_max_wait.0),
        ] {
            if quiet > max_wait {
                let (quiet, max_wait) = (display(quiet), display(max_wait));
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
