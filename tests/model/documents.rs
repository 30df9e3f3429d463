//! The documents that the model writes: two sets with an index each, one document that either may list, and
//! a Source Description.

use crate::world::{Doc, capability_list, index, list};

pub const DESCRIPTION: &str = "/.well-known/resourcesync";
pub const SHARED: &str = "/shared.xml";
pub const SETS: [&str; 2] = ["/a", "/b"];

pub const DOCUMENTS: [&str; 16] = [
    "/a/capabilitylist.xml",
    "/b/capabilitylist.xml",
    "/a/resourcelist.xml",
    "/b/resourcelist.xml",
    "/a/changelist.xml",
    "/b/changelist.xml",
    "/a/index.xml",
    "/b/index.xml",
    "/a/linked.xml",
    "/b/linked.xml",
    "/a/more.xml",
    "/b/more.xml",
    "/a/listed.xml",
    "/b/listed.xml",
    SHARED,
    DESCRIPTION,
];

/// The set that a document lies in.
pub fn set_of(name: &str) -> Option<&'static str> {
    SETS.into_iter()
        .find(|set| name.starts_with(&format!("{set}/")))
}

pub fn capability_list_of(set: &str) -> String {
    format!("{set}/capabilitylist.xml")
}

pub fn is_capability_list(name: &str) -> bool {
    name.ends_with("/capabilitylist.xml")
}

pub fn is_index(name: &str) -> bool {
    name.ends_with("/index.xml")
}

/// Returns true for a component of its set's index.
pub fn is_component(name: &str) -> bool {
    is_linked(name) || name.ends_with("/listed.xml")
}

/// Returns true for a component that links to its set's index, and that the index always lists.
pub fn is_linked(name: &str) -> bool {
    name.ends_with("/linked.xml") || name.ends_with("/more.xml")
}

/// A document in one of its shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub version: u32,
    pub capability: &'static str,
    /// True if it names the one document that it may name or not: the shared one in a Capability List, the
    /// component without a link in an index.
    pub names_it: bool,
    /// True for a Capability List that does not name its set's Resource List.
    pub forgets: bool,
}

pub fn content(name: &str, version: u32, shape: u8) -> Content {
    let is_odd = shape % 2 == 1;
    let capability = match name {
        DESCRIPTION => "description",
        name if is_capability_list(name) => "capabilitylist",
        name if name.ends_with("/resourcelist.xml") && shape & 4 == 4 => "resourcedump",
        name if name.ends_with("/resourcelist.xml") => "resourcelist",
        name if name.ends_with("/changelist.xml") && shape & 6 == 6 => "changedump",
        _ => "changelist",
    };
    Content {
        version,
        capability,
        names_it: is_odd && (is_capability_list(name) || is_index(name)),
        forgets: shape & 2 == 2 && is_capability_list(name),
    }
}

pub fn doc(name: &str, content: &Content) -> Doc {
    let Some(set) = set_of(name) else {
        return list(content.capability).version(content.version);
    };
    let up = capability_list_of(set);
    let (linked, listed) = (format!("{set}/linked.xml"), format!("{set}/listed.xml"));
    let more = format!("{set}/more.xml");
    let index_name = format!("{set}/index.xml");
    let doc = if is_capability_list(name) {
        let names = ["changelist", "resourcelist"];
        let named = if content.forgets { 1 } else { 2 };
        let doc = capability_list(set, &names[..named]).lists(&[&index_name]);
        match content.names_it {
            true => doc.lists(&[SHARED]),
            false => doc,
        }
    } else if is_index(name) {
        let doc = index("changelist").up(&up).lists(&[&linked, &more]);
        match content.names_it {
            true => doc.lists(&[&listed]),
            false => doc,
        }
    } else if is_linked(name) {
        list("changelist").index(&index_name)
    } else if name == listed {
        list("changelist")
    } else {
        list(content.capability).up(&up)
    };
    doc.version(content.version)
}
