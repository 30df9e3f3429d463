//! Findings: problems of a tree that can be read (R8).

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use resourcesync::capability::{Capability, ChannelKind};
use resourcesync::document::{MAX_ENTRIES, MAX_SIZE, NotADocument, Oversize};
use resourcesync::uri::{Hub, Topic, Uri};
use serde::{Deserialize, Serialize};

use crate::observation::WhyAbsent;

/// A problem that a generator, or the configuration, should put right. Never a reason to guess.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
pub enum Finding {
    /// Capability Lists name the documents of a mount otherwise than the mount does. The first, as a cause of others.
    #[error(
        "the Capability Lists here name documents below `{named}`, and the mount says `{url}`: is `url` wrong?"
    )]
    WrongUrl { url: Uri, named: Uri },
    /// A capability document belongs to no set of resources, so nobody can be told of it.
    #[error(
        "{uri} ({capability}) belongs to no set of resources: no Capability List names it, and its rel=\"up\" names none \
         that is known"
    )]
    Unrouted { uri: Uri, capability: Capability },
    /// A set's channel is served and announced on, but its Capability List does not say so.
    #[error(
        "{set} does not advertise its channel {topic}: `rsnotify advertise` prints what it lacks"
    )]
    Unadvertised { set: Uri, topic: Topic },
    /// An index link leads to a document that is no index.
    #[error("{uri} names {index} as its index, which is not an index")]
    NoIndex { uri: Uri, index: Uri },
    /// A Capability List advertises only hubs that are not configured for one of its channels: nothing is sent on it.
    #[error(fmt = foreign_hubs)]
    ForeignHubs {
        set: Uri,
        kind: ChannelKind,
        hubs: Vec<Hub>,
    },
    /// A hub among others that a Capability List advertises is not configured.
    #[error("{set} advertises the hub {hub}, which is not configured")]
    ForeignHub { set: Uri, hub: Hub },
    /// A topic that cannot be served here, because it lies neither below `public_url` nor below a mount.
    #[error(
        "{set} advertises the topic {topic}, which lies neither below public_url nor below a mount"
    )]
    ForeignTopic { set: Uri, topic: Topic },
    /// A topic that is no URI.
    #[error(fmt = invalid_topic)]
    InvalidTopic {
        set: Uri,
        topic: Topic,
        /// A character that makes it one.
        forbidden: Option<char>,
    },
    /// A topic that clients cannot request as it is advertised.
    #[error(
        "{set} has the topic {topic}, which clients request as {requested}: advertise that instead"
    )]
    UnrequestableTopic {
        set: Uri,
        topic: Topic,
        /// The URI that they request instead.
        requested: String,
    },
    /// Two sets, or the two channels of one, have one topic; this one goes without.
    #[error("{set} has the topic {topic}, which another channel has already")]
    SharedTopic { set: Uri, topic: Topic },
    /// A Capability List advertises more than one channel; the first counts.
    #[error("{set} advertises several channels; only the first is used")]
    SeveralChannels { set: Uri },
    /// Entries of a Change List that cannot be told (C2).
    #[error(
        "{list} has {} that cannot be announced as changes; the first, at line {line}: {reason}",
        counted(*count, "entry", "entries")
    )]
    UntellableEntries {
        list: Uri,
        count: usize,
        /// Line of the first.
        line: u64,
        reason: String,
    },
    /// Entries of a Change List that were published with a datetime before that of changes which were told already: they
    /// were told without it (C15).
    #[error(
        "{list} had {} dated before changes that were announced already: announced without a datetime",
        counted(*count, "new entry", "new entries")
    )]
    BackDated { list: Uri, count: usize },
    /// Entries of a Change List with a datetime in the future, which were told without it (C15).
    #[error(
        "{list} had {} dated in the future: announced without a datetime; is a clock wrong?",
        counted(*count, "new entry", "new entries")
    )]
    Ahead { list: Uri, count: usize },
    /// A Change List that had been closed for long has other entries now. Those that are not later than its last one were
    /// not told (C7).
    #[error(
        "{list} was closed and unchanged for 30 days, and was rewritten: not announcing {}, dated no later than its last \
         one",
        counted(*untold, "new entry", "new entries")
    )]
    ClosedListRewritten { list: Uri, untold: usize },
    /// So many resources of a set are not listed any more that their deletions are suspended (C29).
    #[error(
        "{missing} of {of} resources of {set} are not listed any more: their deletions are suspended until enough are \
         back, or until you run `rsnotify accept {source}`"
    )]
    MissingResources {
        set: Uri,
        // Its raw name says that it is no error.
        r#source: String,
        missing: usize,
        of: usize,
    },
    /// A Capability List names a document below a mount where there is none.
    #[error("{set} names {uri}, and no file is there")]
    NoFile { set: Uri, uri: Uri },
    /// A Capability List names a path below a mount, and what lies there is no document.
    #[error("{set} names {uri}, and {cause}")]
    NoDocument {
        set: Uri,
        uri: Uri,
        cause: WhyAbsent,
    },
    /// More documents without a file, of which only the number is told.
    #[error(
        "{set} names {}, with no file there",
        counted(*count, "more document", "more documents")
    )]
    MoreWithoutFile { set: Uri, count: usize },
    /// A URI with characters that no URI may have; it is left out of headers.
    #[error("the URI {uri:?} has characters that no URI may have; percent-encode them")]
    Unclean { uri: String },
    /// A file is like a capability document, but for a capability that is never announced (R2).
    #[error("{uri} has the capability {capability:?}, which is none that is announced")]
    ForeignCapability { uri: Uri, capability: String },
    /// A document is beyond the limits of the Sitemap protocol.
    #[error(
        "{uri} has {entries} in {size} bytes, and a list may have {most} in {largest}: \
         its changes are announced, and what it lists beyond that is not remembered; split it, and list \
         the parts in an index",
        entries = counted(oversize.entries, "entry", "entries"),
        size = oversize.size,
        most = MAX_ENTRIES,
        largest = MAX_SIZE
    )]
    TooLarge { uri: Uri, oversize: Oversize },
    /// A document lists something by an address that is not absolute; nothing is known of it.
    #[error(
        "{uri} lists {loc:?}, which is not an absolute URI such as https://example.org/: such entries are left out; write \
         the whole address"
    )]
    RelativeLoc { uri: Uri, loc: String },
    /// A file is like a capability document, but for a namespace.
    #[error("{uri} is no document: {reason}")]
    ForeignNamespace { uri: Uri, reason: NotADocument },
}

impl Finding {
    /// Returns the URI that a Capability List names and that is no document's.
    pub fn uri_without_document(&self) -> Option<&Uri> {
        match self {
            Finding::NoFile { uri, .. } | Finding::NoDocument { uri, .. } => Some(uri),
            _ => None,
        }
    }

    /// Returns the number of findings that it stands for.
    pub fn finding_count(&self) -> usize {
        match self {
            Finding::MoreWithoutFile { count, .. } => *count,
            _ => 1,
        }
    }

    /// Returns what tells the finding from others: it without the numbers, lines and texts that differ from one version of a
    /// file to the next.
    pub fn identity(&self) -> Finding {
        let mut finding = self.clone();
        match &mut finding {
            Finding::UntellableEntries {
                count,
                line,
                reason,
                ..
            } => {
                (*count, *line) = (0, 0);
                reason.clear();
            }
            Finding::BackDated { count, .. }
            | Finding::Ahead { count, .. }
            | Finding::MoreWithoutFile { count, .. }
            | Finding::ClosedListRewritten { untold: count, .. } => *count = 0,
            Finding::MissingResources { missing, of, .. } => (*missing, *of) = (0, 0),
            Finding::TooLarge { oversize, .. } => {
                *oversize = Oversize {
                    entries: 0,
                    size: 0,
                }
            }
            Finding::RelativeLoc { loc: text, .. }
            | Finding::NoDocument {
                cause: WhyAbsent::Broken(text) | WhyAbsent::Denied(text),
                ..
            } => text.clear(),
            _ => {}
        }
        finding
    }

    /// Returns true if a wrong `url` of the mount brings it about.
    pub fn is_wrong_url_symptom(&self) -> bool {
        matches!(
            self,
            Finding::Unrouted { .. }
                | Finding::Unadvertised { .. }
                | Finding::NoIndex { .. }
                | Finding::ForeignTopic { .. }
                | Finding::NoFile { .. }
                | Finding::NoDocument { .. }
                | Finding::MoreWithoutFile { .. }
        )
    }

    /// Returns true if nothing is sent on the set's channel because of it, or the set has no channel.
    pub fn mutes_channel(&self) -> bool {
        matches!(
            self,
            Finding::ForeignHubs { .. }
                | Finding::ForeignTopic { .. }
                | Finding::InvalidTopic { .. }
                | Finding::SharedTopic { .. }
        )
    }
}

/// Names the kinds of findings, and the URIs that each finding is about.
macro_rules! kinds {
    ($($name:literal: $($finding:ident($($uri:ident),*))|+;)*) => {
        /// The names that [`Finding::kind`] gives.
        const KINDS: [&str; [$($name),*].len()] = [$($name),*];

        impl Finding {
            /// Returns the name that metrics have for it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $($(Finding::$finding { .. })|+ => $name,)*
                }
            }

            /// Returns the URIs that it is about.
            pub fn uris(&self) -> Vec<&Uri> {
                match self {
                    $($(Finding::$finding { $($uri,)* .. } => vec![$($uri),*],)+)*
                }
            }
        }
    };
}

kinds! {
    "unrouted": Unrouted(uri);
    "unadvertised": Unadvertised(set);
    "no_index": NoIndex(uri);
    "foreign_hubs": ForeignHubs(set);
    "foreign_hub": ForeignHub(set);
    "foreign_topic": ForeignTopic(set);
    "invalid_topic": InvalidTopic(set);
    "unrequestable_topic": UnrequestableTopic(set);
    "shared_topic": SharedTopic(set);
    "several_channels": SeveralChannels(set);
    "no_file": NoFile(set, uri) | MoreWithoutFile(set);
    "no_document": NoDocument(set, uri);
    "wrong_url": WrongUrl(url);
    "unclean": Unclean();
    "foreign_capability": ForeignCapability(uri);
    "too_large": TooLarge(uri);
    "relative_loc": RelativeLoc(uri);
    "foreign_namespace": ForeignNamespace(uri);
    "untellable_entries": UntellableEntries(list);
    "back_dated": BackDated(list);
    "ahead": Ahead(list);
    "closed_list_rewritten": ClosedListRewritten(list);
    "missing_resources": MissingResources(set);
}

/// Findings that an operator knows of, and that raise no alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgedPattern {
    kind: Option<String>,
    uri: Option<String>,
}

impl AcknowledgedPattern {
    /// Reads a kind, a URI, or both. A URI that ends in `*` stands for all that begin so. Returns an error for a text that
    /// names neither.
    pub fn parse(text: &str) -> Result<AcknowledgedPattern, String> {
        let words = text.split_whitespace().map(str::to_owned);
        let (mut uris, mut kinds): (Vec<String>, Vec<String>) =
            words.partition(|word| word.contains("://"));
        let are_known = kinds.iter().all(|kind| KINDS.contains(&kind.as_str()));
        let (kind, uri) = (kinds.pop(), uris.pop());
        let is_any = kind.is_some() || uri.is_some();
        if are_known && is_any && kinds.is_empty() && uris.is_empty() {
            return Ok(AcknowledgedPattern { kind, uri });
        }
        let kinds = KINDS.join(", ");
        Err(format!(
            "\"{text}\" names no findings: write a kind, a URI, or a kind and a URI, such as \"no_file \
             https://example.org/*\"; the kinds are {kinds}"
        ))
    }

    /// Returns true if it means this finding.
    pub fn covers(&self, finding: &Finding) -> bool {
        let is_meant = |uri: &&Uri| match &self.uri {
            None => true,
            Some(meant) => match meant.strip_suffix('*') {
                Some(beginning) => uri.as_str().starts_with(beginning),
                None => uri.as_str() == meant,
            },
        };
        let is_kind = self.kind.as_ref().is_none_or(|kind| kind == finding.kind());
        is_kind && (self.uri.is_none() || finding.uris().iter().any(is_meant))
    }
}

impl fmt::Display for AcknowledgedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.kind.iter().chain(&self.uri);
        let words: Vec<&str> = words.map(String::as_str).collect();
        f.write_str(&words.join(" "))
    }
}

/// Returns a number of things.
fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

fn foreign_hubs(
    set: &Uri,
    kind: &ChannelKind,
    hubs: &[Hub],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let hubs = hubs.iter().map(Hub::as_str).collect::<Vec<_>>().join(" ");
    match kind {
        ChannelKind::Framework => write!(
            f,
            "{set} advertises only hubs that are not configured, so nothing is sent: {hubs}"
        ),
        ChannelKind::Change => write!(
            f,
            "{set} advertises only hubs that are not configured for changes of resources, so none is sent: {hubs}"
        ),
    }
}

fn invalid_topic(
    set: &Uri,
    topic: &Topic,
    forbidden: &Option<char>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let topic = topic.as_str();
    let Some(forbidden) = forbidden else {
        return write!(
            f,
            "{set} advertises the topic {topic:?}, which is not an absolute URI such as https://example.org/, so nothing \
             is sent"
        );
    };
    let name = match forbidden {
        ' ' => "a space".to_owned(),
        other => format!("the character {other:?}"),
    };
    let mut utf8 = [0; 4];
    let escaped = utf8_percent_encode(forbidden.encode_utf8(&mut utf8), NON_ALPHANUMERIC);
    write!(
        f,
        "{set} advertises the topic {topic:?}, which has {name}: no URI may have one, so nothing is sent; write {escaped} \
         instead"
    )
}
