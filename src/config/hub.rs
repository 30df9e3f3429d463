//! The hubs that are told.

use std::collections::HashSet;

use crate::announce::delivery::secret::Secret;
use crate::announce::plan::{Mode, Replaces};
use crate::config::http::{self, HttpSettings};
use crate::config::overrides::Overrides;
use crate::config::raw;
use crate::config::raw::held::{Held, Holder};
use crate::config::reading::{Given, Origin, Reading, flag_or_file, in_file};
use crate::config::secret::secret;
use crate::config::web_uri;
use crate::resourcesync::uri::Hub;

/// A hub outside this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubSettings {
    /// As advertised, byte for byte.
    pub hub: Hub,
    /// Where to POST: the same, unless the hub publishes elsewhere. Never advertised.
    pub publish_url: Secret,
    /// What holds it; nothing where it is written in the configuration.
    pub publish_url_by: Option<Holder>,
    pub mode: Mode,
    pub replaces: Replaces,
    pub http: HttpSettings,
}

/// The modes as they are written.
pub const MODES: [(&str, Mode); 3] = [
    ("content", Mode::Content),
    ("ping", Mode::Ping),
    ("content-query", Mode::ContentQuery),
];

/// Checks every `[[hub]]`, or the one that `--hub` names.
pub fn hubs(
    reading: &mut Reading<'_>,
    written: Vec<toml::Spanned<raw::Hub>>,
    overrides: &Overrides,
) -> Vec<HubSettings> {
    let mut seen = HashSet::new();
    let mut hubs = Vec::new();
    for (origin, url, raw) in chosen(written, overrides) {
        let Some(hub) = hub(reading, origin, url.as_ref(), raw) else {
            continue;
        };
        if !seen.insert(hub.hub.clone()) {
            let origin = url.map_or(origin, |url| url.origin);
            reading.report(origin, "hub.url", format!("{} is listed already", hub.hub));
            continue;
        }
        hubs.push(hub);
    }
    hubs
}

type ChosenHub = (Origin, Option<Given<String>>, raw::Hub);

fn chosen(written: Vec<toml::Spanned<raw::Hub>>, overrides: &Overrides) -> Vec<ChosenHub> {
    let url_of = |hub: &raw::Hub| hub.url.as_ref().map(|url| url.get_ref().clone());
    let Some(wanted) = &overrides.hub else {
        return written
            .into_iter()
            .map(in_file)
            .map(
                |Given {
                     value: mut raw,
                     origin,
                 }| (origin, flag_or_file("--hub", None, raw.url.take()), raw),
            )
            .collect();
    };
    let raw = written
        .into_iter()
        .map(toml::Spanned::into_inner)
        .find(|hub| url_of(hub).as_ref() == Some(wanted))
        .unwrap_or_default();
    let origin = Origin::Flag("--hub");
    let url = Given {
        value: wanted.clone(),
        origin,
    };
    vec![(origin, Some(url), raw)]
}

fn hub(
    reading: &mut Reading<'_>,
    origin: Origin,
    url: Option<&Given<String>>,
    mut raw: raw::Hub,
) -> Option<HubSettings> {
    let url = reading.required("hub.url", origin, url, address);
    let publish_url = raw
        .publish_url
        .take()
        .map(in_file)
        .and_then(|given| reading.checked("hub.publish_url", &given, address));
    let held = raw.publish_url_file.take().map(in_file);
    let held = held.and_then(|held| held_address(reading, held, publish_url.is_some()));
    let (held, publish_url_by) = held.unzip();
    let mode = reading.choice("hub.mode", raw.mode.take(), &MODES, Mode::Content);
    let replaces = raw.replaces.take().map(in_file);
    let replaces = replaces
        .and_then(|given| reading.checked("hub.replaces", &given, replaced))
        .unwrap_or_default();
    let http = http::settings(reading, origin, raw);
    let url = url?;
    Some(HubSettings {
        publish_url: Secret::new(held.or(publish_url).unwrap_or_else(|| url.clone())),
        publish_url_by,
        hub: Hub::new(url),
        mode,
        replaces,
        http,
    })
}

/// The words for a hub that is replaced, other than its address.
pub const AUTOMATIC: &str = "auto";
pub const NOTHING: &str = "nothing";

fn replaced(text: &str) -> Result<Replaces, String> {
    match text {
        AUTOMATIC => Ok(Replaces::Automatic),
        NOTHING => Ok(Replaces::Nothing),
        text => address(text).map(|url| Replaces::Hub(Hub::new(url))),
    }
}

/// The address that is held, and what holds it. No message repeats it.
fn held_address(
    reading: &mut Reading<'_>,
    held: Given<Held>,
    is_written: bool,
) -> Option<(String, Holder)> {
    const KEY: &str = "hub.publish_url_file";
    let origin = held.origin;
    if is_written {
        let message = "publish_url and publish_url_file exclude each other: keep one";
        reading.report(origin, KEY, message);
        return None;
    }
    let kept = secret(reading, KEY, held.map(Holder::from))?;
    if address(kept.reveal()).is_err() {
        let message = "it holds no absolute URI such as https://hub.example.net/publish?key=…, \
                       without user name and password";
        reading.report(origin, KEY, message);
        return None;
    }
    Some((kept.reveal().to_owned(), kept.by))
}

/// An address, byte for byte. The message repeats none that holds a password.
fn address(text: &str) -> Result<String, String> {
    let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    if after_scheme
        .split(['/', '?', '#'])
        .next()
        .is_some_and(|authority| authority.contains('@'))
    {
        let message = "credentials do not belong into an address: use username and password_file";
        return Err(message.to_owned());
    }
    match web_uri::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
