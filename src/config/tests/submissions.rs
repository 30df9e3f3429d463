//! Tests of the settings of submissions that a hub's keys give.

use std::fs;

use websub::publisher::settings::PublishSettingsError;

use crate::config::Config;
use crate::config::environment::Overrides;

/// A configuration of one hub, with these keys.
fn configured(directory: &tempfile::TempDir, keys: &str) -> Config {
    let path = directory.path().join("c.toml");
    let text = format!(
        "[[source]]\nname = \"main\"\nmount = [{{ path = \"www\", url = \"https://e.org\" }}]\n\
         [[hub]]\nurl = \"https://h.example/\"\n{keys}\n"
    );
    fs::write(&path, text).unwrap();
    Config::load(Some(&path), &Overrides::default()).unwrap()
}

#[test]
fn accepting_invalid_certificates_reaches_the_publisher() {
    let directory = tempfile::tempdir().unwrap();
    for (keys, want) in [("", false), ("danger_accept_invalid_certs = true", true)] {
        let hubs = configured(&directory, keys).publish_settings().unwrap();
        assert_eq!(hubs[0].danger_accept_invalid_certs, want);
    }
}

#[test]
fn a_certificate_that_is_none_is_an_error_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let pem = |kind: &str, inside: &str| {
        format!("-----BEGIN {kind}-----\n{inside}\n-----END {kind}-----\n")
    };
    let key = pem("PRIVATE KEY", "aGVsbG8=");
    fs::write(directory.path().join("key.pem"), key).unwrap();
    // No base64, and base64 of something else.
    for inside in ["?", "aGVsbG8="] {
        let certificate = pem("CERTIFICATE", inside);
        fs::write(directory.path().join("cert.pem"), certificate).unwrap();
        for keys in [
            "ca_file = \"cert.pem\"",
            "ca_file = \"cert.pem\"\ndanger_accept_invalid_certs = true",
            "client_cert = \"cert.pem\"\nclient_key = \"key.pem\"",
        ] {
            let error = configured(&directory, keys).publish_settings().unwrap_err();
            let is_of_certificates = matches!(error, PublishSettingsError::Certificates { .. });
            assert!(is_of_certificates, "{keys}: {error:?}");
        }
    }
}
