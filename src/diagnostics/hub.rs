//! What a hub answers to a `HEAD`, which has no effect: whether notifications will reach it.

// The address alone: `core` has no sockets.
use core::net::SocketAddr;

use url::{Host, Url};

use crate::announce::delivery::attempt::Kind;
use crate::announce::delivery::redirect::{Hop, next_hop};
use crate::diagnostics::{Answered, Cause, HUB_GREETING, Remark};
use crate::report::status::Condition;
use crate::report::status::hubs::HubTrouble;
use crate::report::status::words::counted;
use crate::resourcesync::uri::Hub;

/// A hub, and what it answers where notifications would be sent, which may be an address that is secret.
#[derive(Debug, Clone)]
pub struct Asked {
    pub hub: Hub,
    pub publish_url: Url,
    pub head: Answered,
    /// Whether the last notification that it was sent was accepted. Then it is no matter how it likes `HEAD`.
    pub accepts: bool,
}

/// Judges a hub. `configured` are the addresses of all hubs, where a redirection may lead (R23).
pub fn remark(asked: &Asked, configured: &[Url]) -> Option<Remark> {
    let hub = &asked.hub;
    let reply = match &asked.head {
        Ok(reply) => reply,
        Err(words) => {
            let seen = format!("{hub}: no answer ({words})");
            return Some(Remark::finding(seen, no_answer(words)));
        }
    };
    let (seen, remedy) = match reply.status {
        status @ (301..=303 | 307 | 308) => {
            return Some(redirection(
                asked,
                configured,
                status,
                reply.location.as_deref(),
            ));
        }
        status @ (401 | 403) => (
            format!("{hub}: {status} to HEAD, it wants credentials, or others"),
            "set bearer_token_file, or username and password_file, or headers, or client_cert and client_key",
        ),
        status @ (404 | 410) => (
            format!("{hub}: {status} to HEAD, there is nothing"),
            "compare url and publish_url with what the hub's operator says; a hub that knows POST only may \
             answer so too, and a first accepted notification shows it",
        ),
        407 => (
            format!("{hub}: 407, the proxy wants credentials"),
            "give them to the proxy that the environment names, or set NO_PROXY",
        ),
        status @ (500 | 502..=504) => (
            format!("{hub}: {status} to HEAD"),
            "the hub is not well, or starting; if it stays so, tell its operator",
        ),
        _ => return None,
    };
    Some(match asked.accepts {
        true => Remark::note(
            seen,
            "but it accepted the last notification, so it minds HEAD only",
        ),
        false => Remark::finding(seen, remedy),
    })
}

/// Judges what became of the last notifications that a hub was sent, by the state.
pub fn told(hub: &Hub, trouble: &HubTrouble<'_>) -> Remark {
    let channels = counted(trouble.channels, "channel");
    let reason = trouble.reason;
    let seen = format!("{hub}: it did not accept the last notifications of {channels}: {reason}");
    let remedy = trouble.kind.map_or("", Kind::usual_cause);
    match trouble.state {
        Condition::Failing => Remark::note(seen, remedy),
        Condition::Unfetched => Remark::finding(
            format!("{hub}: it was pinged and did not fetch {channels}"),
            "see whether the hub can reach the topic at its URI",
        ),
        _ => Remark::finding(seen, remedy),
    }
}

/// Says of a hub that it could be anybody.
pub fn unverified(hub: &Hub) -> Remark {
    Remark::finding(
        format!(
            "{hub}: danger_accept_invalid_certs = true, so whoever answers is believed to be the hub"
        ),
        "name the authority that signed its certificate by ca_file, and remove that line",
    )
}

/// Says of the embedded hub, if its requests come through a web server that it does not know, that it cannot tell
/// subscribers apart: it listens where only this machine can reach it, and is reached elsewhere.
pub fn unnamed_proxy(public_url: &str, listen: SocketAddr, has_proxies: bool) -> Option<Remark> {
    let is_elsewhere = Url::parse(public_url).is_ok_and(|url| match url.host() {
        Some(Host::Domain(name)) => name != "localhost" && !name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => !ip.is_loopback(),
        Some(Host::Ipv6(ip)) => !ip.is_loopback(),
        None => false,
    });
    if has_proxies || !listen.ip().is_loopback() || !is_elsewhere {
        return None;
    }
    Some(Remark::note(
        format!(
            "{public_url} is reached through a web server that embedded_hub.trusted_proxies does not name, so all \
             subscribers will count as one address"
        ),
        format!(
            "write trusted_proxies = [\"{}\"] in [embedded_hub], and let the web server set X-Forwarded-For",
            listen.ip()
        ),
    ))
}

/// Judges what the embedded hub answers by its advertised address to a `GET`.
pub fn embedded(hub: &Hub, get: &Answered) -> Option<Remark> {
    let what = match get {
        Ok(reply) if reply.status == 405 && reply.body.is(HUB_GREETING) => return None,
        Ok(reply) => format!("answers {}, which is not from rsnotify", reply.status),
        Err(words) => format!("cannot be reached ({words})"),
    };
    Some(Remark::finding(
        format!("{hub}: the embedded hub is advertised so, and {what}"),
        "nobody can subscribe; let the web server in front pass it on to server.listen, or correct public_url",
    ))
}

fn redirection(asked: &Asked, configured: &[Url], status: u16, location: Option<&str>) -> Remark {
    let hub = &asked.hub;
    let target = location.and_then(|location| asked.publish_url.join(location.trim()).ok());
    let Some(target) = target else {
        return Remark::finding(
            format!("{hub}: {status}, a redirection without a Location that can be read"),
            "compare url and publish_url with what the hub's operator says",
        );
    };
    let seen = format!(
        "{hub}: {status}, a redirection to {}",
        shown(&target, asked)
    );
    match next_hop(status, location, &asked.publish_url, 0, configured) {
        Hop::Follow(_) => Remark::note(
            seen,
            "it is followed; set publish_url to it to spare a request",
        ),
        Hop::Stop if matches!(status, 307 | 308) => Remark::finding(
            seen,
            "it is not followed, since no configured hub is there; correct url or publish_url",
        ),
        Hop::Stop => Remark::finding(
            seen,
            "only 307 and 308 keep a notification whole, so it is not followed; correct url or publish_url",
        ),
    }
}

/// Where a redirection leads, but for what may be a key: queries, and paths that lead on from a secret address.
fn shown(target: &Url, asked: &Asked) -> String {
    let is_public = asked.publish_url.as_str() == asked.hub.as_str()
        || Url::parse(asked.hub.as_str()).is_ok_and(|hub| hub == asked.publish_url);
    let origin = target.origin().ascii_serialization();
    match (is_public, target.query()) {
        (false, _) => format!("{origin}/…"),
        (true, None) => format!("{origin}{}", target.path()),
        (true, Some(_)) => format!("{origin}{}?…", target.path()),
    }
}

fn no_answer(words: &str) -> &'static str {
    match Cause::of(words) {
        Cause::Name => {
            "this machine knows no host of that name; correct url or publish_url, or the name server"
        }
        Cause::Refused => {
            "nothing listens there; correct url or publish_url, or tell the hub's operator"
        }
        Cause::Timeout => {
            "a firewall swallows it, or a proxy is needed (HTTPS_PROXY), or the hub hangs"
        }
        Cause::UnknownIssuer => {
            "its certificate is self-signed, or signed by an authority that this machine does not know; if you trust \
             it, name its certificate by ca_file"
        }
        Cause::SelfSignedAuthority => {
            "`openssl req -x509 -addext basicConstraints=critical,CA:FALSE …` makes one that can be named in ca_file"
        }
        Cause::Expired => {
            "its certificate has expired, or this machine's clock is wrong; tell the hub's operator"
        }
        Cause::NotYetValid => "its certificate is for later, or this machine's clock is wrong",
        Cause::OtherName => "its certificate is for other names; correct url or publish_url",
        Cause::NoTls => "there seems to be no TLS at that port; correct url or publish_url",
        Cause::Unknown => "if it stays so, ask the hub's operator",
    }
}

#[cfg(test)]
mod tests;
