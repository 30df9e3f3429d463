//! The elements of an entry, written with the prefixes that are declared at a position in a document of others.

use crate::advertise::layout::Node;
use crate::document::Advertisement;
use crate::namespaces::RS;
use crate::uri::Hub;
use crate::writer::{write_attribute, write_escaped};

/// Prefixes at a position, with the colon.
pub(super) struct NamespacePrefixes<'a> {
    sitemap: &'a str,
    terms: &'a str,
    /// False if an element that uses the terms has to declare them.
    are_declared: bool,
}

impl<'a> NamespacePrefixes<'a> {
    /// Returns the prefixes that are declared within an element of the sitemap namespace.
    pub(super) fn within(node: &'a Node) -> NamespacePrefixes<'a> {
        NamespacePrefixes {
            sitemap: &node.prefix,
            terms: node.terms.as_deref().unwrap_or("rs:"),
            are_declared: node.terms.is_some(),
        }
    }

    /// Returns the prefixes that the specification uses.
    pub(super) fn usual() -> NamespacePrefixes<'a> {
        NamespacePrefixes {
            sitemap: "",
            terms: "rs:",
            are_declared: true,
        }
    }

    /// Returns an entry with `line` before its end tag and `child` before each of its children.
    pub(super) fn entry(&self, wanted: &Advertisement, line: &str, child: &str) -> String {
        let within = NamespacePrefixes {
            are_declared: true,
            ..*self
        };
        let mut children = vec![within.loc(wanted)];
        children.extend(wanted.hubs.iter().map(|hub| within.hub(hub)));
        children.push(within.description(wanted));
        let children: String = children.iter().map(|xml| format!("{child}{xml}")).collect();
        let end = if child.is_empty() { "" } else { line };
        let name = format!("{}url", self.sitemap);
        format!("<{name}{}>{children}{end}</{name}>", self.declaration())
    }

    pub(super) fn loc(&self, wanted: &Advertisement) -> String {
        let name = format!("{}loc", self.sitemap);
        let mut xml = format!("<{name}>");
        write_escaped(&mut xml, wanted.topic.as_str());
        xml + &format!("</{name}>")
    }

    pub(super) fn hub(&self, hub: &Hub) -> String {
        self.term("ln", &[("rel", "hub"), ("href", hub.as_str())])
    }

    pub(super) fn description(&self, wanted: &Advertisement) -> String {
        self.term("md", &[("capability", wanted.kind.capability())])
    }

    fn term(&self, name: &str, attributes: &[(&str, &str)]) -> String {
        let mut xml = format!("<{}{name}{}", self.terms, self.declaration());
        for (name, value) in attributes {
            write_attribute(&mut xml, name, value);
        }
        xml + "/>"
    }

    fn declaration(&self) -> String {
        if self.are_declared {
            String::new()
        } else {
            format!(" xmlns:rs=\"{RS}\"")
        }
    }
}
