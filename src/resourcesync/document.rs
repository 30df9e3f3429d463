//! A capability document, reduced to what decides about notifications.

use crate::resourcesync::capability::Capability;
use crate::resourcesync::fingerprint::Fingerprint;
use crate::resourcesync::namespaces::{RS, SITEMAP};
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// Which of the two Sitemap formats a document is written in (core 1.1 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// Root element `urlset`.
    List,
    /// Root element `sitemapindex`: it groups lists of its own capability.
    Index,
}

impl Form {
    /// Returns the form that a root element's name stands for.
    pub(crate) fn of_root(name: &str) -> Option<Form> {
        match name {
            "urlset" => Some(Form::List),
            "sitemapindex" => Some(Form::Index),
            _ => None,
        }
    }

    /// `list` or `index`, as the command line prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Form::List => "list",
            Form::Index => "index",
        }
    }
}

/// A document of the framework, as parsed. URIs are as written (normalised), before aliases are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub capability: Capability,
    pub form: Form,
    /// Root-level `rs:ln rel="up"`.
    pub up: Option<Uri>,
    /// Root-level `rs:ln rel="index"`.
    pub index: Option<Uri>,
    /// The `loc` of each entry, in order, of the documents that give the framework its structure
    /// ([`Document::is_structural`]), of the first [`MOST_ENTRIES`]; empty for all others, whatever their size.
    pub members: Vec<Uri>,
    /// The Framework Notification channels that a Capability List advertises
    /// (Framework Notification 1.0.1 section 5), in order.
    pub channels: Vec<Advertisement>,
    pub span: Span,
    pub excess: Option<Excess>,
    /// The first `loc` of a structural document that is no absolute URI.
    pub relative: Option<Box<str>>,
}

impl Document {
    /// Whether other documents' relations are read from this one's entries: indexes, Capability Lists,
    /// Source Descriptions and archives.
    pub fn is_structural(&self) -> bool {
        is_structural(self.capability, self.form)
    }
}

/// As [`Document::is_structural`], from the two properties that decide it.
pub fn is_structural(capability: Capability, form: Form) -> bool {
    form == Form::Index
        || matches!(
            capability,
            Capability::CapabilityList | Capability::SourceDescription
        )
        || capability.is_archive()
}

/// An entry of a Capability List with `capability="framework-notification"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// `loc`, byte for byte but for the white space around it.
    pub topic: Topic,
    /// Each `rs:ln rel="hub"`, byte for byte, in order.
    pub hubs: Vec<Hub>,
}

/// How many entries a list may have (<https://www.sitemaps.org/protocol.html>, core 1.1 section 6).
pub const MOST_ENTRIES: usize = 50_000;
/// How large it may be, in bytes: 50 MB.
pub const LARGEST: u64 = 52_428_800;

/// The size of a document that is beyond the limits of the Sitemap protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excess {
    pub entries: usize,
    /// In bytes, unpacked.
    pub size: u64,
}

impl Excess {
    /// Nothing of a document within the limits.
    pub fn of(entries: usize, size: u64) -> Option<Excess> {
        (entries > MOST_ENTRIES || size > LARGEST).then_some(Excess { entries, size })
    }
}

/// The times that the root-level `rs:md` declares, as written (core 1.1 section 7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub at: Option<Box<str>>,
    pub from: Option<Box<str>>,
    pub until: Option<Box<str>>,
    pub completed: Option<Box<str>>,
}

/// A document with the fingerprint of its content: what one pass over the bytes yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    pub document: Document,
    pub fingerprint: Fingerprint,
}

/// What the bytes of a candidate file turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A capability document.
    Document(Box<Parsed>),
    /// Well-formed as far as it was read, and not a capability document.
    Other(Other),
}

/// Why a file is not a document that can be announced (R2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Other {
    #[error("its root element is neither urlset nor sitemapindex of the sitemap namespace")]
    ForeignRoot,
    /// `urlset` or `sitemapindex` of another namespace than `SITEMAP`; `has_terms` if the root declares a
    /// namespace like `RS`, so that a capability document was meant.
    #[error(
        "its root element {root} is in {}: write xmlns=\"{SITEMAP}\"",
        in_words(namespace)
    )]
    Namespace {
        root: String,
        namespace: String,
        has_terms: bool,
    },
    #[error(
        "it has no root-level rs:md with a capability: add one, such as <rs:md capability=\"changelist\"/>"
    )]
    NoCapability,
    /// A root-level `md` with a capability, in another namespace than `RS`.
    #[error(
        "its root-level md is in {}: write rs:md, and xmlns:rs=\"{RS}\"",
        in_words(namespace)
    )]
    Terms { namespace: String },
    #[error("its capability \"{0}\" is none that is announced")]
    Capability(String),
    /// Compressed content in a file whose name does not say so.
    #[error("it is compressed with gzip, and its name does not end in .gz: rename or unpack it")]
    Gzip,
}

/// Returns as much of a text as a message repeats.
pub(crate) fn beginning(text: &str) -> String {
    text.chars().take(200).collect()
}

fn in_words(namespace: &str) -> String {
    match namespace {
        "" => "no namespace".to_owned(),
        namespace => format!("the namespace \"{namespace}\""),
    }
}

/// Why a candidate file is not complete, well-formed XML (R3). Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it is empty")]
    Empty,
    #[error("it ends in the middle of an element, at line {line}")]
    Truncated { line: u64 },
    /// Columns count characters, from 1.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        line: u64,
        column: u64,
        message: String,
    },
    #[error("line {line}: a DOCTYPE is not accepted")]
    Doctype { line: u64 },
    #[error("line {line}: the text is not {encoding}")]
    Encoding { line: u64, encoding: String },
    #[error("its gzip data is broken: {0}")]
    Gzip(String),
    #[error(
        "it is {unpacked} bytes and more when it is unpacked, from {packed} bytes: that is not accepted"
    )]
    Bomb { unpacked: u64, packed: u64 },
}
