//! Reading of a document, its fingerprint and, of a Change List, the keys of its entries, in one pass (C6).

use std::io::Read;

use crate::change_list::{KeysHandler, ListedChanges};
use crate::document::Content;
use crate::namespaces::{Namespace, Namespaces};
use crate::parse::{DocumentHandler, ReadError, read};
use crate::reader::{Element, Handler, Start};

/// Entries of the longest list whose keys are kept in memory; the protocol permits 50,000.
pub const MAX_ENTRIES: usize = 1 << 16;

/// Reads a file as [`parse`](crate::parse::parse) does, and returns the keys too, as
/// [`read_keys`](crate::change_list::read_keys) does, if it is a Change List that says so before its first
/// entry and has [`MAX_ENTRIES`] at most.
///
/// # Errors
///
/// As [`parse`](crate::parse::parse).
pub fn parse_with_keys(source: impl Read) -> Result<(Content, Option<ListedChanges>), ReadError> {
    let handler = KeyedDocumentHandler {
        document: DocumentHandler::new(),
        keys: Some(KeysHandler::default()),
    };
    Ok(match read(source, handler)? {
        Ok((handler, size)) => {
            let keys = handler.keys.filter(KeysHandler::is_of_change_list);
            let content = handler.document.conclude(size);
            (content, keys.map(KeysHandler::conclude))
        }
        Err(other) => (Content::Other(other), None),
    })
}

#[derive(Debug)]
struct KeyedDocumentHandler {
    document: DocumentHandler,
    /// `None` once they are not wanted.
    keys: Option<KeysHandler>,
}

impl Handler for KeyedDocumentHandler {
    fn start(&mut self, start: &Start<'_>) {
        self.document.start(start);
        let is_entry = (start.depth, start.element) == (1, Element::Entry);
        if let Some(keys) = &mut self.keys {
            if is_entry && !(keys.is_of_change_list() && keys.count() < MAX_ENTRIES) {
                self.keys = None;
                return;
            }
            keys.start(start);
        }
    }

    fn attribute(
        &mut self,
        namespaces: &Namespaces,
        namespace: Namespace,
        local: &str,
        value: &str,
    ) {
        self.document.attribute(namespaces, namespace, local, value);
    }

    fn text(&mut self, depth: usize, element: Element, text: &str) {
        self.document.text(depth, element, text);
        if let Some(keys) = &mut self.keys {
            keys.text(depth, element, text);
        }
    }

    fn end(&mut self, depth: usize, left: usize) {
        self.document.end(depth, left);
        if let Some(keys) = &mut self.keys {
            keys.end(depth, left);
        }
    }

    fn window_end(&mut self, line: &dyn Fn(usize) -> u64, end: u64) {
        if let Some(keys) = &mut self.keys {
            keys.window_end(line, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_ENTRIES, parse_with_keys};
    use crate::change_list::read_keys;
    use crate::parse::parse;

    fn list(head: &str, entries: &str, tail: &str) -> String {
        format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:rs='http://www.openarchives.org/rs/terms/'>{head}{entries}{tail}</urlset>"
        )
    }

    fn entries(count: usize) -> String {
        let entry = |number| {
            format!("\n<url><loc>https://e.org/{number}</loc><rs:md change='updated'/></url><url/>")
        };
        (0..count).map(entry).collect()
    }

    const CHANGE_LIST: &str = "<rs:md capability='changelist'/>";

    /// Long enough for several windows.
    #[test]
    fn document_and_keys_are_those_of_passes_of_their_own() {
        let list = list(CHANGE_LIST, &entries(5_000), "");
        let (content, keys) = parse_with_keys(list.as_bytes()).unwrap();
        assert_eq!(content, parse(list.as_bytes()).unwrap());
        assert_eq!(keys, Some(read_keys(list.as_bytes()).unwrap()));
    }

    #[test]
    fn other_documents_have_no_keys() {
        let other = CHANGE_LIST.replace("changelist", "resourcelist");
        for other in [
            list(&other, &entries(2), ""),
            list("", &entries(2), CHANGE_LIST),
            list("", &entries(2), ""),
            list(CHANGE_LIST, "", "").replace("urlset", "sitemapindex"),
            "text".to_owned(),
        ] {
            let (content, keys) = parse_with_keys(other.as_bytes()).unwrap();
            assert_eq!(content, parse(other.as_bytes()).unwrap());
            assert_eq!(keys, None, "{other}");
        }
    }

    #[test]
    fn keys_of_a_list_that_is_too_long_are_not_kept() {
        let keys = |count| {
            let list = list(CHANGE_LIST, &entries(count), "");
            let (_, keys) = parse_with_keys(list.as_bytes()).unwrap();
            keys.map(|keys| keys.entries.len())
        };
        // The last `url` of each pair does not count, and comes after an entry that does.
        assert_eq!(keys(MAX_ENTRIES - 1), Some(MAX_ENTRIES - 1));
        assert_eq!(keys(MAX_ENTRIES), None);
    }
}
