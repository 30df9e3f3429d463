//! Documents as a generator writes them.

use std::fmt::Write;

use crate::world::tree::absolute;

/// A document to be written. Names that begin with `/` are below the site.
#[derive(Debug, Clone)]
pub struct Doc {
    root: &'static str,
    capability: String,
    version: u32,
    up: Option<String>,
    index: Option<String>,
    entries: Vec<String>,
}

/// A `urlset` of a capability.
pub fn list(capability: &str) -> Doc {
    Doc {
        root: "urlset",
        capability: capability.to_owned(),
        version: 0,
        up: None,
        index: None,
        entries: Vec::new(),
    }
}

/// A `sitemapindex` of a capability.
pub fn index(capability: &str) -> Doc {
    Doc {
        root: "sitemapindex",
        ..list(capability)
    }
}

/// A Capability List that names a list for each capability and advertises `{set}/framework/`.
pub fn capability_list(set: &str, capabilities: &[&str]) -> Doc {
    let names: Vec<String> = capabilities
        .iter()
        .map(|capability| format!("{set}/{capability}.xml"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    list("capabilitylist")
        .up("/.well-known/resourcesync")
        .lists(&names)
        .channel(&format!("{set}/framework/"), &[])
}

/// A Capability List of nothing but a channel.
pub fn advertise(topic: &str, hubs: &[&str]) -> Doc {
    list("capabilitylist").channel(topic, hubs)
}

impl Doc {
    /// Another content; versions differ in their root-level `at`.
    pub fn version(self, version: u32) -> Doc {
        Doc { version, ..self }
    }

    pub fn up(self, up: &str) -> Doc {
        Doc {
            up: Some(absolute(up)),
            ..self
        }
    }

    /// Names the Capability List of a set as `up`.
    pub fn of(self, set: &str) -> Doc {
        self.up(&format!("{set}/capabilitylist.xml"))
    }

    pub fn index(self, index: &str) -> Doc {
        Doc {
            index: Some(absolute(index)),
            ..self
        }
    }

    /// Adds entries.
    pub fn lists(mut self, names: &[&str]) -> Doc {
        let tag = match self.root {
            "urlset" => "url",
            _ => "sitemap",
        };
        for name in names {
            let loc = absolute(name);
            self.entries
                .push(format!("<{tag}><loc>{loc}</loc></{tag}>"));
        }
        self
    }

    /// Advertises a channel (Framework Notification section 5).
    pub fn channel(self, topic: &str, hubs: &[&str]) -> Doc {
        self.advertise("framework-notification", topic, hubs)
    }

    /// Advertises a change channel (Change Notification section 5).
    pub fn change_channel(self, topic: &str, hubs: &[&str]) -> Doc {
        self.advertise("change-notification", topic, hubs)
    }

    fn advertise(mut self, capability: &str, topic: &str, hubs: &[&str]) -> Doc {
        let mut entry = format!(
            "<url><loc>{}</loc><rs:md capability=\"{capability}\"/>",
            absolute(topic)
        );
        for hub in hubs {
            write!(entry, "<rs:ln rel=\"hub\" href=\"{hub}\"/>").unwrap();
        }
        entry.push_str("</url>");
        self.entries.push(entry);
        self
    }

    pub fn render(&self) -> String {
        let root = self.root;
        let mut xml = format!(
            "<{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n"
        );
        for (relation, target) in [("up", &self.up), ("index", &self.index)] {
            if let Some(target) = target {
                writeln!(xml, "<rs:ln rel=\"{relation}\" href=\"{target}\"/>").unwrap();
            }
        }
        let (capability, version) = (&self.capability, self.version);
        writeln!(
            xml,
            "<rs:md capability=\"{capability}\" at=\"2026-01-01T00:00:00.{version:03}Z\"/>"
        )
        .unwrap();
        for entry in &self.entries {
            writeln!(xml, "{entry}").unwrap();
        }
        write!(xml, "</{root}>").unwrap();
        xml
    }
}
