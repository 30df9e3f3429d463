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
use announce::state::{self, Db, StatementError};
use announce::steps::engine::StateReader;

/// The answer to a question about subscriptions where no hub is embedded.
pub const NO_EMBEDDED_HUB: &str =
    "no embedded hub is configured: the configured hubs keep the subscriptions";

/// Returns the answer to a question about subscriptions, and the subscription that is to end.
pub fn ask_subscriptions(
    subscriptions: &Subscriptions,
    about: SubscriptionsAction,
    now: Timestamp,
    db: Db<'_>,
) -> Result<(ControlReply, Option<SubscriptionKey>), String> {
    // What cannot be read is not shown.
    let seq_after =
        |topic: &Topic, heard| Some(state::hub::next_relay(db, topic, heard).ok()??.seq);
    let named = |name: SubscriptionName| {
        let found = subscriptions.find(&name.callback, name.topic.as_deref(), now, &seq_after);
        found.map(|(key, view)| (key, Box::new(view)))
    };
    Ok(match about {
        SubscriptionsAction::List => {
            let list = subscriptions.list(now, &seq_after);
            (ControlReply::Subscriptions(list), None)
        }
        SubscriptionsAction::Show(name) => (ControlReply::Subscription(named(name)?.1), None),
        SubscriptionsAction::Remove(name) => {
            let (key, view) = named(name)?;
            (ControlReply::Removed(view), Some(key))
        }
    })
}

/// Returns the event of a command that acts.
pub fn command_event(reader: &StateReader<'_>, request: &ControlRequest) -> Result<Event, String> {
    let account = |name: &AccountName| {
        report::outbox::find_account(reader, name).map_err(|unknown| error_chain(&unknown))
    };
    match request {
        ControlRequest::Accept { source } => {
            reader.plan.source_position(source)?;
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
    let told = effects.iter().map(|effect| match (request, effect) {
        (
            Accept { source },
            Effect::Tell(Fact::Accepted {
                source: of,
                documents,
                resources,
            }),
        ) if of == source => (*documents, *resources),
        (
            Drop { .. },
            Effect::Tell(Fact::Dropped {
                changes,
                cause: DropCause::Operator,
                ..
            }),
        ) => (*changes, 0),
        (Retry { .. }, Effect::Tell(Fact::Retried { notifications })) => (*notifications, 0),
        _ => (0, 0),
    });
    let (concerned, resources) = told.fold((0, 0), |sum, told| (sum.0 + told.0, sum.1 + told.1));
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
pub fn answer(reader: &StateReader<'_>, request: ControlRequest) -> Result<ControlReply, String> {
    let failed = |error: StatementError| error_chain(&error);
    Ok(match request {
        ControlRequest::Missing { source } => {
            let source = reader.plan.source_position(&source)?;
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
