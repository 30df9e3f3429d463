//! A source for the tests of its parts.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::candidates::Candidates;
use crate::announce::engine::step::Step;
use crate::announce::event::Fact;
use crate::announce::observation::{DocumentPath, MountId};
use crate::announce::plan::{MassDeletion, MountPlan, SourcePlan};

pub const MOUNT: MountId = MountId(1);

/// A source with one mount, whose findings and troubles last after 10 s.
pub fn plan() -> Arc<SourcePlan> {
    Arc::new(SourcePlan {
        name: "main".to_owned(),
        mounts: vec![MountPlan {
            id: MOUNT,
            directory: "/srv/main".into(),
            prefix: uri(""),
            aliases: Vec::new(),
        }],
        candidates: Candidates::new(vec!["**/*.xml".to_owned()], Vec::new()).unwrap(),
        broken_after: Duration::from_secs(10),
        deletion_grace: Duration::from_secs(60),
        mass_deletion: MassDeletion::Never,
        announce_existing: false,
        announce_all_deletions: false,
        announce_all_components: false,
        unadvertised_channels: false,
        change_notifications: false,
        changes_from_resource_lists: false,
        acknowledged: Vec::new(),
    })
}

pub fn uri(name: &str) -> Uri {
    Uri::parse(&format!("https://e.org/{name}")).unwrap()
}

pub fn path(name: &str) -> DocumentPath {
    DocumentPath {
        mount: MOUNT,
        below: Arc::from(name.as_bytes()),
    }
}

/// Begins a step at this second.
pub fn step_at(step: &mut Step, second: i64) {
    step.begin(Timestamp::new(second, 0).unwrap().into());
}

pub fn step() -> Step {
    let mut step = Step::new(Timestamp::UNIX_EPOCH.into());
    step_at(&mut step, 0);
    step
}

/// Takes what was told.
pub fn facts(step: &mut Step) -> Vec<Fact> {
    step.take().facts
}

/// Takes the seconds for which timers were set.
pub fn timers(step: &mut Step) -> Vec<i64> {
    let timers = step.take_timers();
    timers.map(|(at, _)| at.as_second()).collect()
}
