//! The engine alone: two sweeps of 50,000 documents, the second with every document changed.
//!
//! Figures beside their targets; nothing is asserted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use announce::candidates::CandidateGlobs;
use announce::delivery::Submission;
use announce::event::{Effect, Event};
use announce::observation::{DocumentPath, FileId, Found, MountId, Observation, Stat};
use announce::plan::{
    DEFAULT_INCLUDE, HubPlan, MassDeletionLimit, MountPlan, Plan, PublishMode, ReplacedHub,
    SourcePlan, WindowPlan,
};
use announce::state::open::in_memory;
use announce::steps::engine::Engine;
use jiff::Timestamp;
use resourcesync::parse::parse;
use resourcesync::uri::{Hub, Uri};
use websub::answer::Answer;

const URL: &str = "https://source.example/";

fn main() {
    for (sets, documents_per_set, target) in [(1_000, 50, " (target: under 1 s)"), (1, 100_000, "")]
    {
        let documents = sets * documents_per_set;
        let (seen, accepted, notifications) = told(sets, documents_per_set);
        println!(
            "engine: two sweeps of {documents} documents in {sets} sets, their first notifications cut: \
             {:.3} s{target}; all {notifications} notifications accepted: {:.3} s more",
            seen.as_secs_f64(),
            accepted.as_secs_f64()
        );
    }
}

/// Two sweeps of so many sets with so many documents each, and what that makes to tell, told to a hub that
/// accepts at once: how long the sweeps and their first notifications take, how long the acceptances and
/// the notifications after them, and how many there are.
fn told(sets: usize, documents_per_set: usize) -> (Duration, Duration, usize) {
    let start = Timestamp::UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let sweeps: Vec<Vec<Vec<Observation>>> = (0..2)
        .map(|version| sweep(version, start, sets, documents_per_set))
        .collect();
    let state = in_memory().expect("a state in memory");
    let (mut engine, _) = Engine::start(state, plan(), start.into()).expect("a start");
    let mut step = |event, now: Timestamp| {
        engine
            .step(vec![event], now.into(), |_, _| Ok(()))
            .expect("a step")
    };
    let mut notifications = 0;
    let mut now = start;
    let (mut seen, mut answered) = (Duration::ZERO, Duration::ZERO);
    for sweep in sweeps {
        now += Duration::from_secs(60);
        let begin = Instant::now();
        let identity = FileId {
            device: 1,
            inode: 1,
        };
        step(
            Event::MountFound {
                mount: MountId(0),
                identity,
                started: now,
            },
            now,
        );
        let mut effects = Vec::new();
        for batch in sweep {
            effects.extend(step(Event::Observed(batch), now));
        }
        effects.extend(step(
            Event::Swept {
                mount: MountId(0),
                complete: true,
                candidates: (sets * documents_per_set) as u64,
            },
            now,
        ));
        seen += begin.elapsed();
        let begin = Instant::now();
        while !effects.is_empty() {
            let submissions = std::mem::take(&mut effects).into_iter();
            let submissions = submissions.filter_map(|effect| match effect {
                Effect::Submit(submission) => Some(submission),
                _ => None,
            });
            for submission in submissions {
                notifications += 1;
                effects.extend(step(accepted(submission), now));
            }
        }
        answered += begin.elapsed();
    }
    (seen, answered, notifications)
}

fn accepted(submission: Submission) -> Event {
    Event::Answered {
        id: (submission.channel, submission.hub, submission.seq),
        answer: Answer::Status {
            status: 204,
            content_type: None,
            retry_after: None,
            excerpt: String::new(),
            credentials: None,
        },
        jitter: 0.0,
    }
}

fn plan() -> Plan {
    Plan {
        sources: vec![SourcePlan {
            name: "main".to_owned(),
            mounts: vec![MountPlan {
                id: MountId(0),
                directory: "/srv".into(),
                prefix: Uri::parse(URL).expect("a URI"),
                aliases: Vec::new(),
            }],
            candidates: CandidateGlobs::new(DEFAULT_INCLUDE.map(str::to_owned).into(), Vec::new())
                .expect("globs"),
            broken_after: Duration::from_secs(10),
            deletion_grace: Duration::from_secs(300),
            mass_deletion: MassDeletionLimit::Percent(50),
            announce_existing: false,
            announce_all_deletions: false,
            announce_all_components: false,
            unadvertised_channels: true,
            change_notifications: false,
            changes_from_resource_lists: false,
            acknowledged: Vec::new(),
        }],
        hubs: vec![HubPlan {
            hub: Hub::new("https://hub.example/"),
            mode: PublishMode::Content,
            replaces: ReplacedHub::Automatic,
        }],
        brokers: Vec::new(),
        channels: Vec::new(),
        public_url: Uri::parse("https://topics.example/").expect("a URI"),
        window: WindowPlan {
            quiet: Duration::ZERO,
            max_wait: Duration::from_secs(30),
            hold: Duration::from_secs(60),
            max_entries: 1_000,
            max_bytes: 1 << 20,
            change_quiet: Duration::from_millis(250),
            change_max_wait: Duration::from_secs(5),
            change_backlog: 1_000_000,
        },
        topic_window: Duration::from_secs(3_600),
        retired_topic: Duration::from_secs(86_400),
    }
}

/// Returns the observations of a sweep: every document of every set, in batches.
fn sweep(
    version: usize,
    at: Timestamp,
    sets: usize,
    documents_per_set: usize,
) -> Vec<Vec<Observation>> {
    let mut all = Vec::new();
    for set in 0..sets {
        let mut members = String::new();
        for number in 1..documents_per_set {
            let name = format!("s{set}/d{number}.xml");
            members +=
                &format!("<url><loc>{URL}{name}</loc><rs:md capability=\"changelist\"/></url>");
            let entry = format!("<url><loc>{URL}r{version}</loc></url>");
            all.push(observation(&name, &document(set, "changelist", &entry), at));
        }
        let list = document(set, "capabilitylist", &members);
        all.push(observation(
            &format!("s{set}/capabilitylist.xml"),
            &list,
            at,
        ));
    }
    all.chunks(512).map(<[Observation]>::to_vec).collect()
}

fn document(set: usize, capability: &str, entries: &str) -> String {
    format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:ln rel=\"up\" href=\"{URL}s{set}/capabilitylist.xml\"/>\
         <rs:md capability=\"{capability}\"/>{entries}</urlset>"
    )
}

fn observation(name: &str, content: &str, at: Timestamp) -> Observation {
    let Ok(Ok(parsed)) = parse(content.as_bytes()) else {
        panic!("{name} is a document");
    };
    let stat = Stat {
        size: 1,
        modified: at,
        changed: at,
        inode: 1,
    };
    Observation {
        path: DocumentPath {
            mount: MountId(0),
            below: Arc::from(name.as_bytes()),
        },
        at,
        look: Found::Document {
            parsed: parsed.into(),
            stat,
        },
    }
}
