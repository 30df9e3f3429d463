//! What a document says about itself and about other documents, gathered while its elements go by (R2).

use std::str::FromStr;

use crate::resourcesync::capability::{Capability, UnknownCapability};
use crate::resourcesync::document::{
    Advertisement, Document, Excess, Form, LARGEST, MOST_ENTRIES, Other, Span, beginning,
    is_structural,
};
use crate::resourcesync::payload::NOTIFICATION;
use crate::resourcesync::reader::Element;
use crate::resourcesync::tag::Tag;
use crate::resourcesync::uri::{Hub, Topic, Uri};

/// The longest `loc` or link that is kept: longer ones are no addresses that anybody could request.
const LONGEST_URI: usize = 8 << 10;
/// How long all hubs of one document may be: more are left out.
const LONGEST_HUBS: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Outline {
    form: Form,
    capability: Option<Result<Capability, UnknownCapability>>,
    /// The namespace of an `md` with a capability that is none of the ResourceSync terms.
    foreign_terms: Option<String>,
    up: Option<Uri>,
    index: Option<Uri>,
    span: Span,
    /// How many there are, kept or not.
    entries: usize,
    /// The `loc`s one after the other, because a list of 50,000 whose `rs:md` comes last is kept until then.
    locs: String,
    /// Where each entry's `loc` ends.
    ends: Vec<usize>,
    /// The entries that advertise a channel, by their place among all.
    channels: Vec<(usize, Vec<Hub>)>,
    /// How long their hubs are.
    hubs: usize,
    entry: Option<Entry>,
}

/// The entry whose elements go by.
#[derive(Debug, Default)]
struct Entry {
    has_loc: bool,
    is_channel: bool,
    hubs: Vec<Hub>,
}

impl Outline {
    pub(crate) fn new(form: Form) -> Outline {
        Outline {
            form,
            capability: None,
            foreign_terms: None,
            up: None,
            index: None,
            span: Span::default(),
            entries: 0,
            locs: String::new(),
            ends: Vec::new(),
            channels: Vec::new(),
            hubs: 0,
            entry: None,
        }
    }

    /// A child of the root begins.
    pub(crate) fn root_child(&mut self, element: Element, tag: Tag<'_>) {
        match element {
            Element::Entry => {
                self.entries += 1;
                // In bounded memory, whatever a list holds.
                let is_within = self.entries <= MOST_ENTRIES && (self.locs.len() as u64) < LARGEST;
                self.entry = (is_within && self.keeps_entries()).then(Entry::default);
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

    /// A child of the root begins that is called `md` and is none of ours.
    pub(crate) fn foreign_terms(&mut self, namespace: &str, tag: Tag<'_>) {
        if self.foreign_terms.is_none() && capability(tag).is_some() {
            self.foreign_terms = Some(beginning(namespace));
        }
    }

    /// A child of an entry begins.
    pub(crate) fn entry_child(&mut self, element: Element, tag: Tag<'_>) {
        let Some(entry) = &mut self.entry else {
            return;
        };
        match element {
            Element::Md => entry.is_channel |= capability(tag).as_deref() == Some(NOTIFICATION),
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

    /// The text of an entry's `loc`. Text in any other place is none of ours.
    pub(crate) fn loc(&mut self, text: &str) {
        if let Some(entry) = &mut self.entry
            && !entry.has_loc
            && text.len() <= LONGEST_URI
        {
            entry.has_loc = true;
            self.locs.push_str(text);
        }
    }

    /// An entry ends.
    pub(crate) fn end_entry(&mut self) {
        let Some(entry) = self.entry.take().filter(|entry| entry.has_loc) else {
            return;
        };
        if entry.is_channel {
            self.channels.push((self.ends.len(), entry.hubs));
        }
        self.ends.push(self.locs.len());
    }

    /// What the document is, once it is complete.
    pub(crate) fn conclude(self, size: u64) -> Result<Document, Other> {
        let capability = match self.capability {
            None => {
                return Err(match self.foreign_terms {
                    Some(namespace) => Other::Terms { namespace },
                    None => Other::NoCapability,
                });
            }
            Some(Err(UnknownCapability(value))) => return Err(Other::Capability(value)),
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
            excess: Excess::of(self.entries, size),
            relative: None,
        };
        let mut channels = self.channels.into_iter().peekable();
        let mut start = 0;
        for (place, end) in self.ends.into_iter().enumerate() {
            let loc = &self.locs[start..end];
            start = end;
            let channel = channels.next_if(|(channel, _)| *channel == place);
            let Ok(uri) = Uri::parse(loc) else {
                document
                    .relative
                    .get_or_insert_with(|| beginning(loc).into());
                continue;
            };
            match channel {
                Some((_, hubs)) if capability == Capability::CapabilityList => {
                    let topic = Topic::new(loc.trim());
                    document.channels.push(Advertisement { topic, hubs });
                }
                _ => document.members.push(uri),
            }
        }
        Ok(document)
    }

    /// Entries are kept while the capability is unknown, since the root's `rs:md` may follow them.
    fn keeps_entries(&self) -> bool {
        match self.capability {
            None => true,
            Some(Ok(capability)) => is_structural(capability, self.form),
            Some(Err(_)) => false,
        }
    }

    fn describe(&mut self, tag: Tag<'_>) {
        let Some(value) = capability(tag) else {
            return;
        };
        let time = |name| tag.value(name).map(|time| beginning(time.trim()).into());
        self.capability = Some(Capability::from_str(&beginning(&value)));
        self.span = Span {
            at: time("at"),
            from: time("from"),
            until: time("until"),
            completed: time("completed"),
        };
        if !self.keeps_entries() {
            self.locs = String::new();
            self.ends = Vec::new();
            self.channels = Vec::new();
        }
    }
}

/// The value of `capability`; an empty one says nothing.
pub(crate) fn capability(tag: Tag<'_>) -> Option<String> {
    let value = tag.value("capability")?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn target(tag: Tag<'_>) -> Option<Uri> {
    let href = tag.value("href").filter(|href| href.len() <= LONGEST_URI)?;
    Uri::parse(&href).ok()
}
