//! What commands ask of the loop: done in its turn, and answered once that turn is saved.

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::announce::event::{Effect, Event, Fact};
use crate::control::{Answer, Request};
use crate::daemon::turns::Turns;

/// An answer that waits for the turn to be saved.
pub struct Order {
    reply: oneshot::Sender<Answer>,
    answer: Answer,
}

impl Turns {
    pub(super) fn obey(&mut self, request: Request, reply: oneshot::Sender<Answer>) {
        let answer = match request {
            Request::Accept { source } => self.accept(source),
        };
        self.orders.push(Order { reply, answer });
    }

    fn accept(&mut self, source: String) -> Answer {
        if let Err(unknown) = self.engine.plan().source_named(&source) {
            return Answer::Error(unknown.to_string());
        }
        let event = Event::Accept {
            source: source.clone(),
        };
        let effects = self.engine.step(event, Timestamp::now());
        let documents = accepted(&effects);
        self.take(effects);
        Answer::Accepted { source, documents }
    }

    /// Answers what was asked: nothing is said to be done that a crash could undo.
    pub(super) fn answer(&mut self) {
        let trouble = self.trouble.as_ref().map(|(trouble, _)| trouble);
        for order in self.orders.drain(..) {
            let answer = match (trouble, order.answer) {
                (None, answer) | (_, answer @ Answer::Error(_)) => answer,
                (Some(trouble), Answer::Accepted { .. }) => Answer::Error(format!(
                    "{trouble}; this takes effect once the state can be saved, and is lost if rsnotify stops \
                     before"
                )),
            };
            // Whoever asked may have gone.
            let _ = order.reply.send(answer);
        }
    }
}

/// How many documents an acceptance was about.
pub fn accepted(effects: &[Effect]) -> usize {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::Tell(Fact::Accepted { documents, .. }) => *documents,
            _ => 0,
        })
        .sum()
}
