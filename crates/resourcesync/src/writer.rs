//! Documents and notifications as text, with the prefix and indentation of the examples in the specification (core 1.1
//! section 6).

use std::borrow::Cow;
use std::io::{self, Write};

use crate::document::Form;
use crate::listing::{ListedEntry, Listing, link_attributes};
use crate::markup::is_allowed;
use crate::tag::{RS, SITEMAP};

/// Name and value of an attribute; without a value it is left out.
pub(crate) type WrittenAttribute<'a> = (&'a str, Option<Cow<'a, str>>);

/// Writes a document one entry after the other, so that no list needs to fit into memory.
///
/// ```
/// use resourcesync::document::Form;
/// use resourcesync::listing::{ListedEntry, Listing};
/// use resourcesync::writer::DocumentWriter;
///
/// let mut root = Listing::new(Form::List);
/// root.capability = Some("resourcelist".to_owned());
/// root.at = Some("2026-11-20T09:00:00Z".to_owned());
/// let mut list = DocumentWriter::new(Vec::new(), &root)?;
/// for name in ["elbe", "oder"] {
///     list.write(&ListedEntry {
///         loc: Some(format!("https://example.org/rivers/{name}")),
///         ..ListedEntry::default()
///     })?;
/// }
/// let list = String::from_utf8(list.finish()?)?;
/// assert!(list.ends_with("    <loc>https://example.org/rivers/oder</loc>\n  </url>\n</urlset>\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DocumentWriter<W> {
    sink: W,
    form: Form,
    /// Room for what is written next.
    xml: String,
}

impl<W: Write> DocumentWriter<W> {
    /// Begins a document with everything of `root` but its entries. It is in UTF-8.
    ///
    /// # Errors
    ///
    /// If the sink fails.
    pub fn new(sink: W, root: &Listing) -> io::Result<DocumentWriter<W>> {
        let (form, links) = (root.form, link_attributes(&root.links));
        let mut xml = String::new();
        write_head(&mut xml, form, links, &root.md_attributes());
        let mut writer = DocumentWriter { sink, form, xml };
        writer.flush()?;
        Ok(writer)
    }

    /// Writes an entry. The Sitemap protocol permits [`MAX_ENTRIES`](crate::document::MAX_ENTRIES) and
    /// [`MAX_SIZE`](crate::document::MAX_SIZE), which the caller counts.
    ///
    /// # Errors
    ///
    /// If the sink fails.
    pub fn write(&mut self, entry: &ListedEntry) -> io::Result<()> {
        let links = link_attributes(&entry.links);
        let elements = [
            ("loc", entry.loc.as_deref()),
            ("lastmod", entry.lastmod.as_deref()),
            ("changefreq", entry.changefreq.as_deref()),
        ];
        let description = entry.md_attributes();
        write_entry(&mut self.xml, self.form, elements, &description, links);
        self.flush()
    }

    /// Ends the document. Without this call it is not well-formed, so that no reader takes it for complete.
    ///
    /// # Errors
    ///
    /// If the sink fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.xml.extend(["</", self.form.root(), ">\n"]);
        self.flush()?;
        Ok(self.sink)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.write_all(self.xml.as_bytes())?;
        self.xml.clear();
        Ok(())
    }
}

/// Writes the start of a document, up to its first entry.
pub(crate) fn write_head<'a>(
    xml: &mut String,
    form: Form,
    links: impl IntoIterator<Item = impl AsRef<[WrittenAttribute<'a>]>>,
    description: &[WrittenAttribute<'_>],
) {
    xml.extend(["<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<", form.root()]);
    write_attribute(xml, "xmlns", SITEMAP);
    write_attribute(xml, "xmlns:rs", RS);
    xml.push_str(">\n");
    // R20: both come before the first entry, since the reference reader fails otherwise.
    for link in links {
        write_term(xml, "  <rs:ln", link.as_ref());
    }
    write_term(xml, "  <rs:md", description);
}

/// Writes an entry with its elements of the sitemap namespace, its description and its links.
pub(crate) fn write_entry<'a>(
    xml: &mut String,
    form: Form,
    elements: impl IntoIterator<Item = (&'static str, Option<&'a str>)>,
    description: &[WrittenAttribute<'_>],
    links: impl IntoIterator<Item = impl AsRef<[WrittenAttribute<'a>]>>,
) {
    let (start, end) = match form {
        Form::List => ("  <url>\n", "  </url>\n"),
        Form::Index => ("  <sitemap>\n", "  </sitemap>\n"),
    };
    xml.push_str(start);
    for (name, text) in elements {
        if let Some(text) = text {
            xml.extend(["    <", name, ">"]);
            write_escaped(xml, text);
            xml.extend(["</", name, ">\n"]);
        }
    }
    write_term(xml, "    <rs:md", description);
    for link in links {
        write_link(xml, link.as_ref());
    }
    xml.push_str(end);
}

/// Writes a link of an entry.
pub(crate) fn write_link(xml: &mut String, attributes: &[WrittenAttribute<'_>]) {
    write_term(xml, "    <rs:ln", attributes);
}

/// Writes an element that is empty, unless it has no attributes.
pub(crate) fn write_term(xml: &mut String, start: &str, attributes: &[WrittenAttribute<'_>]) {
    let before = xml.len();
    xml.push_str(start);
    let start = xml.len();
    for (name, value) in attributes {
        if let Some(value) = value {
            write_attribute(xml, name, value);
        }
    }
    if xml.len() == start {
        xml.truncate(before);
    } else {
        xml.push_str("/>\n");
    }
}

/// Returns the attributes of a link.
pub(crate) fn rel_and_href<'a>(rel: &'a str, href: &'a str) -> [WrittenAttribute<'a>; 2] {
    [("rel", Some(rel.into())), ("href", Some(href.into()))]
}

/// Writes an attribute, with the space before it.
pub(crate) fn write_attribute(xml: &mut String, name: &str, value: &str) {
    xml.extend([" ", name, "=\""]);
    write_escaped(xml, value);
    xml.push('"');
}

/// Writes a text so that it reads back the same, in an element as in an attribute. Characters that XML cannot hold are
/// percent-encoded.
pub(crate) fn write_escaped(xml: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\t' => xml.push_str("&#9;"),
            '\n' => xml.push_str("&#10;"),
            '\r' => xml.push_str("&#13;"),
            character if is_allowed(character) => xml.push(character),
            character => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    xml.push_str(&format!("%{byte:02X}"));
                }
            }
        }
    }
}

/// Returns the length of what a function writes.
pub(crate) fn written_len(write: impl FnOnce(&mut String)) -> usize {
    let mut xml = String::new();
    write(&mut xml);
    xml.len()
}
