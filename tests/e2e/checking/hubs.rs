//! Hubs that notifications would not reach, and the requests of `check` to them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::DEADLINE;
use crate::support::daemon::{
    Setup, assert_contains, assert_lacks, assert_starts_with, count_of, output,
};
use crate::support::documents::{Site, capability_list};
use crate::support::hub::{FakeHub, Manner};

use super::front::Front;
use super::{CHANNEL, check, check_by};

const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A hub that answers each connection's first request so, and tells what it was asked.
fn hub(answer: String, tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let head = match &tls {
                None => exchange(stream, &answer),
                Some(tls) => {
                    let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                    exchange(StreamOwned::new(connection, stream), &answer)
                }
            };
            if head.is_some_and(|head| sender.send(head).is_err()) {
                return;
            }
        }
    });
    (address, asked)
}

/// Reads the head of a request; nothing of one that does not come.
fn exchange(mut stream: impl Read + Write, answer: &str) -> Option<String> {
    let mut head = String::new();
    let mut reader = BufReader::new(&mut stream);
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    }
    // The client may have disconnected.
    let _ = stream.write_all(answer.as_bytes());
    Some(head)
}

/// A site whose topics go to a hub with these keys. Nothing runs, so that nothing else is asked.
fn setup(site: &Site, url: &str, keys: &str) -> Setup {
    let hub = format!("[[hub]]\nurl = \"{url}\"\n{keys}\n");
    Setup::with_source(site, "", &format!("{hub}{CHANNEL}"))
}

#[test]
fn a_wrong_url_of_a_hub_is_found_before_what_follows_from_it() {
    let site = Site::new();
    let entry = "<url><loc>https://source.example/a/framework/</loc><rs:md capability=\"framework-notification\"/>\
                 <rs:ln rel=\"hub\" href=\"https://hub.example/\"/></url>\n</urlset>";
    let list = capability_list("a", &["resourcelist", "changelist"]);
    site.write("a/capabilitylist.xml", &list.replace("</urlset>", entry));
    let (address, _asked) = hub("HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), None);
    let hub = format!("[[hub]]\nurl = \"http://{address}/\"\n");
    check(&Setup::with_source(&site, "", &hub)).found(&[
        "404 to HEAD, no hub at this address",
        "advertises only hubs that are not configured",
    ]);
}

#[test]
fn a_hub_that_nothing_answers_for_is_found() {
    let site = Site::new();
    // Bound, so that nobody else listens there either.
    let deaf = tokio::net::TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = deaf.local_addr().unwrap();
    check(&setup(&site, &format!("http://{address}/"), "")).found(&["nothing listens there"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    check(&setup(&site, &url, "timeout = \"50ms\"")).found(&["no answer (timed out"]);
}

#[test]
fn the_hub_of_a_flag_is_asked_as_run_would_tell_it() {
    let site = Site::new();
    let (address, asked) = hub(FINE.to_owned(), None);
    let setup = setup(&site, "http://no-such-host.invalid/", "");
    let url = format!("http://{address}/flagged");
    check_by(setup.command("check").args(["--json", "--hub", &url])).is_fine();
    let head = asked.recv_timeout(DEADLINE).unwrap();
    assert!(head.starts_with("HEAD /flagged HTTP/1.1\r\n"), "{head}");
}

#[test]
fn a_hub_is_asked_as_it_would_be_told_and_nothing_secret_is_shown() {
    let site = Site::new();
    for status in ["200 OK", "403 Forbidden", "301 Moved Permanently"] {
        let answer = format!(
            "HTTP/1.1 {status}\r\nLocation: /hunter2/?key=hunter2\r\nContent-Length: 0\r\n\r\n"
        );
        let (address, asked) = hub(answer, None);
        let keys = format!(
            "publish_url = \"http://{address}/hunter2?key=hunter2\"\nmode = \"content-query\"\n\
             bearer_token_file = \"token\"\nheaders = {{ X-Key = {{ file = \"token\" }} }}\n"
        );
        let setup = setup(&site, "https://hub.example/", &keys);
        fs::write(setup.state.path().join("token"), "hunter2-token\n").unwrap();
        let (_, stdout, stderr) = output(&mut setup.command("check"));
        assert_lacks(&(stdout + &stderr), "hunter2");
        let head = asked.recv_timeout(DEADLINE).unwrap();
        // Nothing of what publishes: HEAD must not have an effect, even where it is taken for something else.
        assert_starts_with(&head, "HEAD /hunter2?key=hunter2 HTTP/1.1\r\n");
        for line in [
            "authorization: bearer hunter2-token\r\n",
            "x-key: hunter2-token\r\n",
        ] {
            assert_contains(&head.to_lowercase(), line);
        }
        assert!(asked.try_recv().is_err(), "it is asked once");
    }
}

#[test]
fn a_certificate_is_found_that_is_not_trusted_or_not_verified() {
    let site = Site::new();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let secret = PrivatePkcs8KeyDer::from(key.serialize_der());
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret.into());
    let (address, _asked) = hub(FINE.to_owned(), Some(Arc::new(server.unwrap())));
    let url = format!("https://{address}/");
    check(&setup(&site, &url, "")).found(&["name its certificate by ca_file"]);
    let named = setup(&site, &url, "ca_file = \"ca.pem\"");
    fs::write(named.state.path().join("ca.pem"), certificate.pem()).unwrap();
    check(&named).is_fine();
    let setup = setup(&site, &url, "danger_accept_invalid_certs = true");
    let danger = "danger_accept_invalid_certs = true, so the hub's certificate is not verified";
    check(&setup).found(&[danger]);
    check_by(setup.command("check").args(["--json", "--no-environment"])).found(&[danger]);
}

#[test]
fn a_hub_that_accepts_need_not_like_head() {
    let (site, fake) = (Site::new(), FakeHub::start());
    let setup = Setup::new(&site, &[fake.url()], CHANNEL);
    fake.behave(Manner::Refuse(404));
    check(&setup).found(&["404 to HEAD, no hub at this address"]);

    fake.behave(Manner::Accept);
    let daemon = setup.start();
    site.write_list("a", "changelist", "2");
    fake.notification();
    // Stopping it saves what the hub answered.
    assert!(daemon.stop().success());
    fake.behave(Manner::Refuse(404));
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("404 to HEAD, no hub at this address: but it accepted the last notification");
}

#[test]
fn the_embedded_hub_must_be_reached_where_it_is_advertised() {
    let (front, site) = (Front::start(), Site::new());
    let topic = format!("{}topics/main/a/capabilitylist/", front.url());
    let channel = CHANNEL.replace("https://source.example/a/framework/", &topic);
    let mut setup = Setup::new(&site, &[], &channel);
    let url = format!("public_url = \"{}\"\n[window]", front.url());
    setup.config = setup.config.replacen("[window]", &url, 1);
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    check(&setup).is_fine();
    front.behave(super::front::Manner::NotFound);
    check(&setup).found(&[
        "the advertised address of this hub answers 404",
        "404 with Content-Type text/html",
    ]);
}

#[test]
fn a_hub_that_refused_the_last_notification_is_a_finding_although_it_accepts_head() {
    for (status, wanted) in [(401, 1), (503, 0)] {
        let (site, hub, setup, daemon) = Setup::start_announcing("");
        hub.behave(Manner::Refuse(status));
        site.write_list("a", "changelist", "2");
        daemon.await_log("did not accept notification 1");
        hub.behave(Manner::Accept);
        daemon.kill();
        let checked = check(&setup);
        let told = |lines: &[String]| count_of(lines, "last notifications");
        assert_eq!(told(&checked.findings), wanted, "{status}");
        assert_eq!(told(&checked.notes), 1 - wanted, "{status}");
        assert!(checked.code == Some(1) || wanted == 0, "{status}");
    }
}
