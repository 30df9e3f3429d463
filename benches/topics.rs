//! Topics under load, beside nginx: figures and ratios. Nothing is asserted.
//!
//! `cargo bench --bench topics` runs all; `-- NAME` only those whose name contains it. The client shares the
//! processors with whom it asks, so that figures are comparable, and lower than what a server alone could do.

#[path = "topics/client.rs"]
mod client;
#[path = "process/hub.rs"]
#[expect(dead_code, reason = "another bench needs other parts of it")]
mod hub;
#[path = "topics/nginx.rs"]
mod nginx;
#[path = "process/stage.rs"]
#[expect(dead_code, reason = "another bench needs other parts of it")]
mod stage;

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Figures, Load, Question};
use crate::hub::Hub;
use crate::nginx::Nginx;
use crate::stage::{Daemon, Stage, cpu_seconds, current_memory_mib, replace};

const TARGET: &str = "/topics/main/s1/d0/";
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let benches: [(&str, fn()); 3] = [
        ("beside_nginx", beside_nginx),
        ("deliveries", deliveries),
        ("idle", idle),
    ];
    for (name, bench) in benches {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            bench();
        }
    }
}

/// A daemon with two sets; the topic of the second has a body of 18 changes, about 3 KB.
fn started(hub: &Hub) -> (Stage, Daemon) {
    const DOCUMENTS: usize = 19;
    let stage = Stage::new(2, DOCUMENTS);
    stage.age();
    let daemon = stage.launch_with("quiet = \"100ms\"", &hub.table(""));
    let daemon = daemon.await_ready();
    for number in 1..DOCUMENTS {
        replace(&stage.stage(1, number, "1"), &stage.document(1, number));
    }
    hub.await_changes(DOCUMENTS - 1);
    (stage, daemon)
}

fn question(address: SocketAddr, target: &str, kind: &str) -> Question {
    let (question, answer) = Question::ask(address, target, None);
    match kind {
        "304" => Question::ask(address, target, answer.header("etag")).0,
        _ => question,
    }
}

/// A whole answer, and one that says that nothing has changed.
fn beside_nginx() {
    let hub = Hub::start(Duration::ZERO);
    let (_stage, daemon) = started(&hub);
    let (_, answer) = Question::ask(daemon.public(), TARGET, None);
    let nginx = Nginx::serve(&answer);
    for kind in ["200", "304"] {
        let ours = question(daemon.public(), TARGET, kind);
        let theirs = nginx
            .as_ref()
            .map(|nginx| question(nginx.address, nginx::TARGET, kind));
        let (mut rsnotify, mut peer) = (Vec::new(), Vec::new());
        // Alternately, so that other load of the machine affects both.
        for _ in 0..ROUNDS {
            rsnotify.push(Round::of(&ours, &[daemon.id()]));
            if let (Some(theirs), Some(nginx)) = (&theirs, &nginx) {
                peer.push(Round::of(theirs, &nginx.workers()));
            }
        }
        let rsnotify = median(rsnotify);
        let body = if kind == "200" { answer.body.len() } else { 0 };
        println!("beside_nginx: {kind} with {body} bytes: {rsnotify}");
        if peer.is_empty() {
            println!("beside_nginx: nginx is not installed, there is nothing to compare with");
            continue;
        }
        let peer = median(peer);
        let ratio = rsnotify.figures.per_second / peer.figures.per_second;
        println!("beside_nginx: {kind} by nginx: {peer}; ratio {ratio:.2} (goal 0.5)");
    }
}

/// The results of reading for a while, and the cost for the server.
struct Round {
    figures: Figures,
    cpu_micros: f64,
}

impl Round {
    fn of(question: &Question, servers: &[u32]) -> Round {
        let cpu = || -> f64 { servers.iter().map(|id| cpu_seconds(*id)).sum() };
        let before = cpu();
        let load = question.load(None);
        std::thread::sleep(ROUND); // what is measured is what happens meanwhile
        let figures = load.end();
        Round {
            cpu_micros: (cpu() - before) * 1e6 / figures.answers as f64,
            figures,
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Round {
            figures,
            cpu_micros,
        } = self;
        write!(f, "{figures}, {cpu_micros:.1} µs of CPU each")
    }
}

/// The round of the median rate.
fn median(mut rounds: Vec<Round>) -> Round {
    rounds.sort_by(|one, other| one.figures.per_second.total_cmp(&other.figures.per_second));
    rounds.swap_remove(rounds.len() / 2)
}

/// The influence of reading on deliveries, and of deliveries on reading: one channel delivers while another's topic is read.
fn deliveries() {
    let hub = Hub::start(Duration::ZERO);
    let (stage, daemon) = started(&hub);
    let known = question(daemon.public(), TARGET, "304");
    let whole = question(daemon.public(), TARGET, "200");
    let readers: [(&str, &dyn Fn() -> Option<Load>); 4] = [
        ("no reader", &|| None),
        ("5,000 conditional GETs a second", &|| {
            Some(known.load(Some(5_000)))
        }),
        ("conditional GETs at full speed", &|| Some(known.load(None))),
        ("GETs at full speed", &|| Some(whole.load(None))),
    ];
    for (round, (words, start)) in readers.iter().enumerate() {
        let load = start();
        let mut times: Vec<f64> = (0..60)
            .map(|version| {
                let staged = stage.stage(0, 1, &format!("{round}-{version}"));
                let begin = Instant::now();
                replace(&staged, &stage.document(0, 1));
                hub.next().duration_since(begin).as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let read = load.map_or("nothing read".to_owned(), |load| load.end().to_string());
        println!(
            "deliveries: {words}: rename to POST median {:.1} ms, p95 {:.1} ms, of which 100 ms are the window; {read}",
            times[times.len() / 2],
            times[times.len() * 95 / 100],
        );
    }
}

/// The cost of ten thousand idle connections, and the duration of a request among them.
fn idle() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).expect("what is granted");
    let most = maximum.map_or(10_000, |files| (files / 2 - 100).min(10_000));
    let hub = Hub::start(Duration::ZERO);
    let (_stage, daemon) = started(&hub);
    for (words, sent) in [
        ("that never asked", String::new()),
        (
            "that asked once",
            format!("GET {TARGET} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ),
    ] {
        let before = current_memory_mib(daemon.id());
        let idle: Vec<TcpStream> = (0..most)
            .map(|_| {
                let mut stream = TcpStream::connect(daemon.public()).expect("a slot");
                stream.write_all(sent.as_bytes()).expect("a request");
                if !sent.is_empty() {
                    stream.read_exact(&mut [0]).expect("an answer");
                }
                stream
            })
            .collect();
        let begin = Instant::now();
        question(daemon.public(), TARGET, "200");
        let took = begin.elapsed();
        println!(
            "idle: {most} connections {words}: {:.1} KiB each; a new one is answered in {:.2} ms",
            (current_memory_mib(daemon.id()) - before) * 1024.0 / most as f64,
            took.as_secs_f64() * 1e3,
        );
        drop(idle);
        std::thread::sleep(Duration::from_secs(1)); // lets them go before the next are counted
    }
}
