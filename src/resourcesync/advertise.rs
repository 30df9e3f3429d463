//! What a Capability List lacks to advertise its channel (Framework Notification 1.0.1 section 5).
//!
//! The list is edited as text: whatever its generator's habits are, all that was written stays as it is.

mod layout;
mod style;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::Range;

use encoding_rs::Encoding;

use crate::resourcesync::advertise::layout::{Element, layout};
use crate::resourcesync::advertise::style::{Style, declaration, escaped};
use crate::resourcesync::capability::Capability;
use crate::resourcesync::document::{Advertisement, Content, Document, Form};
use crate::resourcesync::encoding::{Detected, detect};
use crate::resourcesync::outline;
use crate::resourcesync::parse::{ReadError, parse};
use crate::resourcesync::payload::NOTIFICATION;
use crate::resourcesync::uri::{Hub, Uri};

/// Why a Capability List cannot be completed, although its entry is known.
#[derive(Debug, thiserror::Error)]
pub enum Unpatchable {
    #[error("it cannot be read to its end")]
    Unreadable(#[from] ReadError),
    #[error("it is no Capability List any more")]
    Other,
    #[error("its encoding is {0}, and a patch is made of lines of ASCII or a superset of it")]
    Encoding(&'static str),
    #[error("its {0} has bytes that would not stay as they are")]
    Recoded(&'static str),
    #[error("no place for the entry was found in its markup")]
    Markup,
}

/// The entry as a generator that declares `rs` may write it.
pub fn entry(wanted: &Advertisement) -> String {
    let style = Style {
        sitemap: "",
        rs: "rs:",
        declaration: String::new(),
        child: "\n  ",
        close: "\n",
    };
    style.entry(wanted) + "\n"
}

/// The Capability List `list` with what it lacked to advertise its channel; nothing if it does already.
///
/// An entry that names another topic is corrected, and hubs that it names of `former` are replaced or taken out. Other
/// hubs that are advertised besides stay.
pub fn advertise(
    list: &[u8],
    wanted: &Advertisement,
    former: &BTreeSet<Hub>,
) -> Result<Option<Vec<u8>>, Unpatchable> {
    let before = capability_list(list)?;
    if advertises(&before, wanted, former) {
        return Ok(None);
    }
    let Detected { encoding, mark, .. } = detect(list);
    let (mark, rest) = list.split_at(mark);
    let text = decoded(rest, encoding)?;
    let root = layout(&text).ok_or(Unpatchable::Markup)?;
    let edits = match standing(&root, wanted) {
        Some(entry) => completion(&text, entry, wanted, former),
        None => addition(&text, &root, wanted).into_iter().collect(),
    };
    let edited = edited(&text, edits);
    // Characters that the encoding does not have become references: they stand in text and in values only.
    let bytes = [mark, &encoding.encode(&edited).0[..]].concat();
    // The parser has the last word, whatever the markup is like.
    let after = capability_list(&bytes).map_err(|_| Unpatchable::Markup)?;
    if advertises(&after, wanted, former) && is_same_otherwise(before, after, wanted) {
        Ok(Some(bytes))
    } else {
        Err(Unpatchable::Markup)
    }
}

fn capability_list(list: &[u8]) -> Result<Document, Unpatchable> {
    match parse(list)? {
        Content::Document(parsed)
            if parsed.document.capability == Capability::CapabilityList
                && parsed.document.form == Form::List =>
        {
            Ok(parsed.document)
        }
        _ => Err(Unpatchable::Other),
    }
}

fn advertises(list: &Document, wanted: &Advertisement, former: &BTreeSet<Hub>) -> bool {
    let mut channels = list.channels.iter();
    channels.any(|own| {
        own.topic == wanted.topic
            && wanted.hubs.iter().all(|hub| own.hubs.contains(hub))
            && !own.hubs.iter().any(|hub| former.contains(hub))
    })
}

/// Whether two versions differ in nothing but their channels. An entry that did not say yet that it is one
/// was a member.
fn is_same_otherwise(before: Document, after: Document, wanted: &Advertisement) -> bool {
    let topic = Uri::parse(wanted.topic.as_str()).ok();
    let otherwise = |list: Document| Document {
        channels: Vec::new(),
        // The topic itself may have been one.
        relative: None,
        members: list
            .members
            .into_iter()
            .filter(|member| Some(member) != topic.as_ref())
            .collect(),
        ..list
    };
    otherwise(before) == otherwise(after)
}

/// The text of which `encoding` makes the same bytes again.
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

/// The entry that advertises the channel, or was meant to: of several the one with this topic, else the first
/// that names one, since that is the one which counts.
fn standing<'a>(root: &'a Element, wanted: &Advertisement) -> Option<&'a Element> {
    let entries = || root.children_of_kind(outline::Element::Entry);
    let advertisements = || entries().filter(|entry| notification(entry).is_some());
    let has_topic =
        |entry: &&Element| loc(entry).is_some_and(|loc| loc.text.trim() == wanted.topic.as_str());
    let says_nothing = |entry: &&Element| {
        let mut descriptions = entry.children_of_kind(outline::Element::Md);
        descriptions.all(|md| md.value("capability").unwrap_or_default().is_empty())
    };
    advertisements()
        .find(has_topic)
        .or_else(|| advertisements().find(|entry| loc(entry).is_some()))
        .or_else(|| advertisements().next())
        .or_else(|| entries().filter(has_topic).find(says_nothing))
}

/// The `rs:md` that says that an entry advertises a channel.
fn notification(entry: &Element) -> Option<&Element> {
    entry
        .children_of_kind(outline::Element::Md)
        .find(|md| md.value("capability") == Some(NOTIFICATION))
}

/// The `loc` that counts: the first that says anything.
fn loc(entry: &Element) -> Option<&Element> {
    entry
        .children_of_kind(outline::Element::Loc)
        .find(|loc| !loc.text.trim().is_empty())
}

/// The hub that an `rs:ln` names.
fn hub(ln: &Element) -> Option<&str> {
    outline::holds(ln.value("rel")?, "hub").then(|| ln.value("href"))?
}

/// What takes the place of a part of the text.
type Edit = (Range<usize>, String);

fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    // What goes to the same place stays in order.
    edits.sort_by_key(|(place, _)| place.start);
    let mut edited = String::with_capacity(text.len() + 1024);
    let mut end = 0;
    for (place, new) in edits {
        // What is added within what is taken out stays.
        edited.push_str(&text[end..place.start.max(end)]);
        edited.push_str(&new);
        end = place.end.max(end);
    }
    edited.push_str(&text[end..]);
    edited
}

/// What an entry lacks. Section 5 has the hubs before the description, sitemaps have `loc` first.
fn completion(
    text: &str,
    entry: &Element,
    wanted: &Advertisement,
    former: &BTreeSet<Hub>,
) -> Vec<Edit> {
    let (Some(first), Some(last)) = (entry.children.first(), entry.children.last()) else {
        return Vec::new();
    };
    let style = Style {
        sitemap: &entry.prefix,
        rs: entry.rs.as_deref().unwrap_or("rs:"),
        declaration: declaration(entry),
        child: "",
        close: "",
    };
    let before = |place: &Element, new: String| {
        let start = place.span.start;
        (start..start, new + line_before(text, start))
    };
    let after = |place: &Element, new: String| {
        let end = place.span.end;
        (
            end..end,
            line_before(text, place.span.start).to_owned() + &new,
        )
    };
    let mut edits = Vec::new();
    let topic = escaped(wanted.topic.as_str());
    match (
        loc(entry),
        entry.children_of_kind(outline::Element::Loc).next(),
    ) {
        (Some(loc), _) if loc.text.trim() == wanted.topic.as_str() => {}
        (Some(loc), _) => edits.extend(loc.text_span.clone().map(|place| (place, topic))),
        (None, Some(loc)) if text[loc.span.clone()].ends_with("/>") => {
            let slash = loc.span.end - 2..loc.span.end;
            edits.push((slash, format!(">{topic}</{}loc>", loc.prefix)));
        }
        (None, Some(loc)) => edits.push((loc.content.start..loc.content.start, topic)),
        (None, None) => edits.push(before(first, style.loc(wanted))),
    }
    let links = || {
        entry
            .children_of_kind(outline::Element::Ln)
            .filter(|ln| hub(ln).is_some())
    };
    let mut lacking = wanted.hubs.iter().filter(|wanted| {
        let mut hubs = links().filter_map(hub);
        !hubs.any(|hub| hub == wanted.as_str())
    });
    let is_former = |link: &&Element| {
        let named = hub(link).map(Hub::new);
        named.is_some_and(|named| former.contains(&named))
    };
    for link in links().filter(is_former) {
        match lacking.next() {
            Some(hub) => edits.push((link.span.clone(), style.hub(hub))),
            None => {
                let start = link.span.start - line_before(text, link.span.start).len();
                edits.push((start..link.span.end, String::new()));
            }
        }
    }
    let description = notification(entry);
    let link = links()
        .filter(|link| !is_former(link))
        .last()
        .or(links().last());
    edits.extend(lacking.map(|hub| match (link, description) {
        (Some(link), _) => after(link, style.hub(hub)),
        (None, Some(description)) => before(description, style.hub(hub)),
        (None, None) => after(last, style.hub(hub)),
    }));
    if description.is_none() {
        edits.push(after(last, style.description()));
    }
    edits
}

/// A new entry behind the last one, in the same manner; without one, behind what the root has, in its manner.
fn addition(text: &str, root: &Element, wanted: &Advertisement) -> Option<Edit> {
    let model = root.children_of_kind(outline::Element::Entry).last();
    let last = model.or(root.children.last())?;
    let (start, end) = (last.span.start, last.span.end);
    let line = line_before(text, start);
    let indented = match line.starts_with(['\r', '\n']) {
        true => format!("{line}{}", line.trim_start_matches(['\r', '\n'])),
        false => String::new(),
    };
    let (child, close) = match model.and_then(|model| Some((model, model.children.first()?))) {
        Some((model, first)) => (
            line_before(text, first.span.start),
            line_before(text, model.content.end),
        ),
        None if indented.is_empty() => ("", ""),
        None => (&*indented, line),
    };
    let style = Style {
        sitemap: &root.prefix,
        rs: root.rs.as_deref().unwrap_or("rs:"),
        declaration: declaration(root),
        child,
        close,
    };
    let entry = style.entry(wanted);
    Some((end..end, format!("{}{entry}", space_before(text, start))))
}

/// The white space that ends at a place.
fn space_before(text: &str, place: usize) -> &str {
    let start = text[..place]
        .trim_end_matches([' ', '\t', '\r', '\n'])
        .len();
    &text[start..place]
}

/// The white space that ends at a place, from the last line break on if there is one.
fn line_before(text: &str, place: usize) -> &str {
    let space = space_before(text, place);
    match space.rfind(['\r', '\n']) {
        Some(end) if space[..=end].ends_with("\r\n") => &space[end - 1..],
        Some(end) => &space[end..],
        None => space,
    }
}
