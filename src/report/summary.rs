//! The activity of the daemon in one line, as a service manager shows it: problems come first. It has no control characters,
//! and a bounded length, whatever hubs and files are called.

use std::collections::BTreeMap;
use std::path::PathBuf;

use resourcesync::escape::printable;
use resourcesync::uri::Hub;

use crate::report::status::words::{counted, counted_grouped, grouped};

/// The status in a few numbers and names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusSummary {
    pub channels: usize,
    /// Pending changes, counted for each hub that they are due to.
    pub pending: usize,
    /// The hubs that fail on some channel, with the reason.
    pub troubled: BTreeMap<Hub, String>,
    /// The sources with suspended deletions (R15).
    pub suspended: Vec<String>,
    /// Sets of which no change is sent to any hub.
    pub muted: usize,
    /// Mounts that are not there.
    pub absent: Vec<PathBuf>,
}

/// Returns the line while not every present mount was swept yet.
pub fn sweeping_line(files: u64) -> String {
    match files {
        0 => "sweeping".to_owned(),
        files => format!("sweeping {}", counted_grouped(files, "file")),
    }
}

/// Returns the line while the state cannot be saved, or read.
pub fn unsaved_line(trouble: &str) -> String {
    printable(&format!("cannot save, nothing is sent: {trouble}"))
}

/// Returns the line of `rsnotify hub`: the subscriptions, and the deliveries that are pending for them. `refused` is the
/// reason why the configuration was not reloaded.
pub fn public_hub_line(subscriptions: usize, owed: usize, refused: Option<&str>) -> String {
    let (subscriptions, owed) = (counted(subscriptions, "subscription"), grouped(owed));
    let mut parts = Vec::from_iter(refused.map(not_reloaded));
    parts.push(format!("{subscriptions}, deliveries owed: {owed}"));
    printable(&parts.join("; "))
}

fn not_reloaded(reason: &str) -> String {
    format!("configuration not reloaded, keeping the previous one: {reason}")
}

impl StatusSummary {
    /// Returns the line when all is swept and saved. `refused` is the reason why the configuration was not reloaded.
    pub fn line(&self, refused: Option<&str>) -> String {
        let mut parts = Vec::from_iter(refused.map(not_reloaded));
        if self.muted > 0 {
            let sets = counted_grouped(self.muted, "set");
            parts.push(format!("NOTHING IS SENT of {sets}, see `rsnotify status`"));
        }
        if let Some((hub, reason)) = self.troubled.first_key_value() {
            parts.push(match self.troubled.len() {
                1 => format!("1 hub in trouble: {hub}: {reason}"),
                count => format!("{count} hubs in trouble, such as {hub}: {reason}"),
            });
        }
        if !self.suspended.is_empty() {
            let sources = self.suspended.join(", ");
            parts.push(format!(
                "deletions of {sources} are suspended, see `rsnotify status`"
            ));
        }
        match self.absent.as_slice() {
            [] => {}
            [mount] => parts.push(format!("{} is not there", mount.display())),
            mounts => parts.push(format!("{} mounts are not there", mounts.len())),
        }
        let (channels, pending) = (
            counted_grouped(self.channels, "channel"),
            grouped(self.pending),
        );
        parts.push(format!("{channels}, {pending} pending"));
        printable(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn watching(change: impl FnOnce(&mut StatusSummary)) -> String {
        let mut summary = StatusSummary {
            channels: 12,
            ..StatusSummary::default()
        };
        change(&mut summary);
        summary.line(None)
    }

    fn troubled(hubs: &[&str]) -> String {
        let hub = |hub: &&str| (Hub::new(*hub), "it refuses (400)".to_owned());
        watching(|summary| summary.troubled = hubs.iter().map(hub).collect())
    }

    #[rstest]
    #[case(sweeping_line(0), "sweeping")]
    #[case(sweeping_line(1), "sweeping 1 file")]
    #[case(sweeping_line(999), "sweeping 999 files")]
    #[case(sweeping_line(41_200), "sweeping 41,200 files")]
    #[case(sweeping_line(1_000_000), "sweeping 1,000,000 files")]
    #[case(
        unsaved_line("the disk is full"),
        "cannot save, nothing is sent: the disk is full"
    )]
    #[case(watching(|_| ()), "12 channels, 0 pending")]
    #[case(watching(|summary| (summary.channels, summary.pending) = (1, 1_234)), "1 channel, 1,234 pending")]
    #[case(
        troubled(&["https://a.example/"]),
        "1 hub in trouble: https://a.example/: it refuses (400); 12 channels, 0 pending"
    )]
    #[case(
        troubled(&["https://b.example/", "https://a.example/"]),
        "2 hubs in trouble, such as https://a.example/: it refuses (400); 12 channels, 0 pending"
    )]
    #[case(
        StatusSummary::default().line(Some("line 3: unknown key")),
        "configuration not reloaded, keeping the previous one: line 3: unknown key; 0 channels, 0 pending"
    )]
    #[case(
        watching(|summary| summary.suspended = vec!["main".into(), "more".into()]),
        "deletions of main, more are suspended, see `rsnotify status`; 12 channels, 0 pending"
    )]
    #[case(watching(|summary| summary.muted = 1), "NOTHING IS SENT of 1 set, see `rsnotify status`; 12 channels, 0 pending")]
    #[case(
        watching(|summary| summary.absent = vec!["/srv/www".into()]),
        "/srv/www is not there; 12 channels, 0 pending"
    )]
    #[case(
        watching(|summary| summary.absent = vec!["/a".into(), "/b".into()]),
        "2 mounts are not there; 12 channels, 0 pending"
    )]
    fn a_line_says_what_is_being_done(#[case] line: String, #[case] want: &str) {
        assert_eq!(line, want);
    }

    #[test]
    fn nothing_that_others_name_makes_it_more_than_one_line() {
        let name = format!("/srv\nWATCHDOG=trigger\n{}", "x".repeat(10_000));
        let line = watching(|summary| summary.absent = vec![name.into()]);
        assert!(line.starts_with("/srv WATCHDOG=trigger x"), "{line}");
        assert!(line.len() < 1_000, "{}", line.len());
    }
}
