//! Where the elements of a Capability List stand in its text, as far down as an entry's own children.

use std::ops::Range;

use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, PrefixDeclaration, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use crate::resourcesync::namespaces::{RS, SITEMAP};
use crate::resourcesync::outline;

/// How deep an entry's children are.
const DEEPEST: usize = 3;

/// An element and where it stands.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) kind: outline::Element,
    /// As written in front of its name, with the colon; empty for none.
    pub(super) prefix: String,
    /// What a name of the ResourceSync terms takes within it, if their namespace has been declared.
    pub(super) rs: Option<String>,
    pub(super) span: Range<usize>,
    /// What is between its tags; of an empty-element tag, its end.
    pub(super) content: Range<usize>,
    pub(super) children: Vec<Element>,
    /// The text within it, but for what its children hold, with where it begins and ends.
    pub(super) text: String,
    pub(super) text_span: Option<Range<usize>>,
    attributes: Vec<(String, String)>,
}

/// The root of a well-formed document. Nothing if there is markup that quick-xml does not read.
pub(super) fn layout(document: &str) -> Option<Element> {
    let mut reader = NsReader::from_str(document);
    let mut open: Vec<Element> = Vec::new();
    loop {
        let start = position(&reader)?;
        let event = reader.read_event().ok()?;
        let span = start..position(&reader)?;
        let ended = match event {
            Event::Start(tag) => {
                open.push(element(&reader, &tag, span)?);
                continue;
            }
            Event::Empty(tag) => element(&reader, &tag, span)?,
            Event::End(_) => {
                let mut ended = open.pop()?;
                ended.content.end = span.start;
                ended.span.end = span.end;
                ended
            }
            Event::Text(text) => {
                let written = &document[span.clone()];
                let from = span.end - written.trim_ascii_start().len();
                let to = span.start + written.trim_ascii_end().len();
                if from < to {
                    open.last_mut()?.says(&text.xml10_content(), from..to);
                }
                continue;
            }
            Event::CData(text) => {
                open.last_mut()?.says(&text.xml10_content(), span);
                continue;
            }
            Event::GeneralRef(_) => {
                let text = quick_xml::escape::unescape(&document[span.clone()]).ok()?;
                open.last_mut()?.says(&text, span);
                continue;
            }
            Event::Eof => return None,
            _ => continue,
        };
        let depth = open.len() + 1;
        match open.last_mut() {
            None => return Some(ended),
            Some(parent) if depth <= DEEPEST => parent.children.push(ended),
            Some(_) => {}
        }
    }
}

impl Element {
    /// The value of the attribute that has this name and no prefix, without white space around it.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let (_, value) = attributes.find(|(own, _)| own == name)?;
        Some(value.trim())
    }

    pub(super) fn children_of_kind(
        &self,
        kind: outline::Element,
    ) -> impl Iterator<Item = &Element> {
        self.children.iter().filter(move |child| child.kind == kind)
    }

    fn says(&mut self, text: &str, span: Range<usize>) {
        let start = self
            .text_span
            .as_ref()
            .map_or(span.start, |text| text.start);
        self.text_span = Some(start..span.end);
        self.text.push_str(text);
    }
}

fn position(reader: &NsReader<&[u8]>) -> Option<usize> {
    usize::try_from(reader.buffer_position()).ok()
}

fn element(reader: &NsReader<&[u8]>, tag: &BytesStart<'_>, span: Range<usize>) -> Option<Element> {
    let name = tag.name();
    let prefix = name
        .prefix()
        .map_or(String::new(), |prefix| format!("{}:", prefix.into_inner()));
    let namespace = reader.resolver().resolve_element(name).0;
    let is_in = |uri| namespace == ResolveResult::Bound(Namespace(uri));
    let kind = match name.local_name().into_inner() {
        "url" | "sitemap" if is_in(SITEMAP) => outline::Element::Entry,
        "loc" if is_in(SITEMAP) => outline::Element::Loc,
        "md" if is_in(RS) => outline::Element::Md,
        "ln" if is_in(RS) => outline::Element::Ln,
        _ => outline::Element::Other,
    };
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.ok()?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?;
        attributes.push((attribute.key.into_inner().to_owned(), value.into_owned()));
    }
    let mut rs: Vec<String> = reader
        .resolver()
        .bindings()
        .filter(|(_, namespace)| *namespace == Namespace(RS))
        .map(|(prefix, _)| match prefix {
            PrefixDeclaration::Default => String::new(),
            PrefixDeclaration::Named(prefix) => format!("{prefix}:"),
        })
        .collect();
    // Of several, the usual one.
    rs.sort_by_key(|prefix| prefix != "rs:");
    Some(Element {
        kind,
        prefix,
        rs: rs.into_iter().next(),
        content: span.end..span.end,
        span,
        children: Vec::new(),
        text: String::new(),
        text_span: None,
        attributes,
    })
}
