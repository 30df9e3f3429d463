//! Message brokers with the real binary: a broker that dies anywhere, TLS, and, where they are installed, real ones.

mod consumers;
mod feeds;
mod listening;
mod resending;
mod transactions;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use messaging::frame::Frame;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use resourcesync::change_payload::ChangePayload;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::Value;

use crate::support::changes::{change_list, told};
use crate::support::daemon::{Daemon, Setup, TOPICS, assert_contains};
use crate::support::documents::Site;
use crate::support::stomp::FakeBroker;

/// A `[[broker]]` named `repository` at this address.
fn broker(address: SocketAddr, more: &str) -> String {
    format!(
        "[[broker]]\nname = \"repository\"\nurl = \"stomp://{address}\"\n\
         destination = \"/topic/{{source}}.changes\"\n{more}\n"
    )
}

/// A site with one set, and a daemon that tells brokers of its changes.
struct Story {
    site: Site,
    setup: Setup,
    entries: Vec<String>,
}

impl Story {
    fn new(brokers: &str) -> Story {
        let site = Site::new();
        let setup = Setup::with_source(&site, "deletion_grace = \"0s\"", brokers);
        // Topics stay the same whatever port is free.
        let public = format!("[server]\npublic_url = \"{TOPICS}\"\n");
        let config = setup.config.replace("[server]\n", &public);
        let setup = Setup { config, ..setup };
        let story = Story {
            site,
            setup,
            entries: Vec::new(),
        };
        story.write();
        story
    }

    /// With a broker that takes everything, configured with `more`.
    fn with_broker(more: &str) -> (FakeBroker, Story) {
        let fake = FakeBroker::start();
        let story = Story::new(&broker(fake.address, more));
        (fake, story)
    }

    /// Starts the daemon for the first time, and waits until it has learned what the Change List has.
    fn start(&self) -> Daemon {
        let daemon = self.setup.launch();
        daemon.await_log("not announcing");
        daemon
    }

    fn write(&self) {
        let list = change_list("a", &self.entries);
        self.site.write("a/changelist.xml", &list);
    }

    /// Adds a change to the Change List.
    fn change(&mut self) {
        let number = self.entries.len();
        let (minute, second) = (number / 60, number % 60);
        let entry = format!("updated {number}.txt 10:{minute:02}:{second:02}");
        self.entries.push(entry);
        self.write();
    }

    /// Returns the changes that were made, in order.
    fn changes(&self) -> Vec<String> {
        let entries = self.entries.iter();
        let changes = entries.map(|entry| entry.rsplit_once(' ').unwrap().0);
        changes.map(|change| change.replace(' ', " a/")).collect()
    }
}

/// Returns what a status says of a broker on the first channel that it hears.
fn view<'a>(status: &'a Value, broker: &str) -> Option<&'a Value> {
    let channels = status["channels"].as_array()?.iter();
    let mut hubs = channels.flat_map(|channel| channel["hubs"].as_array().into_iter().flatten());
    hubs.find(|hub| hub["hub"] == broker)
}

/// Returns the changes of messages, of which a repeat counts once; and how many were repeats.
fn distinct(messages: &[Frame]) -> (Vec<String>, usize) {
    let mut ids = HashSet::new();
    let mut changes = Vec::new();
    let mut repeats = 0;
    for message in messages {
        match ids.insert(message.header("messageId").unwrap()) {
            true => changes.extend(told(&ChangePayload::parse(&message.body).unwrap())),
            false => repeats += 1,
        }
    }
    (changes, repeats)
}

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
