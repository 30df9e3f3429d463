//! The health of the daemon: each hub over all channels, and alerts, the same on the status page and on a terminal.

use std::collections::BTreeMap;

use announce::delivery::KeptAnswer;
use announce::plan::{PublishMode, is_broker_name};
use jiff::Timestamp;
use resourcesync::uri::Hub;
use websub::publisher::reason::RefusalKind;

use crate::report::status::words::counted;
use crate::report::status::{
    AccountCondition, BacklogOverflow, ChannelView, HubView, MissingInDirectory, MountStatus,
    MutedSet, NeverReachedHub, SourceStatus, Status,
};

/// A condition that an operator should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// [`Act`](Health::Act) if it does not pass by itself; [`Look`](Health::Look) if it may, and the rest goes on.
    pub urgency: Health,
    pub part: StatusPart,
    pub what: String,
    pub since: Option<Timestamp>,
    /// The usual cause, or the remedy.
    pub advice: Option<String>,
}

/// The part of the status that says more about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusPart {
    State,
    Configuration,
    Sources,
    Hubs,
    Subscriptions,
    Broken,
    Findings,
}

impl Alert {
    fn new(urgency: Health, part: StatusPart, what: String, advice: &str) -> Alert {
        Alert {
            urgency,
            part,
            what,
            since: None,
            advice: Some(advice.to_owned()),
        }
    }

    fn with_since(self, since: Option<Timestamp>) -> Alert {
        Alert { since, ..self }
    }
}

/// Directories that are named in an alert.
const MAX_DIRECTORIES: usize = 3;

/// The health of the daemon; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
            Some(urgency) => urgency,
            None if self.sources.iter().any(|source| !source.settled) => Health::Busy,
            None if self.channels.iter().any(waits) => Health::Busy,
            None => Health::Fine,
        }
    }

    /// Returns all alerts, the most urgent first.
    pub fn alerts(&self) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if let Some(trouble) = &self.unsaved {
            let advice = "pending notifications are sent once the state can be saved again";
            let what = format!("Nothing is sent: {trouble}");
            alerts.push(Alert::new(Health::Act, StatusPart::State, what, advice));
        }
        let configuration = self.configuration.as_ref();
        if let Some(refused) = configuration.and_then(|loaded| loaded.refused.as_ref()) {
            let advice = "the previous one stays in effect; correct the file and reload";
            let what = format!("The configuration was not reloaded: {}", refused.error);
            let alert = Alert::new(Health::Act, StatusPart::Configuration, what, advice);
            alerts.push(alert.with_since(Some(refused.at)));
        }
        for source in &self.sources {
            add_source_alerts(source, &mut alerts);
        }
        self.add_muted_alerts(&mut alerts);
        let mut failing = self.hubs();
        failing.retain(|summary| !summary.troubles.is_empty());
        for summary in &failing {
            let troubles = summary.troubles.iter();
            alerts.extend(troubles.map(|trouble| of_hub(summary.hub, trouble)));
        }
        let is_failing = |hub: &Hub| failing.iter().any(|summary| summary.hub == hub);
        let unreached = self.unreached.iter().filter(|one| !is_failing(&one.hub));
        alerts.extend(unreached.map(of_unreached));
        alerts.extend(self.fell_behind.iter().map(of_fallen_behind));
        if let Some(hub) = self.embedded_hub.as_ref().filter(|hub| hub.failing > 0) {
            let count = counted(hub.failing, "subscription");
            let what = match (&hub.failure, hub.failing) {
                (None, 1) => format!("{count} fails"),
                (None, _) => format!("{count} fail"),
                (Some(reason), 1) => format!("{count} fails: {reason}"),
                (Some(reason), _) => format!("{count} fail, one of them for this reason: {reason}"),
            };
            let advice = "deliveries are retried; `rsnotify subscriptions list` names them, and `remove` ends one";
            let part = StatusPart::Subscriptions;
            alerts.push(Alert::new(Health::Look, part, what, advice));
        }
        // Lasting ones come first, so the others that are only counted are lasting only if all in the list are.
        let are_lasting = self.broken.iter().take_while(|broken| broken.lasting);
        let lasting = are_lasting.count();
        if let Some(first) = self.broken.first().filter(|_| lasting > 0) {
            let all_last = lasting == self.broken.len();
            let count = lasting + if all_last { self.more_broken } else { 0 };
            let what = format!("{} cannot be read", counted(count, "document"));
            let advice = "their last good versions are kept";
            let alert = Alert::new(Health::Look, StatusPart::Broken, what, advice);
            alerts.push(alert.with_since(Some(first.since)));
        }
        if !self.findings.is_empty() {
            let count = counted(self.findings.len() + self.more_findings, "problem");
            let mut groups = self.finding_groups.iter();
            let wrong_url = groups.find(|group| group.kind == "wrong_url" && !group.acknowledged);
            let what = format!("{count} in the published tree");
            alerts.push(Alert {
                advice: wrong_url.and_then(|group| group.examples.first().cloned()),
                ..Alert::new(Health::Look, StatusPart::Findings, what, "")
            });
        }
        alerts.sort_by_key(|alert| alert.urgency);
        alerts
    }

    /// Returns every hub, those that fail first.
    pub fn hubs(&self) -> Vec<HubSummary<'_>> {
        let hubs = self.sum_hubs_by(|_, hub| &hub.hub);
        let mut hubs: Vec<HubSummary<'_>> = hubs.into_values().collect();
        hubs.sort_by_key(HubSummary::worst_condition);
        hubs
    }

    /// Returns the sums of hubs by a key.
    pub fn sum_hubs_by<'a, K: Ord>(
        &'a self,
        key: impl Fn(&'a ChannelView, &'a HubView) -> K,
    ) -> BTreeMap<K, HubSummary<'a>> {
        let mut all: BTreeMap<K, Vec<&HubView>> = BTreeMap::new();
        for channel in &self.channels {
            for view in &channel.hubs {
                all.entry(key(channel, view)).or_default().push(view);
            }
        }
        let sum = |(key, views): (K, Vec<&'a HubView>)| (key, HubSummary::of(&views));
        all.into_iter().map(sum).collect()
    }

    /// Adds an alert for each reason for which sets are muted, whatever their number.
    fn add_muted_alerts(&self, alerts: &mut Vec<Alert>) {
        let mut by_reason: BTreeMap<(&str, &str), (&MutedSet, usize)> = BTreeMap::new();
        for muted in &self.muted {
            let reason = match muted.kind.as_str() {
                "foreign_hubs" | "wrong_url" => &muted.reason,
                _ => &muted.kind,
            };
            let of_reason = by_reason.entry((&muted.kind, reason));
            of_reason.or_insert((muted, 0)).1 += 1;
        }
        for (muted, count) in by_reason.into_values() {
            let others = match count - 1 {
                0 => String::new(),
                others => format!(" (and {} like it)", counted(others, "other set")),
            };
            let MutedSet { set, reason, .. } = muted;
            let what = format!("NOTHING IS SENT of {set}{others}: {reason}");
            let part = StatusPart::Findings;
            alerts.push(Alert::new(Health::Act, part, what, &muted.remedy));
        }
        if self.more_muted > 0 {
            let sets = counted(self.more_muted, "more set");
            let what = format!("NOTHING IS SENT of {sets}");
            let advice = "`rsnotify check` reports the reason for each";
            alerts.push(Alert::new(Health::Act, StatusPart::Findings, what, advice));
        }
    }
}

fn add_source_alerts(source: &SourceStatus, alerts: &mut Vec<Alert>) {
    let mounts = || source.mounts.iter();
    for mount in mounts().filter(|mount| mount.present == Some(false)) {
        let advice = "nothing below it counts as deleted; it is swept when it is back";
        // The reason says the directory again.
        let reason = mount.reason.as_deref().unwrap_or_default();
        let rest = reason.strip_prefix(mount.directory.as_str());
        let reason = rest.unwrap_or(reason);
        let what = format!("{} ({}) is not there{reason}", mount.directory, source.name);
        alerts.push(Alert::new(Health::Act, StatusPart::Sources, what, advice));
    }
    if let Some(reason) = &source.without_document {
        let what = format!("nothing is announced of {}: {reason}", source.name);
        let advice = "`rsnotify scan FILE` explains one file";
        alerts.push(Alert::new(Health::Look, StatusPart::Sources, what, advice));
    }
    if let Some(suspension) = &source.suspension {
        let missing_in = &source.missing_in;
        let named = &missing_in[..missing_in.len().min(MAX_DIRECTORIES)];
        let more = missing_in.len() - named.len() + source.more_missing_in;
        let is_any = !missing_in.is_empty();
        alerts.push(Alert {
            advice: is_any.then(|| describe_missing(named, more)),
            ..Alert::new(Health::Act, StatusPart::Sources, suspension.clone(), "")
        });
    }
    alerts.extend(mounts().filter_map(|mount| of_unreadable(source, mount)));
}

/// Returns the directories with most missing documents, and the number of the others.
pub fn describe_missing(named: &[MissingInDirectory], more: usize) -> String {
    let mut parts: Vec<String> = named.iter().map(ToString::to_string).collect();
    if more > 0 {
        parts.push(format!("and {}", more_directories(more)));
    }
    format!("missing: {}", parts.join(", "))
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
    let (name, root, directory, reason) = (
        &source.name,
        &mount.directory,
        &first.directory,
        &first.reason,
    );
    let what = match mount.unreadable_directory_count() {
        1 => format!("the directory {directory} ({name}) cannot be read: {reason}"),
        many => format!(
            "{many} directories below {root} ({name}) cannot be read, such as {directory}: {reason}"
        ),
    };
    let mut advice = "nothing below it is announced, and nothing counts as deleted".to_owned();
    if let Some(remedy) = &first.remedy {
        advice = format!("{remedy}; {advice}");
    }
    let since = mount.unreadable.iter().map(|directory| directory.since);
    Some(Alert::new(Health::Act, StatusPart::Sources, what, &advice).with_since(since.min()))
}

fn of_fallen_behind(behind: &BacklogOverflow) -> Alert {
    let BacklogOverflow { hub, topic, .. } = behind;
    let changes = counted(behind.changes, "change");
    let what =
        format!("{hub} fell behind on {topic}: {changes} that it was never sent, counted as told");
    let advice = "its Destinations see the gap, and have to read the Change Lists; raise window.change_backlog if that \
                  is too early";
    Alert::new(Health::Look, StatusPart::Hubs, what, advice).with_since(Some(behind.last))
}

fn of_unreached(unreached: &NeverReachedHub) -> Alert {
    let (hub, reason) = (&unreached.hub, &unreached.reason);
    let alert = if unreached.is_refused {
        let what = format!("{hub} refuses the login: {reason}");
        let advice =
            "nothing is lost; correct the user, the password or the virtual host, and reload";
        Alert::new(Health::Act, StatusPart::Hubs, what, advice)
    } else {
        let what = format!("{hub} cannot be reached: {reason}");
        let advice = "nothing is lost, and all is sent once it can be; `rsnotify check` tries too";
        Alert::new(Health::Look, StatusPart::Hubs, what, advice)
    };
    alert.with_since(Some(unreached.since))
}

fn of_hub(hub: &Hub, trouble: &HubTrouble<'_>) -> Alert {
    let (channels, reason) = (counted(trouble.channels, "channel"), trouble.reason);
    let what = match trouble.state {
        AccountCondition::Unfetched => format!("{hub} is pinged and does not fetch {channels}"),
        _ => format!("{hub} does not accept notifications of {channels}: {reason}"),
    };
    let urgency = match trouble.state {
        AccountCondition::NeedsOperator => Health::Act,
        _ => Health::Look,
    };
    let cause = trouble.kind.map_or(
        "the hub cannot reach the topic at its URI, or it was never advertised with this hub",
        |kind| kind.usual_cause(is_broker_name(hub)),
    );
    let advice = match trouble.own_reason {
        Some(words) => format!("it said: {words}; usually: {cause}"),
        None => format!("usually: {cause}"),
    };
    Alert::new(urgency, StatusPart::Hubs, what, &advice).with_since(trouble.since)
}

/// One hub over all channels.
#[derive(Debug, Clone, PartialEq)]
pub struct HubSummary<'a> {
    pub hub: &'a Hub,
    pub mode: PublishMode,
    pub channels: usize,
    /// The number of channels in each condition; the worst comes first.
    pub states: BTreeMap<AccountCondition, usize>,
    pub due: usize,
    pub in_flight: usize,
    /// The time since when the oldest notification is in flight. A topic without subscribers pages no operator, and does
    /// not hide another topic of the hub.
    pub oldest: Option<Timestamp>,
    /// The number of notifications in flight that failed, by reason.
    pub refused: BTreeMap<RefusalKind, usize>,
    /// The number of topics that it did not fetch after a ping.
    pub unfetched: usize,
    /// The time of the last accepted notification.
    pub accepted: Option<Timestamp>,
    /// The latest attempt on any channel.
    pub last: Option<&'a KeptAnswer>,
    pub troubles: Vec<HubTrouble<'a>>,
}

/// A failure of a hub on some channels, with the reason on one of them.
#[derive(Debug, Clone, PartialEq)]
pub struct HubTrouble<'a> {
    pub state: AccountCondition,
    /// Nothing where it accepts.
    pub kind: Option<RefusalKind>,
    pub reason: &'a str,
    /// The reason in the hub's own words, if it gave any.
    pub own_reason: Option<&'a str>,
    pub channels: usize,
    /// The time since when it fails on the first of them.
    pub since: Option<Timestamp>,
}

impl<'a> HubSummary<'a> {
    /// Returns its worst condition.
    pub fn worst_condition(&self) -> AccountCondition {
        let worst = self.states.keys().next();
        worst.copied().unwrap_or(AccountCondition::Fine)
    }

    /// Returns the number of channels in each condition, such as "2 failing, 40 fine".
    pub fn states_in_words(&self) -> String {
        let counts = self.states.iter();
        let states = counts.map(|(state, count)| format!("{count} {}", state.in_words()));
        states.collect::<Vec<_>>().join(", ")
    }

    /// Sums up the views of one hub on some channels, one at least.
    pub fn of(views: &[&'a HubView]) -> HubSummary<'a> {
        let all = || views.iter().copied();
        let refusal = |view: &HubView| view.failure().map(|refusal| refusal.kind);
        let idle = Some(RefusalKind::NoSubscribersLikely);
        let awaited = all().filter(|view| refusal(view) != idle);
        let unfetched = all().filter(|view| view.fetch_confirmed == Some(false));
        let last = all().filter_map(|view| view.last.as_ref());
        HubSummary {
            hub: &views[0].hub,
            mode: views[0].mode,
            channels: views.len(),
            states: count_each(all().map(|view| view.state)),
            due: all().map(|view| view.due).sum(),
            in_flight: all().filter(|view| view.in_flight.is_some()).count(),
            oldest: awaited.filter_map(|view| view.since).min(),
            refused: count_each(all().filter_map(refusal)),
            unfetched: unfetched.count(),
            accepted: all().filter_map(|view| view.accepted).max(),
            last: last.max_by_key(|last| last.at),
            troubles: grouped_failures(all()),
        }
    }
}

/// Returns how often each item occurs.
fn count_each<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

/// Returns the failures, those of one hub for one reason together.
fn grouped_failures<'a>(views: impl Iterator<Item = &'a HubView>) -> Vec<HubTrouble<'a>> {
    let mut troubles: Vec<HubTrouble<'a>> = Vec::new();
    for view in views.filter(|view| view.state.is_trouble()) {
        let Some(reason) = view.trouble_reason() else {
            continue;
        };
        let kind = view.failure().map(|refusal| refusal.kind);
        // Where the hub fails as a whole, other channels were not tried.
        let is_it = |last: &&KeptAnswer| last.refusal.as_ref().map(|refusal| refusal.kind) == kind;
        let last = view.last.as_ref().filter(is_it);
        let own_reason = last.and_then(KeptAnswer::reason_in_body);
        let mut known = troubles.iter_mut();
        match known.find(|trouble| (trouble.state, trouble.kind) == (view.state, kind)) {
            Some(trouble) => {
                trouble.own_reason = trouble.own_reason.or(own_reason);
                trouble.channels += 1;
                trouble.since = trouble.since.into_iter().chain(view.since).min();
            }
            None => troubles.push(HubTrouble {
                state: view.state,
                kind,
                reason,
                own_reason,
                channels: 1,
                since: view.since,
            }),
        }
    }
    troubles
}
