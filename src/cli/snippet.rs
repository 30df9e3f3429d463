//! `snippet`: configuration by which a web server passes topics and the embedded hub on, site by site. Servers differ in
//! how they compare paths and pass them on. Topics come from files that anyone may have written, so paths that cannot be
//! written safely for each server are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use resourcesync::uri::{Hub, Topic, Uri};
use url::Url;

use crate::cli::Exit;
use crate::cli::health::reachable_address;
use crate::cli::inference::with_url;
use crate::cli::one_shot_scan::scan_once;
use crate::cli::options::WebServer;
use crate::cli::output::{eprint_line, print};
use crate::config::Config;
use crate::config::environment::SourceOptions;
use crate::config::hub_config::HubConfig;
use crate::config::text::{Address, AsText};
use crate::report;

pub fn snippet(
    file: Option<&Path>,
    server: WebServer,
    source: &SourceOptions,
) -> anyhow::Result<Exit> {
    let overrides = source.overrides();
    if HubConfig::is_hub_file(file, &overrides) {
        return hub_snippet(&HubConfig::load(file, &overrides)?, server);
    }
    let config = Config::load(file, &with_url(file, overrides)?)?;
    let configured = config.server.public_url.as_ref();
    let public_url = configured.context(
        "server.public_url is not set, so no web server is in front of rsnotify: set it to the URL of the web server",
    )?;
    let behind = upstream_address(&config.server.listen.0)?;
    let scan = scan_once(&config)?;
    scan.notices.iter().for_each(eprint_line);
    let reader = &scan.engine.reader(scan.now);
    // A topic that only names notifications for brokers is not served.
    let channels = report::channels::with_served_topics(reader)?.into_iter();
    let topics: BTreeSet<Topic> = channels.map(|channel| channel.topic).collect();
    let mut sources = config.sources.iter();
    let makes_topics = sources.any(|source| source.unadvertised_channels);
    let embedded = config.embedded_hub.as_ref();
    let passing = passed_paths(
        &topics,
        makes_topics.then_some(public_url),
        embedded
            .map(|embedded| embedded.hub_uri(public_url))
            .as_ref(),
    );
    let trust = embedded.and_then(|hub| trust_note("embedded_hub", &hub.trusted_proxies, &behind));
    print_snippet(&passing, server, &behind, trust)
}

/// Prints the lines for `rsnotify hub`, which serves nothing but the hub.
fn hub_snippet(config: &HubConfig, server: WebServer) -> anyhow::Result<Exit> {
    let behind = upstream_address(&config.server.listen.0)?;
    let passing = passed_paths(&BTreeSet::new(), None, Some(&config.hub.url));
    let trust = trust_note("hub", &config.hub.trusted_proxies, &behind);
    print_snippet(&passing, server, &behind, trust)
}

/// Returns the origins whose front page is passed on. A web server tells topics by their paths alone, and one may differ from
/// the front page in the query only.
fn passed_front_pages(passing: &PassedPaths) -> impl Iterator<Item = &String> {
    let sites = passing.sites.iter();
    let passed = sites.filter(|(_, site)| site.exactly.iter().any(|path| path.raw == "/"));
    passed.map(|(origin, _)| origin)
}

/// Prints the lines, and on standard error what is special about them.
fn print_snippet(
    passing: &PassedPaths,
    server: WebServer,
    behind: &Address,
    trust: Option<String>,
) -> anyhow::Result<Exit> {
    for (address, reason) in &passing.refused {
        eprint_line(format_args!("{address} cannot be passed on: {reason}"));
    }
    for origin in passed_front_pages(passing) {
        eprint_line(format_args!(
            "a topic lies at {origin}/: with these lines rsnotify answers there, and not the web server"
        ));
    }
    print(|out| {
        for (origin, site) in &passing.sites {
            let (part, lines) = match server {
                WebServer::Nginx => ("server { } block", nginx(site, behind)),
                WebServer::Apache => ("<VirtualHost>", apache(site, behind)),
                WebServer::Caddy => ("site block", caddy(site, behind)),
            };
            writeln!(out, "# In the {part} of {origin}:\n{lines}")?;
        }
        trust.map_or(Ok(()), |trust| writeln!(out, "{trust}"))
    })?;
    Ok(Exit::fine_if(passing.refused.is_empty()))
}

/// Returns the address at which the web server reaches rsnotify, from the same machine.
fn upstream_address(listen: &Address) -> anyhow::Result<Address> {
    match listen {
        Address::Tcp(address) => ensure!(
            address.port() != 0,
            "each start listens on another port: set server.listen to a port that the web server can know"
        ),
        Address::Unix(path) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
            ensure!(
                path.to_str().is_some_and(|path| path.chars().all(is_plain)),
                "{} cannot be written for every web server: choose a path of letters, digits, \"/\", \".\", \"_\", \
                 \"-\" and \"+\"",
                path.display()
            );
        }
    }
    Ok(reachable_address(listen))
}

/// Returns a note if rsnotify's configuration does not trust the web server's headers about subscribers' addresses.
fn trust_note(table: &str, trusted: &[AsText<IpNet>], behind: &Address) -> Option<String> {
    let Address::Tcp(address) = behind else {
        return None;
    };
    let ip = address.ip();
    let is_trusted = trusted.iter().any(|network| network.0.contains(&ip));
    (!is_trusted).then(|| {
        format!(
            "# In [{table}] of rsnotify's own configuration, or all subscribers count as one:\n\
             # trusted_proxies = [\"{ip}\"]"
        )
    })
}

/// Returns the lines for nginx, which compares paths without their escapes, and passes them on as they came where
/// `proxy_pass` has no path.
fn nginx(site: &ProxiedPaths, behind: &Address) -> String {
    let address = match behind {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("http://unix:{}", path.display()),
    };
    let below = site.below.iter().map(|path| ("^~", &path.decoded));
    // It refuses to start where two are the same.
    let paths: BTreeSet<_> = site.exactly.iter().map(|path| &path.decoded).collect();
    let exactly = paths.into_iter().map(|path| ("=", path));
    let mut lines =
        "# proxy_pass has no path, so that path and query are passed on as they came.\n".to_owned();
    for (modifier, path) in below.chain(exactly) {
        let path = nginx_quoted(path);
        lines += &format!(
            "location {modifier} {path} {{\n\
             \x20   proxy_pass {address};\n\
             \x20   proxy_set_header Host $http_host;\n\
             \x20   proxy_set_header Forwarded \"\";\n\
             \x20   proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
             \x20   proxy_cache off;\n\
             \x20   charset off;\n\
             \x20   gzip off;\n\
             }}\n"
        );
    }
    lines
}

/// Returns the lines for Apache: they compare the request line with a topic as it was sent, and pass it on likewise.
/// `ProxyPass` would undo the escapes and write others.
fn apache(site: &ProxiedPaths, behind: &Address) -> String {
    let address = match behind {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("unix:{}|http://localhost", path.display()),
    };
    let paths = site.below.iter();
    let below = paths.map(|path| format!("{}[^? ]*", exact_pattern(&path.raw)));
    let exactly = site.exactly.iter().map(|path| exact_pattern(&path.raw));
    // The query follows by itself: Apache refuses to put one into an address.
    let conditions = below
        .chain(exactly)
        .map(|path| format!("RewriteCond \"%{{THE_REQUEST}}\" \"^[A-Z]+ ({path})[? ]\""));
    let conditions: Vec<String> = conditions.collect();
    format!(
        "# a2enmod headers proxy proxy_http rewrite\n\
         RewriteEngine On\n\
         {}\n\
         RewriteRule \"^\" \"{address}%1\" [P,NE,E=rsnotify:1]\n\
         ProxyPreserveHost On\n\
         RequestHeader unset Forwarded env=rsnotify\n",
        conditions.join(" [OR]\n")
    )
}

/// Returns the lines for Caddy, which compares paths without their escapes, and passes them on as they came.
fn caddy(site: &ProxiedPaths, behind: &Address) -> String {
    let address = match behind {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix/{}", path.display()),
    };
    let below = site.below.iter().map(|path| exact_pattern(&path.decoded));
    let paths = site.exactly.iter();
    let exactly = paths.map(|path| format!("{}$", exact_pattern(&path.decoded)));
    let patterns: Vec<String> = below.chain(exactly).collect();
    format!(
        "@rsnotify path_regexp `^(?:{})`\n\
         handle @rsnotify {{\n\
         \x20   reverse_proxy {address} {{\n\
         \x20       header_up -Forwarded\n\
         \x20   }}\n\
         }}\n",
        patterns.join("|")
    )
}

/// Quotes a text for nginx, which has no variables in a location's name.
fn nginx_quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Paths that the web server is to pass on.
#[derive(Debug, Default, PartialEq, Eq)]
struct PassedPaths {
    /// By origin, such as `https://example.org`.
    sites: BTreeMap<String, ProxiedPaths>,
    /// Addresses that cannot be passed on, with reasons.
    refused: Vec<(String, &'static str)>,
}

/// The locations that one site has to pass on.
#[derive(Debug, Default, PartialEq, Eq)]
struct ProxiedPaths {
    /// All that lies below these.
    below: Vec<RequestPath>,
    /// These and no others; none lies below the former.
    exactly: Vec<RequestPath>,
}

/// The path of a request, which a query may follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RequestPath {
    /// As it is sent: ASCII, with escapes.
    raw: String,
    /// Without escapes, and without control characters.
    decoded: String,
}

/// Returns the paths to pass on for these topics and this embedded hub. `home` is the public URL, if rsnotify makes
/// topics below it: of either kind, since change notifications may be turned on later.
fn passed_paths(topics: &BTreeSet<Topic>, home: Option<&Uri>, hub: Option<&Hub>) -> PassedPaths {
    let mut passed = PassedPaths::default();
    let mut pass = |uri: String, add: fn(&mut ProxiedPaths, RequestPath)| match site_and_path(&uri)
    {
        Ok((origin, path)) => add(passed.sites.entry(origin).or_default(), path),
        Err(reason) => passed.refused.push((uri, reason)),
    };
    if let Some(home) = home {
        for name in ["topics/", "changes/"] {
            pass(format!("{home}{name}"), |site, path| site.below.push(path));
        }
    }
    if let Some(hub) = hub {
        pass(hub.to_string(), |site, path| site.exactly.push(path));
    }
    for topic in topics {
        pass(topic.to_string(), |site, path| {
            let is_below = |below: &RequestPath| path.raw.starts_with(&below.raw);
            if !site.below.iter().any(is_below) && !site.exactly.contains(&path) {
                site.exactly.push(path);
            }
        });
    }
    passed
}

/// Returns the site and the path that a request for this address goes to.
fn site_and_path(uri: &str) -> Result<(String, RequestPath), &'static str> {
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
    let decoded = percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_| "its percent-escapes are not UTF-8")?;
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
fn exact_pattern(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        match c {
            '.' => pattern.push_str("[.]"),
            c if c.is_alphanumeric() || "/-_~%".contains(c) => pattern.push(c),
            c if c.is_ascii() => pattern.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => pattern.push_str(&format!("\\x{{{:x}}}", u32::from(c))),
        }
    }
    pattern
}

#[cfg(test)]
mod tests;
