//! A capability document, reduced to what notifications depend on.

use serde::{Deserialize, Serialize};

use crate::capability::{Capability, ChannelKind};
use crate::fingerprint::Fingerprint;
use crate::tag::{RS, SITEMAP};
use crate::uri::{Hub, Topic, Uri};

/// The Sitemap format of a document (core 1.1 section 6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// Root element `urlset`.
    #[default]
    List,
    /// Root element `sitemapindex`: it groups lists of its own capability.
    Index,
}

impl Form {
    /// Returns the form that a root element's name stands for.
    pub(crate) fn of_root(name: &str) -> Option<Form> {
        let mut forms = [Form::List, Form::Index].into_iter();
        forms.find(|form| form.root() == name)
    }

    /// Returns the name of the root element.
    pub(crate) fn root(self) -> &'static str {
        match self {
            Form::List => "urlset",
            Form::Index => "sitemapindex",
        }
    }

    /// Returns `list` or `index`, as the command line prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Form::List => "list",
            Form::Index => "index",
        }
    }
}

/// A document of the framework, as parsed. URIs are normalised, and aliases not yet resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Kind of the document.
    pub capability: Capability,
    /// List or index.
    pub form: Form,
    /// Root-level `rs:ln rel="up"`.
    pub up: Option<Uri>,
    /// Root-level `rs:ln rel="index"`.
    pub index: Option<Uri>,
    /// The `loc` of each of the first [`MAX_ENTRIES`] entries, in order; empty unless the document
    /// [is structural](is_structural).
    pub members: Vec<Uri>,
    /// The notification channels that a Capability List advertises (Framework Notification 1.0.1 section 5, Change
    /// Notification 1.0.1 section 5), in order.
    pub channels: Vec<Advertisement>,
    /// Times that it declares.
    pub span: DeclaredSpan,
    /// Its size, if that is beyond the limits of the Sitemap protocol.
    pub oversize: Option<Oversize>,
    /// The first `loc` of a structural document that is no absolute URI.
    pub relative: Option<Box<str>>,
    /// The hash of its content.
    pub fingerprint: Fingerprint,
}

/// Returns true if the relations of other documents are read from the entries of one: indexes, Capability Lists, Source
/// Descriptions and archives.
pub fn is_structural(capability: Capability, form: Form) -> bool {
    form == Form::Index
        || matches!(
            capability,
            Capability::CapabilityList | Capability::SourceDescription
        )
        || capability.is_archive()
}

/// An entry of a Capability List with the capability of a [`ChannelKind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// The kind of changes that the channel announces.
    pub kind: ChannelKind,
    /// `loc`, byte for byte but for the white space around it.
    pub topic: Topic,
    /// Each `rs:ln rel="hub"`, byte for byte, in order.
    pub hubs: Vec<Hub>,
}

/// Most entries that a list may have (<https://www.sitemaps.org/protocol.html>, core 1.1 section 6).
pub const MAX_ENTRIES: usize = 50_000;
/// Largest size of a list in bytes: 50 MB.
pub const MAX_SIZE: u64 = 52_428_800;

/// The size of a document that is beyond the limits of the Sitemap protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Oversize {
    /// Number of `url` or `sitemap` elements.
    pub entries: usize,
    /// In bytes, unpacked.
    pub size: u64,
}

impl Oversize {
    /// Returns the size of a document beyond the limits; `None` of one within them.
    pub fn of(entries: usize, size: u64) -> Option<Oversize> {
        (entries > MAX_ENTRIES || size > MAX_SIZE).then_some(Oversize { entries, size })
    }
}

/// The times that the root-level `rs:md` declares, as written (core 1.1 section 7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredSpan {
    /// Time at which the listed state was taken.
    pub at: Option<Box<str>>,
    /// Start of the interval whose changes are listed.
    pub from: Option<Box<str>>,
    /// End of that interval; none while the list is open.
    pub until: Option<Box<str>>,
    /// Time at which taking the state was complete.
    pub completed: Option<Box<str>>,
}

/// The reason why a file is not a document that can be announced (R2).
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
pub enum NotADocument {
    /// It is another XML document, or no XML.
    #[error(
        "it is a resource or another file, without a root element urlset or sitemapindex of the sitemap namespace"
    )]
    ForeignRoot,
    /// `urlset` or `sitemapindex` of another namespace than `SITEMAP`; `has_terms` if the root declares a
    /// namespace like `RS`, so that a capability document was meant.
    #[error(
        "its root element {root} is in {}: write xmlns=\"{SITEMAP}\"",
        namespace_words(namespace)
    )]
    Namespace {
        /// Local name of the root.
        root: String,
        /// Namespace of the root; empty if it has none.
        namespace: String,
        /// True if the root declares a namespace like that of the ResourceSync terms.
        has_terms: bool,
    },
    /// It is a plain sitemap.
    #[error(
        "it has no root-level rs:md with a capability: add one, such as <rs:md capability=\"changelist\"/>"
    )]
    NoCapability,
    /// A root-level `md` with a capability, in another namespace than `RS`.
    #[error(
        "its root-level md is in {}: write rs:md, and xmlns:rs=\"{RS}\"",
        namespace_words(namespace)
    )]
    Terms {
        /// Its namespace; empty if it has none.
        namespace: String,
    },
    /// A capability that is not of the framework; its value.
    #[error("its capability \"{0}\" is none that is announced")]
    Capability(String),
    /// Compressed content in a file whose name does not end in `.gz`.
    #[error("it is compressed with gzip, and its name does not end in .gz: rename or unpack it")]
    Gzip,
}

/// Returns the beginning of a text, as much as a message quotes.
pub(crate) fn beginning(text: &str) -> String {
    text.chars().take(200).collect()
}

fn namespace_words(namespace: &str) -> String {
    match namespace {
        "" => "no namespace".to_owned(),
        namespace => format!("the namespace \"{namespace}\""),
    }
}

/// The reason why a candidate file is not complete, well-formed XML (R3). Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There are no bytes.
    #[error("it is empty")]
    Empty,
    /// The text ends before the root does.
    #[error("it ends in the middle of an element, at line {line}")]
    Truncated {
        /// Last line.
        line: u64,
    },
    /// Columns count characters, from 1.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line of the error.
        line: u64,
        /// Column of the error.
        column: u64,
        /// The fault there.
        message: String,
    },
    /// There is a DOCTYPE, which could define entities (R2).
    #[error("line {line}: a DOCTYPE is not accepted")]
    Doctype {
        /// Line where it begins.
        line: u64,
    },
    /// There are bytes that the encoding does not have.
    #[error("line {line}: the text is not {encoding}")]
    Encoding {
        /// Line of the first of them.
        line: u64,
        /// Name of the encoding.
        encoding: String,
    },
    /// Its gzip data is broken; the reason.
    #[error("its gzip data is broken: {0}")]
    Gzip(String),
    /// It is so large when unpacked that it was not read on.
    #[error(
        "it is {unpacked} bytes and more when it is unpacked, from {packed} bytes: that is not accepted"
    )]
    Bomb {
        /// Bytes unpacked so far.
        unpacked: u64,
        /// Bytes that they were unpacked from.
        packed: u64,
    },
}
