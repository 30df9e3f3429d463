//! The reading of one document: quick-xml's events, the checks of well-formedness that it leaves to its
//! caller, and what is made of the content.
//!
//! quick-xml gets one window of text after the other and begins anew in each, so that its events borrow
//! from the window. Whatever outlives a window (open elements, namespaces, text) is therefore held here.

use quick_xml::errors::{IllFormedError, SyntaxError};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Error, Reader};

use crate::resourcesync::canonical::Canonical;
use crate::resourcesync::document::{Content, Form, Malformed, Other, Parsed};
use crate::resourcesync::namespaces::{Namespace, Namespaces, SITEMAP};
use crate::resourcesync::outline::{Element, Outline};
use crate::resourcesync::tag::{Attribute, Flaw, Tag, push_referenced, split_name, undeclared};

/// Deeper than any document, and shallow enough to keep memory bounded.
const DEEPEST: usize = 1_000;
/// The longest text of one element.
const LONGEST_TEXT: usize = 4 << 20;
/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Why the reading of a text paused, after the last event that was taken.
#[derive(Debug)]
pub(crate) enum Pause {
    /// There is no more text.
    End,
    /// The next markup does not end in this text.
    Cut,
    /// A DOCTYPE went by, which began there.
    Doctype {
        at: usize,
    },
    /// The start tag of a root that may be a capability document's went by.
    Root,
    /// The root is another.
    ForeignRoot,
    Flaw(Flaw),
    Malformed(Malformed),
}

#[derive(Debug)]
pub(crate) struct Reading {
    /// `None` before the root.
    outline: Option<Outline>,
    canonical: Canonical,
    namespaces: Namespaces,
    open: Vec<Open>,
    /// The names of the open elements, one after the other.
    names: String,
    /// The text since the last tag, without white space at its start: comments, references and CDATA
    /// split it.
    text: String,
    attributes: Vec<Attribute>,
    has_begun: bool,
}

#[derive(Debug)]
struct Open {
    name_start: usize,
    /// The declarations in force around the element.
    namespaces: usize,
    element: Element,
}

impl Reading {
    pub(crate) fn new() -> Reading {
        Reading {
            outline: None,
            canonical: Canonical::new(),
            namespaces: Namespaces::new(),
            open: Vec::new(),
            names: String::new(),
            text: String::new(),
            attributes: Vec::new(),
            has_begun: false,
        }
    }

    /// Whether the root's start tag is still to come.
    pub(crate) fn is_before_root(&self) -> bool {
        self.outline.is_none()
    }

    /// Whether the root has ended.
    pub(crate) fn is_after_root(&self) -> bool {
        self.outline.is_some() && self.open.is_empty()
    }

    /// Takes events from the text. How much of it they were, and why there are no more.
    pub(crate) fn take(&mut self, text: &[u8]) -> (usize, Pause) {
        let mut base = 0;
        // quick-xml drops a byte order mark where it begins; inside a document it is a character.
        while text[base..].starts_with(BYTE_ORDER_MARK) {
            if let Err(flaw) = self.characters("\u{feff}") {
                return (base, Pause::Flaw(flaw));
            }
            base += BYTE_ORDER_MARK.len();
        }
        let mut reader = Reader::from_reader(&text[base..]);
        let config = reader.config_mut();
        config.check_comments = true;
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        let mut taken = base;
        loop {
            let event = reader.read_event();
            let end = base + reader.buffer_position() as usize;
            let pause = match event {
                Ok(Event::Eof) => return (text.len(), Pause::End),
                Ok(Event::DocType(_)) if self.is_before_root() => {
                    self.has_begun = true;
                    return (end, Pause::Doctype { at: taken });
                }
                Ok(event) => self.event(event),
                Err(error) => return (taken, pause(&error, &text[taken..])),
            };
            self.has_begun = true;
            match pause {
                Ok(None) => taken = end,
                Ok(Some(pause)) => return (end, pause),
                Err(flaw) => return (taken, Pause::Flaw(flaw)),
            }
        }
    }

    /// What a document is whose root has ended.
    pub(crate) fn conclude(self) -> Content {
        match self.outline.map(Outline::conclude) {
            None => Content::Other(Other::ForeignRoot),
            Some(Err(other)) => Content::Other(other),
            Some(Ok(document)) => Content::Document(Box::new(Parsed {
                document,
                fingerprint: self.canonical.fingerprint(),
            })),
        }
    }

    fn event(&mut self, event: Event<'_>) -> Result<Option<Pause>, Flaw> {
        match event {
            Event::Start(tag) => self.start(&tag),
            Event::Empty(tag) => {
                let pause = self.start(&tag)?;
                Ok(self.end().or(pause))
            }
            Event::End(tag) => {
                let name = tag.name().into_inner();
                let expected = match self.open.last() {
                    Some(open) => &self.names[open.name_start..],
                    None => return Err(Flaw::new(0, format!("</{name}> ends no element"))),
                };
                if name != expected {
                    let message = format!("</{name}> where </{expected}> is expected");
                    return Err(Flaw::new(0, message));
                }
                Ok(self.end())
            }
            Event::Text(text) => {
                let text = text.into_inner();
                if text.as_bytes().contains(&b'>') && text.contains("]]>") {
                    return Err(Flaw::new(0, "]]> stands in the text"));
                }
                self.characters(&text)?;
                Ok(None)
            }
            Event::CData(text) => {
                self.inside_root("a CDATA section")?;
                self.characters(&text.into_inner())?;
                Ok(None)
            }
            Event::GeneralRef(name) => {
                self.inside_root("a reference")?;
                push_referenced(&name.into_inner(), &mut self.text)
                    .map_err(|message| Flaw::new(0, message))?;
                self.bound_text()?;
                Ok(None)
            }
            Event::Decl(_) if self.has_begun => {
                Err(Flaw::new(0, "the XML declaration is not at the start"))
            }
            Event::DocType(_) => Err(Flaw::new(0, "a DOCTYPE stands after the root's start tag")),
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::Eof => Ok(None),
        }
    }

    fn start(&mut self, start: &BytesStart<'_>) -> Result<Option<Pause>, Flaw> {
        if self.is_after_root() {
            return Err(Flaw::new(0, "a second root element begins"));
        }
        if self.open.len() >= DEEPEST {
            return Err(Flaw::new(0, format!("elements are nested {DEEPEST} deep")));
        }
        self.flush_text();
        let name = start.name().into_inner();
        let (prefix, local) =
            split_name(name).ok_or_else(|| Flaw::new(0, "a tag has no proper name"))?;
        let is_root = self.is_before_root();
        let namespaces = self.namespaces.depth();
        let raw = start.attributes_raw();
        let tag = match Tag::read(raw, &mut self.attributes, &mut self.namespaces) {
            Ok(tag) => tag,
            // R2: what is wrong with a document that is none of ours does not matter.
            Err(_) if is_root && !raw.contains(SITEMAP) => return Ok(Some(Pause::ForeignRoot)),
            Err(flaw) => return Err(Flaw::new(1 + name.len() + flaw.at, flaw.message)),
        };
        let Some(namespace) = self.namespaces.resolve(prefix) else {
            return match is_root {
                true => Ok(Some(Pause::ForeignRoot)),
                false => Err(Flaw::new(1, undeclared(prefix))),
            };
        };
        let element = element(namespace, local);
        match (&mut self.outline, self.open.len()) {
            (None, _) => {
                let form = match (namespace, local) {
                    (Namespace::Sitemap, "urlset") => Form::List,
                    (Namespace::Sitemap, "sitemapindex") => Form::Index,
                    _ => return Ok(Some(Pause::ForeignRoot)),
                };
                self.outline = Some(Outline::new(form));
            }
            (Some(outline), 1) => outline.root_child(element, tag),
            (Some(outline), 2) => outline.entry_child(element, tag),
            _ => {}
        }

        self.canonical.start(&self.namespaces, namespace, local);
        for attribute in tag.attributes() {
            let (namespace, local, value) =
                attribute.map_err(|flaw| Flaw::new(1 + name.len() + flaw.at, flaw.message))?;
            self.canonical
                .attribute(&self.namespaces, namespace, local, &value);
        }
        self.open.push(Open {
            name_start: self.names.len(),
            namespaces,
            element,
        });
        self.names.push_str(name);
        Ok(is_root.then_some(Pause::Root))
    }

    /// Ends the innermost element.
    fn end(&mut self) -> Option<Pause> {
        self.flush_text();
        self.canonical.end();
        let open = self.open.pop()?;
        self.names.truncate(open.name_start);
        self.namespaces.back_to(open.namespaces);
        if self.open.len() != 1 {
            return None;
        }
        self.outline
            .as_mut()?
            .end_entry()
            .err()
            .map(Pause::Malformed)
    }

    fn characters(&mut self, text: &str) -> Result<(), Flaw> {
        let text = match self.text.is_empty() {
            true => text.trim_ascii_start(),
            false => text,
        };
        if text.is_empty() {
            return Ok(());
        }
        self.inside_root("text")?;
        self.text.push_str(text);
        self.bound_text()
    }

    fn inside_root(&self, what: &str) -> Result<(), Flaw> {
        match self.open.is_empty() {
            true => Err(Flaw::new(
                0,
                format!("{what} stands outside the root element"),
            )),
            false => Ok(()),
        }
    }

    fn bound_text(&self) -> Result<(), Flaw> {
        match self.text.len() > LONGEST_TEXT {
            true => Err(Flaw::new(
                0,
                format!("a text is longer than {LONGEST_TEXT} bytes"),
            )),
            false => Ok(()),
        }
    }

    /// Takes account of the text since the last tag.
    fn flush_text(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = self.text.trim_ascii();
        if !text.is_empty() {
            self.canonical.text(text);
            if let ([_, _, innermost], Some(outline)) = (&self.open[..], &mut self.outline)
                && innermost.element == Element::Loc
            {
                outline.loc(text);
            }
        }
        self.text.clear();
    }
}

fn element(namespace: Namespace, local: &str) -> Element {
    match (namespace, local) {
        (Namespace::Sitemap, "url" | "sitemap") => Element::Entry,
        (Namespace::Sitemap, "loc") => Element::Loc,
        (Namespace::Rs, "md") => Element::Md,
        (Namespace::Rs, "ln") => Element::Ln,
        _ => Element::Other,
    }
}

/// Tells markup that does not end in the text from markup that cannot end well.
fn pause(error: &Error, rest: &[u8]) -> Pause {
    let is_cut = match error {
        Error::Syntax(SyntaxError::InvalidBangMarkup) => rest.len() < 3,
        Error::Syntax(_) => begins_markup(rest),
        Error::IllFormed(IllFormedError::UnclosedReference) => {
            rest.iter().skip(1).all(|byte| !b"<&".contains(byte))
        }
        _ => false,
    };
    match is_cut {
        true => Pause::Cut,
        false => Pause::Flaw(Flaw::new(0, error.to_string())),
    }
}

/// Whether more text can make markup of it: all but an odd character after `<!`.
fn begins_markup(rest: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"<!--", b"<![CDATA[", b"<!DOCTYPE"];
    !rest.starts_with(b"<!")
        || known.iter().any(|known| {
            let common = rest.len().min(known.len());
            rest[..common].eq_ignore_ascii_case(&known[..common])
        })
}
