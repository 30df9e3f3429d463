//! The hub's settings, with the client built from them. A reload replaces both at once.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use resourcesync::uri::Hub;

use crate::hub::callback::CallbackPolicy;
use crate::hub::callback::http::CallbackClient;
use crate::hub::limits::HubLimits;
use crate::hub::lookups::Resolver;
use crate::topics::http::host_and_target;

/// Settings of the embedded hub.
#[derive(Debug, Clone)]
pub struct EmbeddedHubSettings {
    /// The advertised URL, whose path is the endpoint for subscription requests.
    pub hub: Hub,
    /// Callbacks that it delivers to.
    pub policy: CallbackPolicy,
    /// Resolver of the callbacks' names, if it is not the system's.
    pub resolver: Option<Arc<Resolver>>,
    /// Limits on what clients may use.
    pub limits: HubLimits,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Timeout of each request to a callback, from connecting to the end of the answer. Large deliveries have more time.
    pub timeout: Duration,
    /// Maximum deliveries under way, and as many slow ones.
    pub concurrent_deliveries: usize,
    /// Maximum verifications under way, and as many slow ones; the others wait.
    pub concurrent_verifications: usize,
    /// Maximum concurrent lookups, and as many slow ones. Each uses a thread.
    pub concurrent_lookups: usize,
    /// Host names under which requests are accepted, besides IP addresses and localhost. If set, requests from pages of
    /// other origins are refused; if not, any host name is accepted.
    pub own_hosts: Option<Vec<String>>,
    /// Attempts at a verification whose callback does not answer.
    pub verification_attempts: u32,
}

impl EmbeddedHubSettings {
    /// Returns the settings of a public hub at this URL.
    pub fn new(hub: Hub) -> EmbeddedHubSettings {
        EmbeddedHubSettings {
            hub,
            policy: CallbackPolicy::default(),
            resolver: None,
            limits: HubLimits::default(),
            trusted_proxies: Vec::new(),
            timeout: Duration::from_secs(10),
            concurrent_deliveries: 512,
            concurrent_verifications: 64,
            concurrent_lookups: 64,
            own_hosts: None,
            verification_attempts: 3,
        }
    }
}

/// Checked settings with the client built from them.
#[derive(Debug)]
pub struct PreparedHub {
    /// The settings.
    pub settings: EmbeddedHubSettings,
    /// The path of its URI.
    pub path: String,
    /// The client for requests to callbacks.
    pub client: CallbackClient,
}

impl PreparedHub {
    /// Builds the client of a hub.
    ///
    /// # Errors
    ///
    /// If the HTTP client cannot be built.
    pub fn new(settings: EmbeddedHubSettings) -> Result<PreparedHub, HubStartError> {
        let client = CallbackClient::new(&settings)?;
        let (_, target) = host_and_target(settings.hub.as_str());
        Ok(PreparedHub {
            path: target.split('?').next().unwrap_or("/").to_owned(),
            client,
            settings,
        })
    }
}

/// An error that prevents the hub from starting.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the HTTP client of the embedded hub")]
pub struct HubStartError(#[from] reqwest::Error);
