//! The topics of a hub: those that this process serves, or those that publishers may publish.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use resourcesync::uri::Topic;

use crate::http::{Replaceable, read, write};
use crate::hub::published_topics::PublishedTopics;
use crate::hub::publisher::{Publishers, checked_topic};
use crate::topics::http::Topics;

/// The topics that may be subscribed to.
#[derive(Debug, Clone)]
pub enum HubTopics {
    /// Those of the Source in this process.
    Served(Arc<Topics>),
    /// Those below the prefixes of publishers.
    Published(Arc<TopicRegistry>),
}

/// The topics of publishers, shared by the event loop and the requests.
#[derive(Debug)]
pub struct TopicRegistry {
    topics: RwLock<PublishedTopics>,
    /// The publishers in effect.
    pub publishers: Replaceable<Publishers>,
}

impl HubTopics {
    /// Finds the topic that a subscriber named.
    pub fn find(&self, name: &str) -> Option<Topic> {
        match self {
            HubTopics::Served(topics) => topics.find(name),
            HubTopics::Published(directory) => directory.find(name),
        }
    }

    /// Returns what a subscriber should know of a topic that it named.
    pub fn caution(&self, topic: &Topic) -> Option<String> {
        match self {
            HubTopics::Served(_) => None,
            HubTopics::Published(directory) => directory.caution(topic),
        }
    }
}

impl TopicRegistry {
    /// Returns the directory of these topics and publishers.
    pub fn new(topics: PublishedTopics, publishers: Publishers) -> TopicRegistry {
        TopicRegistry {
            topics: RwLock::new(topics),
            publishers: Replaceable::new(publishers),
        }
    }

    /// Returns true if a topic lies below the prefixes of the publisher with this name.
    pub fn may_publish(&self, publisher: &str, topic: &Topic) -> bool {
        let publishers = self.publishers.get();
        let of_topic = publishers.of_topic(topic);
        of_topic.is_some_and(|of_topic| *of_topic.name == *publisher)
    }

    /// Locks the topics for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, PublishedTopics> {
        read(&self.topics)
    }

    /// Locks the topics for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, PublishedTopics> {
        write(&self.topics)
    }

    /// Returns what a subscriber should know of a topic that nobody has published, and that others may spell otherwise: a
    /// topic is the string that its publisher will use (WebSub section 4).
    fn caution(&self, topic: &Topic) -> Option<String> {
        let is_published = self.read().topics().contains_key(topic);
        (!is_published && topic.as_str().contains('%')).then(|| {
            format!(
                "nobody has published {topic} yet: notifications follow if its publisher spells it exactly so, as the \
                 rel=\"self\" of its Link header\n"
            )
        })
    }

    /// Finds a topic that was published, or that a publisher may publish later.
    fn find(&self, name: &str) -> Option<Topic> {
        let known = self.read().find(name).cloned();
        let topic = known.or_else(|| checked_topic(name).ok())?;
        self.publishers
            .get()
            .of_topic(&topic)
            .is_some()
            .then_some(topic)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resourcesync::uri::Uri;

    use super::*;
    use crate::hub::publisher::Publisher;

    #[test]
    fn a_subscriber_is_told_that_the_spelling_of_an_unpublished_topic_matters() {
        let publisher = Publisher {
            topic_networks: Vec::new(),
            name: "library".into(),
            topics: vec![Uri::parse("https://e.org/").unwrap()],
            token: None,
            verify_topic: true,
        };
        let directory = TopicRegistry::new(PublishedTopics::default(), Publishers(vec![publisher]));
        let cautioned = |name: &str| {
            let topic = directory.find(name).unwrap();
            directory.caution(&topic).is_some()
        };
        let upper = Topic::new("https://e.org/%C3%A9");
        assert!(cautioned("https://e.org/%C3%A9") && cautioned("https://e.org/%c3%a9"));
        assert!(!cautioned("https://e.org/plain"));
        directory.write().ping(&upper, "library", Timestamp::now());
        // The other spelling is now found to be that topic.
        assert!(!cautioned("https://e.org/%C3%A9") && !cautioned("https://e.org/%c3%a9"));
    }
}
