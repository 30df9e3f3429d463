//! The XML reader: markup, and the checks that make it well-formed. What is made of the elements is its handler's.
//!
//! Tags, texts and references are read here, in one pass and where they lie in the window; `markup` reads the rest.
//! What outlives a window is held here: open elements, namespaces, text.

use quick_xml::errors::Error;

use crate::resourcesync::document::{Form, Other, beginning};
use crate::resourcesync::markup::{Kind, Markup};
use crate::resourcesync::namespaces::{Namespace, Namespaces};
use crate::resourcesync::pause::Pause;
use crate::resourcesync::reference::{BARE_AMPERSAND, is_bare, push_referenced};
use crate::resourcesync::scan::{find, skip_space};
use crate::resourcesync::tag::{Attribute, RawTag, Tag, local_name, undeclared};

/// Deeper than any document, and shallow enough to keep memory bounded.
const DEEPEST: usize = 1_000;
/// The longest that the names of all open elements may be.
const LONGEST_NAMES: usize = 1 << 20;
/// The longest text of one element.
const LONGEST_TEXT: usize = 4 << 20;

/// The elements that mean something here; their namespace is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// `url`, or `sitemap` of an index.
    Entry,
    Loc,
    Md,
    Ln,
    Other,
}

/// A start tag, with its namespaces resolved.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// Number of elements around it.
    pub(crate) depth: usize,
    pub(crate) element: Element,
    pub(crate) namespace: Namespace,
    pub(crate) prefix: &'a str,
    pub(crate) local: &'a str,
    pub(crate) tag: Tag<'a>,
    /// The declarations in force within the element.
    pub(crate) namespaces: &'a Namespaces,
    /// Length of the text from the start of the tag on.
    pub(crate) left: usize,
}

/// Receives the elements of one document, in order. Its root is one of the sitemap namespace that is called `urlset` or
/// `sitemapindex`.
pub(crate) trait Handler {
    /// Handles a start tag. An empty element's end follows at once.
    fn start(&mut self, start: &Start<'_>);

    /// Handles an attribute of the element that has just begun, in order of resolved names.
    fn attribute(&mut self, _: &Namespaces, _: Namespace, _local: &str, _value: &str) {}

    /// Handles a text without the white space around it, up to the next tag. `depth` is that of the element it is in.
    fn text(&mut self, depth: usize, element: Element, text: &str);

    /// Handles the end of the element at `depth`. `left` is the length of the text from there on.
    fn end(&mut self, depth: usize, left: usize);
}

#[derive(Debug)]
pub(crate) struct Reader<H> {
    handler: H,
    has_root: bool,
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

impl<H: Handler> Reader<H> {
    pub(crate) fn new(handler: H) -> Reader<H> {
        Reader {
            handler,
            has_root: false,
            namespaces: Namespaces::new(),
            open: Vec::new(),
            names: String::new(),
            text: String::new(),
            attributes: Vec::new(),
            has_begun: false,
        }
    }

    pub(crate) fn into_handler(self) -> H {
        self.handler
    }

    /// Whether the root's start tag is still to come.
    pub(crate) fn is_before_root(&self) -> bool {
        !self.has_root
    }

    /// Whether the root has ended.
    pub(crate) fn is_after_root(&self) -> bool {
        self.has_root && self.open.is_empty()
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
        // R2: what is wrong with a document that is none of ours does not matter.
        if self.is_before_root()
            && local_name(rest).is_some_and(|name| Form::of_root(name).is_none())
        {
            return Err(Pause::Other(Other::ForeignRoot));
        }
        let raw = RawTag::read(rest, &mut self.attributes)?;
        self.flush_text();
        let namespaces = self.namespaces.depth();
        let tag = raw.resolve(&mut self.attributes, &mut self.namespaces)?;
        let namespace = self
            .namespaces
            .resolve(raw.prefix)
            .ok_or_else(|| Pause::flaw(1, undeclared(raw.prefix)))?;
        let element = element(namespace, raw.local);
        if !self.has_root {
            if Form::of_root(raw.local).is_none() {
                return Err(Pause::Other(Other::ForeignRoot));
            }
            if namespace != Namespace::Sitemap {
                let other = foreign_namespace(raw.local, namespace, &self.namespaces);
                return Err(Pause::Other(other));
            }
            self.has_root = true;
        }
        self.handler.start(&Start {
            depth: self.open.len(),
            element,
            namespace,
            prefix: raw.prefix,
            local: raw.local,
            tag,
            namespaces: &self.namespaces,
            left: rest.len(),
        });
        for attribute in tag.attributes {
            let value = tag.text(attribute)?;
            let (namespace, local) = (attribute.namespace, tag.local_name(attribute));
            self.handler
                .attribute(&self.namespaces, namespace, local, &value);
        }
        self.open.push(Open {
            name_start: self.names.len(),
            namespaces,
            element,
        });
        self.names.push_str(raw.name);
        if self.names.len() > LONGEST_NAMES {
            return Err(Pause::flaw(0, "the names of nested elements are too long"));
        }
        let length = raw.text.len();
        if raw.is_empty_element {
            self.end(rest.len() - length);
        }
        Ok(length)
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
                self.end(rest.len() - end - 1);
                Ok(end + 1)
            }
            _ if !rest.contains('>') => Err(Pause::Cut),
            _ => Err(Pause::flaw(0, format!("</{expected}> is expected"))),
        }
    }

    fn reference(&mut self, rest: &str) -> Result<usize, Pause> {
        self.inside_root(0, "a reference")?;
        let end = find(&rest.as_bytes()[1..], [b';', b'&', b'<']);
        let end = 1 + end.ok_or(Pause::Cut)?;
        let name = &rest[1..end];
        if !rest[end..].starts_with(';') || is_bare(name) {
            return Err(Pause::flaw(0, BARE_AMPERSAND));
        }
        push_referenced(name, &mut self.text).map_err(|message| Pause::flaw(0, message))?;
        self.bound_text()?;
        Ok(end + 1)
    }

    fn characters(&mut self, rest: &str) -> Result<usize, Pause> {
        let bytes = rest.as_bytes();
        // Most texts are the indentation between two tags.
        let start = if self.text.is_empty() {
            skip_space(bytes, 0)
        } else {
            0
        };
        let length = find(&bytes[start..], [b'<', b'&']);
        let end = length.map_or(bytes.len(), |length| start + length);
        let text = &rest[start..end];
        if text.is_empty() {
            return Ok(end);
        }
        self.inside_root(start, "text")?;
        let mut end = end;
        let mut text = text;
        if find(text.as_bytes(), [b']']).is_some() {
            if let Some(at) = text.find("]]>") {
                return Err(Pause::flaw(start + at, "]]> stands in the text"));
            }
            // The window may end between the brackets and the sign that they must not stand before.
            if length.is_none() {
                let kept = text.len() - text.trim_end_matches(']').len();
                end -= kept.min(2);
                text = &rest[start..end];
            }
            if end == 0 {
                return Err(Pause::Cut);
            }
        }
        self.text.push_str(text);
        self.bound_text()?;
        Ok(end)
    }

    /// Comments, processing instructions, CDATA sections, the declaration and the DOCTYPE.
    fn other_markup(&mut self, rest: &str) -> Result<usize, Pause> {
        let Markup {
            kind,
            length,
            mut flaw,
        } = Markup::read(rest)?;
        match kind {
            Kind::Comment | Kind::Instruction => {}
            Kind::Declaration if self.has_begun => {
                let message = "the XML declaration is not at the start";
                flaw = Some((0, message.to_owned()));
            }
            Kind::Declaration => {}
            Kind::CData(text) => {
                self.inside_root(0, "a CDATA section")?;
                self.text.push_str(text);
                self.bound_text()?;
            }
            Kind::Doctype => return self.doctype(rest),
        }
        match flaw {
            None => Ok(length),
            Some((at, message)) if self.is_before_root() => {
                self.has_begun = true;
                Err(Pause::Refused {
                    length,
                    at,
                    message,
                })
            }
            Some((at, message)) => Err(Pause::flaw(at, message)),
        }
    }

    /// R2: a DOCTYPE is refused, in a document of ours.
    fn doctype(&mut self, rest: &str) -> Result<usize, Pause> {
        if !self.is_before_root() {
            return Err(Pause::flaw(0, "a DOCTYPE stands inside the root"));
        }
        // The internal subset has a grammar of its own, and nothing of it is wanted but its end.
        let mut reader = quick_xml::Reader::from_reader(rest.as_bytes());
        match reader.read_event() {
            Ok(_) => {}
            Err(Error::Syntax(_)) => return Err(Pause::Cut),
            Err(error) => return Err(Pause::flaw(0, error.to_string())),
        }
        self.has_begun = true;
        let length = rest.len() - reader.get_ref().len();
        Err(Pause::Doctype { length })
    }

    /// Ends the innermost element, before the last `left` bytes of the text.
    fn end(&mut self, left: usize) {
        self.flush_text();
        let Some(open) = self.open.pop() else {
            return;
        };
        self.names.truncate(open.name_start);
        self.namespaces.back_to(open.namespaces);
        self.handler.end(self.open.len(), left);
    }

    fn inside_root(&self, at: usize, what: &str) -> Result<(), Pause> {
        if self.open.is_empty() {
            let message = format!("{what} stands outside the root element");
            return Err(Pause::flaw(at, message));
        }
        Ok(())
    }

    fn bound_text(&self) -> Result<(), Pause> {
        if self.text.len() > LONGEST_TEXT {
            let message = format!("a text is longer than {LONGEST_TEXT} bytes");
            return Err(Pause::flaw(0, message));
        }
        Ok(())
    }

    /// Hands on the text since the last tag.
    fn flush_text(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = self.text.trim_ascii();
        if !text.is_empty()
            && let [around @ .., innermost] = &self.open[..]
        {
            self.handler.text(around.len(), innermost.element, text);
        }
        self.text.clear();
    }
}

/// What a root of ours by its name is, in a namespace that is not ours.
fn foreign_namespace(root: &str, namespace: Namespace, namespaces: &Namespaces) -> Other {
    Other::Namespace {
        root: root.to_owned(),
        namespace: beginning(namespaces.uri(namespace)),
        has_terms: namespaces.is_any(is_like_terms),
    }
}

/// Whether a namespace is that of the ResourceSync terms, or meant to be.
fn is_like_terms(namespace: &str) -> bool {
    namespace.contains("openarchives.org/rs/")
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
