//! Commands such as `rsnotify accept`: executed within a step of the loop, and answered once that step is saved. Where no
//! daemon runs, they are executed on the state that it left.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::announce::changes::log::LogPart;
use crate::announce::engine::Engine;
use crate::announce::event::{Effect, Event, Fact, Now};
use crate::announce::ids::ChannelId;
use crate::control::{
    AccountName, ControlReply, ControlRequest, SubscriptionName, SubscriptionsAction,
};
use crate::hub::SubscriptionKey;
use crate::hub::subscriptions::Subscriptions;
use crate::report;
use crate::report::outbox::{AccountNames, UnknownAccount};
use crate::websub::hub::EmbeddedHub;

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
pub fn ask_hub(hub: &EmbeddedHub, about: SubscriptionsAction, now: Timestamp) -> ControlReply {
    let (answer, ended) = hub.inspect(|subscriptions| ask_subscriptions(subscriptions, about, now));
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
) -> (ControlReply, Option<SubscriptionKey>) {
    let named =
        |name: &SubscriptionName| subscriptions.find(&name.callback, name.topic.as_deref(), now);
    let found = match &about {
        SubscriptionsAction::List => {
            return (ControlReply::Subscriptions(subscriptions.list(now)), None);
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
    let account =
        |engine: &Engine, name: &AccountName| report::outbox::account(engine, names(name));
    let refused = |unknown: UnknownAccount| (ControlReply::Error(unknown.to_string()), Vec::new());
    match request {
        ControlRequest::Accept { source } => {
            if let Err(unknown) = engine.plan().source_named(&source) {
                return (ControlReply::Error(unknown.to_string()), Vec::new());
            }
            let event = Event::Accept {
                source: source.clone(),
            };
            let effects = act(engine, event, now);
            let documents = count(&effects);
            (ControlReply::Accepted { source, documents }, effects)
        }
        ControlRequest::Missing { source } => match engine.plan().source_named(&source) {
            Ok(source) => (
                ControlReply::Missing(report::missing::acceptable(engine, source)),
                Vec::new(),
            ),
            Err(unknown) => (ControlReply::Error(unknown.to_string()), Vec::new()),
        },
        ControlRequest::Status => (
            ControlReply::Status(Box::new(report::status(engine, now.wall))),
            Vec::new(),
        ),
        ControlRequest::Outbox => (
            ControlReply::Outbox(report::channels::all(engine)),
            Vec::new(),
        ),
        ControlRequest::Show {
            account: name,
            payload,
        } => match report::outbox::account_view(engine, names(&name), payload, logged, now.wall) {
            Ok(shown) => (ControlReply::Account(Box::new(shown)), Vec::new()),
            Err(unknown) => refused(unknown),
        },
        ControlRequest::Retry { only } => {
            let only = match only.map(|name| account(engine, &name)).transpose() {
                Ok(only) => only,
                Err(unknown) => return refused(unknown),
            };
            let effects = act(engine, Event::Retry { only }, now);
            let notifications = count(&effects);
            (ControlReply::Retried { notifications }, effects)
        }
        ControlRequest::Drop { account: name } => match account(engine, &name) {
            Ok((channel, hub)) => {
                let effects = act(engine, Event::Drop { channel, hub }, now);
                let changes = count(&effects);
                (ControlReply::Dropped { changes }, effects)
            }
            Err(unknown) => refused(unknown),
        },
        ControlRequest::Subscriptions(about) => (answer_about(about), Vec::new()),
        ControlRequest::PublicUrl => {
            let url = engine.plan().public_url.to_string();
            (ControlReply::PublicUrl(url), Vec::new())
        }
    }
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
