//! TLS to a broker: a private authority, and certificates in both directions.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::brokers::{Story, broker, distinct};
use crate::support::daemon::assert_contains;
use crate::support::stomp::FakeBroker;

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { issuer, pem }
    }

    /// Returns a certificate and its key.
    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the settings of a server that wants a client certificate of this authority.
    fn server(&self) -> Arc<ServerConfig> {
        let (certificate, key) = self.sign("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            );
        Arc::new(config.unwrap())
    }
}

#[test]
fn a_private_authority_and_a_client_certificate_are_used() {
    let authority = Authority::new();
    let fake = FakeBroker::start_with(Some(authority.server()));
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = authority.sign("rsnotify", ExtendedKeyUsagePurpose::ClientAuth);
    let files = [
        ("ca", &authority.pem),
        ("cert", &certificate),
        ("key", &key),
    ];
    let [ca, cert, key] = files.map(|(name, content)| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    });
    let tls = |more: &str| broker(fake.address, more).replace("stomp://", "stomp+tls://");
    let trusting = format!("ca_file = \"{ca}\"");
    let identity = format!("client_cert = \"{cert}\"\nclient_key = \"{key}\"");
    for (more, want) in [
        (String::new(), "UnknownIssuer"),
        (trusting.clone(), "CertificateRequired"),
    ] {
        let mut story = Story::new(&tls(&more));
        let daemon = story.start();
        story.change();
        let entry = daemon.await_log("did not accept");
        let reason = entry["reason"].as_str().unwrap();
        assert_contains(reason, want);
    }
    let mut story = Story::new(&tls(&format!("{trusting}\n{identity}")));
    let daemon = story.start();
    story.change();
    assert_eq!(distinct(&fake.messages(1)), (story.changes(), 0));
    assert!(daemon.stop().success());
}
