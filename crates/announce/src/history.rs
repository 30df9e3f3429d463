//! The last notifications and their outcomes, for the report. Nothing is decided by it, and it is not saved:
//! after a restart it begins with what the state still holds.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::payload::Payload;
use resourcesync::uri::{Hub, Topic};
use serde::{Deserialize, Serialize};

use crate::delivery::KeptAnswer;
use crate::state::{ChannelId, Db, Result, read};
use crate::steps::cut::decode_times;

/// Notifications that are kept.
const MAX_NOTIFICATIONS: usize = 50;
/// Bytes of payloads that are kept with them: of the oldest notifications, only that there was one.
const MAX_BYTES: usize = 2 << 20;

/// The last notifications, over all channels.
#[derive(Debug, Default)]
pub struct NotificationHistory {
    /// In the order in which they were made. What is in flight may not be any more: the hub's account says
    /// more.
    pub notifications: VecDeque<(ChannelId, NotificationView)>,
    /// The size of the payloads that are kept.
    bytes: usize,
}

/// A notification, whatever became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationView {
    #[serde(default)]
    pub kind: ChannelKind,
    pub topic: Topic,
    pub seq: u64,
    /// The time when it was cut.
    pub cut: Timestamp,
    /// The number of its changes; nothing where only its sequence number outlived a restart.
    pub changes: Option<usize>,
    pub hubs: Vec<OutcomeView>,
    pub bytes: Option<usize>,
    /// Nothing where it is not kept any more.
    pub payload: Option<SharedPayload>,
}

/// The outcome at one hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeView {
    pub hub: Hub,
    pub outcome: NotificationState,
    /// The time of the last answer.
    pub at: Option<Timestamp>,
    /// Nothing where that is not known any more.
    pub attempts: Option<u32>,
    /// The reason why the last attempt failed.
    pub reason: Option<String>,
}

impl OutcomeView {
    pub fn new(hub: Hub, outcome: NotificationState) -> OutcomeView {
        OutcomeView {
            hub,
            outcome,
            at: None,
            attempts: None,
            reason: None,
        }
    }
}

/// The outcome of a notification at a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotificationState {
    /// It follows another one in the log of a change channel, which the hub has not accepted yet.
    Due,
    /// It was not answered yet.
    InFlight,
    /// The hub did not accept it yet; it is retried.
    Refused,
    Accepted,
    /// It was too large for the hub, or out of date before the hub was asked: the hub is told in others.
    Withdrawn,
    /// An operator dropped it, or it has no hub any more.
    Dropped,
}

impl NotificationState {
    /// Returns the outcome in words.
    pub fn in_words(self) -> &'static str {
        match self {
            NotificationState::Due => "due",
            NotificationState::InFlight => "in flight",
            NotificationState::Refused => "not accepted yet",
            NotificationState::Accepted => "accepted",
            NotificationState::Withdrawn => "withdrawn, told in others",
            NotificationState::Dropped => "dropped",
        }
    }
}

/// A payload, shared and not copied until somebody reads it; ours, and so UTF-8.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct SharedPayload(pub Arc<[u8]>);

impl fmt::Debug for SharedPayload {
    /// Leaves it out: it would drown everything else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl SharedPayload {
    pub fn as_text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<String> for SharedPayload {
    fn from(text: String) -> SharedPayload {
        SharedPayload(text.into_bytes().into())
    }
}

impl From<SharedPayload> for String {
    fn from(body: SharedPayload) -> String {
        body.as_text().into_owned()
    }
}

impl NotificationHistory {
    /// Adds a notification, and forgets the oldest beyond the limits.
    pub fn push(&mut self, channel: ChannelId, notification: NotificationView) {
        let size = |payload: Option<SharedPayload>| payload.map_or(0, |payload| payload.0.len());
        // One that grew before it was sent (C20).
        let is_same =
            |(of, known): &(_, NotificationView)| (*of, known.seq) == (channel, notification.seq);
        if let Some(at) = self.notifications.iter().rposition(is_same)
            && let Some((_, shorter)) = self.notifications.remove(at)
        {
            self.bytes -= size(shorter.payload);
        }
        self.bytes += size(notification.payload.clone());
        self.notifications.push_back((channel, notification));
        if self.notifications.len() > MAX_NOTIFICATIONS
            && let Some((_, oldest)) = self.notifications.pop_front()
        {
            self.bytes -= size(oldest.payload);
        }
        for (_, old) in &mut self.notifications {
            if self.bytes <= MAX_BYTES {
                break;
            }
            self.bytes -= size(old.payload.take());
        }
    }

    /// Notes the outcome of a notification at a hub, if it is still among the last.
    pub fn note_outcome(&mut self, channel: ChannelId, seq: u64, outcome: OutcomeView) {
        let mut latest_first = self.notifications.iter_mut().rev();
        let known = latest_first.find(|(of, known)| (*of, known.seq) == (channel, seq));
        let mut hubs = known.into_iter().flat_map(|(_, known)| &mut known.hubs);
        if let Some(known) = hubs.find(|known| known.hub == outcome.hub) {
            *known = outcome;
        }
    }

    /// Returns the last notifications, the newest first, with their outcomes as the accounts of the hubs have them.
    pub fn latest(&self, db: Db<'_>) -> Result<Vec<NotificationView>> {
        let mut views = Vec::new();
        for (channel, notification) in self.notifications.iter().rev() {
            let mut view = notification.clone();
            let open = view.hubs.iter_mut();
            for outcome in open.filter(|hub| hub.outcome == NotificationState::InFlight) {
                *outcome = outcome_by_account(db, *channel, view.seq, outcome.hub.clone())?;
            }
            views.push(view);
        }
        Ok(views)
    }
}

/// Returns the outcome of a notification that has no other than what the hub's account says.
fn outcome_by_account(db: Db<'_>, channel: ChannelId, seq: u64, hub: Hub) -> Result<OutcomeView> {
    let account = db.first::<(bool, _, Option<KeptAnswer>, bool)>(
        "SELECT a.seq IS NOT DISTINCT FROM ?3, a.attempts, a.last, coalesce(p.heard < ?3, FALSE) \
         FROM hub h CROSS JOIN account a ON a.channel = ?1 AND a.hub = h.id \
         LEFT JOIN log_position p ON p.channel = a.channel AND p.hub = a.hub WHERE h.uri = ?2",
        (channel, &hub, seq),
    )?;
    let mut view = OutcomeView::new(hub, NotificationState::Dropped);
    match account {
        Some((true, attempts, last, _)) => {
            let last = last.filter(|last| last.seq == seq);
            view.attempts = attempts;
            view.at = last.as_ref().map(|last| last.at);
            view.reason = last.and_then(|last| Some(last.refusal?.reason));
            view.outcome = match view.reason {
                Some(_) => NotificationState::Refused,
                None => NotificationState::InFlight,
            };
        }
        Some((false, _, _, true)) => view.outcome = NotificationState::Due,
        // Its channel or its hub may not be there any more (R13).
        Some((false, _, _, false)) | None => {}
    }
    Ok(view)
}

/// Returns what a state holds of the last notifications: what is in flight, the last notification of each channel without
/// a log, and the end of each log.
pub fn load_history(db: Db<'_>) -> Result<NotificationHistory> {
    let sql = format!(
        "SELECT 0, a.channel, c.topic, a.seq, a.cut, NULL, length(a.body), a.body, h.uri, a.last, NULL, TRUE, c.kind \
         FROM account a CROSS JOIN channel c ON c.id = a.channel CROSS JOIN hub h ON h.id = a.hub WHERE a.body IS NOT NULL \
         UNION ALL SELECT 1, c.id, c.topic, c.seq, NULL, NULL, length(c.body), CASE WHEN NOT EXISTS \
         (SELECT 1 FROM account p CROSS JOIN hub g ON g.id = p.hub WHERE p.channel = c.id AND g.mode = 'ping') \
         THEN c.body END, h.uri, a.last, c.untils, FALSE, c.kind \
         FROM channel c CROSS JOIN account a ON a.channel = c.id CROSS JOIN hub h ON h.id = a.hub \
         WHERE c.kind = 0 AND c.seq > 0 AND a.last IS NOT NULL \
         UNION ALL SELECT 1, c.id, c.topic, l.seq, l.cut, l.entries, l.bytes, CASE WHEN l.seq = c.seq THEN l.body END, \
         h.uri, a.last, NULL, p.heard < l.seq, c.kind FROM (SELECT l.channel, l.seq FROM channel c CROSS JOIN change_log l ON l.channel = c.id \
         WHERE c.kind = 1 AND l.seq > c.seq - {MAX_NOTIFICATIONS} ORDER BY l.cut DESC LIMIT {MAX_NOTIFICATIONS}) r \
         CROSS JOIN channel c ON c.id = r.channel CROSS JOIN change_log l ON l.channel = r.channel AND l.seq = r.seq \
         CROSS JOIN log_position p ON p.channel = c.id CROSS JOIN account a ON a.channel = c.id AND a.hub = p.hub \
         CROSS JOIN hub h ON h.id = a.hub ORDER BY 2, 4, 1, 9"
    );
    let mut known: Vec<(ChannelId, NotificationView)> = Vec::new();
    let mut statement = db.statement(&sql, ())?;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let (notification, sizes, account, kind) = read(row)?;
        let (_, channel, topic, seq, cut): (u8, _, _, u64, Option<Timestamp>) = notification;
        let (changes, bytes, body): (Option<usize>, usize, Option<Arc<[u8]>>) = sizes;
        let (hub, last, untils, is_in_flight): (_, Option<KeptAnswer>, Option<Vec<u8>>, bool) =
            account;
        let accepted = last
            .filter(|last| last.seq == seq && last.refusal.is_none())
            .map(|last| last.at);
        // What else was said of an older notification is not saved.
        if !is_in_flight && accepted.is_none() {
            continue;
        }
        let outcome = match accepted {
            Some(_) => NotificationState::Accepted,
            None => NotificationState::InFlight,
        };
        let outcome = OutcomeView {
            at: accepted,
            ..OutcomeView::new(hub, outcome)
        };
        if let Some((of, last)) = known.last_mut()
            && (*of, last.seq) == (channel, seq)
        {
            last.hubs.push(outcome);
            continue;
        }
        let until = cut.or(untils.and_then(|untils| decode_times(&untils).pop()));
        let body = body.filter(|body| !body.is_empty());
        let view = NotificationView {
            kind,
            topic,
            seq,
            cut: until.or(accepted).unwrap_or_default(),
            changes,
            hubs: vec![outcome],
            bytes: Some(bytes).filter(|_| body.is_some() || changes.is_some()),
            payload: body.map(SharedPayload),
        };
        known.push((channel, view));
    }
    known.sort_by_key(|(channel, known)| (known.cut, *channel, known.seq));
    let mut history = NotificationHistory::default();
    for (channel, mut notification) in
        known.split_off(known.len().saturating_sub(MAX_NOTIFICATIONS))
    {
        let shared = notification.payload.as_ref();
        let payload = shared.and_then(|payload| Payload::parse(&payload.0).ok());
        let entries = payload.map(|payload| payload.entries.len());
        notification.changes = notification.changes.or(entries);
        history.push(channel, notification);
    }
    Ok(history)
}
