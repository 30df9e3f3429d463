//! Connection settings of a broker, and TLS to it: the system's authorities and a configured one are trusted, and a client
//! certificate is presented.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use resourcesync::uri::Hub;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::Verifier;
use tokio_rustls::TlsConnector;
use websub::secret::{Mask, Secret};

use crate::objects::AtomRules;

/// The time between two heart-beats, each way (F7).
pub const HEART_BEAT: Duration = Duration::from_secs(10);

/// Settings of one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// The name, by which the plan identifies it as it does a hub by its address.
    pub name: Hub,
    /// Where it listens.
    pub address: BrokerAddress,
    /// Certificates, in PEM, to trust besides the system's.
    pub ca_pem: Option<Secret>,
    /// A TLS client certificate and its key, in PEM.
    pub identity: Option<(Secret, Secret)>,
    /// The `host` header of `CONNECT`.
    pub vhost: String,
    /// User name and password.
    pub login: Option<(String, Secret)>,
    /// The destination of messages; `{source}` stands for the name of the source.
    pub destination: String,
    /// Form of content change messages; nothing for notifications as hubs get them (F6).
    pub form: Option<AtomRules>,
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
    /// Its name, unescaped.
    pub name: String,
    /// Its value, unescaped.
    pub value: Secret,
    /// True if reports may show the value, because the configuration has it in plain text.
    pub is_public: bool,
}

/// The address of a broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerAddress {
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port, of TCP.
    pub port: u16,
    /// True for TLS from the beginning of the connection.
    pub is_tls: bool,
}

/// Writes it as operators do, without a scheme.
impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// An error of connection settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the certificates or the key for broker {name}: {reason}")]
pub struct BadCertificates {
    /// The name of the broker.
    pub name: Hub,
    /// The reason, with the key that it is about.
    pub reason: String,
}

impl BrokerSettings {
    /// Checks the certificates and the key that the settings name, without those of the machine.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used.
    pub fn check_certificates(&self) -> Result<(), BadCertificates> {
        let checked = || {
            let roots = roots(ca_certificates(self)?)?;
            let provider = Arc::new(aws_lc_rs::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots);
            presented(builder, self)
        };
        let name = self.name.clone();
        checked()
            .map(drop)
            .map_err(|reason| BadCertificates { name, reason })
    }

    /// Returns the destination of a source's messages.
    pub fn destination_of(&self, source: &str) -> String {
        self.destination.replace("{source}", source)
    }

    /// Returns a mask for its secrets, which the broker may repeat.
    pub fn secret_mask(&self) -> Mask {
        let headers = self.headers.iter().filter(|header| !header.is_public);
        let headers = headers.map(|header| header.value.clone());
        let login = self.login.iter().map(|(_, password)| password.clone());
        Mask::new(headers.chain(login))
    }
}

/// Returns a TLS connector.
///
/// # Errors
///
/// If the certificates or the key cannot be used, with the reason.
pub(crate) fn connector(settings: &BrokerSettings) -> Result<TlsConnector, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let authorities = ca_certificates(settings)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier(authorities, provider)?);
    let config = presented(builder, settings)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

fn ca_certificates(settings: &BrokerSettings) -> Result<Vec<CertificateDer<'static>>, String> {
    let ca_pem = settings.ca_pem.as_ref();
    ca_pem.map_or_else(|| Ok(Vec::new()), |pem| certificates(pem, "ca_file"))
}

fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority);
        added.map_err(|error| format!("ca_file: {error}"))?;
    }
    Ok(roots)
}

/// Adds the client certificate that is presented, if any.
fn presented(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    settings: &BrokerSettings,
) -> Result<ClientConfig, String> {
    let Some((certificate, key)) = &settings.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate, "client_cert")?;
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
        .map_err(|error| format!("client_key: {error}"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| format!("client_cert and client_key: {error}"))
}

/// Returns a verifier that trusts the system's authorities and these. Without any of the system's, these are enough.
fn verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    match Verifier::new_with_extra_roots(authorities.iter().cloned(), Arc::clone(&provider)) {
        Ok(verifier) => Ok(Arc::new(verifier)),
        Err(error) if authorities.is_empty() => Err(error.to_string()),
        Err(_) => {
            let roots = Arc::new(roots(authorities)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| error.to_string())?;
            Ok(verifier)
        }
    }
}

fn certificates(pem: &Secret, key: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem.reveal().as_bytes());
    let certificates: Result<Vec<_>, _> = certificates.collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(format!("{key}: no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("{key}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{BrokerAddress, BrokerSettings, Duration, HEART_BEAT, Hub};

    impl BrokerSettings {
        /// Returns the settings of a broker of a test on loopback.
        pub(crate) fn on_port(port: u16) -> BrokerSettings {
            BrokerSettings {
                name: Hub::new("repository"),
                address: BrokerAddress {
                    host: "127.0.0.1".to_owned(),
                    port,
                    is_tls: false,
                },
                ca_pem: None,
                identity: None,
                vhost: "/".to_owned(),
                login: None,
                destination: "/topic/t".to_owned(),
                form: None,
                headers: Vec::new(),
                timeout: Duration::from_secs(60),
                heart_beat: HEART_BEAT,
            }
        }
    }
}
