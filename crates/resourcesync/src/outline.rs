//! The description, links and entries of a document, collected while it is read (R2).

use std::str::FromStr;

use crate::capability::{Capability, UnknownCapability};
use crate::channel_kind::ChannelKind;
use crate::document::{
    Advertisement, DeclaredSpan, Document, Form, MAX_ENTRIES, MAX_SIZE, NotADocument, Oversize,
    beginning, is_structural,
};
use crate::reader::Element;
use crate::tag::TagAttributes;
use crate::uri::{Hub, Topic, Uri};

/// Longest `loc` or link that is kept; nobody could request a longer one.
const LONGEST_URI: usize = 8 << 10;
/// Total length of the hubs that are kept of one document.
const LONGEST_HUBS: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct OutlineBuilder {
    form: Form,
    capability: Option<Result<Capability, UnknownCapability>>,
    /// Namespace of an `md` with a capability outside the ResourceSync terms.
    foreign_terms: Option<String>,
    up: Option<Uri>,
    index: Option<Uri>,
    span: DeclaredSpan,
    /// Number of entries, kept or not.
    entries: usize,
    /// The `loc`s in one string, because those of a list whose `rs:md` comes last are kept until then.
    locs: String,
    /// End of each entry's `loc` in `locs`.
    ends: Vec<usize>,
    /// The entries that advertise a channel, with their index in `ends`.
    channels: Vec<(usize, ChannelKind, Vec<Hub>)>,
    /// Total length of the hubs in `channels`.
    hubs: usize,
    entry: Option<PartialEntry>,
}

/// The entry that is being read.
#[derive(Debug, Default)]
struct PartialEntry {
    has_loc: bool,
    channel: Option<ChannelKind>,
    hubs: Vec<Hub>,
}

impl OutlineBuilder {
    pub(crate) fn new(form: Form) -> OutlineBuilder {
        OutlineBuilder {
            form,
            ..OutlineBuilder::default()
        }
    }

    /// Takes the start of a child of the root.
    pub(crate) fn root_child(&mut self, element: Element, tag: TagAttributes<'_>) {
        match element {
            Element::Entry => {
                self.entries += 1;
                // In bounded memory, whatever a list holds.
                let is_within = self.entries <= MAX_ENTRIES && (self.locs.len() as u64) < MAX_SIZE;
                self.entry = (is_within && self.keeps_entries()).then(PartialEntry::default);
            }
            Element::Md if self.capability.is_none() => self.describe(tag),
            Element::Ln => {
                if self.up.is_none() && tag.has_relation("up") {
                    self.up = target(tag);
                }
                if self.index.is_none() && tag.has_relation("index") {
                    self.index = target(tag);
                }
            }
            _ => {}
        }
    }

    /// Takes the start of a child of the root that is called `md`, in another namespace than the ResourceSync terms.
    pub(crate) fn foreign_md(&mut self, namespace: &str, tag: TagAttributes<'_>) {
        if self.foreign_terms.is_none() && tag.filled("capability").is_some() {
            self.foreign_terms = Some(beginning(namespace));
        }
    }

    /// Takes the start of a child of an entry.
    pub(crate) fn entry_child(&mut self, element: Element, tag: TagAttributes<'_>) {
        let Some(entry) = &mut self.entry else {
            return;
        };
        match element {
            Element::Md => {
                let kind = || ChannelKind::of_capability(&tag.filled("capability")?);
                entry.channel = entry.channel.or_else(kind);
            }
            Element::Ln if tag.has_relation("hub") => {
                let href = tag.value("href").unwrap_or_default();
                if href.len() <= LONGEST_URI.min(LONGEST_HUBS - self.hubs)
                    && Uri::parse(&href).is_ok()
                {
                    self.hubs += href.len();
                    entry.hubs.push(Hub::new(href.trim()));
                }
            }
            _ => {}
        }
    }

    /// Takes the text of an entry's `loc`.
    pub(crate) fn loc(&mut self, text: &str) {
        if let Some(entry) = &mut self.entry
            && !entry.has_loc
            && text.len() <= LONGEST_URI
        {
            entry.has_loc = true;
            self.locs.push_str(text);
        }
    }

    /// Takes the end of a child of the root.
    pub(crate) fn end_entry(&mut self) {
        let Some(entry) = self.entry.take().filter(|entry| entry.has_loc) else {
            return;
        };
        if let Some(kind) = entry.channel {
            self.channels.push((self.ends.len(), kind, entry.hubs));
        }
        self.ends.push(self.locs.len());
    }

    /// Returns the document, once it is complete.
    pub(crate) fn conclude(self, size: u64) -> Result<Document, NotADocument> {
        let capability = match self.capability {
            None => {
                return Err(match self.foreign_terms {
                    Some(namespace) => NotADocument::Terms { namespace },
                    None => NotADocument::NoCapability,
                });
            }
            Some(Err(UnknownCapability(value))) => return Err(NotADocument::Capability(value)),
            Some(Ok(capability)) => capability,
        };
        let mut document = Document {
            capability,
            form: self.form,
            up: self.up,
            index: self.index,
            members: Vec::new(),
            channels: Vec::new(),
            span: self.span,
            oversize: Oversize::of(self.entries, size),
            relative: None,
        };
        let mut channels = self.channels.into_iter().peekable();
        let mut start = 0;
        for (place, end) in self.ends.into_iter().enumerate() {
            let loc = &self.locs[start..end];
            start = end;
            let channel = channels.next_if(|(channel, ..)| *channel == place);
            let Ok(uri) = Uri::parse(loc) else {
                document
                    .relative
                    .get_or_insert_with(|| beginning(loc).into());
                continue;
            };
            match channel {
                Some((_, kind, hubs)) if capability == Capability::CapabilityList => {
                    let topic = Topic::new(loc.trim());
                    document.channels.push(Advertisement { kind, topic, hubs });
                }
                _ => document.members.push(uri),
            }
        }
        Ok(document)
    }

    /// Returns true while entries are kept: also while the capability is unknown, since the root's `rs:md` may follow
    /// them.
    fn keeps_entries(&self) -> bool {
        match self.capability {
            None => true,
            Some(Ok(capability)) => is_structural(capability, self.form),
            Some(Err(_)) => false,
        }
    }

    fn describe(&mut self, tag: TagAttributes<'_>) {
        let Some(value) = tag.filled("capability") else {
            return;
        };
        self.capability = Some(Capability::from_str(&beginning(&value)));
        self.span = declared_span(tag);
        if !self.keeps_entries() {
            self.locs = String::new();
            self.ends = Vec::new();
            self.channels = Vec::new();
        }
    }
}

/// Returns the times that a root-level `rs:md` declares.
pub(crate) fn declared_span(tag: TagAttributes<'_>) -> DeclaredSpan {
    let time = |name| tag.value(name).map(|time| beginning(time.trim()).into());
    DeclaredSpan {
        at: time("at"),
        from: time("from"),
        until: time("until"),
        completed: time("completed"),
    }
}

fn target(tag: TagAttributes<'_>) -> Option<Uri> {
    let href = tag.value("href").filter(|href| href.len() <= LONGEST_URI)?;
    Uri::parse(&href).ok()
}
