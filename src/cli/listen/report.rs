//! Events of subscriptions, and the sentences that report them.

use serde::Serialize;

use crate::cli::output::counted;

/// An event that is no notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ListenEvent<'a> {
    Subscribed {
        topic: &'a str,
        hub: &'a str,
        /// The lease granted; none if the hub does not state it.
        lease_seconds: Option<u64>,
    },
    Renewed {
        topic: &'a str,
        hub: &'a str,
        lease_seconds: Option<u64>,
    },
    /// The hub denied the subscription, now or long after it had verified it.
    Denied {
        topic: &'a str,
        hub: &'a str,
        reason: &'a str,
    },
    /// The subscription could not be made or renewed; it is tried again, unless no time is given.
    NotSubscribed {
        topic: &'a str,
        reason: &'a str,
        /// The rest of the lease; none if there is no subscription.
        lease_seconds: Option<u64>,
        retry_seconds: Option<u64>,
    },
    /// A URL that was given, or that a document names, leads to no channel now. Subscriptions that it led to go on.
    NoChannel {
        topic: &'a str,
        reason: &'a str,
        retry_seconds: Option<u64>,
    },
    /// Notifications are missing between the last `until` and this `from`.
    Gap {
        topic: &'a str,
        until: &'a str,
        from: &'a str,
    },
    /// Missed changes could not be read.
    NotCaughtUp { topic: &'a str, reason: &'a str },
    /// Missed changes were read from Change Lists.
    CaughtUp { topic: &'a str, changes: usize },
    Repeat {
        topic: &'a str,
        until: Option<&'a str>,
    },
    BadSignature {
        topic: &'a str,
        signature: Option<&'a str>,
    },
    /// A delivery that is no notification.
    Invalid { topic: &'a str, reason: &'a str },
    /// Entries of a change notification without `loc` or `change`, which were left out.
    Skipped { topic: &'a str, entries: usize },
    /// The command failed, so that the hub has to deliver the notification again.
    CommandFailed { topic: &'a str, reason: &'a str },
    /// The state file could not be written.
    NotSaved { topic: &'a str, reason: &'a str },
}

impl ListenEvent<'_> {
    /// Returns the event as a sentence; none of an expected one.
    pub fn sentence(&self) -> Option<String> {
        Some(match self {
            ListenEvent::Subscribed { topic, hub, .. } => {
                let topic = resourcesync::escape::escaped(topic);
                let hub = resourcesync::escape::escaped(hub);
                format!("listening to {topic} by {hub}; Ctrl-C ends it")
            }
            ListenEvent::Renewed { .. } => return None,
            ListenEvent::Denied { topic, hub, reason } => {
                format!("hub {hub} denies the subscription to {topic}: {reason}")
            }
            ListenEvent::NotSubscribed {
                topic,
                reason,
                lease_seconds,
                retry_seconds,
            } => {
                let what = match lease_seconds {
                    Some(rest) => {
                        format!("cannot renew the subscription to {topic}, which lasts {rest} s")
                    }
                    None => format!("cannot subscribe to {topic}"),
                };
                let retry = retry_seconds.map(|wait| format!(", retrying in {wait} s"));
                format!("{what}{}: {reason}", retry.unwrap_or_default())
            }
            ListenEvent::NoChannel {
                topic,
                reason,
                retry_seconds,
            } => {
                let retry = retry_seconds.map(|wait| format!(", looking again in {wait} s"));
                format!(
                    "no channel found at {topic}{}; subscriptions go on: {reason}",
                    retry.unwrap_or_default()
                )
            }
            ListenEvent::Gap { topic, until, from } => {
                format!("gap: notifications of {topic} from {until} to {from} are missing")
            }
            ListenEvent::NotCaughtUp { topic, reason } => {
                format!("cannot catch up with {topic}: {reason}")
            }
            ListenEvent::CaughtUp { topic, changes } => {
                let missed = counted(*changes, "missed change");
                format!("caught up with {topic}: {missed} in its Change Lists")
            }
            ListenEvent::Repeat { topic, until } => match until {
                Some(until) => {
                    format!("repeat: the notification of {topic} until {until} was delivered again")
                }
                None => format!("repeat: a notification of {topic} was delivered again"),
            },
            ListenEvent::BadSignature { topic, signature } => match signature {
                Some(signature) => format!(
                    "a notification of {topic} is ignored: its signature {} is wrong, or not one of sha256, sha384 \
                     and sha512",
                    shortened(signature)
                ),
                None => format!("a notification of {topic} is ignored: it is not signed"),
            },
            ListenEvent::Invalid { topic, reason } => {
                format!("the content delivered for {topic} is no notification: {reason}")
            }
            ListenEvent::Skipped { topic, entries } => {
                let skipped = counted(*entries, "entry");
                format!("a notification of {topic} has {skipped} without loc or change")
            }
            ListenEvent::CommandFailed { topic, reason } => {
                format!("the command failed for a notification of {topic}: {reason}")
            }
            ListenEvent::NotSaved { topic, reason } => {
                format!("cannot save the state of {topic}: {reason}")
            }
        })
    }
}

/// Returns the method of a signature and its first digits.
fn shortened(signature: &str) -> String {
    let mut short: String = signature.chars().take(16).collect();
    if short.len() < signature.len() {
        short.push('…');
    }
    short
}
