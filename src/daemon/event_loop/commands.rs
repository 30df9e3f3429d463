//! Commands such as `rsnotify accept`: executed within a step of the loop, and answered once that step is saved. Where no
//! daemon runs, they are executed on the state that it left.

use jiff::Timestamp;
use resourcesync::uri::Topic;
use websub::hub::SubscriptionKey;
use websub::hub::subscriptions::Subscriptions;

use crate::control::{ControlReply, ControlRequest, SubscriptionName, SubscriptionsAction};
use crate::daemon::log::error_chain;
use crate::report;
use crate::report::outbox::AccountName;
use announce::event::{DropCause, Effect, Event, Fact};
use announce::state::{self, Db, StateError};
use announce::steps::engine::Reader;

/// Returns the answer to a question about subscriptions where no hub is embedded.
pub fn no_embedded_hub() -> ControlReply {
    let words = "no embedded hub is configured: the configured hubs keep the subscriptions";
    ControlReply::Error(words.to_owned())
}

/// Returns the answer to a question about subscriptions, and the subscription that is to end.
pub fn ask_subscriptions(
    subscriptions: &Subscriptions,
    about: SubscriptionsAction,
    now: Timestamp,
    db: Option<Db<'_>>,
) -> (ControlReply, Option<SubscriptionKey>) {
    // What cannot be read is not shown.
    let seq_after = |topic: &Topic, heard| {
        let next = state::hub::next_relay(db?, topic, heard);
        Some(next.ok()??.seq)
    };
    let named = |name: &SubscriptionName| {
        subscriptions.find(&name.callback, name.topic.as_deref(), now, &seq_after)
    };
    let found = match &about {
        SubscriptionsAction::List => {
            let list = subscriptions.list(now, &seq_after);
            return (ControlReply::Subscriptions(list), None);
        }
        SubscriptionsAction::Show(name) | SubscriptionsAction::Remove(name) => named(name),
    };
    match (about, found) {
        (_, Err(error)) => (ControlReply::Error(error.to_string()), None),
        (SubscriptionsAction::Remove(_), Ok((key, view))) => {
            (ControlReply::Removed(Box::new(view)), Some(key))
        }
        (_, Ok((_, view))) => (ControlReply::Subscription(Box::new(view)), None),
    }
}

/// Returns the event of a command that acts.
pub fn event_of(reader: &Reader<'_>, request: &ControlRequest) -> Result<Event, String> {
    let account = |name: &AccountName| {
        let account = report::outbox::account(reader, name);
        account.map_err(|unknown| error_chain(&unknown))
    };
    match request {
        ControlRequest::Accept { source } => {
            reader.plan.source_named(source)?;
            let source = source.clone();
            Ok(Event::Accept { source })
        }
        ControlRequest::Retry { only } => {
            let only = only.as_ref().map(account).transpose()?;
            Ok(Event::Retry { only })
        }
        ControlRequest::Drop { account: name } => {
            let (channel, hub) = account(name)?;
            Ok(Event::Drop { channel, hub })
        }
        _ => Err("this command changes nothing".to_owned()),
    }
}

/// Returns the answer to a command that acts: how much it concerned, by the effects of the step that executed it.
pub fn outcome(request: &ControlRequest, effects: &[Effect]) -> ControlReply {
    use ControlRequest::{Accept, Drop, Retry};
    let (mut concerned, mut resources) = (0, 0);
    for effect in effects {
        let Effect::Tell(fact) = effect else { continue };
        match fact {
            Fact::Accepted {
                documents,
                resources: accepted,
                ..
            } if matches!(request, Accept { .. }) => {
                concerned += documents;
                resources = *accepted;
            }
            Fact::Dropped {
                changes,
                cause: DropCause::Operator,
                ..
            } if matches!(request, Drop { .. }) => concerned += changes,
            Fact::Retried { notifications } if matches!(request, Retry { .. }) => {
                concerned += notifications
            }
            _ => {}
        }
    }
    match request {
        Accept { source } => ControlReply::Accepted {
            source: source.clone(),
            documents: concerned,
            resources,
        },
        Drop { .. } => ControlReply::Dropped { changes: concerned },
        _ => ControlReply::Retried {
            notifications: concerned,
        },
    }
}

/// Answers a question about sources, channels or hubs.
pub fn answer(reader: &Reader<'_>, request: ControlRequest) -> ControlReply {
    answered(reader, request).unwrap_or_else(ControlReply::Error)
}

fn answered(reader: &Reader<'_>, request: ControlRequest) -> Result<ControlReply, String> {
    let failed = |error: StateError| error_chain(&error);
    Ok(match request {
        ControlRequest::Missing { source } => {
            let source = reader.plan.source_named(&source)?;
            ControlReply::Missing(report::sources::acceptable(reader, source).map_err(failed)?)
        }
        ControlRequest::Status => {
            ControlReply::Status(Box::new(report::status(reader).map_err(failed)?))
        }
        ControlRequest::Outbox => {
            ControlReply::Outbox(report::channels::all(reader).map_err(failed)?)
        }
        ControlRequest::Show { account, payload } => {
            let shown = report::outbox::account_view(reader, &account, payload);
            ControlReply::Account(Box::new(shown.map_err(|unknown| error_chain(&unknown))?))
        }
        ControlRequest::PublicUrl => ControlReply::PublicUrl(reader.plan.public_url.to_string()),
        _ => return Err("this command is no question".to_owned()),
    })
}
