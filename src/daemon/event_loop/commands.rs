//! Commands such as `rsnotify accept`: executed within a step of the loop, and answered once that step is saved. Where no
//! daemon runs, they are executed on the state that it left.

use std::sync::Arc;

use jiff::Timestamp;
use resourcesync::uri::Topic;
use tokio::sync::oneshot;
use websub::hub::SubscriptionKey;
use websub::hub::http::EmbeddedHub;
use websub::hub::subscriptions::Subscriptions;

use crate::announce::changes::log::LogPart;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event, Fact, Now};
use crate::announce::ids::ChannelId;
use crate::control::{
    AccountName, ControlReply, ControlRequest, SubscriptionName, SubscriptionsAction,
};
use crate::report;
use crate::report::outbox::AccountNames;
use crate::store::Store;

/// An answer to a command that waits for its step to be saved.
pub struct CommandReply {
    reply: oneshot::Sender<ControlReply>,
    answer: ControlReply,
}

impl CommandReply {
    pub fn new(reply: oneshot::Sender<ControlReply>, answer: ControlReply) -> CommandReply {
        CommandReply { reply, answer }
    }

    /// Answers, unless the state cannot be saved because of some `trouble`, which is the answer then.
    pub fn send(self, trouble: Option<&str>) {
        let answer = match (trouble, self.answer) {
            (trouble, ControlReply::Status(mut status)) => {
                status.unsaved = trouble.map(str::to_owned);
                ControlReply::Status(status)
            }
            (Some(trouble), answer) if answer.is_change() => ControlReply::Error(format!(
                "{trouble}; this takes effect once the state can be saved, and is lost if rsnotify stops \
                 before"
            )),
            (_, answer) => answer,
        };
        // The client may have disconnected.
        let _ = self.reply.send(answer);
    }
}

/// Answers a question about the subscriptions of a hub, and ends the one that it names to be ended.
pub fn ask_hub(
    hub: &EmbeddedHub,
    about: SubscriptionsAction,
    now: Timestamp,
    store: &Store,
) -> ControlReply {
    let (answer, ended) =
        hub.inspect(|subscriptions| ask_subscriptions(subscriptions, about, now, Some(store)));
    if let Some(key) = ended {
        hub.end(key, "removed by the hub's operator");
    }
    answer
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
    store: Option<&Store>,
) -> (ControlReply, Option<SubscriptionKey>) {
    // What cannot be read is not shown.
    let seq_after = |topic: &Topic, heard| store?.seq_after(topic, heard).ok().flatten();
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

/// Executes a command. Returns its answer, and the effects to save before it is given. `act` is [`Engine::step`] or
/// [`Engine::amend`]; `answer_about` answers questions about subscriptions, and `logged` returns the body of a part of a
/// logged notification.
pub fn execute(
    engine: &mut Engine,
    act: fn(&mut Engine, Event, Now) -> Vec<Effect>,
    answer_about: impl FnOnce(SubscriptionsAction) -> ControlReply,
    logged: impl FnOnce(ChannelId, u64, LogPart) -> Option<Arc<[u8]>>,
    request: ControlRequest,
    now: Now,
) -> (ControlReply, Vec<Effect>) {
    let mut effects = Vec::new();
    let mut act = |engine: &mut Engine, event| {
        effects = act(engine, event, now);
        count(&effects)
    };
    let account =
        |engine: &Engine, name: &AccountName| report::outbox::account(engine, names(name));
    let reply = match request {
        ControlRequest::Accept { source } => match engine.plan().source_named(&source) {
            Ok(_) => {
                let event = Event::Accept {
                    source: source.clone(),
                };
                let documents = act(engine, event);
                ControlReply::Accepted { source, documents }
            }
            Err(unknown) => refused(&unknown),
        },
        ControlRequest::Retry { only } => {
            match only.map(|name| account(engine, &name)).transpose() {
                Ok(only) => ControlReply::Retried {
                    notifications: act(engine, Event::Retry { only }),
                },
                Err(unknown) => refused(&unknown),
            }
        }
        ControlRequest::Drop { account: name } => match account(engine, &name) {
            Ok((channel, hub)) => ControlReply::Dropped {
                changes: act(engine, Event::Drop { channel, hub }),
            },
            Err(unknown) => refused(&unknown),
        },
        ControlRequest::Missing { source } => match engine.plan().source_named(&source) {
            Ok(source) => ControlReply::Missing(report::missing::acceptable(engine, source)),
            Err(unknown) => refused(&unknown),
        },
        ControlRequest::Status => ControlReply::Status(Box::new(report::status(engine, now.now))),
        ControlRequest::Outbox => ControlReply::Outbox(report::channels::all(engine)),
        ControlRequest::Show {
            account: name,
            payload,
        } => match report::outbox::account_view(engine, names(&name), payload, logged, now.now) {
            Ok(shown) => ControlReply::Account(Box::new(shown)),
            Err(unknown) => refused(&unknown),
        },
        ControlRequest::Subscriptions(about) => answer_about(about),
        ControlRequest::PublicUrl => ControlReply::PublicUrl(engine.plan().public_url.to_string()),
    };
    (reply, effects)
}

fn refused(unknown: &dyn std::error::Error) -> ControlReply {
    ControlReply::Error(unknown.to_string())
}

fn names(name: &AccountName) -> AccountNames<'_> {
    AccountNames {
        channel: &name.channel,
        kind: name.kind,
        hub: &name.hub,
    }
}

/// Returns the number of documents, notifications or changes that a command concerned.
fn count(effects: &[Effect]) -> usize {
    let counts = effects.iter().map(|effect| match effect {
        Effect::Tell(Fact::Accepted { documents, .. }) => *documents,
        Effect::Tell(Fact::Retried { notifications }) => *notifications,
        Effect::Tell(Fact::CountedAsTold { changes, .. }) => *changes,
        _ => 0,
    });
    counts.sum()
}
