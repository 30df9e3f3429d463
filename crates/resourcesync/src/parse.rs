//! Reading of a document and its fingerprint in one pass over its bytes, with bounded memory.

use std::io::Read;

use crate::change_list::{KeysHandler, ListedChanges};
use crate::document::{CandidateContent, Form, Malformed, NotADocument, ParsedDocument};
use crate::fingerprint::CanonicalHasher;
use crate::outline::OutlineBuilder;
use crate::reader::{Element, Handler, StartTag, StopReason, XmlReader};
use crate::window::TextWindow;

/// The first byte of gzip's magic number, and of no text.
const GZIP: u8 = 0x1f;

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
/// it.
///
/// # Errors
///
/// If it cannot be read, or is a capability document that is not complete, well-formed XML.
pub fn parse(source: impl Read) -> Result<CandidateContent, ReadError> {
    Ok(parse_document(source, None)?.0)
}

/// Entries of the longest list whose keys are kept in memory; the protocol permits 50,000.
const MAX_KEYS: usize = 1 << 16;

/// Reads a file as [`parse`] does, and returns the keys of its entries too, as [`read_keys`](crate::change_list::read_keys)
/// does, if it is a Change List that says so before its first entry and has 65,536 at most (C6).
///
/// # Errors
///
/// As [`parse`].
pub fn parse_with_keys(
    source: impl Read,
) -> Result<(CandidateContent, Option<ListedChanges>), ReadError> {
    parse_document(source, Some(KeysHandler::default()))
}

fn parse_document(
    source: impl Read,
    keys: Option<KeysHandler>,
) -> Result<(CandidateContent, Option<ListedChanges>), ReadError> {
    let handler = DocumentHandler {
        outline: None,
        canonical: CanonicalHasher::new(),
        keys,
    };
    Ok(match read(source, handler)? {
        Ok((mut handler, size)) => {
            let keys = handler
                .keys
                .take()
                .filter(|keys| keys.entries.has_wanted_capability());
            (handler.conclude(size), keys.map(KeysHandler::conclude))
        }
        Err(other) => (CandidateContent::Other(other), None),
    })
}

/// The document that is being read, and its fingerprint.
#[derive(Debug)]
struct DocumentHandler {
    /// `None` before the root.
    outline: Option<OutlineBuilder>,
    canonical: CanonicalHasher,
    /// `None` unless they are wanted.
    keys: Option<KeysHandler>,
}

impl DocumentHandler {
    /// Returns the document of `size` bytes whose root has ended.
    fn conclude(self, size: u64) -> CandidateContent {
        match self.outline.map(|outline| outline.conclude(size)) {
            None => CandidateContent::Other(NotADocument::ForeignRoot),
            Some(Err(other)) => CandidateContent::Other(other),
            Some(Ok(document)) => CandidateContent::Document(Box::new(ParsedDocument {
                document,
                fingerprint: self.canonical.fingerprint(),
            })),
        }
    }
}

impl Handler for DocumentHandler {
    fn start(&mut self, start: &StartTag<'_>) {
        match (&mut self.outline, start.depth) {
            (None, _) => self.outline = Form::of_root(start.local).map(OutlineBuilder::new),
            (Some(outline), 1) if start.element == Element::Other && start.local == "md" => {
                outline.foreign_md(start.namespaces.uri(start.namespace), start.tag);
            }
            (Some(outline), 1) => outline.root_child(start.element, start.tag),
            (Some(outline), 2) => outline.entry_child(start.element, start.tag),
            _ => {}
        }
        self.canonical.start(start);
        let is_entry = (start.depth, start.element) == (1, Element::Entry);
        self.keys.take_if(|keys| {
            is_entry
                && !(keys.entries.has_wanted_capability() && keys.listed.entries.len() < MAX_KEYS)
        });
        if let Some(keys) = &mut self.keys {
            keys.start(start);
        }
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        self.canonical.text(text);
        if let (2, Element::Loc, Some(outline)) = (depth, element, &mut self.outline) {
            outline.loc(text);
        }
        if let Some(keys) = &mut self.keys {
            keys.text(depth, element, text);
        }
    }

    fn end(&mut self, depth: usize, offset: u64) {
        self.canonical.end();
        if let (1, Some(outline)) = (depth, &mut self.outline) {
            outline.end_entry();
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

/// Reads XML to its end. Returns the handler with the number of bytes read, or the reason why the file was given up as
/// another than a capability document or notification.
pub(crate) fn read<H: Handler>(
    source: impl Read,
    handler: H,
) -> Result<Result<(H, u64), NotADocument>, ReadError> {
    let mut window = TextWindow::new(source);
    let mut reader = XmlReader::new(handler);
    window.grow()?;
    if let Some(blank) = window.blank() {
        return Err(blank.into());
    }
    // Text that does not begin with a tag is no XML. A crash leaves NULs.
    match window.first_byte() {
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
            StopReason::Doctype { length } => {
                let line = window.line(0);
                refused.get_or_insert(Malformed::Doctype { line });
                window.take(length);
            }
            StopReason::Refused {
                length,
                at,
                message,
            } => {
                refused.get_or_insert(window.syntax(at, message));
                window.take(length);
            }
            StopReason::Other(other) => return Ok(Err(other)),
            StopReason::Root => {
                if let Some(refused) = refused.or(window.unknown_encoding.take()) {
                    return Err(refused.into());
                }
                refused = None;
                window.budget = usize::MAX;
            }
            StopReason::Syntax { at, message } => {
                return Err(window.syntax(at, message).into());
            }
            StopReason::End | StopReason::Cut if window.grow()? => {}
            StopReason::End | StopReason::Cut
                if reader.is_before_root() && window.is_at_limit() =>
            {
                return Ok(Err(NotADocument::ForeignRoot));
            }
            StopReason::End if reader.is_after_root() && window.malformed().is_none() => {
                return Ok(Ok((reader.handler, window.size)));
            }
            StopReason::End | StopReason::Cut => {
                let line = window.line(usize::MAX);
                let unreadable = window.malformed();
                return Err(unreadable.unwrap_or(Malformed::Truncated { line }).into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
