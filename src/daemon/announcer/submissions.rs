//! Submissions to hubs and brokers that are under way: each is one task, and its answer comes back as an input of the loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use messaging::client::Brokers;
use resourcesync::uri::Hub;
use tokio::runtime::Handle;
use tracing::debug;
use websub::counts::DurationHistogram;
use websub::publisher::http::Submitter;

use crate::daemon::announcer::{AnnouncerInput, RunInput};
use crate::daemon::event_loop::Input;
use crate::daemon::failpoints::{Failpoint, Failpoints};
use announce::delivery::{Submission, SubmissionId};
use announce::event::Event;
use announce::plan::PublishMode;

/// The submitter, the brokers, and the submissions whose answers are to come.
pub struct Submissions {
    pub submitter: Arc<Submitter>,
    pub brokers: Arc<Brokers>,
    /// Runtime that the submissions run on: they are kept off the threads that serve.
    pub runtime: Handle,
    pub inputs: Sender<RunInput>,
    pub failpoints: Failpoints,
    /// Those that have no answer yet.
    pub under_way: BTreeSet<SubmissionId>,
}

impl Submissions {
    /// Starts a submission.
    pub fn submit(&mut self, submission: Submission) {
        let (topic, hub, seq) = (&submission.topic, &submission.hub, submission.seq);
        debug!(%topic, %hub, seq, "submitting notification {seq} to {hub}");
        self.under_way
            .insert((submission.channel, hub.clone(), seq));
        let submitter = Arc::clone(&self.submitter);
        let brokers = Arc::clone(&self.brokers);
        let inputs = self.inputs.clone();
        let failpoints = self.failpoints.clone();
        self.runtime.spawn(async move {
            failpoints.pass(Failpoint::Submitting);
            let answer = match submission.mode {
                PublishMode::Broker => {
                    brokers
                        .submit(&submission.hub, &submission.notification())
                        .await
                }
                _ => submitter.submit(&submission.request()).await,
            };
            failpoints.pass(Failpoint::Answered);
            // If the loop has stopped, the next start submits again.
            let _ = inputs.send(Input::Work(AnnouncerInput::Event(Event::Answered {
                channel: submission.channel,
                hub: submission.hub,
                seq: submission.seq,
                answer,
                jitter: fastrand::f64(),
            })));
        });
    }

    /// Takes note of an event that may be the answer to a submission.
    pub fn remove_answered(&mut self, event: &Event) {
        if let Event::Answered {
            channel, hub, seq, ..
        } = event
        {
            self.under_way.remove(&(*channel, hub.clone(), *seq));
        }
    }

    /// Returns the durations of submissions, by hub or broker.
    pub fn durations(&self) -> BTreeMap<Hub, DurationHistogram> {
        let mut durations = self.submitter.durations();
        durations.extend(self.brokers.durations());
        durations
    }
}
