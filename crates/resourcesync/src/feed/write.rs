//! A content change message as Atom (RFC 4287).

use crate::writer::{write_attribute, write_escaped};

use crate::feed::{
    AFTER_SCHEME, ATOM, BEFORE_SCHEME, CHANGE_SCHEME, CHANGES, FORMAT_SCHEME, Feed, ItemChange,
    SERVER_SCHEME, TYPE_SCHEME, change_term,
};

impl Feed {
    /// Returns the message as it is sent. Characters that XML cannot hold are percent-encoded.
    pub fn render(&self) -> Vec<u8> {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed");
        write_attribute(&mut xml, "xmlns", ATOM);
        write_attribute(&mut xml, "xmlns:changes", CHANGES);
        xml.push_str(">\n");
        for (scheme, term) in [(SERVER_SCHEME, &self.server), (FORMAT_SCHEME, &self.format)] {
            if let Some(term) = term {
                write_type(&mut xml, scheme, term);
            }
        }
        write_author(&mut xml, "  ", &self.author);
        write_text(&mut xml, "  ", "title", &self.title);
        write_element(&mut xml, "  ", "updated", &self.updated.to_string());
        write_link(&mut xml, "  ", "via", &self.object);
        if let Some(parent) = &self.parent {
            write_link(&mut xml, "  ", "related", parent);
        }
        for term in &self.types {
            write_type(&mut xml, TYPE_SCHEME, term);
        }
        write_element(&mut xml, "  ", "id", &self.id);
        for item in &self.items {
            write_entry(&mut xml, item);
        }
        xml.push_str("</feed>\n");
        xml.into_bytes()
    }
}

fn write_entry(xml: &mut String, item: &ItemChange) {
    const INDENT: &str = "    ";
    xml.push_str("  <entry>\n");
    write_author(xml, INDENT, &item.author);
    write_element(xml, INDENT, "id", &item.id);
    write_text(xml, INDENT, "title", &item.title);
    write_element(xml, INDENT, "updated", &item.updated.to_string());
    match &item.content {
        Some(content) => {
            xml.push_str(INDENT);
            xml.push_str("<content");
            if let Some(media_type) = &content.media_type {
                write_attribute(xml, "type", media_type);
            }
            write_attribute(xml, "src", &content.src);
            xml.push_str("/>\n");
        }
        // RFC 4287 section 4.1.2: an entry without content has an alternate.
        None => write_link(xml, INDENT, "alternate", &item.item),
    }
    write_link(xml, INDENT, "via", &item.item);
    write_text(xml, INDENT, "summary", &item.summary);
    let change = item.change.map(change_term);
    for (scheme, term) in [
        (BEFORE_SCHEME, item.state_before.as_deref()),
        (AFTER_SCHEME, item.state_after.as_deref()),
        (CHANGE_SCHEME, change),
    ] {
        if let Some(term) = term {
            write_open(xml, INDENT, "category");
            write_attribute(xml, "scheme", scheme);
            write_attribute(xml, "term", term);
            xml.push_str("/>\n");
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

/// Writes a text construct (RFC 4287 section 3.1).
fn write_text(xml: &mut String, indent: &str, name: &str, text: &str) {
    write_open(xml, indent, name);
    write_attribute(xml, "type", "text");
    xml.push('>');
    write_escaped(xml, text);
    write_close(xml, name);
}

fn write_element(xml: &mut String, indent: &str, name: &str, text: &str) {
    write_open(xml, indent, name);
    xml.push('>');
    write_escaped(xml, text);
    write_close(xml, name);
}

fn write_open(xml: &mut String, indent: &str, name: &str) {
    xml.push_str(indent);
    xml.push('<');
    xml.push_str(name);
}

fn write_close(xml: &mut String, name: &str) {
    xml.push_str("</");
    xml.push_str(name);
    xml.push_str(">\n");
}

fn write_link(xml: &mut String, indent: &str, relation: &str, href: &str) {
    write_open(xml, indent, "link");
    write_attribute(xml, "rel", relation);
    write_attribute(xml, "href", href);
    xml.push_str("/>\n");
}

/// Writes a category of the feed. Its attributes come in another order than those of an entry's, as in the messages that
/// consumers know.
fn write_type(xml: &mut String, scheme: &str, term: &str) {
    write_open(xml, "  ", "category");
    write_attribute(xml, "term", term);
    write_attribute(xml, "scheme", scheme);
    xml.push_str("/>\n");
}
