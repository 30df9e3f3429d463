//! TLS to a broker: the system's authorities and a configured one are trusted, and a client certificate is presented.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::Verifier;
use tokio_rustls::TlsConnector;
use websub::secret::Secret;

use crate::settings::BrokerSettings;

/// Checks certificates and key.
///
/// # Errors
///
/// As [`connector`], but for the certificates of the machine.
pub fn check(settings: &BrokerSettings) -> Result<(), String> {
    let roots = roots(authorities(settings)?)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    presented(builder, settings).map(drop)
}

/// Returns a TLS connector.
///
/// # Errors
///
/// If the certificates or the key cannot be used, with the reason.
pub fn connector(settings: &BrokerSettings) -> Result<TlsConnector, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let authorities = authorities(settings)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier(authorities, provider)?);
    let config = presented(builder, settings)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

fn authorities(settings: &BrokerSettings) -> Result<Vec<CertificateDer<'static>>, String> {
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
    let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes());
    let key = key.map_err(|error| format!("client_key: {error}"))?;
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
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider);
            let verifier = verifier.build().map_err(|error| error.to_string())?;
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
