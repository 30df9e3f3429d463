//! `check` finds the usual mistakes of a new installation.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rustix::process::geteuid;
use serde_json::Value;

use crate::own_hub::callback::Callback;
use crate::support::daemon::{
    Daemon, Setup, TOPICS, assert_contains, assert_lacks, assert_none_contains, count_of,
    exit_with, get, output, started_by,
};
use crate::support::documents::{Site, capability_list};
use crate::support::http::{Request, Say, Server, say};
use crate::support::hub::{FakeHub, Manner};
use crate::support::{needs, until};

/// The channel of the site's only set, so that it advertises nothing and lacks nothing.
const CHANNEL: &str = "[[channel]]\ncapability_list = \"https://source.example/a/capabilitylist.xml\"\n\
                       topic = \"https://source.example/a/framework/\"\n";

/// The output of `check --json`, with its exit code.
struct Checked {
    code: Option<i32>,
    findings: Vec<String>,
    notes: Vec<String>,
}

fn check(setup: &Setup) -> Checked {
    check_by(setup.command("check").arg("--json"))
}

fn check_by(command: &mut Command) -> Checked {
    let (code, stdout, stderr) = output(command);
    let answer: Value = serde_json::from_str(&stdout)
        .unwrap_or_else(|error| panic!("{error}: {code:?} {stdout}{stderr}"));
    assert_eq!(answer["version"], 1);
    assert!(answer["documents"].is_u64(), "{answer}");
    let list = |key: &str| {
        let list = answer[key].as_array().unwrap().iter();
        list.map(|line| line.as_str().unwrap().to_owned()).collect()
    };
    Checked {
        code,
        findings: list("findings"),
        notes: list("notes"),
    }
}

impl Checked {
    /// Nothing is wrong.
    fn is_fine(&self) {
        assert_eq!(self.findings, [""; 0]);
        assert_eq!(self.code, Some(0));
    }

    /// This and nothing else is wrong.
    fn found(&self, words: &[&str]) {
        assert_eq!(self.findings.len(), words.len(), "{:#?}", self.findings);
        for (finding, words) in self.findings.iter().zip(words) {
            assert_contains(finding, words);
        }
        assert_eq!(self.code, Some(1));
    }

    /// This is noted, among other things.
    fn noted(&self, words: &str) {
        let noted = self.notes.iter().any(|note| note.contains(words));
        assert!(noted, "{words}: {:#?}", self.notes);
    }
}

/// The server's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontManner {
    PassOn,
    NotFound,
    DropLink,
    DropQuery,
    Hang,
    Late,
}

/// A web server on loopback.
pub struct Front {
    manner: Arc<Mutex<FrontManner>>,
    upstream: Arc<Mutex<Option<SocketAddr>>>,
    server: Server,
}

impl Front {
    pub fn start() -> Front {
        let manner = Arc::new(Mutex::new(FrontManner::PassOn));
        let upstream = Arc::new(Mutex::new(None));
        let shared = (Arc::clone(&manner), Arc::clone(&upstream));
        let server = Server::start(move |request| {
            let (manner, upstream) = (*shared.0.lock().unwrap(), *shared.1.lock().unwrap());
            match manner {
                FrontManner::NotFound => Some(Say {
                    headers: "Content-Type: text/html\r\n".to_owned(),
                    ..say("404 Not Found", "<h1>Not Found</h1>")
                }),
                FrontManner::Hang => {
                    until(|| *shared.0.lock().unwrap() != manner);
                    None
                }
                _ => Some(passed_on(request, manner, upstream.unwrap())),
            }
        });
        Front {
            manner,
            upstream,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.server.address)
    }

    pub fn behave(&self, manner: FrontManner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn pass_on_to(&self, daemon: &Daemon) {
        *self.upstream.lock().unwrap() = Some(daemon.public);
    }
}

fn passed_on(request: &Request, manner: FrontManner, upstream: SocketAddr) -> Say {
    let target = match manner {
        FrontManner::DropQuery => request.target.split('?').next().unwrap(),
        _ => &request.target,
    };
    let (head, body) = get(upstream, target);
    let (status, lines) = head.split_once("\r\n").unwrap();
    let lines = lines.lines().filter_map(|line| {
        let (name, _) = line.split_once(": ").unwrap();
        match (manner, name.to_ascii_lowercase().as_str()) {
            (FrontManner::DropLink, "link") | (_, "connection" | "content-length") => None,
            (FrontManner::Late, "date") => {
                Some("Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n".to_owned())
            }
            _ => Some(format!("{line}\r\n")),
        }
    });
    Say {
        headers: lines.collect(),
        ..say(status.strip_prefix("HTTP/1.1 ").unwrap(), body)
    }
}

/// A site with one topic below the server, the way a `[[channel]]` names it.
pub fn behind(front: &Front, site: &Site, hub: &FakeHub) -> Setup {
    let channel = CHANNEL.replace(
        "https://source.example/a/framework/",
        &format!("{TOPICS}a/framework?set=a"),
    );
    let mut setup = Setup::new(site, &[hub.url()], &channel);
    setup.replace(TOPICS, &front.url());
    setup
}

#[test]
fn a_topic_that_is_not_passed_on_is_found_with_what_it_looks_like() {
    let (front, site, hub) = (Front::start(), Site::new(), FakeHub::start());
    let setup = behind(&front, &site, &hub);
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    check(&setup).is_fine();

    let topic = format!("{}a/framework?set=a: ", front.url());
    for (manner, found) in [
        (
            FrontManner::NotFound,
            "404 with Content-Type text/html, which is not from rsnotify",
        ),
        (FrontManner::DropLink, "there is no Link header"),
        (FrontManner::DropQuery, "404 from rsnotify itself"),
        (FrontManner::Hang, "no answer to HEAD (timed out"),
    ] {
        front.behave(manner);
        check(&setup).found(&[&format!("{topic}{found}")]);
    }
    front.behave(FrontManner::Late);
    check(&setup).found(&[&format!("the clock of http://{} is ", front.server.address)]);
    front.behave(FrontManner::PassOn);
    check(&setup).is_fine();
    assert!(hub.heard().is_empty(), "nothing was told");
}

#[test]
fn where_nothing_runs_no_topic_is_missed() {
    let (front, site, hub) = (Front::start(), Site::new(), FakeHub::start());
    let setup = behind(&front, &site, &hub);
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("state, so topics were not checked: start it");
    assert!(
        !setup.state.path().join("state").exists(),
        "nothing was made"
    );
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    let notes = check(&setup).notes;
    assert_none_contains(&notes, "is not running");
    daemon.stop();
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("state, so topics were not checked: start it");
}

#[test]
fn a_free_port_is_known_to_the_daemon_alone() {
    let (_site, setup, _daemon) = Setup::start_embedding("");
    let checked = check(&setup);
    checked.found(&["a/capabilitylist.xml does not advertise its channel"]);
    checked.noted("server.listen takes any free port, so topics below it were not checked");
}

#[test]
fn what_is_found_is_told_in_groups_with_what_to_do() {
    let (front, site, hub) = (Front::start(), Site::new(), FakeHub::start());
    site.write("a/broken.xml", "<urlset");
    let setup = behind(&front, &site, &hub);
    let daemon = setup.start();
    front.pass_on_to(&daemon);
    front.behave(FrontManner::NotFound);
    let (stdout, _) = exit_with(&mut setup.command("check"), 1);
    let topic = format!("{}a/framework?set=a", front.url());
    let wanted = format!(
        "topics\n  {topic}: 404 with Content-Type text/html, which is not from rsnotify\n      the web server in \
         front answers itself; let it pass the topic on to server.listen, path and query unchanged: \
         `rsnotify snippet nginx`, `apache` or `caddy` prints the lines that do\n\n"
    );
    assert!(stdout.starts_with("tree\n  a/broken.xml: "), "{stdout}");
    assert_contains(&stdout, &wanted);
    assert!(stdout.ends_with("\n2 findings\n"), "{stdout}");
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
    front.behave(FrontManner::NotFound);
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

/// Root reads everything, unless it gives that up.
const POWERLESS: [&str; 6] = [
    "setpriv",
    // A container may have given it to us.
    "--inh-caps",
    "-dac_override,-dac_read_search",
    "--bounding-set",
    "-dac_override,-dac_read_search",
    "--",
];

/// `check` as run by another program, such as one that takes powers away; nothing where the system does not
/// allow that.
fn check_under(setup: &Setup, program: &[&str]) -> Option<Command> {
    let under = |more: &[&str]| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(more);
        command
    };
    let tried = under(&["true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        needs::skip(
            &format!("this system does not allow `{}`", program.join(" ")),
            "util-linux",
        );
        return None;
    }
    let mut check = setup.command("check");
    check.arg("--json");
    Some(started_by(under(&[]), &check))
}

#[test]
fn what_may_not_be_read_is_named_with_what_to_do() {
    let (site, hub) = (Site::new(), FakeHub::start());
    site.add_set("b");
    let setup = Setup::new(&site, &[hub.url()], CHANNEL);
    for closed in ["a/changelist.xml", "b"] {
        fs::set_permissions(site.path(closed), Permissions::from_mode(0o000)).unwrap();
    }
    let less = if geteuid().is_root() {
        &POWERLESS[..]
    } else {
        &["env"]
    };
    let Some(mut command) = check_under(&setup, less) else {
        return;
    };
    let checked = check_by(&mut command);
    fs::set_permissions(site.path("b"), Permissions::from_mode(0o755)).unwrap();
    let directory = format!("cannot read the directory {}", site.path("b").display());
    assert_contains(&checked.findings[0], &directory);
    let file = "a/changelist.xml: it cannot be read: ";
    assert_eq!(
        count_of(&checked.findings, file),
        1,
        "{:#?}",
        checked.findings
    );
    assert_eq!(checked.code, Some(1));
    checked.noted("2 files and directories of the tree may not be read by ");
}

#[test]
fn more_directories_than_may_be_watched_are_found_with_the_sysctl() {
    let (site, hub) = (Site::new(), FakeHub::start());
    let hub = hub.table("") + CHANNEL;
    let setup = Setup::with_source(&site, "watch = \"inotify\"", &hub);
    let few = "echo 2 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    let under = ["unshare", "--map-root-user", "sh", "-c", few, "sh"];
    let Some(mut command) = check_under(&setup, &under) else {
        return;
    };
    check_by(&mut command).found(&[
        "3 directories have to be watched, and the limit is 2: the sysctl user.max_inotify_watches is 2; raise it, as by \
         `sysctl -w user.max_inotify_watches=524288`",
    ]);
    // By polling none are watched.
    let polled = Setup::with_source(&site, "watch = \"poll\"", &hub);
    check_by(&mut check_under(&polled, &under).unwrap()).is_fine();
}

#[test]
fn a_disk_that_is_full_is_found() {
    let (_site, _hub, setup) = Setup::announcing(CHANNEL);
    let state = setup.state.path().join("state");
    fs::create_dir(&state).unwrap();
    let small = format!(
        "mount -t tmpfs -o size=4m none '{}' && exec \"$@\"",
        state.display()
    );
    let under = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &small,
        "sh",
    ];
    let Some(mut command) = check_under(&setup, &under) else {
        return;
    };
    check_by(&mut command).found(&["there is room for 4 MiB on the disk of "]);
}

#[test]
fn a_state_that_cannot_be_used_is_one_finding_among_others() {
    let (site, _hub, setup) = Setup::announcing(CHANNEL);
    assert!(setup.start().stop().success());
    check(&setup).is_fine();
    site.write("a/broken.xml", "<urlset");
    let path = setup.state.path().join("state/state.sqlite");
    let state = Connection::open(&path).unwrap();
    state.pragma_update(None, "user_version", 1_000).unwrap();
    drop(state);
    check(&setup).found(&["a/broken.xml: ", "has schema 1000"]);
    fs::write(&path, vec![b'x'; 50_000]).unwrap();
    check(&setup).found(&["a/broken.xml: ", "cannot open the state file"]);
}

#[test]
fn whose_state_directory_it_is_matters() {
    if !geteuid().is_root() {
        needs::skip("only root can give files away", "");
        return;
    }
    let (_site, _hub, setup) = Setup::announcing(CHANNEL);
    let state = setup.state.path().join("state");
    fs::create_dir(&state).unwrap();
    check(&setup).is_fine();
    chown(&state, Some(12_345), None).unwrap();
    let checked = check(&setup);
    checked.is_fine();
    checked.noted("check runs as root, and ");
    checked.noted("is user 12345's");

    // A state that this user may not even read is no fault of the state.
    chown(&state, Some(0), None).unwrap();
    assert!(setup.start().stop().success());
    let file = state.join("state.sqlite");
    chown(&file, Some(12_345), None).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    if let Some(mut command) = check_under(&setup, &POWERLESS) {
        let checked = check_by(&mut command);
        checked.is_fine();
        checked.noted("state.sqlite; run this as the user who runs rsnotify: Permission denied");

        // Nor may it see whether there is a daemon, so the topic is tried: it has a name that nobody knows.
        fs::set_permissions(state.join("lock"), Permissions::from_mode(0o600)).unwrap();
        chown(state.join("lock"), Some(12_345), None).unwrap();
        let checked = check_by(&mut check_under(&setup, &POWERLESS).unwrap());
        checked.found(&["https://source.example/a/framework/: no answer to HEAD"]);
        checked.noted("cannot find out if rsnotify is running: Permission denied");
    }
}
