//! Requests as they would be sent, for `dry-run`, with secrets masked.

use std::fmt;
use std::sync::Arc;

use url::Url;

use crate::http::client::USER_AGENT;
use crate::publisher::HubRequest;
use crate::publisher::settings::{HubCredentials, PublishSettings, mask};
use crate::secret::MASKED;

/// A `POST` request as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The URL to `POST` to.
    pub url: String,
    /// In no particular order, which HTTP gives no meaning.
    pub headers: Vec<(String, String)>,
    /// The payload or form.
    pub body: Arc<[u8]>,
}

impl Preview {
    /// Returns a request to `url` with the headers common to all our requests.
    pub fn new(url: &str, headers: Vec<(&'static str, String)>, body: &Arc<[u8]>) -> Preview {
        let mut preview = Preview {
            url: url.to_owned(),
            headers: Vec::new(),
            body: Arc::clone(body),
        };
        if let Ok(url) = Url::parse(url) {
            let port = url
                .port()
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            let host = url.host_str().unwrap_or_default();
            preview.add("Host", format!("{host}{port}"));
            preview.url = url.into();
        }
        preview.add("User-Agent", USER_AGENT);
        preview.add("Accept", "*/*");
        for (name, value) in headers {
            preview.add(name, value);
        }
        preview.add("Content-Length", body.len().to_string());
        preview
    }

    /// Returns the request that notifies a hub.
    pub fn of_notification(request: HubRequest, settings: &PublishSettings) -> Preview {
        let url = request.url(&settings.publish_url);
        let mut preview = Preview::new(&url, request.headers, &request.body);
        preview.url = mask([settings]).hide(&preview.url);
        for header in &settings.headers {
            let shown = if header.is_public {
                header.value.reveal()
            } else {
                MASKED
            };
            preview.add(header.name.as_str(), shown);
        }
        if let Some(credentials) = &settings.credentials {
            let scheme = match credentials {
                HubCredentials::Bearer(_) => "Bearer",
                HubCredentials::Basic { .. } => "Basic",
            };
            preview.add("Authorization", format!("{scheme} {MASKED}"));
        }
        preview
    }

    fn add(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "POST {}", self.url)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        writeln!(f)?;
        writeln!(f, "{}", String::from_utf8_lossy(&self.body).trim_end())
    }
}
