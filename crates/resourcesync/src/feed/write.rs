//! A content change message as Atom (RFC 4287).

use crate::writer::{write_attribute, write_escaped};

use crate::feed::{
    AFTER_SCHEME, ATOM, BEFORE_SCHEME, CHANGE_SCHEME, CHANGES, ContentChangeMessage,
    ContentLocation, FORMAT_SCHEME, ItemChange, SERVER_SCHEME, TYPE_SCHEME, change_term,
};

/// The type of a text construct (RFC 4287 section 3.1).
const TEXT: (&str, &str) = ("type", "text");

impl ContentChangeMessage {
    /// Returns the message as it is sent. Characters that XML cannot hold are percent-encoded.
    pub fn render(&self) -> Vec<u8> {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed");
        write_attribute(&mut xml, "xmlns", ATOM);
        write_attribute(&mut xml, "xmlns:changes", CHANGES);
        xml.push_str(">\n");
        for (scheme, term) in [(SERVER_SCHEME, &self.server), (FORMAT_SCHEME, &self.format)] {
            if let Some(term) = term {
                write_feed_category(&mut xml, scheme, term);
            }
        }
        write_author(&mut xml, "  ", &self.author);
        write_text(&mut xml, "  <title", &[TEXT], &self.title);
        write_text(&mut xml, "  <updated", &[], &self.updated.to_string());
        write_empty(
            &mut xml,
            "  <link",
            &[("rel", "via"), ("href", &self.object)],
        );
        if let Some(parent) = &self.parent {
            write_empty(&mut xml, "  <link", &[("rel", "related"), ("href", parent)]);
        }
        for term in &self.types {
            write_feed_category(&mut xml, TYPE_SCHEME, term);
        }
        write_text(&mut xml, "  <id", &[], &self.id);
        for item in &self.items {
            write_entry(&mut xml, item);
        }
        xml.push_str("</feed>\n");
        xml.into_bytes()
    }
}

fn write_entry(xml: &mut String, item: &ItemChange) {
    let link = |relation| [("rel", relation), ("href", &*item.item)];
    xml.push_str("  <entry>\n");
    write_author(xml, "    ", &item.author);
    write_text(xml, "    <id", &[], &item.id);
    write_text(xml, "    <title", &[TEXT], &item.title);
    write_text(xml, "    <updated", &[], &item.updated.to_string());
    match &item.content {
        Some(ContentLocation { src, media_type }) => {
            let media_type = media_type.as_deref().map(|media_type| ("type", media_type));
            let attributes = media_type.into_iter().chain([("src", &**src)]);
            write_empty(xml, "    <content", &attributes.collect::<Vec<_>>());
        }
        // RFC 4287 section 4.1.2: an entry without content has an alternate.
        None => write_empty(xml, "    <link", &link("alternate")),
    }
    write_empty(xml, "    <link", &link("via"));
    write_text(xml, "    <summary", &[TEXT], &item.summary);
    for (scheme, term) in [
        (BEFORE_SCHEME, item.state_before.as_deref()),
        (AFTER_SCHEME, item.state_after.as_deref()),
        (CHANGE_SCHEME, item.change.map(change_term)),
    ] {
        if let Some(term) = term {
            write_empty(xml, "    <category", &[("scheme", scheme), ("term", term)]);
        }
    }
    xml.push_str("  </entry>\n");
}

fn write_author(xml: &mut String, indent: &str, name: &str) {
    xml.push_str(indent);
    xml.push_str("<author><name>");
    write_escaped(xml, name);
    xml.push_str("</name></author>\n");
}

/// Writes a category of the feed. Its attributes come in another order than those of an entry's, as in the messages that
/// consumers know.
fn write_feed_category(xml: &mut String, scheme: &str, term: &str) {
    write_empty(xml, "  <category", &[("term", term), ("scheme", scheme)]);
}

/// Writes an element with a text. `start` is its indentation and the start of its tag.
fn write_text(xml: &mut String, start: &str, attributes: &[(&str, &str)], text: &str) {
    write_start(xml, start, attributes);
    xml.push('>');
    write_escaped(xml, text);
    xml.push_str("</");
    xml.push_str(start.trim_start_matches([' ', '<']));
    xml.push_str(">\n");
}

/// Writes an element without content.
fn write_empty(xml: &mut String, start: &str, attributes: &[(&str, &str)]) {
    write_start(xml, start, attributes);
    xml.push_str("/>\n");
}

fn write_start(xml: &mut String, start: &str, attributes: &[(&str, &str)]) {
    xml.push_str(start);
    for (name, value) in attributes {
        write_attribute(xml, name, value);
    }
}
