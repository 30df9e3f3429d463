//! Messages of destinations, each acknowledged by itself, once it was handed over.

use std::collections::{BTreeSet, VecDeque};

use crate::frame::Frame;
use crate::refusal::BrokerError;
use crate::session::Session;
use crate::settings::BrokerSettings;

/// The selection of messages to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSelection {
    /// At least one.
    pub destinations: Vec<String>,
    /// A JMS selector over the properties of messages, where the broker has selectors.
    pub selector: Option<String>,
    /// The name of a durable subscription: the broker keeps messages for it while nobody reads them.
    pub durable: Option<String>,
    /// True if damaged messages are left at the broker.
    pub leaves_damaged: bool,
}

/// Subscriptions on a connection of their own.
#[derive(Debug)]
pub struct BrokerSubscription {
    session: Session,
    /// Messages that arrived and were not returned yet, such as those before the receipts of all subscriptions.
    first: VecDeque<Frame>,
    leaves_damaged: bool,
}

impl BrokerSubscription {
    /// Connects and subscribes.
    ///
    /// # Errors
    ///
    /// If the broker cannot be reached, or refuses the connection or a subscription.
    pub async fn open(
        settings: &BrokerSettings,
        wanted: &MessageSelection,
    ) -> Result<BrokerSubscription, BrokerError> {
        let session = Session::open(settings, wanted.durable.as_deref()).await?;
        let mut subscription = BrokerSubscription {
            session,
            first: VecDeque::new(),
            leaves_damaged: wanted.leaves_damaged,
        };
        let ids = wanted.subscription_ids();
        for (id, destination) in ids.iter().zip(&wanted.destinations) {
            let subscribe = wanted.subscribe(id, destination).encode();
            subscription.session.writer.write(subscribe);
        }
        let awaited = ids.into_iter().collect();
        let subscribed = tokio::time::timeout(settings.timeout, subscription.subscribed(awaited));
        subscribed.await.map_err(|_| BrokerError::NoReceipt)??;
        Ok(subscription)
    }

    async fn subscribed(&mut self, mut awaited: BTreeSet<String>) -> Result<(), BrokerError> {
        while !awaited.is_empty() {
            if let Some(id) = self.receive().await? {
                awaited.remove(&id);
            }
        }
        Ok(())
    }

    /// Returns the next message. Safe to be cancelled.
    ///
    /// # Errors
    ///
    /// If the connection ends.
    pub async fn message(&mut self) -> Result<Frame, BrokerError> {
        loop {
            if let Some(first) = self.first.pop_front() {
                return Ok(first);
            }
            self.receive().await?;
        }
    }

    /// Reads a frame, and keeps it if it is a message. Returns the id of a receipt. Safe to be cancelled.
    async fn receive(&mut self) -> Result<Option<String>, BrokerError> {
        let frame = self.session.reader.frame().await?;
        match frame.command.as_str() {
            "RECEIPT" => return Ok(frame.header("receipt-id").map(str::to_owned)),
            "MESSAGE" => self.first.push_back(frame),
            "ERROR" => return Err(BrokerError::refused(&frame, &self.session.mask)),
            _ => {}
        }
        Ok(None)
    }

    /// Tells the broker that a message was handed over, or that it is damaged, which another attempt does not change.
    pub fn acknowledge(&self, message: &Frame) {
        if message.damage.is_some() && self.leaves_damaged {
            return;
        }
        if let Some(id) = message.header("ack") {
            let ack = Frame::new("ACK").with("id", id);
            self.session.writer.write(ack.encode());
        }
    }

    /// Ends the connection, once all acknowledgements are written.
    pub async fn close(self) {
        self.session.writer.finish(&Frame::new("DISCONNECT")).await;
    }
}

impl MessageSelection {
    /// Returns the ids of the subscriptions, which depend on name and destination alone: a durable subscription is known by
    /// its id.
    fn subscription_ids(&self) -> Vec<String> {
        let name = self.durable.as_deref().unwrap_or("rsnotify");
        let destinations = self.destinations.iter();
        let ids = destinations.map(|destination| format!("{name} {destination}"));
        ids.collect()
    }

    fn subscribe(&self, id: &str, destination: &str) -> Frame {
        let mut frame = Frame::new("SUBSCRIBE")
            .with("id", id)
            .with("destination", destination)
            .with("ack", "client-individual")
            .with("receipt", id);
        if let Some(selector) = &self.selector {
            frame = frame.with("selector", selector);
        }
        if self.durable.is_some() {
            // As ActiveMQ, Artemis and RabbitMQ want it; each ignores what the others do.
            frame = frame
                .with("activemq.subscriptionName", id)
                .with("durable-subscription-name", id)
                .with("durable", "true")
                .with("auto-delete", "false");
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_subscription_has_the_same_id_each_time() {
        let mut wanted = MessageSelection {
            destinations: vec!["/topic/a".to_owned()],
            selector: Some("kind = 'change'".to_owned()),
            durable: Some("archive".to_owned()),
            leaves_damaged: false,
        };
        let frame = wanted.subscribe(&wanted.subscription_ids()[0], "/topic/a");
        for (name, value) in [
            ("id", "archive /topic/a"),
            ("activemq.subscriptionName", "archive /topic/a"),
            ("ack", "client-individual"),
            ("selector", "kind = 'change'"),
        ] {
            assert_eq!(frame.header(name), Some(value));
        }
        wanted.destinations.push("/topic/b".to_owned());
        assert_eq!(
            wanted.subscription_ids(),
            ["archive /topic/a", "archive /topic/b"]
        );
    }
}
