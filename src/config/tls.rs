//! The keys about certificates, which `[[hub]]` and `[[broker]]` both have.

use crate::config::definition::Example;
use crate::config::definition::Fallback::Nothing;
use crate::config::effective::Page;
use crate::config::form::HOLDER;
use crate::config::header::holder;
use crate::config::holder::Holder;
use crate::config::key::ConfigKey;
use crate::config::secret::{HeldSecret, pem};
use crate::config::section::Section;

/// The ends of lines that begin a block of PEM.
const CERTIFICATE: &str = "CERTIFICATE-----";
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// The keys, as one table has them.
#[derive(Debug)]
pub struct TlsKeys {
    pub client_cert: ConfigKey<Holder>,
    pub client_key: ConfigKey<Holder>,
    pub ca_file: ConfigKey<Holder>,
}

/// Certificates that a table names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsConfig {
    pub client_identity: Option<ClientIdentity>,
    /// Certificates, in PEM, trusted beside the system's.
    pub ca: Option<HeldSecret>,
}

/// A TLS client certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: HeldSecret,
    pub key: HeldSecret,
}

impl TlsKeys {
    /// Returns the keys of a table.
    pub const fn new(table: &'static str) -> TlsKeys {
        TlsKeys {
            client_cert: ConfigKey::new(
                table,
                "client_cert",
                HOLDER,
                Nothing,
                "Holder of a TLS client certificate in PEM; needs `client_key`.",
            )
            .example(Example::Comment("\"/etc/rsnotify/client.pem\"")),
            client_key: ConfigKey::new(
                table,
                "client_key",
                HOLDER,
                Nothing,
                "Holder of the private key of `client_cert`, in PEM.",
            )
            .example(Example::Comment("\"/etc/rsnotify/client.key\"")),
            ca_file: ConfigKey::new(
                table,
                "ca_file",
                HOLDER,
                Nothing,
                "Holder of certificates to trust beside the system's, in PEM.",
            )
            .example(Example::Comment("\"/etc/rsnotify/ca.pem\"")),
        }
    }

    /// Reads the keys, and the files that they name. Each key is reported with `refused`, if there is such a reason.
    pub fn read(
        &self,
        section: &mut Section<'_, '_, '_>,
        refused: Option<&'static str>,
    ) -> TlsConfig {
        let client_identity = self.client_identity(section, refused);
        let ca = section.given(&self.ca_file);
        if let (Some(ca), Some(refused)) = (&ca, refused) {
            let key = &self.ca_file.definition;
            section.loader.report(ca.origin, key, refused);
        }
        let ca = ca.and_then(|ca| pem(section.loader, &self.ca_file.definition, ca, CERTIFICATE));
        TlsConfig {
            client_identity,
            ca,
        }
    }

    fn client_identity(
        &self,
        section: &mut Section<'_, '_, '_>,
        refused: Option<&'static str>,
    ) -> Option<ClientIdentity> {
        let (cert_key, key_key) = (&self.client_cert, &self.client_key);
        match (section.given(cert_key), section.given(key_key)) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let loader = &mut section.loader;
                if let Some(refused) = refused {
                    loader.report(certificate.origin, &cert_key.definition, refused);
                }
                let certificate = pem(loader, &cert_key.definition, certificate, CERTIFICATE);
                let key = pem(loader, &key_key.definition, key, PRIVATE_KEY);
                Some(ClientIdentity {
                    certificate: certificate?,
                    key: key?,
                })
            }
            (Some(certificate), None) => {
                section.report_lack((cert_key, &certificate), key_key);
                None
            }
            (None, Some(key)) => {
                section.report_lack((key_key, &key), cert_key);
                None
            }
        }
    }

    /// Writes the keys.
    pub fn effective(&self, page: &mut Page<'_>, tls: &TlsConfig) {
        // A field that is added cannot be forgotten here.
        let TlsConfig {
            client_identity,
            ca,
        } = tls;
        if let Some(ClientIdentity { certificate, key }) = client_identity {
            page.key(&self.client_cert.definition, holder(&certificate.holder));
            page.key(&self.client_key.definition, holder(&key.holder));
        }
        if let Some(ca) = ca {
            page.key(&self.ca_file.definition, holder(&ca.holder));
        }
    }
}
