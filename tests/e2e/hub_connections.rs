//! Connections to hubs: proxies, and secrets that stay secret.

use std::fs;
use std::net::SocketAddr;

use rstest::rstest;
use serde_json::Value;

use crate::support::daemon::{Daemon, Setup, assert_contains, assert_lacks, count_of, output};
use crate::support::documents::{Site, files_below};
use crate::support::hub::{FakeHub, Manner};
use crate::support::is_localhost_known;
use crate::support::ports::reserved;
use crate::support::stomp::{self, FakeBroker};

/// A `[[broker]]` at this address.
fn broker(address: SocketAddr) -> String {
    format!(
        "[[broker]]\nname = \"repository\"\nurl = \"stomp://{address}\"\ndestination = \"/topic/a\"\n"
    )
}

#[test]
fn a_hub_and_a_broker_that_cannot_be_reached_are_named_until_they_answer() {
    let (site, at) = (Site::new(), reserved());
    let hub = format!("http://{at}/publish");
    let setup = Setup::new(&site, std::slice::from_ref(&hub), &broker(reserved()));
    let daemon = setup.start();
    let unreached = |status: &Value| status["unreached"].as_array().unwrap().len();
    daemon.await_status(|status| unreached(status) == 2);
    let (_, out, _) = output(&mut setup.command("status"));
    for named in [&hub, "repository"] {
        assert_contains(&out, &format!("{named} cannot be reached: "));
    }
    // It is tried again after a minute only, but something is to be sent before.
    let told = FakeHub::start_at(at);
    site.write_list("a", "changelist", "2");
    told.notification();
    daemon.await_log("delivered");
    assert_eq!(unreached(&daemon.status()), 1);
    let (_, log) = daemon.stop_and_tell();
    assert_eq!(count_of(&log, &format!("{hub} cannot be reached: ")), 1);
}

#[test]
fn a_broker_that_refuses_the_login_is_not_asked_again_before_there_is_something_to_send() {
    let (site, fake) = (Site::new(), FakeBroker::start());
    fake.behave(stomp::Manner::RefuseLogin(
        "User name [a] or password is invalid.",
    ));
    let setup = Setup::new(&site, &[], &broker(fake.address));
    let daemon = setup.launch();
    daemon.await_log(" refuses the login: User name [a]");
    let (_, out, _) = output(&mut setup.command("status"));
    assert_contains(&out, "refuses the login");
    assert_contains(&out, "correct the user, the password");
}

#[test]
fn secrets_from_anywhere_reach_the_hub_and_no_log_or_state() {
    let site = Site::new();
    let hub = FakeHub::start();
    hub.behave(Manner::DenyAndRepeat);
    let credentials = tempfile::tempdir().unwrap();
    fs::write(credentials.path().join("hub-key"), "hidden-key\n").unwrap();
    let key = credentials.path().join("file");
    fs::write(&key, "hidden-file\n").unwrap();
    let setup = Setup::new(
        &site,
        &[hub.url()],
        &format!(
            "bearer_token_file = {{ env = \"HUB_TOKEN\" }}\n\
             headers = {{ X-Key = {{ credential = \"hub-key\" }}, X-File = {{ file = \"{}\" }}, X-Plain = \"plain\" }}\n",
            key.display()
        ),
    );
    let mut command = setup.run();
    command.env("HUB_TOKEN", "hidden-token");
    command.env("CREDENTIALS_DIRECTORY", credentials.path());
    let daemon = Daemon::ready(command);
    site.write_list("a", "changelist", "2");
    let headers = hub.request().headers;
    for (name, value) in [
        ("authorization", "Bearer hidden-token"),
        ("x-key", "hidden-key"),
        ("x-file", "hidden-file"),
        ("x-plain", "plain"),
    ] {
        assert_eq!(headers[name], value);
    }
    let entry = daemon.await_log("it denies the publication: you said");
    let message = entry["message"].as_str().unwrap();
    for told in [
        "\"authorization\": \"***\"",
        "\"x-key\": \"***\"",
        "\"x-file\": \"***\"",
        "\"x-plain\": \"plain\"",
    ] {
        assert_contains(message, told);
    }
    let (_, page) = daemon.get_admin("/status.json");
    let (_, log) = daemon.stop_and_tell();
    assert_lacks(&page, "hidden");
    assert!(!log.concat().contains("hidden"), "{log:#?}");
    for (path, content) in files_below(&setup.state.path().join("state")) {
        let content = String::from_utf8_lossy(&content);
        assert!(!content.contains("hidden"), "{path:?}");
    }
}

#[rstest]
#[case("HTTP_PROXY", "NO_PROXY")]
#[case("http_proxy", "no_proxy")]
#[case("ALL_PROXY", "NO_PROXY")]
fn the_environment_names_a_proxy_and_what_is_reached_directly(
    #[case] variable: &str,
    #[case] except: &str,
) {
    if !is_localhost_known() {
        return;
    }
    let site = Site::new();
    // It takes what it is to pass on.
    let proxy = FakeHub::start();
    let [excepted, told, through] = [(); 3].map(|()| FakeHub::start());
    let at_localhost = told.url().replace("127.0.0.1", "localhost");
    let hubs = format!(
        "[[hub]]\nurl = \"http://hub.invalid/publish?k=1\"\n\
         [[hub]]\nurl = \"{}\"\n\
         [[hub]]\nurl = \"{at_localhost}\"\nproxy = \"none\"\n\
         [[hub]]\nurl = \"http://other.invalid/publish\"\nproxy = \"http://{}\"\n",
        excepted.url(),
        through.address,
    );
    let setup = Setup::with_source(&site, "", &hubs);
    let mut command = setup.run();
    command.env(variable, format!("http://ann:hidden@{}", proxy.address));
    command.env(except, "unrelated.example,127.0.0.1");
    let daemon = Daemon::ready(command);
    site.write_list("a", "changelist", "2");
    for (hub, target) in [
        (&proxy, "http://hub.invalid/publish?k=1"),
        (&excepted, "/publish"),
        (&told, "/publish"),
        (&through, "http://other.invalid/publish"),
    ] {
        let request = hub.notification();
        assert_eq!(request.target, target);
        let credentials = request.headers.get("proxy-authorization");
        // `ann:hidden`
        let wanted = (hub.address == proxy.address).then_some("Basic YW5uOmhpZGRlbg==");
        assert_eq!(credentials.map(String::as_str), wanted);
        assert_eq!(request.changes(), ["updated changelist a/changelist.xml"]);
    }
    for hub in [&proxy, &excepted, &told, &through] {
        assert!(hub.heard().is_empty());
    }
    let (_, log) = daemon.stop_and_tell();
    assert!(!log.concat().contains("hidden"), "{log:#?}");
}
