//! End-to-end stories with the real binary: real files, real sockets, a hub that can refuse, hang, disconnect and lie.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

mod advertise;
mod brokers;
mod changes;
mod checking;
mod conformance;
mod control;
mod delivery;
mod embedded;
mod escaping;
mod examples;
// Failpoints are there in debug builds only.
#[cfg(debug_assertions)]
mod failpoints;
mod health;
mod hub_connections;
mod interop;
mod listen;
mod logging;
mod metrics;
mod monitoring;
mod outbox;
mod own_hub;
mod packaging;
mod page;
mod read_only_commands;
mod reload;
mod service_manager;
mod serving;
mod stopping;
mod subscriptions;
#[expect(dead_code, reason = "other programs use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod wrong_url;
