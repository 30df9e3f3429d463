//! Hubs that notifications would not reach, and the requests of `check` to them.

use std::fs;
use std::net::TcpListener;

use crate::own_hub::callback::{Callback, Say, say};
use crate::support::daemon::{Setup, assert_lacks, count_of, output};
use crate::support::documents::{Site, capability_list};
use crate::support::hub::{FakeHub, Manner};

use super::front::{self, Front};
use super::{CHANNEL, check, check_by};

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
    let nobody = Callback::that(|_| say("404 Not Found", ""));
    let hub = format!("[[hub]]\nurl = \"{}\"\n", nobody.url("/"));
    check(&Setup::with_source(&site, "", &hub)).found(&[
        "404 to HEAD, no hub at this address",
        "advertises only hubs that are not configured",
    ]);
}

#[test]
fn a_hub_with_another_clock_is_found() {
    let hub = Callback::that(|_| Say {
        headers: "Date: Fri, 20 Nov 2020 10:00:00 GMT\r\n".to_owned(),
        ..say("200 OK", "")
    });
    check(&setup(&Site::new(), &hub.url("/"), "")).found(&["behind this machine's: one of both"]);
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
    let hub = Callback::start();
    let setup = setup(&site, "http://no-such-host.invalid/", "");
    let url = hub.url("/flagged");
    check_by(setup.command("check").args(["--json", "--hub", &url])).is_fine();
    assert_eq!(hub.next("HEAD").target, "/flagged");
}

#[test]
fn a_hub_is_asked_as_it_would_be_told_and_nothing_secret_is_shown() {
    let site = Site::new();
    for status in ["200 OK", "403 Forbidden", "301 Moved Permanently"] {
        let hub = Callback::that(|_| Say {
            headers: "Location: /hunter2/?key=hunter2\r\n".to_owned(),
            ..say(status, "")
        });
        let keys = format!(
            "publish_url = \"{}\"\nmode = \"content-query\"\n\
             bearer_token_file = \"token\"\nheaders = {{ X-Key = {{ file = \"token\" }} }}\n",
            hub.url("/hunter2?key=hunter2")
        );
        let setup = setup(&site, "https://hub.example/", &keys);
        fs::write(setup.state.path().join("token"), "hunter2-token\n").unwrap();
        let (_, stdout, stderr) = output(&mut setup.command("check"));
        assert_lacks(&(stdout + &stderr), "hunter2");
        let asked = hub.next("HEAD");
        // Nothing of what publishes: HEAD must not have an effect, even where it is taken for something else.
        assert_eq!(asked.target, "/hunter2?key=hunter2");
        assert_eq!(asked.headers["authorization"], "Bearer hunter2-token");
        assert_eq!(asked.headers["x-key"], "hunter2-token");
        assert!(hub.heard().is_empty(), "it is asked once");
    }
}

#[test]
fn a_hub_whose_certificate_is_not_verified_is_found_in_both_tiers() {
    let (site, keys) = (Site::new(), "danger_accept_invalid_certs = true");
    let setup = setup(&site, "https://127.0.0.1:1/", keys);
    let danger = "danger_accept_invalid_certs = true, so the hub's certificate is not verified";
    check(&setup).found(&[danger, "nothing listens there"]);
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
    front.behave(front::Manner::NotFound);
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
