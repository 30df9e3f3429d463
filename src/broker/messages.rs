//! The messages of a notification: made from its saved body by the broker's settings alone, so that a repeat has the same
//! bytes (F1, F4).

use crate::announce::delivery::Submission;
use crate::broker::feeds::message::{
    BrokerNotification, HashedPayload, Message, resourcesync_message,
};
use crate::broker::feeds::objects::{PayloadFormat, atom_messages};
use crate::broker::frame::Frame;
use crate::broker::settings::BrokerSettings;

/// Returns the messages of a notification, in the order in which they are sent.
pub fn messages(submission: &Submission, settings: &BrokerSettings) -> Vec<Message> {
    let notification = BrokerNotification {
        source: &submission.source,
        topic: submission.topic.as_str(),
        kind: submission.kind,
        seq: submission.seq,
        body: HashedPayload::new(&submission.body).with(&submission.outside),
    };
    let feeds = match &settings.payload {
        PayloadFormat::ResourceSync => None,
        PayloadFormat::Atom(form) => atom_messages(&notification, form),
    };
    // A notification that yields no feeds was saved while the broker had other settings.
    feeds.unwrap_or_else(|| vec![resourcesync_message(&notification)])
}

/// Returns the `SEND` of a message, but for its transaction and receipt. A header of the message counts before a
/// configured one.
pub fn send_frame(message: Message, destination: &str, settings: &BrokerSettings) -> Frame {
    let mut frame = Frame::new("SEND").with("destination", destination);
    frame.headers.extend(message.headers);
    frame.headers.extend(message.properties);
    for header in &settings.headers {
        if frame.header(&header.name).is_none() {
            frame = frame.with(&header.name, header.value.reveal());
        }
    }
    frame.body = message.body;
    frame
}
