//! Hubs with TLS: verification of certificates in both directions; and hubs behind a proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use h2::server::handshake;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use websub::publisher::http::Submitter;
use websub::publisher::settings::{HubProxy, PublishSettings};
use websub::secret::Secret;

use crate::publish::answers::listen;
use crate::publish::{judged, settings, with_token};
use crate::support::{BODY, Peer, Seen, free_address, notification, say, soon, talk};

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A hub that speaks TLS, to be started.
struct TlsHub {
    certificate: String,
    key: String,
    clients_of: Option<String>,
    protocols: Vec<&'static str>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate and its key.
    fn sign(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A hub of these names.
    fn hub(&self, names: &[&str]) -> TlsHub {
        self.hub_with(names, |_| {})
    }

    fn hub_with(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> TlsHub {
        let (certificate, key) = self.sign(names, change);
        TlsHub::new(certificate, key)
    }

    /// Returns a client certificate of this authority with its key.
    fn identity(&self) -> Secret {
        let usage = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        let (certificate, key) = self.sign(&["rsnotify"], usage);
        Secret::new(format!("{certificate}\n{key}"))
    }
}

impl TlsHub {
    fn new(certificate: String, key: String) -> TlsHub {
        TlsHub {
            certificate,
            key,
            clients_of: None,
            protocols: vec!["http/1.1"],
        }
    }

    fn config(&self) -> ServerConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match &self.clients_of {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
                    .unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
        let protocols = self.protocols.iter();
        config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// Takes every notification.
    async fn start(self) -> Peer {
        let acceptor = TlsAcceptor::from(Arc::new(self.config()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    match acceptor.accept(stream).into_fallible().await {
                        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                            talk_http2(stream, connection, &sender).await;
                        }
                        Ok(mut stream) => {
                            talk(&mut stream, connection, &|_| say("200 OK", "", ""), &sender)
                                .await;
                        }
                        Err((_, mut stream)) => {
                            // As servers should close: not before the other side has.
                            let mut rest = Vec::new();
                            let _ = stream.read_to_end(&mut rest).await;
                        }
                    }
                });
            }
        });
        Peer { address, seen }
    }
}

async fn talk_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    sender: &mpsc::UnboundedSender<Seen>,
) {
    let mut requests = handshake(stream).await.unwrap();
    while let Some(Ok((request, mut answer))) = requests.accept().await {
        let sender = sender.clone();
        tokio::spawn(async move {
            let (head, mut body) = request.into_parts();
            let mut text = format!("{} {} {:?}", head.method, head.uri.path(), head.version);
            for (name, value) in &head.headers {
                text += &format!("\r\n{name}: {}", value.to_str().unwrap());
            }
            let mut seen = Seen {
                connection,
                head: text,
                body: Vec::new(),
            };
            while let Some(Ok(data)) = body.data().await {
                seen.body.extend_from_slice(&data);
                let _ = body.flow_control().release_capacity(data.len());
            }
            sender.send(seen).unwrap();
            answer.send_response(Default::default(), true).unwrap();
        });
    }
}

fn trusting(peer: &Peer, authority: &Authority) -> PublishSettings {
    let mut settings = settings(&format!("https://{}/in", peer.address));
    settings.ca_pem = Some(authority.pem.clone().into_bytes());
    settings
}

async fn submit(settings: PublishSettings) -> String {
    let url = settings.hub.clone();
    let publisher = Submitter::new(vec![settings]).unwrap();
    judged(&publisher.submit(&notification(url.as_str())).await)
}

#[tokio::test]
async fn a_hub_of_a_private_authority_receives_the_same_in_http_1_and_2() {
    let authority = Authority::new("Us");
    for (protocols, want) in [
        (vec!["http/1.1"], "POST /in HTTP/1.1"),
        (vec!["h2", "http/1.1"], "POST /in HTTP/2.0"),
    ] {
        let mut hub = authority.hub(&["127.0.0.1"]);
        hub.protocols = protocols;
        let mut peer = hub.start().await;
        assert_eq!(submit(trusting(&peer, &authority)).await, "accepted");
        let seen = peer.next().await;
        assert_eq!(seen.line(), want);
        let one = |name: &str| {
            let lower_case = name.to_lowercase();
            let values = [seen.header(name), seen.header(&lower_case)].concat();
            assert!(values.len() <= 1, "{name}: {values:?}");
            values.first().map(ToString::to_string)
        };
        assert_eq!(one("Content-Type").as_deref(), Some("application/xml"));
        assert_eq!(one("Content-Length"), Some(BODY.len().to_string()));
        assert_eq!(one("Transfer-Encoding"), None);
        let link = format!(
            "<https://e.org/set1/framework/>; rel=\"self\", <https://{}/in>; rel=\"hub\", \
             <https://e.org/set1/cl.xml>; rel=\"resourcesync\"",
            peer.address
        );
        assert_eq!(one("Link"), Some(link));
        assert_eq!(seen.body, BODY);
    }
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_is_refused_with_the_reason_unless_all_are_accepted() {
    let (ours, other) = (Authority::new("Us"), Authority::new("Others"));
    let double = Authority::new("Us");
    let year = |year| {
        move |params: &mut CertificateParams| {
            params.not_before = rcgen::date_time_ymd(year, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
        }
    };
    let untrusted = "its certificate is self-signed, or signed by an authority that is not trusted: name it, or its \
                     authority's certificate, in ca_file";
    let expired = "its certificate has expired, or this machine's clock is wrong";
    let too_new = "its certificate is not valid yet, or this machine's clock is wrong";
    for (hub, want) in [
        (other.hub(&["127.0.0.1"]), untrusted),
        (double.hub(&["127.0.0.1"]), untrusted),
        (
            ours.hub(&["hub.example"]),
            "its certificate is another host's (certificate not valid for name \"127.0.0.1\"; certificate is only \
             valid for DnsName(\"hub.example\")): correct url or publish_url",
        ),
        (
            ours.hub_with(&["127.0.0.1"], |params| {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }),
            "its certificate is self-signed as an authority's own (CA:TRUE), which no server may show, named in ca_file or \
             not: make one with basicConstraints=CA:FALSE and name that in ca_file",
        ),
        (ours.hub_with(&["127.0.0.1"], year(2020)), expired),
        (ours.hub_with(&["127.0.0.1"], year(3020)), too_new),
    ] {
        let mut peer = hub.start().await;
        let mut settings = trusting(&peer, &ours);
        let told = submit(settings.clone()).await;
        assert_eq!(told, format!("in 8 s: no answer: {want}"));
        assert!(peer.seen.try_recv().is_err(), "{want}");
        settings.danger_accept_invalid_certs = true;
        assert_eq!(submit(settings).await, "accepted", "{want}");
        peer.next().await;
    }
}

#[tokio::test]
async fn a_hub_that_wants_a_certificate_gets_ours_or_says_so() {
    let (authority, other) = (Authority::new("Us"), Authority::new("Others"));
    let mut hub = authority.hub(&["127.0.0.1"]);
    hub.clients_of = Some(authority.pem.clone());
    let mut peer = hub.start().await;
    let mut settings = trusting(&peer, &authority);
    settings.identity_pem = Some(authority.identity());
    assert_eq!(submit(settings.clone()).await, "accepted");
    assert_eq!(peer.next().await.body, BODY);

    settings.identity_pem = None;
    let want = "in 8 s: no answer: it wants a client certificate: set client_cert and client_key";
    assert_eq!(submit(settings.clone()).await, want);
    settings.identity_pem = Some(other.identity());
    let want = "in 8 s: no answer: it does not take our certificate (";
    let got = submit(settings).await;
    let is_told = got.starts_with(want) && got.ends_with("): correct client_cert and client_key");
    assert!(is_told, "{got}");
    assert!(peer.seen.try_recv().is_err());
}

#[tokio::test]
async fn a_mismatch_of_tls_and_plain_text_is_reported() {
    let authority = Authority::new("Us");
    let plain = Peer::start(|_| say("200 OK", "", "")).await;
    let want = "in 8 s: no answer: it does not answer in TLS; is its address http?";
    // It never sees the end of a request, and says nothing.
    let rude = listen(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    let mut rude = settings(&rude.await.replace("http:", "https:"));
    // No authority of the system is needed.
    rude.ca_pem = Some(authority.pem.clone().into_bytes());
    assert_eq!(submit(rude).await, want);
    let mut patient = trusting(&plain, &authority);
    patient.timeout = std::time::Duration::from_millis(800);
    assert_eq!(submit(patient).await, "in 8 s: no answer: timed out");

    let tls = authority.hub(&["127.0.0.1"]).start().await;
    let got = submit(settings(&tls.url("/in"))).await;
    let want = "in 8 s: no answer: it does not answer in HTTP; is its address https?";
    assert!(got.starts_with(want), "{got}");
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_if_it_is_named_unless_it_is_an_authority_s() {
    for is_authority in [false, true] {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let peer = TlsHub::new(pem.clone(), key.serialize_pem()).start().await;
        let mut settings = settings(&format!("https://{}/in", peer.address));
        let told = submit(settings.clone()).await;
        assert!(
            told.contains("self-signed") && told.contains("ca_file"),
            "{told}"
        );
        settings.ca_pem = Some(pem.into_bytes());
        let told = submit(settings).await;
        let want = if is_authority { "CA:FALSE" } else { "accepted" };
        assert!(told.contains(want), "{told}");
    }
}

/// A tunnel to `target`, whatever it is asked to connect to; tells the heads of the requests.
async fn tunnel(target: SocketAddr) -> (HubProxy, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                sender.send(String::from_utf8(head).unwrap()).unwrap();
                let mut target = TcpStream::connect(target).await.unwrap();
                let connected = b"HTTP/1.1 200 Connected\r\n\r\n";
                stream.write_all(connected).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut target).await;
            });
        }
    });
    (HubProxy::Through(url.parse().unwrap()), asked)
}

fn through(proxy: HubProxy, url: &str) -> PublishSettings {
    let mut settings = with_token(url, "hidden");
    settings.proxy = proxy;
    settings
}

#[tokio::test]
async fn a_plain_hub_is_asked_for_by_its_whole_address() {
    // What the proxy answers is what the hub did.
    let mut proxy = Peer::start(|_| say("200 OK", "", "")).await;
    let url = "http://hub.invalid/publish?k=1";
    let address = HubProxy::Through(proxy.url("").parse().unwrap());
    assert_eq!(submit(through(address, url)).await, "accepted");
    let seen = proxy.next().await;
    assert_eq!(seen.line(), "POST http://hub.invalid/publish?k=1 HTTP/1.1");
    assert_eq!(seen.header("Host"), ["hub.invalid"]);
    assert_eq!(seen.header("Authorization"), ["Bearer hidden"]);
    assert_eq!(seen.header("Content-Length"), [BODY.len().to_string()]);
    assert_eq!(seen.body, BODY);
}

#[tokio::test]
async fn a_hub_with_tls_is_asked_for_by_its_name_and_trusts_nobody_between() {
    let authority = Authority::new("Us");
    let mut hub = authority.hub(&["hub.invalid"]).start().await;
    let (proxy, mut asked) = tunnel(hub.address).await;
    let url = "https://hub.invalid/publish";
    let mut settings = through(proxy, url);
    settings.ca_pem = Some(authority.pem.clone().into_bytes());
    assert_eq!(submit(settings).await, "accepted");
    let head = soon(asked.recv()).await.unwrap();
    let is_by_name = head.starts_with("CONNECT hub.invalid:443 HTTP/1.1\r\n");
    let is_silent = !head.contains("Authorization") && !head.contains("hidden");
    assert!(is_by_name && is_silent, "{head}");
    let seen = hub.next().await;
    assert_eq!(seen.header("Authorization"), ["Bearer hidden"]);
    assert_eq!(seen.body, BODY);
}

#[tokio::test]
async fn a_proxy_that_fails_is_no_answer_and_one_that_refuses_is_named() {
    let gone = format!("http://{}", free_address().await);
    let gone = HubProxy::Through(gone.parse().unwrap());
    let strict = Peer::start(|_| say("407 HubProxy Authentication Required", "", "")).await;
    let strict = HubProxy::Through(strict.url("").parse().unwrap());
    let (plain, tls) = ("http://hub.invalid/", "https://hub.invalid/");
    let unconnected = |why: &str| format!("in 8 s: no answer: cannot connect{why}");
    let no_tunnel = " through the proxy: failed to create underlying connection: ";
    let no_permission = " through the proxy: proxy authorization required";
    let wants = "in 900 s, by an operator: the proxy wants credentials (407)";
    for (proxy, url, want) in [
        (&gone, plain, unconnected(": ")),
        (&gone, tls, unconnected(no_tunnel)),
        (&strict, plain, wants.to_owned()),
        (&strict, tls, unconnected(no_permission)),
    ] {
        let mut settings = through(proxy.clone(), url);
        // No system's certificates are needed to find that out.
        settings.ca_pem = Some(Authority::new("Us").pem.into_bytes());
        let judged = submit(settings).await;
        assert!(judged.starts_with(&want), "{url}: {judged}");
    }
}
