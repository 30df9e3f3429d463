//! The scenarios of the engine that look at nothing but the tree and the hubs, against the steps over the database.

#![expect(clippy::unwrap_used, reason = "a test may fail, its helpers too")]
#![expect(
    dead_code,
    reason = "the world of the other engine has more to look at"
)]

mod world;

#[path = "../../../../tests/scenario/aggregation.rs"]
mod aggregation;
#[path = "../../../../tests/scenario/crash.rs"]
mod crash;
#[path = "../../../../tests/scenario/deletion.rs"]
mod deletion;
#[path = "../../../../tests/scenario/delivery.rs"]
mod delivery;
#[path = "../../../../tests/scenario/hold.rs"]
mod hold;
#[path = "../../../../tests/scenario/payload.rs"]
mod payload;
#[path = "../../../../tests/scenario/spans.rs"]
mod spans;

/// Helpers of a scenario that is not tried here, for those above.
mod channels {
    use resourcesync::channel_kind::ChannelKind;
    use resourcesync::uri::{Topic, Uri};
    use rsnotify::announce::plan::ChannelPlan;

    pub fn configured(capability_list: &str, topic: &str) -> ChannelPlan {
        ChannelPlan {
            capability_list: Uri::parse(capability_list).unwrap(),
            kind: ChannelKind::Framework,
            topic: Topic::new(topic),
            hubs: Vec::new(),
        }
    }
}

/// Helpers of a scenario that is not tried here, for those above.
mod moves {
    use crate::world::{Doc, list};

    /// The Capability List of a set, on another topic.
    pub fn moved(set: &str, topic: &str) -> Doc {
        let names = ["resourcelist", "changelist"].map(|name| format!("{set}/{name}.xml"));
        list("capabilitylist")
            .version(1)
            .up("/.well-known/resourcesync")
            .lists(&[&names[0], &names[1]])
            .channel(topic, &[])
    }
}
