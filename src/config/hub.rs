//! `[[hub]]`: the hubs outside this process.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use reqwest::header::HeaderName;
use resourcesync::uri::Hub;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use url::{Position, Url};
use websub::publisher::settings::{
    HubCredentials, HubHeader, HubProxy, PublishSettings, PublishSettingsError,
};
use websub::secret::{MASKED, Secret};

use crate::config::file::{Checked, ConfigTree, NOT_ZERO, TablePlace};
use crate::config::secret::{
    ConfiguredSecret, content_of, mask_headers, read_credentials, read_headers, read_secret_file,
};
use crate::config::text::{AsText, NO_CREDENTIALS, check_uri, seconds};
use announce::plan::{PublishMode, ReplacedHub};

/// A hub outside this process.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub struct ExternalHub {
    /// URI of the hub, exactly as Capability Lists advertise it.
    #[serde(rename = "url")]
    #[schemars(with = "String", example = "https://hub.example.net/websub/", extend("x-form" = "hub"))]
    #[default(Hub::new(""))]
    pub hub: Hub,
    /// URI to submit notifications to, if it is another one, or its holder, if it contains a key. It is never advertised.
    ///
    /// See [secrets](#secrets).
    #[schemars(extend("x-default" = "as `url`", "x-form" = "hub"))]
    #[schemars(example = "https://hub.example.net/websub/publish")]
    pub publish_url: Option<ConfiguredSecret>,
    /// Form of a submission. `"content"`: the notification as the body, as ResourceSync hubs take it. `"ping"`: a form
    /// that names the topic, which the hub then fetches. `"content-query"`: the notification as the body, the topic in
    /// the query.
    #[schemars(with = "String", extend("enum" = ["content", "ping", "content-query"]))]
    #[default(PublishMode::Content)]
    pub mode: PublishMode,
    /// Hub that this one replaces, whose pending changes it takes over: the URI of one that is no longer configured,
    /// `"nothing"`, or `"auto"`: the only one that was removed when this was the only one added.
    #[default(AsText(ReplacedHub::Automatic))]
    pub replaces: AsText<ReplacedHub>,
    /// Headers to add. A value is a text, or the holder of a secret.
    ///
    /// See [secrets](#secrets).
    #[schemars(extend("examples" = [{ "X-Api-Key": { "file": "/etc/rsnotify/hub-key" }, "X-Client": "library" }]))]
    pub headers: BTreeMap<String, ConfiguredSecret>,
    /// Holder of a bearer token.
    #[schemars(extend("examples" = [{ "credential": "hub-token" }]))]
    pub bearer_token_file: Option<ConfiguredSecret>,
    /// User name for basic authentication; needs `password_file`.
    #[schemars(example = &"rsnotify")]
    pub username: Option<String>,
    /// Holder of the password.
    #[schemars(example = "/etc/rsnotify/hub-password")]
    pub password_file: Option<ConfiguredSecret>,
    /// Holder of a TLS client certificate in PEM; needs `client_key`.
    #[schemars(example = "/etc/rsnotify/client.pem")]
    pub client_cert: Option<ConfiguredSecret>,
    /// Holder of the private key of `client_cert`, in PEM.
    #[schemars(example = "/etc/rsnotify/client.key")]
    pub client_key: Option<ConfiguredSecret>,
    /// Holder of certificates to trust beside the system's, in PEM.
    #[schemars(example = "/etc/rsnotify/ca.pem")]
    pub ca_file: Option<ConfiguredSecret>,
    /// Accept any certificate: anyone on the way can then read notifications and credentials.
    pub danger_accept_invalid_certs: bool,
    /// Proxy for this hub, `"http://HOST:PORT"`, or `"none"`.
    ///
    /// See [proxies](#proxies).
    #[schemars(example = "http://proxy.example.org:3128", extend("x-default" = "as the environment says"))]
    pub proxy: Option<AsText<HubProxy>>,
    /// Timeout of a request.
    #[default(seconds(30))]
    pub timeout: AsText<Duration>,
}

/// Headers whose values are secrets.
const SECRET_HEADERS: &str = "authorization cookie proxy-authorization";
/// Headers that the protocol decides (R24).
const RESERVED_HEADERS: &str =
    "connection content-length content-type host link te transfer-encoding upgrade";

/// Checks all hubs, and reads the files that they name.
pub fn check_all(file: &ConfigTree<'_>, hubs: &mut [ExternalHub]) -> Checked {
    let mut seen = HashSet::new();
    for (at, hub) in hubs.iter_mut().enumerate() {
        let table = file.table(format_args!("hub.{at}"));
        hub.check(&table)?;
        let message = format_args!("{} is listed already", hub.hub);
        table.refuse_if(!seen.insert(&hub.hub), "url", message)?;
    }
    Ok(())
}

impl ExternalHub {
    fn check(&mut self, table: &TablePlace<'_>) -> Checked {
        let publish_url = (self.publish_url)
            .get_or_insert_with(|| ConfiguredSecret::from_text(self.hub.as_str()));
        publish_url.read_holder(table, "publish_url")?;
        check_address(publish_url.content.reveal()).map_err(|message| {
            let held = "it holds no absolute URI such as https://hub.example.net/publish?key=…, without user name and \
                        password";
            let is_held = publish_url.holder.is_some();
            table.error("publish_url", if is_held { held } else { &message })
        })?;

        let has_password = self.password_file.is_some();
        let has_login = self.username.is_some() || has_password;
        let mut names = self.headers.keys();
        let has_authorization = names.any(|name| name.eq_ignore_ascii_case("authorization"));
        let has_bearer = self.bearer_token_file.is_some();
        table.refuse_if(self.timeout.0.is_zero(), "timeout", NOT_ZERO)?;
        let message = "a bearer token and a user name with a password exclude each other: keep one";
        table.refuse_if(has_bearer && has_login, "bearer_token_file", message)?;
        let is_wrong = |name: &String| name.contains(':') || name.chars().any(char::is_control);
        let is_wrong = self.username.as_ref().is_some_and(is_wrong);
        let message = "a user name has no \":\" and no control characters";
        table.refuse_if(is_wrong, "username", message)?;
        let has_two = has_authorization && (has_bearer || has_password);
        let message = "an Authorization header beside a bearer token or a password: keep one";
        table.refuse_if(has_two, "headers", message)?;
        read_secret_file(table, "bearer_token_file", &mut self.bearer_token_file)?;
        read_headers(table, &mut self.headers, check_header_name)?;
        let held = [
            &mut self.password_file,
            &mut self.client_cert,
            &mut self.client_key,
            &mut self.ca_file,
        ];
        read_credentials(table, &self.username, held)
    }

    /// Returns the settings of submissions. An error in them is an error of the configuration.
    pub fn publish_settings(&self) -> Result<PublishSettings, PublishSettingsError> {
        let hub = self.hub.clone();
        let headers = self.headers.iter().map(|(name, held)| {
            let wrong = |_| PublishSettingsError::Header {
                hub: hub.clone(),
                name: name.clone(),
            };
            Ok(HubHeader {
                name: HeaderName::try_from(name).map_err(wrong)?,
                value: held.content.clone(),
                is_public: held.holder.is_none(),
            })
        });
        let named = self.username.clone().zip(content_of(&self.password_file));
        let basic = named.map(|(username, password)| HubCredentials::Basic { username, password });
        let bearer = content_of(&self.bearer_token_file).map(HubCredentials::Bearer);
        let identity = content_of(&self.client_cert).zip(content_of(&self.client_key));
        let both =
            |(cert, key): (Secret, Secret)| format!("{}\n{}", cert.reveal(), key.reveal()).into();
        // Loading has filled it in.
        let publish_url =
            content_of(&self.publish_url).unwrap_or_else(|| Secret::new(hub.as_str()));
        let settings = PublishSettings {
            publish_url: Url::parse(publish_url.reveal()).map_err(|source| {
                PublishSettingsError::Url {
                    hub: hub.clone(),
                    source,
                }
            })?,
            timeout: self.timeout.0,
            proxy: (self.proxy.clone()).map_or(HubProxy::Environment, |proxy| proxy.0),
            headers: headers.collect::<Result<_, _>>()?,
            credentials: bearer.or(basic),
            ca_pem: content_of(&self.ca_file).map(|ca| ca.bytes().into()),
            identity_pem: identity.map(both),
            danger_accept_invalid_certs: self.danger_accept_invalid_certs,
            hub: self.hub.clone(),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Hides what may be secret: headers, and the part of an address that is not advertised which may hold a key.
    pub fn mask_secrets(&mut self) {
        mask_headers(&mut self.headers);
        if let Some(held) = &mut self.publish_url
            && held.holder.is_none()
            && held.content.reveal() != self.hub.as_str()
        {
            *held = ConfiguredSecret::from_text(match Url::parse(held.content.reveal()) {
                Ok(url) if &url[Position::BeforePath..] == "/" => return,
                Ok(url) => format!("{}/{MASKED}", &url[..Position::BeforePath]),
                Err(_) => MASKED.to_owned(),
            });
        }
    }
}

/// Checks an address, which is kept byte for byte. The message repeats none that holds a password.
pub fn check_address(text: &str) -> Result<(), String> {
    let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next();
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(NO_CREDENTIALS.to_owned());
    }
    check_uri(text)
}

/// Checks the name of a header, and that a secret is not written here.
fn check_header_name(name: &str, is_literal: bool) -> Result<(), &'static str> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err("a header's name has letters, digits and \"-\" only");
    }
    let is_in = |list: &str| list.split(' ').any(|word| word.eq_ignore_ascii_case(name));
    if is_in(RESERVED_HEADERS) {
        return Err("the protocol decides this header");
    }
    if is_literal && is_in(SECRET_HEADERS) {
        return Err(
            "its value is a secret, which does not belong into this file: write { file = \"...\" }, \
             { env = \"...\" } or { credential = \"...\" }",
        );
    }
    Ok(())
}
