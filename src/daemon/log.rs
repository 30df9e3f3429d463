//! Log lines of the loop.

use resourcesync::listing::Listing;
use resourcesync::receive::ReceivedChange;
use resourcesync::uri::Topic;
use tracing::{Level, debug, error, info, warn};
pub use websub::publisher::reason::error_chain;

use crate::report::status::words::{accepted_in_words, counted};
use announce::event::{AnswerOutcome, AnsweredNotification, DropCause, Fact};
use announce::plan::is_broker_name;

/// Logs a fact of the engine.
pub fn log_fact(fact: &Fact) {
    match fact {
        Fact::Baselined { source, documents } => {
            let verb = if *documents == 1 { "is" } else { "are" };
            let existing = counted(*documents, "existing document");
            info!(
                source,
                documents, "baseline of {source} complete: {existing} {verb} not announced"
            );
        }
        Fact::WithoutDocument { source, reason } => {
            warn!(source, reason, "nothing is announced of {source}: {reason}")
        }
        Fact::MountLost { source, reason } => warn!(
            source,
            reason, "a mount of {source} is missing: {reason}; nothing counts as deleted"
        ),
        Fact::ChannelOpened { topic, set, hubs } => {
            info!(%topic, %set, hubs, "opened channel {topic}")
        }
        Fact::ChannelRetired { topic, set } => info!(%topic, %set, "retired channel {topic}"),
        Fact::ChannelRevived { topic, set } => info!(%topic, %set, "revived channel {topic}"),
        Fact::Cut {
            topic,
            seq,
            changes,
            hubs,
            body,
        } => {
            info!(%topic, seq, changes, hubs, "cut notification {seq} of {topic}");
            log_sent_changes(topic, *seq, body);
        }
        Fact::Learned {
            topic,
            changes,
            lists,
        } => {
            let existing = counted(*changes, "existing change");
            let in_lists = counted(*lists, "Change List");
            info!(%topic, changes, lists, "not announcing {existing} in {in_lists} of {topic}");
        }
        Fact::BeganAnew { topic, until, from } => warn!(
            %topic, %until, %from,
            "the intervals of {topic} begin anew at {from}: the last one ended at {until}, ahead of the clock"
        ),
        Fact::Took {
            topic,
            changes,
            lists,
            notifications,
            undated,
            ..
        } => {
            let seq = notifications.last().map_or(0, |(seq, _)| *seq);
            let changes: usize = changes.iter().sum();
            let undated = undated.missing + undated.invalid + undated.ahead + undated.back_dated;
            let (taken, from) = (counted(changes, "change"), counted(*lists, "Change List"));
            info!(
                %topic, seq, changes, lists, notifications = notifications.len(), undated,
                "took {taken} from {from}"
            );
            for (seq, body) in notifications {
                log_sent_changes(topic, *seq, body);
            }
        }
        Fact::SkippedEntries { list, count, .. } => {
            debug!(%list, count, "skipped {} of {list}", counted(*count, "entry"))
        }
        Fact::ArchivedUntold { topic, list, count } => {
            let changes = counted(*count, "change");
            warn!(
                %topic, %list, count,
                "not announcing {changes} of the archived {list}: only archived lists had them"
            );
        }
        Fact::NotTaken { topic, reason } => {
            let reason = reason.as_deref().unwrap_or_default();
            warn!(%topic, reason, "cannot take changes for {topic}, retrying: {reason}");
        }
        Fact::Dropped {
            topic,
            hub,
            changes,
            cause,
        } => {
            let pending = counted(*changes, "pending change");
            match cause {
                DropCause::FellBehind => error!(
                    %topic, %hub, changes,
                    "{hub} fell behind on {topic}: {} counted as told", counted(*changes, "change")
                ),
                DropCause::HubRemoved if is_broker_name(hub) => warn!(
                    %topic, %hub, changes, "{hub} is no longer configured; dropped {pending}"
                ),
                DropCause::HubRemoved => warn!(
                    %topic, %hub, changes,
                    "{hub} is no longer configured; dropped {pending}; to hand such changes over, name it as \
                     `replaces` in the [[hub]] that takes its place"
                ),
                DropCause::ChannelRemoved => warn!(
                    %topic, %hub, changes, "removed the channel that had {topic}; dropped {pending} of {hub}"
                ),
                DropCause::DocumentsRemoved => warn!(
                    %topic, %hub, changes,
                    "dropped {pending} for {hub} on {topic}: the documents are no longer configured for it"
                ),
                DropCause::Operator => warn!(
                    %topic, %hub, changes, "dropped {pending} of {hub}, as requested: counted as told"
                ),
            }
        }
        Fact::Answered(answered, outcome) => log_answer(answered, outcome),
        Fact::RefusedAlike {
            hub,
            kind,
            reason,
            notifications,
        } => warn!(
            %hub, kind = kind.as_str(), reason, notifications,
            "{hub} did not accept {}: {reason}", counted(*notifications, "more notification")
        ),
        Fact::Recovered {
            hub,
            attempts,
            took,
            notifications,
        } => {
            let seconds = took.as_secs_f64();
            let waiting = match *notifications {
                0 => String::new(),
                some => format!("; {} waited for it", counted(some, "notification")),
            };
            info!(%hub, attempts, seconds, notifications, "{hub} recovered{waiting}");
        }
        Fact::HubReplaced { hub, by, channels } => info!(
            %hub, %by, channels,
            "{by} replaces {hub} on {} and takes over its pending changes; `replaces` in its [[hub]] can change that",
            counted(*channels, "channel")
        ),
        Fact::Retried { notifications } => info!(
            notifications,
            "retrying {} now, as requested",
            counted(*notifications, "notification")
        ),
        Fact::Unfetched {
            topic,
            hub,
            seq,
            after,
        } => warn!(
            %topic, %hub, seq, seconds = after.as_secs(),
            "{hub} accepted a ping and has not fetched {topic}: can it reach the topic's URI?"
        ),
        Fact::Fetched {
            topic,
            hub,
            seq,
            was_reported,
        } => {
            if *was_reported {
                info!(%topic, %hub, seq, "{topic} is fetched again after a ping to {hub}")
            } else {
                info!(
                    %topic, %hub, seq, "{topic} was fetched after the ping of notification {seq} to {hub}"
                )
            }
        }
        Fact::Broken {
            path,
            uri,
            reason,
            is_known,
        } => {
            let meanwhile = if *is_known {
                "its last good version is kept"
            } else {
                "nothing is announced of it until it can be read"
            };
            warn!(%path, %uri, reason, "cannot read {path}: {reason}; {meanwhile}");
        }
        Fact::Mended { path, uri } => info!(%path, %uri, "{path} can be read again"),
        Fact::HoldExpired { uri, set } => {
            let set = set.as_ref().map(ToString::to_string).unwrap_or_default();
            warn!(%uri, set, "{uri} is still not listed anywhere; announcing it anyway");
        }
        Fact::Suspended(suspension) => {
            let (source, missing, of) = (&suspension.source, suspension.missing, suspension.of);
            error!(source, missing, of, "{suspension}");
        }
        Fact::Resumed { source } => {
            info!(source, "deletions of {source} are no longer suspended")
        }
        Fact::Accepted {
            source,
            documents,
            resources,
        } => info!(
            source,
            documents,
            resources,
            "{} of {source} were accepted as deleted",
            accepted_in_words(*documents, *resources)
        ),
        Fact::Found(finding) => warn!(kind = finding.kind(), "{finding}"),
        Fact::FoundMore {
            source,
            kind,
            count,
        } => warn!(
            source,
            kind,
            findings = count,
            "{} of the kind {kind} in {source}: `rsnotify check --all` prints each",
            counted(*count, "more finding")
        ),
    }
}

fn log_answer(answered: &AnsweredNotification, outcome: &AnswerOutcome) {
    let AnsweredNotification {
        topic,
        hub,
        seq,
        attempts,
        ..
    } = answered;
    match outcome {
        AnswerOutcome::Delivered { changes, took } => {
            let seconds = took.as_secs_f64();
            info!(%topic, %hub, seq, changes, attempts, seconds, "delivered notification {seq} to {hub}");
        }
        AnswerOutcome::Refused {
            refusal,
            next_try,
            is_news,
        } => {
            let (kind, reason) = (refusal.kind.as_str(), &refusal.reason);
            if !is_news {
                debug!(
                    %topic, %hub, seq, attempts, kind, reason, %next_try,
                    "{hub} did not accept notification {seq}: {reason}"
                );
            } else if refusal.needs_operator {
                error!(
                    %topic, %hub, seq, attempts, kind, reason, %next_try,
                    "{hub} did not accept notification {seq}: {reason}"
                );
            } else {
                warn!(
                    %topic, %hub, seq, attempts, kind, reason, %next_try,
                    "{hub} did not accept notification {seq}: {reason}"
                );
            }
        }
        AnswerOutcome::Halved { limit, is_news } => {
            let most = counted(*limit, "change");
            if *is_news {
                warn!(
                    %topic, %hub, seq, attempts, limit,
                    "notification {seq} is too large for {hub}; sending {most} at a time"
                )
            } else {
                debug!(
                    %topic, %hub, seq, attempts, limit,
                    "notification {seq} is too large for {hub}; sending {most} at a time"
                )
            }
        }
    }
}

/// Names each change of a notification at the level `debug`.
fn log_sent_changes(topic: &Topic, seq: u64, body: &[u8]) {
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    // Both kinds of notifications have entries alike.
    let listing = Listing::parse(body).ok().flatten();
    let entries = listing.map_or_else(Vec::new, |listing| listing.entries);
    for change in entries.into_iter().filter_map(ReceivedChange::of) {
        let (kind, uri) = (change.change, change.loc);
        debug!(%topic, seq, uri, "notification {seq}: {kind} {uri}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use announce::event::DropCause::{FellBehind, HubRemoved};
    use resourcesync::capability::ChannelKind;
    use resourcesync::uri::Hub;

    #[test]
    fn what_becomes_of_pending_changes_is_logged_with_its_hub() {
        const BY: &str = r#""by":"urn:n""#;
        const TOPIC: &str = r#""topic":"urn:t""#;
        let (topic, hub) = (Topic::new("urn:t"), Hub::new("urn:h"));
        let dropped = |cause| Fact::Dropped {
            topic: topic.clone(),
            hub: hub.clone(),
            changes: 2,
            cause,
        };
        let answered = AnsweredNotification {
            kind: ChannelKind::Framework,
            topic: topic.clone(),
            hub: hub.clone(),
            seq: 1,
            attempts: 2,
        };
        let halved = AnswerOutcome::Halved {
            limit: 1,
            is_news: true,
        };
        let halved = Fact::Answered(answered, halved);
        let replaced = Fact::HubReplaced {
            hub: hub.clone(),
            by: Hub::new("urn:n"),
            channels: 1,
        };
        for (fact, of, words) in [
            (dropped(FellBehind), TOPIC, "ERROR|fell behind on urn:t"),
            (dropped(HubRemoved), TOPIC, "WARN|no longer|`replaces`"),
            (halved, TOPIC, "WARN|; sending 1 change at a time"),
            (replaced, BY, "INFO|takes over its pending"),
        ] {
            let (line, writer) = std::io::pipe().unwrap();
            let json = tracing_subscriber::fmt().json();
            let json = json.with_writer(std::sync::Arc::new(writer)).finish();
            tracing::subscriber::with_default(json, || log_fact(&fact));
            let line = std::io::read_to_string(line).unwrap();
            for words in words.split('|').chain([of, r#""hub":"urn:h""#]) {
                assert!(line.contains(words), "{words}: {line}");
            }
        }
    }
}
