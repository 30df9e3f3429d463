//! `snippet`: configuration by which a web server passes topics and the embedded hub on.

mod passing;
mod servers;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use ipnet::IpNet;
use resourcesync::uri::Topic;

use crate::cli::Exit;
use crate::cli::health::reached;
use crate::cli::inference::with_url;
use crate::cli::one_shot_scan::scan_once;
use crate::cli::options::WebServer;
use crate::cli::output::{print, say};
use crate::cli::snippet::passing::{PassedPaths, Site, passing};
use crate::config::Config;
use crate::config::file::SourceOptions;
use crate::config::hub_config::HubConfig;
use crate::config::text::{Address, ParsedText};
use crate::report;

impl WebServer {
    /// Returns the lines for one site.
    fn lines(self, site: &Site, behind: &Address) -> String {
        match self {
            WebServer::Nginx => servers::nginx(site, behind),
            WebServer::Apache => servers::apache(site, behind),
            WebServer::Caddy => servers::caddy(site, behind),
        }
    }

    /// Returns its name for the part of its configuration where the lines belong.
    fn part(self) -> &'static str {
        match self {
            WebServer::Nginx => "server { } block",
            WebServer::Apache => "<VirtualHost>",
            WebServer::Caddy => "site block",
        }
    }
}

pub fn snippet(
    file: Option<&Path>,
    server: WebServer,
    source: &SourceOptions,
) -> anyhow::Result<Exit> {
    let overrides = source.overrides();
    if HubConfig::is_at(file, &overrides) {
        return of_hub(&HubConfig::load(file, &overrides)?, server);
    }
    let config = Config::load(file, &with_url(file, overrides)?)?;
    let public_url = config.server.public_url.as_ref();
    let public_url = public_url.context(
        "server.public_url is not set, so no web server is in front of rsnotify: set it to the URL of the web server",
    )?;
    let behind = upstream_address(&config.server.listen.0)?;
    let scan = scan_once(&config)?;
    for notice in &scan.notices {
        say(notice);
    }
    let reader = &scan.reader();
    // A topic that only names notifications for brokers is not served.
    let channels = report::channels::with_topics(reader)?.into_iter();
    let topics: BTreeSet<Topic> = channels.map(|channel| channel.topic).collect();
    let mut sources = config.sources.iter();
    let makes_topics = sources.any(|source| source.unadvertised_channels);
    let embedded = config.embedded_hub.as_ref();
    let passing = passing(
        &topics,
        makes_topics.then_some(public_url),
        embedded.map(|embedded| embedded.hub(public_url)).as_ref(),
    );
    let trust = embedded
        .and_then(|hub| untrusted_proxy_note("embedded_hub", &hub.trusted_proxies, &behind));
    write(&passing, server, &behind, trust)
}

/// Prints the lines for `rsnotify hub`, which serves nothing but the hub.
fn of_hub(config: &HubConfig, server: WebServer) -> anyhow::Result<Exit> {
    let behind = upstream_address(&config.server.listen.0)?;
    let passing = passing(&BTreeSet::new(), None, Some(&config.hub.url));
    let trust = untrusted_proxy_note("hub", &config.hub.trusted_proxies, &behind);
    write(&passing, server, &behind, trust)
}

/// Prints the lines, and on standard error what is special about them.
fn write(
    passing: &PassedPaths,
    server: WebServer,
    behind: &Address,
    trust: Option<String>,
) -> anyhow::Result<Exit> {
    for (address, reason) in &passing.refused {
        say(format_args!("{address} cannot be passed on: {reason}"));
    }
    for site in passing.sites.iter().filter(|site| site.gives_its_root()) {
        let origin = &site.origin;
        say(format_args!(
            "a topic lies at {origin}/: with these lines rsnotify answers there, and not the web server"
        ));
    }
    print(|out| {
        for site in &passing.sites {
            let (part, lines) = (server.part(), server.lines(site, behind));
            writeln!(out, "# In the {part} of {}:\n{lines}", site.origin)?;
        }
        match trust {
            Some(trust) => writeln!(out, "{trust}"),
            None => Ok(()),
        }
    })?;
    Ok(if passing.refused.is_empty() {
        Exit::Fine
    } else {
        Exit::Failure
    })
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
    Ok(reached(listen))
}

/// Returns a note if rsnotify's configuration does not trust the web server's headers about subscribers' addresses.
fn untrusted_proxy_note(
    table: &str,
    trusted: &[ParsedText<IpNet>],
    behind: &Address,
) -> Option<String> {
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
