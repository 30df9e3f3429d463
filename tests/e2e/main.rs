//! End-to-end stories with the real binary: real files, real sockets, a hub that can refuse, hang, disconnect and lie.

#![expect(clippy::unwrap_used, reason = "a test that fails should say where")]

mod activation;
mod advertise;
mod asking;
mod checking;
mod control;
mod crash;
mod daemon;
mod delivery;
mod documents;
mod dry_run;
mod embedded;
mod escaping;
mod health;
mod hub;
mod listener;
#[path = "../needs/localhost.rs"]
mod localhost;
mod logging;
mod looking;
mod manager;
mod metrics;
mod modes;
mod monitoring;
mod naming;
#[path = "../needs/mod.rs"]
mod needs;
mod offline;
mod outbox;
mod page;
mod progress;
mod publishing;
mod python;
mod reach;
mod reload;
mod resync;
// Steps are there in debug builds only.
#[cfg(debug_assertions)]
mod failpoints;
mod serving;
mod stopping;
mod subscriptions;
mod supervised;
mod unread;

/// How long an event is awaited before a test fails. Generous: the machine may be busy.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);
