//! Connection settings of a broker.

use std::time::Duration;

use resourcesync::uri::Hub;
use websub::secret::{Mask, Secret};

use crate::broker::feeds::objects::PayloadFormat;
use crate::broker::tls;

/// The time between two heart-beats, each way (F7).
pub const HEART_BEAT: Duration = Duration::from_secs(10);

/// Settings of one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// The name, by which the plan identifies it as it does a hub by its address.
    pub name: Hub,
    pub host: String,
    pub port: u16,
    pub transport: Transport,
    /// The `host` header of `CONNECT`.
    pub vhost: String,
    pub login: Option<Login>,
    /// The destination of messages; `{source}` stands for the name of the source.
    pub destination: String,
    pub payload: PayloadFormat,
    /// Headers of each message, in order of name.
    pub headers: Vec<BrokerHeader>,
    /// Timeout of connecting, and of silence while receipts are pending.
    pub timeout: Duration,
    /// Time between two heart-beats that we offer and request.
    pub heart_beat: Duration,
}

/// A header of each message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerHeader {
    pub name: String,
    pub value: Secret,
    /// True if reports may show the value, because the configuration has it in plain text.
    pub is_public: bool,
}

/// The transport of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Tls {
        /// Certificates, in PEM, to trust besides the system's.
        ca_pem: Option<Secret>,
        identity: Option<ClientCertificate>,
    },
}

/// A TLS client certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: Secret,
    pub key: Secret,
}

/// A user name with its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub username: String,
    pub password: Secret,
}

/// An error of connection settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the certificates or the key for broker {name}: {reason}")]
pub struct BrokerSettingsError {
    pub name: Hub,
    pub reason: String,
}

impl BrokerSettings {
    /// Checks the settings alone, independent of the machine's certificates.
    ///
    /// # Errors
    ///
    /// If the certificates or the key cannot be used.
    pub fn check(&self) -> Result<(), BrokerSettingsError> {
        let Transport::Tls { ca_pem, identity } = &self.transport else {
            return Ok(());
        };
        tls::check(ca_pem.as_ref(), identity.as_ref()).map_err(|reason| BrokerSettingsError {
            name: self.name.clone(),
            reason,
        })
    }

    /// Returns the destination of a source's messages.
    pub fn destination_of(&self, source: &str) -> String {
        self.destination.replace("{source}", source)
    }

    /// Returns the address as operators write it, without a scheme.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns a mask for its secrets, which the broker may repeat.
    pub fn mask(&self) -> Mask {
        let headers = self.headers.iter().filter(|header| !header.is_public);
        let headers = headers.map(|header| header.value.clone());
        let login = self.login.iter().map(|login| login.password.clone());
        Mask::new(headers.chain(login))
    }
}

#[cfg(test)]
impl BrokerSettings {
    /// Returns the settings of a broker of a test on loopback.
    pub(crate) fn on_port(port: u16) -> BrokerSettings {
        BrokerSettings {
            name: Hub::new("repository"),
            host: "127.0.0.1".to_owned(),
            port,
            transport: Transport::Tcp,
            vhost: "/".to_owned(),
            login: None,
            destination: "/topic/t".to_owned(),
            payload: PayloadFormat::ResourceSync,
            headers: Vec::new(),
            timeout: Duration::from_secs(60),
            heart_beat: HEART_BEAT,
        }
    }
}
