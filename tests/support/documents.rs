//! ResourceSync documents as a generator would write them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// URI prefix of the tree.
pub const URL: &str = "https://source.example/";

/// A published tree in a temporary directory.
pub struct Site {
    pub root: TempDir,
}

impl Site {
    /// One set, `a/`, with a Capability List, a Resource List and a Change List, and a Source Description.
    pub fn new() -> Site {
        let site = Site::empty();
        site.add_set("a");
        site.write_description(&["a"]);
        site
    }

    pub fn empty() -> Site {
        Site {
            root: TempDir::new().unwrap(),
        }
    }

    pub fn add_set(&self, set: &str) {
        self.write_list(set, "resourcelist", "1");
        self.write_list(set, "changelist", "1");
        self.write_capability_list(set, &["resourcelist", "changelist"]);
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// Writes as most software should: to a temporary name, then renamed into place.
    pub fn write(&self, below: &str, content: &str) {
        replace(&self.path(below), content);
    }

    /// Writes the document of a set that has this capability, and its name.
    pub fn write_list(&self, set: &str, capability: &str, content: &str) {
        let path = format!("{set}/{capability}.xml");
        self.write(&path, &list(set, capability, content));
    }

    pub fn write_capability_list(&self, set: &str, capabilities: &[&str]) {
        let path = format!("{set}/capabilitylist.xml");
        self.write(&path, &capability_list(set, capabilities));
    }

    pub fn write_description(&self, sets: &[&str]) {
        self.write(".well-known/resourcesync", &description(sets));
    }

    /// Writes as most software does: truncating what is there.
    pub fn write_in_place(&self, below: &str, content: &str) {
        fs::write(self.path(below), content).unwrap();
    }

    pub fn remove(&self, below: &str) {
        fs::remove_file(self.path(below)).unwrap();
    }
}

/// Writes a file beside `path` and renames it over it.
pub fn replace(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let temporary = path.with_file_name(format!(".{name}.new"));
    fs::write(&temporary, content).unwrap();
    fs::rename(&temporary, path).unwrap();
}

/// Returns every file below a directory, by its path there, with its content.
pub fn files_below(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            let below = files_below(&path).into_iter();
            files.extend(below.map(|(below, content)| (name.join(below), content)));
        } else if let Ok(content) = fs::read(&path) {
            files.insert(name, content);
        }
    }
    files
}

pub(super) fn document(root: &str, links: &str, capability: &str, entries: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         {links}<rs:md capability=\"{capability}\"/>\n{entries}</{root}>\n"
    )
}

pub(super) fn link(rel: &str, href: &str) -> String {
    format!("<rs:ln rel=\"{rel}\" href=\"{URL}{href}\"/>\n")
}

/// A document of `set` without entries that are documents; `content` tells versions apart.
pub fn list(set: &str, capability: &str, content: &str) -> String {
    let up = link("up", &format!("{set}/capabilitylist.xml"));
    let entry = format!("<url><loc>{URL}{set}/resource-{content}</loc></url>\n");
    document("urlset", &up, capability, &entry)
}

/// A document below an index.
pub fn component(set: &str, capability: &str, index: &str, content: &str) -> String {
    let links = link("up", &format!("{set}/capabilitylist.xml")) + &link("index", index);
    let entry = format!("<url><loc>{URL}{set}/resource-{content}</loc></url>\n");
    document("urlset", &links, capability, &entry)
}

/// An index of documents.
pub fn index(set: &str, capability: &str, members: &[String]) -> String {
    let up = link("up", &format!("{set}/capabilitylist.xml"));
    let entries: String = members
        .iter()
        .map(|member| format!("<sitemap><loc>{URL}{member}</loc></sitemap>\n"))
        .collect();
    document("sitemapindex", &up, capability, &entries)
}

/// A document that lists documents of a capability, as archives do.
pub fn archive(set: &str, capability: &str, members: &[String]) -> String {
    let up = link("up", &format!("{set}/capabilitylist.xml"));
    let entries: String = members
        .iter()
        .map(|member| format!("<url><loc>{URL}{member}</loc></url>\n"))
        .collect();
    document("urlset", &up, capability, &entries)
}

/// A Capability List that names one document of each capability, under the capability's name.
pub fn capability_list(set: &str, capabilities: &[&str]) -> String {
    let up = link("up", ".well-known/resourcesync");
    let entries: String = capabilities
        .iter()
        .map(|capability| {
            format!(
                "<url><loc>{URL}{set}/{capability}.xml</loc><rs:md capability=\"{capability}\"/></url>\n"
            )
        })
        .collect();
    document("urlset", &up, "capabilitylist", &entries)
}

/// A Source Description that names the Capability Lists of sets.
pub fn description(sets: &[&str]) -> String {
    let entries: String = sets
        .iter()
        .map(|set| {
            format!(
                "<url><loc>{URL}{set}/capabilitylist.xml</loc>\
                 <rs:md capability=\"capabilitylist\"/></url>\n"
            )
        })
        .collect();
    document("urlset", "", "description", &entries)
}
