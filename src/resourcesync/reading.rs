//! The reading of one document: its markup, the checks that make it well-formed, and what is made of it.
//!
//! Tags, texts and references are read here, in one pass and where they lie in the window; quick-xml reads
//! the rest (comments, CDATA, declarations). What outlives a window is held here: open elements,
//! namespaces, text.

use quick_xml::Reader;
use quick_xml::errors::{Error, SyntaxError};
use quick_xml::events::Event;

use crate::resourcesync::canonical::Canonical;
use crate::resourcesync::document::{Content, Form, Malformed, Other, Parsed};
use crate::resourcesync::namespaces::{Namespace, Namespaces, SITEMAP};
use crate::resourcesync::outline::{Element, Outline};
use crate::resourcesync::tag::{Attribute, RawTag, find, push_referenced, skip_space, undeclared};

/// Deeper than any document, and shallow enough to keep memory bounded.
const DEEPEST: usize = 1_000;
/// The longest text of one element.
const LONGEST_TEXT: usize = 4 << 20;

/// Why the reading of a text paused. What is not said to have been read is still to be taken.
#[derive(Debug)]
pub(crate) enum Pause {
    /// There is no more text.
    End,
    /// The next markup does not end in this text.
    Cut,
    /// The next markup is a DOCTYPE of this length.
    Doctype { length: usize },
    /// The start tag of a root that may be a capability document's was read.
    Root,
    /// The root is another.
    ForeignRoot,
    /// The next markup, or what lies so far after its start, is wrong.
    Flaw { at: usize, message: String },
    /// The document cannot be accepted for another reason.
    Malformed(Malformed),
}

impl Pause {
    #[cold]
    pub(crate) fn flaw(at: usize, message: impl Into<String>) -> Pause {
        let message = message.into();
        Pause::Flaw { at, message }
    }
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

    /// Reads a text. How much of it was read, and why no more.
    pub(crate) fn take(&mut self, text: &str) -> (usize, Pause) {
        let mut taken = 0;
        loop {
            let rest = &text[taken..];
            let is_before_root = self.is_before_root();
            let read = match rest.as_bytes() {
                [] => Err(Pause::End),
                [b'<'] => Err(Pause::Cut),
                [b'<', b'/', ..] => self.end_tag(rest),
                [b'<', b'!' | b'?', ..] => self.other_markup(rest),
                [b'<', ..] => self.start_tag(rest),
                [b'&', ..] => self.reference(rest),
                _ => self.characters(rest),
            };
            match read {
                Ok(length) => taken += length,
                Err(pause) => return (taken, pause),
            }
            self.has_begun = true;
            if is_before_root && !self.is_before_root() {
                return (taken, Pause::Root);
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

    fn start_tag(&mut self, rest: &str) -> Result<usize, Pause> {
        if self.is_after_root() {
            return Err(Pause::flaw(0, "a second root element begins"));
        }
        if self.open.len() >= DEEPEST {
            return Err(Pause::flaw(
                0,
                format!("elements are nested {DEEPEST} deep"),
            ));
        }
        let raw = RawTag::read(rest, &mut self.attributes)?;
        self.flush_text();
        let is_root = self.is_before_root();
        let namespaces = self.namespaces.depth();
        let tag = match raw.resolve(&mut self.attributes, &mut self.namespaces) {
            Ok(tag) => tag,
            // R2: what is wrong with a document that is none of ours does not matter.
            Err(_) if is_root && !raw.text.contains(SITEMAP) => return Err(Pause::ForeignRoot),
            Err(pause) => return Err(pause),
        };
        let namespace = match self.namespaces.resolve(raw.prefix) {
            Some(namespace) => namespace,
            None if is_root => return Err(Pause::ForeignRoot),
            None => return Err(Pause::flaw(1, undeclared(raw.prefix))),
        };
        let element = element(namespace, raw.local);
        match (&mut self.outline, self.open.len()) {
            (None, _) => {
                let form = match (namespace, raw.local) {
                    (Namespace::Sitemap, "urlset") => Form::List,
                    (Namespace::Sitemap, "sitemapindex") => Form::Index,
                    _ => return Err(Pause::ForeignRoot),
                };
                self.outline = Some(Outline::new(form));
            }
            (Some(outline), 1) => outline.root_child(element, tag),
            (Some(outline), 2) => outline.entry_child(element, tag),
            _ => {}
        }

        self.canonical.start(&self.namespaces, namespace, raw.local);
        for attribute in tag.attributes {
            let value = tag.text(attribute)?;
            let (namespace, local) = (attribute.namespace, tag.local_name(attribute));
            self.canonical
                .attribute(&self.namespaces, namespace, local, &value);
        }
        self.open.push(Open {
            name_start: self.names.len(),
            namespaces,
            element,
        });
        self.names.push_str(raw.name);
        if raw.is_empty_element {
            self.end()?;
        }
        Ok(raw.text.len())
    }

    fn end_tag(&mut self, rest: &str) -> Result<usize, Pause> {
        let Some(open) = self.open.last() else {
            return Err(Pause::flaw(0, "an end tag ends no element"));
        };
        let expected = &self.names[open.name_start..];
        let name_end = 2 + expected.len();
        let end = skip_space(rest.as_bytes(), name_end);
        let is_it = rest.as_bytes().get(2..name_end) == Some(expected.as_bytes());
        match rest.as_bytes().get(end) {
            Some(b'>') if is_it => {
                self.end()?;
                Ok(end + 1)
            }
            _ if !rest.contains('>') => Err(Pause::Cut),
            _ => Err(Pause::flaw(0, format!("</{expected}> is expected"))),
        }
    }

    fn reference(&mut self, rest: &str) -> Result<usize, Pause> {
        self.inside_root(0, "a reference")?;
        let end = find(&rest.as_bytes()[1..], |byte| {
            (byte == b';') | (byte == b'&') | (byte == b'<')
        });
        let end = 1 + end.ok_or(Pause::Cut)?;
        let name = rest[1..end].to_owned();
        if !rest[end..].starts_with(';') {
            return Err(Pause::flaw(
                0,
                format!("the reference &{name} does not end"),
            ));
        }
        push_referenced(&name, &mut self.text).map_err(|message| Pause::flaw(0, message))?;
        self.bound_text()?;
        Ok(end + 1)
    }

    fn characters(&mut self, rest: &str) -> Result<usize, Pause> {
        let bytes = rest.as_bytes();
        let start = match self.text.is_empty() {
            // Most texts are the indentation between two tags.
            true => skip_space(bytes, 0),
            false => 0,
        };
        let length = find(&bytes[start..], |byte| (byte == b'<') | (byte == b'&'));
        let end = length.map_or(bytes.len(), |length| start + length);
        let text = &rest[start..end];
        if text.is_empty() {
            return Ok(end);
        }
        self.inside_root(start, "text")?;
        if find(text.as_bytes(), |byte| byte == b']').is_some() && text.contains("]]>") {
            return Err(Pause::flaw(0, "]]> stands in the text"));
        }
        self.text.push_str(text);
        self.bound_text()?;
        Ok(end)
    }

    /// Comments, processing instructions, CDATA sections, the declaration and the DOCTYPE.
    fn other_markup(&mut self, rest: &str) -> Result<usize, Pause> {
        let mut reader = Reader::from_reader(rest.as_bytes());
        reader.config_mut().check_comments = true;
        let event = match reader.read_event() {
            Ok(event) => event,
            Err(error) if is_cut(&error, rest) => return Err(Pause::Cut),
            Err(Error::Syntax(error)) => return Err(Pause::flaw(0, error.to_string())),
            Err(Error::IllFormed(error)) => return Err(Pause::flaw(0, error.to_string())),
            Err(error) => return Err(Pause::flaw(0, error.to_string())),
        };
        let length = rest.len() - reader.get_ref().len();
        match event {
            Event::CData(text) => {
                self.inside_root(0, "a CDATA section")?;
                self.text.push_str(&text.into_inner());
                self.bound_text()?;
            }
            Event::Decl(_) if self.has_begun => {
                return Err(Pause::flaw(0, "the XML declaration is not at the start"));
            }
            Event::DocType(_) if self.is_before_root() => return Err(Pause::Doctype { length }),
            Event::DocType(_) => return Err(Pause::flaw(0, "a DOCTYPE stands inside the root")),
            _ => {}
        }
        Ok(length)
    }

    /// Ends the innermost element.
    fn end(&mut self) -> Result<(), Pause> {
        self.flush_text();
        self.canonical.end();
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        self.names.truncate(open.name_start);
        self.namespaces.back_to(open.namespaces);
        match &mut self.outline {
            Some(outline) if self.open.len() == 1 => outline.end_entry().map_err(Pause::Malformed),
            _ => Ok(()),
        }
    }

    fn inside_root(&self, at: usize, what: &str) -> Result<(), Pause> {
        match self.open.is_empty() {
            true => Err(Pause::flaw(
                at,
                format!("{what} stands outside the root element"),
            )),
            false => Ok(()),
        }
    }

    fn bound_text(&self) -> Result<(), Pause> {
        match self.text.len() > LONGEST_TEXT {
            true => Err(Pause::flaw(
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

/// Whether more text can make markup of what quick-xml cannot read: not after an odd character.
fn is_cut(error: &Error, rest: &str) -> bool {
    let can_begin = |markup: &str| {
        let common = rest.len().min(markup.len());
        rest.as_bytes()[..common].eq_ignore_ascii_case(&markup.as_bytes()[..common])
    };
    match error {
        Error::Syntax(SyntaxError::InvalidBangMarkup) => rest.len() < 3,
        Error::Syntax(_) => ["<?", "<!--", "<![CDATA[", "<!DOCTYPE"]
            .into_iter()
            .any(can_begin),
        _ => false,
    }
}
