//! The XML reader: one pass over markup that checks that it is well-formed, and hands its elements to a handler.
//!
//! Everything is read in place in the window. State that outlives a window is here: open elements, namespaces, text.

use quick_xml::errors::Error;

use crate::document::{Form, NotADocument, beginning};
use crate::markup::{
    BARE_AMPERSAND, find_any, is_bare_ampersand, is_space, name_at, push_referenced,
    read_declaration, skip_space,
};
use crate::tag::{Attribute, Namespace, Namespaces, SITEMAP, StartTag, local_name};

/// Deepest nesting of elements, to keep memory bounded.
const DEEPEST: usize = 1_000;
/// Total length of the names of open elements.
const LONGEST_NAMES: usize = 1 << 20;
/// Longest text of one element.
const LONGEST_TEXT: usize = 4 << 20;

const COMMENT: &str = "<!--";
const CDATA: &str = "<![CDATA[";
const DOCTYPE: &str = "<!DOCTYPE";

/// The elements of Sitemaps and of the ResourceSync terms, whatever their prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    /// `url`, or `sitemap` of an index.
    Entry,
    Loc,
    Lastmod,
    Changefreq,
    Md,
    Ln,
    Other,
}

/// Receives the elements of one document in order.
pub trait Handler {
    /// Namespace of the root.
    const NAMESPACE: &'static str = SITEMAP;

    /// Returns true if the root may have this local name: `urlset` or `sitemapindex`, unless the handler is for another
    /// format.
    fn is_root(local: &str) -> bool {
        Form::of_root(local).is_some()
    }

    /// Handles a start tag. An empty element's end follows at once.
    fn start(&mut self, start: &StartTag<'_>);

    /// Handles a text up to the next tag, without the white space around it. `depth` is that of the element around it.
    fn text(&mut self, depth: usize, element: ElementKind, text: &str);

    /// Handles the end of the element at `depth`, at an offset in the text of the document.
    fn end(&mut self, depth: usize, offset: u64);

    /// Handles the end of a window's text. `line` returns the line of an offset in it, at the cost of counting the lines
    /// before it.
    fn window_end(&mut self, _line: &dyn Fn(u64) -> u64) {}
}

/// The reason why the reader stopped. Markup of which a length is given is still to be skipped.
#[derive(Debug)]
pub(crate) enum ParseStop {
    /// There is no more text.
    End,
    /// The next markup does not end in this text.
    Cut,
    /// The next markup is a DOCTYPE of this length.
    Doctype { length: usize },
    /// The next markup is of this length and has an error at this offset, before the root: it matters only if the root
    /// turns out to be a capability document's.
    Refused {
        length: usize,
        at: usize,
        message: String,
    },
    /// The root's start tag was read, and may be a capability document's.
    Root,
    /// The file is no capability document.
    Other(NotADocument),
    /// There is an error at this offset after the next markup's start.
    Syntax { at: usize, message: String },
}

/// Returns the stop at an error at this offset after the next markup's start.
#[cold]
pub(crate) fn syntax_error(at: usize, message: impl Into<String>) -> ParseStop {
    let message = message.into();
    ParseStop::Syntax { at, message }
}

#[derive(Debug)]
pub(crate) struct XmlReader<H> {
    pub(crate) handler: H,
    /// True if the root's start tag was read.
    pub(crate) has_root: bool,
    namespaces: Namespaces,
    open: Vec<OpenElement>,
    /// Names of the open elements, in one string.
    names: String,
    /// Text since the last tag, without white space at its start. Comments, references and CDATA sections do not end
    /// it.
    text: String,
    attributes: Vec<Attribute>,
    has_begun: bool,
    /// Offset of the end of the text that is read now.
    text_end: u64,
}

#[derive(Debug)]
struct OpenElement {
    name_start: usize,
    /// Number of declarations in scope around the element.
    namespaces: usize,
    element: ElementKind,
}

impl<H: Handler> XmlReader<H> {
    pub(crate) fn new(handler: H) -> XmlReader<H> {
        XmlReader {
            handler,
            has_root: false,
            namespaces: Namespaces::new(),
            open: Vec::new(),
            names: String::new(),
            text: String::new(),
            attributes: Vec::new(),
            has_begun: false,
            text_end: 0,
        }
    }

    /// Returns true if the root has ended.
    pub(crate) fn is_after_root(&self) -> bool {
        self.has_root && self.open.is_empty()
    }

    /// Reads a text, which begins at an offset of the document's. Returns the length that was read, and the reason for
    /// stopping there.
    pub(crate) fn parse(&mut self, text: &str, offset: u64) -> (usize, ParseStop) {
        self.text_end = offset + text.len() as u64;
        let mut taken = 0;
        loop {
            let rest = &text[taken..];
            let had_root = self.has_root;
            let read = match rest.as_bytes() {
                [] => Err(ParseStop::End),
                [b'<'] => Err(ParseStop::Cut),
                [b'<', b'/', ..] => self.read_end_tag(rest),
                [b'<', b'!' | b'?', ..] => self.read_other_markup(rest),
                [b'<', ..] => self.read_start_tag(rest),
                [b'&', ..] => self.read_reference(rest),
                _ => self.read_characters(rest),
            };
            match read {
                Ok(_) if self.text.len() > LONGEST_TEXT => {
                    let message = format!("a text is longer than {LONGEST_TEXT} bytes");
                    return (taken, syntax_error(0, message));
                }
                Ok(length) => taken += length,
                Err(stop) => return (taken, stop),
            }
            self.has_begun = true;
            if self.has_root && !had_root {
                return (taken, ParseStop::Root);
            }
        }
    }

    fn read_start_tag(&mut self, rest: &str) -> Result<usize, ParseStop> {
        if self.is_after_root() {
            return Err(syntax_error(0, "a second root element begins"));
        }
        if self.open.len() >= DEEPEST {
            let message = format!("elements are nested {DEEPEST} deep");
            return Err(syntax_error(0, message));
        }
        // R2: errors do not matter in a file that is no capability document.
        if !self.has_root && local_name(rest).is_some_and(|name| !H::is_root(name)) {
            return Err(ParseStop::Other(NotADocument::ForeignRoot));
        }
        self.flush_text();
        let namespaces = self.namespaces.bindings.len();
        let start = StartTag {
            depth: self.open.len(),
            offset: self.text_end - rest.len() as u64,
            ..StartTag::read(rest, &mut self.attributes, &mut self.namespaces)?
        };
        if !self.has_root {
            if !H::is_root(start.local) {
                return Err(ParseStop::Other(NotADocument::ForeignRoot));
            }
            let namespace = start.namespaces.uri(start.namespace);
            if namespace != H::NAMESPACE {
                return Err(ParseStop::Other(NotADocument::Namespace {
                    root: start.local.to_owned(),
                    namespace: beginning(namespace),
                    has_terms: start.namespaces.declares_rs_terms(),
                }));
            }
            self.has_root = true;
        }
        for attribute in start.attributes {
            // A malformed value matters to every reader.
            start.value_of(attribute)?;
        }
        self.handler.start(&start);
        self.open.push(OpenElement {
            name_start: self.names.len(),
            namespaces,
            element: start.element,
        });
        self.names.push_str(start.name);
        if self.names.len() > LONGEST_NAMES {
            return Err(syntax_error(0, "the names of nested elements are too long"));
        }
        let length = start.text.len();
        if start.is_empty_element {
            self.end_element(rest.len() - length);
        }
        Ok(length)
    }

    fn read_end_tag(&mut self, rest: &str) -> Result<usize, ParseStop> {
        let Some(open) = self.open.last() else {
            return Err(syntax_error(0, "an end tag ends no element"));
        };
        let expected = &self.names[open.name_start..];
        let name_end = 2 + expected.len();
        let end = skip_space(rest.as_bytes(), name_end);
        let is_it = rest.as_bytes().get(2..name_end) == Some(expected.as_bytes());
        match rest.as_bytes().get(end) {
            Some(b'>') if is_it => {
                self.end_element(rest.len() - end - 1);
                Ok(end + 1)
            }
            _ if !rest.contains('>') => Err(ParseStop::Cut),
            _ => Err(syntax_error(0, format!("</{expected}> is expected"))),
        }
    }

    fn read_reference(&mut self, rest: &str) -> Result<usize, ParseStop> {
        self.inside_root(0, "a reference")?;
        let end = find_any(&rest.as_bytes()[1..], [b';', b'&', b'<']);
        let end = 1 + end.ok_or(ParseStop::Cut)?;
        let name = &rest[1..end];
        if !rest[end..].starts_with(';') || is_bare_ampersand(name) {
            return Err(syntax_error(0, BARE_AMPERSAND));
        }
        push_referenced(name, &mut self.text).map_err(|message| syntax_error(0, message))?;
        Ok(end + 1)
    }

    fn read_characters(&mut self, rest: &str) -> Result<usize, ParseStop> {
        let bytes = rest.as_bytes();
        // Most texts are the indentation between two tags.
        let start = if self.text.is_empty() {
            skip_space(bytes, 0)
        } else {
            0
        };
        let length = find_any(&bytes[start..], [b'<', b'&']);
        let end = length.map_or(bytes.len(), |length| start + length);
        let text = &rest[start..end];
        if text.is_empty() {
            return Ok(end);
        }
        self.inside_root(start, "text")?;
        let mut end = end;
        let mut text = text;
        if find_any(text.as_bytes(), [b']']).is_some() {
            if let Some(at) = text.find("]]>") {
                return Err(syntax_error(start + at, "]]> stands in the text"));
            }
            // The window may end between the brackets and the sign that they must not stand before.
            if length.is_none() {
                let kept = text.len() - text.trim_end_matches(']').len();
                end -= kept.min(2);
                text = &rest[start..end];
            }
            if end == 0 {
                return Err(ParseStop::Cut);
            }
        }
        self.text.push_str(text);
        Ok(end)
    }

    /// Reads a comment, processing instruction, CDATA section, the declaration or the DOCTYPE.
    fn read_other_markup(&mut self, rest: &str) -> Result<usize, ParseStop> {
        let begins = |markup: &str| {
            let common = rest.len().min(markup.len());
            rest.as_bytes()[..common].eq_ignore_ascii_case(&markup.as_bytes()[..common])
        };
        if rest.starts_with("<?") {
            self.read_instruction(rest)
        } else if rest.starts_with(COMMENT) {
            self.read_comment(rest)
        } else if let Some(text) = rest.strip_prefix(CDATA) {
            let end = text.find("]]>").ok_or(ParseStop::Cut)?;
            self.inside_root(0, "a CDATA section")?;
            self.text.push_str(&text[..end]);
            Ok(CDATA.len() + end + 3)
        } else if begins(DOCTYPE) && rest.len() >= DOCTYPE.len() {
            self.read_doctype(rest)
        } else if begins(DOCTYPE) || COMMENT.starts_with(rest) || CDATA.starts_with(rest) {
            Err(ParseStop::Cut)
        } else {
            let message = "unknown or missed symbol in markup";
            Err(syntax_error(0, message))
        }
    }

    // XML 1.0 section 2.5: no `--` but the one that ends it.
    fn read_comment(&mut self, rest: &str) -> Result<usize, ParseStop> {
        let first = rest[COMMENT.len()..].find("--").ok_or(ParseStop::Cut)?;
        let first = COMMENT.len() + first;
        let end = rest[first..].find("-->").ok_or(ParseStop::Cut)?;
        let length = first + end + 3;
        if end > 0 {
            let message = "forbidden string `--` was found in a comment";
            return Err(self.refused(length, first, message));
        }
        Ok(length)
    }

    // XML 1.0 section 2.6, and Namespaces in XML 1.0 section 7: no colon in a target.
    fn read_instruction(&mut self, rest: &str) -> Result<usize, ParseStop> {
        let bytes = rest.as_bytes();
        let end = 2 + rest[2..].find("?>").ok_or(ParseStop::Cut)?;
        let length = end + 2;
        let Some(name) = name_at(&bytes[..end], 2).filter(|name| name.end > 2) else {
            return Err(self.refused(length, 2, "a processing instruction has no target"));
        };
        let target = &rest[2..name.end];
        let flaw = match target {
            "xml" if self.has_begun => {
                return Err(self.refused(length, 0, "the XML declaration is not at the start"));
            }
            "xml" => {
                return match read_declaration(&bytes[name.end..end]) {
                    Ok(_) => Ok(length),
                    Err((at, message)) => Err(self.refused(length, name.end + at, message)),
                };
            }
            _ if target.eq_ignore_ascii_case("xml") => {
                let message = format!("the target {target} is reserved");
                return Err(self.refused(length, 2, message));
            }
            _ if name.local_start > 2 => "a colon in its name",
            _ if name.end < end && !is_space(bytes[name.end]) => "no proper name",
            _ => return Ok(length),
        };
        let message = format!("the processing instruction {target} has {flaw}");
        Err(self.refused(length, 2, message))
    }

    /// Returns the stop at markup of a known length that has an error at this offset.
    fn refused(&mut self, length: usize, at: usize, message: impl Into<String>) -> ParseStop {
        if self.has_root {
            return syntax_error(at, message);
        }
        self.has_begun = true;
        let message = message.into();
        ParseStop::Refused {
            length,
            at,
            message,
        }
    }

    /// Finds the end of a DOCTYPE, which is refused in a capability document (R2).
    fn read_doctype(&mut self, rest: &str) -> Result<usize, ParseStop> {
        if self.has_root {
            return Err(syntax_error(0, "a DOCTYPE stands inside the root"));
        }
        // The one use of quick-xml: an internal subset has a grammar of its own, and all that matters here is its end.
        let mut reader = quick_xml::Reader::from_reader(rest.as_bytes());
        match reader.read_event() {
            Ok(_) => {}
            Err(Error::Syntax(_)) => return Err(ParseStop::Cut),
            Err(error) => return Err(syntax_error(0, error.to_string())),
        }
        self.has_begun = true;
        let length = rest.len() - reader.get_ref().len();
        Err(ParseStop::Doctype { length })
    }

    /// Ends the innermost element, before the last `left` bytes of the text.
    fn end_element(&mut self, left: usize) {
        self.flush_text();
        let Some(open) = self.open.pop() else {
            return;
        };
        self.names.truncate(open.name_start);
        self.namespaces.bindings.truncate(open.namespaces);
        let offset = self.text_end - left as u64;
        self.handler.end(self.open.len(), offset);
    }

    fn inside_root(&self, at: usize, what: &str) -> Result<(), ParseStop> {
        if self.open.is_empty() {
            let message = format!("{what} stands outside the root element");
            return Err(syntax_error(at, message));
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

pub(crate) fn element_named(namespace: Namespace, local: &str) -> ElementKind {
    match (namespace, local) {
        (Namespace::Sitemap, "url" | "sitemap") => ElementKind::Entry,
        (Namespace::Sitemap, "loc") => ElementKind::Loc,
        (Namespace::Sitemap, "lastmod") => ElementKind::Lastmod,
        (Namespace::Sitemap, "changefreq") => ElementKind::Changefreq,
        (Namespace::Rs, "md") => ElementKind::Md,
        (Namespace::Rs, "ln") => ElementKind::Ln,
        _ => ElementKind::Other,
    }
}
