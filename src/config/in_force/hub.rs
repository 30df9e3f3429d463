//! A hub in force: how it is reached, with whatever may be a secret masked.

use url::{Position, Url};

use crate::announce::plan::Replaces;
use crate::config::duration;
use crate::config::http::{Credentials, Header, HttpSettings, Proxy};
use crate::config::hub::{AUTOMATIC, HubSettings, MODES, NOTHING};
use crate::config::in_force::{Page, quoted, word};
use crate::config::secret::{Holder, Kept};

const MASKED: &str = "***";

/// The keys of a `[[hub]]`.
pub fn hub(page: &mut Page<'_>, settings: &HubSettings) {
    let HubSettings {
        hub,
        publish_url,
        publish_url_by,
        mode,
        replaces,
        http,
    } = settings;
    page.key("url", quoted(hub));
    match publish_url_by {
        Some(by) => page.key("publish_url_file", holder(by)),
        None if publish_url.reveal() == hub.as_str() => page.key("publish_url", quoted(hub)),
        None => page.key("publish_url", quoted(unadvertised(publish_url.reveal()))),
    }
    page.key("mode", quoted(word(&MODES, *mode)));
    page.key(
        "replaces",
        match replaces {
            Replaces::Automatic => quoted(AUTOMATIC),
            Replaces::Nothing => quoted(NOTHING),
            Replaces::Hub(hub) => quoted(hub),
        },
    );
    requests(page, http);
}

/// Only those who configured an address that is not advertised need to know it: it may hold a key.
fn unadvertised(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if &url[Position::BeforePath..] == "/" => address.to_owned(),
        Ok(url) => format!("{}/{MASKED}", &url[..Position::BeforePath]),
        Err(_) => MASKED.to_owned(),
    }
}

fn requests(page: &mut Page<'_>, http: &HttpSettings) {
    let HttpSettings {
        proxy,
        headers,
        credentials,
        client_identity,
        ca,
        danger_accept_invalid_certs,
        timeout,
    } = http;
    let headers: Vec<String> = headers.iter().map(header).collect();
    page.key("headers", inline(&headers));
    match credentials {
        Credentials::None => {}
        Credentials::Bearer(token) => page.key("bearer_token_file", held(token)),
        Credentials::Basic { username, password } => {
            page.key("username", quoted(username));
            page.key("password_file", held(password));
        }
    }
    if let Some(identity) = client_identity {
        page.key("client_cert", held(&identity.certificate));
        page.key("client_key", held(&identity.key));
    }
    if let Some(ca) = ca {
        page.key("ca_file", held(ca));
    }
    page.key("danger_accept_invalid_certs", danger_accept_invalid_certs);
    match proxy {
        Proxy::Environment => {}
        Proxy::None => page.key("proxy", quoted("none")),
        Proxy::Through(proxy) => page.key("proxy", quoted(proxy)),
    }
    page.key("timeout", quoted(duration::display(*timeout)));
}

fn header(header: &Header) -> String {
    let value = match &header.by {
        Some(by) => holder(by),
        None if may_be_secret(&header.name) => quoted(MASKED).to_string(),
        None => quoted(header.value.reveal()).to_string(),
    };
    format!("{} = {value}", quoted(&header.name))
}

/// Whether a value under this name may be a secret, although it was written where secrets do not belong.
fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "auth", "cred", "key", "pass", "secret", "session", "sign", "token",
    ];
    words.iter().any(|word| name.contains(word))
}

fn held(kept: &Kept) -> String {
    holder(&kept.by)
}

fn holder(holder: &Holder) -> String {
    let (kind, name) = match holder {
        Holder::File(path) => ("file", path),
        Holder::Env(name) => ("env", name),
        Holder::Credential(name) => ("credential", name),
    };
    inline(&[format!("{kind} = {}", quoted(name))])
}

fn inline(pairs: &[String]) -> String {
    match pairs {
        [] => "{}".to_owned(),
        pairs => format!("{{ {} }}", pairs.join(", ")),
    }
}
