//! Reading of a document and its fingerprint in one pass over its bytes, with bounded memory.

use std::io::Read;
use std::str::FromStr;

use crate::capability::{Capability, ChannelKind, UnknownCapability};
use crate::change_list::{KeysReader, ListedChanges};
use crate::document::{
    Advertisement, DeclaredSpan, Document, Form, MAX_ENTRIES, MAX_SIZE, Malformed, NotADocument,
    Oversize, beginning, is_structural,
};
use crate::fingerprint::CanonicalHasher;
use crate::reader::{ElementKind, Handler, ParseStop, XmlReader};
use crate::tag::StartTag;
use crate::uri::{Hub, Topic, Uri};
use crate::window::TextWindow;

/// The first byte of gzip's magic number, and of no text.
const GZIP: u8 = 0x1f;
/// Entries of the longest list whose keys are kept in memory; the protocol permits 50,000.
const MAX_KEYS: usize = 1 << 16;
/// Longest `loc` or link that is kept; nobody could request a longer one.
const LONGEST_URI: usize = 8 << 10;
/// Total length of the hubs that are kept of one document.
const LONGEST_HUBS: usize = 1 << 20;

/// The reason why a candidate file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source of the bytes failed.
    #[error("cannot read on")]
    Io(#[from] std::io::Error),
    /// The bytes are no complete, well-formed XML.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Reads a file that may be a capability document (core 1.1 section 6; R2, R3, R4).
///
/// A document is read to its end, since only a complete one counts; another file up to its root, and at most 64 KiB of
/// it. Returns the document, or why a file that is well-formed as far as it was read is none.
///
/// # Errors
///
/// If it cannot be read, or is a capability document that is not complete, well-formed XML.
pub fn parse(source: impl Read) -> Result<Result<Document, NotADocument>, ReadError> {
    Ok(parse_with_keys(source, false)?.0)
}

/// Reads a file as [`parse`] does, and if `are_wanted` returns the keys of its entries too, as
/// [`read_keys`](crate::change_list::read_keys) does, if it is a Change List that says so before its first entry and has
/// 65,536 at most (C6).
///
/// # Errors
///
/// As [`parse`].
pub fn parse_with_keys(
    source: impl Read,
    are_wanted: bool,
) -> Result<(Result<Document, NotADocument>, Option<ListedChanges>), ReadError> {
    let handler = DocumentHandler {
        keys: are_wanted.then(KeysReader::default),
        ..DocumentHandler::default()
    };
    let (mut handler, size) = match read(source, handler)? {
        Ok(read) => read,
        Err(other) => return Ok((Err(other), None)),
    };
    let taken = handler.keys.take();
    let keys = taken.filter(|keys| keys.entries.has_wanted_capability());
    Ok((handler.conclude(size), keys.map(KeysReader::conclude)))
}

/// The description, links and entries of the document that is being read (R2), and its fingerprint.
#[derive(Debug, Default)]
struct DocumentHandler {
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
    canonical: CanonicalHasher,
    /// `None` unless they are wanted.
    keys: Option<KeysReader>,
}

/// The entry that is being read.
#[derive(Debug, Default)]
struct PartialEntry {
    has_loc: bool,
    channel: Option<ChannelKind>,
    hubs: Vec<Hub>,
}

impl DocumentHandler {
    /// Takes the start of a child of an entry.
    fn take_entry_child(&mut self, tag: &StartTag<'_>) {
        let Some(entry) = &mut self.entry else {
            return;
        };
        match tag.element {
            ElementKind::Md => {
                let kind = || ChannelKind::of_capability(&tag.filled("capability")?);
                entry.channel = entry.channel.or_else(kind);
            }
            ElementKind::Ln if tag.has_relation("hub") => {
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

    /// Returns true while entries are kept: also while the capability is unknown, since the root's `rs:md` may follow
    /// them.
    fn keeps_entries(&self) -> bool {
        match self.capability {
            None => true,
            Some(Ok(capability)) => is_structural(capability, self.form),
            Some(Err(_)) => false,
        }
    }

    /// Returns the document of `size` bytes whose root has ended.
    fn conclude(self, size: u64) -> Result<Document, NotADocument> {
        let capability = match (self.capability, self.foreign_terms) {
            (Some(Ok(capability)), _) => capability,
            (Some(Err(UnknownCapability(value))), _) => {
                return Err(NotADocument::Capability(value));
            }
            (None, Some(namespace)) => return Err(NotADocument::Terms { namespace }),
            (None, None) => return Err(NotADocument::NoCapability),
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
            fingerprint: self.canonical.fingerprint(),
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
}

impl Handler for DocumentHandler {
    fn start(&mut self, tag: &StartTag<'_>) {
        match (tag.depth, tag.element) {
            (0, _) => self.form = Form::of_root(tag.local).unwrap_or_default(),
            (1, ElementKind::Entry) => {
                self.entries += 1;
                // In bounded memory, whatever a list holds.
                let is_within = self.entries <= MAX_ENTRIES && (self.locs.len() as u64) < MAX_SIZE;
                self.entry = (is_within && self.keeps_entries()).then(PartialEntry::default);
                self.keys.take_if(|keys| {
                    !keys.entries.has_wanted_capability() || keys.listed.entries.len() >= MAX_KEYS
                });
            }
            (1, ElementKind::Md) if self.capability.is_none() => {
                if let Some(value) = tag.filled("capability") {
                    self.capability = Some(Capability::from_str(&beginning(&value)));
                    self.span = declared_span(tag);
                    if !self.keeps_entries() {
                        self.locs = String::new();
                        self.ends = Vec::new();
                        self.channels = Vec::new();
                    }
                }
            }
            (1, ElementKind::Ln) => {
                for (relation, link) in [("up", &mut self.up), ("index", &mut self.index)] {
                    if link.is_none() && tag.has_relation(relation) {
                        let href = tag.value("href").filter(|href| href.len() <= LONGEST_URI);
                        *link = href.and_then(|href| Uri::parse(&href).ok());
                    }
                }
            }
            (1, ElementKind::Other)
                if tag.local == "md"
                    && self.foreign_terms.is_none()
                    && tag.filled("capability").is_some() =>
            {
                self.foreign_terms = Some(beginning(tag.namespaces.uri(tag.namespace)));
            }
            (2, _) => self.take_entry_child(tag),
            _ => {}
        }
        self.canonical.start(tag);
        if let Some(keys) = &mut self.keys {
            keys.start(tag);
        }
    }

    fn text(&mut self, depth: usize, element: ElementKind, text: &str) {
        self.canonical.text(text);
        if let (2, ElementKind::Loc, Some(entry)) = (depth, element, &mut self.entry)
            && !entry.has_loc
            && text.len() <= LONGEST_URI
        {
            entry.has_loc = true;
            self.locs.push_str(text);
        }
        if let Some(keys) = &mut self.keys {
            keys.text(depth, element, text);
        }
    }

    fn end(&mut self, depth: usize, offset: u64) {
        self.canonical.end();
        if depth == 1
            && let Some(entry) = self.entry.take().filter(|entry| entry.has_loc)
        {
            if let Some(kind) = entry.channel {
                self.channels.push((self.ends.len(), kind, entry.hubs));
            }
            self.ends.push(self.locs.len());
        }
        if let Some(keys) = &mut self.keys {
            keys.end(depth, offset);
        }
    }

    fn window_end(&mut self, line: &dyn Fn(u64) -> u64) {
        if let Some(keys) = &mut self.keys {
            keys.window_end(line);
        }
    }
}

/// Returns the times that a root-level `rs:md` declares.
pub(crate) fn declared_span(tag: &StartTag<'_>) -> DeclaredSpan {
    let time = |name| tag.value(name).map(|time| beginning(time.trim()).into());
    DeclaredSpan {
        at: time("at"),
        from: time("from"),
        until: time("until"),
        completed: time("completed"),
    }
}

/// Reads XML to its end. Returns the handler with the number of bytes read, or the reason why the file was given up as
/// another than a capability document or notification.
pub(crate) fn read<H: Handler>(
    source: impl Read,
    handler: H,
) -> Result<Result<(H, u64), NotADocument>, ReadError> {
    let mut window = TextWindow::new(source);
    let mut reader = XmlReader::new(handler);
    window.grow()?;
    if let Some(blank) = window.blank_error() {
        return Err(blank.into());
    }
    // Text that does not begin with a tag is no XML. A crash leaves NULs.
    match window.first_non_space() {
        Some(b'<' | 0) | None => {}
        Some(GZIP) => return Ok(Err(NotADocument::Gzip)),
        Some(_) => return Ok(Err(NotADocument::ForeignRoot)),
    }
    // The first error before the root, which matters only in a capability document.
    let mut refused = None;
    loop {
        let begin = window.taken;
        let (taken, stop) = reader.parse(window.text(), begin);
        let line = |offset: u64| window.line(offset.saturating_sub(begin) as usize);
        reader.handler.window_end(&line);
        window.take(taken);
        match stop {
            ParseStop::Doctype { length } => {
                let line = window.line(0);
                refused.get_or_insert(Malformed::Doctype { line });
                window.take(length);
            }
            ParseStop::Refused {
                length,
                at,
                message,
            } => {
                refused.get_or_insert(window.error_at(at, message));
                window.take(length);
            }
            ParseStop::Other(other) => return Ok(Err(other)),
            ParseStop::Root => {
                if let Some(refused) = refused.or(window.unknown_encoding.take()) {
                    return Err(refused.into());
                }
                refused = None;
                window.budget = usize::MAX;
            }
            ParseStop::Syntax { at, message } => {
                return Err(window.error_at(at, message).into());
            }
            ParseStop::End | ParseStop::Cut if window.grow()? => {}
            ParseStop::End | ParseStop::Cut if !reader.has_root && window.is_at_limit() => {
                return Ok(Err(NotADocument::ForeignRoot));
            }
            ParseStop::End if reader.is_after_root() && window.unreadable.is_none() => {
                return Ok(Ok((reader.handler, window.size)));
            }
            ParseStop::End | ParseStop::Cut => {
                let line = window.line(usize::MAX);
                let unreadable = window.unreadable.take();
                return Err(unreadable.unwrap_or(Malformed::Truncated { line }).into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
