//! Alerts, and the health of the daemon: the same on the status page and on a terminal.

use std::collections::BTreeMap;

use jiff::Timestamp;
use resourcesync::uri::Hub;

use crate::report::status::hubs::HubTrouble;
use crate::report::status::words::counted;
use crate::report::status::{
    ChannelView, Condition, FellBehindView, MountStatus, MutedSet, SourceStatus, Status,
};

/// A condition that an operator should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    pub urgency: Urgency,
    pub part: Part,
    pub what: String,
    pub since: Option<Timestamp>,
    /// The usual cause, or the remedy.
    pub advice: Option<String>,
}

/// The urgency of an alert; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It does not pass by itself.
    Act,
    /// It may pass, and the rest goes on.
    Look,
}

/// The part of the status that says more about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    State,
    Configuration,
    Sources,
    Hubs,
    Broken,
    Findings,
}

/// Directories that are named in an alert.
const MAX_DIRECTORIES: usize = 3;

/// The health of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Act,
    Look,
    /// Nothing is wrong, and something is yet to be done.
    Busy,
    Fine,
}

impl Health {
    pub fn in_words(self) -> &'static str {
        match self {
            Health::Act => "Action required",
            Health::Look => "Attention needed",
            Health::Busy => "OK, work in progress",
            Health::Fine => "OK",
        }
    }
}

impl Status {
    /// Returns the health of the daemon.
    pub fn health(&self) -> Health {
        let waits = |channel: &ChannelView| channel.pending_count() + channel.held_count() > 0;
        match self.alerts().first().map(|alert| alert.urgency) {
            Some(Urgency::Act) => Health::Act,
            Some(Urgency::Look) => Health::Look,
            None if self.sources.iter().any(|source| !source.settled) => Health::Busy,
            None if self.channels.iter().any(waits) => Health::Busy,
            None => Health::Fine,
        }
    }

    /// Returns all alerts, the most urgent first.
    pub fn alerts(&self) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if let Some(trouble) = &self.unsaved {
            alerts.push(Alert {
                urgency: Urgency::Act,
                part: Part::State,
                what: format!("Nothing is sent: {trouble}"),
                since: None,
                advice: Some(
                    "pending notifications are sent once the state can be saved again".to_owned(),
                ),
            });
        }
        let configuration = self.configuration.as_ref();
        if let Some(refused) =
            configuration.and_then(|configuration| configuration.refused.as_ref())
        {
            alerts.push(Alert {
                urgency: Urgency::Act,
                part: Part::Configuration,
                what: format!("The configuration was not reloaded: {}", refused.error),
                since: Some(refused.at),
                advice: Some(
                    "the previous one stays in effect; correct the file and reload".to_owned(),
                ),
            });
        }
        self.sources
            .iter()
            .for_each(|source| of_source(source, &mut alerts));
        self.of_muted(&mut alerts);
        for summary in self.hubs() {
            let troubles = summary.troubles.iter();
            alerts.extend(troubles.map(|trouble| of_hub(summary.hub, trouble)));
        }
        alerts.extend(self.fell_behind.iter().map(of_fallen_behind));
        // Lasting ones come first, so the others that are only counted are lasting only if all in the list are.
        let lasting = self
            .broken
            .iter()
            .take_while(|broken| broken.lasting)
            .count();
        if lasting > 0 {
            let all_last = lasting == self.broken.len();
            let count = lasting + if all_last { self.more_broken } else { 0 };
            alerts.push(Alert {
                urgency: Urgency::Look,
                part: Part::Broken,
                what: format!("{} cannot be read", counted(count, "document")),
                since: self.broken.first().map(|broken| broken.since),
                advice: Some("their last good versions are kept".to_owned()),
            });
        }
        if !self.findings.is_empty() {
            let count = counted(self.findings.len() + self.more_findings, "problem");
            let mut groups = self.finding_groups.iter();
            let wrong_url = groups.find(|group| group.kind == "wrong_url" && !group.acknowledged);
            alerts.push(Alert {
                urgency: Urgency::Look,
                part: Part::Findings,
                what: format!("{count} in the published tree"),
                since: None,
                advice: wrong_url.and_then(|group| group.examples.first().cloned()),
            });
        }
        alerts.sort_by_key(|alert| alert.urgency);
        alerts
    }
}

impl Status {
    /// Adds an alert for each reason for which sets are muted, whatever their number.
    fn of_muted(&self, alerts: &mut Vec<Alert>) {
        let mut by_reason: BTreeMap<(&str, &str), (&MutedSet, usize)> = BTreeMap::new();
        for muted in &self.muted {
            let reason = match muted.kind.as_str() {
                "foreign_hubs" | "wrong_url" => &muted.reason,
                _ => &muted.kind,
            };
            by_reason
                .entry((&muted.kind, reason))
                .or_insert((muted, 0))
                .1 += 1;
        }
        for (muted, count) in by_reason.into_values() {
            let others = match count - 1 {
                0 => String::new(),
                others => format!(" (and {} like it)", counted(others, "other set")),
            };
            let MutedSet { set, reason, .. } = muted;
            alerts.push(Alert {
                urgency: Urgency::Act,
                part: Part::Findings,
                what: format!("NOTHING IS SENT of {set}{others}: {reason}"),
                since: None,
                advice: Some(muted.remedy.clone()),
            });
        }
        if self.more_muted > 0 {
            let sets = counted(self.more_muted, "more set");
            alerts.push(Alert {
                urgency: Urgency::Act,
                part: Part::Findings,
                what: format!("NOTHING IS SENT of {sets}"),
                since: None,
                advice: Some("`rsnotify check` reports the reason for each".to_owned()),
            });
        }
    }
}

fn of_source(source: &SourceStatus, alerts: &mut Vec<Alert>) {
    let mut alert = |what: String, advice: Option<&str>| {
        alerts.push(Alert {
            urgency: Urgency::Act,
            part: Part::Sources,
            what,
            since: None,
            advice: advice.map(str::to_owned),
        });
    };
    for mount in source
        .mounts
        .iter()
        .filter(|mount| mount.present == Some(false))
    {
        let advice = "nothing below it counts as deleted; it is swept when it is back";
        // The reason says the directory again.
        let reason = mount.reason.as_deref().unwrap_or_default();
        let reason = reason
            .strip_prefix(mount.directory.as_str())
            .unwrap_or(reason);
        alert(
            format!("{} ({}) is not there{reason}", mount.directory, source.name),
            Some(advice),
        );
    }
    if let Some(suspension) = &source.suspension {
        let missing = missing_in(source);
        alert(suspension.clone(), missing.as_deref());
    }
    for mount in &source.mounts {
        alerts.extend(of_unreadable(source, mount));
    }
}

/// Returns the directories with most missing documents.
fn missing_in(source: &SourceStatus) -> Option<String> {
    let first = source.missing_in.iter().take(MAX_DIRECTORIES);
    let mut parts: Vec<String> = first.map(ToString::to_string).collect();
    let more = source.missing_in.len() + source.more_missing_in - parts.len();
    if more > 0 {
        parts.push(format!("and {}", more_directories(more)));
    }
    let is_any = !parts.is_empty();
    is_any.then(|| format!("missing: {}", parts.join(", ")))
}

/// Returns the number of directories that are not named, in words.
pub fn more_directories(more: usize) -> String {
    match more {
        1 => "1 more directory".to_owned(),
        more => format!("{more} more directories"),
    }
}

/// Returns one alert for a mount, however many of its directories may not be read.
fn of_unreadable(source: &SourceStatus, mount: &MountStatus) -> Option<Alert> {
    let first = mount.unreadable.first()?;
    let name = &source.name;
    let what = match mount.unreadable_count() {
        1 => format!(
            "the directory {} ({name}) cannot be read: {}",
            first.directory, first.reason
        ),
        many => format!(
            "{many} directories below {} ({name}) cannot be read, such as {}: {}",
            mount.directory, first.directory, first.reason
        ),
    };
    let meanwhile = "nothing below it is announced, and nothing counts as deleted";
    Some(Alert {
        urgency: Urgency::Act,
        part: Part::Sources,
        what,
        since: mount
            .unreadable
            .iter()
            .map(|directory| directory.since)
            .min(),
        advice: Some(match &first.remedy {
            Some(remedy) => format!("{remedy}; {meanwhile}"),
            None => meanwhile.to_owned(),
        }),
    })
}

fn of_fallen_behind(behind: &FellBehindView) -> Alert {
    let FellBehindView {
        hub,
        topic,
        changes,
        last,
    } = behind;
    let changes = counted(*changes, "change");
    Alert {
        urgency: Urgency::Look,
        part: Part::Hubs,
        what: format!("{hub} fell behind on {topic}: {changes} that it was never sent count as told"),
        since: Some(*last),
        advice: Some(
            "its Destinations see the gap, and have to read the Change Lists; raise window.change_backlog if that is \
             too early"
                .to_owned(),
        ),
    }
}

fn of_hub(hub: &Hub, trouble: &HubTrouble<'_>) -> Alert {
    let channels = counted(trouble.channels, "channel");
    let what = match trouble.state {
        Condition::Unfetched => format!("{hub} is pinged and does not fetch {channels}"),
        _ => format!(
            "{hub} does not accept notifications of {channels}: {}",
            trouble.reason
        ),
    };
    Alert {
        urgency: match trouble.state {
            Condition::NeedsOperator => Urgency::Act,
            _ => Urgency::Look,
        },
        part: Part::Hubs,
        what,
        since: trouble.since,
        advice: match trouble.kind {
            Some(kind) => Some(format!("usually: {}", kind.usual_cause())),
            None => Some(
                "usually: the hub cannot reach the topic at its URI, or it was never advertised with this hub"
                    .to_owned(),
            ),
        },
    }
}
