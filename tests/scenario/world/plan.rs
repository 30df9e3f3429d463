//! The plans of the simulated world.

use std::time::Duration;

use announce::candidates::CandidateGlobs;
use announce::observation::MountId;
use announce::plan::{
    DEFAULT_INCLUDE, HubPlan, MassDeletionLimit, MountPlan, Plan, PublishMode, ReplacedHub,
    SourcePlan, WindowPlan,
};
use resourcesync::uri::{Hub, Uri};

pub const SITE: &str = "https://example.org";
/// The Capability Lists of [`crate::world::World::with_two_sets`].
pub const SET_A: &str = "/a/capabilitylist.xml";
pub const SET_B: &str = "/b/capabilitylist.xml";
pub const NOTHING: [&str; 0] = [];
pub const HUB: &str = "https://hub.example.net/";
pub const OTHER_HUB: &str = "https://other.example.net/";

/// One source, one mount, one hub, and the defaults.
pub fn plan() -> Plan {
    Plan {
        sources: vec![SourcePlan {
            name: "main".to_owned(),
            mounts: vec![mount("/srv/www", "https://example.org/")],
            candidates: excluding(&[]),
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
        hubs: vec![hub(HUB, PublishMode::Content)],
        brokers: Vec::new(),
        channels: Vec::new(),
        public_url: Uri::parse("https://example.org/").unwrap(),
        window: WindowPlan {
            quiet: Duration::from_secs(2),
            max_wait: Duration::from_secs(30),
            hold: Duration::from_secs(60),
            max_entries: 1_000,
            max_bytes: 1 << 20,
            change_quiet: Duration::from_millis(250),
            change_max_wait: Duration::from_secs(5),
            change_backlog: 1_000_000,
        },
        topic_window: Duration::from_secs(3_600),
        retired_topic: Duration::from_secs(30 * 86_400),
    }
}

pub fn altered(mut plan: Plan, alter: impl FnOnce(&mut Plan)) -> Plan {
    alter(&mut plan);
    plan
}

/// The plan of a source whose deletions are announced, whatever is deleted.
pub fn all_deletions() -> Plan {
    altered(plan(), |plan| plan.sources[0].announce_all_deletions = true)
}

/// The plan of another source besides, with one mount.
pub fn two_sources(prefix: &str) -> Plan {
    let mut plan = plan();
    let other = other_source(&plan, prefix);
    plan.sources.push(other);
    plan
}

pub fn two_hubs() -> Plan {
    let mut plan = plan();
    plan.hubs.push(hub(OTHER_HUB, PublishMode::Content));
    plan
}

pub fn ping_hub() -> Plan {
    let mut plan = plan();
    set_hubs(&mut plan, &[(HUB, PublishMode::Ping)]);
    plan
}

pub fn set_hubs(plan: &mut Plan, hubs: &[(&str, PublishMode)]) {
    plan.hubs = hubs.iter().map(|(url, mode)| hub(url, *mode)).collect();
}

/// The usual candidates but for these.
pub fn excluding(exclude: &[&str]) -> CandidateGlobs {
    let exclude = exclude.iter().map(|glob| (*glob).to_owned()).collect();
    CandidateGlobs::new(DEFAULT_INCLUDE.map(str::to_owned).into(), exclude).unwrap()
}

pub fn mount(directory: &str, prefix: &str) -> MountPlan {
    MountPlan {
        id: MountId(0),
        directory: directory.into(),
        prefix: Uri::parse(prefix).unwrap(),
        aliases: Vec::new(),
    }
}

/// A source like the first of a plan, with one mount.
pub fn other_source(plan: &Plan, prefix: &str) -> SourcePlan {
    SourcePlan {
        name: "other".to_owned(),
        mounts: vec![mount("/srv/other", prefix)],
        ..plan.sources[0].clone()
    }
}

fn hub(url: &str, mode: PublishMode) -> HubPlan {
    HubPlan {
        hub: Hub::new(url),
        mode,
        replaces: ReplacedHub::Automatic,
    }
}
