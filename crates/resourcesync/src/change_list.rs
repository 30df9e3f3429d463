//! The entries of a Change List: their keys in one pass, and some of them whole in another (core 1.1 section 12.1;
//! C2, C3, C6).
//!
//! Both passes skip the same entries. The second reads no more than the entries that are wanted, if their offsets are
//! known.

use std::borrow::Cow;
use std::io::{Read, Seek};
use std::ops::Range;

use crate::capability::Capability;
use crate::change::{Change, ChangeKey, RelatedLink, coding, fixity, kind, media_type, number};
use crate::change_payload::{entry_len, link_len};
use crate::datetime::{Datetime, is_strict};
use crate::document::{DeclaredSpan, beginning};
use crate::file_spans::{ByteSpan, SpanReader};
use crate::namespaces::Namespace;
use crate::outline::declared_span;
use crate::parse::{ReadError, read};
use crate::payload::ChangeKind;
use crate::reader::{Element, Handler, StartTag};
use crate::tag::TagAttributes;
use crate::uri::normal_resource;
use crate::writer::{write_escaped, written_len};

/// Longest entry that is passed on, as rendered; a longer one goes without its links.
const LONGEST_ENTRY: usize = 64 << 10;
/// Longest `loc` as rendered. The other values are bounded too, to less than what is left of [`LONGEST_ENTRY`], so that
/// an entry without links is never too long.
const LONGEST_LOC: usize = 48 << 10;
/// Longest rendering of one byte: `&quot;`.
const LONGEST_ESCAPE: usize = 6;

/// The reason why a file yields no changes.
#[derive(Debug, thiserror::Error)]
pub enum ChangeListError {
    /// It cannot be read, or is malformed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is another document.
    #[error("it is not a Change List")]
    NotAChangeList,
}

/// The entries of a Change List in short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedChanges {
    /// The entries that count (C2), in order of the list.
    pub entries: Vec<ListedChange>,
    /// Number of entries that do not count.
    pub skipped: usize,
    /// The first entry that does not count.
    pub first_skipped: Option<Skipped>,
    /// Number of entries with a `datetime` that is none.
    pub invalid: usize,
    /// The interval of the list as its `rs:md` declares it.
    pub declared: DeclaredSpan,
    /// Offset of the end of the last entry that counts, as far as [`EntryPlace::offset`] is one.
    pub end: u64,
}

/// An entry of a Change List that counts (C2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedChange {
    /// Its place, and the identity of the change.
    pub place: EntryPlace,
    /// Time of the change, if it has a valid one.
    pub datetime: Option<Datetime>,
}

/// The place of an entry of a Change List, and its key, which tells whether it still stands there.
///
/// Places of one list are in order of their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace {
    /// Number of entries before it in the list, those that are skipped among them.
    pub position: u32,
    /// Identity of the change.
    pub key: ChangeKey,
    /// Offset of its start tag in the text. In a file in UTF-8 without CR that is its offset in the file; of the first
    /// 4 GiB.
    pub offset: u32,
    /// Offset of its end, likewise.
    pub end: u32,
}

impl ListedChanges {
    /// Returns the part of the file from the first entry that counts to the end of the last.
    pub fn span(&self) -> Range<u64> {
        let first = self.entries.first();
        first.map_or(0, |entry| u64::from(entry.place.offset))..self.end
    }
}

/// An entry that does not count (C2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Line of its start tag, from 1.
    pub line: u64,
    /// Why it does not count.
    pub reason: SkipReason,
}

/// The reason why an entry does not count (C2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// There is no URI.
    #[error("it has no loc")]
    NoLoc,
    /// The URI is relative; its beginning.
    #[error("its loc \"{0}\" is not an absolute URI")]
    RelativeLoc(String),
    /// There is no `change`.
    #[error("it has no rs:md with a change")]
    NoChange,
    /// There is another value of `change`; its beginning.
    #[error("its change \"{0}\" is none of created, updated and deleted")]
    UnknownChange(String),
    /// The URI is too long to be passed on.
    #[error("its loc is too long")]
    TooLong,
}

/// Reads the keys of a Change List in one pass (C3, C6).
///
/// # Errors
///
/// If it cannot be read, is malformed, or is no Change List.
pub fn read_keys(source: impl Read) -> Result<ListedChanges, ChangeListError> {
    match read(source, KeysHandler::default())? {
        Ok((handler, _)) if handler.entries.has_wanted_capability() => Ok(handler.conclude()),
        _ => Err(ChangeListError::NotAChangeList),
    }
}

/// Reads the entries of a Change List at these positions, which ascend, with their keys (C8). Returns fewer if some of
/// these entries do not count, or if the list is shorter: then it is not the version whose keys were read.
///
/// # Errors
///
/// If it cannot be read, is malformed, or is no Change List.
pub fn read_changes(
    source: impl Read,
    positions: &[u32],
) -> Result<Vec<(ChangeKey, Change)>, ChangeListError> {
    read_keyed(source, Some(positions))
}

/// Reads the entries of a Change List at these places, which ascend, from the parts of the file that have them. `span` is
/// that of all its entries. Returns `None` if other entries stand there: the file is in another encoding, or another
/// version.
pub fn read_changes_at(
    file: impl Read + Seek,
    span: &Range<u64>,
    places: &[EntryPlace],
) -> Option<Vec<Change>> {
    let spans = spans(span, places)?;
    let spans = SpanReader::new(file, spans).ok()?;
    at_places(read_keyed(spans, None).ok()?, places)
}

fn read_keyed(
    source: impl Read,
    wanted: Option<&[u32]>,
) -> Result<Vec<(ChangeKey, Change)>, ChangeListError> {
    let (mut changes, mut room) = (Vec::new(), Vec::new());
    let entries = EntriesReader::of_whole_entries(Capability::ChangeList.as_str(), wanted);
    read_entries(source, entries, |entries, _| {
        let draft = &mut entries.draft;
        let key = draft.key(Datetime::parse(&draft.datetime), &mut room);
        changes.extend(key.ok().zip(draft.change()));
    })?;
    Ok(changes)
}

/// Returns the changes that were read for some places, unless other entries stand there.
pub fn at_places(read: Vec<(ChangeKey, Change)>, places: &[EntryPlace]) -> Option<Vec<Change>> {
    let (keys, changes): (Vec<ChangeKey>, Vec<Change>) = read.into_iter().unzip();
    let wanted = places.iter().map(|place| place.key);
    keys.into_iter().eq(wanted).then_some(changes)
}

/// Returns the parts of a file that make a document with only these entries: the beginning up to the first entry, each of
/// them, and what comes after the last.
fn spans(all: &Range<u64>, places: &[EntryPlace]) -> Option<Vec<ByteSpan>> {
    let mut spans: Vec<ByteSpan> = Vec::new();
    spans.push(0..all.start);
    let mut before: Option<u32> = None;
    for place in places {
        if place.end == u32::MAX {
            return None;
        }
        let is_next = before.is_some_and(|before| before.checked_add(1) == Some(place.position));
        before = Some(place.position);
        let (start, end) = (u64::from(place.offset), u64::from(place.end));
        match spans.last_mut() {
            Some(last) if is_next => last.end = end,
            _ => spans.push(start..end),
        }
    }
    spans.push(all.end..u64::MAX);
    Some(spans)
}

/// Returns digests as they are compared, in order: names of algorithms and hexadecimal digits in lower case.
pub(crate) fn normalized_digests(hash: &str) -> Vec<String> {
    let mut digests: Vec<String> = hash
        .split_ascii_whitespace()
        .map(str::to_ascii_lowercase)
        .collect();
    digests.sort_unstable();
    digests.dedup();
    digests
}

/// Returns a `lastmod` as it is compared: an instant, whatever its zone.
pub(crate) fn instant(lastmod: &str) -> Cow<'_, str> {
    match Datetime::parse(lastmod) {
        Some(datetime) => datetime.at().to_string().into(),
        None => lastmod.into(),
    }
}

/// Reads a Change List or a Resource List in one pass, and hands over the entries that count with their positions, one
/// after the other, so that no list needs to fit into memory. Entries of a Resource List are updates without a datetime.
/// Returns the times that the list declares.
///
/// # Errors
///
/// If the document is none of the two, or not whole. Entries before the error have been handed over by then.
pub fn each_entry(
    source: impl Read,
    capability: Capability,
    mut take: impl FnMut(u32, Change),
) -> Result<DeclaredSpan, ChangeListError> {
    let entries = EntriesReader::of_whole_entries(capability.as_str(), None);
    let root = read_entries(source, entries, |entries, position| {
        // The root describes the list before its entries.
        if entries.has_wanted_capability()
            && let Some(change) = entries.draft.change()
        {
            take(position, change);
        }
    })?;
    Ok(root.span)
}

/// Reads a document to its end, and hands over its wanted entries as they end, with their positions. Returns its root.
///
/// # Errors
///
/// If it cannot be read, is malformed, or has another capability.
pub(crate) fn read_entries<'a>(
    source: impl Read,
    entries: EntriesReader<'a>,
    take: impl FnMut(&mut EntriesReader<'a>, u32),
) -> Result<RootElement, ChangeListError> {
    match read(source, EntriesHandler { entries, take })? {
        Ok((EntriesHandler { entries, .. }, _)) if entries.has_wanted_capability() => {
            Ok(entries.root)
        }
        _ => Err(ChangeListError::NotAChangeList),
    }
}

/// A handler that hands the entries over as they end.
struct EntriesHandler<'a, F> {
    entries: EntriesReader<'a>,
    take: F,
}

impl<'a, F: FnMut(&mut EntriesReader<'a>, u32)> Handler for EntriesHandler<'a, F> {
    fn start(&mut self, start: &StartTag<'_>) {
        self.entries.start(start);
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        self.entries.text(depth, element, text);
    }

    fn end(&mut self, depth: usize, _: u64) {
        if let Some(position) = self.entries.end(depth) {
            (self.take)(&mut self.entries, position);
        }
    }
}

/// The root and the entries, one after the other, of a document with changes or resources.
#[derive(Debug)]
pub(crate) struct EntriesReader<'a> {
    /// Capability of the document that is wanted.
    capability: &'a str,
    root: RootElement,
    /// Positions of the entries that are wanted, which ascend; `None` if all are.
    wanted: Option<&'a [u32]>,
    /// Number of entries that have begun.
    begun: u32,
    pub(crate) draft: Draft,
    /// True within an entry that is wanted.
    is_open: bool,
}

impl<'a> EntriesReader<'a> {
    /// Reads of each entry of a document with this capability what identifies it.
    pub(crate) fn new(capability: &'a str) -> EntriesReader<'a> {
        EntriesReader {
            capability,
            root: RootElement::default(),
            wanted: None,
            begun: 0,
            draft: Draft {
                is_of_resources: capability == Capability::ResourceList.as_str(),
                ..Draft::default()
            },
            is_open: false,
        }
    }

    /// Reads entries of a document with this capability whole: all, or those at some positions, which ascend.
    pub(crate) fn of_whole_entries(
        capability: &'a str,
        wanted: Option<&'a [u32]>,
    ) -> EntriesReader<'a> {
        let mut entries = EntriesReader::new(capability);
        entries.wanted = wanted;
        entries.draft.is_whole = true;
        entries
    }

    /// Returns true if the document has the capability that is wanted, as far as it was read.
    pub(crate) fn has_wanted_capability(&self) -> bool {
        self.root.is_urlset && self.root.capability.as_deref() == Some(self.capability)
    }

    fn start(&mut self, start: &StartTag<'_>) {
        match (start.depth, start.element) {
            (1, Element::Entry) => {
                self.draft.clear();
                self.is_open = match &mut self.wanted {
                    None => true,
                    Some(positions) => {
                        let next = positions.strip_prefix(&[self.begun]);
                        *positions = next.unwrap_or(positions);
                        next.is_some()
                    }
                };
                self.begun = self.begun.saturating_add(1);
            }
            (0 | 1, _) => self.root.start(start),
            (2, Element::Md) if self.is_open => self.draft.describe(start.tag),
            (2, Element::Ln) if self.is_open => self.draft.link(start.tag),
            _ => {}
        }
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        if depth == 2 && self.is_open {
            self.draft.text(element, text);
        }
    }

    /// Returns the position of the entry that ends here, if it is wanted.
    fn end(&mut self, depth: usize) -> Option<u32> {
        let is_entry = depth == 1 && std::mem::take(&mut self.is_open);
        is_entry.then(|| self.begun - 1)
    }
}

/// Root of a document with changes.
#[derive(Debug, Default)]
pub(crate) struct RootElement {
    is_urlset: bool,
    capability: Option<String>,
    /// The first `rs:ln rel="up"` with an address.
    pub(crate) up: Option<String>,
    pub(crate) span: DeclaredSpan,
}

impl RootElement {
    fn start(&mut self, start: &StartTag<'_>) {
        match (start.depth, start.element) {
            (0, _) => self.is_urlset = start.local == "urlset",
            (1, Element::Md) if self.capability.is_none() => {
                self.capability = start.tag.filled("capability");
                self.span = declared_span(start.tag);
            }
            (1, Element::Ln) if self.up.is_none() && start.tag.has_relation("up") => {
                self.up = start.tag.value("href").map(|href| href.into_owned());
            }
            _ => {}
        }
    }
}

/// One entry. Used for one after the other, so that the parts that decide whether it counts, and its key, need no memory
/// of their own.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    loc: String,
    pub(crate) lastmod: String,
    change: String,
    datetime: String,
    pub(crate) hash: String,
    pub(crate) length: String,
    has_change: bool,
    /// True if the entries are those of a Resource List, which have no `change`.
    is_of_resources: bool,
    /// True if the parts below are read too.
    is_whole: bool,
    mime_type: Option<Box<str>>,
    encoding: Option<Box<str>>,
    links: Vec<RelatedLink>,
    /// Total length of the links as rendered.
    links_len: usize,
}

impl Draft {
    fn clear(&mut self) {
        self.loc.clear();
        self.lastmod.clear();
        self.hash.clear();
        self.length.clear();
        self.has_change = false;
        (self.mime_type, self.encoding) = (None, None);
        self.links.clear();
        self.links_len = 0;
    }

    /// Takes an `rs:md`, if it is the first with a `change`: the others mean nothing (C2).
    fn describe(&mut self, tag: TagAttributes<'_>) {
        let change = tag.value("change").unwrap_or_default();
        let change = change.trim();
        let is_empty = change.is_empty() && !self.is_of_resources;
        if self.has_change || is_empty {
            return;
        }
        self.has_change = true;
        self.change.clear();
        self.change.push_str(change);
        for part in [&mut self.datetime, &mut self.hash, &mut self.length] {
            part.clear();
        }
        for attribute in tag.attributes {
            let part = match (attribute.namespace, tag.local_name(attribute)) {
                (Namespace::None, "datetime") => &mut self.datetime,
                (Namespace::None, "hash") => &mut self.hash,
                (Namespace::None, "length") => &mut self.length,
                _ => continue,
            };
            part.push_str(tag.text(attribute).unwrap_or_default().trim());
        }
        if self.is_whole {
            self.mime_type = tag.value("type").and_then(|value| media_type(&value));
            self.encoding = tag.value("encoding").and_then(|value| coding(&value));
        }
    }

    fn link(&mut self, tag: TagAttributes<'_>) {
        // Beyond the limit no link is passed on, and none needs to be kept.
        if self.is_whole
            && self.links_len <= LONGEST_ENTRY
            && let Some(link) = RelatedLink::read(tag)
        {
            self.links_len += link_len(&link);
            self.links.push(link);
        }
    }

    fn text(&mut self, element: Element, text: &str) {
        let part = match element {
            Element::Loc => &mut self.loc,
            Element::Lastmod => &mut self.lastmod,
            _ => return,
        };
        if part.is_empty() {
            part.push_str(text);
        }
    }

    /// Returns the URI as compared, and the kind; or the reason why the entry does not count.
    pub(crate) fn verdict(&self) -> Result<(Cow<'_, str>, ChangeKind), SkipReason> {
        if self.loc.is_empty() {
            return Err(SkipReason::NoLoc);
        }
        let escaped_len = || written_len(|xml| write_escaped(xml, &self.loc));
        if self.loc.len() > LONGEST_LOC / LONGEST_ESCAPE && escaped_len() > LONGEST_LOC {
            return Err(SkipReason::TooLong);
        }
        let uri = normal_resource(&self.loc).map_err(|error| SkipReason::RelativeLoc(error.0))?;
        if self.is_of_resources {
            // It is not known yet whether it is new.
            return Ok((uri, ChangeKind::Updated));
        }
        if !self.has_change {
            return Err(SkipReason::NoChange);
        }
        let unknown = || SkipReason::UnknownChange(beginning(&self.change));
        let kind = kind(&self.change).ok_or_else(unknown)?;
        Ok((uri, kind))
    }

    /// Takes the change, if the entry counts.
    pub(crate) fn change(&mut self) -> Option<Change> {
        let (_, kind) = self.verdict().ok()?;
        let mut change = Change {
            loc: self.loc.as_str().into(),
            lastmod: is_strict(&self.lastmod).then(|| self.lastmod.as_str().into()),
            kind,
            datetime: Datetime::parse(&self.datetime).filter(|_| !self.is_of_resources),
            hash: fixity(&self.hash),
            length: number(&self.length),
            mime_type: self.mime_type.take(),
            encoding: self.encoding.take(),
            links: std::mem::take(&mut self.links),
        };
        let max = self.links_len + change.loc.len() * LONGEST_ESCAPE;
        if max > LONGEST_LOC && entry_len(&change) > LONGEST_ENTRY {
            change.links = Vec::new();
        }
        Some(change)
    }

    /// Returns the key of a change (C3), or the reason why the entry does not count. `room` is overwritten.
    fn key(&self, datetime: Option<Datetime>, room: &mut Vec<u8>) -> Result<ChangeKey, SkipReason> {
        let (uri, kind) = self.verdict()?;
        let (lastmod, hash) = match datetime {
            Some(_) => Default::default(),
            None => (
                instant(&self.lastmod),
                normalized_digests(&self.hash).join(" "),
            ),
        };
        let undated = [&lastmod, &*hash, &self.length];
        Ok(ChangeKey::of(&uri, kind, datetime, undated, room))
    }
}

/// A handler that reads the keys of a Change List (C3).
#[derive(Debug)]
pub(crate) struct KeysHandler {
    pub(crate) entries: EntriesReader<'static>,
    /// Start of the entry that is being read.
    start: Option<EntryStart>,
    pub(crate) listed: ListedChanges,
    first_skipped: Option<(EntryStart, SkipReason)>,
    /// Room for what is hashed.
    room: Vec<u8>,
}

/// The offset and the line of an entry's start tag. A line is counted only once it is known that it may be needed: one
/// per window at most.
type EntryStart = (u64, Option<u64>);

impl Default for KeysHandler {
    fn default() -> KeysHandler {
        KeysHandler {
            entries: EntriesReader::new(Capability::ChangeList.as_str()),
            start: None,
            listed: ListedChanges::default(),
            first_skipped: None,
            room: Vec::new(),
        }
    }
}

impl KeysHandler {
    pub(crate) fn conclude(self) -> ListedChanges {
        let first_skipped = self.first_skipped.map(|((_, line), reason)| Skipped {
            line: line.unwrap_or_default(),
            reason,
        });
        ListedChanges {
            first_skipped,
            declared: self.entries.root.span,
            ..self.listed
        }
    }
}

impl Handler for KeysHandler {
    fn start(&mut self, start: &StartTag<'_>) {
        if (start.depth, start.element) == (1, Element::Entry) {
            self.start = Some((start.offset, None));
        }
        self.entries.start(start);
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        self.entries.text(depth, element, text);
    }

    fn end(&mut self, depth: usize, end: u64) {
        let ended = self.entries.end(depth);
        let ended = ended.and_then(|position| Some((position, self.start.take()?)));
        let Some((position, start)) = ended else {
            return;
        };
        let draft = &self.entries.draft;
        let datetime = Datetime::parse(&draft.datetime);
        let key = match draft.key(datetime, &mut self.room) {
            Ok(key) => key,
            Err(reason) => {
                self.listed.skipped += 1;
                self.first_skipped.get_or_insert((start, reason));
                return;
            }
        };
        self.listed.invalid += usize::from(datetime.is_none() && !draft.datetime.is_empty());
        let short = |offset: u64| offset.try_into().unwrap_or(u32::MAX);
        self.listed.end = end;
        let place = EntryPlace {
            position,
            key,
            offset: short(start.0),
            end: short(end),
        };
        self.listed.entries.push(ListedChange { place, datetime });
    }

    fn window_end(&mut self, line: &dyn Fn(u64) -> u64) {
        let skipped = self.first_skipped.as_mut().map(|(start, _)| start);
        if let Some((offset, known)) = skipped.or(self.start.as_mut()) {
            known.get_or_insert_with(|| line(*offset));
        }
    }
}

#[cfg(test)]
mod tests;
