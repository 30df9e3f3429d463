//! Connection settings of one hub: URL, timeout, proxy, headers, certificates and credentials; built into one client.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use resourcesync::uri::Hub;
use url::Url;

use crate::http::client;
use crate::secret::{Mask, Secret};

/// Connection settings of one hub.
#[derive(Debug, Clone)]
pub struct PublishSettings {
    /// The advertised URL.
    pub hub: Hub,
    /// The URL to `POST` to.
    pub publish_url: Url,
    /// Timeout of each request, from connecting to the end of the answer.
    pub timeout: Duration,
    /// The proxy that requests go through.
    pub proxy: HubProxy,
    /// Headers to send with each request.
    pub headers: Vec<HubHeader>,
    /// Credentials to send with each request.
    pub credentials: Option<HubCredentials>,
    /// Certificates to trust besides the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub identity_pem: Option<Secret>,
    /// Accept any server certificate. For tests.
    pub danger_accept_invalid_certs: bool,
}

/// The proxy for requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubProxy {
    /// The proxy that `HTTPS_PROXY`, `NO_PROXY` and the like name.
    Environment,
    /// No proxy.
    Direct,
    /// The proxy at a URL.
    Through(Url),
}

/// A header to send with each request.
#[derive(Debug, Clone)]
pub struct HubHeader {
    /// Name of the header.
    pub name: HeaderName,
    /// Value of the header.
    pub value: Secret,
    /// True if reports may show the value, because the configuration has it in plain text.
    pub is_public: bool,
}

/// Credentials for the `Authorization` header.
#[derive(Debug, Clone)]
pub enum HubCredentials {
    /// A bearer token (RFC 6750).
    Bearer(Secret),
    /// A user name and a password (RFC 7617).
    Basic {
        /// User name.
        username: String,
        /// Password.
        password: Secret,
    },
}

/// An error of connection settings.
#[derive(Debug, thiserror::Error)]
pub enum PublishSettingsError {
    /// The address is no URL.
    #[error("the address of hub {hub} is no URL")]
    Url {
        /// The hub.
        hub: Hub,
        /// Cause.
        source: url::ParseError,
    },
    /// A header cannot be sent.
    #[error("the header {name} for hub {hub} has an impossible name or value")]
    Header {
        /// The hub.
        hub: Hub,
        /// Name of the header.
        name: String,
    },
    /// The proxy cannot be used.
    #[error("cannot use the proxy {proxy} for hub {hub}")]
    HubProxy {
        /// The hub.
        hub: Hub,
        /// The proxy's URL.
        proxy: String,
        /// Cause.
        source: reqwest::Error,
    },
    /// The certificates or the key cannot be read.
    #[error("cannot use the certificates or the key for hub {hub}")]
    Certificates {
        /// The hub.
        hub: Hub,
        /// Cause.
        source: reqwest::Error,
    },
    /// The client cannot be built.
    #[error("cannot prepare requests to hub {hub}")]
    Client {
        /// The hub.
        hub: Hub,
        /// Cause.
        source: reqwest::Error,
    },
}

impl PublishSettings {
    /// Returns the default settings, which publish to the advertised URL.
    ///
    /// # Errors
    ///
    /// If the hub is no URL.
    pub fn new(hub: Hub) -> Result<PublishSettings, PublishSettingsError> {
        let publish_url = Url::parse(hub.as_str()).map_err(|source| PublishSettingsError::Url {
            hub: hub.clone(),
            source,
        })?;
        Ok(PublishSettings {
            hub,
            publish_url,
            timeout: Duration::from_secs(30),
            proxy: HubProxy::Environment,
            headers: Vec::new(),
            credentials: None,
            ca_pem: None,
            identity_pem: None,
            danger_accept_invalid_certs: false,
        })
    }

    /// Builds the client. All its requests carry the hub's credentials, so it must not be used for other servers.
    ///
    /// # Errors
    ///
    /// If the settings cannot be used.
    pub fn client(&self) -> Result<Client, PublishSettingsError> {
        let mut built = self.builder()?.build();
        if built.is_err() && is_plain_http(&self.publish_url) {
            // Plain HTTP works without the system's certificates.
            built = self.builder()?.tls_certs_only([]).build();
        }
        built.map_err(|source| PublishSettingsError::Client {
            hub: self.hub.clone(),
            source,
        })
    }

    /// Checks the settings alone, independent of the machine's certificates.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    pub fn check(&self) -> Result<(), PublishSettingsError> {
        let strict = self
            .builder()?
            .tls_certs_only([])
            .tls_danger_accept_invalid_certs(false);
        let built = strict.build().map(drop);
        built.map_err(|source| self.certificates_error(source))
    }

    fn builder(&self) -> Result<ClientBuilder, PublishSettingsError> {
        let failed = |source| self.certificates_error(source);
        let mut builder = client::builder(self.timeout)
            .tls_danger_accept_invalid_certs(self.danger_accept_invalid_certs)
            .default_headers(self.default_headers()?);
        builder = match &self.proxy {
            HubProxy::Environment => builder,
            HubProxy::Direct => builder.no_proxy(),
            HubProxy::Through(proxy) => {
                let through = reqwest::Proxy::all(proxy.as_str());
                builder.proxy(through.map_err(|source| PublishSettingsError::HubProxy {
                    hub: self.hub.clone(),
                    proxy: proxy.to_string(),
                    source,
                })?)
            }
        };
        if self.is_plain_http() {
            builder = builder.tls_certs_only([]);
        }
        if let Some(pem) = &self.ca_pem {
            builder = builder.tls_certs_merge(Certificate::from_pem_bundle(pem).map_err(failed)?);
        }
        if let Some(pem) = &self.identity_pem {
            builder =
                builder.identity(Identity::from_pem(pem.reveal().as_bytes()).map_err(failed)?);
        }
        Ok(builder)
    }

    fn certificates_error(&self, source: reqwest::Error) -> PublishSettingsError {
        PublishSettingsError::Certificates {
            hub: self.hub.clone(),
            source,
        }
    }

    /// Returns true if TLS is never used for this hub: a redirection may lead to the advertised URL (R23).
    fn is_plain_http(&self) -> bool {
        let advertised = Url::parse(self.hub.as_str());
        is_plain_http(&self.publish_url)
            && advertised.is_ok_and(|advertised| is_plain_http(&advertised))
    }

    fn default_headers(&self) -> Result<HeaderMap, PublishSettingsError> {
        let credentials = self.credentials.iter();
        let authorization = credentials.map(|it| (&AUTHORIZATION, it.authorization()));
        let added = self.headers.iter();
        let added = added.map(|header| (&header.name, header.value.clone()));
        let mut headers = HeaderMap::new();
        for (name, value) in authorization.chain(added) {
            let mut value = HeaderValue::from_bytes(value.reveal().as_bytes()).map_err(|_| {
                PublishSettingsError::Header {
                    hub: self.hub.clone(),
                    name: name.to_string(),
                }
            })?;
            value.set_sensitive(true);
            headers.append(name.clone(), value);
        }
        Ok(headers)
    }
}

impl HubCredentials {
    /// Returns what a hub refuses that answers 401, in words.
    pub(crate) fn in_words(&self) -> &'static str {
        match self {
            HubCredentials::Bearer(_) => "bearer token",
            HubCredentials::Basic { .. } => "user name or password",
        }
    }

    /// Returns the value of the `Authorization` header.
    fn authorization(&self) -> Secret {
        match self {
            HubCredentials::Bearer(token) => Secret::new(format!("Bearer {}", token.reveal())),
            HubCredentials::Basic { username, password } => {
                let pair = format!("{username}:{}", password.reveal());
                Secret::new(format!("Basic {}", BASE64_STANDARD.encode(pair)))
            }
        }
    }
}

/// Returns a mask for the secrets in these settings, which a hub may repeat.
pub fn mask<'a>(settings: impl IntoIterator<Item = &'a PublishSettings>) -> Mask {
    let mut secrets = Vec::new();
    for settings in settings {
        secrets.extend(secrets_in_address(settings));
        let headers = settings.headers.iter().filter(|header| !header.is_public);
        let mut sent: Vec<Secret> = headers.map(|header| header.value.clone()).collect();
        sent.extend(
            settings
                .credentials
                .as_ref()
                .map(HubCredentials::authorization),
        );
        // A hub may leave out the scheme.
        let bare = sent
            .iter()
            .filter_map(|value| value.reveal().split_once(' '));
        secrets.extend(bare.map(|(_, value)| Secret::new(value)));
        secrets.extend(sent);
        if let Some(HubCredentials::Basic { password, .. }) = &settings.credentials {
            secrets.push(password.clone());
        }
    }
    Mask::new(secrets)
}

/// Returns the parts of an unadvertised publish URL that may be keys: the values in its query, and the segments of its path
/// that are not conventional.
fn secrets_in_address(settings: &PublishSettings) -> Vec<Secret> {
    const CONVENTIONAL: &str = "content notification notifications publish publisher pubsubhubbub \
        resourcesync subscribe websub";
    const SHORTEST_PART: usize = 6;
    const SHORTEST_VALUE: usize = 4;
    let url = &settings.publish_url;
    let advertised = Url::parse(settings.hub.as_str()).ok();
    let is_advertised = |part: &str| {
        let segments = advertised.iter().filter_map(Url::path_segments).flatten();
        segments.into_iter().any(|segment| segment == part)
    };
    if advertised.as_ref() == Some(url) {
        return Vec::new();
    }
    let parts = url.path_segments().into_iter().flatten().filter(|part| {
        part.chars().count() >= SHORTEST_PART
            && !CONVENTIONAL
                .split(' ')
                .any(|it| part.eq_ignore_ascii_case(it))
            && !is_advertised(part)
    });
    let values = url.query().into_iter().flat_map(|query| query.split('&'));
    let values = values
        .map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value))
        .filter(|value| value.len() >= SHORTEST_VALUE);
    let decoded = |text: &str| {
        let pair = format!("={text}");
        let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
        pairs.next().map(|(_, value)| value.into_owned())
    };
    let written: Vec<&str> = parts.chain(values).collect();
    let decoded: Vec<String> = written.iter().filter_map(|text| decoded(text)).collect();
    let written = written.into_iter().map(str::to_owned);
    written.chain(decoded).map(Secret::new).collect()
}

fn is_plain_http(url: &Url) -> bool {
    url.scheme() == "http"
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("http://hub.org/", "http://hub.org/in", true)]
    #[case("https://hub.org/", "http://hub.org/in", false)]
    #[case("http://hub.org/", "https://hub.org/in", false)]
    #[case("https://hub.org/", "https://hub.org/in", false)]
    fn only_a_hub_that_never_speaks_tls_does_without_certificates(
        #[case] advertised: &str,
        #[case] publish_url: &str,
        #[case] want: bool,
    ) {
        let mut settings = PublishSettings::new(Hub::new(advertised)).unwrap();
        settings.publish_url = publish_url.parse().unwrap();
        assert_eq!(settings.is_plain_http(), want);
    }

    #[test]
    fn invalid_certificates_are_accepted_only_where_it_was_asked_for() {
        for asked in [false, true] {
            let mut settings = PublishSettings::new(Hub::new("https://hub.org/")).unwrap();
            settings.danger_accept_invalid_certs = asked;
            let shown = format!("{:?}", settings.builder().unwrap());
            let is_accepted = shown.contains("tls_danger_accept_invalid_certs: true");
            assert_eq!(is_accepted, asked, "{shown}");
        }
    }
}
