//! The entries of a Change List: their keys in one pass, and some of them whole in another (core 1.1 section 12.1;
//! C2, C3, C6).
//!
//! Both passes skip the same entries. The second reads no more than the entries that are wanted, if their offsets are
//! known.

use std::borrow::Cow;
use std::io::{self, BufReader, Read, Seek};
use std::ops::Range;
use std::vec::IntoIter;

use crate::capability::Capability;
use crate::change::{Change, ChangeKey, EntryDraft, SkipReason};
use crate::datetime::Datetime;
use crate::document::DeclaredSpan;
use crate::parse::{ReadError, declared_span, read};
use crate::reader::{ElementKind, Handler};
use crate::tag::StartTag;

/// Size of the reads of some spans, which is about that of a page.
const READ_SIZE: usize = 8 << 10;

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
    pub entries: Vec<ListedKey>,
    /// Number of entries that do not count.
    pub skipped: usize,
    /// The first entry that does not count.
    pub first_skipped: Option<SkippedEntry>,
    /// Number of entries with a `datetime` that is none.
    pub invalid: usize,
    /// The interval of the list as its `rs:md` declares it.
    pub declared: DeclaredSpan,
    /// Offset of the end of the last entry that counts, as far as [`EntryPlace::offset`] is one.
    pub end: u64,
}

/// The key of an entry of a Change List that counts (C2), and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedKey {
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
    pub fn byte_span(&self) -> Range<u64> {
        let first = self.entries.first();
        first.map_or(0, |entry| u64::from(entry.place.offset))..self.end
    }
}

/// An entry that does not count (C2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Line of its start tag, from 1.
    pub line: u64,
    /// Why it does not count.
    pub reason: SkipReason,
}

/// Reads the keys of a Change List in one pass (C3, C6).
///
/// # Errors
///
/// If it cannot be read, is malformed, or is no Change List.
pub fn read_keys(source: impl Read) -> Result<ListedChanges, ChangeListError> {
    match read(source, KeysReader::default())? {
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
    read_keyed_changes(source, Some(positions))
}

/// Reads the entries of a Change List at these places, which ascend, from the parts of the file that have them. `span` is
/// that of all its entries. Returns `None` if other entries stand there: the file is in another encoding, or another
/// version.
pub fn read_changes_at(
    mut file: impl Read + Seek,
    span: &Range<u64>,
    places: &[EntryPlace],
) -> Option<Vec<Change>> {
    file.rewind().ok()?;
    let spans = ByteSpanReader {
        file: BufReader::with_capacity(READ_SIZE, file),
        current: 0..0,
        following: byte_spans(span, places)?.into_iter(),
    };
    changes_at_places(read_keyed_changes(spans, None).ok()?, places)
}

fn read_keyed_changes(
    source: impl Read,
    wanted: Option<&[u32]>,
) -> Result<Vec<(ChangeKey, Change)>, ChangeListError> {
    let (mut changes, mut room) = (Vec::new(), Vec::new());
    let entries = EntriesReader::with_all_fields(Capability::ChangeList.as_str(), wanted);
    read_entries(source, entries, |entries, _| {
        let draft = &mut entries.draft;
        let key = draft.key(Datetime::parse(&draft.datetime), &mut room);
        changes.extend(key.ok().zip(draft.finish()));
    })?;
    Ok(changes)
}

/// Returns the changes that were read for some places, unless other entries stand there.
pub fn changes_at_places(
    read: Vec<(ChangeKey, Change)>,
    places: &[EntryPlace],
) -> Option<Vec<Change>> {
    let (keys, changes): (Vec<ChangeKey>, Vec<Change>) = read.into_iter().unzip();
    let wanted = places.iter().map(|place| place.key);
    keys.into_iter().eq(wanted).then_some(changes)
}

/// Returns the parts of a file that make a document with only these entries: the beginning up to the first entry, each of
/// them, and what comes after the last.
fn byte_spans(all: &Range<u64>, places: &[EntryPlace]) -> Option<Vec<Range<u64>>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
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
    let entries = EntriesReader::with_all_fields(capability.as_str(), None);
    let read = read_entries(source, entries, |entries, position| {
        // The root describes the list before its entries.
        if entries.has_wanted_capability()
            && let Some(change) = entries.draft.finish()
        {
            take(position, change);
        }
    })?;
    Ok(read.span)
}

/// Reads a document to its end, and hands over its wanted entries as they end, with their positions. Returns the
/// reader with its root.
///
/// # Errors
///
/// If it cannot be read, is malformed, or has another capability.
pub(crate) fn read_entries<'a>(
    source: impl Read,
    entries: EntriesReader<'a>,
    take: impl FnMut(&mut EntriesReader<'a>, u32),
) -> Result<EntriesReader<'a>, ChangeListError> {
    match read(source, EntriesHandler { entries, take })? {
        Ok((handler, _)) if handler.entries.has_wanted_capability() => Ok(handler.entries),
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

    fn text(&mut self, depth: usize, element: ElementKind, text: &str) {
        self.entries.text(depth, element, text);
    }

    fn end(&mut self, depth: usize, _: u64) {
        if let Some(position) = self.entries.end(depth) {
            (self.take)(&mut self.entries, position);
        }
    }
}

/// The root and the entries, one after the other, of a document with changes or resources.
#[derive(Debug, Default)]
pub(crate) struct EntriesReader<'a> {
    /// Capability of the document that is wanted.
    wanted_capability: &'a str,
    is_urlset: bool,
    capability: Option<String>,
    /// The first `rs:ln rel="up"` with an address.
    pub(crate) up: Option<String>,
    pub(crate) span: DeclaredSpan,
    /// Positions of the entries that are wanted, which ascend; `None` if all are.
    wanted: Option<&'a [u32]>,
    /// Number of entries that have begun.
    begun: u32,
    pub(crate) draft: EntryDraft,
    /// True within an entry that is wanted.
    is_open: bool,
}

impl<'a> EntriesReader<'a> {
    /// Reads of each entry of a document with this capability what identifies it.
    pub(crate) fn new(capability: &'a str) -> EntriesReader<'a> {
        let mut entries = EntriesReader {
            wanted_capability: capability,
            ..EntriesReader::default()
        };
        entries.draft.is_of_resources = capability == Capability::ResourceList.as_str();
        entries
    }

    /// Reads entries of a document with this capability whole: all, or those at some positions, which ascend.
    pub(crate) fn with_all_fields(
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
        self.is_urlset && self.capability.as_deref() == Some(self.wanted_capability)
    }

    fn start(&mut self, start: &StartTag<'_>) {
        match (start.depth, start.element) {
            (0, _) => self.is_urlset = start.local == "urlset",
            (1, ElementKind::Entry) => {
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
            (1, ElementKind::Md) if self.capability.is_none() => {
                self.capability = start.filled("capability");
                self.span = declared_span(start);
            }
            (1, ElementKind::Ln) if self.up.is_none() && start.has_relation("up") => {
                self.up = start.value("href").map(Cow::into_owned);
            }
            (2, ElementKind::Md) if self.is_open => self.draft.take_md(start),
            (2, ElementKind::Ln) if self.is_open => self.draft.add_link(start),
            _ => {}
        }
    }

    fn text(&mut self, depth: usize, element: ElementKind, text: &str) {
        if depth == 2 && self.is_open {
            self.draft.take_text(element, text);
        }
    }

    /// Returns the position of the entry that ends here, if it is wanted.
    fn end(&mut self, depth: usize) -> Option<u32> {
        let is_entry = depth == 1 && std::mem::take(&mut self.is_open);
        is_entry.then(|| self.begun - 1)
    }
}

/// A handler that reads the keys of a Change List (C3).
#[derive(Debug)]
pub(crate) struct KeysReader {
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

impl Default for KeysReader {
    fn default() -> KeysReader {
        KeysReader {
            entries: EntriesReader::new(Capability::ChangeList.as_str()),
            start: None,
            listed: ListedChanges::default(),
            first_skipped: None,
            room: Vec::new(),
        }
    }
}

impl KeysReader {
    pub(crate) fn conclude(self) -> ListedChanges {
        let first_skipped = self.first_skipped.map(|((_, line), reason)| SkippedEntry {
            line: line.unwrap_or_default(),
            reason,
        });
        ListedChanges {
            first_skipped,
            declared: self.entries.span,
            ..self.listed
        }
    }
}

impl Handler for KeysReader {
    fn start(&mut self, start: &StartTag<'_>) {
        if (start.depth, start.element) == (1, ElementKind::Entry) {
            self.start = Some((start.offset, None));
        }
        self.entries.start(start);
    }

    fn text(&mut self, depth: usize, element: ElementKind, text: &str) {
        self.entries.text(depth, element, text);
    }

    fn end(&mut self, depth: usize, end: u64) {
        let position = self.entries.end(depth);
        let ended = position.and_then(|position| Some((position, self.start.take()?)));
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
        self.listed.entries.push(ListedKey { place, datetime });
    }

    fn window_end(&mut self, line: &dyn Fn(u64) -> u64) {
        let skipped = self.first_skipped.as_mut().map(|(start, _)| start);
        if let Some((offset, known)) = skipped.or(self.start.as_mut()) {
            known.get_or_insert_with(|| line(*offset));
        }
    }
}

/// The bytes of some spans, which ascend.
#[derive(Debug)]
struct ByteSpanReader<F: Read + Seek> {
    file: BufReader<F>,
    /// The rest of the span that is being read.
    current: Range<u64>,
    following: IntoIter<Range<u64>>,
}

impl<F: Read + Seek> Read for ByteSpanReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            let Some(next) = self.following.next() else {
                return Ok(0);
            };
            let distance = next.start.wrapping_sub(self.current.end).cast_signed();
            self.file.seek_relative(distance)?;
            self.current = next;
        }
        let left = self.current.end - self.current.start;
        let max = left.min(buffer.len() as u64) as usize;
        let read = self.file.read(&mut buffer[..max])?;
        self.current.start += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
