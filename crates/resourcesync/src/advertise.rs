//! The entry with which a Capability List advertises its channel (Framework Notification 1.0.1 section 5), written into
//! its text.
//!
//! The list is edited as text, so that everything else stays as it is. An addition takes the prefixes that are declared
//! there and the indentation of its neighbour.

use std::collections::BTreeSet;
use std::ops::Range;

use encoding_rs::Encoding;

use crate::capability::Capability;
use crate::document::{Advertisement, Document, Form};
use crate::fingerprint::Fingerprint;
use crate::parse::{ReadError, parse};
use crate::reader::{ElementKind, Handler, ParseStop, XmlReader};
use crate::tag::{Namespace, RS, StartTag};
use crate::uri::{Hub, Uri};
use crate::window::encoding_of;
use crate::writer::{write_attribute, write_escaped};

/// The depth of an entry's children.
const DEEPEST: usize = 2;

/// The reason why an entry cannot be written into a Capability List.
#[derive(Debug, thiserror::Error)]
pub enum Unpatchable {
    /// The document is broken off or malformed.
    #[error("it cannot be read to its end")]
    Unreadable(#[from] ReadError),
    /// Another document has taken its place.
    #[error("it is no Capability List any more")]
    Other,
    /// Its encoding, by name, has other bytes for ASCII.
    #[error("its encoding is {0}, and patches need a superset of ASCII")]
    Encoding(&'static str),
    /// Its encoding, by name, has several forms of the same text.
    #[error("writing it as {0} again would change other bytes")]
    Recoded(&'static str),
    /// Its markup has no such position.
    #[error("no position for the entry was found in its markup")]
    Markup,
}

/// Returns the entry as a generator that declares `rs` may write it.
pub fn entry(wanted: &Advertisement) -> String {
    // The prefixes that the specification uses.
    let usual = NamespacePrefixes {
        sitemap: "",
        terms: "rs:",
        are_declared: true,
    };
    usual.entry(wanted, "\n", "\n  ") + "\n"
}

/// Returns the Capability List `list` with what it lacked to advertise its channel; `None` if it lacks nothing.
///
/// An entry that names another topic is corrected. Hubs of `former` are replaced or removed; other hubs stay.
///
/// # Errors
///
/// If the list cannot be read, or its markup has no position for the entry.
pub fn advertise(
    list: &[u8],
    wanted: &Advertisement,
    former: &BTreeSet<Hub>,
) -> Result<Option<Vec<u8>>, Unpatchable> {
    let before = parse_capability_list(list)?;
    if advertises(&before, wanted, former) {
        return Ok(None);
    }
    let (encoding, mark, _) = encoding_of(list);
    let (mark, rest) = list.split_at(mark);
    let text = decoded(rest, encoding)?;
    let root = parse_nodes(&text).ok_or(Unpatchable::Markup)?;
    let edits = match present_entry(&root, wanted) {
        Some(entry) => edits_to_complete(&text, entry, wanted, former),
        None => edit_to_add(&text, &root, wanted).into_iter().collect(),
    };
    let edited = edited(&text, edits);
    // Characters that the encoding does not have become references: they stand in text and in values only.
    let bytes = [mark, &encoding.encode(&edited).0[..]].concat();
    // The result is read back, whatever the markup is like.
    let after = parse_capability_list(&bytes).map_err(|_| Unpatchable::Markup)?;
    if advertises(&after, wanted, former) && is_same_otherwise(before, after, wanted) {
        Ok(Some(bytes))
    } else {
        Err(Unpatchable::Markup)
    }
}

fn parse_capability_list(list: &[u8]) -> Result<Document, Unpatchable> {
    match parse(list)? {
        Ok(document)
            if document.capability == Capability::CapabilityList && document.form == Form::List =>
        {
            Ok(document)
        }
        _ => Err(Unpatchable::Other),
    }
}

fn advertises(list: &Document, wanted: &Advertisement, former: &BTreeSet<Hub>) -> bool {
    list.channels.iter().any(|channel| {
        channel.kind == wanted.kind
            && channel.topic == wanted.topic
            && wanted.hubs.iter().all(|hub| channel.hubs.contains(hub))
            && !channel.hubs.iter().any(|hub| former.contains(hub))
    })
}

/// Returns true if two versions differ in nothing but their channels. An entry without its `rs:md` was a member.
fn is_same_otherwise(mut before: Document, mut after: Document, wanted: &Advertisement) -> bool {
    let topic = Uri::parse(wanted.topic.as_str()).ok();
    for list in [&mut before, &mut after] {
        list.channels.retain(|channel| channel.kind != wanted.kind);
        // The topic itself may have been a member.
        list.relative = None;
        // It is that of the channels too.
        list.fingerprint = Fingerprint([0; 32]);
        list.members.retain(|member| Some(member) != topic.as_ref());
    }
    before == after
}

/// Decodes a text, provided that `encoding` makes the same bytes of it again.
fn decoded(bytes: &[u8], encoding: &'static Encoding) -> Result<String, Unpatchable> {
    if !encoding.is_ascii_compatible() {
        return Err(Unpatchable::Encoding(encoding.name()));
    }
    let text = encoding.decode_without_bom_handling(bytes).0;
    if *encoding.encode(&text).0 != *bytes {
        return Err(Unpatchable::Recoded(encoding.name()));
    }
    Ok(text.into_owned())
}

/// Returns the entry that advertises the channel, or was meant to: of several the one with this topic, else the first
/// that names one.
fn present_entry<'a>(root: &'a Node, wanted: &Advertisement) -> Option<&'a Node> {
    let entries = || root.children_of(ElementKind::Entry);
    let advertisements = || entries().filter(|entry| channel_md(entry, wanted).is_some());
    let has_topic = |entry: &&Node| loc(entry).is_some_and(|loc| loc.text == wanted.topic.as_str());
    let says_nothing = |entry: &&Node| {
        let mut descriptions = entry.children_of(ElementKind::Md);
        descriptions.all(|md| md.capability.is_none())
    };
    advertisements()
        .find(has_topic)
        .or_else(|| advertisements().find(|entry| loc(entry).is_some()))
        .or_else(|| advertisements().next())
        .or_else(|| entries().filter(has_topic).find(says_nothing))
}

/// Returns the `rs:md` that says that an entry advertises a channel.
fn channel_md<'a>(entry: &'a Node, wanted: &Advertisement) -> Option<&'a Node> {
    let mut descriptions = entry.children_of(ElementKind::Md);
    descriptions.find(|md| md.capability.as_deref() == Some(wanted.kind.capability()))
}

/// Returns the `loc` that counts: the first that says anything.
fn loc(entry: &Node) -> Option<&Node> {
    let mut locs = entry.children_of(ElementKind::Loc);
    locs.find(|loc| !loc.text.is_empty())
}

/// A part of the text, and its replacement.
type Edit = (Range<usize>, String);

fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    // Insertions at the same place stay in order.
    edits.sort_by_key(|(place, _)| place.start);
    let mut edited = String::with_capacity(text.len() + 1024);
    let mut end = 0;
    for (place, new) in edits {
        // An insertion within a removed part stays.
        edited.push_str(&text[end..place.start.max(end)]);
        edited.push_str(&new);
        end = place.end.max(end);
    }
    edited.push_str(&text[end..]);
    edited
}

/// Returns the edits that add to an entry what it lacks. Section 5 has the hubs before the description, sitemaps have
/// `loc` first.
fn edits_to_complete(
    text: &str,
    entry: &Node,
    wanted: &Advertisement,
    former: &BTreeSet<Hub>,
) -> Vec<Edit> {
    let (Some(first), Some(last)) = (entry.children.first(), entry.children.last()) else {
        return Vec::new();
    };
    let style = NamespacePrefixes::within(entry);
    let before = |node: &Node, new: String| {
        let start = node.span.start;
        (start..start, new + indentation(text, start))
    };
    let after = |node: &Node, new: String| {
        let end = node.span.end;
        let indentation = indentation(text, node.span.start);
        (end..end, indentation.to_owned() + &new)
    };
    let mut edits = Vec::new();
    match loc(entry).or(entry.children_of(ElementKind::Loc).next()) {
        Some(loc) if loc.text == wanted.topic.as_str() => {}
        Some(loc) => edits.push((loc.span.clone(), style.loc(wanted))),
        None => edits.push(before(first, style.loc(wanted))),
    }
    let links = entry
        .children_of(ElementKind::Ln)
        .filter_map(|link| Some((link, Hub::new(link.hub.as_deref()?))));
    let links: Vec<(&Node, Hub)> = links.collect();
    let is_advertised = |wanted: &Hub| links.iter().any(|(_, hub)| hub == wanted);
    let mut lacking = wanted.hubs.iter().filter(|hub| !is_advertised(hub));
    let (replaced, kept): (Vec<_>, Vec<_>) =
        links.iter().partition(|(_, hub)| former.contains(hub));
    for (link, _) in &replaced {
        if let Some(hub) = lacking.next() {
            edits.push((link.span.clone(), style.hub(hub)));
        } else {
            let start = link.span.start - indentation(text, link.span.start).len();
            edits.push((start..link.span.end, String::new()));
        }
    }
    let description = channel_md(entry, wanted);
    let link = kept.last().or(replaced.last());
    edits.extend(lacking.map(|hub| match (link, description) {
        (Some((link, _)), _) => after(link, style.hub(hub)),
        (None, Some(description)) => before(description, style.hub(hub)),
        (None, None) => after(last, style.hub(hub)),
    }));
    if description.is_none() {
        let capability = ("capability", wanted.kind.capability());
        edits.push(after(last, style.empty_element("md", &[capability])));
    }
    edits
}

/// Returns the edit that adds an entry behind the last one, indented as it is; without one, behind what the root has.
fn edit_to_add(text: &str, root: &Node, wanted: &Advertisement) -> Option<Edit> {
    let model = root.children_of(ElementKind::Entry).last();
    let last = model.or(root.children.last())?;
    let line = indentation(text, last.span.start);
    let child = match model.and_then(|model| model.children.first()) {
        Some(first) => indentation(text, first.span.start).to_owned(),
        // One step deeper.
        None => line.to_owned() + line.trim_start_matches(['\r', '\n']),
    };
    let end = last.span.end;
    let entry = NamespacePrefixes::within(root).entry(wanted, line, &child);
    Some((end..end, format!("{line}{entry}")))
}

/// Returns the white space that ends at a place, from its last line end on; nothing if there is none.
fn indentation(text: &str, at: usize) -> &str {
    let before = text[..at].trim_end_matches([' ', '\t']);
    let mut line_ends = ["\r\n", "\n", "\r"].into_iter();
    let line_end = line_ends.find(|line_end| before.ends_with(line_end));
    &text[line_end.map_or(at, |line_end| before.len() - line_end.len())..at]
}

/// An element and its place.
#[derive(Debug)]
struct Node {
    element: ElementKind,
    /// Prefix of its name, with the colon; empty if it has none.
    prefix: String,
    /// Prefix of the ResourceSync terms within it, with the colon, if their namespace is declared.
    terms: Option<String>,
    span: Range<usize>,
    children: Vec<Node>,
    text: String,
    /// Value of `capability` of an `rs:md`.
    capability: Option<String>,
    /// Target of an `rs:ln` with the relation `hub`.
    hub: Option<String>,
}

impl Node {
    fn children_of(&self, element: ElementKind) -> impl Iterator<Item = &Node> {
        let children = self.children.iter();
        children.filter(move |child| child.element == element)
    }
}

/// Returns the root of a document; nothing if it is not well-formed.
fn parse_nodes(text: &str) -> Option<Node> {
    // The reader takes LF for the only line end. Every place stays where it is.
    let text = text.replace("\r\n", " \n").replace('\r', "\n");
    let mut reader = XmlReader::new(NodeParser::default());
    let mut rest = &text[..];
    loop {
        let (taken, stop) = reader.parse(rest, (text.len() - rest.len()) as u64);
        rest = &rest[taken..];
        match stop {
            ParseStop::Root => {}
            ParseStop::End => return reader.handler.root,
            _ => return None,
        }
    }
}

/// A document that is being read.
#[derive(Default)]
struct NodeParser {
    open: Vec<Node>,
    root: Option<Node>,
}

impl Handler for NodeParser {
    fn start(&mut self, start: &StartTag<'_>) {
        if start.depth > DEEPEST {
            return;
        }
        let prefixed = |prefix: &str| match prefix {
            "" => String::new(),
            prefix => format!("{prefix}:"),
        };
        let place = start.offset as usize;
        let is_hub = start.has_relation("hub");
        let hub = is_hub.then(|| start.value("href")).flatten();
        self.open.push(Node {
            element: start.element,
            prefix: prefixed(start.prefix),
            terms: start.namespaces.prefix_of(Namespace::Rs).map(prefixed),
            span: place..place,
            children: Vec::new(),
            text: String::new(),
            capability: start.filled("capability"),
            hub: hub.map(|hub| hub.trim().to_owned()),
        });
    }

    fn text(&mut self, depth: usize, _: ElementKind, text: &str) {
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

/// Prefixes at a position, with the colon.
struct NamespacePrefixes<'a> {
    sitemap: &'a str,
    terms: &'a str,
    /// False if an element that uses the terms has to declare them.
    are_declared: bool,
}

impl<'a> NamespacePrefixes<'a> {
    /// Returns the prefixes that are declared within an element of the sitemap namespace.
    fn within(node: &'a Node) -> NamespacePrefixes<'a> {
        NamespacePrefixes {
            sitemap: &node.prefix,
            terms: node.terms.as_deref().unwrap_or("rs:"),
            are_declared: node.terms.is_some(),
        }
    }

    /// Returns an entry with `line` before its end tag and `child` before each of its children.
    fn entry(&self, wanted: &Advertisement, line: &str, child: &str) -> String {
        let within = NamespacePrefixes {
            are_declared: true,
            ..*self
        };
        let mut children = vec![within.loc(wanted)];
        children.extend(wanted.hubs.iter().map(|hub| within.hub(hub)));
        children.push(within.empty_element("md", &[("capability", wanted.kind.capability())]));
        let children: String = children.iter().map(|xml| format!("{child}{xml}")).collect();
        let end = if child.is_empty() { "" } else { line };
        let name = format!("{}url", self.sitemap);
        format!("<{name}{}>{children}{end}</{name}>", self.declaration())
    }

    fn loc(&self, wanted: &Advertisement) -> String {
        let name = format!("{}loc", self.sitemap);
        let mut xml = format!("<{name}>");
        write_escaped(&mut xml, wanted.topic.as_str());
        xml + &format!("</{name}>")
    }

    fn hub(&self, hub: &Hub) -> String {
        self.empty_element("ln", &[("rel", "hub"), ("href", hub.as_str())])
    }

    fn empty_element(&self, name: &str, attributes: &[(&str, &str)]) -> String {
        let mut xml = format!("<{}{name}{}", self.terms, self.declaration());
        for (name, value) in attributes {
            write_attribute(&mut xml, name, value);
        }
        xml + "/>"
    }

    fn declaration(&self) -> String {
        let declaration = || format!(" xmlns:rs=\"{RS}\"");
        (!self.are_declared).then(declaration).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
