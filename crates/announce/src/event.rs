//! Events, which go into the engine, and effects, which come out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::capability::ChannelKind;
use resourcesync::escape::escaped;
use resourcesync::uri::{Hub, Topic, Uri};
use websub::answer::Answer;
use websub::publisher::reason::{Refusal, RefusalKind};
use websub::topics::TopicPage;

use crate::changes::round::{RoundAnswer, RoundRequest, UndatedByReason};
use crate::delivery::{Submission, SubmissionId};
use crate::finding::Finding;
use crate::observation::{
    DocumentPath, FileId, MountId, NestedFileSystem, Observation, UnreadableDirectory, WhyAbsent,
};
use crate::state::ChannelId;

/// An input of the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Files were looked at.
    Observed(Vec<Observation>),
    /// The causes for which there is no document where a Capability List names one.
    Explained(Vec<(DocumentPath, WhyAbsent)>),
    /// A mount's root is there, and a sweep of it begins. `started` is by the file system's clock.
    MountFound {
        mount: MountId,
        identity: FileId,
        started: Timestamp,
    },
    /// A mount's root is not there, or cannot be read.
    MountLost { mount: MountId, reason: String },
    /// A sweep of a mount ended; `complete` if its root could be listed to the end. It met so many `candidates`.
    Swept {
        mount: MountId,
        complete: bool,
        candidates: u64,
    },
    /// The first directories of a mount that may not be read now, and how many more.
    Unreadable {
        mount: MountId,
        directories: Vec<UnreadableDirectory>,
        more: usize,
    },
    /// All file systems that begin below the root of a mount now, and those that went: told before what is missing with one
    /// that is gone, and before the end of the first sweep.
    Nested {
        mount: MountId,
        nested: Vec<NestedFileSystem>,
    },
    /// A submission was answered. `jitter` is a random number between 0 and 1.
    Answered {
        id: SubmissionId,
        answer: Answer,
        jitter: f64,
    },
    /// Change Lists were read, as [`Effect::Take`] asked.
    Taken(Box<RoundAnswer>),
    /// Somebody fetched a topic that asked for it to be reported.
    Fetched(Topic),
    /// The operator believes the deletions of a source (R15): of what is missing now, not of what will be.
    Accept { source: String },
    /// A hub is reached otherwise than before: what is being submitted is submitted again unless it is accepted.
    HubChanged(Hub),
    /// Pending notifications are retried now, as an operator or a reload wants: of one hub on one channel, or of all.
    Retry { only: Option<(ChannelId, Hub)> },
    /// An operator drops what a hub is due on a channel: it counts as told (R23). What is held or missing is
    /// not due yet, and stays.
    Drop { channel: ChannelId, hub: Hub },
    /// Time has passed: `Engine::wake` said when.
    Tick,
}

/// An output of the engine, performed in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Serve this at a topic.
    Serve(TopicPage),
    /// Serve nothing at a topic any more.
    Withdraw(Topic),
    /// Submit a notification, and report the answer.
    Submit(Submission),
    /// Read Change Lists and compare them with what was taken; report it as [`Event::Taken`].
    Take(Box<RoundRequest>),
    /// Look at files again, and report what is found, even if nothing changed.
    Look(Vec<DocumentPath>),
    /// Look why there is no document at these paths, and report it as [`Event::Explained`].
    Explain(Vec<DocumentPath>),
    /// Tell the operator.
    Tell(Fact),
}

/// A fact that the operator should know, told once.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Files of a source were read, and none is a document.
    WithoutDocument { source: String, reason: String },
    /// The first complete sweep of a mount found these, which are known and not announced (R13).
    Baselined { source: String, documents: usize },
    /// A mount's root is not there, cannot be read, or is empty where another one held documents.
    MountLost { source: String, reason: String },
    /// A set has a channel that it had not.
    ChannelOpened { topic: Topic, set: Uri, hubs: usize },
    /// A set has a channel no more (R11).
    ChannelRetired { topic: Topic, set: Uri },
    /// A set has a retired channel again (R11).
    ChannelRevived { topic: Topic, set: Uri },
    /// A notification was made of what is due.
    Cut {
        topic: Topic,
        seq: u64,
        changes: usize,
        hubs: usize,
        body: Arc<[u8]>,
    },
    /// The entries that the Change Lists of a set have already count as taken, since nobody could hear of them before
    /// (C10).
    Learned {
        topic: Topic,
        changes: usize,
        lists: usize,
    },
    /// The last interval of a change channel ended ahead of the clock, so that the next one begins before its end (C14).
    BeganAnew {
        topic: Topic,
        until: Timestamp,
        from: Timestamp,
    },
    /// Changes were taken from the Change Lists of a set, and cut into notifications.
    Took {
        source: String,
        topic: Topic,
        /// Created, updated and deleted resources, in the order of [`ChangeKind`](resourcesync::payload::ChangeKind).
        changes: [usize; 3],
        lists: usize,
        /// The notifications that have them, without what was in those before.
        notifications: Vec<(u64, Arc<[u8]>)>,
        undated: UndatedByReason,
    },
    /// Entries of a list that cannot be told (C2), as many as there are more than before.
    SkippedEntries {
        source: String,
        list: Uri,
        count: usize,
    },
    /// An archived list has changes that are later than all that was told, and that no other list had: they are not told
    /// (C1).
    ArchivedUntold {
        topic: Topic,
        list: Uri,
        count: usize,
    },
    /// Nothing was taken: the lists are read again later.
    NotTaken {
        topic: Topic,
        reason: Option<String>,
    },
    /// Changes that a hub was due on a channel, and is not told.
    Dropped {
        topic: Topic,
        hub: Hub,
        changes: usize,
        cause: DropCause,
    },
    /// A hub or broker answered the submission of a notification, and the answer counts.
    Answered(AnsweredNotification, AnswerOutcome),
    /// Single notifications were refused in the same way as some that were told before.
    RefusedAlike {
        hub: Hub,
        kind: RefusalKind,
        reason: String,
        notifications: usize,
    },
    /// A hub that failed as a whole answers again (R23).
    Recovered {
        hub: Hub,
        attempts: u32,
        took: Duration,
        /// Notifications that waited for it.
        notifications: usize,
    },
    /// A hub took the place of one that is no longer configured, with all that one was due (R13).
    HubReplaced { hub: Hub, by: Hub, channels: usize },
    /// Notifications are retried now because an operator asked for it.
    Retried { notifications: usize },
    /// A ping was accepted, and the topic not fetched (R26): told once, until it is fetched.
    Unfetched {
        topic: Topic,
        hub: Hub,
        seq: u64,
        after: Duration,
    },
    /// A topic was fetched after a ping about a notification, as a hub does that took it (R26).
    Fetched {
        topic: Topic,
        hub: Hub,
        seq: u64,
        /// True if it was told before that it is not fetched.
        was_reported: bool,
    },
    /// A candidate cannot be read (R3).
    Broken {
        path: DocumentPath,
        uri: Uri,
        reason: String,
        /// True if it could be read before.
        is_known: bool,
    },
    /// A candidate that was reported, because it could not be read, was read.
    Mended { path: DocumentPath, uri: Uri },
    /// A document is announced although nothing listed it in time (R17).
    HoldExpired { uri: Uri, set: Option<Uri> },
    /// Too much is missing, or a file system is away: deletions of a source wait (R15).
    Suspended(SuspendedDeletions),
    /// Deletions of a source wait no more (R15).
    Resumed { source: String },
    /// The operator believes that these are deleted, and it is on its way to the store.
    Accepted {
        source: String,
        documents: usize,
        resources: usize,
    },
    /// A problem of the tree (R8).
    Found(Finding),
    /// More was found of one kind than is told of each.
    FoundMore {
        source: String,
        kind: &'static str,
        count: usize,
    },
}

/// A notification that was answered, and the number of attempts at it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredNotification {
    /// The kind of its channel.
    pub kind: ChannelKind,
    pub topic: Topic,
    pub hub: Hub,
    pub seq: u64,
    pub attempts: u32,
}

/// The outcome of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// The hub accepted the notification. `took` is the time since it was cut.
    Delivered { changes: usize, took: Duration },
    /// The attempt failed; the notification will be tried again.
    Refused {
        refusal: Refusal,
        next_try: Timestamp,
        /// True if it tells something new, and not only that a hub that is known to fail still does.
        is_news: bool,
    },
    /// Too large for the hub: withdrawn, and half of it is cut again (R23). It is news the first time within an hour.
    Halved { limit: usize, is_news: bool },
}

/// The reason why changes are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The hub is so far behind that the oldest changes count as told (C22).
    FellBehind,
    /// The hub is no longer configured, or no longer advertised (R11, R13).
    HubRemoved,
    /// The channel retired long ago, or another one has its topic now (R11, C9).
    ChannelRemoved,
    /// The documents no longer concern the channel: their mount, their names or their source are no longer configured, or
    /// the topic is another source's now (R11, R13).
    DocumentsRemoved,
    /// An operator dropped them: they count as told (R23).
    Operator,
}

/// Suspension of the deletions of a source (R15). The log and every command use these words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendedDeletions {
    pub source: String,
    /// Documents that are missing and not accepted as deleted.
    pub missing: usize,
    pub of: usize,
    /// Directories below which some of them lay on a file system that is not mounted there now.
    pub unmounted: Vec<String>,
}

/// Directories that a suspension names; of others, their number.
const MAX_UNMOUNTED: usize = 3;

impl fmt::Display for SuspendedDeletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, missing, of) = (&self.source, self.missing, self.of);
        if self.unmounted.is_empty() {
            return write!(
                f,
                "{missing} of {of} documents of {source} are missing: their deletions are suspended until enough \
                 are back, or until you run `rsnotify accept {source}`"
            );
        }
        let first = self.unmounted.iter().take(MAX_UNMOUNTED);
        let first: Vec<_> = first.map(|directory| escaped(directory)).collect();
        let mut directories = first.join(", ");
        let more = self.unmounted.len().saturating_sub(MAX_UNMOUNTED);
        if more > 0 {
            directories = format!("{directories} and {more} more");
        }
        write!(
            f,
            "{missing} of {of} documents of {source} are missing, and the file system that held those below \
             {directories} is not mounted there: their deletions are suspended until enough are back, or until \
             you run `rsnotify accept {source}`"
        )
    }
}
