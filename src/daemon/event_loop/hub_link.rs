//! The embedded hub as the loop uses it: submissions to it never leave the process, and it accepts one by owing it to
//! its subscribers.

use std::sync::mpsc::Sender;

use tokio::runtime::Handle;

use crate::announce::delivery::Submission;
use crate::announce::event::Event;
use crate::daemon::event_loop::Input;
use crate::http::answer::Answer;
use crate::hub::Relay;
use crate::resourcesync::uri::Topic;
use crate::websub::hub::EmbeddedHub;

/// Answer of the embedded hub to a submission.
const ACCEPTED: Answer = Answer::Status {
    status: 202,
    content_type: None,
    retry_after: None,
    excerpt: String::new(),
};

/// The embedded hub, if there ever was one in this process.
#[derive(Default)]
pub struct HubLink {
    hub: Option<EmbeddedHub>,
    /// True if it takes subscriptions; one that does not finishes what it has begun.
    is_open: bool,
    /// Its acceptances, which the engine receives in the next step.
    accepted: Vec<Event>,
    is_draining: bool,
}

impl HubLink {
    /// Links another hub, and opens or closes it to subscriptions.
    pub fn change(&mut self, hub: Option<EmbeddedHub>, is_open: bool) {
        self.hub = hub;
        self.is_open = is_open;
    }

    /// Returns the hub if it takes subscriptions.
    pub fn open(&self) -> Option<&EmbeddedHub> {
        self.hub.as_ref().filter(|_| self.is_open)
    }

    /// Returns the hub, even if it takes no subscriptions.
    pub fn linked(&self) -> Option<&EmbeddedHub> {
        self.hub.as_ref()
    }

    /// Returns the deliveries that a submission makes the hub owe.
    pub fn relay(&self, submission: &Submission) -> Option<Relay> {
        self.hub.as_ref()?.relay(submission)
    }

    /// Dispatches deliveries that are saved, and accepts the submissions that they came from. Returns true if there
    /// were deliveries.
    pub fn dispatch(&mut self, owed: Vec<Relay>, relayed: Vec<Submission>) -> bool {
        let accepted = relayed.into_iter().map(|submission| Event::Answered {
            channel: submission.channel,
            hub: submission.hub,
            seq: submission.seq,
            answer: ACCEPTED,
            jitter: 0.0,
        });
        self.accepted.extend(accepted);
        match &self.hub {
            Some(hub) if !owed.is_empty() => {
                hub.dispatch(owed);
                true
            }
            _ => false,
        }
    }

    /// Ends the subscriptions to a topic that is no longer served.
    pub fn end_topic(&self, topic: &Topic) {
        if let Some(hub) = &self.hub {
            hub.end_topic(topic);
        }
    }

    /// Returns the acceptances that the engine has not received.
    pub fn accepted(&self) -> &[Event] {
        &self.accepted
    }

    /// Takes the acceptances that the engine has not received.
    pub fn take_accepted(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.accepted)
    }

    /// Starts to drain: no delivery is begun any more. [`Input::HubDrained`] follows.
    pub fn drain(&mut self, runtime: &Handle, inputs: &Sender<Input>) {
        let Some(hub) = self.hub.clone() else { return };
        self.is_draining = true;
        let inputs = inputs.clone();
        runtime.spawn(async move {
            hub.drain().await;
            let _ = inputs.send(Input::HubDrained);
        });
    }

    /// Takes note that all deliveries have ended.
    pub fn drained(&mut self) {
        self.is_draining = false;
    }

    /// Returns true while deliveries go on after [`HubLink::drain`].
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }
}
