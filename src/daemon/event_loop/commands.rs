//! Commands such as `rsnotify accept`: executed within a step of the loop, and answered once that step is saved. Where no
//! daemon runs, they are executed on the state that it left.

use jiff::Timestamp;
use resourcesync::uri::Topic;
use websub::hub::SubscriptionKey;
use websub::hub::subscriptions::Subscriptions;

use crate::announce::event::{DropCause, Effect, Event, Fact};
use crate::control::{ControlReply, ControlRequest, SubscriptionName, SubscriptionsAction};
use crate::daemon::log::error_chain;
use crate::report::outbox::AccountName;
use crate::report::{self, Reader};
use crate::state::{self, Db, StateError};

/// How a command is answered.
pub enum CommandAnswer {
    Ready(ControlReply),
    /// After the step, which has executed it if it is an action.
    AfterStep(ControlRequest),
}

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
    let seq_after = |topic: &Topic, heard| state::hub::seq_after(db?, topic, heard).ok().flatten();
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

/// Returns the event of a command that acts, and its answer, of which the number is still to come.
pub fn event_of(
    reader: &Reader<'_>,
    request: &ControlRequest,
) -> Result<(Event, ControlReply), String> {
    let account = |name: &AccountName| {
        let account = report::outbox::account(reader, name);
        account.map_err(|unknown| error_chain(&unknown))
    };
    match request {
        ControlRequest::Accept { source } => {
            reader.plan.source_named(source)?;
            let answer = ControlReply::Accepted {
                source: source.clone(),
                documents: 0,
                resources: 0,
            };
            let source = source.clone();
            Ok((Event::Accept { source }, answer))
        }
        ControlRequest::Retry { only } => {
            let only = only.as_ref().map(account).transpose()?;
            let answer = ControlReply::Retried { notifications: 0 };
            Ok((Event::Retry { only }, answer))
        }
        ControlRequest::Drop { account: name } => {
            let (channel, hub) = account(name)?;
            let answer = ControlReply::Dropped { changes: 0 };
            Ok((Event::Drop { channel, hub }, answer))
        }
        _ => Err("this command changes nothing".to_owned()),
    }
}

/// Returns the answer of a command, with the number of documents, notifications or changes that it concerned.
pub fn counted(mut answer: ControlReply, effects: &[Effect]) -> ControlReply {
    for effect in effects {
        let Effect::Tell(fact) = effect else { continue };
        match (fact, &mut answer) {
            (
                Fact::Accepted {
                    documents: missing,
                    resources: missing_resources,
                    ..
                },
                ControlReply::Accepted {
                    documents,
                    resources,
                    ..
                },
            ) => {
                *documents += missing;
                *resources = *missing_resources;
            }
            (Fact::Retried { notifications: now }, ControlReply::Retried { notifications }) => {
                *notifications += now
            }
            (
                Fact::Dropped {
                    changes: dropped,
                    cause: DropCause::Operator,
                    ..
                },
                ControlReply::Dropped { changes },
            ) => *changes += dropped,
            _ => {}
        }
    }
    answer
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
