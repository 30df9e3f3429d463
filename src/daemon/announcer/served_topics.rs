//! The topics that are served, and those that wait to be claimed by a channel of another plan.

use std::collections::BTreeSet;

use resourcesync::uri::Topic;
use websub::topics::TopicPage;
use websub::topics::TopicRequests;
use websub::topics::http::Topics;

/// Topics as the loop changes them.
pub struct ServedTopics {
    topics: Topics,
    /// Topics served under the plan before, which this plan may not have.
    unclaimed: BTreeSet<Topic>,
}

impl ServedTopics {
    pub fn new(topics: Topics) -> ServedTopics {
        ServedTopics {
            topics,
            unclaimed: BTreeSet::new(),
        }
    }

    /// Serves a page from now on.
    pub fn serve(&mut self, page: TopicPage) {
        self.unclaimed.remove(&page.topic);
        self.topics.serve(page);
    }

    /// Answers 404 from now on.
    pub fn withdraw(&self, topic: &Topic) {
        self.topics.withdraw(topic);
    }

    /// Takes note of a change of plan: topics that are served now go on until every tree is known.
    pub fn await_claims(&mut self) {
        self.unclaimed = self.topics.served();
    }

    /// Takes the topics that no channel has claimed.
    pub fn take_unclaimed(&mut self) -> BTreeSet<Topic> {
        std::mem::take(&mut self.unclaimed)
    }

    /// Returns the topics, to serve them at another listener.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Returns the requests for topics so far.
    pub fn requests(&self) -> TopicRequests {
        self.topics.requests()
    }
}
