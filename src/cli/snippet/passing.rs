//! The paths that a web server passes on, site by site. Topics come from files that anyone may have written, so paths
//! that cannot be written safely for each server are refused.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::percent_decode_str;
use resourcesync::uri::{Hub, Topic, Uri};
use url::Url;

/// Paths that the web server is to pass on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PassedPaths {
    pub sites: Vec<Site>,
    /// Addresses that cannot be passed on, with reasons.
    pub refused: Vec<(String, &'static str)>,
}

/// The locations that one site has to pass on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Such as `https://example.org`.
    pub origin: String,
    /// All that lies below these.
    pub below: Vec<RequestPath>,
    /// These and no others; none lies below the former.
    pub exactly: Vec<RequestPath>,
}

/// The path of a request, which a query may follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestPath {
    /// As it is sent: ASCII, with escapes.
    pub raw: String,
    /// Without escapes, and without control characters.
    pub decoded: String,
}

/// Returns the paths to pass on for these topics and this embedded hub. `home` is the public URL, if rsnotify makes
/// topics below it: of either kind, since change notifications may be turned on later.
pub fn passing(topics: &BTreeSet<Topic>, home: Option<&Uri>, hub: Option<&Hub>) -> PassedPaths {
    let below = |home: &Uri| ["topics/", "changes/"].map(|name| format!("{home}{name}"));
    let homes = home.into_iter().flat_map(below);
    let mut sites: BTreeMap<String, Site> = BTreeMap::new();
    let mut refused = Vec::new();
    let mut pass = |uri: String, add: fn(&mut Site, RequestPath)| match request(&uri) {
        Ok((origin, path)) => add(sites.entry(origin).or_default(), path),
        Err(reason) => refused.push((uri, reason)),
    };
    for home in homes {
        pass(home, |site, path| site.below.push(path));
    }
    if let Some(hub) = hub {
        pass(hub.to_string(), |site, path| site.exactly.push(path));
    }
    for topic in topics {
        pass(topic.to_string(), |site, path| {
            if !site.passes(&path) {
                site.exactly.push(path);
            }
        });
    }
    let sites = sites
        .into_iter()
        .map(|(origin, site)| Site { origin, ..site });
    PassedPaths {
        sites: sites.collect(),
        refused,
    }
}

impl Site {
    /// Returns true if the front page is passed on. A web server tells topics by their paths alone, and one may differ
    /// from the front page in the query only.
    pub fn gives_its_root(&self) -> bool {
        self.exactly.iter().any(|path| path.raw == "/")
    }

    fn passes(&self, path: &RequestPath) -> bool {
        let is_below = |below: &RequestPath| path.raw.starts_with(&below.raw);
        self.below.iter().any(is_below) || self.exactly.contains(path)
    }
}

/// Returns the site and the path that a request for this address goes to.
fn request(uri: &str) -> Result<(String, RequestPath), &'static str> {
    let url = Url::parse(uri).map_err(|_| "it is no address")?;
    let (_, rest) = uri.split_once("://").ok_or("it is no address")?;
    let target = rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]);
    let raw = target.split(['?', '#']).next().unwrap_or_default();
    let raw = if raw.is_empty() { "/" } else { raw };
    if !raw.chars().all(|c| c.is_ascii_graphic()) {
        return Err("it has characters that clients escape");
    }
    if raw.to_ascii_lowercase().contains("%2f") {
        return Err("web servers do not agree what an escaped slash means");
    }
    let decoded = percent_decode_str(raw).decode_utf8();
    let decoded = decoded.map_err(|_| "its percent-escapes are not UTF-8")?;
    if decoded.chars().any(char::is_control) {
        return Err("its percent-escapes contain control characters");
    }
    let mut segments = decoded.split('/');
    if segments.any(|segment| matches!(segment, "." | "..")) || decoded.contains("//") {
        return Err("web servers shorten a path with empty segments or dots");
    }
    let path = RequestPath {
        raw: raw.to_owned(),
        decoded: decoded.into_owned(),
    };
    Ok((url.origin().ascii_serialization(), path))
}

/// Returns a regular expression for exactly this text, in which nothing has a meaning in the file around it.
pub fn pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        match c {
            '.' => pattern.push_str("[.]"),
            '/' | '-' | '_' | '~' | '%' => pattern.push(c),
            c if c.is_alphanumeric() => pattern.push(c),
            c if c.is_ascii() => pattern.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => pattern.push_str(&format!("\\x{{{:x}}}", u32::from(c))),
        }
    }
    pattern
}
