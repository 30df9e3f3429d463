//! How an entry is written at a place in somebody else's document.

use crate::resourcesync::advertise::layout::Element;
use crate::resourcesync::document::Advertisement;
use crate::resourcesync::namespaces::RS;
use crate::resourcesync::payload::{NOTIFICATION, write_attribute, write_escaped};
use crate::resourcesync::uri::Hub;

/// How elements are written at a place.
pub(super) struct Style<'a> {
    /// What goes before a name of the sitemap namespace, and before one of the ResourceSync terms.
    pub(super) sitemap: &'a str,
    pub(super) rs: &'a str,
    /// The attribute that declares the latter, if it has not been declared.
    pub(super) declaration: String,
    /// The white space before each child of an entry, and before its end tag.
    pub(super) child: &'a str,
    pub(super) close: &'a str,
}

impl Style<'_> {
    pub(super) fn entry(&self, wanted: &Advertisement) -> String {
        let Style {
            sitemap,
            child,
            close,
            ..
        } = self;
        let within = Style {
            declaration: String::new(),
            ..*self
        };
        let hubs: String = wanted
            .hubs
            .iter()
            .map(|hub| format!("{child}{}", within.hub(hub)))
            .collect();
        format!(
            "<{sitemap}url{}>{child}{}{hubs}{child}{}{close}</{sitemap}url>",
            self.declaration,
            within.loc(wanted),
            within.description(),
        )
    }

    pub(super) fn loc(&self, wanted: &Advertisement) -> String {
        let name = format!("{}loc", self.sitemap);
        format!("<{name}>{}</{name}>", escaped(wanted.topic.as_str()))
    }

    pub(super) fn hub(&self, hub: &Hub) -> String {
        self.term("ln", &[("rel", "hub"), ("href", hub.as_str())])
    }

    pub(super) fn description(&self) -> String {
        self.term("md", &[("capability", NOTIFICATION)])
    }

    fn term(&self, name: &str, attributes: &[(&str, &str)]) -> String {
        let mut xml = format!("<{}{name}{}", self.rs, self.declaration);
        for (name, value) in attributes {
            write_attribute(&mut xml, name, value);
        }
        xml + "/>"
    }
}

pub(super) fn escaped(text: &str) -> String {
    let mut xml = String::new();
    write_escaped(&mut xml, text);
    xml
}

/// What makes names of the ResourceSync terms possible within an element.
pub(super) fn declaration(element: &Element) -> String {
    match element.rs {
        Some(_) => String::new(),
        None => format!(" xmlns:rs=\"{RS}\""),
    }
}
