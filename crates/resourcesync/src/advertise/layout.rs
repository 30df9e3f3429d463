//! The elements of a Capability List and their places in its text, as far down as an entry's own children.

use std::ops::Range;

use crate::namespaces::Namespace;
use crate::reader::{Element, Handler, StartTag, StopReason, XmlReader};

/// The depth of an entry's children.
const DEEPEST: usize = 2;

/// An element and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) element: Element,
    /// Prefix of its name, with the colon; empty if it has none.
    pub(super) prefix: String,
    /// Prefix of the ResourceSync terms within it, with the colon, if their namespace is declared.
    pub(super) terms: Option<String>,
    pub(super) span: Range<usize>,
    pub(super) children: Vec<Node>,
    pub(super) text: String,
    /// Value of `capability` of an `rs:md`.
    pub(super) capability: Option<String>,
    /// Target of an `rs:ln` with the relation `hub`.
    pub(super) hub: Option<String>,
}

impl Node {
    pub(super) fn children_of(&self, element: Element) -> impl Iterator<Item = &Node> {
        let children = self.children.iter();
        children.filter(move |child| child.element == element)
    }
}

/// Returns the root of a document; nothing if it is not well-formed.
pub(super) fn layout(text: &str) -> Option<Node> {
    // The reader takes LF for the only line end. Every place stays where it is.
    let text = text.replace("\r\n", " \n").replace('\r', "\n");
    let mut reader = XmlReader::new(LayoutBuilder::default());
    let mut rest = &text[..];
    loop {
        let (taken, stop) = reader.parse(rest, (text.len() - rest.len()) as u64);
        rest = &rest[taken..];
        match stop {
            StopReason::Root => {}
            StopReason::End => return reader.handler.root,
            _ => return None,
        }
    }
}

/// A document that is being read.
#[derive(Default)]
struct LayoutBuilder {
    open: Vec<Node>,
    root: Option<Node>,
}

impl Handler for LayoutBuilder {
    fn start(&mut self, start: &StartTag<'_>) {
        if start.depth > DEEPEST {
            return;
        }
        let prefixed = |prefix: &str| match prefix {
            "" => String::new(),
            prefix => format!("{prefix}:"),
        };
        let place = start.offset as usize;
        let hub = start.tag.has_relation("hub");
        let hub = hub.then(|| start.tag.value("href")).flatten();
        self.open.push(Node {
            element: start.element,
            prefix: prefixed(start.prefix),
            terms: start.namespaces.prefix_of(Namespace::Rs).map(prefixed),
            span: place..place,
            children: Vec::new(),
            text: String::new(),
            capability: start.tag.filled("capability"),
            hub: hub.map(|hub| hub.trim().to_owned()),
        });
    }

    fn text(&mut self, depth: usize, _: Element, text: &str) {
        if let (0..=DEEPEST, Some(node)) = (depth, self.open.last_mut())
            && node.text.is_empty()
        {
            node.text.push_str(text);
        }
    }

    fn end(&mut self, depth: usize, offset: u64) {
        if depth > DEEPEST {
            return;
        }
        let Some(mut node) = self.open.pop() else {
            return;
        };
        node.span.end = offset as usize;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => self.root = Some(node),
        }
    }
}
