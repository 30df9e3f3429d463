//! `rsnotify hub`: many publishers, their subscribers, and everything that may end in between (S1, S2, S4).

pub mod callback;
pub mod setup;
pub mod story;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::own_hub::callback::{Callback, Request, Say, say, willing};
use crate::own_hub::setup::{HubSetup, LIBRARY, TOKEN, next_bodies, open_publisher, publisher};
use crate::support::DEADLINE;
use crate::support::daemon::{
    Daemon, assert_contains, assert_lacks, body_of, count_of, output, run_with, run_without_config,
    succeed,
};
use crate::support::documents::{Site, capability_list};

const TOPIC: &str = "https://library.example/t";
const XML: &str = "application/xml";
const FORM: &str = "application/x-www-form-urlencoded";

/// A topic that is served with a `Link` to a hub, and counts its requests.
fn served_topic(hub: &str, body: &Arc<Mutex<String>>) -> Callback {
    let (hub, body) = (hub.to_owned(), Arc::clone(body));
    Callback::that(move |request: &Request| {
        let body = body.lock().unwrap().clone();
        let etag = format!("\"{}\"", body.len());
        if request.headers.get("if-none-match") == Some(&etag) {
            return say("304 Not Modified", "");
        }
        let headers = format!("Content-Type: {XML}\r\nETag: {etag}\r\n");
        say_topic(&hub, &headers, &body)
    })
}

/// The answer to a request for a topic of a hub, with these header lines.
fn say_topic(hub: &str, headers: &str, body: &str) -> Say {
    Say {
        headers: format!("{headers}Link: <{hub}>; rel=\"hub\"\r\n"),
        ..say("200 OK", body)
    }
}

/// Returns the output of `status`.
fn printed_status(setup: &HubSetup) -> String {
    output(&mut setup.command(&["status"])).1
}

#[test]
fn a_publication_that_may_not_be_is_refused_with_the_reason_and_reaches_nobody() {
    let mut setup = HubSetup::library();
    setup.publishers += &publisher("archive", "https://archive.example/", "boxes");
    setup.keys = "max_body = 1000".to_owned();
    let (hub, callback) = setup.start_subscribed(TOPIC);
    let link = |topic: &str| format!("<{topic}>; rel=\"self\"");
    let bearer = |token: &str| format!("Bearer {token}");
    let large = vec![b'x'; 3_000_000];
    for (status, topic, token, content_type, body) in [
        (400, "", TOKEN, XML, &b"<a/>"[..]),
        (400, "https://library.example/a/../t", TOKEN, XML, b"<a/>"),
        (400, TOPIC, TOKEN, XML, b""),
        (401, TOPIC, "boks", XML, b"<a/>"),
        (401, TOPIC, "", XML, &large),
        (403, TOPIC, "boxes", XML, b"<a/>"),
        (403, "https://library.example.evil/t", TOKEN, XML, b"<a/>"),
        (413, TOPIC, TOKEN, XML, &large[..1_001]),
        (413, TOPIC, TOKEN, XML, &large),
        (415, TOPIC, TOKEN, "application/json", b"{}"),
    ] {
        let (link, bearer) = (link(topic), bearer(token));
        let mut headers = vec![("Content-Type", content_type)];
        headers.extend((!topic.is_empty()).then_some(("Link", link.as_str())));
        headers.extend((!token.is_empty()).then_some(("Authorization", bearer.as_str())));
        setup.post("/hub", &headers, body).assert_refused(status);
    }
    assert_eq!(setup.publish(TOPIC, TOKEN, "<a/>").status, 200);
    assert_eq!(next_bodies(&callback, 1), ["<a/>"]);
    assert_eq!(callback.heard().len(), 0);
    hub.stop();
}

#[test]
fn notifications_are_delivered_as_they_were_sent_each_with_its_headers_and_a_repeat_is_not() {
    let setup = HubSetup::library();
    let (hub, callback) = setup.start_subscribed(TOPIC);
    callback.behave(|request| match request.method.as_str() {
        "POST" => say("503 Service Unavailable", ""),
        _ => willing(request),
    });
    let post = |target: &str, headers: &[(&str, &str)], body: &str| {
        let headers = [headers, &[("Authorization", "bearer books")]].concat();
        let answer = setup.post(target, &headers, body.as_bytes());
        assert_eq!(answer.status, 200);
    };
    let sent = [XML, "application/xml; charset=utf-8"].map(|content_type| {
        let list = format!(
            "<{LIBRARY}{}.xml>; rel=\"resourcesync\"",
            content_type.len()
        );
        let links = format!("<{TOPIC}>; rel=\"self\", {list}");
        (
            format!("\u{feff}<a>\r\n é</a>{content_type} "),
            content_type,
            links,
            list,
        )
    });
    let publish = |(body, content_type, links, _): &(String, &str, String, String)| {
        post(
            "/hub",
            &[("Content-Type", content_type), ("Link", links)],
            body,
        );
    };
    sent.iter().for_each(publish);
    callback.next("POST");
    hub.kill();
    callback.behave(willing);
    let hub = setup.start();
    publish(&sent[1]);
    let mut heard = Vec::new();
    while heard.last() != Some(&sent[1].0) {
        let request = callback.next("POST");
        let body = String::from_utf8(request.body).unwrap();
        let (_, content_type, _, list) = sent.iter().find(|sent| sent.0 == body).unwrap();
        assert_eq!(request.headers["content-type"], *content_type);
        let links = format!(
            "<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\", {list}",
            setup.url()
        );
        assert_eq!(request.headers["link"], links);
        heard.push(body);
    }
    assert_eq!(heard[heard.len() - 2], sent[0].0);
    // An earlier body is no repeat.
    let query = "/hub?hub.mode=publish&hub.topic=https%3A%2F%2Flibrary.example%2Ft";
    for body in ["<b/>", &sent[1].0] {
        post(query, &[("Content-Type", XML)], body);
    }
    assert_eq!(next_bodies(&callback, 2), ["<b/>", &sent[1].0]);
    assert_eq!(callback.heard().len(), 0);
    hub.stop();
}

#[test]
fn a_flooding_publisher_is_limited_and_delays_no_other() {
    let mut setup = HubSetup::library();
    setup.publishers += &publisher("archive", "https://archive.example/", "boxes");
    setup.keys = "max_publications_per_minute = 20".to_owned();
    let hub = setup.start();
    let callback = Callback::start();
    let other = "https://archive.example/t";
    setup.subscribe(other, &callback.url("/"));
    let mut limited = 0;
    for number in 0..60 {
        let answer = setup.publish(TOPIC, TOKEN, &format!("<a{number}/>"));
        if answer.status == 429 {
            answer.assert_refused(429);
            assert_contains(&answer.head, "retry-after: ");
            limited += 1;
        }
    }
    assert!(limited >= 30, "{limited}");
    assert_eq!(setup.publish(other, "boxes", "<b/>").status, 200);
    assert_eq!(next_bodies(&callback, 1), ["<b/>"]);
    let status = hub.status();
    let library = &status["publishers"][0];
    assert_eq!(library["name"], "library");
    assert_eq!(library["limited"], limited);
    let (_, metrics) = hub.get_admin("/metrics");
    let line = format!(
        "rsnotify_publications_total{{publisher=\"library\",outcome=\"excess\"}} {limited}"
    );
    assert_contains(&metrics, &line);
    let page = body_of(hub.get_admin("/"));
    assert_contains(&page, "archive");
    assert_contains(&page, "too many publications");
    let printed = printed_status(&setup);
    assert_contains(&printed, "publisher library: 1 topic");
    // Each topic of a ping counts.
    let mut form = vec![("hub.mode", "publish")];
    let topics: Vec<String> = (0..21).map(|number| format!("{other}{number}")).collect();
    form.extend(topics.iter().map(|topic| ("hub.url", topic.as_str())));
    setup.form(&form, Some("boxes")).assert_refused(429);
    hub.stop();
}

#[test]
fn refusals_are_limited_and_counted_by_publisher() {
    let mut setup = HubSetup::library();
    setup.keys = "max_requests_per_minute = 10".to_owned();
    let hub = setup.start();
    let outside = "https://nobody.example/t";
    setup.publish(outside, TOKEN, "<a/>").assert_refused(403);
    setup.ping(outside, Some(TOKEN)).assert_refused(403);
    let library = &hub.status()["publishers"][0];
    assert_eq!(library["refused"], 2);
    let reason = library["last_refusal"]["reason"].as_str().unwrap();
    assert_contains(reason, "may not publish");
    let statuses: Vec<u16> = (0..20)
        .map(|number| [("text/plain", &b"x"[..]), (XML, b"<a/>")][number % 2])
        .map(|(content_type, body)| setup.post("/hub", &[("Content-Type", content_type)], body))
        .map(|answer| answer.status)
        .collect();
    assert_eq!(statuses[..2], [415, 400]);
    let limited = statuses[10..].iter().filter(|status| **status == 429);
    assert!(limited.count() >= 8, "{statuses:?}");
    hub.stop();
}

#[test]
fn a_wrong_token_is_shown_by_its_beginning() {
    let mut setup = HubSetup::library();
    setup.publishers += &open_publisher("open", "https://open.example/");
    setup.publishers += &publisher("Attic", "https://archive.example/", "boxes");
    let hub = setup.start();
    // Exchanged tokens are named to the operator alone.
    let exchanged = setup.publish(TOPIC, "boxes", "<a/>");
    exchanged.assert_refused(403);
    assert_lacks(&exchanged.body, "library:");
    let reason = "https://library.example/t is none of its topics, but one of library: their tokens may be exchanged";
    hub.await_log(&format!("refused a publication of Attic: {reason}"));
    let wrong = "0123456789abcdef0123456789abcdef";
    for topic in [TOPIC, TOPIC, "https://nobody.example/t"] {
        let refused = setup.publish(topic, wrong, "<a/>");
        refused.assert_refused(401);
        let challenge = "www-authenticate: bearer error=\"invalid_token\"";
        assert_contains(&refused.head, challenge);
    }
    setup.publish(TOPIC, "boks", "<a/>").assert_refused(401);
    // Without a token, a stranger learns no more than that one is needed.
    let nobody = "https://nobody.example/t";
    setup.ping(nobody, None).assert_refused(401);
    let printed = printed_status(&setup);
    for line in [
        "unknown token b…: 1 request, the last ",
        "unknown token 012345…: 3 requests, the last ",
        reason,
    ] {
        assert_contains(&printed, line);
    }
    assert_contains(&printed, " for a topic of library\n");
    let (_, page) = hub.get_admin("/");
    assert_contains(&page, "<li>012345…: 3 requests, the last <time");
    let (_, metrics) = hub.get_admin("/metrics");
    let line = "rsnotify_unknown_token_requests_total{token=\"012345…\"} 3";
    assert_contains(&metrics, line);
    for shown in [printed, page, metrics, hub.status().to_string()] {
        assert_lacks(&shown, "0123456");
    }
    hub.stop();
}

#[test]
fn a_pinged_topic_is_fetched_and_delivered_once_for_each_content() {
    let mut setup = HubSetup::library();
    let content = Arc::new(Mutex::new("<a/>".to_owned()));
    let site = served_topic(&setup.url(), &content);
    let topic = site.url("/t");
    setup.publishers = open_publisher("open", &site.url("/"));
    let (hub, callback) = setup.start_subscribed(&topic);
    for body in ["<a/>", "<b  />"] {
        body.clone_into(&mut content.lock().unwrap());
        for _ in 0..2 {
            assert_eq!(setup.ping(&topic, None).status, 202);
            site.next("GET");
        }
        assert_eq!(next_bodies(&callback, 1), [body]);
    }
    // Another hub's topic, and one that redirects.
    let foreign = served_topic("https://hub.example/", &content);
    setup.publishers += &open_publisher("foreign", &foreign.url("/"));
    hub.stop();
    let hub = setup.start();
    setup.ping(&foreign.url("/t"), None).assert_refused(403);
    let (topic_of_two, url) = (site.url("/moved"), setup.url());
    site.behave(move |request| Say {
        status: of_head(request, "302 Found"),
        ..say_topic(&url, "Location: /t\r\n", "")
    });
    assert_eq!(setup.ping(&topic_of_two, None).status, 202);
    hub.await_log("cannot fetch");
    assert_eq!(callback.heard().len(), 0);
    // A fetch that has not succeeded goes on after a crash.
    hub.kill();
    let url = setup.url();
    let headers = "Content-Type: application/xml\r\n";
    site.behave(move |_| say_topic(&url, headers, "<c/>"));
    let hub = setup.start();
    hub.await_status(|status| status["publishers"][0]["published_topics"] == 2);
    hub.stop();
}

#[test]
fn a_pinged_topic_is_relayed_in_its_own_content_type_unless_it_is_encoded() {
    let mut setup = HubSetup::library();
    let url = setup.url();
    let site = Callback::that(move |request| {
        if request.method == "GET" {
            assert_eq!(request.headers["accept-encoding"], "identity");
        }
        let headers = match request.target.trim_start_matches('/') {
            "none" => String::new(),
            "gzip" => "Content-Type: application/xml\r\nContent-Encoding: gzip\r\n".to_owned(),
            path => format!("Content-Type: {}\r\n", path.replacen('-', "/", 1)),
        };
        say_topic(&url, &headers, &request.target)
    });
    setup.publishers += &open_publisher("open", &site.url("/"));
    let hub = setup.start();
    let callback = Callback::start();
    for (path, want) in [
        ("/text-html;charset=utf-8", "text/html;charset=utf-8"),
        ("/none", "application/octet-stream"),
    ] {
        let topic = site.url(path);
        setup.subscribe(&topic, &callback.url("/"));
        assert_eq!(setup.ping(&topic, None).status, 202);
        let heard = callback.next("POST");
        assert_eq!(heard.body, path.as_bytes());
        assert_eq!(heard.headers["content-type"], want);
    }
    assert_eq!(setup.ping(&site.url("/gzip"), None).status, 202);
    hub.await_log("has the Content-Encoding gzip");
    let link = format!("<{TOPIC}>; rel=\"self\"");
    let headers = [
        ("Content-Type", XML),
        ("Link", link.as_str()),
        ("Authorization", "Bearer books"),
        ("Content-Encoding", "gzip"),
    ];
    let refused = setup.post("/hub", &headers, b"<a/>");
    refused.assert_refused(415);
    assert_contains(&refused.body, "Content-Encoding");
    hub.stop();
}

/// The status of an answer that is fine for HEAD only.
fn of_head(request: &Request, other: &str) -> String {
    let is_head = request.method == "HEAD";
    if is_head { "200 OK" } else { other }.to_owned()
}

/// Whose headers count is said once, and not of a subscriber on the hub's own host.
#[test]
fn a_proxy_that_is_not_trusted_is_named() {
    let post = |keys: &str| {
        let mut setup = HubSetup::library();
        setup.keys = keys.to_owned();
        let hub = setup.start();
        let headers = [("Content-Type", FORM), ("X-Forwarded-For", "127.0.0.1")];
        for _ in 0..2 {
            setup.post("/hub", &headers, b"hub.mode=publish");
        }
        let (_, log) = hub.stop_and_tell();
        let named = "requests come through the proxy 127.0.0.1 and count as its own: ";
        count_of(&log, named)
    };
    assert_eq!(post(""), 0);
    assert_eq!(post("trusted_proxies = []"), 1);
}

#[test]
fn publications_in_progress_leave_those_with_a_token_alone_and_are_answered_when_the_hub_stops() {
    let mut setup = HubSetup::library();
    let site = served_topic(&setup.url(), &Arc::new(Mutex::new("<a/>".to_owned())));
    setup.publishers += &open_publisher("open", &site.url("/"));
    let hub = setup.start();
    let mut begun = Vec::from([1, 2, 3, 4].map(|number| {
        let mut publishing = TcpStream::connect(setup.address).unwrap();
        publishing.set_read_timeout(Some(DEADLINE)).unwrap();
        let (address, topic) = (setup.address, site.url(&format!("/{number}")));
        let head = format!(
            "POST /hub HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/xml\r\n\
             Link: <{topic}>; rel=\"self\"\r\nContent-Length: 10\r\n\r\n<a"
        );
        publishing.write_all(head.as_bytes()).unwrap();
        site.next("HEAD");
        publishing
    }));
    // An address without a token has four slots, and no others than its own.
    let refused = setup.ping(&site.url("/5"), None);
    refused.assert_refused(429);
    assert_contains(&refused.head, "retry-after: 1\r\n");
    assert_eq!(setup.publish(TOPIC, TOKEN, "<a/>").status, 200);
    let mut publishing = begun.remove(0);
    let began = Instant::now();
    hub.signal(rustix::process::Signal::TERM);
    let mut answer = String::new();
    publishing.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.to_lowercase().contains("retry-after: "), "{answer}");
    hub.await_log("stopped; everything is saved");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    hub.stop();
}

#[test]
fn a_ping_shortens_a_retry_and_ends_with_its_publisher() {
    let mut setup = HubSetup::library();
    let (sender, gets) = std::sync::mpsc::channel();
    let url = setup.url();
    let site = Callback::that(move |request: &Request| {
        if request.method == "GET" {
            sender.send(()).unwrap();
        }
        Say {
            status: of_head(request, "503 Service Unavailable"),
            ..say_topic(&url, "Content-Type: application/xml\r\n", "")
        }
    });
    setup.publishers += &open_publisher("open", &site.url("/"));
    let hub = setup.start();
    assert_eq!(setup.ping(&site.url("/t"), None).status, 202);
    gets.recv_timeout(DEADLINE).unwrap();
    for _ in 0..6 {
        while gets.try_recv().is_ok() {}
        assert_eq!(setup.ping(&site.url("/t"), None).status, 202);
        // The wait between retries soon exceeds this by far.
        gets.recv_timeout(Duration::from_secs(10)).unwrap();
    }
    hub.kill();
    setup.publishers = publisher("library", LIBRARY, TOKEN);
    let hub = setup.start();
    hub.await_log("dropped a ping of open");
    while gets.try_recv().is_ok() {}
    setup.publishers += &open_publisher("open", &site.url("/"));
    hub.stop();
    let hub = setup.start();
    assert_eq!(hub.status()["publishers"][1]["waiting_fetches"], 0);
    assert!(gets.try_recv().is_err());
    hub.stop();
}

#[test]
fn a_publisher_with_both_keys_needs_both() {
    let mut setup = HubSetup::library();
    let content = Arc::new(Mutex::new("<a/>".to_owned()));
    let [ours, foreign] =
        [setup.url().as_str(), "https://hub.example/"].map(|hub| served_topic(hub, &content));
    setup.publishers = publisher("both", &ours.url("/"), TOKEN) + "verify = \"topic\"\n";
    setup.publishers += &publisher("other", &foreign.url("/"), "boxes");
    setup.publishers += "verify = \"topic\"\n";
    let hub = setup.start();
    assert_eq!(setup.publish(&ours.url("/t"), TOKEN, "<a/>").status, 200);
    setup.ping(&ours.url("/t"), None).assert_refused(401);
    let refused = setup.publish(&foreign.url("/t"), "boxes", "<a/>");
    refused.assert_refused(403);
    assert_contains(&refused.body, "does not name this hub");
    hub.stop();
}

#[test]
fn whether_publisher_and_hub_agree_is_found_out_without_publishing() {
    let site = Site::new();
    let setup = HubSetup::library();
    let hub = setup.start();
    let check =
        |topic: &str, token| setup.form(&[("hub.mode", "check"), ("hub.topic", topic)], token);
    let accepted = check(TOPIC, Some(TOKEN));
    assert_eq!(accepted.status, 200);
    assert_contains(&accepted.body, "library may publish");
    check(TOPIC, None).assert_refused(401);
    check("https://nobody.example/", Some(TOKEN)).assert_refused(403);
    // A source with the right token, whose topics nobody has configured.
    let source = |public_url: &str, token: &str| {
        let (root, url) = (site.root.path().display(), setup.url());
        let token = setup.directory.path().join(format!("{token}.token"));
        format!(
            "state_dir = \"state\"\n[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
             public_url = \"{public_url}\"\n[[source]]\nname = \"main\"\n\
             mount = [{{ path = \"{root}\", url = \"https://source.example/\" }}]\n\
             [[hub]]\nurl = \"{url}\"\nbearer_token_file = \"{}\"\n",
            token.display()
        )
    };
    let list = capability_list("a", &["resourcelist", "changelist"]);
    let nobody = "https://nobody.example/";
    for (public_url, token, is_muted, want) in [
        (nobody, TOKEN, false, Some(403)),
        (LIBRARY, TOKEN, false, None),
        // Nothing is sent to this hub: only the token can be judged.
        (LIBRARY, "boxes", true, Some(401)),
        (nobody, TOKEN, true, None),
    ] {
        let channel = format!(
            "<url><loc>{public_url}t/</loc><rs:md capability=\"framework-notification\"/>\
             <rs:ln rel=\"hub\" href=\"https://hub.example/\"/></url>\n</urlset>"
        );
        let channel = if is_muted { &channel } else { "</urlset>" };
        site.write("a/capabilitylist.xml", &list.replace("</urlset>", channel));
        // With a state of its own, it knows what the tree has.
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("c.toml");
        std::fs::write(&config, source(public_url, token)).unwrap();
        let daemon = Daemon::ready(run_with(&config));
        let mut check = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        check.args(["check", "--config"]).arg(&config);
        let (_, printed, _) = output(&mut check);
        let muted = "advertises only hubs that are not configured";
        assert_eq!(printed.contains(muted), is_muted, "{printed}");
        let (_, refused) = printed
            .split_once("it would refuse notifications, with ")
            .unzip();
        let status = refused.map(|refused| refused[..3].parse::<u16>().unwrap());
        assert_eq!(status, want, "{printed}");
        daemon.stop();
    }
    let published = &hub.status()["publishers"][0]["published_topics"];
    assert_eq!(published, 0);
    succeed(&mut setup.command(&["check"]));
    hub.stop();
}

#[test]
fn one_state_belongs_to_one_daemon_of_one_kind() {
    let site = Site::new();
    let setup = HubSetup::library();
    let hub = setup.start();
    let refused = |command: &mut Command, words: &str| {
        let (code, _, errors) = output(command);
        assert_ne!(code, Some(0));
        assert_contains(&errors, words);
    };
    for (command, words) in [
        (&["hub"][..], "another rsnotify uses the state directory"),
        (&["run"], "start it with `rsnotify hub --config"),
        (&["outbox", "list"], "which has no sources and no outbox"),
    ] {
        refused(&mut setup.command(command), words);
    }
    hub.stop();
    let run = |state: &Path| run_without_config(&site, state, "127.0.0.1:0");
    refused(&mut run(&setup.state_dir()), "is that of `rsnotify hub`");
    let of_run = HubSetup::library();
    let daemon = Daemon::ready(run(&of_run.state_dir()));
    daemon.stop();
    refused(&mut of_run.command(&["hub"]), "is that of `rsnotify run`");
}

#[test]
fn a_reload_changes_publishers_and_ends_subscriptions_to_others_topics() {
    let mut setup = HubSetup::library();
    let (hub, callback) = setup.start_subscribed(TOPIC);
    setup.publishers = publisher("archive", "https://archive.example/", "boxes");
    setup.file();
    hub.signal(rustix::process::Signal::HUP);
    hub.await_log("reloaded the configuration: publisher archive added; publisher library removed");
    setup.publish(TOPIC, TOKEN, "<a/>").assert_refused(401);
    let accepted = setup.publish("https://archive.example/t", "boxes", "<a/>");
    assert_eq!(accepted.status, 200);
    let denied = loop {
        let request = callback.next("GET");
        if request.parameter("hub.mode").as_deref() == Some("denied") {
            break request;
        }
    };
    assert_eq!(denied.parameter("hub.topic").as_deref(), Some(TOPIC));
    let reason = denied.parameter("hub.reason");
    assert_eq!(reason.as_deref(), Some("the topic has ended"));
    hub.stop();
}

#[test]
fn a_token_is_new_each_time_and_its_lines_are_taken_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        output(command.args(arguments).env_remove("RSNOTIFY_CONFIG"))
    };
    let (code, lines, _) = run(&["token", "the \"library\""]);
    assert_eq!(code, Some(0));
    let examples = lines.lines().filter(|line| line.ends_with(" # an example"));
    assert_eq!(examples.count(), 2, "{lines}");
    assert!(toml::from_str::<toml::Table>(&lines).is_ok(), "{lines}");
    let parts: Vec<&str> = lines.split("\n\n").collect();
    let [secret, of_hub, of_source] = parts[..] else {
        panic!("{lines}")
    };
    let token = secret.lines().last().unwrap().strip_prefix("# ").unwrap();
    assert!(token.len() >= 40 && token.chars().all(|c| c.is_ascii_alphanumeric()));
    assert!(
        secret.starts_with("# Write this token into each file named below, which only rsnotify")
            && secret.contains(" (install -o rsnotify -m 400 /dev/stdin FILE):\n"),
        "{secret}"
    );
    assert_ne!(run(&["token", "the \"library\""]).1, lines);
    let there = directory.path().to_str().unwrap();
    let write = |name: &str, text: &str| {
        let path = format!("{there}/{name}");
        std::fs::write(&path, text.replace("/etc/rsnotify", there)).unwrap();
        path
    };
    write("the--library-.token", token);
    write("hub-token", token);
    let hub = "[hub]\nurl = \"https://hub.example.org/hub\"\n";
    let source = "[[source]]\nname = \"main\"\npath = \"/srv/www\"\nurl = \"https://e.org/\"\n";
    let [hub, source] = [
        ("hub.toml", hub, of_hub),
        ("config.toml", source, of_source),
    ]
    .map(|(name, tables, lines)| {
        let config = write(name, &format!("state_dir = \"s\"\n{tables}{lines}"));
        succeed(Command::new(env!("CARGO_BIN_EXE_rsnotify")).args(["config", "--config", &config]));
        config
    });
    let (code, lines, said) = run(&["token", "the \"library\"", LIBRARY, "--config", &hub]);
    assert_eq!(code, Some(0));
    assert_contains(&said, "is named \"the \"library\"\" already");
    assert_lacks(&lines, "# an example");
    for (arguments, want, words) in [
        (&["token", " "][..], 1, "a name has at least one letter"),
        (
            &["token", "a", "--config", &source],
            78,
            "is a configuration of `rsnotify run`",
        ),
    ] {
        let (code, lines, said) = run(arguments);
        assert_eq!((code, &*lines), (Some(want), ""));
        assert_contains(&said, words);
    }
}

#[test]
fn a_publisher_is_added_with_its_token_or_not_at_all() {
    let setup = HubSetup::new(&publisher("library", LIBRARY, "tokens/library"));
    let [tokens, state] = [setup.directory.path().join("tokens"), setup.state_dir()];
    std::fs::create_dir(&tokens).unwrap();
    std::fs::create_dir(&state).unwrap();
    std::fs::write(tokens.join("library.token"), TOKEN).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&state, Some(12), Some(34)).unwrap();
    }
    let file = setup.file();
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let run = |arguments: &[&str]| {
        let mut token = Command::new(env!("CARGO_BIN_EXE_rsnotify"));
        token.arg("token").args(arguments).arg("--write");
        output(token.arg("--config").arg(&file))
    };
    let before = std::fs::read_to_string(&file).unwrap();
    let topics = ["https://archive.example/", "https://a.example/"];
    let (code, lines, said) = run(&["the archive", topics[0], topics[1]]);
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&said, "no hub is running with ");
    let secret = tokens.join("the-archive.token");
    let added = format!(
        "\n[[publisher]]\nname = \"the archive\"\ntopics = [\"https://archive.example/\", \"https://a.example/\"]\n\
         bearer_token_file = \"{}\"\n",
        secret.display()
    );
    let after = std::fs::read_to_string(&file).unwrap();
    assert_eq!(after.strip_prefix(&before), Some(added.as_str()));
    let token = std::fs::read_to_string(&secret).unwrap();
    assert_eq!(
        lines.lines().nth(1),
        Some(&*format!("# {}", token.trim_end()))
    );
    assert_eq!(toml::from_str::<toml::Table>(&lines).unwrap().len(), 1);
    let owner_and_mode = |path: &Path| {
        let metadata = std::fs::metadata(path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    let (user, group, _) = owner_and_mode(&state);
    assert_eq!(owner_and_mode(&secret), (user, group, 0o600));
    assert_eq!(owner_and_mode(&file).2, 0o640);
    for (name, topic, words) in [
        (
            "the archive",
            "https://b.example/",
            "is named \"the archive\" already",
        ),
        ("the-archive", "https://b.example/", "File exists"),
        ("more", "https://archive.example/r/", "overlap"),
        ("more", "archive.example", "is left as it was: "),
    ] {
        let (code, lines, said) = run(&[name, topic]);
        assert_ne!(code, Some(0));
        assert_eq!(lines, "");
        assert_contains(&said, words);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), token);
        for (directory, files) in [(&tokens, 2), (&setup.directory.path().to_owned(), 6)] {
            assert_eq!(std::fs::read_dir(directory).unwrap().count(), files);
        }
    }
}
