//! How everything stands, and as JSON.

use serde_json::{Value, json};

use crate::announce::engine::{ChannelView, HubView, SourceView};
use crate::announce::finding::Finding;

/// What the loop answers when it is asked how things stand.
#[derive(Debug, Clone)]
pub struct Status {
    pub sources: Vec<SourceView>,
    pub channels: Vec<ChannelView>,
    pub findings: Vec<Finding>,
}

impl Status {
    /// `"version": 1`; what is absent is `null`.
    pub fn to_json(&self) -> Value {
        json!({
            "version": 1,
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
            "channels": self.channels.iter().map(channel).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

fn source(source: &SourceView) -> Value {
    let mounts: Vec<Value> = source
        .mounts
        .iter()
        .map(|mount| {
            json!({
                "directory": mount.directory.to_string_lossy(),
                "url": mount.prefix.as_str(),
                "present": mount.present,
            })
        })
        .collect();
    json!({
        "name": source.name,
        "settled": source.settled,
        "suspended": source.suspension.is_some(),
        "suspension": source.suspension.as_ref().map(ToString::to_string),
        "documents": source.documents,
        "missing": source.missing,
        "broken": source.broken,
        "mounts": mounts,
    })
}

fn channel(channel: &ChannelView) -> Value {
    json!({
        "source": channel.source,
        "set": channel.set.as_str(),
        "topic": channel.topic.as_str(),
        "retired": channel.retired.map(|since| since.to_string()),
        "seq": channel.seq,
        "hubs": channel.hubs.iter().map(hub).collect::<Vec<_>>(),
    })
}

fn hub(hub: &HubView) -> Value {
    json!({
        "hub": hub.hub.as_str(),
        "due": hub.due,
        "in_flight": hub.in_flight,
        "attempts": hub.attempts,
        "next_try": hub.next_try.map(|at| at.to_string()),
        "last_failure": hub.last_failure,
        "accepted": hub.accepted.map(|at| at.to_string()),
        "fetch_confirmed": hub.fetch_confirmed,
    })
}
